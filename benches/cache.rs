//! Measures the throughput with each cache from the second epoch on, and the memory of the process.
//!
//! ```text
//! cargo bench --bench cache -- [--images 512] [--rounds 3] [--threads 2] [--megabytes 40] [--json]
//! ```
//!
//! Each case runs in its own process. It runs one epoch that fills the cache, and then two epochs
//! that are timed together. The images are read from files in the page cache, or from the same
//! files on a simulated disk, which serves one read at a time at a fixed rate. The simulated disk
//! represents any source that is slower than decoding. It does not behave like a real disk. In some
//! cases only half of the set fits into the cache. In every case, the peak of resident memory must
//! not exceed the predicted footprint by more than 8 MiB. The images are those of
//! `FEEDWATER_PHOTOS` (docs/benchmarks.md). Without this variable, they are synthetic images like
//! ImageNet's.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use common::photos::{self, PhotoSet};
use feedwater::error::DataError;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::plan::LastBatch;
use feedwater::source::custom::Page;
use feedwater::source::{FileList, Source};
use serde_json::{Value, json};

#[derive(Parser)]
struct Arguments {
    /// Number of synthetic images. Has no effect if `FEEDWATER_PHOTOS` names photographs.
    #[arg(long, default_value_t = 512)]
    images: u64,
    /// Number of runs per case. The median is reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, default_value_t = common::cores())]
    threads: usize,
    /// Rate of the simulated disk in MB/s.
    #[arg(long, default_value_t = 40)]
    megabytes: u64,
    /// Also print one line of JSON.
    #[arg(long)]
    json: bool,
    /// Ignored. `cargo bench` passes this flag.
    #[arg(long, hide = true)]
    bench: bool,
    /// Run one case in this process. The two values name its source and its cache.
    #[arg(long, hide = true, num_args = 2)]
    case: Option<Vec<String>>,
}

const SOURCES: [&str; 2] = ["page cache", "slow disk"];
const CACHES: [&str; 6] =
    ["none", "encoded", "decoded", "decoded, presize 256", "encoded half", "decoded half"];

/// Maximum number of bytes by which resident memory may exceed the predicted footprint.
const BAR_BYTES: u64 = 8 << 20;

fn main() {
    let arguments = Arguments::parse();
    if let Some(case) = &arguments.case {
        return run_case(&arguments, &case[0], &case[1]);
    }
    println!("{}", photos::one_set(arguments.images).composition());
    println!(
        "{}, {} threads, slow disk {} MB/s; images/s\n",
        common::cpu(),
        arguments.threads,
        arguments.megabytes
    );
    println!(
        "{:<12}{:<22}{:>12}{:>14}{:>10}{:>8}{:>14}{:>14}",
        "source", "cache", "first epoch", "later epochs", "ratio", "hits", "predicted", "peak"
    );
    let mut all = Vec::new();
    let mut found: Vec<Vec<Value>> = vec![Vec::new(); SOURCES.len() * CACHES.len()];
    // Rounds alternate between the cases, so that other load affects all cases alike.
    for _ in 0..arguments.rounds {
        for (number, results) in found.iter_mut().enumerate() {
            let (source, cache) = (SOURCES[number / CACHES.len()], CACHES[number % CACHES.len()]);
            results.push(start(&arguments, source, cache));
        }
    }
    let mut met = true;
    let mut plain = 0.0;
    for (number, results) in found.iter().enumerate() {
        let (source, cache) = (SOURCES[number / CACHES.len()], CACHES[number % CACHES.len()]);
        let middle = |key: &str| {
            let values: Vec<f64> = results.iter().filter_map(|it| it[key].as_f64()).collect();
            common::median(&values)
        };
        let [first, later, hits] = ["first", "later", "hits"].map(middle);
        let [predicted, peak] = ["predicted", "peak"].map(|key| middle(key) as u64);
        if cache == "none" {
            plain = later;
        }
        met &= peak <= predicted + BAR_BYTES;
        println!(
            "{source:<12}{cache:<22}{first:>12.0}{later:>14.0}{:>9.2}x{:>7.0}%{:>14}{:>14}",
            later / plain,
            100.0 * hits,
            mib(predicted),
            mib(peak)
        );
        all.push(json!({
            "source": source, "cache": cache, "first": first, "later": later, "hits": hits,
            "predicted": predicted, "peak": peak,
        }));
    }
    println!("\nresident memory within the footprint: {}", if met { "met" } else { "missed" });
    if arguments.json {
        println!("{}", json!({ "met": met, "cases": all }));
    }
}

/// Starts this program again to run one case in a process of its own. Returns the results of the
/// case.
fn start(arguments: &Arguments, source: &str, cache: &str) -> Value {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args(["--case", source, cache])
        .args(["--images", &arguments.images.to_string()])
        .args(["--threads", &arguments.threads.to_string()])
        .args(["--megabytes", &arguments.megabytes.to_string()])
        .output()
        .expect("this program can be started again");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the case {source}, {cache} failed: {errors}");
    serde_json::from_slice(&output.stdout).expect("a case writes JSON")
}

fn run_case(arguments: &Arguments, source: &str, cache: &str) {
    let set = photos::one_set(arguments.images);
    let (images, encoded, decoded) = (set.files.len(), set.census.bytes, 3 * set.census.pixels);
    // Capacity of a cache for the whole set. The additional bytes are for the table of the cache
    // and for the padding of its blocks.
    let all = |bytes: u64| Some(bytes + bytes / 16 + (1 << 20));
    let files = set.source("cache.tsv");
    let files: Arc<dyn Source> = match source {
        "slow disk" => Arc::new(SlowDisk::new(&set, files, arguments.megabytes)),
        _ => Arc::new(files),
    };
    let builder = LoaderBuilder::new(files, common::training())
        .device(DeviceChoice::Cpu)
        .num_workers(arguments.threads)
        .batch_size(64)
        .shuffle(true)
        .last_batch(LastBatch::Partial)
        // Turns off row indexes, which would be an additional cache in each case.
        .configure(|it| it.cache.row_index = Some(0))
        .epochs(Some(3));
    let builder = match cache {
        "encoded" => builder.configure(|it| it.cache.encoded = all(encoded)),
        "decoded" => builder.configure(|it| it.cache.decoded = all(decoded)),
        "encoded half" => builder.configure(|it| it.cache.encoded = Some(encoded / 2)),
        "decoded half" => builder.configure(|it| it.cache.decoded = Some(decoded / 2)),
        "decoded, presize 256" => builder.configure(|it| {
            it.cache.decoded = all(decoded);
            it.cache.presize = Some(256);
        }),
        _ => builder,
    };
    let mut loader = builder.build().expect("the settings are valid");
    let mut epochs = |count: u32| {
        let begin = Instant::now();
        let mut images = 0;
        for _ in 0..count {
            images +=
                loader.epoch().map(|it| it.expect("the sample is intact").len()).sum::<usize>();
        }
        images as f64 / begin.elapsed().as_secs_f64()
    };
    let (first, later) = (epochs(1), epochs(2));
    let stats = loader.stats();
    let after_first = stats.caches.iter().flat_map(|it| it.epochs.iter().skip(1));
    let hits: u64 = after_first.map(|it| it.hits).sum();
    let report = json!({
        "first": first, "later": later, "hits": hits as f64 / (2 * images) as f64,
        "predicted": stats.memory.host_bytes_predicted, "peak": common::status("VmHWM"),
    });
    println!("{report}");
}

/// Files on a simulated disk with a fixed rate in bytes per second and one reader at a time.
struct SlowDisk {
    files: FileList,
    lens: Vec<u64>,
    bytes_per_second: f64,
    /// Time at which the disk becomes free.
    free: Mutex<Instant>,
}

impl SlowDisk {
    fn new(set: &PhotoSet, files: FileList, megabytes: u64) -> Self {
        let len = |file: &PathBuf| fs::metadata(file).expect("the file exists").len();
        let lens = set.files.iter().map(len).collect();
        let bytes_per_second = megabytes as f64 * 1e6;
        Self { files, lens, bytes_per_second, free: Mutex::new(Instant::now()) }
    }
}

impl Source for SlowDisk {
    fn len(&self) -> u64 {
        self.files.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.files.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.files.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let bytes = self.lens[index as usize];
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let until = {
            let mut free = self.free.lock().expect("no reader panics");
            *free = (*free).max(Instant::now()) + takes;
            *free
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        self.files.read(index, page, limit)
    }
    fn inner(&self) -> Option<&dyn Source> {
        Some(&self.files)
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
