//! Inspects a source: formats, sizes, chroma samplings, labels, unusable samples, and decode routes
//! on a GPU.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use feedwater::PixelFormat;
use feedwater::error::{DataError, Result};
use feedwater::internals::decode::{Decoders, JpegBy, refusal};
use feedwater::internals::geometry::{Orientation, Size};
use feedwater::internals::header::{Header, Sampling};
use feedwater::internals::loader::{LargeImages, Room, Take};
use feedwater::internals::plan::SampleMemory;
use feedwater::internals::threads::in_parts;
use feedwater::plan::{Limits, Route};
use feedwater::source::custom::HostPage;
use feedwater::source::{Exclusion, Source};

/// Settings of an inspection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of samples to inspect, spread evenly over the source. 0 inspects all samples.
    pub samples: u64,
    /// Number of threads that read and inspect.
    pub threads: usize,
    /// Whether to decode every inspected image. Damage in the compressed data is found only by
    /// decoding.
    pub decode: bool,
    /// Limits beyond which samples are unusable.
    pub limits: Limits,
    /// Whether damaged images count as unusable (`decode.strict`).
    pub strict: bool,
    /// Pixel format to which images must be decodable (`decode.pixels`).
    pub pixels: PixelFormat,
}

/// Result of an inspection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Number of samples in the source.
    pub samples: u64,
    /// Number of inspected samples.
    pub seen: u64,
    /// Total encoded bytes of the inspected samples.
    pub bytes: u64,
    /// Encoded bytes of the largest inspected sample.
    pub largest_bytes: u64,
    /// Number of images by file format.
    pub formats: BTreeMap<&'static str, u64>,
    /// Number of JPEGs by chroma sampling.
    pub samplings: BTreeMap<&'static str, u64>,
    /// Number of JPEGs by the CPU decoder that decodes them. An entry for libjpeg-turbo also names
    /// the reason why feedwater's own decoder does not support these JPEGs. Some reasons are
    /// detected only if images are decoded.
    pub jpeg_by: BTreeMap<&'static str, u64>,
    /// Progressive JPEGs.
    pub progressive: u64,
    /// Number of images that are rotated or mirrored because of their EXIF orientation.
    pub turned: u64,
    /// Width and height of the image with the fewest pixels, after EXIF rotation.
    pub smallest: Option<[u32; 2]>,
    /// Width and height of the image with the most pixels, after EXIF rotation.
    pub largest: Option<[u32; 2]>,
    /// Total pixels of the inspected images.
    pub pixels: u64,
    /// Histogram of images by size in megapixels.
    pub sizes: Vec<SizeBucket>,
    /// Number of images by decode route. Each image counts for the first route in the order of
    /// `decode.routes` that supports it at full size.
    pub routes: BTreeMap<&'static str, u64>,
    /// Number of images that only the CPU can decode, by reason.
    pub cpu_because: BTreeMap<&'static str, u64>,
    /// Class names. Empty if the source has none.
    pub classes: Vec<String>,
    /// Number of samples by label. All samples of the source are counted, not only the inspected
    /// ones. Label -1 means no label.
    pub labels: BTreeMap<i64, u64>,
    /// Number of samples that `labels` does not count, because there are more than [`MOST_LABELS`]
    /// different labels.
    pub other_labels: u64,
    /// Entries that the source skipped, with the reasons.
    pub excluded: Vec<Exclusion>,
    /// Number of unusable samples by reason.
    pub errors: BTreeMap<&'static str, u64>,
    /// Number of damaged but usable samples by kind of damage. Empty if damaged images count as
    /// unusable.
    pub tolerated: BTreeMap<&'static str, u64>,
    /// The first unusable samples, sorted by index.
    pub examples: Vec<Example>,
}

/// Histogram bucket of image sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeBucket {
    /// Exclusive upper bound of the bucket in megapixels. `None` for the last bucket.
    pub below_megapixels: Option<f64>,
    /// Number of images in this bucket.
    pub images: u64,
}

/// Unusable sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Index of the sample in the source.
    pub index: u64,
    /// Path or other location of the sample.
    pub location: String,
    /// Name of the reason, such as `corrupt`.
    pub reason: &'static str,
    /// Error message.
    pub problem: String,
}

/// Largest number of labels that are counted separately.
pub const MOST_LABELS: usize = 10_000;

/// Upper bounds of the histogram buckets, in pixels.
const BOUNDS: [u64; 7] = [50_000, 250_000, 500_000, 1_000_000, 4_000_000, 12_000_000, 50_000_000];

/// Largest number of unusable samples that are reported with location and message.
const EXAMPLES: usize = 20;

/// Inspects a source. Calls `progress` after each sample with the number of samples inspected so
/// far.
///
/// Labels are counted over all samples. A sample is unusable if it cannot be read, if its header
/// cannot be parsed, or if it exceeds the limits. With `decode`, it is also unusable if the CPU
/// decoder rejects it. For images of 16 bits and of floats, the first pixel is decoded in any case,
/// because most files do not have such pixels.
pub fn run(source: &dyn Source, settings: &Settings, progress: impl Fn(u64) + Sync) -> Report {
    let samples = source.len();
    let looks = if settings.samples == 0 { samples } else { settings.samples.min(samples) };
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let large = Arc::new(LargeImages::new(settings.limits.large_image_memory));
    let work = || {
        let mut look = Look::new(settings.strict, large.clone());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= looks {
                return look.report;
            }
            let index = (u128::from(number) * u128::from(samples) / u128::from(looks)) as u64;
            look.at(source, index, settings);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let parts = in_parts(settings.threads.max(1), |_| work()).into_iter();
    let parts = parts.map(|part| part.unwrap_or_else(|panic| resume_unwind(panic)));
    let mut report = parts.fold(Report::new(), Report::join);
    report.samples = samples;
    report.classes = source.classes().to_vec();
    report.excluded = source.excluded();
    for index in 0..samples {
        let (label, full) = (source.label(index), report.labels.len() >= MOST_LABELS);
        match report.labels.get_mut(&label) {
            Some(count) => *count += 1,
            None if full => report.other_labels += 1,
            None => drop(report.labels.insert(label, 1)),
        }
    }
    report.examples.sort_by_key(|example| example.index);
    report.examples.truncate(EXAMPLES);
    report
}

/// State of one thread that inspects samples: its buffers, and a report on its samples.
struct Look {
    report: Report,
    page: HostPage,
    decoder: Decoders,
    room: Room,
}

impl Look {
    fn new(strict: bool, large: Arc<LargeImages>) -> Self {
        let (page, decoder) = (HostPage::default(), Decoders::new().strict(strict));
        Self { report: Report::new(), page, decoder, room: Room::of_thread(large) }
    }

    fn at(&mut self, source: &dyn Source, index: u64, settings: &Settings) {
        self.report.seen += 1;
        let Err(DataError { reason, problem, .. }) = self.look(source, index, settings) else {
            return;
        };
        *self.report.errors.entry(reason.name()).or_default() += 1;
        // Each thread inspects its samples in ascending order. So the first `EXAMPLES` unusable
        // samples of all threads together are among the first `EXAMPLES` of each thread.
        if self.report.examples.len() < EXAMPLES {
            let location = source.named_location(index);
            self.report.examples.push(Example { index, location, reason: reason.name(), problem });
        }
    }

    fn look(
        &mut self,
        source: &dyn Source,
        index: u64,
        settings: &Settings,
    ) -> Result<(), DataError> {
        let limits = &settings.limits;
        source.read(index, &mut self.page, limits.max_file_bytes)?;
        let bytes = self.page.bytes();
        self.report.bytes += bytes.len() as u64;
        self.report.largest_bytes = self.report.largest_bytes.max(bytes.len() as u64);
        let header = limits.header(bytes, settings.strict)?;
        let is_restricted = settings.pixels.is_floats() || settings.pixels == PixelFormat::Indices;
        if settings.decode || is_restricted {
            let size = if settings.decode { header.size } else { Size::new(1, 1) };
            let (window, decoder) = (size.window(), &mut self.decoder);
            let need = SampleMemory::of_decode(decoder.memory(&header, bytes, bytes.len() as u64));
            let nothing = SampleMemory::default();
            self.room.admit((header.size, Take::Needed), &need, &nothing, || decoder.release())?;
            let decoded = match settings.pixels {
                pixels if pixels.is_floats() => {
                    decoder.decode_floats(bytes, &header, pixels, window, &mut |_| ())
                }
                PixelFormat::Indices => {
                    decoder.decode_format(settings.pixels, bytes, &header, (window, 1), &mut |_| ())
                }
                _ => decoder.decode(bytes, &header, window, 1, &mut |_| ()),
            };
            if self.room.is_beyond() {
                decoder.release();
                self.room.give_back();
            }
            decoded?;
        }
        let of_header = header.jpeg.as_ref().and_then(|jpeg| jpeg.tolerated);
        let damage = if settings.decode { self.decoder.tolerated() } else { of_header };
        if let Some(damage) = damage {
            *self.report.tolerated.entry(damage.name()).or_default() += 1;
        }
        let of_header = header
            .jpeg
            .as_ref()
            .map(|_| refusal(&header).map_or(JpegBy::Feedwater, JpegBy::Refused));
        let by = if settings.decode { self.decoder.jpeg_by() } else { of_header };
        if let Some(by) = by {
            *self.report.jpeg_by.entry(by.name()).or_default() += 1;
        }
        self.report.count(&header);
        Ok(())
    }
}

impl Report {
    fn new() -> Self {
        let bounds = BOUNDS.iter().map(|&bound| Some(bound as f64 / 1e6)).chain([None]);
        let sizes = bounds.map(|below_megapixels| SizeBucket { below_megapixels, images: 0 });
        Self { sizes: sizes.collect(), ..Self::default() }
    }

    /// Number of usable samples among the inspected ones.
    pub fn usable(&self) -> u64 {
        self.formats.values().sum()
    }

    fn count(&mut self, header: &Header) {
        *self.formats.entry(header.format.name()).or_default() += 1;
        if let Some(jpeg) = &header.jpeg {
            *self.samplings.entry(sampling_name(jpeg.sampling())).or_default() += 1;
            self.progressive += u64::from(jpeg.is_progressive());
        }
        self.turned += u64::from(header.orientation != Orientation::UPRIGHT);
        let size = header.orientation.upright_size(header.size);
        let pixels = size.pixels();
        self.pixels += pixels;
        self.sizes[BOUNDS.partition_point(|&bound| bound <= pixels)].images += 1;
        let sides = Some([size.width, size.height]);
        self.smallest = lesser(self.smallest, sides);
        self.largest = greater(self.largest, sides);
        let takes = |route: &&Route| route.takes(header, 1).is_ok();
        let route = Route::ALL.iter().find(takes).unwrap_or(&Route::Cpu);
        *self.routes.entry(route.name()).or_default() += 1;
        // Report the reason of the last GPU route, because this route supports the most images.
        let last = Route::all_on_device().last();
        if let (false, Some(Err(why))) = (route.on_device(), last.map(|it| it.takes(header, 1))) {
            *self.cpu_because.entry(why).or_default() += 1;
        }
    }

    fn join(mut self, other: Self) -> Self {
        self.seen += other.seen;
        self.bytes += other.bytes;
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
        self.progressive += other.progressive;
        self.turned += other.turned;
        self.pixels += other.pixels;
        self.smallest = lesser(self.smallest, other.smallest);
        self.largest = greater(self.largest, other.largest);
        for (one, two) in self.sizes.iter_mut().zip(&other.sizes) {
            one.images += two.images;
        }
        for (one, two) in [
            (&mut self.formats, other.formats),
            (&mut self.samplings, other.samplings),
            (&mut self.jpeg_by, other.jpeg_by),
            (&mut self.routes, other.routes),
            (&mut self.cpu_because, other.cpu_because),
            (&mut self.errors, other.errors),
            (&mut self.tolerated, other.tolerated),
        ] {
            for (name, count) in two {
                *one.entry(name).or_default() += count;
            }
        }
        self.examples.extend(other.examples);
        self
    }
}

fn pixels(sides: &[u32; 2]) -> (u64, [u32; 2]) {
    (Size::new(sides[0], sides[1]).pixels(), *sides)
}

fn lesser(one: Option<[u32; 2]>, two: Option<[u32; 2]>) -> Option<[u32; 2]> {
    one.into_iter().chain(two).min_by_key(pixels)
}

fn greater(one: Option<[u32; 2]>, two: Option<[u32; 2]>) -> Option<[u32; 2]> {
    one.into_iter().chain(two).max_by_key(pixels)
}

/// Usual name of a chroma sampling, such as `4:2:0` or `gray`.
pub(crate) fn sampling_name(sampling: Sampling) -> &'static str {
    match sampling {
        Sampling::Gray => "gray",
        Sampling::S444 => "4:4:4",
        Sampling::S422 => "4:2:2",
        Sampling::S420 => "4:2:0",
        Sampling::S440 => "4:4:0",
        Sampling::S411 => "4:1:1",
        Sampling::S410 => "4:1:0",
        Sampling::Other => "other",
    }
}
