//! Measures raw reads of one source: reads encoded samples into memory without decoding them.
//! `run.py` beside this file alternates between this program and each format's own reader.
//!
//! Run it with `cargo bench --bench sources -- --source 'tfrecord = "FOLDER"' --threads 2`. The
//! output ends with one JSON object. With `--verify`, the program reads every sample once and sums
//! up the CRC-32 checksums. `run.py` compares the sum with the sum that the format's own reader
//! computes.

use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;
use feedwater::internals::config::Pipeline;
use feedwater::source::Source;
use feedwater::source::custom::HostPage;
use serde_json::json;

#[derive(Parser)]
struct Arguments {
    /// Text under `[source]` of a pipeline file, optionally followed by other sections
    #[arg(long)]
    source: String,
    /// Number of reading threads
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Reads samples in a scattered order instead of the order of the source
    #[arg(long)]
    shuffled: bool,
    /// Repeats passes over all samples for this number of seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Runs a single pass that sums up checksums
    #[arg(long)]
    verify: bool,
    /// Ignored. `cargo bench` passes this flag
    #[arg(long, hide = true)]
    bench: bool,
}

/// Number of consecutive samples that a thread takes at a time, like a reader of shards.
const RUN: u64 = 16;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<serde_json::Value, String> {
    let text = format!("[source]\n{}\n", arguments.source);
    let pipeline = Pipeline::from_toml(&text, "").map_err(|error| error.to_string())?;
    let storage = pipeline.storage().map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let source = pipeline.source.open_with(&storage).map_err(|error| error.to_string())?;
    let open_seconds = begin.elapsed().as_secs_f64();
    if arguments.verify {
        let (bytes, sum) = pass(&*source, arguments, true)?;
        return Ok(
            json!({"samples": source.len(), "bytes": bytes, "sum": sum, "open_seconds": open_seconds}),
        );
    }
    // The first pass is not measured. It loads files and tables into the page cache.
    pass(&*source, arguments, false)?;
    let (begin, busy) = (Instant::now(), cpu_seconds());
    let (mut samples, mut bytes) = (0, 0);
    while begin.elapsed().as_secs_f64() < arguments.seconds {
        bytes += pass(&*source, arguments, false)?.0;
        samples += source.len();
    }
    Ok(json!({
        "samples": samples,
        "bytes": bytes,
        "seconds": begin.elapsed().as_secs_f64(),
        "cpu_seconds": cpu_seconds() - busy,
        "open_seconds": open_seconds,
    }))
}

/// Reads every sample once. Returns the number of bytes, and the sum of the checksums if requested.
fn pass(source: &dyn Source, arguments: &Arguments, sums: bool) -> Result<(u64, u64), String> {
    let order = Order::new(source.len(), arguments.shuffled);
    let next = AtomicU64::new(0);
    let work = || {
        let mut page = HostPage::with_capacity(source.largest_bytes().unwrap_or_default() as usize);
        let (mut bytes, mut sum) = (0, 0u64);
        loop {
            let first = next.fetch_add(RUN, Ordering::Relaxed);
            if first >= source.len() {
                return Ok((bytes, sum));
            }
            for place in first..(first + RUN).min(source.len()) {
                let index = order.at(place);
                source
                    .read(index, &mut page, u64::from(u32::MAX))
                    .map_err(|error| format!("{}: {error}", source.location(index)))?;
                bytes += page.bytes().len() as u64;
                if sums {
                    sum = sum.wrapping_add(crc32fast::hash(page.bytes()).into());
                }
            }
        }
    };
    let parts: Vec<Result<(u64, u64), String>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|it| it.join().expect("a worker does not panic")).collect()
    });
    let mut all = (0, 0u64);
    for part in parts {
        let (bytes, sum) = part?;
        all = (all.0 + bytes, all.1.wrapping_add(sum));
    }
    Ok(all)
}

/// An order of the samples' indices.
struct Order {
    len: u64,
    step: u64,
}

impl Order {
    /// Creates the order of the source, or, if `shuffled`, a scattered order. In a scattered order,
    /// the indices of consecutive positions differ by a step that is coprime to the length and
    /// close to 0.618 times the length.
    fn new(len: u64, shuffled: bool) -> Self {
        let golden = (len as f64 * 0.618) as u64;
        let coprime = (golden.max(1)..).find(|&step| divisor(step, len) == 1);
        Self { len, step: if shuffled { coprime.unwrap_or(1) } else { 1 } }
    }

    fn at(&self, place: u64) -> u64 {
        (u128::from(place) * u128::from(self.step) % u128::from(self.len)) as u64
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Returns the processor time of this process, read in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
