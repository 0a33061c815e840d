//! Fields in `.npy` files, one value per sample.

use std::path::{Path, PathBuf};

use super::array;
use super::{Npy, read, wrong};
use crate::error::{DataError, Error, Reason, Redacted, Result, reserve};
use crate::footprint::counted;
use crate::numpy::{Array, CHARACTER_BYTES, Item, words};
use crate::source::records::FileError;
use crate::source::{Field, FieldKind, FieldValue, Fields, PutField};
use crate::storage::{File, Stamp, Storage};

/// Files with the values of a field. Their arrays are concatenated.
pub struct FieldArrays {
    name: String,
    files: Vec<FieldFile>,
}

struct FieldFile {
    path: PathBuf,
    file: File,
    /// Length and version of the file at the time of opening.
    stamp: Stamp,
    item: Item,
    /// Number of elements of a sample; `None` for a single element without an axis.
    elements: Option<u64>,
    /// Offset of the first element.
    start: u64,
    /// Index after the file's last sample.
    end: u64,
}

impl FieldArrays {
    /// Opens the files of a field. `key` is the setting that names them.
    pub fn open(storage: &Storage, name: &str, key: &str, paths: &[PathBuf]) -> Result<Self> {
        let mut files: Vec<FieldFile> = Vec::new();
        for path in paths {
            let io = |error| Error::io(path, &error);
            let file = storage.open_pooled(path).map_err(io)?;
            let stamp = file.stamp().map_err(io)?;
            let array = match file.is_remote() {
                true => Err(FileError::new(0, "the file is at a URL; copy it to a local disk")),
                false => array::read(&file, stamp.len),
            };
            let first = files.last().map_or(0, |file| file.end);
            let opened = array.and_then(|array| {
                FieldFile::new(path.clone(), storage.map(file), stamp, array, first)
            });
            files.push(opened.map_err(|it| wrong(key, path, it))?);
        }
        Ok(Self { name: name.into(), files })
    }

    /// Name of the field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.files.last().map_or(0, |file| file.end)
    }

    /// Returns an error unless there are `count` values, as many as `others` have.
    pub fn check_count(&self, count: u64, others: &str) -> Result<()> {
        if self.count() == count {
            return Ok(());
        }
        let shown = self.files.first().map(|it| it.path.display().to_string()).unwrap_or_default();
        let problem = format!(
            "{shown} has {}, but {others} have {}; name a file with one value per sample",
            counted(self.count(), "value"),
            counted(count, "sample")
        );
        Err(Error::config(format!("source.fields.{}", self.name), problem))
    }

    /// Path of the file that has the value of a sample, and the position of the value there.
    pub fn location(&self, index: u64) -> (&Path, u64) {
        let (file, first) = self.file(index);
        (&file.path, index - first)
    }

    /// Paths of the files.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &PathBuf> {
        self.files.iter().map(|file| &file.path)
    }

    /// The file that has the value of a sample, and the index of its first sample.
    fn file(&self, index: u64) -> (&FieldFile, u64) {
        let number = self.files.partition_point(|file| file.end <= index);
        let first = number.checked_sub(1).map_or(0, |before| self.files[before].end);
        (&self.files[number], first)
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let files = self.files.iter().map(|it| it.path.capacity() as u64 + it.file.memory_bytes());
        let own = self.name.capacity() + self.files.capacity() * size_of::<FieldFile>();
        files.sum::<u64>() + (own + size_of::<Self>()) as u64
    }

    fn kind(&self) -> FieldKind {
        match self.files.first() {
            Some(file) if !file.item.is_number() => FieldKind::Text,
            Some(file) if file.elements.is_none() => FieldKind::Number,
            _ => FieldKind::List,
        }
    }

    /// Reads the value of a sample, and passes it to `put`.
    fn read(
        &self,
        index: u64,
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let name = &self.name;
        let (file, first) = self.file(index);
        let FieldFile { item, elements, .. } = *file;
        let count = elements.unwrap_or(1);
        let bytes = if item.is_number() { item.value_bytes() } else { item.bytes };
        let len = bytes.saturating_mul(count);
        if len > limit {
            let problem = format!(
                "the field {name:?} has {len} bytes; limits.max_field_bytes is {limit}; raise it"
            );
            return Err(DataError::new(Reason::Oversized, problem));
        }
        // The shape was checked against the length of the file.
        let stored = item.bytes * count;
        reserve::renew(buffer, stored as usize)?;
        read(&file.file, file.stamp, file.start + stored * (index - first), buffer).map_err(
            |error| {
                let path = Redacted::path(&file.path);
                let problem = format!("the field {name:?} in {path}: {}", error.problem);
                DataError::new(error.reason, problem)
            },
        )?;
        match (item.kind, elements) {
            (b'S', _) => {
                let end = buffer.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                let bytes = &buffer[..end];
                put(FieldValue::of_bytes(bytes))
            }
            (b'U', _) => put(FieldValue::Text(&text(name, buffer, item.big_endian)?)),
            (_, None) => item.pass_one(buffer, put),
            (_, Some(_)) => item.pass_list(name, buffer, put),
        }
    }
}

impl FieldFile {
    fn new(
        path: PathBuf,
        file: File,
        stamp: Stamp,
        array: Array,
        first: u64,
    ) -> Result<Self, FileError> {
        let Array { item, shape, start } = array;
        let [count, rest @ ..] = &shape[..] else {
            let problem = "the array has no axis; its first axis must have the samples";
            return Err(FileError::new(0, problem));
        };
        let is_text = matches!(item.kind, b'S' | b'U');
        if !(item.is_number() || is_text && rest.is_empty()) {
            let problem = format!(
                "the elements have the type {} and the shape {}, but must be numbers, or one text \
                 per sample",
                item.words(),
                words(&shape)
            );
            return Err(FileError::new(0, problem));
        }
        // If there are samples, the product was checked when the header was read.
        let product = || rest.iter().try_fold(1u64, |count, &side| count.checked_mul(side));
        let elements = (!rest.is_empty()).then(|| product().unwrap_or(0));
        Ok(Self { path, file, stamp, item, elements, start, end: first + count })
    }
}

/// Decodes a text of NumPy: characters of 4 bytes, padded with zeros.
fn text(name: &str, stored: &[u8], big_endian: bool) -> Result<String, DataError> {
    let characters = stored.as_chunks::<{ CHARACTER_BYTES as usize }>().0;
    let number = |it: &[u8; 4]| match big_endian {
        true => u32::from_be_bytes(*it),
        false => u32::from_le_bytes(*it),
    };
    let end = characters.iter().rposition(|it| number(it) != 0).map_or(0, |last| last + 1);
    let mut text = String::new();
    // A character has at most 4 bytes in UTF-8 too.
    text.try_reserve_exact(stored.len()).map_err(|_| {
        DataError::new(Reason::OutOfMemory, "there is no memory for the text of a field")
    })?;
    for character in &characters[..end] {
        let number = number(character);
        text.push(char::from_u32(number).ok_or_else(|| {
            let problem = format!("the field {name:?} has the invalid character {number:#x}");
            DataError::new(Reason::Corrupt, problem)
        })?);
    }
    Ok(text)
}

impl Fields for Npy {
    fn schema(&self) -> Vec<Field> {
        let field = |it: &FieldArrays| Field { name: it.name.clone(), kind: it.kind() };
        self.fields.iter().map(field).collect()
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        for (number, name) in wanted.iter().enumerate() {
            let Some(field) = self.fields.iter().find(|field| field.name == *name) else {
                continue;
            };
            field.read(index, buffer, limit, &mut |value| put(number, value))?;
        }
        Ok(())
    }
}
