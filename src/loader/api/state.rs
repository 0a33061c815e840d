//! Position of a loader, for checkpoints.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::source::Fingerprint;

/// Position of a loader in its epochs. Another loader resumes from it exactly, in constant time.
///
/// A resumed loader returns exactly the remaining samples of the epoch, in the same global order
/// and with the same random numbers. Number of workers, batch size, prefetch, rank and world size
/// may differ. Field names and meaning are part of the public contract: later versions accept saved
/// states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Whether each epoch has its own order.
    pub shuffle: bool,
    /// Running epoch, or the next epoch if none is running.
    pub epoch: u32,
    /// Number of positions in the epoch's global order that all shards together have consumed.
    pub position: u64,
    /// Number of samples of the source.
    pub samples: u64,
    /// Samples per shuffle window. Absent if files and windows are not shuffled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<u64>,
    /// Number of consecutive occurrences of each sample. Absent if 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// With `shuffle_window`: CRC-32C of the ends of all files that have samples. The end of a file
    /// is the index after its last sample, stored as eight bytes, little-endian.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u32>,
    /// CRC-32C of the class names in the order of their numbers, each followed by a zero byte.
    /// Absent without class names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<u32>,
    /// Fingerprint of the source, if it is a combination: a mixture, a concatenation or a
    /// selection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combined: Option<Fingerprint>,
    /// CRC-32C of the source's number of samples and of the names of its first and last sample,
    /// without folders. Absent if the source is a combination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<u32>,
}

impl LoaderState {
    /// Checks that this state fits a source with `samples` samples and these classes, whose files
    /// have the checksum `files`. States that earlier versions saved have no fingerprint.
    pub(in crate::loader) fn check(
        &self,
        samples: u64,
        files: Option<u32>,
        combined: Option<&Fingerprint>,
        classes: &[String],
    ) -> Result<()> {
        if self.samples != samples {
            let problem = format!(
                "belongs to a source with {} samples, but this source has {samples}; resume with the same source",
                self.samples
            );
            return Err(Error::config("state", problem));
        }
        if let Some(saved) = self.combined.filter(|saved| Some(saved) != combined) {
            let problem = format!(
                "{}; resume with the same source, or start an epoch without the state",
                saved.difference(combined)
            );
            return Err(Error::config("state.combined", problem));
        }
        if self.files != files {
            let problem = match (self.files, self.shuffle_window) {
                (None, Some(_)) => {
                    "is missing, but state.shuffle_window is set; save the whole state"
                }
                _ => {
                    "does not match the files of this source; resume with the same files in the same \
                     order, or start an epoch without the state"
                }
            };
            return Err(Error::config("state.files", problem));
        }
        // States of earlier versions have no checksum.
        if let (Some(was), Some(is)) = (self.classes, classes_checksum(classes))
            && was != is
        {
            let problem = format!(
                "was saved with other classes, so labels would change their meaning (checksum of \
                 the class names: {was:08x} then, {is:08x} now); set source.classes to the class \
                 names of that time"
            );
            return Err(Error::config("state.classes", problem));
        }
        if self.position > samples {
            let problem = format!(
                "is {}, but the source has only {samples} samples; resume with the same source",
                self.position
            );
            return Err(Error::config("state.position", problem));
        }
        Ok(())
    }

    /// Warning if the checksum of the sample names shows that the state belongs to another source.
    /// This is not an error, because samples may have been renamed or packed in the same order.
    /// States of earlier versions have no checksum.
    pub(in crate::loader) fn warning(&self, source: Option<u32>) -> Option<String> {
        let (was, is) = (self.source?, source?);
        (was != is).then(|| {
            format!(
                "state.source: the first or last sample has another name than when the state was \
                 saved (checksum {was:08x} then, {is:08x} now). Epoch {} continues after {} \
                 samples in the saved order; check that the source is the same",
                self.epoch, self.position
            )
        })
    }
}

/// Checksum of the class names. `None` without class names.
pub(in crate::loader) fn classes_checksum(classes: &[String]) -> Option<u32> {
    let extend = |crc, name: &String| {
        crc32c::crc32c_append(crc32c::crc32c_append(crc, name.as_bytes()), &[0])
    };
    (!classes.is_empty()).then(|| classes.iter().fold(0, extend))
}
