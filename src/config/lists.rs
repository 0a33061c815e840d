//! Lists of tables in a pipeline file: operators, views and columns.

use std::sync::Arc;

use serde::Deserialize;
use toml::{Table, Value};

use super::node::{NodeError, read, read_with, type_name};
use crate::error::{Error, Result};
use crate::image::PixelFormat;
use crate::op::{self, Chain, ChainStep, Operator, Placement, View, WithAlpha};
use crate::plan::ColumnSettings;
use crate::tensor::DType;

/// Parses the operators of the list `list`, which is `chain` or its other name.
pub fn chain(list: &str, value: Option<Value>) -> Result<(Chain, Vec<Table>)> {
    let mut chain = Chain::new();
    let mut written = Vec::new();
    for (key, mut table) in tables(list, value)? {
        let placement: Placement = match table.remove("placement") {
            Some(value) => read(value).map_err(|it| it.at("placement").into_error(&key))?,
            None => Placement::Auto,
        };
        let operator = operator(&mut table, &key, &["op", "placement"])?;
        operator
            .check()
            .map_err(|error| Error::config(format!("{key}.{}", error.field), error.problem))?;
        chain = chain.then_any(placement, operator);
        written.push(table);
    }
    Ok((chain, written))
}

/// Settings of operators that have a value for each channel.
const OF_CHANNELS: [&str; 4] = ["mean", "std", "fill", "value"];

/// Settings of a view besides its chain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewSettings {
    name: String,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    like: Option<String>,
    #[serde(default)]
    dtype: Option<DType>,
    #[serde(default)]
    pixels: Option<PixelFormat>,
}

/// Adds the views of `[[view]]` to a chain.
pub fn views(value: Option<Value>, mut main: Chain) -> Result<(Chain, Vec<Table>)> {
    let mut written = Vec::new();
    for (key, mut table) in tables("view", value)? {
        let (chain, operators) = chain(&format!("{key}.chain"), table.remove("chain"))?;
        let settings = read(Value::Table(table.clone()))
            .map_err(|problem: NodeError| problem.or_known(&["chain"]).into_error(&key))?;
        let ViewSettings { name, field, count, like, dtype, pixels } = settings;
        let steps = chain.steps().iter().zip(operators);
        let steps = steps.map(|(step, settings)| step_table(step, &settings));
        table.insert("chain".into(), steps.collect::<Result<Vec<_>>>()?.into());
        main = main.view(View { field, count, like, dtype, pixels, ..View::new(&name, chain) });
        written.push(table);
    }
    Ok((main, written))
}

/// Table of an operator of a chain in a pipeline file. `settings` are the operator's settings.
pub fn step_table(step: &ChainStep, settings: &Table) -> Result<Table> {
    let placement = Value::try_from(step.placement);
    let placement = placement.map_err(|error| Error::config("placement", error.to_string()))?;
    let mut table = Table::new();
    table.insert("op".into(), step.operator.name().into());
    table.insert("placement".into(), placement);
    table.extend(settings.clone());
    Ok(table)
}

/// Parses the columns of `[[column]]`.
pub fn columns(value: Option<Value>) -> Result<Vec<ColumnSettings>> {
    let columns = tables("column", value)?.into_iter();
    let columns = columns.map(|(key, table)| {
        read(Value::Table(table)).map_err(|problem: NodeError| problem.into_error(&key))
    });
    columns.collect()
}

/// Adds the operators of `[[batch_operators]]` to a chain.
pub fn batch_operators(value: Option<Value>, mut chain: Chain) -> Result<(Chain, Vec<Table>)> {
    let mut written = Vec::new();
    for (key, mut table) in tables("batch_operators", value)? {
        let name = operator_name(&mut table, &key, || op::batch::NAMES.join(", "))?;
        let operator = read_with(Value::Table(table.clone()), |settings| {
            op::batch::read(&name, settings).unwrap_or_else(|| {
                Err(NodeError::unknown_choice("operator", &name, op::batch::NAMES).at("op"))
            })
        });
        let operator = operator
            .map_err(|problem| problem.or_known(&["op"]).of_operator(&name).into_error(&key))?;
        operator
            .check()
            .map_err(|error| Error::config(format!("{key}.{}", error.field), error.problem))?;
        chain = chain.then_any_batch(operator);
        written.push(table);
    }
    Ok((chain, written))
}

/// Returns the tables in the list that has the name `list`, each with its key, such as `chain[0]`.
fn tables(list: &str, value: Option<Value>) -> Result<Vec<(String, Table)>> {
    let tables = match value {
        None => Vec::new(),
        Some(Value::Array(tables)) => tables,
        Some(value) => return Err(wrong_type(list, &list_of(list), &value)),
    };
    let tables = tables.into_iter().enumerate().map(|(number, table)| {
        let key = format!("{list}[{number}]");
        match table {
            Value::Table(table) => Ok((key, table)),
            other => Err(wrong_type(&key, "a table", &other)),
        }
    });
    tables.collect()
}

/// Removes `op`, the operator's name, from the operator's table. `key` is the key of the table.
fn operator_name(table: &mut Table, key: &str, names: impl Fn() -> String) -> Result<String> {
    match table.remove("op") {
        Some(value) => read(value).map_err(|it| it.at("op").into_error(key)),
        None => {
            let problem = format!("is missing; set it to the name of an operator: {}", names());
            Err(Error::config(format!("{key}.op"), problem))
        }
    }
}

/// Parses an operator and the operators inside it. Removes `op` from the table. `key` is the key of
/// the table. `known` lists the keys that the table may have besides the operator's settings.
fn operator(table: &mut Table, key: &str, known: &[&'static str]) -> Result<Arc<dyn Operator>> {
    let names = || [op::NAMES, op::combine::NAMES].concat().join(", ");
    let name = operator_name(table, key, names)?;
    let combines = op::combine::NAMES.contains(&name.as_str());
    let inner = match combines {
        true => inner(table.get("operators"), &format!("{key}.operators"))?,
        false => Vec::new(),
    };
    let mut settings = table.clone();
    if combines {
        settings.remove("operators");
    }
    let (settings, of_alpha) = of_channels(settings, key)?;
    let read = |settings| {
        read_with(Value::Table(settings), |settings| match combines {
            true => op::combine::read(&name, settings, inner.clone())
                .expect("op::combine::NAMES contains this name"),
            false => op::read(&name, settings)
                .unwrap_or_else(|| Err(NodeError::unknown_operator(&name).at("op"))),
        })
    };
    let operator = read(settings).and_then(|colours| match of_alpha {
        Some(settings) => read(settings).map(|alpha| Arc::new(WithAlpha::of(colours, alpha)) as _),
        None => Ok(colours),
    });
    let known = if combines { [known, &["operators"]].concat() } else { known.to_vec() };
    operator.map_err(|problem| problem.or_known(&known).of_operator(&name).into_error(key))
}

/// Divides the settings of an operator with four values per channel setting into those for red,
/// green and blue, and those for alpha.
fn of_channels(mut colours: Table, key: &str) -> Result<(Table, Option<Table>)> {
    let count = |table: &Table, name: &str| table.get(name)?.as_array().map(Vec::len);
    let Some(four) = OF_CHANNELS.iter().find(|name| count(&colours, name) == Some(4)) else {
        return Ok((colours, None));
    };
    let mut alpha = colours.clone();
    for name in OF_CHANNELS {
        match colours.get_mut(name) {
            Some(Value::Array(values)) if values.len() == 4 => {
                let last = values.pop();
                alpha.extend(last.map(|value| (name.to_string(), value)));
            }
            Some(Value::Array(values)) if values.len() > 1 => {
                let problem = format!(
                    "has 4 values, but {name} has {}; write one number, one for each of 3 channels, \
                     or 4 for images with alpha, in both",
                    values.len()
                );
                return Err(Error::config(format!("{key}.{four}"), problem));
            }
            _ => {}
        }
    }
    Ok((colours, Some(alpha)))
}

/// Parses the operators inside a combinator.
fn inner(value: Option<&Value>, key: &str) -> Result<Vec<Arc<dyn Operator>>> {
    let steps = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(steps)) => steps,
        Some(value) => return Err(wrong_type(key, &list_of(key), value)),
    };
    let steps = steps.iter().enumerate().map(|(number, step)| {
        let key = format!("{key}[{number}]");
        let Value::Table(table) = step else { return Err(wrong_type(&key, "a table", step)) };
        if table.contains_key("placement") {
            let problem = "is set for a combinator as a whole: write it beside the combinator's op";
            return Err(Error::config(format!("{key}.placement"), problem));
        }
        operator(&mut table.clone(), &key, &["op"])
    });
    steps.collect()
}

pub fn wrong_type(key: &str, wanted: &str, found: &Value) -> Error {
    Error::config(key, format!("must be {wanted}, is {}", type_name(found)))
}

/// Description of a list of tables, with the header that begins each of its tables. `key` is the
/// key of the list, such as `chain[1].operators`.
pub fn list_of(key: &str) -> String {
    let names = key.split('.').map(|name| name.split('[').next().unwrap_or_default());
    format!("a list: [[{}]]", names.collect::<Vec<_>>().join("."))
}
