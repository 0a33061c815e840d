//! Measures what the loader's own measurements cost: each call, all calls per sample, and their
//! share of a sample's processor time.
//!
//! Run it with `cargo bench --bench measure`. The loader's counters cannot be turned off, so their
//! share is an estimate. The benchmark makes the measuring calls that a worker makes for one
//! sample. It divides their time by the processor time per sample of a real run, which includes the
//! consumer.
//!
//! For photographs, the share must be below 1 %. The photographs are those of `FEEDWATER_PHOTOS`
//! (docs/benchmarks.md), or synthetic images like ImageNet's. Raw samples of 32x32 are the worst
//! case, because decoding them costs almost nothing. For raw samples, the share has no limit, and
//! the loader times only a few of the samples.
//!
//! The trace, a record of spans, can be turned off. So its cost is also measured directly: epochs
//! with the trace and epochs without it alternate, and their processor times are compared.

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::photos;
use feedwater::internals::measure::{Meters, Seen, Stage, ThreadMeter, Watching};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Crop};
use feedwater::source::Memory;

const IMAGES: u64 = 512;
const BATCH: usize = 64;
/// Capacity of the measured trace, in spans.
const SPANS: usize = 65536;
/// Maximum share of a photograph's processor time that the measuring calls may take.
const BAR: f64 = 0.01;

fn main() {
    calls();
    let photos = photos::one_set(IMAGES);
    println!("\n{}", photos.composition());
    let photographs = || Loader::builder(photos.source("measure.tsv"), common::training());
    let height = photos.census.sizes.map_or(0, |[_, [_, height], _]| height);
    set(&photos.name, photographs, f64::from(height) / 2.0, 1, Some(BAR));
    let raw = || {
        let source = Memory::new(tiny()).expect("the samples are intact");
        Loader::builder(source, Chain::new().then(Crop { x: 0, y: 0, width: 32, height: 32 }))
    };
    set("raw samples of 32x32", raw, 0.0, 50, None);
}

/// Prints the duration of each measuring call in nanoseconds.
fn calls() {
    let meters = Meters::new(3);
    let meter = meters.thread("a");
    let now = Instant::now();
    let print = |name: &str, nanoseconds: f64| println!("{name:<44}{nanoseconds:>9.1} ns");
    print("Instant::now", each(|| _ = black_box(Instant::now())));
    print("ThreadMeter::begin", each(|| _ = black_box(meter.begin(Stage::Read))));
    print("ThreadMeter::add", each(|| _ = black_box(meter.add(Stage::Read, now, 1))));
    print(
        "ThreadMeter::waited_for_room",
        each(|| meter.waited_for_room(Stage::Read, Duration::ZERO)),
    );
    print("ThreadMeter::saw", each(|| meter.saw(seen(), 1)));
    meter.sample_took(Duration::ZERO);
    print("ThreadMeter::clock and clocked, short samples", each(|| clocked(&meter)));
    meter.sample_took(Duration::from_millis(2));
    print("ThreadMeter::clock and clocked, long samples", each(|| clocked(&meter)));
    print("all calls per batch", each(|| one_batch(&meters)));
    // A snapshot is not part of a sample's cost. The thread that reads the measurements takes it,
    // not a worker.
    let clocked = meter.on_this_thread();
    print("Meters::snapshot, of one thread", each(|| _ = black_box(meters.snapshot())));
    drop(clocked);
    let traced = Meters::watched(3, Watching { spans: SPANS, marker: None });
    let meter = traced.thread("a");
    print("ThreadMeter::add, with a trace", each(|| _ = black_box(meter.add(Stage::Read, now, 1))));
}

fn clocked(meter: &ThreadMeter) {
    if let Some(mut clock) = meter.clock() {
        meter.clocked(&[(Stage::Read, Duration::from_micros(1))], &mut clock);
    }
}

fn seen() -> Seen {
    Seen { width: 500, height: 375, bytes: 100_000 }
}

/// Makes the measuring calls that a worker makes for one sample. The sample takes `took`, and its
/// decoder passes `rows` rows to the resampler.
fn one_sample(meter: &ThreadMeter, took: Duration, rows: f64) {
    meter.waited_for_room(Stage::HandOver, Duration::ZERO);
    meter.batch(1);
    let sample = meter.sample_begins();
    let mut clock = meter.clock();
    let mut clocked = |stages: &[(Stage, Duration)]| {
        if let Some(clock) = &mut clock {
            meter.clocked(stages, clock);
        }
    };
    meter.index(1);
    let begin = meter.begin(Stage::Read);
    drop(black_box(meter.read()));
    let read = meter.add(Stage::Read, begin, 1);
    clocked(&[(Stage::Read, read)]);
    let begin = meter.begin(Stage::Header);
    let parsed = meter.since(begin);
    let begin = meter.begin(Stage::Header);
    meter.saw(seen(), 1);
    let header = meter.since(begin) + parsed;
    meter.add_from(Stage::Header, begin, header, 0);
    clocked(&[(Stage::Header, header)]);
    let begin = meter.begin(Stage::Decode);
    // Like a worker, reads the clock twice for every eighth row, or for one row if there are fewer
    // than eight.
    for _ in 0..((rows / 8.0) as u64).max(1) {
        if meter.is_timed() {
            black_box(Instant::now().elapsed());
        }
    }
    let decode = meter.since(begin);
    meter.add_from(Stage::Decode, begin, decode, 1);
    meter.add_from(Stage::Transform, begin + decode, decode, 0);
    clocked(&[(Stage::Decode, decode), (Stage::Transform, decode)]);
    if meter.is_timed() {
        // The meter times only some samples if they are short. The calls above take less time than
        // a real sample, so this call reports the duration of a real sample.
        meter.sample_took(took);
    }
    meter.sample_ends(sample);
    let begin = meter.begin(Stage::HandOver);
    meter.add(Stage::HandOver, begin, 0);
}

/// Makes the measuring calls for one batch: two calls of a worker and two calls of the consumer.
fn one_batch(meters: &Meters) {
    meters.batch_begun(1);
    meters.batch_done(1, true);
    meters.consumer_asks(0, Instant::now());
    meters.consumer_has(Instant::now(), true, BATCH as u64);
}

/// Returns the nanoseconds per call, as the minimum of many runs.
fn each(mut call: impl FnMut()) -> f64 {
    // A run has only 200 calls, so at least some of the runs are not interrupted.
    const CALLS: u32 = 200;
    let mut best = f64::INFINITY;
    for _ in 0..2000 {
        let begin = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        best = best.min(begin.elapsed().as_secs_f64() / f64::from(CALLS));
    }
    best * 1e9
}

/// Measures one set of samples. Prints the share of the processor time that the counters take, and
/// the cost of the trace.
fn set(name: &str, builder: impl Fn() -> LoaderBuilder, rows: f64, epochs: u32, bar: Option<f64>) {
    let run = |trace: usize| {
        let mut loader = builder()
            .device(DeviceChoice::Cpu)
            .batch_size(BATCH)
            .num_workers(1)
            .trace(trace)
            .epochs(Some(epochs + 1))
            .build()
            .expect("the settings are valid");
        let mut warm = None;
        for _ in 0..=epochs {
            for batch in &mut loader {
                batch.expect("the samples are intact");
            }
            warm.get_or_insert_with(|| (loader.measured(), processor_seconds()));
        }
        let (warm, processor) = warm.expect("there is an epoch");
        let measured = loader.measured().since(&warm);
        let busy: u64 = Stage::ALL.iter().map(|&stage| measured.stage(stage).busy).sum();
        let samples = measured.steps.samples as f64;
        (busy as f64 / samples, 1e9 * (processor_seconds() - processor) / samples)
    };
    let (mut busy, mut without, mut with) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..5 {
        let (of_stages, of_process) = run(0);
        busy = busy.min(of_stages);
        without = without.min(of_process);
        with = with.min(run(SPANS).1);
    }
    let meters = Meters::new(3);
    let meter = meters.thread("a");
    let took = Duration::from_nanos(busy as u64);
    let calls =
        each(|| one_sample(&meter, took, rows)) + each(|| one_batch(&meters)) / BATCH as f64;
    let share = calls / without;
    let traced = Meters::watched(3, Watching { spans: SPANS, marker: None });
    let meter = traced.thread("a");
    let trace = each(|| one_sample(&meter, took, rows))
        + each(|| one_batch(&traced)) / BATCH as f64
        - calls;
    println!(
        "\n{name}: a sample takes {:.2} us of processor time, {:.2} us of it in stages",
        without * 1e-3,
        busy * 1e-3
    );
    println!("  measuring   {calls:>8.0} ns per sample: {:.2} %", 100.0 * share);
    println!("  the trace   {trace:>8.0} ns more per sample: {:.2} %", 100.0 * trace / without);
    println!(
        "  epochs with the trace and without, in turns: {:+.2} %",
        100.0 * (with / without - 1.0)
    );
    if let Some(bar) = bar {
        let held = if share < bar { "met" } else { "MISSED" };
        println!("  bar of {:.0} %: {held}", 100.0 * bar);
    }
}

/// Returns the processor time of this process in seconds.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns raw images of 32x32 as PNM, the format with the cheapest decoder.
fn tiny() -> Vec<(Vec<u8>, i64)> {
    let one = |seed: u64| {
        let mut bytes = b"P6 32 32 255\n".to_vec();
        bytes.extend((0..3 * 32 * 32).map(|at| (at * 7 + seed) as u8));
        (bytes, 0)
    };
    (0..4 * IMAGES).map(one).collect()
}
