//! Error in a file with many samples.

use std::io::{self, ErrorKind};

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
