//! Memory as predicted against memory as taken, and the time to the first batch: whole processes on the CPU.
//!
//! `cargo bench --bench footprint`. Every case is a process of its own that runs some epochs; its peak resident
//! memory (VmHWM) must be within 32 MiB of the sum of the plan's rows, and must not grow from epoch 2 to epoch 20.
//! The first batch of 2,000 files must be there 0.5 s after the start of the process.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use feedwater::footprint::{Memory, bytes};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::source::Directory;
use serde_json::{Value, json};

/// Most bytes between the prediction and the peak, either way.
const BAR_BYTES: u64 = 32 << 20;
/// Most bytes of growth from epoch 2 to epoch 20: what an allocator may need for its own bookkeeping.
const GROWTH_BAR_BYTES: u64 = 1 << 20;
/// Most seconds from the start of a process to its first batch.
const FIRST_BATCH_BAR_SECONDS: f64 = 0.5;

const IMAGES: u64 = 256;

#[derive(Parser)]
struct Arguments {
    /// Threads of the loader
    #[arg(long, default_value_t = common::cores())]
    threads: usize,
    /// Ends with one JSON object on standard output
    #[arg(long)]
    json: bool,
    /// This process is a case: runs it on this set
    #[arg(long, hide = true)]
    case: Option<PathBuf>,
    #[arg(long, hide = true, default_value_t = 64)]
    batch: usize,
    #[arg(long, hide = true, default_value_t = 2)]
    prefetch: usize,
    #[arg(long, hide = true, default_value_t = 1)]
    epochs: u32,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(set) = &arguments.case {
        run_case(&arguments, set);
        return ExitCode::SUCCESS;
    }
    println!("{}, {} threads", common::cpu(), arguments.threads);
    let sets = common::SIZES.map(|size| (size, common::set(IMAGES, size)));
    let (mut met, mut cases, mut growths) = (true, Vec::new(), Vec::new());
    println!(
        "\n{:<12}{:>6}{:>9}{:>14}{:>12}{:>12}",
        "size", "batch", "prefetch", "predicted", "peak", "apart"
    );
    for ((width, height), set) in &sets {
        for batch in [64, 256] {
            for prefetch in 1..=4 {
                let case = Case { threads: arguments.threads, set, batch, prefetch, epochs: 3 };
                let report = case.run();
                let (predicted, peak) = (number(&report, "predicted"), number(&report, "peak"));
                met &= predicted.abs_diff(peak) <= BAR_BYTES;
                let size = format!("{width}x{height}");
                let apart = (peak as f64 - predicted as f64) / f64::from(1 << 20);
                println!(
                    "{size:<12}{batch:>6}{prefetch:>9}{:>14}{:>12}{apart:>8.1} MiB",
                    bytes(predicted),
                    bytes(peak)
                );
                cases.push(json!({
                    "width": width, "height": height, "batch": batch, "prefetch": prefetch,
                    "predicted": predicted, "peak": peak,
                }));
            }
        }
    }
    println!("\nresident memory after epoch 2 and after epoch 20");
    for ((width, height), set) in &sets {
        let case = Case { threads: arguments.threads, set, batch: 64, prefetch: 2, epochs: 20 };
        let report = case.run();
        let after =
            |epoch: usize| report["after_epoch"][epoch - 1].as_u64().expect("an epoch's bytes");
        let (second, last) = (after(2), after(20));
        met &= last <= second + GROWTH_BAR_BYTES;
        let size = format!("{width}x{height}");
        println!("{size:<12}{:>14}{:>14}", bytes(second), bytes(last));
        growths
            .push(json!({ "width": width, "height": height, "epoch_2": second, "epoch_20": last }));
    }
    let first = first_batch(arguments.threads);
    met &= first <= FIRST_BATCH_BAR_SECONDS;
    println!("\nfirst batch of 2,000 files: {first:.3} s after the start of the process");
    println!(
        "bars (32 MiB apart, no growth, {FIRST_BATCH_BAR_SECONDS} s): {}",
        if met { "met" } else { "missed" }
    );
    if arguments.json {
        println!(
            "{}",
            json!({ "met": met, "cases": cases, "growth": growths, "first_batch_seconds": first })
        );
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seconds from the start of a process to its first batch: the best of five, as others use the machine too.
fn first_batch(threads: usize) -> f64 {
    let set = common::set(2000, common::SIZES[0]);
    let case = Case { threads, set: &set, batch: 64, prefetch: 2, epochs: 1 };
    let seconds = || {
        let begin = Instant::now();
        let mut child = case.start();
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = lines.next().expect("a case tells its first batch").expect("it is text");
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

/// A case: epochs, then a report.
fn run_case(arguments: &Arguments, set: &Path) {
    let before = status("VmRSS");
    let source = Directory::open(set).expect("the set is there");
    let loader = Loader::builder(source, common::training())
        .device(DeviceChoice::Cpu)
        .workers(arguments.threads)
        .batch(arguments.batch)
        .prefetch(arguments.prefetch)
        .shuffle(true)
        .build()
        .expect("the settings can be");
    let mut after_epoch = Vec::new();
    let mut first = true;
    for _ in 0..arguments.epochs {
        for batch in &loader {
            batch.expect("the pictures are sound");
            if std::mem::take(&mut first) {
                println!("{FIRST_BATCH}");
                std::io::stdout().flush().expect("the parent listens");
            }
        }
        after_epoch.push(status("VmRSS"));
    }
    let predicted = loader.footprint().total_bytes(Memory::Host);
    let report = json!({
        "before": before, "after_epoch": after_epoch, "predicted": predicted, "peak": status("VmHWM"),
    });
    println!("{report}");
}

/// A row of `/proc/self/status`, in bytes.
fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("Linux tells a process its memory");
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")).map(str::trim);
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("the row is a number of kB") * 1024
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().expect("a report has its numbers")
}
