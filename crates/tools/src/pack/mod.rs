//! Packs a source into a few large files, which disks and object stores read fastest, optionally with smaller images.
//!
//! * Samples and labels are in source order. Images are copied byte for byte or made smaller.
//! * A shard ends with the sample that reaches the requested size. This depends only on the source and the settings, so the same
//!   source gives the same files for any number of threads.
//! * A shard has a hidden name until it is on disk, so readers of the directory see only whole shards. A hidden manifest then
//!   lists it: an interrupted run resumes after the last listed shard.
//! * The samples of each shard are recorded beside it. If the source or the settings have changed, packing does not resume: it
//!   fails before writing anything, and reports the difference.
//! * Beside a shard lie the row indexes of its JPEGs, with which loaders decode windows faster (`cache.row_index`). Readers that do
//!   not know them leave them alone.
//! * The directory is locked during packing; a second pack fails.
//! * A sample that cannot be read, parsed or, to make it smaller, decoded is an error, or is skipped and counted.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use serde::{Deserialize, Serialize};

use feedwater::error::{DataError, Error, Reason, Result, SampleError};
use feedwater::header::Format;
use feedwater::loader::{LargeImages, Room};
use feedwater::plan::{Limits, SampleMemory};
use feedwater::source::Source;
use feedwater::source::custom::HostPage;

pub use gain::{Gain, gain};
pub use manifest::{Made, Manifest};
pub use presize::{Presize, Presizer};
pub use shard::{Shard, ShardFormat};
pub use verify::verify;

use lock::Lock;
use origin::Origin;
use rows::RowIndexer;
use shard::{Item, ShardWriter};

mod gain;
mod lock;
mod manifest;
mod origin;
mod presize;
mod rows;
mod shard;
mod verify;

/// Settings of a pack.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Format of the shards.
    pub format: ShardFormat,
    /// Prefix of the shard names: `train` for `train-000000.tar`.
    pub name: String,
    /// Size in bytes at which a shard ends, at least 1. Default 256 MiB.
    pub shard_bytes: u64,
    /// Reduction of the image size. Default: images are copied.
    pub presize: Option<Presize>,
    /// Whether to delete the files of an earlier pack in the directory, whatever its source and settings, and to pack everything
    /// again. Default false.
    pub overwrite: bool,
    /// Whether to skip unusable samples instead of failing. Default false.
    pub skip: bool,
    /// Number of threads that read, decode and encode. Default: number of cores.
    pub threads: usize,
    /// Limits beyond which samples are unusable. To make an image smaller, each thread has 32 MiB, and all threads share
    /// `large_image_memory` for images that need more.
    pub limits: Limits,
    /// Whether damaged images are unusable (`decode.strict`). Default true.
    pub strict: bool,
    /// Whether to store row indexes of JPEGs beside the shards. Default true.
    pub row_index: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: ShardFormat::default(),
            name: "train".into(),
            shard_bytes: 256 << 20,
            presize: None,
            overwrite: false,
            skip: false,
            threads: thread::available_parallelism().map_or(1, usize::from),
            limits: Limits::default(),
            strict: true,
            row_index: true,
        }
    }
}

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the invalid value.
    pub fn check(&self) -> Result<()> {
        if self.shard_bytes == 0 {
            return Err(Error::config("shard_bytes", "must be at least 1, is 0"));
        }
        if self.name.is_empty() || self.name.starts_with('.') || self.name.contains('/') {
            let problem = format!("must be the name of a visible file, is {:?}", self.name);
            return Err(Error::config("name", problem));
        }
        self.presize.as_ref().map_or(Ok(()), Presize::check)
    }
}

/// Skipped sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Index in the source.
    pub index: u64,
    /// Path or other location.
    pub location: String,
    /// Error message.
    pub problem: String,
}

/// Largest number of skipped samples in the manifest.
const SKIPPED_KEPT: usize = 1000;

/// Samples that each thread may be ahead of the writer.
const AHEAD: usize = 4;

/// Packs a source into a directory, or resumes an interrupted pack; calls `progress` with the number of finished samples. Returns
/// the manifest at once if the directory is complete.
///
/// # Errors
///
/// [`Error::Config`] for invalid settings, and if the directory was packed from another source or with other settings;
/// [`Error::Io`] if a file cannot be written, a shard has changed, or another process packs into the directory; [`Error::Sample`]
/// for an unusable sample.
pub fn pack(
    source: &dyn Source,
    directory: &Path,
    settings: &Settings,
    progress: impl Fn(u64),
) -> Result<Manifest> {
    settings.check()?;
    fs::create_dir_all(directory).map_err(|error| Error::io(directory, &error))?;
    let _lock = Lock::take(directory)?;
    let mut manifest = Manifest::begin(directory, source, settings)?;
    if manifest.complete {
        return Ok(manifest);
    }
    let begin = manifest.shards.last().map_or(0, |shard| shard.end);
    let large = Arc::new(LargeImages::new(settings.limits.large_image_memory));
    thread::scope(|scope| {
        // Thread t makes every sample t modulo the number of threads; receiving from them in turn restores the order of the
        // source.
        let threads = settings.threads.max(1) as u64;
        let made: Vec<Receiver<Sample>> = (0..threads)
            .map(|thread| {
                let (sender, receiver) = sync_channel(AHEAD);
                let indices = (begin + thread..source.len()).step_by(threads as usize);
                let large = large.clone();
                scope.spawn(move || {
                    let mut maker = Maker::new(source, settings, large);
                    // The receiver is gone: the run has ended.
                    let _ = indices
                        .into_iter()
                        .try_for_each(|it| sender.send(maker.make(it)).map_err(drop));
                });
                receiver
            })
            .collect();
        let mut turns = made.iter().cycle();
        let ended = || Error::Internal { problem: "a thread of pack panicked".into() };
        let next = || turns.next().and_then(|it| it.recv().ok()).ok_or_else(ended);
        write(source, directory, settings, &mut manifest, next, progress)
    })?;
    manifest.complete = true;
    manifest.write(directory)?;
    Ok(manifest)
}

/// Writes all shards that are not in the manifest.
fn write(
    source: &dyn Source,
    directory: &Path,
    settings: &Settings,
    manifest: &mut Manifest,
    mut next: impl FnMut() -> Result<Sample>,
    progress: impl Fn(u64),
) -> Result<()> {
    let digits = source.len().to_string().len();
    let mut writer: Option<ShardWriter> = None;
    let (mut skipped, mut origins, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for index in manifest.shards.last().map_or(0, |shard| shard.end)..source.len() {
        let Sample { origin, image } = next()?;
        origins.push(origin);
        match image {
            Ok(EncodedImage { bytes, extension, row_index }) => {
                let writer = match &mut writer {
                    Some(writer) => writer,
                    None => {
                        let number = manifest.shards.len() as u64;
                        let name = settings.format.file_name(&settings.name, number);
                        writer.insert(ShardWriter::create(directory, settings.format, &name)?)
                    }
                };
                let (key, location) = (format!("{index:0digits$}"), source.location(index));
                let (label, bytes) = (source.label(index), &bytes);
                let item = Item { key: &key, location: &location, extension, label, bytes };
                writer.append(&item)?;
                rows.extend(row_index);
            }
            Err(error) => {
                let location = source.location(index);
                if !settings.skip {
                    return Err(Error::Sample(SampleError::new(index, location, error)));
                }
                let problem = format!("{}: {}", error.reason.name(), error.problem);
                skipped.push(Skipped { index, location, problem });
            }
        }
        progress(index + 1);
        let full = writer.as_ref().is_some_and(|it| it.bytes() >= settings.shard_bytes);
        if full || index + 1 == source.len() {
            let number = manifest.shards.len() as u64;
            origin::write(directory, &settings.name, number, &std::mem::take(&mut origins))?;
            manifest.skipped += skipped.len() as u64;
            manifest.skipped_first.append(&mut skipped);
            manifest.skipped_first.truncate(SKIPPED_KEPT);
            if let Some(writer) = writer.take() {
                rows::write(writer.path(), &std::mem::take(&mut rows))?;
                manifest.shards.push(writer.finish(index + 1)?);
            }
            manifest.write(directory)?;
        }
    }
    Ok(())
}

/// Encoded sample, ready to be written.
struct EncodedImage {
    bytes: Vec<u8>,
    extension: &'static str,
    row_index: Option<Vec<u8>>,
}

/// Origin of a sample, with its encoded image or error.
struct Sample {
    origin: Origin,
    image: Result<EncodedImage, DataError>,
}

/// Encodes samples; one per thread.
struct Maker<'a> {
    source: &'a dyn Source,
    limits: &'a Limits,
    strict: bool,
    page: HostPage,
    presizer: Option<Presizer>,
    rows: Option<RowIndexer>,
    room: Room,
}

impl<'a> Maker<'a> {
    fn new(source: &'a dyn Source, settings: &'a Settings, large: Arc<LargeImages>) -> Self {
        let Settings { ref limits, strict, .. } = *settings;
        let presizer = settings.presize.map(|it| Presizer::new(it).strict(strict));
        let (page, room) = (HostPage::default(), Room::of_thread(large));
        let rows = settings.row_index.then(RowIndexer::default);
        Self { source, limits, strict, page, presizer, rows, room }
    }

    fn make(&mut self, index: u64) -> Sample {
        let limit = self.limits.max_file_bytes;
        let (origin, read) = Origin::read(self.source, index, &mut self.page, limit);
        let mut image = read.and_then(|()| self.image());
        if let (Ok(image), Some(rows)) = (&mut image, &mut self.rows) {
            image.row_index = rows.make(&image.bytes);
        }
        Sample { origin, image }
    }

    /// Encodes the image of the sample that was read.
    fn image(&mut self) -> Result<EncodedImage, DataError> {
        let bytes = self.page.bytes();
        let header = self.limits.header(bytes, self.strict)?;
        if let Some(presizer) = &mut self.presizer
            && let Some(need) = presizer.need(bytes, &header)
        {
            let nothing = SampleMemory::default();
            self.room.admit(header.size, &need, &nothing, || presizer.release())?;
            let made = presizer.make(bytes, &header);
            if self.room.is_beyond() {
                presizer.release();
                self.room.give_back();
            }
            if let Some(bytes) = made? {
                return Ok(EncodedImage { bytes, extension: "jpg", row_index: None });
            }
        }
        let extension = match header.format {
            Format::Jpeg => "jpg",
            Format::Png => "png",
            Format::WebP => "webp",
            Format::Pnm => match bytes.get(1) {
                Some(b'1' | b'4') => "pbm",
                Some(b'2' | b'5') => "pgm",
                _ => "ppm",
            },
            // `Format::Pixels` exists only in caches; no file header has it.
            other => {
                let problem = format!("{} images have no file name extension here", other.name());
                return Err(DataError::new(Reason::Unsupported, problem));
            }
        };
        Ok(EncodedImage { bytes: bytes.to_vec(), extension, row_index: None })
    }
}
