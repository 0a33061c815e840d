//! Compares predicted with actual memory. Measures the time to the first batch. Each case runs in
//! its own process.
//!
//! Run it with `cargo bench --bench footprint`. The job is the training chain with f16 output. The
//! cases differ in the batch size (64, 256 or 1024), in the number of prefetched batches (1 to 4),
//! and in the set of images: four sets, and those of `FEEDWATER_PHOTOS` (docs/benchmarks.md). Fails
//! if a memory limit is missed, and with `--check` also if the time limit is missed.
//!
//! On the CPU, which is used if there is no GPU, the benchmark checks three limits:
//!
//! * the peak of resident memory (VmHWM) differs from the predicted footprint by at most 32 MiB;
//! * in the first two sets, resident memory does not grow from epoch 2 to epoch 20. In the sets
//!   with few large images, it may grow later, when a worker decodes its first large image;
//! * the first batch of 2,000 files is ready at most 0.5 s after the start of the process.
//!
//! On a GPU, the benchmark checks two limits:
//!
//! * the peaks of the used bytes of the device pool and of the page-locked pool are at most the
//!   prediction. They are at least the prediction minus nvJPEG's share, because nvJPEG may use only
//!   a part of its share. If the CPU decodes, each peak equals its prediction;
//! * free device memory does not shrink between the ends of epochs 1 and 2. Until the end of epoch
//!   1, the driver may load code. The bytes of this code and of the driver are printed separately.
//!   No other program may use the device.
//!
//! Without a GPU, the benchmark prints unverified predictions for a hypothetical GPU. For the case
//! [`TARGET`], it fails if the plan predicts more than 300 MiB of device memory.
//!
//! On a CPU, the benchmark runs within minutes and with less than 2 GB, because epochs are short
//! ([`SETS`]). A batch of 1024 may then be only partly filled, but all of its memory is touched at
//! the start. The set of 48 megapixels lists four images twice, because creating images takes long.
//! Of 64 images in the set `mix`, seven have 3 megapixels and one has 48. The plan inspects the
//! largest image. Otherwise it would reserve less memory, and a GPU would leave this image to the
//! CPU.
//!
//! For comparison, the table of `benches/peers/run.py` has the memory of other libraries.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use common::photos;
use feedwater::footprint::Memory;
use feedwater::gpu::Device;
use feedwater::internals::footprint::bytes;
use feedwater::internals::plan::rows;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::Placement;
use feedwater::plan::{LastBatch, Plan, Route};
use feedwater::source::{Directory, Source};
use serde_json::{Value, json};

/// Maximum difference in bytes between predicted and peak memory, in either direction.
const BAR_BYTES: u64 = 32 << 20;
/// Maximum growth of memory after epoch 2 in bytes, which bookkeeping of the allocator may need.
const GROWTH_BAR_BYTES: u64 = 1 << 20;
/// Maximum time in seconds from the start of a process to its first batch.
const FIRST_BATCH_BAR_SECONDS: f64 = 0.5;
/// Maximum device memory of [`TARGET`] in bytes, without the CUDA context.
const TARGET_BAR_BYTES: u64 = 300 << 20;
/// Batch size and prefetch of the case whose device memory is limited, for images of 500x375.
const TARGET: (usize, usize) = (256, 2);
/// Number of workers of the hypothetical machine with a GPU.
const ABSENT_WORKERS: usize = 16;

/// Number of files in the set whose first batch is timed.
const FIRST_BATCH_FILES: usize = 2000;

/// Name of each set, and number of samples per epoch.
const SETS: [(&str, usize); 4] =
    [("500x375", 1024), ("2048x1536", 128), ("8000x6000", 8), ("mix", 256)];

#[derive(Parser)]
struct Arguments {
    /// Number of worker threads
    #[arg(long, default_value_t = common::cores())]
    threads: usize,
    /// Device to run on; auto is the GPU if there is one, else the CPU
    #[arg(long, value_enum, default_value_t)]
    device: On,
    /// Runs only batches of 256, with 1 and 4 batches prefetched, and fewer epochs
    #[arg(long)]
    quick: bool,
    /// Runs only these sets of images
    #[arg(long, value_delimiter = ',', default_values = SETS.map(|(name, _)| name))]
    sets: Vec<String>,
    /// Maximum number of samples per epoch, and of files per set
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,
    /// Ends the output with one JSON object
    #[arg(long)]
    json: bool,
    /// Also fails if the first batch takes longer than 0.5 s
    #[arg(long)]
    check: bool,
    /// Runs one case in this process, on this directory or list file
    #[arg(long, hide = true)]
    case: Option<PathBuf>,
    #[arg(long, hide = true, default_value_t = 64)]
    batch: usize,
    #[arg(long, hide = true, default_value_t = 2)]
    prefetch: usize,
    #[arg(long, hide = true, default_value_t = 1)]
    epochs: u32,
    /// Decodes on the CPU, even if the operators run on a GPU
    #[arg(long, hide = true)]
    decode_on_cpu: bool,
    /// Ignored. `cargo bench` passes this flag
    #[arg(long, hide = true)]
    bench: bool,
}

/// Device on which a case runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum On {
    #[default]
    Auto,
    Cpu,
    Gpu,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(set) = &arguments.case {
        run_case(&arguments, set);
        return ExitCode::SUCCESS;
    }
    let gpu = Device::open(0).ok().filter(|_| arguments.device != On::Cpu);
    assert!(gpu.is_some() || arguments.device != On::Gpu, "there is no GPU");
    println!("{}, {} threads", common::cpu(), arguments.threads);
    let wanted = SETS.into_iter().filter(|(name, _)| arguments.sets.iter().any(|it| it == name));
    let samples = |samples: usize| samples.min(arguments.limit);
    let named = |(name, all): (&str, usize)| (name.to_owned(), list(name, samples(all)));
    let mut sets: Vec<_> = wanted.map(named).collect();
    for (number, photos) in (1..).zip(photos::own_photos()) {
        println!("{}", photos.composition());
        let (name, files) = (format!("own {number}"), &photos.files);
        let list = common::list(&format!("{name}.tsv"), &files[..samples(files.len())]);
        sets.push((name, list));
    }
    assert!(!sets.is_empty(), "--sets: none of {:?} is a set", arguments.sets);
    let mut report = match &gpu {
        Some(device) => {
            println!("{}", device.name());
            on_gpu(&arguments, &sets)
        }
        None => on_cpu(&arguments, &sets),
    };
    let first = first_batch(&arguments, if gpu.is_some() { On::Gpu } else { On::Cpu });
    let in_time = first <= FIRST_BATCH_BAR_SECONDS;
    println!(
        "\nfirst batch of {} files: {first:.3} s after the start of the process (bar {FIRST_BATCH_BAR_SECONDS} s)",
        samples(FIRST_BATCH_FILES)
    );
    if gpu.is_none() {
        predictions(&arguments, &sets, &mut report);
    }
    let met = report.met;
    let words = |met| if met { "met" } else { "missed" };
    println!("\nbars of memory: {}; of the first batch: {}", words(met), words(in_time));
    if arguments.json {
        let Report { cases, growth, predicted, .. } = report;
        println!(
            "{}",
            json!({
                "met": met, "cases": cases, "growth": growth, "first_batch_seconds": first,
                "first_batch_in_time": in_time, "predicted_for_an_absent_gpu": predicted,
            })
        );
    }
    if met && (in_time || !arguments.check) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Results of the cases on a device.
#[derive(Default)]
struct Report {
    /// Whether all memory limits are met.
    met: bool,
    cases: Vec<Value>,
    growth: Vec<Value>,
    predicted: Vec<Value>,
}

/// Name and list file of each set.
type Sets = [(String, PathBuf)];

/// Returns the list file of a set with `samples` samples. Creates missing images.
fn list(name: &str, samples: usize) -> PathBuf {
    let of = |images: usize, size| common::images(images.min(samples) as u64, size);
    let [small, medium] = common::SIZES;
    let images = match name {
        "500x375" => of(256, small),
        "2048x1536" => of(64, medium),
        "8000x6000" => of(4, (8000, 6000)),
        _ => {
            let [small, medium, large] = [of(256, small), of(64, medium), of(4, (8000, 6000))];
            let pick = |index: usize| match index % 64 {
                0 => large[index / 64 % large.len()].clone(),
                part if part % 8 == 0 => medium[index / 8 % medium.len()].clone(),
                _ => small[index % small.len()].clone(),
            };
            (0..samples).map(pick).collect()
        }
    };
    let images: Vec<PathBuf> = images.into_iter().cycle().take(samples).collect();
    common::list(&format!("footprint-{name}.tsv"), &images)
}

/// Returns the batch sizes and prefetches of the cases.
fn shapes(arguments: &Arguments) -> Vec<(usize, usize)> {
    let (batches, ahead): (&[usize], &[usize]) =
        if arguments.quick { (&[256], &[1, 4]) } else { (&[64, 256, 1024], &[1, 2, 3, 4]) };
    batches.iter().flat_map(|&batch| ahead.iter().map(move |&prefetch| (batch, prefetch))).collect()
}

fn on_cpu(arguments: &Arguments, sets: &Sets) -> Report {
    let mut report = Report { met: true, ..Report::default() };
    let case = |set, (batch, prefetch), epochs| {
        let threads = arguments.threads;
        Case { threads, set, batch, prefetch, epochs, on: On::Cpu, decode_on_cpu: false }
    };
    println!(
        "\n{:<12}{:>6}{:>9}{:>14}{:>12}{:>12}",
        "images", "batch", "prefetch", "predicted", "peak", "apart"
    );
    for (name, set) in sets {
        for (batch, prefetch) in shapes(arguments) {
            let found = case(set, (batch, prefetch), 2).run();
            let (predicted, peak) =
                (number(&found["memory"], "host_bytes_predicted"), number(&found, "peak"));
            report.met &= predicted.abs_diff(peak) <= BAR_BYTES;
            let apart = (peak as f64 - predicted as f64) / f64::from(1 << 20);
            println!(
                "{name:<12}{batch:>6}{prefetch:>9}{:>14}{:>12}{apart:>8.1} MiB",
                mib(predicted),
                mib(peak)
            );
            report.cases.push(json!({
                "images": name, "batch": batch, "prefetch": prefetch, "predicted": predicted, "peak": peak,
            }));
        }
    }
    let epochs = if arguments.quick { 5 } else { 20 };
    println!("\nresident memory after epoch 2 and after epoch {epochs}");
    for (name, set) in &sets[..sets.len().min(2)] {
        let found = case(set, (64, 2), epochs).run();
        let after = |epoch: u32| {
            found["after_epoch"][epoch as usize - 1].as_u64().expect("an epoch's bytes")
        };
        let (second, last) = (after(2), after(epochs));
        report.met &= last <= second + GROWTH_BAR_BYTES;
        println!("{name:<12}{:>14}{:>14}", bytes(second), bytes(last));
        report
            .growth
            .push(json!({ "images": name, "epoch_2": second, "epochs": epochs, "last": last }));
    }
    report
}

fn on_gpu(arguments: &Arguments, sets: &Sets) -> Report {
    let mut report = Report { met: true, ..Report::default() };
    println!(
        "\n{:<12}{:>6}{:>9}{:>12}{:>12}{:>12}{:>12}{:>12}{:>14}{:>12}{:>9}",
        "images",
        "batch",
        "prefetch",
        "device",
        "peak",
        "pinned",
        "peak",
        "of driver",
        "first epoch",
        "second",
        "on CPU"
    );
    for (name, set) in sets {
        for (batch, prefetch) in shapes(arguments) {
            // For each batch size, one additional run decodes on the CPU.
            for decode_on_cpu in [false, true] {
                if decode_on_cpu && prefetch != 1 {
                    continue;
                }
                let threads = arguments.threads;
                let case =
                    Case { threads, set, batch, prefetch, epochs: 2, on: On::Gpu, decode_on_cpu };
                let found = case.run();
                let [device, pinned] = ["device", "pinned"].map(|memory| {
                    let of =
                        |what: &str| number(&found["memory"], &format!("{memory}_bytes_{what}"));
                    let own = of("predicted") - number(&found["nvjpeg"], memory);
                    let is_kept = (own..=of("predicted")).contains(&of("peak"));
                    report.met &= is_kept;
                    [of("predicted"), of("peak")].map(mib)
                });
                let free =
                    |at: usize| found["free"][at].as_i64().expect("the free bytes are reported");
                let [first, second] = [free(0) - free(1), free(1) - free(2)];
                report.met &= second <= 0;
                let [driver, grown, again] = [
                    number(&found["memory"], "device_bytes_of_driver"),
                    first.max(0) as u64,
                    second.max(0) as u64,
                ]
                .map(bytes);
                let on_cpu = number(&found, "cpu_fallback");
                println!(
                    "{:<12}{batch:>6}{prefetch:>9}{:>12}{:>12}{:>12}{:>12}{driver:>12}{grown:>14}{again:>12}{on_cpu:>9}",
                    if decode_on_cpu { "  by the CPU" } else { name },
                    device[0],
                    device[1],
                    pinned[0],
                    pinned[1],
                );
                report.cases.push(json!({
                    "images": name, "batch": batch, "prefetch": prefetch, "decode_on_cpu": decode_on_cpu,
                    "memory": found["memory"], "nvjpeg": found["nvjpeg"], "free": found["free"],
                    "cpu_fallback": on_cpu,
                }));
            }
        }
    }
    report
}

/// Prints predictions for a GPU, because this machine has none.
fn predictions(arguments: &Arguments, sets: &Sets, report: &mut Report) {
    println!(
        "\nThere is no GPU here. PREDICTED, not measured, for one with all routes and {ABSENT_WORKERS} workers:\n"
    );
    let mut ahead: Vec<usize> = shapes(arguments).iter().map(|shape| shape.1).collect();
    ahead.sort_unstable();
    ahead.dedup();
    print!("{:<12}{:>6}{:>14}", "images", "batch", "pinned");
    for prefetch in &ahead {
        print!("{:>22}", format!("device, prefetch {prefetch}"));
    }
    println!();
    for (name, set) in sets {
        for (batch, _) in shapes(arguments).iter().filter(|shape| shape.1 == ahead[0]) {
            for &prefetch in &ahead {
                let plan = absent(set, *batch, prefetch);
                let of = |memory| plan.footprint.total_bytes(memory);
                let (device, pinned) = (of(Memory::Device), of(Memory::Pinned));
                if prefetch == ahead[0] {
                    print!("{name:<12}{batch:>6}{:>14}", mib(pinned));
                }
                print!("{:>22}", mib(device));
                report.predicted.push(json!({
                    "images": name, "batch": batch, "prefetch": prefetch, "device": device, "pinned": pinned,
                }));
            }
            println!();
        }
    }
    let (batch, prefetch) = TARGET;
    let (name, set) = &sets[0];
    let plan = absent(set, batch, prefetch);
    let device = plan.footprint.total_bytes(Memory::Device);
    report.met &= device <= TARGET_BAR_BYTES;
    println!(
        "\n{name}, batch {batch}, prefetch {prefetch}: {} (bar {})\n",
        bytes(device),
        bytes(TARGET_BAR_BYTES)
    );
    print!("{}", plan.footprint);
}

/// Returns the plan for the hypothetical machine with a GPU.
fn absent(set: &Path, batch: usize, prefetch: usize) -> Plan {
    let builder = builder(set, batch, prefetch).device(DeviceChoice::Gpu(0));
    builder.num_workers(ABSENT_WORKERS).plan().expect("the settings are valid")
}

fn builder(set: &Path, batch: usize, prefetch: usize) -> LoaderBuilder {
    let source: Arc<dyn Source> = if set.is_dir() {
        Arc::new(Directory::open(set).expect("the set exists"))
    } else {
        Arc::new(photos::open_list(set))
    };
    LoaderBuilder::new(source, common::training())
        .batch_size(batch)
        .prefetch(prefetch)
        .configure(|it| it.loader.tune = false)
        .shuffle(true)
        .last_batch(LastBatch::Partial)
        .output(DType::F16, Layout::Nchw)
}

/// Returns the seconds from the start of a process to its first batch: the best of five runs.
fn first_batch(arguments: &Arguments, on: On) -> f64 {
    let set = common::set(FIRST_BATCH_FILES.min(arguments.limit) as u64, common::SIZES[0]);
    let threads = arguments.threads;
    let case =
        Case { threads, set: &set, batch: 64, prefetch: 2, epochs: 1, on, decode_on_cpu: false };
    let seconds = || {
        let begin = Instant::now();
        let mut child = case.start();
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let line = lines.next().expect("a case reports its first batch").expect("stdout is text");
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(line, FIRST_BATCH);
        child.kill().and_then(|()| child.wait()).expect("the case can be ended");
        seconds
    };
    (0..5).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}

struct Case<'a> {
    threads: usize,
    set: &'a Path,
    batch: usize,
    prefetch: usize,
    epochs: u32,
    on: On,
    decode_on_cpu: bool,
}

impl Case<'_> {
    fn start(&self) -> Child {
        let program = std::env::current_exe().expect("this program has a path");
        Command::new(program)
            .arg("--case")
            .arg(self.set)
            .args(["--threads", &self.threads.to_string()])
            .args(["--batch", &self.batch.to_string()])
            .args(["--prefetch", &self.prefetch.to_string()])
            .args(["--epochs", &self.epochs.to_string()])
            .args(["--device", if self.on == On::Gpu { "gpu" } else { "cpu" }])
            .args(self.decode_on_cpu.then_some("--decode-on-cpu"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again")
    }

    fn run(&self) -> Value {
        let output = self.start().wait_with_output().expect("a case ends");
        assert!(output.status.success(), "a case failed");
        let text = String::from_utf8(output.stdout).expect("a case writes text");
        let last = text.lines().last().expect("a case writes a report");
        serde_json::from_str(last).expect("the report is JSON")
    }
}

const FIRST_BATCH: &str = "first batch";

/// Runs a case in this process: consumes `epochs` epochs, and prints a report as JSON.
fn run_case(arguments: &Arguments, set: &Path) {
    let Arguments { threads, batch, prefetch, epochs, device: on, decode_on_cpu, .. } = *arguments;
    let device = (on == On::Gpu).then(|| Device::open(0).expect("there is a GPU"));
    let choice = if on == On::Gpu { DeviceChoice::Gpu(0) } else { DeviceChoice::Cpu };
    let decode = if decode_on_cpu { Placement::Cpu } else { Placement::Auto };
    let mut loader = builder(set, batch, prefetch)
        .num_workers(threads)
        .device(choice)
        .configure(|it| it.decode.placement = decode)
        .epochs(Some(epochs))
        .build()
        .expect("the settings are valid");
    let free = || device.iter().map(|it| it.memory_bytes().expect("the device is available").0);
    let mut free_bytes: Vec<u64> = free().collect();
    let mut after_epoch = Vec::new();
    let mut first = true;
    for _ in 0..epochs {
        for batch in &mut loader {
            batch.expect("the images are intact");
            if std::mem::take(&mut first) {
                println!("{FIRST_BATCH}");
                std::io::stdout().flush().expect("the parent reads");
            }
        }
        after_epoch.push(common::status("VmRSS"));
        free_bytes.extend(free());
    }
    let stats = loader.stats();
    let nvjpeg = |memory| {
        let rows = Route::ALL.map(rows::decoder);
        let all = loader.footprint().rows.iter().filter(|row| row.memory == memory);
        all.filter(|row| rows.contains(&&*row.name)).map(|row| row.total_bytes()).sum::<u64>()
    };
    let report = json!({
        "after_epoch": after_epoch, "peak": common::status("VmHWM"), "memory": stats.memory, "free": free_bytes,
        "nvjpeg": { "device": nvjpeg(Memory::Device), "pinned": nvjpeg(Memory::Pinned) },
        "cpu_fallback": stats.cpu_fallback.values().sum::<u64>(),
    });
    println!("{report}");
}

/// Formats bytes in MiB for a column.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().expect("a report has its numbers")
}
