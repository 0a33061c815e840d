//! Tests what the documentation promises about caches, on the CPU and on the simulated device.

mod device;
mod errors;
mod fields;
mod presized;
mod row_index;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{self, evaluation, jpeg, jpegs, png, progressive, training};
use crate::simulated::images::{assert_clean, libjpeg};
use crate::simulated::{Schedule, exclusive, runtime};
use feedwater::error::{DataError, Error, Reason};
use feedwater::footprint::Memory as MemoryKind;
use feedwater::internals::config::Pipeline;
use feedwater::internals::decode::Decoders;
use feedwater::internals::geometry::{Orientation, Roi, Size};
use feedwater::internals::header::{Format, Header};
use feedwater::loader::{CacheEpoch, CacheStats, DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{self, Chain, Placement};
use feedwater::plan::{LastBatch, OnError, Route, Settings};
use feedwater::source::custom::{Expected, Heads, Page, RemoteReads};
use feedwater::source::{Memory, Repeat, Source};

/// A source of images in memory that counts its reads. Some of the images cannot be read.
#[derive(Clone)]
struct Counting {
    inner: Arc<Memory>,
    reads: Arc<Vec<AtomicU64>>,
    unreadable: Vec<u64>,
}

impl Counting {
    fn new(samples: Vec<(Vec<u8>, i64)>) -> Self {
        let reads = (0..samples.len()).map(|_| AtomicU64::new(0)).collect();
        let inner = Arc::new(Memory::new(samples).unwrap());
        Self { inner, reads: Arc::new(reads), unreadable: Vec::new() }
    }

    fn reads(&self) -> Vec<u64> {
        self.reads.iter().map(|it| it.load(Ordering::Relaxed)).collect()
    }

    fn all(&self) -> u64 {
        self.reads().iter().sum()
    }
}

impl Source for Counting {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.inner.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.inner.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.reads[index as usize].fetch_add(1, Ordering::Relaxed);
        if self.unreadable.contains(&index) {
            return Err(DataError::new(Reason::Unreadable, "unreadable on purpose"));
        }
        self.inner.read(index, page, limit)
    }
    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.inner)
    }
    // Without `heads`, headers are read with `read`, so that these reads are counted.
    fn heads(&self) -> Option<&dyn Heads> {
        None
    }
}

/// A [`Counting`] source that the loader treats as remote. A prefetch of a sample counts as a read.
struct Remote(Counting);

impl Source for Remote {
    common::wraps!(self.0);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.0.read(index, page, limit)
    }
    fn remote(&self) -> Option<&dyn RemoteReads> {
        Some(self)
    }
}

impl RemoteReads for Remote {
    fn expect(&self, index: u64, _: u64) -> Option<Expected> {
        self.0.reads[index as usize].fetch_add(1, Ordering::Relaxed);
        let inner = self.0.inner.clone();
        Some(Box::new(move |page, limit| inner.read(index, page, limit)))
    }
}

/// Samples of the second epoch are prefetched before all samples of the first epoch are cached. So
/// a few samples are requested twice.
#[test]
fn cached_samples_are_not_prefetched() {
    for decoded in [false, true] {
        let source = Counting::new(jpegs(24));
        let limit = Some(64 << 20);
        let mut settings = Settings::default();
        settings.storage.connections = 1;
        let builder = Loader::builder(Remote(source.clone()), training()).settings(settings);
        let builder = builder.device(DeviceChoice::Cpu).batch_size(4).num_workers(2).shuffle(true);
        let builder = builder.last_batch(LastBatch::Partial).epochs(Some(5));
        let mut loader = match decoded {
            true => builder.configure(|it| it.cache.decoded = limit).build().unwrap(),
            false => builder.configure(|it| it.cache.encoded = limit).build().unwrap(),
        };
        let batches: usize = (0..5).map(|_| epoch(&mut loader).len()).sum();
        assert_eq!(batches, 5 * 6);
        // The plan has inspected 16 samples, and prefetching reads each of the 24 samples at least
        // once. Together these are at least 40 reads.
        assert!((40..=52).contains(&source.all()), "{:?}", source.reads());
    }
}

/// With one worker, every sample is cached before the next epoch needs it. So the number of hits is
/// known exactly.
fn builder(source: impl Source + 'static, chain: Chain) -> LoaderBuilder {
    Loader::builder(source, chain)
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(1)
        .shuffle(true)
        .seed(7)
        .last_batch(LastBatch::Partial)
        .on_error(OnError::Substitute)
        .epochs(Some(3))
}

/// Index, width and height of a sample, and whether it was replaced by zeros.
type Sample = (u64, u32, u32, bool);

/// Returns the samples and bytes of every batch of the next epoch.
fn epoch(loader: &mut Loader) -> Vec<(Vec<Sample>, Vec<u8>)> {
    let batches = loader.into_iter().map(|batch| {
        let batch = batch.unwrap();
        let samples = batch.samples().iter();
        let substituted = feedwater::loader::Outcome::Substituted;
        let samples =
            samples.map(|it| (it.index, it.size.width, it.size.height, it.outcome == substituted));
        (samples.collect(), batch.to_host().unwrap())
    });
    batches.collect()
}

fn cache<'a>(stats: &'a [CacheStats], name: &str) -> &'a CacheStats {
    let found = stats.iter().find(|it| it.cache == name);
    found.unwrap_or_else(|| panic!("no {name} cache in {stats:?}"))
}

const PLENTY: Option<u64> = Some(64 << 20);

/// Returns images of one size, so that all of them have equally many bytes when decoded.
fn equal(count: u64) -> Vec<(Vec<u8>, i64)> {
    (0..count).map(|seed| (jpeg(seed, 48, 36), seed as i64)).collect()
}

/// Returns images of every format and orientation.
fn mixed() -> Vec<(Vec<u8>, i64)> {
    let mut all = jpegs(20);
    for (value, (bytes, _)) in (1..=8).zip(&mut all) {
        *bytes = turned(bytes, value);
    }
    for (number, (bytes, _)) in (8..14).zip(&mut all[8..]) {
        *bytes = match number % 3 {
            0 => png(number, 50, 41),
            1 => progressive(number, 61, 47),
            _ => turned(&progressive(number, 35, 52), 6),
        };
    }
    all
}

/// Adds an EXIF orientation to a JPEG.
fn turned(jpeg: &[u8], value: u8) -> Vec<u8> {
    let mut segment = vec![0xff, 0xe1, 0, 34];
    segment.extend(b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0");
    segment.extend([value, 0, 0, 0, 0, 0, 0]);
    [&jpeg[..2], &segment, &jpeg[2..]].concat()
}

#[test]
fn the_second_epoch_of_a_set_that_fits_reads_nothing_from_the_source() {
    for decoded in [false, true] {
        let source = Counting::new(mixed());
        let builder = builder(source.clone(), training());
        let builder = match decoded {
            true => builder.configure(|it| it.cache.decoded = PLENTY),
            false => builder.configure(|it| it.cache.encoded = PLENTY),
        };
        let mut loader = builder.build().unwrap();
        // Building the loader has already read all images, because the plan inspects them.
        let first = epoch(&mut loader);
        let reads = source.reads();
        epoch(&mut loader);
        epoch(&mut loader);
        assert_eq!(source.reads(), reads, "decoded {decoded}");
        assert!(reads.iter().all(|&reads| reads >= 1) && source.all() <= 20 + 20);
        let stats = loader.stats().caches;
        let cache = cache(&stats, if decoded { "decoded" } else { "encoded" });
        let epochs = [(0, 0, 20), (1, 20, 0), (2, 20, 0)];
        assert_eq!(counts(&cache.epochs), epochs);
        assert_eq!((cache.samples, cache.hits, cache.misses), (20, 40, 20));
        assert_eq!(first.iter().map(|it| it.0.len()).sum::<usize>(), 20);
    }
}

/// Returns number, hits and misses of each epoch.
fn counts(epochs: &[CacheEpoch]) -> Vec<(u32, u64, u64)> {
    epochs.iter().map(|it| (it.epoch, it.hits, it.misses)).collect()
}

/// Nothing is evicted. So in every epoch after the first, the hits equal the number of cached
/// samples.
#[test]
fn a_set_that_does_not_fit_gives_the_same_hits_in_every_epoch() {
    let image = 3 * 48 * 36;
    for (encoded, decoded) in [(Some(40_000), None), (None, Some(13 * image + 8000))] {
        let source = Counting::new(equal(40));
        let builder = builder(source.clone(), training());
        let mut loader = builder
            .configure(|it| {
                it.cache.encoded = encoded;
                it.cache.decoded = decoded;
            })
            .build()
            .unwrap();
        let before = source.all();
        epoch(&mut loader);
        let kept = loader.stats().caches[0].samples;
        assert!((10..40).contains(&kept), "{kept} samples kept");
        epoch(&mut loader);
        epoch(&mut loader);
        let cache = &loader.stats().caches[0];
        let found: Vec<_> = cache.epochs.iter().map(|it| (it.hits, it.misses)).collect();
        assert_eq!(found, [(0, 40), (kept, 40 - kept), (kept, 40 - kept)]);
        assert_eq!(cache.samples, kept);
        assert!(cache.taken_bytes <= cache.limit_bytes && cache.kept_bytes <= cache.taken_bytes);
        assert!(source.all() - before <= 40 + 2 * (40 - kept) + 16);
        let row = loader.footprint().row(&format!("{} cache", cache.cache)).unwrap();
        assert_eq!((row.memory, row.total_bytes()), (MemoryKind::Host, cache.limit_bytes));
    }
}

/// Returns chains whose first operators need different parts of the image, so that it is decoded in
/// different ways.
fn chains() -> Vec<Chain> {
    let crop = op::Crop { x: 3, y: 5, width: 20, height: 18 };
    vec![
        training(),
        evaluation(),
        Chain::new().then(crop).then(op::Normalize::IMAGENET),
        Chain::new().then(op::Flip { horizontal: 0.5, vertical: 0.5 }).then(op::Resize::to(19, 23)),
        Chain::new().then(op::CenterCrop::to(21, 17)),
        Chain::new().then(op::Normalize::IMAGENET).then(crop),
    ]
}

#[test]
fn batches_have_the_same_bytes_with_any_cache_contents() {
    for (number, chain) in chains().into_iter().enumerate() {
        for orientation in [true, false] {
            let make = || {
                let source = Counting::new(mixed());
                builder(source, chain.clone())
                    .configure(|it| it.decode.orientation = orientation)
                    .num_workers(3)
            };
            let mut plain = make().build().unwrap();
            let expected: Vec<_> = (0..3).map(|_| epoch(&mut plain)).collect();
            for (encoded, decoded) in [
                (PLENTY, None),
                (None, PLENTY),
                (PLENTY, PLENTY),
                (Some(24_000), None),
                (None, Some(60_000)),
                (Some(24_000), Some(60_000)),
            ] {
                let mut loader = make()
                    .configure(|it| {
                        it.cache.encoded = encoded;
                        it.cache.decoded = decoded;
                    })
                    .build()
                    .unwrap();
                for (epoch_number, expected) in expected.iter().enumerate() {
                    let found = epoch(&mut loader);
                    assert!(
                        found == *expected,
                        "chain {number}, orientation {orientation}, {encoded:?} {decoded:?}, epoch {epoch_number}"
                    );
                }
                let hits: u64 = loader.stats().caches.iter().map(|it| it.hits).sum();
                assert!(hits > 0);
            }
        }
    }
}

#[test]
fn a_decoded_image_is_not_cached_encoded_too() {
    let make = builder(Counting::new(equal(20)), training());
    let mut loader = make
        .configure(|it| {
            it.cache.encoded = PLENTY;
            it.cache.decoded = Some(60_000);
        })
        .build()
        .unwrap();
    epoch(&mut loader);
    epoch(&mut loader);
    let caches = loader.stats().caches;
    let [encoded, decoded] = ["encoded", "decoded"].map(|name| cache(&caches, name));
    assert!(decoded.samples >= 5);
    assert_eq!(encoded.samples + decoded.samples, 20);
    assert_eq!(decoded.epochs[1].hits, decoded.samples);
    // The encoded cache is searched only for samples that the decoded cache lacks.
    assert_eq!((encoded.epochs[1].hits, encoded.epochs[1].misses), (encoded.samples, 0));
}

#[test]
fn samples_with_the_same_original_are_cached_once() {
    let source = Counting::new(equal(6));
    let repeated = Repeat::new(Arc::new(source.clone()), 4).unwrap();
    let mut loader = builder(repeated, training())
        .num_workers(1)
        .configure(|it| it.cache.encoded = PLENTY)
        .build()
        .unwrap();
    epoch(&mut loader);
    let cache = loader.stats().caches[0].clone();
    assert_eq!((cache.samples, cache.epochs[0].hits, cache.epochs[0].misses), (6, 18, 6));
}

/// With shuffling, a shard has different samples in each epoch. Its hits are the samples that it
/// had in an earlier epoch.
#[test]
fn a_shards_hits_are_the_samples_it_gets_again() {
    let make = builder(Counting::new(equal(40)), training())
        .shard(1, 3)
        .configure(|it| it.cache.encoded = PLENTY);
    let mut loader = make.build().unwrap();
    let mut seen = BTreeSet::new();
    let mut expected = Vec::new();
    for number in 0..3 {
        let indices: Vec<u64> =
            epoch(&mut loader).iter().flat_map(|it| it.0.iter().map(|it| it.0)).collect();
        let hits = indices.iter().filter(|it| seen.contains(*it)).count() as u64;
        expected.push((number, hits, indices.len() as u64 - hits));
        seen.extend(indices);
    }
    assert_eq!(counts(&loader.stats().caches[0].epochs), expected);
    assert!(expected[1].1 > 0 && expected[1].2 > 0);
}

#[test]
fn a_whole_image_of_each_worker_is_in_the_footprint() {
    let rows = |decoded, presize: Option<u32>| {
        let builder = builder(Counting::new(equal(10)), training()).num_workers(3);
        let plan = builder
            .configure(|it| {
                it.cache.decoded = decoded;
                it.cache.presize = presize;
            })
            .plan()
            .unwrap();
        plan.footprint.row("whole images").map(|row| (row.each_bytes, row.count))
    };
    assert_eq!(rows(None, None), None);
    assert_eq!(rows(PLENTY, None), Some((3 * 48 * 36, 3)));
    assert_eq!(rows(PLENTY, Some(18)), Some((3 * (48 * 36 + 24 * 18), 3)));
}

#[test]
fn settings_are_parsed_serialized_and_checked() {
    let read = |cache: &str| {
        let text = format!(
            "[source]\ndirectory = \"a\"\n[cache]\n{cache}\n[[chain]]\nop = \"resize\"\nwidth = 8\nheight = 8\n"
        );
        Pipeline::from_toml(&text, "")
    };
    let pipeline = read("encoded = \"4 GiB\"\ndecoded = 1000\npresize = 400").unwrap();
    let cache = &pipeline.settings.cache;
    assert_eq!(
        (cache.encoded, cache.decoded, cache.presize),
        (Some(4 << 30), Some(1000), Some(400))
    );
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), "").unwrap();
    assert_eq!(again.settings, pipeline.settings);
    assert_eq!(read("").unwrap().settings.cache, Default::default());
    for (cache, key, values) in [
        ("encoded = 0", "cache.encoded", &["1", "0"][..]),
        ("encoded = \"-4 GiB\"", "cache.encoded", &["\"-4 GiB\""]),
        ("decodet = 1", "cache.decodet", &["decoded"]),
        ("presize = 400", "cache.presize", &["cache.decoded"]),
        ("decoded = 9\npresize = 0", "cache.presize", &["1", "32767", "0"]),
        ("decoded = 9\n[decode]\nprescale = true", "cache.decoded", &["decode.prescale"]),
    ] {
        common::refused(read(cache), key, values);
    }
}
