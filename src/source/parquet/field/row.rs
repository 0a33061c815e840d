//! Values of one row in one leaf, copied from pages.

use super::schema::{Form, Leaf};
use crate::error::{DataError, Reason, reserve};

/// Levels and values of one row in one leaf.
#[derive(Default)]
pub struct LeafRow {
    /// Number of values including nulls.
    pub entries: usize,
    /// Repetition levels; empty if the leaf has none.
    pub repetitions: Vec<u8>,
    /// Definition levels; empty if the leaf has none.
    pub definitions: Vec<u8>,
    /// Values that are not null.
    pub bytes: Vec<u8>,
    /// End of each value in `bytes`, if the values have different lengths.
    pub ends: Vec<usize>,
    /// Numbers of values of a dictionary that are not copied yet.
    pub indices: Vec<u32>,
}

/// Values that a field may still have.
pub struct Budget {
    limit: u64,
    bytes: u64,
    /// Number of values including nulls, each of which takes memory for its levels.
    entries: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Self {
        Self { limit, bytes: limit, entries: limit.max(1) }
    }

    /// Subtracts values with a total size in bytes.
    pub fn take(&mut self, entries: usize, bytes: usize) -> Result<(), DataError> {
        let left = |all: u64, taken: usize| all.checked_sub(taken as u64);
        match (left(self.entries, entries), left(self.bytes, bytes)) {
            (Some(entries), Some(bytes)) => (self.entries, self.bytes) = (entries, bytes),
            _ => return Err(oversized(self.limit)),
        }
        Ok(())
    }
}

/// Error for a field that has more bytes than the limit.
pub fn oversized(limit: u64) -> DataError {
    let problem = format!("has more than {limit} bytes, which is limits.max_field_bytes; raise it");
    DataError::new(Reason::Oversized, problem)
}

/// Error for leaves of a field whose levels contradict each other.
pub fn contradiction() -> DataError {
    let problem = "its columns do not match each other: the file is damaged; copy it again";
    DataError::new(Reason::Corrupt, problem)
}

impl LeafRow {
    pub fn clear(&mut self) {
        self.entries = 0;
        self.repetitions.clear();
        self.definitions.clear();
        self.bytes.clear();
        self.ends.clear();
        self.indices.clear();
    }

    /// Allocated memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.repetitions.capacity()
            + self.definitions.capacity()
            + self.bytes.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.indices.capacity() * size_of::<u32>()
    }

    /// Adds levels of `entries` values. Each is empty if the leaf has no such levels.
    pub fn add_levels(
        &mut self,
        entries: usize,
        repetitions: &[u8],
        definitions: &[u8],
    ) -> Result<(), DataError> {
        self.entries += entries;
        for (all, new) in
            [(&mut self.repetitions, repetitions), (&mut self.definitions, definitions)]
        {
            let len = all.len() + new.len();
            reserve::reserve(all, len)?;
            all.extend_from_slice(new);
        }
        Ok(())
    }

    /// Bytes of a value that is not null.
    pub fn value(&self, leaf: &Leaf, number: usize) -> Option<&[u8]> {
        match leaf.form.width() {
            Some(width) => self.bytes.get(number * width..(number + 1) * width),
            None => {
                let start = if number == 0 { 0 } else { *self.ends.get(number - 1)? };
                self.bytes.get(start..*self.ends.get(number)?)
            }
        }
    }
}

impl Form {
    /// Size of each value in [`LeafRow::bytes`]. `None` if the sizes differ.
    pub fn width(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Int32 | Self::Float => Some(4),
            Self::Int64 | Self::Double => Some(8),
            Self::Int96 => Some(12),
            Self::Fixed(len) => Some(len as usize),
            Self::Bytes | Self::Unknown => None,
        }
    }
}
