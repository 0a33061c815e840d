//! Images that are in memory already.

use super::{Page, Source, file};
use crate::error::{DataError, Error, Result};

/// Encoded images in memory, each with a label.
pub struct Memory {
    samples: Vec<(Vec<u8>, i64)>,
}

impl Memory {
    /// A source of these encoded images and labels. Fails where there are none.
    pub fn new(samples: Vec<(Vec<u8>, i64)>) -> Result<Self> {
        if samples.is_empty() {
            return Err(Error::config("source", "a source in memory needs at least one sample"));
        }
        Ok(Self { samples })
    }
}

impl Source for Memory {
    fn len(&self) -> u64 {
        self.samples.len() as u64
    }

    fn label(&self, index: u64) -> i64 {
        self.samples[index as usize].1
    }

    fn location(&self, index: u64) -> String {
        format!("memory[{index}]")
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let bytes = &self.samples[index as usize].0;
        file::check_size(bytes.len() as u64, limit)?;
        page.space(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn has_heads(&self) -> bool {
        // They are in memory.
        true
    }

    fn largest_bytes(&self) -> u64 {
        self.samples.iter().map(|(bytes, _)| bytes.len() as u64).max().unwrap_or(0)
    }

    fn memory_bytes(&self) -> u64 {
        self.samples.iter().map(|(bytes, _)| bytes.capacity() as u64).sum()
    }

    fn describe(&self) -> String {
        format!("memory: {} samples", self.samples.len())
    }
}
