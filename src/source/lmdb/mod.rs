//! LMDB environments.

use serde::{Deserialize, Serialize};

use super::records::{Entry, Format, Window, Wrong, matches};

mod datum;
mod pages;

use pages::{Environment, Node, Value};

/// How an LMDB environment is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LmdbSettings {
    /// The name of the database in the environment; empty for the one without a name. Default empty.
    pub database: String,
    /// What the values are. Default `auto`.
    pub values: LmdbValues,
    /// The keys that are samples: a pattern, in which `*` is any text and `?` any byte. Default `*`.
    pub keys: String,
    /// Patterns of keys that are none. Default `["__*__"]`, which are the lists that scripts for PyTorch put beside
    /// the pictures.
    pub skip: Vec<String>,
}

/// What the values of an LMDB environment are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LmdbValues {
    /// What the first of them is: `datum` or `image`.
    #[default]
    Auto,
    /// Caffe's Datum, which has a label.
    Datum,
    /// The encoded picture itself.
    Image,
}

impl Default for LmdbSettings {
    fn default() -> Self {
        Self {
            database: String::new(),
            values: LmdbValues::Auto,
            keys: "*".into(),
            skip: vec!["__*__".into()],
        }
    }
}

impl Format for LmdbSettings {
    const KEY: &'static str = "lmdb";
    const CHECKED: bool = false;

    fn settings(&self) -> String {
        format!("{:?} {:?} {:?} {:?}", self.database, self.values, self.keys, self.skip)
    }

    fn walk(&self, window: &mut Window, table: &mut Vec<Entry>) -> Result<(), Wrong> {
        let mut environment = Environment::open(window)?;
        let mut values = self.values;
        let mut names = Vec::new();
        let mut named = None;
        let main = environment.main();
        environment.each(window, main, &mut |window, Node { offset, key, value }| {
            match value {
                Value::Bytes(bytes) if self.database.is_empty() => {
                    self.sample(window, offset, key, bytes, &mut values, table)?;
                }
                Value::Bytes(_) => {}
                Value::Database(database) => {
                    // LMDB 1.0 stores the C string's end.
                    let name = key.strip_suffix(b"\0").unwrap_or(key);
                    if name == self.database.as_bytes() {
                        named = Some((offset, database));
                    }
                    if names.len() < 32 {
                        names.push(String::from_utf8_lossy(name).into_owned());
                    }
                }
            }
            Ok(())
        })?;
        if self.database.is_empty() {
            if table.is_empty() && !names.is_empty() {
                let problem = format!(
                    "the environment has named databases only; write one as source.database, there are {}",
                    names.join(", ")
                );
                return Err(Wrong::new(0, problem));
            }
            return Ok(());
        }
        let Some((_, database)) = named else {
            let problem = format!(
                "the environment has no database {:?}; name another one as source.database or none (\"\"), there are {}",
                self.database,
                names.join(", ")
            );
            return Err(Wrong::new(0, problem));
        };
        environment.each(window, database, &mut |window, Node { offset, key, value }| match value {
            Value::Bytes(bytes) => self.sample(window, offset, key, bytes, &mut values, table),
            Value::Database(_) => {
                let problem = "a database in a named database: the file is damaged";
                Err(Wrong::new(offset, problem))
            }
        })
    }
}

impl LmdbSettings {
    /// Adds a value to the table, where its key is one of those that are wanted.
    fn sample(
        &self,
        window: &mut Window,
        node: u64,
        key: &[u8],
        value: std::ops::Range<u64>,
        values: &mut LmdbValues,
        table: &mut Vec<Entry>,
    ) -> Result<(), Wrong> {
        let skipped = || self.skip.iter().any(|pattern| matches(pattern.as_bytes(), key));
        if !matches(self.keys.as_bytes(), key) || skipped() {
            return Ok(());
        }
        if *values == LmdbValues::Auto {
            let datum = datum::is_datum(window, value.clone())?;
            *values = if datum { LmdbValues::Datum } else { LmdbValues::Image };
        }
        let (picture, label) = match *values {
            LmdbValues::Datum => datum::find(window, value).map_err(|wrong| {
                let key = String::from_utf8_lossy(&key[..key.len().min(100)]);
                Wrong::new(wrong.offset, format!("key {key:?}: {}", wrong.problem))
            })?,
            LmdbValues::Auto | LmdbValues::Image => (value, -1),
        };
        table.push(Entry::new(picture, label, 0).map_err(|wrong| Wrong::new(node, wrong.problem))?);
        Ok(())
    }
}
