//! LMDB environments.

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::records::{Entry, Format, Records, Window, FileError, matches};
use super::{LeftOuts, WhyLeftOut};
use crate::geometry::Size;
use crate::header::PnmHead;
use crate::storage::File;

mod datum;
mod pages;

use pages::{Environment, Node, Value};

/// Images in LMDB environments: the values of keys, as they are or each in Caffe's Datum.
///
/// * A path is a `data.mdb`, or whatever an environment of one file is called; a directory (its files that end in
///   `data.mdb`); or a pattern of files. The samples are in the order of the paths, and in an environment of its keys.
/// * Files of 64-bit little-endian machines are read, by LMDB 0.9 or 1.0, of any page size. The library is not used:
///   damaged and hostile files end in errors with the byte, and none needs a lock. Samples are copied out of a mapping of
///   the file (`storage.map`); one that is cut meanwhile is a fault of the sample, and not the end of the process.
/// * Of the database in the settings every value is a sample whose key is wanted. Keys that lead to other databases are
///   not seen. A database with several values per key (DUPSORT) is refused.
/// * A Datum's data are its image, and its label the label; an image as it is has label -1. Which of both the values
///   are, the first tells, where the settings do not. A Datum of pixels, in planes with blue first or gray, becomes a PNM
///   of RGB or gray; one of floats is an error.
/// * The pages of keys are read on first use, and of each value the beginning; the table is kept beside each file (a
///   hidden file that ends in `.feedwater1`) or in the cache's directory. An image is then one read. LMDB has no
///   checksums of contents: what was damaged before is left to the image's own format.
/// * Nobody may write to the environment meanwhile. The newest transaction that was over when it was opened is read; where
///   the file changes afterwards, samples cannot be read.
pub type Lmdb = Records<LmdbSettings>;

/// How LMDB environments are read.
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
    /// the images.
    pub skip_keys: Vec<String>,
}

/// What the values of an LMDB environment are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LmdbValues {
    /// What the first of them is: `datum` or `image`.
    #[default]
    Auto,
    /// Caffe's Datum, which has a label.
    Datum,
    /// The encoded image itself.
    Image,
}

impl Default for LmdbSettings {
    fn default() -> Self {
        Self {
            database: String::new(),
            values: LmdbValues::Auto,
            keys: "*".into(),
            skip_keys: vec!["__*__".into()],
        }
    }
}

impl Format for LmdbSettings {
    const KEY: &'static str = "lmdb";
    const ENDING: &'static str = "data.mdb";
    const CHECKED: bool = false;
    const MAPPED: bool = true;

    /// By the mark of the first meta page.
    fn recognises(_: &str, head: &[u8]) -> bool {
        head.get(16..20) == Some(&[0xde, 0xc0, 0xef, 0xbe])
    }

    fn head(note: u32) -> Option<PnmHead> {
        datum::head(note)
    }

    fn pixels(note: u32) -> Option<u64> {
        datum::size(note).map(Size::pixels)
    }

    fn walk(
        &self,
        window: &mut Window,
        table: &mut Vec<Entry>,
        left_out: &mut LeftOuts,
    ) -> Result<(), FileError> {
        let mut environment = Environment::open(window)?;
        let mut values = self.values;
        let mut names = Vec::new();
        let mut named = None;
        let main = environment.main();
        environment.each(window, main, &mut |window, Node { key, value, .. }| {
            match value {
                Value::Bytes(bytes) if self.database.is_empty() => {
                    self.sample(window, key, bytes, &mut values, table, left_out)?;
                }
                Value::Bytes(_) => {}
                Value::Database(database) => {
                    // LMDB 1.0 stores the C string's end.
                    let name = key.strip_suffix(b"\0").unwrap_or(key);
                    if name == self.database.as_bytes() {
                        named = Some(database);
                    }
                    if names.len() < 32 {
                        names.push(shown(name));
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
                return Err(FileError::new(0, problem));
            }
            return Ok(());
        }
        let Some(database) = named else {
            let name = &self.database;
            let problem = match names.is_empty() {
                true => format!(
                    "the environment has no database {name:?}; it has none with names, leave source.database out"
                ),
                false => format!(
                    "the environment has no database {name:?}; name another one as source.database, there are {}",
                    names.join(", ")
                ),
            };
            return Err(FileError::new(0, problem));
        };
        environment.each(window, database, &mut |window, Node { offset, key, value }| match value {
            Value::Bytes(bytes) => self.sample(window, key, bytes, &mut values, table, left_out),
            Value::Database(_) => {
                let problem = "a database in a named database: the file is damaged";
                Err(FileError::new(offset, problem))
            }
        })
    }

    fn is_plain(note: u32) -> bool {
        datum::is_plain(note)
    }

    fn fill(&self, note: u32, file: &File, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        datum::fill(note, file, offset, space)?;
        Ok(space.len())
    }
}

impl LmdbSettings {
    /// Adds a value to the table, where its key is one of those that are wanted; else counts it.
    fn sample(
        &self,
        window: &mut Window,
        key: &[u8],
        value: Range<u64>,
        values: &mut LmdbValues,
        table: &mut Vec<Entry>,
        left_out: &mut LeftOuts,
    ) -> Result<(), FileError> {
        let skipped = || self.skip_keys.iter().any(|pattern| matches(pattern.as_bytes(), key));
        if !matches(self.keys.as_bytes(), key) || skipped() {
            left_out.add(WhyLeftOut::OtherKey, "", 1, &shown(key));
            return Ok(());
        }
        if *values == LmdbValues::Auto {
            let datum = datum::is_datum(window, value.clone())?;
            *values = if datum { LmdbValues::Datum } else { LmdbValues::Image };
        }
        let entry = match *values {
            LmdbValues::Datum => datum::find(window, value),
            LmdbValues::Auto | LmdbValues::Image => Entry::new(value, -1, 0),
        };
        table.push(entry.map_err(|wrong| {
            FileError::new(wrong.offset, format!("key {:?}: {}", shown(key), wrong.problem))
        })?);
        Ok(())
    }
}

/// The beginning of a key, for messages.
fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(100)]).into_owned()
}
