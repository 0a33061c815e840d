//! Source of encoded images in memory.

use super::{Heads, Hints, HostPage, Page, Source};
use crate::error::{DataError, Error, Result};
use crate::footprint::counted;

/// Encoded images in memory, each with a label.
pub struct Memory {
    samples: Vec<(Vec<u8>, i64)>,
}

impl Memory {
    /// Creates a source of encoded images with labels. An empty list is an error.
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
        page.fill(&self.samples[index as usize].0, limit)
    }

    fn describe(&self) -> String {
        format!("memory: {}", counted(self.samples.len(), "sample"))
    }

    fn heads(&self) -> Option<&dyn Heads> {
        Some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl Heads for Memory {
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        _: usize,
        limit: u64,
    ) -> Result<u64, DataError> {
        self.read(index, page, limit)?;
        Ok(page.bytes().len() as u64)
    }
}

impl Hints for Memory {
    fn largest_bytes(&self) -> Option<u64> {
        self.samples.iter().map(|(bytes, _)| bytes.len() as u64).max()
    }

    fn memory_bytes(&self) -> u64 {
        self.samples.iter().map(|(bytes, _)| bytes.capacity() as u64).sum()
    }
}
