//! Labels in `.npy` files.

use std::path::PathBuf;

use super::array;
use super::wrong;
use crate::error::{Error, Result};
use crate::numpy::{Array, Item, words};
use crate::source::records::FileError;
use crate::storage::{File, Storage};

/// Labels from one-dimensional integer arrays, which are concatenated. In memory, labels have the
/// same size as in their files.
pub struct Labels(Vec<LabelArray>);

struct LabelArray {
    item: Item,
    bytes: Vec<u8>,
    /// Index after the file's last label.
    end: u64,
}

impl Labels {
    pub fn open(storage: &Storage, files: &[PathBuf]) -> Result<Self> {
        let mut parts: Vec<LabelArray> = Vec::new();
        for path in files {
            let io = |error| Error::io(path, &error);
            let file = storage.open(path).map_err(io)?;
            let len = file.stamp().map_err(io)?.len;
            let first = parts.last().map_or(0, |part| part.end);
            let part =
                array::read(&file, len).and_then(|array| LabelArray::read(&file, array, first));
            parts.push(part.map_err(|it| wrong("labels", path, it))?);
        }
        Ok(Self(parts))
    }

    /// Number of labels.
    pub fn count(&self) -> u64 {
        self.0.last().map_or(0, |part| part.end)
    }

    pub fn get(&self, index: u64) -> i64 {
        let number = self.0.partition_point(|part| part.end <= index);
        let part = &self.0[number];
        part.get(index - (part.end - part.count()))
            .expect("all labels were checked when the file was opened")
    }

    pub fn memory_bytes(&self) -> u64 {
        let bytes: usize = self.0.iter().map(|part| part.bytes.capacity()).sum();
        (bytes + self.0.capacity() * size_of::<LabelArray>()) as u64
    }
}

impl LabelArray {
    fn read(file: &File, array: Array, first: u64) -> Result<Self, FileError> {
        let Array { item, shape, start } = array;
        if !matches!((item.kind, item.bytes), (b'i' | b'u', 1 | 2 | 4 | 8)) {
            let problem = format!(
                "the labels have the type {}, but must be integers; write y.astype(np.int64)",
                item.words()
            );
            return Err(FileError::new(0, problem));
        }
        let [count] = shape[..] else {
            let problem = format!(
                "the labels have the shape {}, but must have one axis; write y.reshape(-1), or \
                 y.argmax(1) if they are one-hot",
                words(&shape)
            );
            return Err(FileError::new(0, problem));
        };
        // The size was checked against the length of the file, so a damaged header cannot cause a
        // large allocation.
        let mut bytes = vec![0; (item.bytes * count) as usize];
        file.read_exact_at(&mut bytes, start)
            .map_err(|it| FileError::new(start, it.to_string()))?;
        let this = Self { item, bytes, end: first + count };
        match (0..count).find(|&index| this.get(index).is_none()) {
            None => Ok(this),
            Some(index) => {
                let value = this.raw(index) as u64;
                let problem = format!("label {index} is {value}, but must be below 2^63");
                Err(FileError::new(start + item.bytes * index, problem))
            }
        }
    }

    fn count(&self) -> u64 {
        self.bytes.len() as u64 / self.item.bytes
    }

    /// Returns a label, or `None` if its value does not fit an `i64`.
    fn get(&self, index: u64) -> Option<i64> {
        Some(self.raw(index)).filter(|&value| self.item.kind == b'i' || value >= 0)
    }

    /// Returns the bits of a label. Unsigned values that do not fit an `i64` become negative.
    fn raw(&self, index: u64) -> i64 {
        let Item { kind, bytes: len, big_endian } = self.item;
        let (begin, len) = ((index * len) as usize, len as usize);
        let stored = &self.bytes[begin..begin + len];
        let highest = if big_endian { stored[0] } else { stored[len - 1] };
        let negative = kind == b'i' && highest >= 0x80;
        let mut value = [if negative { 0xff } else { 0 }; 8];
        if big_endian {
            value[8 - len..].copy_from_slice(stored);
            i64::from_be_bytes(value)
        } else {
            value[..len].copy_from_slice(stored);
            i64::from_le_bytes(value)
        }
    }
}
