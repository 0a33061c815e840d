//! Measures how long a start with ten million samples takes, in five formats. The first open is
//! measured separately, because it creates a table of the samples for some formats. Every later
//! start opens the source, shuffles, shards, resumes in the middle of an epoch, and reads the first
//! sample.
//!
//! ```text
//! cargo bench --bench scale -- [--formats tfrecord,recordio,webdataset,list,directory] [--cache DIR] [--samples 10000000]
//! ```
//!
//! Each row runs in its own process and is measured once. It shows the seconds of wall time, the
//! seconds of processor time (in steps of 0.01 s, mostly independent of other load), the memory
//! that the source reports, and the peak of the additional memory of the process. The files are in
//! the page cache, except for the tables in the rows "from the disk". The sets are created once and
//! kept. They need about 4 GB and ten million file names.
//!
//! Every image is gray, has one pixel, and takes 12 bytes. So a set mostly consists of the overhead
//! of its format:
//!
//! * `tfrecord`, `recordio`: 8 files. Each sample is a record with a label.
//! * `webdataset`: one archive with an eighth of the samples. It has 8 names (hard links), so
//!   feedwater reads it as 8 archives, each with its own table.
//! * `list`: a text file of paths and labels. The paths refer to 1000 files.
//! * `directory`: 1000 classes. The files are hard links to 200 files.

mod common;
#[path = "scale/sets.rs"]
mod sets;

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use feedwater::internals::config::Pipeline;
use feedwater::internals::loader::Order;
use feedwater::internals::plan::Shard;
use feedwater::loader::{DeviceChoice, LoaderBuilder, LoaderState};
use feedwater::op::{CenterCrop, Chain};
use feedwater::plan::LoaderSettings;
use feedwater::source::Source;
use feedwater::source::custom::HostPage;
use serde_json::{Value, json};

#[derive(Parser)]
struct Arguments {
    #[arg(long, value_delimiter = ',', default_values = sets::FORMATS)]
    formats: Vec<String>,
    /// Folder for the sets. Default: below the target directory.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    cache: PathBuf,
    /// Number of samples, which must be a multiple of 8000.
    #[arg(long, default_value_t = 10_000_000)]
    samples: u64,
    /// Ignored. `cargo bench` passes this flag.
    #[arg(long, hide = true)]
    bench: bool,
    /// Run one case in this process. The values are the name of the measurement and the text under
    /// `[source]`.
    #[arg(long, hide = true, num_args = 2)]
    case: Option<Vec<String>>,
}

/// Maximum time of a start, in seconds.
const BAR_SECONDS: f64 = 1.0;
/// Maximum memory that a start may add in bytes, beyond the memory that the source reports.
const BAR_BYTES: u64 = 100_000_000;

const FIRST: u64 = 1000;
const WORLD: u64 = 8;
const RANK: u64 = 3;

fn main() {
    let arguments = Arguments::parse();
    if let Some([what, source]) = arguments.case.as_deref() {
        println!("{}", run(what, source));
        return;
    }
    println!("{}; {} samples\n", common::cpu(), arguments.samples);
    println!(
        "| format | what | seconds | processor seconds | open | held by the source | beyond it |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut missed = Vec::new();
    for format in &arguments.formats {
        let folder = arguments.cache.join(format!("scale-{format}-{}", arguments.samples));
        let source = sets::make(format, &folder, arguments.samples);
        let tables = || tables(&folder);
        tables()
            .iter()
            .for_each(|path| fs::remove_file(path).expect("the file belongs to the set"));
        let row = |name: &str, what| row(format, name, &case(what, &source));
        row("first open", "open");
        for what in ["start", "loader"] {
            let report = row(NAMES[usize::from(what == "loader")], what);
            let seconds = report["seconds"].as_f64().unwrap_or(f64::INFINITY);
            if seconds >= BAR_SECONDS || report["beyond"].as_u64().is_none_or(|it| it >= BAR_BYTES)
            {
                missed.push(format!("{format}: {what}"));
            }
        }
        if !tables().is_empty() {
            tables().iter().for_each(|path| evict(path));
            row("a start from the disk", "start");
        }
    }
    let what =
        format!("{BAR_SECONDS} s and {} MB beyond what the source holds", BAR_BYTES / 1_000_000);
    match missed.is_empty() {
        true => println!("\nEvery start meets the bar of {what}."),
        false => println!("\nThe bar of {what} is missed by: {}.", missed.join(", ")),
    }
}

/// Names of the two kinds of start: one ends with the bytes of the first sample, the other with the
/// first batch of a loader.
const NAMES: [&str; 2] = ["start: order of 1000, first sample", "start: a loader's first batch"];

/// Prints a row of the table.
fn row(format: &str, name: &str, report: &Value) -> Value {
    let number = |key: &str| report[key].as_f64().unwrap_or(f64::NAN);
    let mb = |key: &str| number(key) / 1e6;
    println!(
        "| {format} | {name} | {:.3} | {:.2} | {:.3} | {:.1} MB | {:.1} MB |",
        number("seconds"),
        number("processor_seconds"),
        number("open"),
        mb("held"),
        mb("beyond")
    );
    report.clone()
}

/// Starts this program again to run one case in a process of its own. Returns the results of the
/// case.
fn case(what: &str, source: &str) -> Value {
    let program = std::env::current_exe().expect("the program has a path");
    let done = Command::new(program)
        .args(["--case", what, source])
        .output()
        .expect("the program can be started");
    let text = String::from_utf8_lossy(&done.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{what} {source}: {}", String::from_utf8_lossy(&done.stderr)))
}

/// Measures a case in this process.
fn run(what: &str, source: &str) -> Value {
    let text = format!("[source]\n{source}\n");
    // Resets the peak of resident memory (proc(5)).
    fs::write("/proc/self/clear_refs", "5").expect("a process can reset its own peak");
    let before = kibibytes("VmRSS");
    let begin = Instant::now();
    let pipeline = Pipeline::from_toml(&text, "").expect("the settings are valid");
    let source = pipeline.source.open().unwrap_or_else(|error| panic!("{error}"));
    let open = begin.elapsed().as_secs_f64();
    let (samples, held) = (source.len(), source.memory_bytes());
    match what {
        "start" => start(&*source),
        "loader" => first_batch(source),
        _ => {}
    }
    let seconds = begin.elapsed().as_secs_f64();
    let added = kibibytes("VmHWM").saturating_sub(before) * 1024;
    json!({
        "samples": samples,
        "seconds": seconds,
        "processor_seconds": processor_seconds(),
        "open": open,
        "held": held,
        "beyond": added.saturating_sub(held),
    })
}

/// Computes the first thousand samples of a shard from the middle of an epoch, and reads the first
/// one.
fn start(source: &dyn Source) {
    let settings = LoaderSettings { batch_size: 256, shuffle: true, seed: 1, ..Default::default() };
    let shard = Shard { rank: RANK, world: WORLD, from: "settings" };
    let order = Order::new(source.len(), &settings, &shard, &source.file_ends());
    let order = order.expect("the settings are valid").begin_at(3, source.len() / 2 + 12_345);
    let epoch = order.epoch(3);
    let indices = (0..FIRST).map(|number| epoch.at(number / 256, (number % 256) as usize).index);
    let indices: Vec<u64> = indices.collect();
    let labels: i64 = indices.iter().map(|&index| source.label(index)).sum();
    let mut page = HostPage::default();
    source.read(indices[0], &mut page, 1 << 20).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(page.bytes(), sets::IMAGE);
    black_box(labels);
}

/// Builds a loader that resumes in the middle of an epoch, and gets its first batch.
fn first_batch(source: Arc<dyn Source>) {
    let samples = source.len();
    let state = LoaderState {
        seed: 1,
        shuffle: true,
        epoch: 3,
        position: samples / 2 + 12_345,
        samples,
        ..LoaderState::default()
    };
    let chain = Chain::new().then(CenterCrop::to(1, 1));
    let builder =
        LoaderBuilder::new(source, chain).device(DeviceChoice::Cpu).num_workers(2).batch_size(64);
    let loader = builder.shuffle(true).seed(1).shard(RANK, WORLD).resume(state).build();
    let batch = loader.expect("the loader is valid").into_iter().next().expect("there are batches");
    black_box(batch.expect("every image is intact").len());
}

/// Returns the paths of the tables of samples, which feedwater stores beside the files of a set.
fn tables(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the set exists");
    let paths = entries.map(|entry| entry.expect("the set can be listed").path());
    paths.filter(|path| path.extension().is_some_and(|it| it == "feedwater1")).collect()
}

/// Removes a file from the page cache.
fn evict(path: &Path) {
    let file = fs::File::open(path).expect("the table exists");
    file.sync_all().expect("the table can be synced");
    let input = format!("if={}", path.display());
    let done =
        Command::new("dd").args([&input, "iflag=nocache", "count=0", "status=none"]).status();
    assert!(done.expect("dd is installed").success());
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
