//! Always-on measurement of a loader's threads and rings.
//!
//! * Each thread has its own [`ThreadMeter`]. For each [`Stage`], the meter holds the number of
//!   items, their bytes, the busy time, and the times that the thread waited for input and for
//!   space for its output. Counting never makes a thread wait for another thread.
//! * If samples take less than 50 microseconds, on average only one in [`TIMED`] samples is timed,
//!   and it represents the others. Every sample is counted.
//! * CPU time is read from the system for one in [`CLOCKED`] samples if samples are short, else for
//!   each sample. The part of a stage's elapsed time that is not CPU time was spent waiting for a
//!   disk or a processor.
//! * When a [`Snapshot`] is taken, the system reports how long threads waited for a processor, and
//!   who used the processors (`processor`).
//! * Device time is measured with events in streams, and counted by a [`DeviceMeter`] per stage and
//!   route.
//! * Per-batch measurements (the ring, the consumer, the timeline) are behind a lock.
//! * Memory is constant: histograms have fixed buckets, and the timeline halves its resolution when
//!   it is full.
//! * A [`Snapshot`] holds all counts at one moment. An interval is the difference of two snapshots.
//!
//! `benches/measure.rs` measures the overhead.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use consumer::{Consumer, Steps};
pub use feedwater_insight::profile::{
    ConsumerProfile, Data, DeviceProfile, DeviceReading, DeviceTime, FieldProfile, Latency,
    MemoryProfile, Moment, ProcessorProfile, Profile, RingProfile, RouteProfile, STAGES, Seen,
    Setup, SpanProfile, Stage, StageProfile, ThreadProfile, Waits,
};

pub use device::{DeviceCounts, DeviceMeter, RouteCounts};
pub use histogram::{Counts, Histogram};
pub use latest::{DECISIONS, EPOCHS, push_latest};
pub use processor::{Clocked, Machine, ThreadClock, ThreadTime};
pub use read_contention::{InFlight, ReadContention, Reads};
pub use ring_meter::{RingCounts, RingMeter};
pub use spread::Spread;
pub use thread_meter::{
    Absence, AtWork, CLOCKED, CpuClock, FieldClock, FieldCounts, FieldMeters, StageCounts, TIMED,
    ThreadMeter,
};
pub use trace::{OTHER_TRACKS, trace_bytes};
pub use utilisation::DeviceReadings;
pub use watch::{Marker, SHORTEST_WAIT, SPAN_BYTES, Watching};

use processor::MachineMeter;
use trace::BatchTrace;

mod blame;
mod consumer;
mod device;
mod histogram;
mod latest;
mod processor;
mod profile;
pub mod prometheus;
mod read_contention;
mod ring_meter;
mod spread;
#[cfg(test)]
mod tests;
mod thread_meter;
mod trace;
mod utilisation;
mod watch;

/// Maximum number of moments in the timeline.
const MOMENTS: usize = 512;

/// All meters of one loader.
#[derive(Debug)]
pub struct Meters {
    begin: Instant,
    watching: Watching,
    by_thread: Mutex<Vec<Arc<ThreadMeter>>>,
    read_contention: Arc<ReadContention>,
    /// Meters of device work. Each belongs to a stage and to a decode route or another kind of
    /// work.
    device: Mutex<Vec<(Stage, &'static str, Arc<DeviceMeter>)>>,
    /// Waiting times of the consumer's stream.
    waits: Arc<DeviceMeter>,
    /// Use of the machine's processors.
    machine: Mutex<MachineMeter>,
    /// Utilization of the device.
    readings: Mutex<DeviceReadings>,
    batches: Mutex<Batches>,
}

/// Per-batch measurements.
#[derive(Debug)]
struct Batches {
    ring: RingMeter,
    consumer: Consumer,
    timeline: Spread<Moment, MOMENTS>,
    trace: Option<BatchTrace>,
}

/// All counts of a loader at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds since the loader was built.
    pub seconds: f64,
    /// Per thread: its name, and the counts of each stage.
    pub by_thread: Vec<(String, [StageCounts; STAGES])>,
    /// For each thread in the order of `by_thread`: how long it ran, and how long it waited for a
    /// processor; `None` if unknown.
    pub threads: Vec<Option<ThreadTime>>,
    /// For each thread in the order of `by_thread`: the time before it began and after it ended.
    pub absences: Vec<Absence>,
    /// Use of the machine's processors.
    pub machine: Machine,
    /// Counts of device work, each with its stage and its decode route or other kind of work.
    pub device: Vec<(Stage, &'static str, DeviceCounts)>,
    /// Statistics of each decode route, if images are decoded for a device.
    pub routes: Vec<RouteCounts>,
    /// Readings of the device's utilization, if the device is watched.
    pub readings: DeviceReadings,
    /// Counts of the ring of batches.
    pub ring: RingCounts,
    /// Number of ready batches.
    pub ready: usize,
    /// Number of batches that are being filled.
    pub filling: usize,
    /// Counts of the consumer.
    pub steps: Steps,
    /// Concurrent reads.
    pub reads: Reads,
    /// State of the loader at moments that are evenly spread over time.
    pub timeline: Vec<Moment>,
    /// Counts of the fields that columns read.
    pub fields: Vec<FieldCounts>,
    /// Evenly spread selection of the images since the loader was built.
    pub images: Vec<Seen>,
    /// Number of pixels of all images.
    pub pixels: u64,
    /// Number of pixels of the decoded windows.
    pub window_pixels: u64,
}

impl Meters {
    /// Creates meters for a ring of `slots` slots.
    pub fn new(slots: usize) -> Self {
        Self::watched(slots, Watching::default())
    }

    /// Creates meters that also record traces or call a profiler's markers, as configured by
    /// `watching`.
    pub fn watched(slots: usize, watching: Watching) -> Self {
        let begin = Instant::now();
        let batches = Batches {
            ring: RingMeter::new(slots),
            consumer: Consumer::default(),
            timeline: Spread::default(),
            trace: (watching.spans > 0).then(|| BatchTrace::new(begin, watching.spans)),
        };
        Self {
            begin,
            watching,
            by_thread: Mutex::default(),
            read_contention: Arc::default(),
            device: Mutex::default(),
            waits: Arc::default(),
            machine: Mutex::new(MachineMeter::new(begin)),
            readings: Mutex::default(),
            batches: Mutex::new(batches),
        }
    }

    /// Number of spans that each thread stores; 0 without a trace.
    pub fn spans(&self) -> usize {
        self.watching.spans
    }

    /// Creates the meter of a new thread.
    pub fn thread(&self, name: impl Into<String>) -> Arc<ThreadMeter> {
        let watch = self.watching.watch(self.begin);
        let meter = Arc::new(ThreadMeter::new(
            name.into(),
            self.read_contention.clone(),
            watch,
            self.begin,
        ));
        self.by_thread().push(meter.clone());
        meter
    }

    /// Meter of device work in a stage, for a decode route or another kind of work, such as `copy`.
    /// All threads share the meter.
    pub fn device(&self, stage: Stage, route: &'static str) -> Arc<DeviceMeter> {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., meter)) = device.iter().find(|it| (it.0, it.1) == (stage, route)) {
            return meter.clone();
        }
        let meter = Arc::<DeviceMeter>::default();
        device.push((stage, route, meter.clone()));
        meter
    }

    /// Records a reading of the device's utilization, or its failure.
    pub fn device_reading<E>(&self, reading: &Result<DeviceReading, E>) {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        match reading {
            Ok(reading) => readings.add(reading),
            Err(_) => readings.add_failure(),
        }
    }

    /// Meter of the waits of the consumer's stream.
    pub fn device_waits(&self) -> Arc<DeviceMeter> {
        self.waits.clone()
    }

    /// Seconds since the loader was built.
    pub fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Records that a worker gets the first cell of a batch.
    pub fn batch_begun(&self, sequence: u64) {
        let (mut batches, now) = self.batches_now();
        batches.ring.begun(sequence, now);
        batches.level(now);
    }

    /// Records that a batch is ready for the consumer, or was discarded.
    pub fn batch_done(&self, sequence: u64, published: bool) {
        let (mut batches, now) = self.batches_now();
        batches.ring.done(sequence, published, now);
        batches.level(now);
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "feedwater::batch", batch = sequence, published, "made");
    }

    /// Records that the consumer asks for a batch.
    pub fn consumer_asks(&self, epoch: u32, now: Instant) {
        let mut batches = self.batches();
        if let Some(since) = batches.consumer.asks(epoch, now)
            && let Some(trace) = &mut batches.trace
        {
            trace.stepped(since, now);
        }
    }

    /// Records that the consumer asks for a batch after the last one of its epoch.
    pub fn consumer_ends(&self, epoch: u32, now: Instant) {
        let mut batches = self.batches();
        if let Some(since) = batches.consumer.ends(epoch, now)
            && let Some(trace) = &mut batches.trace
        {
            trace.stepped(since, now);
        }
    }

    /// Records that the consumer received a batch of `samples` samples. `asked` is the time at
    /// which the consumer asked for the batch, and `ready` is whether the batch was ready at that
    /// time.
    pub fn consumer_has(&self, asked: Instant, ready: bool, samples: u64) {
        let busy = self.busy();
        let waited = if self.spans() > 0 { self.waited_for_processor() } else { None };
        let (mut batches, now) = self.batches_now();
        let Batches { ring, consumer, timeline, trace } = &mut *batches;
        let sequence = ring.taken(!ready, now);
        consumer.has(asked, now, ready, samples);
        if let Some(trace) = trace {
            trace.waited(asked, now, sequence);
            trace.processor(now, waited);
        }
        #[cfg(feature = "tracing")]
        tracing::debug!(
            target: "feedwater::batch",
            batch = sequence,
            samples,
            ready,
            waited_nanoseconds = (now - asked).as_nanos() as u64,
            "handed out"
        );
        timeline.add(|| Moment {
            seconds: (now - self.begin).as_micros() as f64 / 1e6,
            batches: consumer.steps().batches,
            ready: ring.ready(),
            waited: (consumer.steps().waited / 1000) as f64 / 1e6,
            busy,
        });
        batches.level(now);
    }

    /// Records that a ready batch is discarded, because its epoch was left early.
    pub fn batch_dropped(&self) {
        let (mut batches, now) = self.batches_now();
        batches.ring.taken(false, now);
        batches.level(now);
    }

    /// Records a named part of the consumer's step that is not the model's own work, such as
    /// logging, metrics or a checkpoint.
    pub fn consumer_span(&self, name: &str, took: Duration) {
        let (mut batches, now) = self.batches_now();
        let name = batches.consumer.span(name, took);
        if let Some(trace) = &mut batches.trace {
            trace.part(name, took, now);
        }
    }

    /// Records that the consumer's step begins or ends. Time outside of steps counts neither as a
    /// step nor as waiting.
    pub fn consumer_step(&self, begins: bool) {
        let (mut batches, now) = self.batches_now();
        if let Some(since) = batches.consumer.step(begins, now)
            && let Some(trace) = &mut batches.trace
        {
            trace.stepped(since, now);
        }
    }

    /// Number of ready batches, and number of batches that are being filled.
    pub fn batches_ahead(&self) -> (usize, usize) {
        let batches = self.batches();
        (batches.ring.ready(), batches.ring.filling())
    }

    /// All counts at this moment, without those of the decode routes, which the loader adds.
    pub fn snapshot(&self) -> Snapshot {
        let by_thread = self.by_thread().clone();
        let now = self.begin.elapsed();
        let seconds = now.as_secs_f64();
        let device = self.device.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner).read();
        let batches = self.batches();
        // Read the absences (the times before threads began and after they ended) before the other
        // counts. If a thread has ended by then, its other counts no longer change, so they are
        // complete.
        let absences = by_thread.iter().map(|meter| meter.absence(now)).collect();
        Snapshot {
            seconds,
            absences,
            by_thread: by_thread.iter().map(|meter| (meter.name.clone(), meter.counts())).collect(),
            threads: by_thread.iter().map(|meter| meter.thread_time()).collect(),
            machine,
            readings: self.readings.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            device: device.iter().map(|(stage, route, it)| (*stage, *route, it.counts())).collect(),
            routes: Vec::new(),
            ring: batches.ring.counts(Instant::now()),
            ready: batches.ring.ready(),
            filling: batches.ring.filling(),
            steps: Steps { waited_on_device: self.waits.counts(), ..batches.consumer.all() },
            reads: self.read_contention.reads(),
            timeline: batches.timeline.kept().to_vec(),
            fields: fields(by_thread.iter().map(|meter| meter.field_counts())),
            images: by_thread.iter().flat_map(|meter| meter.images().kept().to_vec()).collect(),
            pixels: by_thread.iter().map(|meter| meter.pixels.load(Relaxed)).sum(),
            window_pixels: by_thread.iter().map(|meter| meter.window_pixels.load(Relaxed)).sum(),
        }
    }

    /// Busy seconds of all threads, per stage.
    pub fn busy(&self) -> [f64; STAGES] {
        let by_thread = self.by_thread();
        // Rounded to microseconds by division, so that the numbers in a timeline are short.
        std::array::from_fn(|stage| {
            (by_thread.iter().map(|meter| meter.busy(stage)).sum::<u64>() / 1000) as f64 / 1e6
        })
    }

    /// Seconds that all threads waited for input, and seconds that they waited for space for
    /// output, summed over all stages.
    pub fn waits(&self) -> (f64, f64) {
        let all = self
            .by_thread()
            .iter()
            .map(|meter| meter.waits())
            .fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        (all.0 as f64 * 1e-9, all.1 as f64 * 1e-9)
    }

    fn by_thread(&self) -> MutexGuard<'_, Vec<Arc<ThreadMeter>>> {
        self.by_thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn batches(&self) -> MutexGuard<'_, Batches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the batches and then reads the clock, so entries of several threads are in order.
    fn batches_now(&self) -> (MutexGuard<'_, Batches>, Instant) {
        let batches = self.batches();
        (batches, Instant::now())
    }
}

/// Sums the counts of all threads, which read the same fields.
fn fields(by_thread: impl Iterator<Item = Vec<FieldCounts>>) -> Vec<FieldCounts> {
    let mut all: Vec<FieldCounts> = Vec::new();
    for counts in by_thread {
        let rest = counts[all.len().min(counts.len())..].to_vec();
        all.iter_mut().zip(&counts).for_each(|(sum, counts)| sum.add(counts));
        all.extend(rest);
    }
    all
}

impl Batches {
    /// Records the new fill level of the ring.
    fn level(&mut self, now: Instant) {
        if let Some(trace) = &mut self.trace {
            trace.level(now, self.ring.ready(), self.ring.filling());
        }
    }
}

impl Snapshot {
    /// Returns the counts since `earlier`, which must be of the same loader.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let by_thread = self.by_thread.iter().enumerate().map(|(number, (name, now))| {
            let then = earlier.by_thread.get(number);
            let part = |stage: usize| match then {
                Some((_, then)) => now[stage].since(&then[stage]),
                None => now[stage].clone(),
            };
            (name.clone(), std::array::from_fn(part))
        });
        let threads = self.threads.iter().enumerate().map(|(number, now)| {
            let then = earlier.threads.get(number).copied().flatten();
            now.map(|now| now.since(then.unwrap_or_default()))
        });
        let seconds = self.seconds - earlier.seconds;
        let device = self.device.iter().map(|(stage, route, now)| {
            let then = earlier.device.iter().find(|it| (it.0, it.1) == (*stage, *route));
            (*stage, *route, then.map_or_else(|| now.clone(), |(.., then)| now.since(then)))
        });
        let routes = self.routes.iter().map(|now| {
            let then = earlier.routes.iter().find(|it| it.route == now.route);
            then.map_or(*now, |then| now.since(*then))
        });
        Snapshot {
            seconds,
            absences: Absence::all_since(&self.absences, &earlier.absences, seconds),
            by_thread: by_thread.collect(),
            threads: threads.collect(),
            machine: self.machine.since(&earlier.machine),
            device: device.collect(),
            routes: routes.collect(),
            readings: self.readings.since(&earlier.readings),
            ring: self.ring.since(&earlier.ring),
            ready: self.ready,
            filling: self.filling,
            steps: self.steps.since(&earlier.steps),
            timeline: self
                .timeline
                .iter()
                .filter(|it| it.seconds > earlier.seconds)
                .cloned()
                .collect(),
            reads: self.reads.since(earlier.reads),
            fields: self
                .fields
                .iter()
                .enumerate()
                .map(|(at, now)| now.since(earlier.fields.get(at).unwrap_or(&Default::default())))
                .collect(),
            images: self.images.clone(),
            pixels: self.pixels - earlier.pixels,
            window_pixels: self.window_pixels - earlier.window_pixels,
        }
    }

    /// Returns the counts of a stage, summed over all threads.
    pub fn stage(&self, stage: Stage) -> StageCounts {
        let mut sum = StageCounts::default();
        for (_, stages) in &self.by_thread {
            sum.add(&stages[stage as usize]);
        }
        sum
    }

    /// Returns the counts of device work in a stage, for a decode route or another kind of work,
    /// such as `copy`.
    pub fn device_of(&self, stage: Stage, route: &str) -> Option<&DeviceCounts> {
        self.device.iter().find(|it| it.0 == stage && it.1 == route).map(|it| &it.2)
    }

    /// Device work in a stage, summed over all routes.
    pub fn device(&self, stage: Stage) -> DeviceCounts {
        let mut sum = DeviceCounts::default();
        for (_, _, counts) in self.device.iter().filter(|it| it.0 == stage) {
            sum.add(counts);
        }
        sum
    }
}
