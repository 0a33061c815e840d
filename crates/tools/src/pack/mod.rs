//! Packs a source into a few large files, optionally with smaller images. Disks and object stores
//! read large files fastest.
//!
//! * Samples and labels are written in source order. Images are copied byte for byte, or made
//!   smaller.
//! * Fields are stored so that columns of the packed set equal those of the source (`fields`).
//! * Each shard contains the class names. The sources `webdataset` and `tfrecord` read these names,
//!   and other readers skip them.
//! * The sample that brings a shard to the requested size is the shard's last one. The content of
//!   shards depends only on the source and the settings, not on the number of threads.
//! * A shard has a hidden temporary name until it is complete and synced to disk. So readers of the
//!   directory see only complete shards. A hidden manifest then lists the shard, and an interrupted
//!   run resumes after the last listed shard.
//! * A hidden file beside each shard records which source samples the shard contains. If the source
//!   or the settings have changed, packing does not resume. It fails before it writes anything, and
//!   reports the difference.
//! * Another file beside each shard contains row indexes of its JPEGs. With them, loaders skip the
//!   rows above a crop (`cache.row_index`). Other readers ignore the file.
//! * The directory is locked while a process packs into it. A second process that packs into the
//!   same directory fails.
//! * A sample is unusable if it cannot be read, if its header cannot be parsed, or if it cannot be
//!   decoded for shrinking. Packing fails at the first unusable sample, or skips and counts such
//!   samples.

use std::fs;
use std::path::Path;
use std::thread;

use serde::{Deserialize, Serialize};

use feedwater::error::{Error, Result};
use feedwater::plan::Limits;
use feedwater::source::Source;

pub use cluster::{Coordinator, Piece, ShardRange, encode, write_shard};
pub use fields::{ChosenFields, FieldChoice, chosen_fields};
pub use gain::{Gain, gain};
pub use layout::ShardFormat;
pub use manifest::{Made, Manifest};
pub use presize::{Presize, Presizer};
pub use shard::Shard;
pub use verify::{verify, verify_shard};
pub use writer::Written;

use fields::FieldPlan;
use lock::Lock;
use shard::Facts;
use writer::Writer;

mod cluster;
mod encode;
mod fields;
mod gain;
mod layout;
mod lock;
mod manifest;
mod origin;
mod presize;
mod rows;
mod shard;
mod verify;
mod writer;

/// Settings of a pack.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Format of the shards.
    pub format: ShardFormat,
    /// Prefix of the shard names: `train` for `train-000000.tar`.
    pub name: String,
    /// Size in bytes at which a shard ends. The sample that reaches this size is the shard's last
    /// one. At least 1. Default 256 MiB.
    pub shard_bytes: u64,
    /// Size and quality to which larger images are reduced. Default `None`: images are copied.
    pub presize: Option<Presize>,
    /// Whether to delete the files of an earlier pack in the directory and pack everything again,
    /// even if the earlier pack had a different source or different settings. Default false.
    pub overwrite: bool,
    /// Whether to read all packed samples of the source again before resuming, and to compare their
    /// bytes with the record. Default false: samples whose location, label and version are
    /// unchanged are not read. The version of a local file consists of its length, modification
    /// time, inode and time of last change.
    pub verify: bool,
    /// Whether to skip unusable samples instead of failing. Default false.
    pub skip: bool,
    /// Number of threads that read, decode and encode. Default: the number of cores.
    pub threads: usize,
    /// Limits beyond which samples are unusable. Each thread may use 32 MiB to shrink an image.
    /// Images that need more memory use `large_image_memory`, which all threads share.
    pub limits: Limits,
    /// Whether damaged images count as unusable (`decode.strict`). Default true.
    pub strict: bool,
    /// Whether to store row indexes of JPEGs beside the shards. Default true.
    pub row_index: bool,
    /// Fields to store besides images and labels. Default: all. A field that a sample lacks is not
    /// stored for it. A field with more bytes than `limits.max_field_bytes` makes the sample
    /// unusable.
    pub fields: FieldChoice,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: ShardFormat::default(),
            name: "train".into(),
            shard_bytes: 256 << 20,
            presize: None,
            overwrite: false,
            verify: false,
            skip: false,
            threads: thread::available_parallelism().map_or(1, usize::from),
            limits: Limits::default(),
            strict: true,
            row_index: true,
            fields: FieldChoice::default(),
        }
    }
}

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Config`] that names the invalid value.
    pub fn check(&self) -> Result<()> {
        if self.shard_bytes == 0 {
            return Err(Error::config("shard_bytes", "must be at least 1, is 0"));
        }
        if self.name.is_empty() || self.name.starts_with('.') || self.name.contains('/') {
            let problem = format!(
                "must be a file name that does not begin with a dot and contains no slash, is {:?}",
                self.name
            );
            return Err(Error::config("name", problem));
        }
        self.presize.as_ref().map_or(Ok(()), Presize::check)
    }

    /// Whether a shard ends once its samples take `bytes` bytes.
    fn is_full(&self, bytes: u64) -> bool {
        bytes >= self.shard_bytes
    }
}

/// Sample that was skipped because it is unusable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Index of the sample in the source.
    pub index: u64,
    /// Path or other location in the source.
    pub location: String,
    /// Error message that explains why the sample is unusable.
    pub problem: String,
}

/// Packs a source into a directory, or resumes an interrupted pack. Calls `progress` with the
/// number of finished samples. If the directory is already complete, returns its manifest at once.
///
/// # Errors
///
/// Fails with [`Error::Config`] for invalid settings, or if the directory was packed from another
/// source or with other settings. Fails with [`Error::Io`] if a file cannot be written, if a shard
/// has changed, or if another process packs into the directory. Fails with [`Error::Sample`] for an
/// unusable sample, unless unusable samples are skipped.
pub fn pack(
    source: &dyn Source,
    directory: &Path,
    settings: &Settings,
    progress: impl Fn(u64),
) -> Result<Manifest> {
    settings.check()?;
    fs::create_dir_all(directory).map_err(|error| Error::io(directory, &error))?;
    let _lock = Lock::take(directory)?;
    let fields = FieldPlan::new(source, settings)?;
    let mut manifest = Manifest::begin(directory, source, settings, &fields)?;
    if manifest.complete {
        return Ok(manifest);
    }
    let samples = source.len();
    let patterns = fields.patterns();
    let facts = (samples, Facts { classes: source.classes(), fields: &patterns });
    let mut writer = Writer::new(directory, settings, facts, manifest.shards.len() as u64);
    encode::in_order(source, settings, &fields, manifest.end()..samples, |index, sample| {
        writer.append(index, &sample)?;
        progress(index + 1);
        if settings.is_full(writer.bytes()) || index + 1 == samples {
            let next = Writer::new(directory, settings, facts, writer.number() + 1);
            let written = std::mem::replace(&mut writer, next).finish(index + 1)?;
            manifest.list(directory, written)?;
        }
        Ok(())
    })?;
    manifest.complete = true;
    manifest.write(directory)?;
    Ok(manifest)
}
