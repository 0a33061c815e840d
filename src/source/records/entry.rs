//! Position of a sample in its file.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::FileError;

/// Position of a sample in its file. The layout is the same in memory and on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    pub(in crate::source) offset: u64,
    pub(in crate::source) label: i64,
    /// Length in bytes, or [`DAMAGED`].
    pub(in crate::source) len: u32,
    /// CRC-32C of the sample's bytes. In formats without checksums, this field holds another
    /// number, the note, which is passed to [`Format::head`](super::Format::head) and
    /// [`Format::fill`](super::Format::fill). Some formats use a [check](super::check_of) of the
    /// bytes before the sample as the note.
    pub(in crate::source) crc: u32,
}

/// Value of `len` in the [`Entry`] of a sample whose bytes do not match the checksum in the file.
pub(super) const DAMAGED: u32 = u32::MAX;

impl Entry {
    /// Creates an entry for a sample in this byte range, with its checksum or note. A sample of 4
    /// GiB or more is an error.
    pub fn new(bytes: Range<u64>, label: i64, crc: u32) -> Result<Self, FileError> {
        let (offset, len) = (bytes.start, bytes.end - bytes.start);
        match u32::try_from(len) {
            Ok(len) if len != DAMAGED => Ok(Self { offset, label, len, crc }),
            _ => Err(FileError::new(
                offset,
                format!("the sample has {len} bytes; the maximum is 4 GiB"),
            )),
        }
    }

    /// Offset after the sample. For a damaged sample, its offset.
    pub fn end(self) -> u64 {
        self.offset + if self.len == DAMAGED { 0 } else { self.len.into() }
    }

    /// Creates an entry for a damaged sample at this offset.
    pub fn damaged(offset: u64) -> Self {
        Self { offset, label: -1, len: DAMAGED, crc: 0 }
    }
}
