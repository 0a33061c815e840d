//! Writes one shard and the hidden files beside it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use feedwater::error::Result;

use super::encode::{Sample, key};
use super::origin::{self, Origin};
use super::shard::{Facts, ShardWriter};
use super::{Settings, Shard, Skipped, rows};

/// Largest number of skipped samples that the manifest lists.
pub(super) const SKIPPED_KEPT: usize = 1000;

/// Writer of one shard. The shard file is created when its first usable sample is written.
pub(super) struct Writer<'a> {
    directory: &'a Path,
    settings: &'a Settings,
    /// Number of samples in the source.
    samples: u64,
    facts: Facts<'a>,
    number: u64,
    shard: Option<ShardWriter<'a>>,
    origins: Vec<Origin>,
    rows: Vec<Vec<u8>>,
    skipped: u64,
    skipped_first: Vec<Skipped>,
}

/// Finished shard that is not in the manifest yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// Number of the shard.
    pub number: u64,
    /// Source index of the first sample after the shard.
    pub end: u64,
    /// The shard. `None` if all of its samples were skipped. Only the last shard of a source can be
    /// `None`.
    pub shard: Option<Shard>,
    /// Number of samples of the shard that were skipped.
    pub skipped: u64,
    /// The first skipped samples of the shard, at most 1000.
    pub skipped_first: Vec<Skipped>,
}

impl<'a> Writer<'a> {
    pub fn new(
        directory: &'a Path,
        settings: &'a Settings,
        (samples, facts): (u64, Facts<'a>),
        number: u64,
    ) -> Self {
        Self {
            directory,
            settings,
            samples,
            facts,
            number,
            shard: None,
            origins: Vec::new(),
            rows: Vec::new(),
            skipped: 0,
            skipped_first: Vec::new(),
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Number of bytes of the samples written so far.
    pub fn bytes(&self) -> u64 {
        self.shard.as_ref().map_or(0, ShardWriter::bytes)
    }

    pub fn append(&mut self, index: u64, sample: &Sample) -> Result<()> {
        self.origins.push(sample.origin.clone());
        match &sample.image {
            Ok(image) => {
                let shard = match &mut self.shard {
                    Some(shard) => shard,
                    None => {
                        let format = self.settings.format;
                        let name = format.file_name(&self.settings.name, self.number);
                        let (directory, facts) = (self.directory, self.facts);
                        self.shard.insert(ShardWriter::create(directory, format, &name, facts)?)
                    }
                };
                shard.append(&sample.item(image, &key(index, self.samples)))?;
                self.rows.extend(image.row_index.clone());
            }
            Err(problem) => {
                self.skipped += 1;
                if self.skipped_first.len() < SKIPPED_KEPT {
                    let (location, problem) = (sample.origin.location.clone(), problem.clone());
                    self.skipped_first.push(Skipped { index, location, problem });
                }
            }
        }
        Ok(())
    }

    /// Finishes the shard. `end` is the source index of the first sample after the shard.
    pub fn finish(self, end: u64) -> Result<Written> {
        let Self { directory, settings, number, skipped, skipped_first, .. } = self;
        origin::write(directory, &settings.name, number, &self.origins)?;
        let shard = match self.shard {
            Some(shard) => {
                rows::write(shard.path(), &self.rows)?;
                Some(shard.finish(end)?)
            }
            None => None,
        };
        Ok(Written { number, end, shard, skipped, skipped_first })
    }
}
