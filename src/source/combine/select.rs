//! Subsets and repetitions of a source.

use std::ops::Range;
use std::sync::Arc;

use super::{Arrangement, Combined, Repeat, Subset};
use crate::error::{DataError, Error, Reason, Result};
use crate::footprint::counted;
use crate::source::Source;

/// Arrangement of [`Subset`]: a range of the part, or a list of its indices in any order.
pub struct Chosen {
    indices: Indices,
    /// Labels that a filter permits. Reading a sample whose label is not in this list fails.
    labels: Option<Vec<i64>>,
}

enum Indices {
    Range(Range<u64>),
    /// Indices of parts with fewer than 2^32 samples.
    Short(Vec<u32>),
    Long(Vec<u64>),
}

/// Arrangement of [`Repeat`].
pub struct Repeated {
    len: u64,
    times: u64,
}

impl Subset {
    /// Selects samples by index, in the given order. An index may occur several times.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there are no indices, or if one is not below the length of the source.
    pub fn of(source: Arc<dyn Source>, indices: &[u64]) -> Result<Self> {
        let len = source.len();
        if let Some(place) = indices.iter().position(|&index| index >= len) {
            let len = counted(len, "sample");
            let problem =
                format!("is {}, but the source has {len}, numbered from 0", indices[place]);
            return Err(Error::config(format!("source.subset[{place}]"), problem));
        }
        if indices.is_empty() {
            return Err(Error::config("source.subset", "is empty; list at least one index"));
        }
        Self::listed("source.subset", source, indices.iter().copied(), None)
    }

    /// Selects a range of samples, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the range is empty or ends after the source.
    pub fn range(source: Arc<dyn Source>, range: Range<u64>) -> Result<Self> {
        let len = source.len();
        if range.is_empty() || range.end > len {
            let Range { start, end } = range;
            let problem =
                format!("selects samples {start} to {end}, but the source has {len} samples");
            return Err(Error::config("source.subset", problem));
        }
        Self::join("source.subset", vec![source], Chosen::of(Indices::Range(range)))
    }

    /// Selects the first `samples` samples, or all samples if there are fewer.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `samples` is 0.
    pub fn take(source: Arc<dyn Source>, samples: u64) -> Result<Self> {
        if samples == 0 {
            return Err(Error::config("source.take", "must be at least 1, is 0"));
        }
        let end = samples.min(source.len());
        Self::range(source, 0..end)
    }

    /// Selects all but the first `samples` samples.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if no sample is left.
    pub fn skip(source: Arc<dyn Source>, samples: u64) -> Result<Self> {
        let len = source.len();
        if samples >= len {
            let len = counted(len, "sample");
            let problem =
                format!("is {samples}, but the source has only {len}, so no sample is left");
            return Err(Error::config("source.skip", problem));
        }
        Self::range(source, samples..len)
    }

    /// Selects the samples for which `wanted(index, label, location)` returns true, in order.
    /// `wanted` is called immediately, once per sample. No sample is read.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if no sample matches.
    pub fn filter(
        source: Arc<dyn Source>,
        mut wanted: impl FnMut(u64, i64, &str) -> bool,
    ) -> Result<Self> {
        let all = source.clone();
        let chosen = (0..source.len())
            .filter(|&index| wanted(index, all.label(index), &all.location(index)));
        Self::listed("source.filter", source, chosen, None)
    }

    /// Selects samples by index. Each index must be below the length of the source. `key` names the
    /// setting in the error for an empty list. With `labels`, reading a sample fails if the
    /// sample's label is not in this list.
    pub(super) fn listed(
        key: &str,
        source: Arc<dyn Source>,
        indices: impl Iterator<Item = u64>,
        labels: Option<Vec<i64>>,
    ) -> Result<Self> {
        let chosen = Chosen { labels, ..Chosen::listed(source.len(), indices) };
        if chosen.samples() == 0 {
            let problem = format!("selects none of {}", counted(source.len(), "sample"));
            return Err(Error::config(key, problem));
        }
        Self::join(key, vec![source], chosen)
    }
}

impl Repeat {
    /// Repeats all samples of the source `times` times, which makes the epoch `times` times as
    /// long. Each repetition of a sample has its own index and its own random choices.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `times` is 0, if the source is empty, or if there would be 2^64 or more
    /// samples.
    pub fn new(source: Arc<dyn Source>, times: u64) -> Result<Self> {
        let len = source.len();
        if times == 0 || len == 0 {
            let problem = format!(
                "would select no sample: {times} repetitions of {}",
                counted(len, "sample")
            );
            return Err(Error::config("source.repeat", problem));
        }
        if len.checked_mul(times).is_none() {
            let problem = format!(
                "would select 2^64 or more samples: {times} repetitions of {}",
                counted(len, "sample")
            );
            return Err(Error::config("source.repeat", problem));
        }
        Combined::join("source.repeat", vec![source], Repeated { len, times })
    }
}

impl Chosen {
    /// Creates a list of indices, in the given order, for a part with `len` samples.
    pub(super) fn listed(len: u64, indices: impl Iterator<Item = u64>) -> Self {
        if len > u64::from(u32::MAX) {
            return Self::of(Indices::Long(indices.collect()));
        }
        let mut indices: Vec<u32> = indices.map(|index| index as u32).collect();
        indices.shrink_to_fit();
        Self::of(Indices::Short(indices))
    }

    fn of(indices: Indices) -> Self {
        Self { indices, labels: None }
    }
}

impl Arrangement for Chosen {
    fn check_label(&self, label: i64) -> Result<(), DataError> {
        match &self.labels {
            Some(labels) if !labels.contains(&label) => {
                let problem = format!(
                    "the label is {label} now, but source.filter selected this sample by another \
                     label when the source was opened; labels of a filtered source must not change"
                );
                Err(DataError::new(Reason::Label, problem))
            }
            _ => Ok(()),
        }
    }

    fn samples(&self) -> u64 {
        match &self.indices {
            Indices::Range(range) => range.end - range.start,
            Indices::Short(list) => list.len() as u64,
            Indices::Long(list) => list.len() as u64,
        }
    }

    fn at(&self, index: u64) -> (usize, u64) {
        let index = match &self.indices {
            Indices::Range(range) => range.start + index,
            Indices::Short(list) => list[index as usize].into(),
            Indices::Long(list) => list[index as usize],
        };
        (0, index)
    }

    fn index_of(&self, _: usize, index: u64) -> Option<u64> {
        let place = match &self.indices {
            Indices::Range(range) => return range.contains(&index).then(|| index - range.start),
            Indices::Short(list) => list.iter().position(|&it| u64::from(it) == index),
            Indices::Long(list) => list.iter().position(|&it| it == index),
        };
        place.map(|place| place as u64)
    }

    fn memory_bytes(&self) -> u64 {
        let bytes = match &self.indices {
            Indices::Range(_) => 0,
            Indices::Short(list) => list.capacity() * size_of::<u32>(),
            Indices::Long(list) => list.capacity() * size_of::<u64>(),
        };
        bytes as u64
    }

    fn describe(&self, parts: &[String]) -> String {
        let what = match &self.indices {
            Indices::Range(Range { start, end }) => format!("samples {start} to {end}"),
            _ => counted(self.samples(), "sample"),
        };
        format!("{what} of {}", parts.concat())
    }
}

impl Arrangement for Repeated {
    fn samples(&self) -> u64 {
        self.len * self.times
    }

    fn at(&self, index: u64) -> (usize, u64) {
        (0, index % self.len)
    }

    fn index_of(&self, _: usize, index: u64) -> Option<u64> {
        Some(index)
    }

    fn describe(&self, parts: &[String]) -> String {
        format!("{} times {}", self.times, parts.concat())
    }
}
