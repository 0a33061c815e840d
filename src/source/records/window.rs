//! A piece of a file in memory, for walking over it.

use std::ops::Range;

use super::Wrong;
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

    /// A window over a file of this length.
    pub fn new(file: &'a File, len: u64) -> Self {
        let forward = file.is_remote().then(|| Forward::new(file, len));
        Self { file, len, start: 0, buffer: Vec::new(), ahead: Self::BYTES, forward }
    }

    /// Reads this many bytes at a time from now on, or what is asked for where that is more: for walks that pass over
    /// most of a file.
    pub fn read_ahead(&mut self, bytes: u64) {
        self.ahead = bytes;
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// `count` bytes, at most [`Self::BYTES`]. Fails where the file has ended before.
    pub fn at(&mut self, offset: u64, count: u64) -> Result<&[u8], Wrong> {
        let end = offset.checked_add(count).filter(|&end| end <= self.len);
        let end = end.ok_or_else(|| self.cut(offset, count))?;
        if offset < self.start || end > self.start + self.buffer.len() as u64 {
            let len = self.ahead.max(count).min(self.len - offset);
            self.buffer.resize(len as usize, 0);
            self.start = offset;
            let read = match &mut self.forward {
                Some(forward) => forward.read(&mut self.buffer, offset),
                None => self.file.read_exact_at(&mut self.buffer, offset),
            };
            if let Err(error) = read {
                self.buffer.clear();
                return Err(Wrong::new(offset, error.to_string()));
            }
        }
        let begin = (offset - self.start) as usize;
        Ok(&self.buffer[begin..begin + count as usize])
    }

    /// The CRC-32C of any number of bytes. Fails where the file has ended before.
    pub fn crc32c(&mut self, bytes: Range<u64>) -> Result<u32, Wrong> {
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
    pub fn cut(&self, offset: u64, count: u64) -> Wrong {
        let problem = format!(
            "{count} bytes should be here, the file ends at {}: it is cut or damaged; copy it again",
            self.len
        );
        Wrong::new(offset, problem)
    }
}
