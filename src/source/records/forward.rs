//! Sequential reader of a file at a URL. It prefetches blocks.

use std::collections::VecDeque;
use std::io::Result;

use crate::storage::{Fetch, File};

/// Reads blocks of [`Self::BLOCK`] bytes and prefetches [`Self::AHEAD`] blocks.
pub struct Forward<'a> {
    file: &'a File,
    len: u64,
    /// Number and contents of the block that was read last.
    block: Option<(u64, Vec<u8>)>,
    /// Number of the first block in `coming`. The following blocks are consecutive.
    next: u64,
    coming: VecDeque<Result<Fetch>>,
}

impl<'a> Forward<'a> {
    /// Size of a block, in bytes.
    pub const BLOCK: u64 = 1 << 20;
    /// Number of prefetched blocks.
    const AHEAD: usize = 4;

    /// Creates a reader of a file of `len` bytes. Sends no request yet.
    pub fn new(file: &'a File, len: u64) -> Self {
        Self { file, len, block: None, next: 0, coming: VecDeque::new() }
    }

    /// Fills the buffer from the file. If the offset is before the current block, the blocks from
    /// this offset on are requested again.
    pub fn read(&mut self, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        while !buffer.is_empty() {
            let number = offset / Self::BLOCK;
            let block = self.block(number)?;
            let part = &block[(offset % Self::BLOCK) as usize..];
            let (now, later) = buffer.split_at_mut(part.len().min(buffer.len()));
            now.copy_from_slice(&part[..now.len()]);
            offset += now.len() as u64;
            buffer = later;
        }
        Ok(())
    }

    fn block(&mut self, number: u64) -> Result<&[u8]> {
        if self.block.as_ref().is_none_or(|(held, _)| *held != number) {
            if number < self.next || number > self.next + Self::AHEAD as u64 {
                self.coming.clear();
                self.next = number;
            }
            while self.next < number {
                self.coming.pop_front();
                self.next += 1;
            }
            while self.coming.len() <= Self::AHEAD {
                let start = (self.next + self.coming.len() as u64) * Self::BLOCK;
                let bytes = Self::BLOCK.min(self.len.saturating_sub(start));
                let Some(fetch) = (bytes > 0).then(|| self.file.fetch(start, bytes)).flatten()
                else {
                    break;
                };
                self.coming.push_back(fetch);
            }
            // `coming` is empty only if the block is after the end of the file.
            let fetch = self.coming.pop_front().ok_or(std::io::ErrorKind::UnexpectedEof)?;
            self.next += 1;
            self.block = Some((number, fetch?.wait()?.into()));
        }
        Ok(self.block.as_ref().map_or(&[], |(_, bytes)| bytes))
    }
}
