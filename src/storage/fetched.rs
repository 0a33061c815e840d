//! Object of which some bytes are already in memory.

use std::io::Result;

use bytes::Bytes;

use super::{Stamp, remote};

/// An object with the bytes of some ranges. Other bytes are requested when they are read.
#[derive(Debug)]
pub struct Fetched {
    file: remote::File,
    /// Start and bytes of each range, without overlaps.
    parts: Vec<(u64, Bytes)>,
}

impl Fetched {
    pub fn new(file: remote::File, parts: Vec<(u64, Bytes)>) -> Self {
        Self { file, parts }
    }

    /// The same object with other bytes in memory.
    pub fn with(&self, parts: Vec<(u64, Bytes)>) -> Self {
        Self { file: self.file.clone(), parts }
    }

    /// Length and version of the object when it was opened.
    pub fn stamp(&self) -> Stamp {
        self.file.stamp()
    }

    /// Returns the bytes from `offset` to the end of the range in memory that contains it.
    pub fn held(&self, offset: u64) -> Option<&[u8]> {
        self.parts.iter().find_map(|(start, bytes)| {
            let skipped = usize::try_from(offset.checked_sub(*start)?).ok()?;
            bytes.get(skipped..).filter(|rest| !rest.is_empty())
        })
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut len = 0;
        while len < buffer.len() {
            let (at, rest) = (offset + len as u64, &mut buffer[len..]);
            let Some(held) = self.held(at) else {
                return Ok(len + self.file.read_at(rest, at)?);
            };
            let count = held.len().min(rest.len());
            rest[..count].copy_from_slice(&held[..count]);
            len += count;
        }
        Ok(len)
    }
}
