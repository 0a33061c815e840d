//! Code that the benchmarks share: image sets, chains, and properties of the machine.

#![allow(dead_code, reason = "each bench uses its own part")]

use std::fs;
use std::path::PathBuf;

use feedwater::op::{self, Chain};
use feedwater_tools::synth;

pub mod photos;

/// Image sizes of the two uniform sets: the mean size in ImageNet, and a camera image of 3
/// megapixels.
pub const SIZES: [(u32, u32); 2] = [(500, 375), (2048, 1536)];

/// Returns the directory for images and lists: `FEEDWATER_BENCH_DATA`, or, if the variable is not
/// set, a directory below the target directory. Set the variable if the program runs on another
/// machine than the one that built it.
pub fn directory() -> PathBuf {
    let named = std::env::var_os("FEEDWATER_BENCH_DATA");
    named.map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}

/// Returns the directory with `images` photo-like JPEGs of this size, below [`directory`]. Creates
/// missing images, and reads all into the page cache.
pub fn set(images: u64, size: (u32, u32)) -> PathBuf {
    images_and_dir(images, size).1
}

/// Returns the paths of the images that [`set`] creates.
pub fn images(images: u64, size: (u32, u32)) -> Vec<PathBuf> {
    images_and_dir(images, size).0
}

fn images_and_dir(images: u64, size: (u32, u32)) -> (Vec<PathBuf>, PathBuf) {
    let name = format!("uniform-{images}-{}", name_of_size(size));
    (make(&name, &synth::Settings::uniform(images, size.0, size.1)), directory().join(name))
}

fn name_of_size((width, height): (u32, u32)) -> String {
    format!("{width}x{height}")
}

/// Creates a synthetic set in a folder below [`directory`] if it is missing. Reads the set into the
/// page cache, and returns the paths of its files.
fn make(folder: &str, settings: &synth::Settings) -> Vec<PathBuf> {
    let dir = directory().join(folder);
    if synth::complete(&dir, settings).is_none() {
        eprintln!("making {} images in {}", settings.images, dir.display());
        synth::write(&dir, settings, |_| ()).expect("the directory is writable");
    }
    let files: Vec<_> = (0..settings.images).map(|index| dir.join(settings.file(index))).collect();
    for file in &files {
        fs::read(file).expect("the set is complete");
    }
    files
}

/// Writes a list file for [`FileList`](feedwater::source::FileList) below [`directory`]. An image
/// may be listed several times.
pub fn list(name: &str, images: &[PathBuf]) -> PathBuf {
    fs::create_dir_all(directory()).expect("the directory can be created");
    let file = directory().join(name);
    let lines = images.iter().map(|image| format!("{}\t0\n", image.display()));
    fs::write(&file, lines.collect::<String>()).expect("the directory is writable");
    file
}

/// Returns the training chain: RandomResizedCrop 224, horizontal flip, ImageNet normalization.
pub fn training() -> Chain {
    Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
        .then(op::Normalize::IMAGENET)
}

/// Returns the evaluation chain, which resizes the shorter side to 256, crops the centre 224x224,
/// and applies ImageNet normalization.
pub fn evaluation() -> Chain {
    Chain::new()
        .then(op::Resize::shorter(256))
        .then(op::CenterCrop::to(224, 224))
        .then(op::Normalize::IMAGENET)
}

/// Number of threads that can run at once.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Name of the processor.
pub fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("unknown", |(_, name)| name).to_string()
}

/// Returns a value of `/proc/self/status`, in bytes.
pub fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("/proc is readable");
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")).map(str::trim);
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("the row is a number of kB") * 1024
}

/// Returns the median. For an even number of values, it is the mean of the two values in the
/// middle.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
