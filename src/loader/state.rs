//! Where a loader is.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Where a loader is in its epochs: enough to go on there exactly, in constant time.
///
/// A loader that goes on has exactly the samples that are left of the epoch, in the same global order and with the same
/// random draws, whatever its number of workers, batch, prefetch, rank and world are, and whatever they were before.
/// Field names and meaning are part of the public contract: a state that was kept goes on being understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// The key of all randomness.
    pub seed: u64,
    /// Whether each epoch has its own order.
    pub shuffle: bool,
    /// The epoch that comes next, or that is under way.
    pub epoch: u32,
    /// How many positions of the epoch's global order all shards together have consumed.
    pub position: u64,
    /// Samples of the source.
    pub samples: u64,
    /// Samples in a window, where files and windows are shuffled; not kept where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<u64>,
    /// With `shuffle_window`: CRC-32C of the numbers of the first samples after each file that has any, each in eight bytes,
    /// the lowest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u32>,
}

impl LoaderState {
    /// Whether it can be a state of a source with so many samples, whose files have this checksum.
    pub(super) fn check(&self, samples: u64, files: Option<u32>) -> Result<()> {
        if self.samples != samples {
            let problem = format!(
                "is of a source with {} samples, this one has {samples}; resume with the same source",
                self.samples
            );
            return Err(Error::config("state", problem));
        }
        if self.files != files {
            let problem = match (self.files, self.shuffle_window) {
                (None, Some(_)) => "is missing beside state.shuffle_window; keep the whole state",
                _ => {
                    "says that the samples were spread over other files; resume with the same files in the same \
                     order, or begin an epoch without the state"
                }
            };
            return Err(Error::config("state.files", problem));
        }
        if self.position > samples {
            let problem = format!("is {}, the source has only {samples} samples", self.position);
            return Err(Error::config("state.position", problem));
        }
        Ok(())
    }
}
