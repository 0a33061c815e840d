//! Cases of the benchmark `bottlenecks`. Each is a loader with a consumer and one bottleneck that
//! is planted on purpose.

use std::thread;
use std::time::{Duration, Instant};

use feedwater::explain::Cause;

use super::world::{Disk, Setting, World};

/// A synthetic bottleneck.
pub struct Case {
    pub name: &'static str,
    pub planted: Cause,
    pub world: World,
    pub setting: Setting,
    /// Simulates the consumer's work on one batch. The arguments are the number of the batch in the
    /// run and its number of samples.
    pub step: fn(u64, usize),
    /// Additional work of the consumer per batch, which is recorded as the span `metrics`.
    pub callback: Option<fn()>,
    /// Setting (knob) that the second run changes. If `None`, the second run changes the first
    /// setting that the report proposes.
    pub knob: Option<&'static str>,
}

const SMALL: (u32, u32) = (64, 48);
const PHOTO: (u32, u32) = (500, 375);
const HUGE: (u32, u32) = (2400, 1800);

fn case(name: &'static str, planted: Cause, setting: (usize, usize, usize)) -> Case {
    let (batch, workers, prefetch) = setting;
    let world = World { images: 512, size: SMALL, side: 32, disk: Disk::Memory };
    let setting = Setting::new(batch, workers, prefetch);
    Case { name, planted, world, setting, step: |_, _| (), callback: None, knob: None }
}

fn sleep(milliseconds: f64) {
    thread::sleep(Duration::from_secs_f64(1e-3 * milliseconds));
}

fn spin(milliseconds: f64) {
    let end = Instant::now() + Duration::from_secs_f64(1e-3 * milliseconds);
    while Instant::now() < end {}
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Hashes an index with SplitMix64 (Steele et al., 2014). A multiplication alone would spread the
/// long steps of [`is_long`] too evenly: two of them would never be adjacent.
fn mixed(index: u64) -> u64 {
    let mut it = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}

/// Whether the consumer's step for a batch is long. This is so for eight of every 64 batches, at
/// pseudo-random positions.
fn is_long(batch: u64) -> bool {
    let begin = batch - batch % 64;
    (begin..begin + 64).filter(|it| mixed(*it) < mixed(batch)).count() < 8
}

impl Case {
    fn disk(mut self, disk: Disk) -> Self {
        self.world.disk = disk;
        self
    }

    fn images(mut self, images: u64, size: (u32, u32), side: u32) -> Self {
        (self.world.images, self.world.size, self.world.side) = (images, size, side);
        self
    }

    fn step(mut self, step: fn(u64, usize)) -> Self {
        self.step = step;
        self
    }

    fn callback(mut self, callback: fn()) -> Self {
        self.callback = Some(callback);
        self
    }

    fn knob(mut self, knob: &'static str) -> Self {
        self.knob = Some(knob);
        self
    }
}

/// Returns all cases of the benchmark.
pub fn cases() -> Vec<Case> {
    vec![
        case("slow disk", Cause::Reading, (8, 2, 2))
            .disk(Disk::Latency(|_| ms(8)))
            .step(|_, _| sleep(10.0))
            .knob("loader.num_workers"),
        case("network", Cause::Reading, (16, 4, 2))
            .disk(Disk::Latency(|_| ms(30)))
            .step(|_, _| sleep(20.0))
            .knob("loader.num_workers"),
        case("uneven network", Cause::Reading, (16, 4, 4))
            .disk(Disk::Latency(|index| ms(10 + mixed(index) % 20)))
            .step(|_, _| sleep(10.0))
            .knob("loader.num_workers"),
        case("read and decode", Cause::Reading, (8, 1, 2))
            .disk(Disk::Latency(|_| ms(6)))
            .images(256, PHOTO, 224)
            .step(|_, _| sleep(32.0))
            .knob("loader.num_workers"),
        case("one spindle", Cause::Storage, (8, 4, 2))
            .disk(Disk::Channels(1, ms(4)))
            .step(|_, _| sleep(5.0))
            .knob("cache.encoded"),
        case("two channels", Cause::Storage, (8, 6, 2))
            .disk(Disk::Channels(2, ms(6)))
            .step(|_, _| sleep(4.0))
            .knob("cache.encoded"),
        case("cold cache", Cause::Storage, (16, 4, 3))
            .disk(Disk::Channels(1, ms(6)))
            .images(256, PHOTO, 224)
            .step(|_, _| sleep(40.0))
            .knob("cache.encoded"),
        case("slow decode", Cause::Decoding, (16, 1, 2))
            .images(256, PHOTO, 224)
            .step(|_, _| sleep(16.0))
            .knob("cache.decoded"),
        case("decode, step sleeps", Cause::Decoding, (16, 1, 2))
            .images(256, PHOTO, 224)
            .step(|_, _| sleep(25.0))
            .knob("loader.num_workers"),
        case("all processors", Cause::Decoding, (16, 2, 2))
            .images(128, PHOTO, 320)
            .step(|_, _| sleep(12.0))
            .knob("cache.decoded"),
        case("huge images", Cause::HugeImages, (4, 1, 2))
            .images(32, HUGE, 224)
            .step(|_, _| sleep(60.0))
            .knob("cache.decoded"),
        case("large outputs", Cause::Transforming, (4, 1, 2))
            .images(256, (160, 120), 640)
            .step(|_, _| sleep(4.0))
            .knob("loader.num_workers"),
        case("slow consumer", Cause::Consumer, (8, 2, 2)).step(|_, _| sleep(25.0)),
        case("slow consumer, disk", Cause::Consumer, (8, 8, 3))
            .disk(Disk::Latency(|_| ms(4)))
            .step(|_, _| sleep(30.0)),
        case("consumer computes", Cause::Consumer, (16, 1, 3))
            .images(256, SMALL, 32)
            .step(|_, _| spin(20.0)),
        case("uneven reads", Cause::Variance, (4, 4, 1))
            .disk(Disk::Latency(
                |index| if mixed(index).is_multiple_of(16) { ms(60) } else { ms(2) },
            ))
            .step(|_, _| sleep(6.0))
            .knob("loader.prefetch"),
        case("uneven steps", Cause::Variance, (4, 2, 1))
            .disk(Disk::Latency(|_| ms(5)))
            .step(|batch, _| sleep(if is_long(batch) { 60.0 } else { 3.0 }))
            .knob("loader.prefetch"),
        case("straggler", Cause::Straggler, (4, 4, 2))
            .disk(Disk::Straggler(ms(10), 8))
            .step(|_, _| sleep(4.0))
            .knob("loader.prefetch"),
        case("small ring", Cause::Ring, (2, 8, 1))
            .disk(Disk::Latency(|_| ms(12)))
            .step(|_, _| sleep(1.0))
            .knob("loader.prefetch"),
        case("small ring, long step", Cause::Ring, (4, 12, 1))
            .disk(Disk::Latency(|_| ms(20)))
            .step(|_, _| sleep(8.0))
            .knob("loader.prefetch"),
        case("tiny batches", Cause::TinyBatches, (4, 2, 2))
            .images(2048, SMALL, 32)
            .step(|_, samples| sleep(2.0 * samples as f64))
            .callback(|| sleep(16.0))
            .knob("loader.batch_size"),
    ]
}
