//! The part of a file that is in memory while the file is scanned.

use std::ops::Range;

use super::FileError;
use super::forward::Forward;
use crate::storage::File;

/// Buffer of 1 MiB that holds a part of a file of any length. The part is called a window here.
pub struct Window<'a> {
    file: &'a File,
    len: u64,
    /// Offset in the file of the first byte in `buffer`.
    start: u64,
    buffer: Vec<u8>,
    ahead: u64,
    /// Offset at which reads end, unless more bytes are requested.
    ahead_end: u64,
    /// Sequential reader, for a file at a URL. One request per sample would take far longer than
    /// reading the whole file.
    forward: Option<Forward<'a>>,
}

impl<'a> Window<'a> {
    /// Largest range that can be requested at once, in bytes.
    pub const BYTES: u64 = 1 << 20;

    /// Stands for the length of a compressed file until its end is reached. Larger than any file.
    pub const UNKNOWN: u64 = 1 << 62;

    /// Creates a window into a file. `len` is the length of the file, or [`Self::UNKNOWN`].
    pub fn new(file: &'a File, len: u64) -> Self {
        let forward = file.is_remote().then(|| Forward::new(file, len));
        Self {
            file,
            len,
            start: 0,
            buffer: Vec::new(),
            ahead: Self::BYTES,
            ahead_end: u64::MAX,
            forward,
        }
    }

    /// Sets the number of bytes per read, for scans that skip most of a file. Larger requests are
    /// still read completely.
    pub fn read_ahead(&mut self, bytes: u64) {
        self.ahead = bytes;
    }

    /// Sets the offset at which reads end, unless more bytes are requested.
    pub fn read_ahead_until(&mut self, offset: u64) {
        self.ahead_end = offset;
    }

    /// Length of the file in bytes, or [`Self::UNKNOWN`] until the end of a compressed file is
    /// reached.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Whether the file ends at or before this offset.
    pub fn ends_at(&mut self, offset: u64) -> Result<bool, FileError> {
        if self.len == Self::UNKNOWN && offset < self.len {
            self.read(offset, 1)?;
        }
        Ok(offset >= self.len)
    }

    /// Returns `count` bytes, at most [`Self::BYTES`]. Returns an error if the file ends before the
    /// last of these bytes.
    pub fn at(&mut self, offset: u64, count: u64) -> Result<&[u8], FileError> {
        let end = offset.checked_add(count).filter(|&end| end <= self.len);
        let end = end.ok_or_else(|| self.cut(offset, count))?;
        self.read(offset, count)?;
        if end > self.len {
            return Err(self.cut(offset, count));
        }
        let begin = (offset - self.start) as usize;
        Ok(&self.buffer[begin..begin + count as usize])
    }

    /// Returns `count` bytes, at most [`Self::BYTES`], or fewer at the end of the file.
    pub fn up_to(&mut self, offset: u64, count: u64) -> Result<&[u8], FileError> {
        let count = count.min(self.len.saturating_sub(offset));
        if count == 0 {
            return Ok(&[]);
        }
        self.read(offset, count)?;
        let held = &self.buffer[(offset - self.start) as usize..];
        Ok(&held[..held.len().min(count as usize)])
    }

    /// Loads `count` bytes. If the file ends earlier, loads fewer bytes and sets `len` to the
    /// length of the file.
    fn read(&mut self, offset: u64, count: u64) -> Result<(), FileError> {
        if offset >= self.start && offset + count <= self.start + self.buffer.len() as u64 {
            return Ok(());
        }
        let mut ahead = self.ahead.min(self.ahead_end.saturating_sub(offset));
        if let Some(held) = self.file.held_bytes(offset) {
            ahead = ahead.min(held);
        }
        let len = ahead.max(count).min(self.len - offset) as usize;
        self.buffer.resize(len, 0);
        self.start = offset;
        let read = match &mut self.forward {
            Some(forward) => forward.read(&mut self.buffer, offset).map(|()| len),
            None => self.file.read_at(&mut self.buffer, offset),
        };
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        let read = read.map_err(|error| FileError::unread(offset, &error))?;
        if read < len {
            self.len = offset + read as u64;
        }
        Ok(())
    }

    /// Returns the CRC-32C of a byte range of any length. Returns an error if the file ends before
    /// the range does.
    pub fn crc32c(&mut self, bytes: Range<u64>) -> Result<u32, FileError> {
        let (mut at, mut crc) = (bytes.start, 0);
        while at < bytes.end {
            // The bytes that are already in memory are processed first, so they are not read again.
            let held = (self.start + self.buffer.len() as u64).saturating_sub(at);
            let count = if at >= self.start && held > 0 { held } else { Self::BYTES };
            let chunk = self.at(at, count.min(bytes.end - at))?;
            crc = crc32c::crc32c_append(crc, chunk);
            at += chunk.len() as u64;
        }
        Ok(crc)
    }

    /// Creates the error for a file that should contain `count` bytes at `offset`, but ends
    /// earlier.
    pub fn cut(&self, offset: u64, count: u64) -> FileError {
        let ends = match self.len {
            Self::UNKNOWN => "but no file is that large".into(),
            len => format!("but the file ends at byte {len}"),
        };
        let problem = format!(
            "expected {count} bytes here, {ends}: the file is truncated or damaged; copy it again"
        );
        FileError::new(offset, problem)
    }
}
