//! Settings of the operators that the gallery shows.

use std::sync::Arc;

use feedwater::op::{self, Operator};
use serde_json::Value;

use super::CommandError;

/// An operator with its settings as in a pipeline file.
pub struct Strength {
    pub operator: Arc<dyn Operator>,
    pub settings: String,
}

/// Settings per operator, as a table of lists.
const STRENGTHS: &str = include_str!("strengths.toml");

/// Returns all operators with the settings to show: from `strengths.toml`, or else the examples
/// that the tests use.
pub fn all() -> Result<Vec<(&'static str, Vec<Strength>)>, CommandError> {
    let broken =
        |name: &str, error: String| CommandError::Failed(format!("{name}: {}", error.trim_end()));
    let listed: toml::Table = STRENGTHS
        .parse()
        .map_err(|error: toml::de::Error| broken("strengths", error.to_string()))?;
    let mut all = Vec::new();
    for &name in feedwater::internals::op::NAMES {
        let settings: Vec<toml::Table> = match listed.get(name).and_then(toml::Value::as_array) {
            Some(list) => list.iter().filter_map(|it| it.as_table().cloned()).collect(),
            None => {
                feedwater::internals::op::example_settings(name).iter().map(without_nulls).collect()
            }
        };
        let strengths = settings.into_iter().map(|settings| {
            let text = format!("op = \"{name}\"\n{settings}");
            let operator = feedwater::internals::op::read(name, settings)
                .expect("all names in NAMES are operators");
            let operator = operator.map_err(|error| broken(name, error.to_string()))?;
            let problem =
                |error: op::custom::FieldError| format!("{}: {}", error.field, error.problem);
            operator.check().map_err(|error| broken(name, problem(error)))?;
            Ok(Strength { operator, settings: text.trim_end().into() })
        });
        all.push((name, strengths.collect::<Result<_, CommandError>>()?));
    }
    Ok(all)
}

/// Converts settings to TOML. TOML has no null, so a setting without a value is omitted.
fn without_nulls(settings: &Value) -> toml::Table {
    let given = settings.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    given
        .filter_map(|(key, value)| Some((key.clone(), toml::Value::try_from(value).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_strengths_and_every_listed_name_is_an_operator() {
        let all = all().unwrap_or_else(|_| panic!("the listed settings are valid"));
        assert_eq!(all.len(), feedwater::internals::op::NAMES.len());
        assert!(all.iter().all(|(_, strengths)| !strengths.is_empty()));
        let listed: toml::Table = STRENGTHS.parse().unwrap();
        for name in listed.keys() {
            assert!(feedwater::internals::op::NAMES.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn examples_become_toml_that_reads_back() {
        for &name in feedwater::internals::op::NAMES {
            for settings in feedwater::internals::op::example_settings(name) {
                let read = feedwater::internals::op::read(name, without_nulls(&settings)).unwrap();
                assert!(read.is_ok(), "{name}: {settings}");
            }
        }
    }
}
