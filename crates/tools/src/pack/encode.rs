//! Reads and encodes samples on several threads.

use std::iter::StepBy;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use feedwater::error::{DataError, Error, Reason, Result, SampleError};
use feedwater::internals::loader::{LargeImages, Room, Take};
use feedwater::internals::plan::SampleMemory;
use feedwater::plan::Limits;
use feedwater::source::Source;
use feedwater::source::custom::HostPage;

use super::Settings;
use super::fields::FieldPlan;
use super::layout::{SampleFields, ShardFormat, extension};
use super::origin::Origin;
use super::presize::Presizer;
use super::rows::RowIndexer;
use super::shard::{Item, item_bytes};

/// Largest number of encoded samples that each thread queues. A thread that has queued this many
/// waits until the consumer takes one.
const AHEAD: usize = 4;

/// Sample that is ready to be written to a shard.
pub(super) struct Sample {
    pub origin: Origin,
    /// The encoded image, or the reason why the sample is skipped.
    pub image: Result<EncodedImage, String>,
}

/// Encoded image of a sample.
pub(super) struct EncodedImage {
    pub bytes: Vec<u8>,
    /// File name extension of the format.
    pub extension: String,
    pub row_index: Option<Vec<u8>>,
    pub fields: SampleFields,
}

impl Sample {
    /// Bytes that the sample adds to a shard, or 0 if it is skipped. `samples` is the number of
    /// samples in the whole source.
    pub fn shard_bytes(&self, format: ShardFormat, index: u64, samples: u64) -> u64 {
        let Ok(image) = &self.image else { return 0 };
        item_bytes(format, &self.item(image, &key(index, samples)))
    }

    /// Returns the entry that a shard contains for this sample.
    pub fn item<'a>(&'a self, image: &'a EncodedImage, key: &'a str) -> Item<'a> {
        let Origin { location, label, .. } = &self.origin;
        let EncodedImage { bytes, extension, fields, .. } = image;
        Item { key, location, extension, label: *label, bytes, fields }
    }
}

/// Key of a sample in shards: its index, padded with zeros to the digits of the number of samples.
pub(super) fn key(index: u64, samples: u64) -> String {
    let digits = samples.to_string().len();
    format!("{index:0digits$}")
}

/// Encodes the given samples of the source, and passes each sample to `take` in source order.
///
/// # Errors
///
/// Fails with [`Error::Sample`] for the first unusable sample unless unusable samples are skipped,
/// and with the errors of `take`.
pub(super) fn in_order(
    source: &dyn Source,
    settings: &Settings,
    fields: &FieldPlan,
    samples: Range<u64>,
    mut take: impl FnMut(u64, Sample) -> Result<()>,
) -> Result<()> {
    let large = Arc::new(LargeImages::new(settings.limits.large_image_memory));
    thread::scope(|scope| {
        // Thread t of n encodes the samples t, t + n, t + 2n, and so on. Receiving one sample from
        // each thread in turn restores the source order. The system may refuse to start some of the
        // threads, so n is known only after all of them were started.
        let start = |_| {
            let (sender, receiver) = sync_channel(AHEAD);
            let (assign, assigned) = sync_channel::<StepBy<Range<u64>>>(1);
            let large = large.clone();
            let work = move || {
                let Ok(mut indices) = assigned.recv() else { return };
                let mut maker = Maker::new(source, settings, fields, large);
                // Sending fails only if the receiver was dropped, because packing has ended.
                let _ = indices.try_for_each(|it| sender.send(maker.make(it)).map_err(drop));
            };
            let thread = thread::Builder::new().name("feedwater-pack".into());
            thread.spawn_scoped(scope, work).ok().map(|_| (assign, receiver))
        };
        let threads: Vec<_> = (0..settings.threads.max(1)).map_while(start).collect();
        for (thread, (assign, _)) in threads.iter().enumerate() {
            let indices = (samples.start + thread as u64..samples.end).step_by(threads.len());
            // If the thread has already ended, sending fails here. The error is reported when the
            // first sample of this thread is received.
            let _ = assign.send(indices);
        }
        let mut here =
            threads.is_empty().then(|| Maker::new(source, settings, fields, large.clone()));
        for (place, index) in samples.enumerate() {
            let ended = |_| Error::Internal { problem: "a thread of pack panicked".into() };
            let Made { origin, image } = match &mut here {
                Some(maker) => maker.make(index),
                None => threads[place % threads.len()].1.recv().map_err(ended)?,
            };
            let image = match image {
                Ok(image) => Ok(image),
                Err(error) if settings.skip => {
                    Err(format!("{}: {}", error.reason.name(), error.problem))
                }
                Err(error) => {
                    let location = source.location(index);
                    return Err(Error::Sample(SampleError::new(index, location, error)));
                }
            };
            take(index, Sample { origin, image })?;
        }
        Ok(())
    })
}

/// Origin of a sample, and its encoded image or the error.
pub(super) struct Made {
    pub origin: Origin,
    pub image: Result<EncodedImage, DataError>,
}

/// Encodes samples. Each thread has its own `Maker`.
pub(super) struct Maker<'a> {
    source: &'a dyn Source,
    fields: &'a FieldPlan,
    limits: &'a Limits,
    strict: bool,
    page: HostPage,
    /// Memory for the fields of a sample.
    buffer: Vec<u8>,
    presizer: Option<Presizer>,
    rows: Option<RowIndexer>,
    room: Room,
}

impl<'a> Maker<'a> {
    pub fn new(
        source: &'a dyn Source,
        settings: &'a Settings,
        fields: &'a FieldPlan,
        large: Arc<LargeImages>,
    ) -> Self {
        let Settings { ref limits, strict, .. } = *settings;
        let presizer = settings.presize.map(|it| Presizer::new(it).strict(strict));
        let (page, room) = (HostPage::default(), Room::of_thread(large));
        let rows = settings.row_index.then(RowIndexer::default);
        let buffer = Vec::new();
        Self { source, fields, limits, strict, page, buffer, presizer, rows, room }
    }

    pub fn make(&mut self, index: u64) -> Made {
        let limit = self.limits.max_file_bytes;
        let (mut origin, read) = Origin::read(self.source, index, &mut self.page, limit);
        let fields = read.and_then(|()| {
            let (source, plan, limits) = (self.source, self.fields, self.limits);
            origin.read_fields(source, plan, index, limits, &mut self.buffer)
        });
        let mut image = fields.and_then(|fields| Ok(EncodedImage { fields, ..self.image()? }));
        if let (Ok(image), Some(rows)) = (&mut image, &mut self.rows) {
            image.row_index = rows.make(&image.bytes);
        }
        Made { origin, image }
    }

    /// Encodes the image whose bytes are in `self.page`.
    fn image(&mut self) -> Result<EncodedImage, DataError> {
        let bytes = self.page.bytes();
        let header = self.limits.header(bytes, self.strict)?;
        if let Some(presizer) = &mut self.presizer
            && let Some(need) = presizer.need(bytes, &header)
        {
            let nothing = SampleMemory::default();
            self.room.admit((header.size, Take::Needed), &need, &nothing, || presizer.release())?;
            let made = presizer.make(bytes, &header);
            if self.room.is_beyond() {
                presizer.release();
                self.room.give_back();
            }
            if let Some(bytes) = made? {
                return Ok(encoded(bytes, "jpg"));
            }
        }
        let Some(extension) = extension(header.format, bytes) else {
            // The format `Pixels` occurs only in caches, never in a file.
            let problem = format!(
                "{} images have no file name extension in packed shards",
                header.format.name()
            );
            return Err(DataError::new(Reason::Unsupported, problem));
        };
        Ok(encoded(bytes.to_vec(), extension))
    }
}

/// An image without its row index and fields.
fn encoded(bytes: Vec<u8>, extension: &str) -> EncodedImage {
    let (extension, fields) = (extension.into(), SampleFields::default());
    EncodedImage { bytes, extension, row_index: None, fields }
}
