//! Source for LMDB environments.

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::records::{
    Entries, Entry, FieldPlace, FieldSink, FileError, Format, PackedName, Records, StoredField,
    Window, changed, matches,
};
use super::{ExclusionReason, Exclusions, Field, VALUE};
use crate::error::{DataError, reserve};
use crate::geometry::Size;
use crate::header::PnmHead;
use crate::storage::File;

mod datum;
mod fields;
mod pages;

use pages::{Environment, Node, Value};

/// Images in LMDB environments. Each value is an encoded image or a Datum of Caffe.
///
/// * A path is a `data.mdb` or another environment that is a single file, a directory (its files
///   that end in `data.mdb`), or a pattern of files. Samples are ordered by path, then by key.
/// * Files of LMDB 0.9 and 1.0 from 64-bit little-endian machines are supported, with any page
///   size. They are parsed without the library and without a lock. Damaged and malicious files
///   cause errors with the byte offset. Samples are copied from a memory mapping of the file
///   (`storage.map`). If the file is truncated while it is used, the sample is an error, and the
///   process continues.
/// * Every value of the configured database whose key is selected is a sample. Keys of named
///   databases are ignored. A database with several values per key (DUPSORT) is an error.
/// * A Datum contains its image and label. An encoded image has label -1. By default, the first
///   value decides whether all values are Datums or encoded images. A Datum of raw pixels (blue,
///   green and red planes, or gray) becomes a PNM of RGB or gray. A Datum of floats is an error.
/// * The fields of a sample are its `key`, and `label`, `channels`, `height`, `width` and
///   `float_data` if its Datum has them. In the second source of a join, values need no image, and
///   a value that is no Datum is the field `value`: a text if it is UTF-8, and otherwise bytes.
///   When fields of a local file are first read, the keys are read again, and the position of each
///   key is stored (8 bytes). For files at URLs, the table contains the keys, and the fields of a
///   Datum are requested together with its image.
/// * On first use, the pages of keys and the beginning of each value are read. The resulting table
///   is stored beside each file (hidden, ending in `.feedwater1`) or in the cache directory.
///   Afterwards each image takes one read. LMDB has no checksums of contents. Damage from before
///   the first use is only detected if the image decoder finds it.
/// * No program may write to the environment while the source reads it. The source reads the newest
///   transaction that was committed when the source was opened. If the file changes afterwards, its
///   samples cannot be read.
pub type Lmdb = Records<LmdbSettings>;

/// Settings of the source `lmdb`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LmdbSettings {
    /// Name of the database in the environment. The default, empty, is the unnamed database.
    pub database: String,
    /// Type of the values. Default `auto`.
    pub values: LmdbValues,
    /// Pattern for the keys that are samples: `*` matches any text, `?` any byte. Default `*`.
    pub keys: String,
    /// Patterns for keys that are skipped. Default `["__*__"]`, which matches the lists that
    /// scripts for PyTorch store next to the images.
    pub skip_keys: Vec<String>,
}

/// Type of the values in an LMDB environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LmdbValues {
    /// Type of the first value: `datum` or `image`.
    #[default]
    Auto,
    /// Caffe's Datum, which contains a label.
    Datum,
    /// Encoded image.
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

    /// LMDB is recognised by the magic number of the first meta page.
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
        table: &mut Entries,
        excluded: &mut Exclusions,
    ) -> Result<(), FileError> {
        let mut values = self.values;
        let databases = self.each(window, &mut |window, _, key, value| {
            self.sample(window, key, value, &mut values, table, excluded)
        })?;
        if self.database.is_empty() && table.is_empty() && !databases.is_empty() {
            let problem = format!(
                "the environment has only named databases; set source.database to one of {}",
                databases.join(", ")
            );
            return Err(FileError::new(0, problem));
        }
        Ok(())
    }

    /// Offsets of the nodes of the samples' keys.
    fn record_starts(&self, window: &mut Window, count: usize) -> Result<Vec<u64>, DataError> {
        let mut starts = Vec::new();
        reserve::reserve(&mut starts, count)?;
        self.each(window, &mut |_, node, key, _| {
            if starts.len() < count && self.is_sample(key) {
                starts.push(node);
            }
            Ok(())
        })?;
        if starts.len() == count { Ok(starts) } else { Err(changed()) }
    }

    fn fields(
        &self,
        place: &FieldPlace<'_>,
        to: &mut FieldSink<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        fields::pass(place, to, buffer)
    }

    fn listed(stored: &StoredField, _: PackedName<'_>) -> Option<Field> {
        Some(fields::listed(stored))
    }

    fn is_plain(note: u32) -> bool {
        datum::is_plain(note)
    }

    fn fill(&self, note: u32, file: &File, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        datum::fill(note, file, offset, space)?;
        Ok(space.len())
    }
}

/// Receives the offset of the node, the key and the value of an entry.
type Found<'a> = dyn FnMut(&mut Window, u64, &[u8], Range<u64>) -> Result<(), FileError> + 'a;

impl LmdbSettings {
    /// Calls `found` with every entry of the configured database. Returns the names of some named
    /// databases of the environment.
    fn each(&self, window: &mut Window, found: &mut Found<'_>) -> Result<Vec<String>, FileError> {
        let mut environment = Environment::open(window)?;
        let mut names = Vec::new();
        let mut named = None;
        let main = environment.main();
        environment.each(window, main, &mut |window, Node { offset, key, value }| {
            match value {
                Value::Bytes(bytes) if self.database.is_empty() => {
                    found(window, offset, key, bytes)?;
                }
                Value::Bytes(_) => {}
                Value::Database(database) => {
                    // LMDB 1.0 stores the terminating zero of the C string.
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
            return Ok(names);
        }
        let Some(database) = named else {
            let name = &self.database;
            let problem = match names.is_empty() {
                true => format!(
                    "the environment has no database {name:?}, and no named databases at all; \
                     remove source.database"
                ),
                false => format!(
                    "the environment has no database {name:?}; set source.database to one of {}",
                    names.join(", ")
                ),
            };
            return Err(FileError::new(0, problem));
        };
        environment.each(
            window,
            database,
            &mut |window, Node { offset, key, value }| match value {
                Value::Bytes(bytes) => found(window, offset, key, bytes),
                Value::Database(_) => {
                    let problem = "a database in a named database: the file is damaged";
                    Err(FileError::new(offset, problem))
                }
            },
        )?;
        Ok(names)
    }

    /// Whether a value with this key is a sample.
    fn is_sample(&self, key: &[u8]) -> bool {
        let is_skipped = || self.skip_keys.iter().any(|pattern| matches(pattern.as_bytes(), key));
        matches(self.keys.as_bytes(), key) && !is_skipped()
    }

    /// Adds a value to the table if its key is selected. Otherwise counts the value as skipped.
    fn sample(
        &self,
        window: &mut Window,
        key: &[u8],
        value: Range<u64>,
        values: &mut LmdbValues,
        table: &mut Entries,
        excluded: &mut Exclusions,
    ) -> Result<(), FileError> {
        if !self.is_sample(key) {
            excluded.add(ExclusionReason::OtherKey, "", 1, &shown(key));
            return Ok(());
        }
        let for_fields = table.is_for_fields();
        if *values == LmdbValues::Auto {
            let mut datum = datum::is_datum(window, value.clone())?;
            if for_fields {
                // A value may be any text, which may begin like a Datum.
                datum &= datum::find(window, value.clone(), for_fields).is_ok();
            }
            *values = if datum { LmdbValues::Datum } else { LmdbValues::Image };
        }
        let found = match *values {
            LmdbValues::Datum => datum::find(window, value.clone(), for_fields),
            LmdbValues::Auto | LmdbValues::Image => {
                Entry::new(value.clone(), -1, 0).map(|entry| datum::Found { entry, numbers: 0 })
            }
        };
        let datum::Found { entry, numbers } = found.map_err(|wrong| {
            FileError::new(wrong.offset, format!("key {:?}: {}", shown(key), wrong.problem))
        })?;
        add_fields(table, numbers, *values != LmdbValues::Datum && for_fields);
        table.push_unordered(value, entry, key);
        Ok(())
    }
}

/// Adds the names of the fields of a sample: its key, the fields of a Datum with these numbers, and
/// the value itself if `value`.
fn add_fields(table: &mut Entries, numbers: u8, value: bool) {
    let datum = fields::INTEGERS.iter().chain([&fields::FLOATS]);
    let datum = datum.filter(|(number, _)| numbers & 1 << number != 0).map(|(_, name)| *name);
    for name in [fields::KEY].into_iter().chain(datum).chain(value.then_some(VALUE)) {
        if !table.has_field(name) {
            let is_list = name == fields::FLOATS.1;
            table.add_field(StoredField { name: name.into(), is_list });
        }
    }
}

/// Beginning of a key, to be shown in messages.
fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(100)]).into_owned()
}
