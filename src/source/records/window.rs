//! A piece of a file in memory, for walking over it.

use std::ops::Range;

use super::FileError;
use super::forward::Forward;
use crate::storage::File;

/// A window of 1 MiB over a file of any length.
pub struct Window<'a> {
    file: &'a File,
    len: u64,
    /// The byte of the file that is first in `buffer`.
    start: u64,
    buffer: Vec<u8>,
    ahead: u64,
    /// Reads, where the file lies behind a URL: a request for every sample, one after another, would take far longer than
    /// all of the file.
    forward: Option<Forward<'a>>,
}

impl<'a> Window<'a> {
    /// The most bytes that are seen at once.
    pub const BYTES: u64 = 1 << 20;

    /// The most bytes after the last sample that are looked at.
    const PADDING: u64 = 64 << 20;

    /// The length of a compressed file before its end is met: more than any file has.
    pub const UNKNOWN: u64 = 1 << 62;

    /// A window over a file of this length, or of [`Self::UNKNOWN`].
    pub fn new(file: &'a File, len: u64) -> Self {
        let forward = file.is_remote().then(|| Forward::new(file, len));
        Self { file, len, start: 0, buffer: Vec::new(), ahead: Self::BYTES, forward }
    }

    /// Reads this many bytes at a time from now on, or what is asked for where that is more: for walks that pass over
    /// most of a file.
    pub fn read_ahead(&mut self, bytes: u64) {
        self.ahead = bytes;
    }

    /// Bytes of the file, or [`Self::UNKNOWN`] as long as a compressed file's end was not met.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no byte there, nor after it.
    pub fn ends_at(&mut self, offset: u64) -> Result<bool, FileError> {
        if self.len == Self::UNKNOWN && offset < self.len {
            self.read(offset, 1)?;
        }
        Ok(offset >= self.len)
    }

    /// `count` bytes, at most [`Self::BYTES`]. Fails where the file has ended before.
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

    /// Passes over what follows in a compressed file, as far as padding goes, so that the checksums behind it are
    /// verified.
    pub fn drain(&mut self) -> Result<(), FileError> {
        let first = self.start + self.buffer.len() as u64;
        let mut at = first;
        while self.len == Self::UNKNOWN && at - first < Self::PADDING {
            self.read(at, 1)?;
            at = self.start + self.buffer.len() as u64;
        }
        Ok(())
    }

    /// Has `count` bytes in memory, or as many as there are; that there are no more is then known.
    fn read(&mut self, offset: u64, count: u64) -> Result<(), FileError> {
        if offset >= self.start && offset + count <= self.start + self.buffer.len() as u64 {
            return Ok(());
        }
        let len = self.ahead.max(count).min(self.len - offset) as usize;
        self.buffer.resize(len, 0);
        self.start = offset;
        let read = match &mut self.forward {
            Some(forward) => forward.read(&mut self.buffer, offset).map(|()| len),
            None => self.file.read_at(&mut self.buffer, offset),
        };
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        let read = read.map_err(|error| FileError::new(offset, error.to_string()))?;
        if read < len {
            self.len = offset + read as u64;
        }
        Ok(())
    }

    /// The CRC-32C of any number of bytes. Fails where the file has ended before.
    pub fn crc32c(&mut self, bytes: Range<u64>) -> Result<u32, FileError> {
        let (mut at, mut crc) = (bytes.start, 0);
        while at < bytes.end {
            // What is in memory already first.
            let held = (self.start + self.buffer.len() as u64).saturating_sub(at);
            let count = if at >= self.start && held > 0 { held } else { Self::BYTES };
            let chunk = self.at(at, count.min(bytes.end - at))?;
            crc = crc32c::crc32c_append(crc, chunk);
            at += chunk.len() as u64;
        }
        Ok(crc)
    }

    /// What is wrong where `count` bytes are announced that the file does not have.
    pub fn cut(&self, offset: u64, count: u64) -> FileError {
        let ends = match self.len {
            Self::UNKNOWN => "no file is that long".into(),
            len => format!("the file ends at {len}"),
        };
        let problem =
            format!("{count} bytes should be here, {ends}: it is cut or damaged; copy it again");
        FileError::new(offset, problem)
    }
}
