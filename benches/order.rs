//! Measures the cost of the order in which ten million samples are read: creating the order,
//! iterating over it, sharding it, and resuming in its middle. Prints a table. Each row is measured
//! once. It shows the seconds of wall time, the seconds of processor time (in steps of 0.01 s,
//! independent of other load), and the memory that the step adds at its peak.
//!
//! Run it with `cargo bench --bench order` on Linux, whose `/proc` reports processor time and
//! memory. The program resets the peak of memory before each row of the table.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use feedwater::error::DataError;
use feedwater::internals::loader::Order;
use feedwater::internals::plan::Shard;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder, LoaderState};
use feedwater::op::{CenterCrop, Chain};
use feedwater::plan::{LastBatch, LoaderSettings};
use feedwater::source::Source;
use feedwater::source::custom::{Hints, Page};
use feedwater_tools::synth;

const SAMPLES: u64 = 10_000_000;
const FILES: u64 = 10_000;
const WINDOW: u64 = 20_000;
const WORLD: u64 = 8;

/// A source that returns the same image for every sample, and reports [`FILES`] files of equal
/// length. The source stores nothing per sample, so the measured memory is that of the order and
/// the loader.
struct Repeated(Vec<u8>);

impl Source for Repeated {
    fn len(&self) -> u64 {
        SAMPLES
    }
    fn label(&self, index: u64) -> i64 {
        index as i64
    }
    fn location(&self, index: u64) -> String {
        index.to_string()
    }
    fn read(&self, _: u64, page: &mut dyn Page, _: u64) -> Result<(), DataError> {
        page.space(self.0.len())?.copy_from_slice(&self.0);
        Ok(())
    }
    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl Hints for Repeated {
    fn largest_bytes(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
    fn file_ends(&self) -> Vec<u64> {
        (1..=FILES).map(|file| file * (SAMPLES / FILES)).collect()
    }
}

fn main() {
    println!("{SAMPLES} samples in {FILES} files, windows of {WINDOW}, {WORLD} shards\n");
    println!("| what | shuffle | seconds | processor seconds | memory added |");
    println!("|---|---|---|---|---|");
    for window in [None, Some(WINDOW)] {
        let name = if window.is_none() { "whole set" } else { "windows" };
        let row = |what: &str, work: &dyn Fn()| measure(what, name, work);
        let source = Repeated(Vec::new());
        let ends = source.file_ends();
        let order = |rank, world| {
            let settings = LoaderSettings {
                batch_size: 256,
                shuffle: true,
                shuffle_window: window,
                seed: 1,
                last_batch: LastBatch::Partial,
                ..Default::default()
            };
            Order::new(SAMPLES, &settings, &Shard { rank, world, from: "settings" }, &ends)
                .expect("the ends of the files are valid")
        };
        row("create the order, and one epoch of it", &|| {
            black_box(order(0, 1).epoch(3));
        });
        row("all positions of an epoch", &|| walk(&order(0, 1)));
        row("all positions of one shard of 8", &|| walk(&order(3, WORLD)));
        row("resume in the middle: order and first sample", &|| {
            let order = order(3, WORLD).begin_at(3, SAMPLES / 2 + 12_345);
            black_box(order.epoch(3).at(0, 0));
        });
        row("a loader until its first batch", &|| {
            first_batch(builder(window));
        });
        let half = LoaderState { position: SAMPLES / 2, ..state(window) };
        row("a loader that resumes in the middle, until its first batch", &|| {
            first_batch(builder(window).resume(half));
        });
    }
}

fn walk(order: &Order) {
    let epoch = order.epoch(3);
    let mut sum = 0u64;
    for batch in 0..epoch.batches() {
        for place in 0..epoch.batch_len(batch) {
            sum = sum.wrapping_add(epoch.at(batch, place).index);
        }
    }
    black_box(sum);
}

fn builder(window: Option<u64>) -> LoaderBuilder {
    let image = synth::encode(&synth::image(1, 0, 64, 64), 64, 64, 90, false);
    let source = Repeated(image.expect("a small image can be written"));
    let chain = Chain::new().then(CenterCrop::to(32, 32));
    let builder =
        Loader::builder(source, chain).device(DeviceChoice::Cpu).num_workers(2).batch_size(64);
    builder.shuffle(true).configure(|it| it.loader.shuffle_window = window).seed(1).shard(3, WORLD)
}

fn state(window: Option<u64>) -> LoaderState {
    builder(window).build().expect("the loader is valid").state()
}

fn first_batch(builder: LoaderBuilder) {
    let mut loader = builder.build().expect("the loader is valid");
    let batch = loader.into_iter().next().expect("there are batches");
    black_box(batch.expect("every image is intact").len());
}

/// Runs `work` and prints a row of the table.
fn measure(what: &str, shuffle: &str, work: &dyn Fn()) {
    // Resets the peak of resident memory (proc(5)).
    fs::write("/proc/self/clear_refs", "5").expect("a process can reset its own peak");
    let before = kibibytes("VmRSS");
    let (begin, worked) = (Instant::now(), processor_seconds());
    work();
    let (seconds, worked) = (begin.elapsed().as_secs_f64(), processor_seconds() - worked);
    let added = kibibytes("VmHWM").saturating_sub(before) as f64 / 1024.0;
    println!("| {what} | {shuffle} | {seconds:.6} | {worked:.2} | {added:.1} MiB |");
}

/// Returns user and system time of the process in seconds. They are fields 14 and 15 of
/// `/proc/self/stat`, in hundredths of a second (proc(5)).
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc is readable");
    let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|it| it.parse::<f64>().expect("a number of ticks")).sum::<f64>() / 100.0
}

fn kibibytes(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is readable");
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    number.expect("a number of kB")
}
