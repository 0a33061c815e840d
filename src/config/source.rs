//! Section `[source]`: a single source, several mixed or concatenated sources, or a custom source
//! that the program provides.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::lists::{list_of, wrong_type};
use super::node::{read, read_with, unknown};
use super::not_a_section;
use crate::error::{Error, Result};
use crate::source::settings::JoinSettings;
use crate::source::{
    self, BadShards, CLASS_TO_INDEX, COMBINATIONS, Configured, DISABLED, Directory, KEYS, OWN,
    PartSettings, Selection, SourceSettings,
};
use crate::storage;

/// Maximum nesting depth of sources. Limits the recursion for malicious files.
const MOST_LEVELS: usize = 16;

/// Reads `[source]`. Paths are relative to `base`.
pub fn source(value: Option<Value>, base: &Path) -> Result<SourceSettings> {
    match value {
        None => Err(Error::config("source", format!("is missing; {}", help("source")))),
        Some(value) => nested(value, "source", base, 0, &[]),
    }
}

/// Reads the source at the key `at`. `level` is its nesting depth. `beside` lists keys that were
/// taken out of its table, for messages.
fn nested(
    value: Value,
    at: &str,
    base: &Path,
    level: usize,
    beside: &[&'static str],
) -> Result<SourceSettings> {
    let mut table = match value {
        Value::Table(table) => table,
        other if level == 0 => return Err(not_a_section(at, &other)),
        other => return Err(wrong_type(at, "a table", &other)),
    };
    if level > MOST_LEVELS {
        let problem = format!("sources are nested more than {MOST_LEVELS} levels deep");
        return Err(Error::config(at, problem));
    }
    let is_directory = table.contains_key(Directory::KEY);
    let is_selection = |key: &&str| !(is_directory && *key == CLASS_TO_INDEX);
    let keys: Vec<&str> = Selection::KEYS.into_iter().filter(is_selection).collect();
    let selection = take_all(&mut table, &keys);
    let mut selection: Selection = read(selection).map_err(|problem| problem.into_error(at))?;
    selection.relative_to(base);
    let bad = match table.remove(BadShards::KEY) {
        Some(value) => read(value).map_err(|it| it.at(BadShards::KEY).into_error(at))?,
        None => BadShards::default(),
    };
    let joins = table.remove(JoinSettings::KEY);
    let known = || KEYS.iter().chain(&COMBINATIONS).chain(&[OWN]).copied();
    let mut keys = known().filter(|key| table.contains_key(*key));
    let (key, second) = (keys.next(), keys.next());
    let Some(key) = key else {
        return Err(match table.keys().next() {
            Some(key) if DISABLED.contains(&key.as_str()) => {
                let problem =
                    format!("is disabled in this build; build feedwater with the feature `{key}`");
                Error::config(format!("{at}.{key}"), problem)
            }
            Some(key) => unknown(key, &known().collect::<Vec<_>>()).into_error(at),
            None => Error::config(at, format!("is empty; {}", help(at))),
        });
    };
    if let Some(second) = second {
        let problem = format!("has both {key} and {second}; remove one of them");
        return Err(Error::config(at, problem));
    }
    let source = match (table.remove(key), COMBINATIONS.contains(&key)) {
        (Some(parts), true) => combined(key, parts, table, at, base, level)?,
        (Some(name), _) if key == OWN => own(name, &table, at)?,
        (place, _) => single(key, place, table, (at, beside), base)?,
    };
    let mut source = source.on_bad_shard(bad);
    let at = format!("{at}.{}", JoinSettings::KEY);
    for (at, join) in each_join(joins, at) {
        let (other, settings) = joined(join, &at, base, level)?;
        source = source.join(other, settings);
    }
    Ok(source.select(selection))
}

/// Returns the joins of a source, each with its key: those of an array, or a single one.
fn each_join(joins: Option<Value>, at: String) -> Vec<(String, Value)> {
    match joins {
        None => Vec::new(),
        Some(Value::Array(joins)) => {
            let numbered = joins.into_iter().enumerate();
            numbered.map(|(number, join)| (format!("{at}[{number}]"), join)).collect()
        }
        Some(join) => vec![(at, join)],
    }
}

/// Reads a source that is joined to another one, and the settings of the join beside it.
fn joined(
    mut join: Value,
    at: &str,
    base: &Path,
    level: usize,
) -> Result<(SourceSettings, JoinSettings)> {
    let settings = match &mut join {
        Value::Table(table) => take_all(table, &JoinSettings::KEYS),
        other => return Err(wrong_type(at, "a table", other)),
    };
    let settings = read(settings).map_err(|problem| problem.into_error(at))?;
    Ok((nested(join, at, base, level + 1, &JoinSettings::KEYS)?, settings))
}

/// Reads a single source: its paths, and the settings beside its key.
fn single(
    key: &'static str,
    place: Option<Value>,
    settings: Table,
    (at, beside): (&str, &[&'static str]),
    base: &Path,
) -> Result<SourceSettings> {
    let one = |place: Value| -> Result<PathBuf> {
        let path: PathBuf = read(place).map_err(|it| it.at(key).into_error(at))?;
        if path.as_os_str().is_empty() {
            let problem = "is empty; name a path (\".\" is the folder of this file)";
            return Err(Error::config(format!("{at}.{key}"), problem));
        }
        Ok(storage::join(base, &path))
    };
    let paths = match place {
        Some(Value::Array(places)) => places.into_iter().map(one).collect::<Result<_>>()?,
        place => place.into_iter().map(one).collect::<Result<_>>()?,
    };
    let source = read_with(Value::Table(settings), |settings| {
        source::read(key, paths, settings, base).unwrap_or_else(|| Err(unknown(key, KEYS)))
    });
    source.map_err(|problem| {
        let problem = problem.or_known(&[key]).or_known(&Selection::KEYS);
        let problem = problem.or_known(&[BadShards::KEY, JoinSettings::KEY]);
        problem.or_known(beside).into_error(at)
    })
}

/// Reads the name of a source that the program provides.
fn own(name: Value, beside: &Table, at: &str) -> Result<SourceSettings> {
    if let Some(other) = beside.keys().next() {
        return Err(unknown(other, &[OWN]).or_known(&Selection::KEYS).into_error(at));
    }
    let name: String = read(name).map_err(|it| it.at(OWN).into_error(at))?;
    if name.is_empty() {
        let problem = "is empty; write the name under which the program provides the source";
        return Err(Error::config(format!("{at}.{OWN}"), problem));
    }
    Ok(SourceSettings::own(name))
}

/// Reads a list of sources: `[[source.mixture]]` or `[[source.concat]]`.
fn combined(
    key: &'static str,
    parts: Value,
    mut beside: Table,
    at: &str,
    base: &Path,
    level: usize,
) -> Result<SourceSettings> {
    let Value::Array(parts) = parts else {
        let key = format!("{at}.{key}");
        return Err(wrong_type(&key, &list_of(&key), &parts));
    };
    let is_mixture = key == COMBINATIONS[0];
    let samples = match beside.remove("samples").filter(|_| is_mixture) {
        Some(value) => Some(read(value).map_err(|it| it.at("samples").into_error(at))?),
        None => None,
    };
    if let Some(other) = beside.keys().next() {
        let mut known = vec![key];
        known.extend(is_mixture.then_some("samples"));
        return Err(unknown(other, &known).or_known(&Selection::KEYS).into_error(at));
    }
    let mut read_parts = Vec::new();
    for (number, mut part) in parts.into_iter().enumerate() {
        let at = format!("{at}.{key}[{number}]");
        let weight = part.as_table_mut().and_then(|part| part.remove("weight"));
        let weight = match weight {
            Some(value) if is_mixture => {
                read(value).map_err(|problem| problem.at("weight").into_error(&at))?
            }
            Some(_) => {
                let problem = "only the sources of a mixture have a weight; remove it";
                return Err(Error::config(format!("{at}.weight"), problem));
            }
            None => 1.0,
        };
        let beside: &[&str] = if is_mixture { &["weight"] } else { &[] };
        let source = nested(part, &at, base, level + 1, beside)?;
        read_parts.push(PartSettings { weight, source });
    }
    Ok(match is_mixture {
        true => SourceSettings::mixture(read_parts, samples),
        false => SourceSettings::concat(read_parts.into_iter().map(|it| it.source).collect()),
    })
}

/// Moves the entries with these keys out of a table. Returns them as a table.
fn take_all(table: &mut Table, keys: &[&str]) -> Value {
    let taken = keys.iter().filter_map(|key| table.remove_entry(*key));
    Value::Table(taken.collect())
}

fn help(at: &str) -> String {
    let keys: Vec<_> = KEYS.iter().chain(&COMBINATIONS).copied().collect();
    format!(
        "write directory = \"…\" (one sub-folder per class) under [{at}], or one of {}",
        keys.join(", ")
    )
}
