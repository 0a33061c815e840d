//! Measurements of one thread.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::histogram::Histogram;
use super::processor::{Clocked, ThreadClock, ThreadTime};
use super::read_contention::{InFlight, ReadContention};
use super::spread::Spread;
use super::watch::{Kind, Recorder, SHORTEST_WAIT, Span};
use super::{STAGES, Seen, Stage};

pub use field_meter::{FieldClock, FieldCounts, FieldMeters};
pub use stage_counts::StageCounts;

mod field_meter;
mod stage_counts;
#[cfg(test)]
mod tests;

/// If samples are short, the CPU time is read for one in this many samples.
pub const CLOCKED: u64 = 16;
/// Maximum duration of a short sample. Reading the CPU time twice takes about a microsecond.
const SHORT: Duration = Duration::from_micros(200);

/// If samples are tiny, one in this many samples is timed, on average.
pub const TIMED: u64 = 64;
/// Maximum duration of a tiny sample. Reading the clock per stage takes a tenth of that time.
const TINY: Duration = Duration::from_micros(50);
/// Number of samples at the begin of a thread that are always timed.
const FIRST: u64 = 1024;

/// Value for the time of an event that has not happened.
const NEVER: u64 = u64::MAX;

/// Maximum number of images that a thread stores.
const IMAGES: usize = 64;

/// Measurements of one thread, written only by that thread.
///
/// If samples are tiny and the thread reports the begin and end of samples, about one in [`TIMED`]
/// samples is timed. The timed sample is chosen at random and represents the samples since the
/// previous timed one. Counts (samples, bytes, pixels) and waiting times are always exact.
#[derive(Debug)]
pub struct ThreadMeter {
    pub(super) name: String,
    thread: ThreadClock,
    read_contention: Arc<ReadContention>,
    meters: [Meter; STAGES],
    /// Number of timed samples that were begun.
    begun: AtomicU64,
    /// Duration of the last timed sample, in nanoseconds.
    last: AtomicU64,
    /// Decaying maximum of recent durations, in nanoseconds. Decreases by a sixteenth per sample.
    recent: AtomicU64,
    /// Number of upcoming samples that will not be timed.
    skipped: AtomicU64,
    /// Number of samples that the current one represents, itself included; 0 if it is not timed.
    weight: AtomicU64,
    /// Number of untimed samples since the last timed one.
    owed: AtomicU64,
    /// State of the random generator.
    chance: AtomicU64,
    /// Begin of the measurements. Also returned as the begin of an untimed sample, for which the
    /// clock is not read.
    base: Instant,
    /// Nanoseconds from `base` until the thread began, and until it ended; [`NEVER`] before that.
    began: AtomicU64,
    over: AtomicU64,
    pub(super) pixels: AtomicU64,
    pub(super) window_pixels: AtomicU64,
    images: Mutex<Spread<Seen, IMAGES>>,
    fields: OnceLock<FieldMeters>,
    /// Trace and markers of this thread; none by default.
    watch: Option<Box<Recorder>>,
}

#[derive(Debug, Default)]
struct Meter {
    count: AtomicU64,
    bytes: AtomicU64,
    busy: AtomicU64,
    cpu: AtomicU64,
    clocked: AtomicU64,
    input: AtomicU64,
    output: AtomicU64,
    latency: OnceLock<Histogram>,
}

/// CPU clock of one thread, read at the beginning of a sample and at each of its stages.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(u64);

/// Guard of a measured thread. The thread counts as ended when the guard is dropped.
#[derive(Debug)]
#[must_use = "the thread counts as ended when this is dropped"]
pub struct AtWork<'a> {
    // The fields are dropped in this order, so the thread's last time is recorded before its end.
    _clocked: Clocked<'a>,
    _over: Over<'a>,
}

/// Records the end of the thread when it is dropped.
#[derive(Debug)]
struct Over<'a>(&'a ThreadMeter);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over_at(self.0.base.elapsed());
    }
}

/// Time before a thread began and after it ended, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absence {
    /// Time before the thread began, while the loader was being built.
    pub starting: u64,
    /// Time after the thread ended, because nothing was left to do.
    pub finished: u64,
}

impl Absence {
    /// Absence of each thread (before it began and after it ended) since `earlier`, which was taken
    /// `seconds` ago.
    pub(super) fn all_since(now: &[Self], earlier: &[Self], seconds: f64) -> Vec<Self> {
        let earlier = earlier.iter().copied().chain(std::iter::repeat(Self::default()));
        now.iter().zip(earlier).map(|(now, then)| now.since(then, seconds)).collect()
    }

    /// Absence of one thread.
    fn since(self, earlier: Self, seconds: f64) -> Self {
        let most = (seconds * 1e9) as u64;
        // Before a thread begins, its `starting` is 0. If the thread began after `earlier`, its
        // whole starting time is counted, but no more than the length of the interval.
        Self {
            starting: self.starting.saturating_sub(earlier.starting).min(most),
            finished: self.finished.saturating_sub(earlier.finished).min(most),
        }
    }
}

impl ThreadMeter {
    /// Creates the meter of a thread. `base` is the time when measuring began.
    pub(super) fn new(
        name: String,
        read_contention: Arc<ReadContention>,
        watch: Option<Box<Recorder>>,
        base: Instant,
    ) -> Self {
        Self {
            name,
            thread: ThreadClock::default(),
            read_contention,
            watch,
            meters: Default::default(),
            begun: AtomicU64::new(0),
            last: AtomicU64::new(0),
            recent: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            weight: AtomicU64::new(1),
            owed: AtomicU64::new(0),
            chance: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
            base,
            began: AtomicU64::new(NEVER),
            over: AtomicU64::new(NEVER),
            pixels: AtomicU64::new(0),
            window_pixels: AtomicU64::new(0),
            images: Mutex::default(),
            fields: OnceLock::new(),
        }
    }

    /// Measures how long the calling thread waits for a processor, until the guard is dropped.
    /// Dropping the guard also records the end of the thread.
    pub fn on_this_thread(&self) -> AtWork<'_> {
        self.began_at(self.base.elapsed());
        AtWork { _clocked: self.thread.start_guarded(), _over: Over(self) }
    }

    /// Records that the thread began at `time` after `base`.
    fn began_at(&self, time: Duration) {
        self.began.store(nanoseconds(time), Relaxed);
        self.over.store(NEVER, Relaxed);
    }

    /// Records that the thread ended at `time` after `base`.
    fn over_at(&self, time: Duration) {
        self.over.store(nanoseconds(time), Release);
    }

    /// Absence of the thread up to `now`, which is measured from `base`. A thread that has not
    /// begun has no absence, because it may never begin.
    pub(super) fn absence(&self, now: Duration) -> Absence {
        let (now, began) = (nanoseconds(now), self.began.load(Relaxed));
        let starting = if began == NEVER { 0 } else { began.min(now) };
        Absence { starting, finished: now.saturating_sub(self.over.load(Acquire)) }
    }

    /// How long the thread ran, and how long it waited for a processor; `None` if unknown.
    pub(super) fn thread_time(&self) -> Option<ThreadTime> {
        self.thread.read()
    }

    /// Sets the batch of the following measurements.
    pub fn batch(&self, sequence: u64) {
        if let Some(watch) = &self.watch {
            watch.batch(sequence);
        }
    }

    /// Sets the sample index of the following measurements.
    pub fn index(&self, index: u64) {
        if let Some(watch) = &self.watch {
            watch.index(index);
        }
    }

    /// Begins a sample. Returns the time for [`sample_ends`](Self::sample_ends).
    #[inline]
    pub fn sample_begins(&self) -> Instant {
        let skipped = self.skipped.load(Relaxed);
        if skipped > 0 {
            self.skipped.store(skipped - 1, Relaxed);
            bump(&self.owed, 1);
            self.weight.store(0, Relaxed);
            return self.base;
        }
        self.weight.store(self.owed.swap(0, Relaxed) + 1, Relaxed);
        Instant::now()
    }

    /// Ends the measurement of the sample that began at `began`, before the sample is handed over.
    #[inline]
    pub fn sample_ends(&self, began: Instant) {
        if self.is_timed() {
            self.timed_sample_ends(began.elapsed());
        }
    }

    /// Ends a timed sample that took this long, and decides how many of the following samples are
    /// not timed.
    fn timed_sample_ends(&self, took: Duration) {
        self.sample_took(took);
        let tiny = self.recent.load(Relaxed) < nanoseconds(TINY);
        if tiny && self.watch.is_none() && self.begun.load(Relaxed) > FIRST {
            self.skipped.store(self.draw() % (2 * TIMED - 1), Relaxed);
        }
    }

    /// Whether the current sample is timed.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.weight.load(Relaxed) > 0
    }

    /// The time if the current sample is timed, else a time for which the clock is not read.
    #[inline]
    pub fn now(&self) -> Instant {
        if self.is_timed() { Instant::now() } else { self.base }
    }

    /// Number of samples that the current one represents; 0 if it is not timed.
    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Relaxed)
    }

    /// Sets the fields that this thread reads.
    pub fn reads_fields(&self, fields: FieldMeters) {
        self.fields.get_or_init(|| fields);
    }

    pub(super) fn fields(&self) -> Option<&FieldMeters> {
        self.fields.get()
    }

    pub(super) fn field_counts(&self) -> Vec<FieldCounts> {
        self.fields().map(FieldMeters::counts).unwrap_or_default()
    }

    /// Time since `begin` if the current sample is timed, else zero.
    #[inline]
    pub fn since(&self, begin: Instant) -> Duration {
        if self.is_timed() { begin.elapsed() } else { Duration::ZERO }
    }

    /// Begins a stage. Returns the time.
    #[inline]
    pub fn begin(&self, stage: Stage) -> Instant {
        if let Some(watch) = &self.watch {
            watch.begin(stage);
        }
        self.now()
    }

    /// Ends a stage of one item that began at `begin`. Returns its duration.
    #[inline]
    pub fn add(&self, stage: Stage, begin: Instant, bytes: u64) -> Duration {
        let took = self.since(begin);
        self.add_from(stage, begin, took, bytes);
        took
    }

    /// Records a stage of one item with its begin and duration.
    #[inline]
    pub fn add_from(&self, stage: Stage, begin: Instant, took: Duration, bytes: u64) {
        self.count(stage, took, bytes);
        if let Some(watch) = &self.watch {
            watch.add(stage, begin, took);
        }
    }

    /// Records a stage of one item that ends now.
    pub fn add_time(&self, stage: Stage, took: Duration, bytes: u64) {
        self.count(stage, took, bytes);
        if let Some(watch) = &self.watch {
            watch.ended(stage, Kind::Busy, took);
        }
    }

    #[inline]
    fn count(&self, stage: Stage, took: Duration, bytes: u64) {
        let (meter, took) = (&self.meters[stage as usize], nanoseconds(took));
        bump(&meter.count, 1);
        if bytes > 0 {
            bump(&meter.bytes, bytes);
        }
        let weight = self.weight.load(Relaxed);
        if weight > 0 {
            bump(&meter.busy, took * weight);
            meter.latency.get_or_init(Histogram::default).add_many(took, weight);
        }
    }

    /// Records a wait for input of a stage. The wait ends now.
    pub fn waited_for_input(&self, stage: Stage, waited: Duration) {
        bump(&self.meters[stage as usize].input, nanoseconds(waited));
        self.waited(stage, Kind::Input, waited);
    }

    /// Records a wait for space for a stage's output. The wait ends now.
    #[inline]
    pub fn waited_for_room(&self, stage: Stage, waited: Duration) {
        bump(&self.meters[stage as usize].output, nanoseconds(waited));
        self.waited(stage, Kind::Room, waited);
    }

    /// Starts the CPU clock of a sample. `None` if its CPU time is not measured.
    #[inline]
    pub fn clock(&self) -> Option<CpuClock> {
        if !self.is_timed() {
            return None;
        }
        let number = bump(&self.begun, 1);
        let short = self.last.load(Relaxed) < nanoseconds(SHORT);
        (!short || number.is_multiple_of(CLOCKED)).then(|| CpuClock(thread_time()))
    }

    /// Attributes the CPU time since the clock was last read to these stages, in proportion to
    /// their durations.
    pub fn clocked(&self, stages: &[(Stage, Duration)], clock: &mut CpuClock) {
        let now = thread_time();
        let cpu = now.saturating_sub(std::mem::replace(&mut clock.0, now)) as f64;
        let all: Duration = stages.iter().map(|(_, took)| *took).sum();
        for &(stage, took) in stages {
            let meter = &self.meters[stage as usize];
            let part = took.as_secs_f64() / all.as_secs_f64().max(1e-9);
            bump(&meter.cpu, (cpu * part) as u64);
            bump(&meter.clocked, nanoseconds(took));
        }
    }

    /// Begins a read of the source. It ends when the guard is dropped.
    #[inline]
    pub fn read(&self) -> Option<InFlight<'_>> {
        self.is_timed().then(|| self.read_contention.begin())
    }

    /// Records an image of which `window_pixels` pixels will be decoded.
    #[inline]
    pub fn saw(&self, image: Seen, window_pixels: u64) {
        bump(&self.pixels, u64::from(image.width) * u64::from(image.height));
        bump(&self.window_pixels, window_pixels);
        if self.is_timed() {
            self.images().add(|| image);
        }
    }

    /// Records the duration of a whole sample.
    pub fn sample_took(&self, took: Duration) {
        let (took, recent) = (nanoseconds(took), self.recent.load(Relaxed));
        self.last.store(took, Relaxed);
        self.recent.store(took.max(recent - recent / 16), Relaxed);
        if let Some(watch) = &self.watch {
            watch.close();
        }
    }

    /// Random number that does not depend on the samples: Marsaglia's xorshift (Xorshift RNGs,
    /// 2003).
    fn draw(&self) -> u64 {
        let mut chance = self.chance.load(Relaxed);
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        self.chance.store(chance, Relaxed);
        chance
    }

    /// The stored spans, ordered by their end, and the number of older spans that were dropped.
    pub(super) fn spans(&self) -> (Vec<Span>, u64) {
        self.watch.as_ref().map(|it| it.spans()).unwrap_or_default()
    }

    fn waited(&self, stage: Stage, kind: Kind, waited: Duration) {
        if let Some(watch) = &self.watch
            && waited >= SHORTEST_WAIT
        {
            watch.ended(stage, kind, waited);
        }
    }

    pub(super) fn images(&self) -> MutexGuard<'_, Spread<Seen, IMAGES>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> [StageCounts; STAGES] {
        std::array::from_fn(|stage| {
            let it = &self.meters[stage];
            let of = |it: &AtomicU64| it.load(Relaxed);
            StageCounts {
                count: of(&it.count),
                bytes: of(&it.bytes),
                busy: of(&it.busy),
                cpu: of(&it.cpu),
                clocked: of(&it.clocked),
                input: of(&it.input),
                output: of(&it.output),
                latency: it.latency.get().map(Histogram::counts).unwrap_or_default(),
            }
        })
    }

    /// Nanoseconds that the thread was busy in a stage.
    pub(super) fn busy(&self, stage: usize) -> u64 {
        self.meters[stage].busy.load(Relaxed)
    }

    /// Nanoseconds that the thread waited for input, and for space for output.
    pub(super) fn waits(&self) -> (u64, u64) {
        let sum = |of: fn(&Meter) -> &AtomicU64| {
            self.meters.iter().map(|meter| of(meter).load(Relaxed)).sum()
        };
        (sum(|it| &it.input), sum(|it| &it.output))
    }
}

/// CPU nanoseconds of this thread.
pub(super) fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Adds to a value that only this thread writes, so no atomic read-modify-write is needed. Returns
/// the value before the addition.
#[inline]
fn bump(to: &AtomicU64, more: u64) -> u64 {
    let before = to.load(Relaxed);
    to.store(before.wrapping_add(more), Relaxed);
    before
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
