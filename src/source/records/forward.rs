//! A file behind a URL that is read from its beginning to its end: blocks are on their way before they are wanted.

use std::collections::VecDeque;
use std::io::Result;

use crate::storage::{Fetch, File};

/// Blocks of [`Self::BLOCK`] bytes, of which [`Self::AHEAD`] are on their way.
pub struct Forward<'a> {
    file: &'a File,
    len: u64,
    /// The block that was read last, with its number.
    block: Option<(u64, Vec<u8>)>,
    /// Those that follow it, the first with this number.
    next: u64,
    coming: VecDeque<Result<Fetch>>,
}

impl<'a> Forward<'a> {
    /// Bytes of a block.
    pub const BLOCK: u64 = 1 << 20;
    /// Blocks that are on their way.
    const AHEAD: usize = 4;

    /// Of a file of this length, none of whose bytes were asked for yet.
    pub fn new(file: &'a File, len: u64) -> Self {
        Self { file, len, block: None, next: 0, coming: VecDeque::new() }
    }

    /// Fills the buffer with bytes that the file has. What lies before the block that was read last is asked for anew.
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
            // The buffer holds bytes of the file, so its blocks were asked for.
            let fetch = self.coming.pop_front().ok_or(std::io::ErrorKind::UnexpectedEof)?;
            self.next += 1;
            self.block = Some((number, fetch?.wait()?.into()));
        }
        Ok(self.block.as_ref().map_or(&[], |(_, bytes)| bytes))
    }
}
