//! Compares predicted with resident memory for malicious mixtures of files. Each case runs in its
//! own process.
//!
//! Run it with `cargo bench --bench bounds`. The bar: the peak of resident memory, without pages of
//! files, is at most 2 % above the footprint of the plan. `tests/memory/` tests the same with
//! counted allocations, which do not depend on the machine.

#[path = "../tests/memory/files.rs"]
mod files;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use feedwater::footprint::Memory;
use feedwater::internals::footprint::bytes;
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::Directory;
use jpeg_encoder::{ColorType, Encoder};
use serde_json::{Value, json};

#[derive(Parser)]
struct Arguments {
    /// Threads of the loader
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Runs as a case on this directory
    #[arg(long, hide = true)]
    case: Option<std::path::PathBuf>,
    /// Flips images before they are cropped, so that windows are stored
    #[arg(long, hide = true)]
    stored: bool,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Number of small images in each set.
const SMALL: usize = 300;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(set) = &arguments.case {
        println!("{}", run(set, &arguments));
        return ExitCode::SUCCESS;
    }
    let sets: [(&str, Vec<Vec<u8>>); 7] = [
        ("PNG of 178956970x1", vec![files::png_head(178_956_970, 1, false)]),
        ("WebP header, 34 bytes", vec![files::webp_head(16_383, 10_900)]),
        ("progressive, 40 MP", vec![jpeg(7300, 5480, true)]),
        ("WebP of 8192 code groups", vec![files::webp_groups(512, 256, 0)]),
        ("interlaced PNG, 12 MP", vec![files::png(4000, 3000, true)]),
        ("plain PNG, 12 MP", vec![files::png(4000, 3000, false)]),
        (
            "64x48 to 4000x3000",
            (1..=20).map(|step| jpeg(200 * step, 150 * step, step % 3 == 0)).collect(),
        ),
    ];
    println!(
        "{:<26}{:>8}{:>14}{:>14}{:>8}{:>11}",
        "beside 300 of 64x48", "windows", "predicted", "peak", "ratio", "oversized"
    );
    let mut met = true;
    for (name, large) in sets {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let small = jpeg(64, 48, false);
        let files = (0..SMALL).map(|_| small.clone()).chain(large);
        for (number, file) in files.enumerate() {
            fs::write(folder.path().join(format!("{number:05}.jpg")), file)
                .expect("files can be written");
        }
        for stored in [false, true] {
            let found = child(folder.path(), &arguments, stored);
            let of = |key: &str| found[key].as_u64().unwrap_or(0);
            let (predicted, peak) = (of("predicted"), of("peak"));
            met &= peak <= predicted + predicted / 50;
            println!(
                "{name:<26}{:>8}{:>14}{:>14}{:>8.2}{:>11}",
                if stored { "stored" } else { "rows" },
                bytes(predicted),
                bytes(peak),
                peak as f64 / predicted as f64,
                of("oversized"),
            );
        }
    }
    println!("\nbar (peak <= predicted + 2 %): {}", if met { "met" } else { "missed" });
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a case in its own process, so that it has its own peak of memory.
fn child(set: &Path, arguments: &Arguments, stored: bool) -> Value {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg("--case").arg(set).arg("--threads").arg(arguments.threads.to_string());
    if stored {
        command.arg("--stored");
    }
    let output = command.stderr(Stdio::inherit()).output().expect("a process can be started");
    serde_json::from_slice(&output.stdout).expect("a case prints JSON")
}

fn run(set: &Path, arguments: &Arguments) -> Value {
    let mut chain = Chain::new();
    if arguments.stored {
        chain = chain.then(Flip { horizontal: 0.5, vertical: 0.0 });
    }
    let chain = chain.then(RandomResizedCrop::to(224, 224)).then(Normalize::IMAGENET);
    let source = Directory::open(set).expect("the set exists");
    let mut loader = Loader::builder(source, chain)
        .batch_size(32)
        .num_workers(arguments.threads)
        .shuffle(true)
        .last_batch(LastBatch::Partial)
        .on_error(OnError::Skip)
        .device(DeviceChoice::Cpu)
        .epochs(Some(2))
        .build()
        .expect("the settings are valid");
    for _ in 0..2 {
        for batch in &mut loader {
            drop(batch.expect("unusable samples are replaced"));
        }
    }
    let predicted = loader.footprint().total_bytes(Memory::Host);
    let status = fs::read_to_string("/proc/self/status").expect("/proc is readable");
    let kib = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0) << 10
    };
    let peak = kib("VmHWM:").saturating_sub(kib("RssFile:"));
    json!({ "predicted": predicted, "peak": peak, "oversized": loader.stats().errors["oversized"] })
}

fn jpeg(width: u16, height: u16, progressive: bool) -> Vec<u8> {
    let pixels = (0..3 * u64::from(width) * u64::from(height))
        .map(|at| (at / 3 % 251 + at / 7000) as u8)
        .collect::<Vec<_>>();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 80);
    encoder.set_progressive(progressive);
    encoder
        .encode(&pixels, width, height, ColorType::Rgb)
        .expect("the image is small enough for a JPEG");
    file
}
