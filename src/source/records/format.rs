//! Formats of files with many samples, and what they report about a file.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Entries, Window};
use crate::header::PnmHead;
use crate::source::Exclusions;
use crate::storage::File;

/// Format of files with many samples, with its settings in a pipeline file. The table of a file
/// must depend only on the file, the key and the settings.
pub trait Format:
    Serialize + DeserializeOwned + Default + Clone + Debug + Send + Sync + 'static
{
    /// Key of the source under `[source]`.
    const KEY: &'static str;

    /// Extension of the files that are read from a directory.
    const ENDING: &'static str;

    /// Whether this format can read a file, according to its name and first bytes. `head` is the
    /// first [`HEAD_BYTES`](crate::source::HEAD_BYTES) bytes, or the whole file if it is shorter.
    fn recognises(name: &str, head: &[u8]) -> bool;

    /// Whether entries contain checksums of the samples' bytes.
    const CHECKED: bool;

    /// Number of bytes before a sample, usually its header, that are compared with the table to
    /// detect a table of another file. The entry of the sample contains their check (`check_of`) as
    /// its note. With 0, the default, nothing is compared.
    const BEFORE: usize = 0;

    /// Image header to insert before a sample, for formats that store none. The note is a number in
    /// the sample's entry.
    fn head(_note: u32) -> Option<PnmHead> {
        None
    }

    /// Approximate pixel count of a sample, derived from the note in its entry; `None` if unknown.
    fn pixels(_note: u32) -> Option<u64> {
        None
    }

    /// Whether uncompressed files on local disks are memory-mapped.
    const MAPPED: bool = false;

    /// Whether a file with these first bytes (at most 512) may be a compressed file of this format.
    /// Only called for files that begin like a compressed file.
    fn unpacks(_first: &[u8]) -> bool {
        false
    }

    /// Name of the sample whose bytes begin at this offset of an uncompressed local file. `None`,
    /// the default, if samples have no names. For other files [`walk`](Self::walk) stores the
    /// names.
    fn name(_file: &File, _offset: u64) -> Option<String> {
        None
    }

    /// Whether [`walk`](Self::walk) adds samples in file order, with all samples before an error.
    const IN_ORDER: bool = false;

    /// Adds every sample of the file to the table, and counts skipped items. Must not allocate
    /// memory for a size only because the file states it, because the size may be wrong.
    fn walk(
        &self,
        window: &mut Window,
        table: &mut Entries,
        excluded: &mut Exclusions,
    ) -> Result<(), FileError>;

    /// Reads the class names that `feedwater pack` stored in a file
    /// ([`CLASSES_NAME`](super::CLASSES_NAME)), in the order of their numbers. The default returns
    /// none, for formats that `pack` does not write.
    fn classes(&self, _window: &mut Window) -> Result<Vec<String>, FileError> {
        Ok(Vec::new())
    }

    /// Whether [`fill`](Self::fill) takes one read for a sample whose entry has this note. Only
    /// such samples can be prefetched.
    fn is_plain(_note: u32) -> bool {
        true
    }

    /// Reads the sample at this offset into `space`. `_note` is the note in the sample's entry.
    /// Returns the length of the image, which is at the beginning of `space` afterwards.
    fn fill(&self, _note: u32, file: &File, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        file.read_exact_at(space, offset)?;
        Ok(space.len())
    }
}

/// Position of a sample in its file. The layout is the same in memory and on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    pub(in crate::source) offset: u64,
    pub(in crate::source) label: i64,
    /// Length in bytes, or [`DAMAGED`].
    pub(in crate::source) len: u32,
    /// CRC-32C of the sample's bytes. In formats without checksums, a number for [`Format::head`]
    /// and [`Format::fill`], called note. It may be a [check](super::check_of) of the bytes before
    /// the sample.
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

    /// Creates an entry for a damaged sample at this offset.
    pub fn damaged(offset: u64) -> Self {
        Self { offset, label: -1, len: DAMAGED, crc: 0 }
    }
}

/// Error in a file that makes the whole file unusable as a source.
#[derive(Debug)]
pub struct FileError {
    /// Offset in the file.
    pub offset: u64,
    /// Error message with a remedy.
    pub problem: String,
    /// Whether a read failed because of the system or a server. If so, the file itself may be
    /// intact.
    pub failed_read: bool,
}

impl FileError {
    /// Creates an error at this offset.
    pub fn new(offset: u64, problem: impl Into<String>) -> Self {
        Self { offset, problem: problem.into(), failed_read: false }
    }

    /// Creates an error for a failed read at this offset.
    pub(super) fn unread(offset: u64, error: &io::Error) -> Self {
        // Errors of these kinds mean that a compressed file is damaged.
        let is_damage = matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof);
        Self { failed_read: !is_damage, ..Self::new(offset, error.to_string()) }
    }
}
