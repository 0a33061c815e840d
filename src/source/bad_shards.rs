//! Policy for shards (files of many samples) that are damaged or cannot be opened.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ExclusionReason, Exclusions};
use crate::error::{Error, Redacted};
use crate::footprint::counted;
use crate::storage;

/// Action of a source for a shard that is damaged or cannot be opened.
///
/// Bad shards and lost samples are counted ([`Source::excluded`](super::custom::Notes::excluded)).
/// A warning of the source names the first bad shard. Every rank computes the order of all samples,
/// so all ranks need the same shards. A server that does not answer could affect only one rank, so
/// it is an error with every policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BadShards {
    /// Opening the source fails.
    #[default]
    Error,
    /// All samples of the shard are skipped.
    Skip,
    /// The samples before the damage are used. Only for formats that are read sequentially:
    /// `webdataset`, `tfrecord` and `recordio`.
    UntilDamage,
}

/// A bad shard and the data that is lost with it.
#[derive(Clone, Debug)]
pub struct BadShard {
    /// Error message with the position of the damage.
    pub problem: String,
    /// Number of samples that are skipped although they are intact and in front of the damage.
    pub left_out: u64,
    /// Number of bytes after the damage, which contain an unknown number of samples. `None` if the
    /// file could not be opened or is compressed.
    pub unknown_bytes: Option<u64>,
    /// Number of samples that are used. They are in front of the damage.
    pub used: u64,
}

/// Collects the bad shards of a source.
#[derive(Debug, Default)]
pub struct BadShardList {
    count: u64,
    /// Path of the first bad shard, and its error message.
    first: String,
}

impl BadShards {
    /// Key of this setting in a pipeline file.
    pub(crate) const KEY: &'static str = "on_bad_shard";

    /// Name of the policy in a pipeline file.
    pub const fn name(self) -> &'static str {
        match self {
            BadShards::Error => "error",
            BadShards::Skip => "skip",
            BadShards::UntilDamage => "until_damage",
        }
    }

    /// Returns an error if a policy is set for the source `key`, which has no shards of its own.
    pub(super) fn check_unset(self, key: &str) -> Result<(), Error> {
        if self == BadShards::Error {
            return Ok(());
        }
        let problem = format!(
            "the source {key} has no shards of its own; remove on_bad_shard, or, if {key} combines \
             other sources, set it in those sources"
        );
        Err(Error::config(format!("source.{}", BadShards::KEY), problem))
    }

    /// Converts an error that affects only this shard to a bad shard, if the policy permits bad
    /// shards. Returns other errors, such as a server that does not answer.
    ///
    /// # Errors
    ///
    /// Returns the given error if opening the source must fail.
    pub(super) fn allow(self, path: &Path, error: Error) -> Result<BadShard, Error> {
        let is_of_shard = match &error {
            Error::Config(_) => true,
            Error::Io { source, .. } => {
                let missing =
                    source.as_ref().is_some_and(|it| it.kind() == std::io::ErrorKind::NotFound);
                missing || !storage::is_url(path)
            }
            _ => false,
        };
        match self {
            BadShards::Skip | BadShards::UntilDamage if is_of_shard => {
                let problem = error.to_string();
                Ok(BadShard { problem, left_out: 0, unknown_bytes: None, used: 0 })
            }
            _ => Err(error),
        }
    }
}

impl BadShardList {
    /// Counts a bad shard and its lost data.
    pub fn add(&mut self, path: &Path, bad: &BadShard, excluded: &mut Exclusions) {
        let path = Redacted::path(path).to_string();
        let BadShard { problem, left_out, unknown_bytes, used } = bad;
        let kind = if *used > 0 { "read until the damage" } else { "skipped" };
        let example = match used {
            0 => format!("{path}: {problem}"),
            _ => format!("{path}, {} used: {problem}", counted(*used, "sample")),
        };
        excluded.add(ExclusionReason::BadShard, kind, 1, &example);
        let mut lost = |why, count: u64| {
            if count > 0 {
                excluded.add(why, "", count, &path);
            }
        };
        lost(ExclusionReason::InBadShard, *left_out);
        lost(ExclusionReason::LostBytes, unknown_bytes.unwrap_or(0));
        if self.count == 0 {
            self.first = example;
        }
        self.count += 1;
    }

    /// Returns a warning for users if any shard is bad.
    pub fn warning(&self, policy: BadShards, shards: usize) -> Option<String> {
        let Self { count, first } = self;
        (*count > 0).then(|| {
            let (name, shards) = (policy.name(), counted(shards, "shard"));
            let are = if *count == 1 { "is" } else { "are" };
            format!(
                "{count} of {shards} {are} damaged or cannot be read (source.{} = {name:?}); the \
                 first of these is {first}",
                BadShards::KEY
            )
        })
    }
}
