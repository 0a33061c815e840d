//! Reads a sample: a decoded image from the cache, or a file from the cache or from the source.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::cache::{Caches, Kept};
use super::policy::checked_label;
use crate::decode::{Decoders, DeviceFile, JpegBy};
use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::{Orientation, Size};
use crate::header::{Format, Header};
use crate::measure::{CpuClock, Stage, ThreadMeter};
use crate::plan::Plan;
use crate::random::SampleKey;
use crate::source::{HostPage, Page, Source};
use crate::transform::FullDecoder;

/// Page whose bytes can be read back.
pub(in crate::loader) trait Filled: Page {
    /// The bytes of the sample.
    fn bytes(&self) -> &[u8];
    /// Pageable host memory that the page holds, in bytes.
    fn host_bytes(&self) -> u64;
    /// Frees the memory of the page.
    fn release(&mut self);
}

impl Filled for HostPage {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn host_bytes(&self) -> u64 {
        self.capacity_bytes()
    }

    fn release(&mut self) {
        *self = HostPage::default();
    }
}

/// Location of the bytes of a sample.
pub(super) enum Content {
    /// A file, in the page.
    File,
    /// A decoded image in the cache.
    Kept(Bytes),
    /// A decoded image that is not cached.
    Whole(Vec<u8>),
    /// A file in device memory. Its bytes here are the segments before the coded data.
    OnDevice(DeviceFile),
}

impl Content {
    /// The bytes. `page` is the page into which the file was read.
    pub fn bytes<'a>(&'a self, page: &'a impl Filled) -> &'a [u8] {
        match self {
            Content::File => page.bytes(),
            Content::Kept(bytes) => bytes,
            Content::Whole(pixels) => pixels,
            Content::OnDevice(file) => file.segments(),
        }
    }
}

/// Sample that was read but not yet planned.
pub(super) struct Sample {
    pub header: Header,
    pub content: Content,
    /// Whether the file of the sample came from a cache.
    pub was_cached: bool,
    pub label: Option<i64>,
    /// Time for parsing the header of the sample.
    pub parsed: Duration,
    /// Damage that was accepted when the image was decoded whole.
    pub tolerated: Option<Tolerated>,
    /// Decoder of the whole image, if it is a JPEG.
    pub jpeg_by: Option<JpegBy>,
}

/// Reads samples through the caches. Each thread has its own reader. The reader's buffers are part
/// of the worker's memory budget.
pub(super) struct Reader {
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    meter: Arc<ThreadMeter>,
    caches: Arc<Caches>,
    full_decoder: FullDecoder,
}

impl Reader {
    pub fn new(
        source: Arc<dyn Source>,
        plan: Arc<Plan>,
        meter: Arc<ThreadMeter>,
        caches: Arc<Caches>,
    ) -> Self {
        let full_decoder =
            FullDecoder::new(plan.settings.cache.presize, plan.settings.decode.orientation);
        Self { source, plan, meter, caches, full_decoder }
    }

    /// Reads a sample into the page, unless the decoded cache holds it, or device memory if
    /// `from_device`. For a file of more than `most` bytes, first calls `larger`, which reserves
    /// more memory and returns the new limit in bytes.
    pub fn find(
        &mut self,
        (key, from_device): (SampleKey, bool),
        page: &mut impl Filled,
        most: u64,
        clock: &mut Option<CpuClock>,
        larger: impl FnOnce() -> Result<u64, DataError>,
    ) -> Result<Sample, DataError> {
        self.meter.index(key.index);
        let caches = self.caches.clone();
        let original = self.source.original(key.index);
        let kept = caches.decoded.as_ref().and_then(|it| it.get(original, key.epoch));
        if let Some(Kept { size, orientation, tolerated, bytes }) = kept {
            return Ok(Sample {
                header: decoded(size, orientation),
                content: Content::Kept(bytes),
                was_cached: true,
                label: checked_label(&self.plan, &*self.source, key.index)?,
                parsed: Duration::ZERO,
                tolerated,
                jpeg_by: None,
            });
        }

        if let Some(files) = caches.device.as_ref().filter(|_| from_device)
            && let Some(Kept { orientation, bytes, .. }) = files.get(original, key.epoch)
            && let Some(file) = DeviceFile::read(&bytes)
            && let begin = self.meter.begin(Stage::Header)
            && let Ok(header) = self.plan.header(file.segments())
        {
            return Ok(Sample {
                header: Header { orientation, ..header },
                content: Content::OnDevice(file),
                was_cached: true,
                label: checked_label(&self.plan, &*self.source, key.index)?,
                parsed: self.meter.since(begin),
                tolerated: None,
                jpeg_by: None,
            });
        }

        let begin = self.meter.begin(Stage::Read);
        let kept = caches.encoded.as_ref().and_then(|it| it.get(original, key.epoch));
        match &kept {
            Some(kept) => {
                if kept.bytes.len() as u64 > most {
                    self.full_decoder.release();
                    page.release();
                    larger()?;
                }
                page.space(kept.bytes.len())?.copy_from_slice(&kept.bytes);
            }
            None => {
                let limit = self.plan.settings.limits.max_file_bytes;
                let read = self.meter.read();
                let fits = self.source.read(key.index, page, most.min(limit));
                match fits {
                    Err(DataError { reason: Reason::Oversized, .. }) if most < limit => {
                        self.full_decoder.release();
                        page.release();
                        let most = larger()?.min(limit);
                        let read = self.source.read(key.index, page, most);
                        read.map_err(|error| no_room_for_file(error, most, limit))?;
                    }
                    read => read?,
                }
                drop(read);
            }
        }
        let label = checked_label(&self.plan, &*self.source, key.index)?;
        let took = self.meter.add(Stage::Read, begin, page.bytes().len() as u64);
        if let Some(clock) = clock {
            self.meter.clocked(&[(Stage::Read, took)], clock);
        }

        let begin = self.meter.begin(Stage::Header);
        let header = self.plan.header(page.bytes())?;
        Ok(Sample {
            header,
            content: Content::File,
            was_cached: kept.is_some(),
            label,
            parsed: self.meter.since(begin),
            tolerated: None,
            jpeg_by: None,
        })
    }

    /// Returns two facts about an image: whether to decode it whole before it is planned, and
    /// whether this is required, which is the case if the image must be resized.
    pub fn decodes_whole(&self, key: SampleKey, header: &Header) -> (bool, bool) {
        let Some(store) = &self.caches.decoded else { return (false, false) };
        let original = self.source.original(key.index);
        let resizes = self.full_decoder.resizes(header);
        let pixels = 3 * self.full_decoder.size(header).pixels();
        (resizes || store.has_room(original, pixels), resizes)
    }

    /// If `whole`, decodes the whole image, and caches it if there is space. If the image is not
    /// cached, caches the file instead, if there is space.
    pub fn keep(
        &mut self,
        key: SampleKey,
        sample: &mut Sample,
        page: &impl Filled,
        whole: bool,
        decoder: &mut Decoders,
        clock: &mut Option<CpuClock>,
    ) -> Result<(), DataError> {
        let original = self.source.original(key.index);
        let Header { size, orientation, .. } = sample.header;
        if whole {
            self.decode_whole(original, sample, page.bytes(), decoder, clock)?;
        }
        let is_kept = sample.was_cached || matches!(sample.content, Content::Kept(_));
        if let (Some(encoded), false) = (&self.caches.encoded, is_kept) {
            encoded.keep(original, size, orientation, None, page.bytes());
        }
        Ok(())
    }

    /// Frees all buffers.
    pub fn release(&mut self) {
        self.full_decoder.release();
    }

    /// Takes back the memory of an image for reuse.
    pub fn give_back(&mut self, content: Content) {
        if let Content::Whole(pixels) = content {
            self.full_decoder.give_back(pixels);
        }
    }

    /// Decodes an image whole, for the cache or for `cache.presize`, and caches it if there is
    /// space.
    fn decode_whole(
        &mut self,
        original: u64,
        sample: &mut Sample,
        bytes: &[u8],
        decoder: &mut Decoders,
        clock: &mut Option<CpuClock>,
    ) -> Result<(), DataError> {
        let Some(store) = &self.caches.decoded else { return Ok(()) };
        let header = &sample.header;
        let (size, resizes) = (self.full_decoder.size(header), self.full_decoder.resizes(header));
        let begin = self.meter.begin(Stage::Decode);
        let decoded_whole = self.full_decoder.decode(bytes, header, decoder);
        let took = self.meter.add(Stage::Decode, begin, bytes.len() as u64);
        if let Some(clock) = clock {
            self.meter.clocked(&[(Stage::Decode, took)], clock);
        }
        let (orientation, pixels) = match decoded_whole {
            Ok(made) => made,
            Err(error) if resizes => return Err(error),
            // The whole image cannot be decoded, but the window that the operators need may still
            // be decodable.
            Err(_) => return Ok(()),
        };
        (sample.tolerated, sample.jpeg_by) = (decoder.tolerated(), decoder.jpeg_by());
        sample.content = match store.keep(original, size, orientation, sample.tolerated, &pixels) {
            Some(kept) => {
                self.full_decoder.give_back(pixels);
                Content::Kept(kept)
            }
            None => Content::Whole(pixels),
        };
        sample.header = decoded(size, orientation);
        Ok(())
    }
}

/// Error for a file that is within `limits.max_file_bytes`, but larger than the available `most`
/// bytes of memory.
fn no_room_for_file(error: DataError, most: u64, limit: u64) -> DataError {
    if error.reason != Reason::Oversized || most >= limit {
        return error;
    }
    let problem = format!(
        "the file is larger than the {most} bytes of host memory for one file; raise limits.large_image_memory to \
         accept such files"
    );
    DataError::new(Reason::Oversized, problem)
}

/// Header of an image that is already decoded.
fn decoded(size: Size, orientation: Orientation) -> Header {
    Header { format: Format::Pixels, size, orientation, jpeg: None }
}
