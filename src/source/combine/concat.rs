//! Concatenation of sources.

use std::sync::Arc;

use super::{Arrangement, Combined, Concat};
use crate::error::{Error, Result};
use crate::source::{Source, counted};

impl Concat {
    /// Concatenates all samples of the parts, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there are no parts, or if their classes cannot be merged.
    pub fn new(parts: Vec<Arc<dyn Source>>) -> Result<Self> {
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(parts.len());
        for part in &parts {
            end = end.checked_add(part.len()).ok_or_else(|| {
                Error::config("source.concat", "the sources have 2^64 or more samples in total")
            })?;
            ends.push(end);
        }
        if end == 0 {
            let problem = "is empty; list at least one source";
            return Err(Error::config("source.concat", problem));
        }
        Combined::join("source.concat", parts, InTurn { ends })
    }
}

/// Arrangement of [`Concat`].
pub struct InTurn {
    /// For each part, the index after its last sample in the concatenation.
    ends: Vec<u64>,
}

impl Arrangement for InTurn {
    fn samples(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn at(&self, index: u64) -> (usize, u64) {
        let part = self.ends.partition_point(|&end| end <= index);
        let begin = if part == 0 { 0 } else { self.ends[part - 1] };
        (part, index - begin)
    }

    fn index_of(&self, part: usize, index: u64) -> Option<u64> {
        let begin = if part == 0 { 0 } else { *self.ends.get(part - 1)? };
        Some(begin + index)
    }

    fn file_ends(&self, parts: &[Vec<u64>]) -> Vec<u64> {
        if parts.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        begins
            .zip(parts)
            .flat_map(|(begin, ends)| ends.iter().map(move |end| begin + end))
            .collect()
    }

    fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.ends) as u64
    }

    fn describe(&self, parts: &[String]) -> String {
        format!("{}, one after another: {}", counted(self.samples(), "sample"), parts.join("; "))
    }
}
