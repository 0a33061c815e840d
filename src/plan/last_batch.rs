//! What happens to the samples that do not fill the last batch.

use serde::{Deserialize, Serialize};

/// Handling of the samples that do not fill the last batch of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LastBatch {
    /// They are dropped. With several shards, so are samples that would give one shard more than another.
    #[default]
    Drop,
    /// The shard's last sample is repeated until the batch is full and marked as padding. All shards are padded to the
    /// same number of batches.
    Pad,
    /// They form a smaller batch.
    Partial,
}
