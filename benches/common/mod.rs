//! Shared parts of the loader benches: the image set, the chain, and properties of the machine.

#![allow(dead_code, reason = "each bench uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};

use feedwater::op::{self, Chain};
use feedwater_tools::synth;

/// Width and height of the images: ImageNet's mean size, and 3 megapixels of a camera.
pub const SIZES: [(u32, u32); 2] = [(500, 375), (2048, 1536)];

/// Directory for images and lists: `FEEDWATER_BENCH_DATA`, which a program needs on another machine than the one that built it, else
/// one below the target directory.
pub fn directory() -> PathBuf {
    let named = std::env::var_os("FEEDWATER_BENCH_DATA");
    named.map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}

/// Returns the directory of `images` photo-like JPEGs of that size, below [`directory`] and in the page cache. Creates
/// them if missing.
pub fn set(images: u64, (width, height): (u32, u32)) -> PathBuf {
    let name = format!("synth-{images}-{width}x{height}");
    let dir = directory().join(name);
    let settings = synth::Settings { images, width, height, ..Default::default() };
    if synth::complete(&dir, &settings).is_none() {
        eprintln!("making {images} images of {width}x{height} in {}", dir.display());
        synth::write(&dir, &settings, |_| ()).expect("the directory is writable");
    }
    for index in 0..images {
        fs::read(dir.join(settings.file(index))).expect("the set is complete");
    }
    dir
}

/// Writes a list file for [`FileList`](feedwater::source::FileList) below [`directory`]; an image may occur several times.
pub fn list(name: &str, images: &[PathBuf]) -> PathBuf {
    fs::create_dir_all(directory()).expect("the directory can be created");
    let file = directory().join(name);
    let lines = images.iter().map(|image| format!("{}\t0\n", image.display()));
    fs::write(&file, lines.collect::<String>()).expect("the directory is writable");
    file
}

/// Paths of the images of a set that [`set`] makes.
pub fn images(images: u64, (width, height): (u32, u32)) -> Vec<PathBuf> {
    let dir = set(images, (width, height));
    let settings = synth::Settings { images, width, height, ..Default::default() };
    (0..images).map(|index| dir.join(settings.file(index))).collect()
}

/// Bytes per pixel of a set that [`set`] made.
pub fn bytes_per_pixel(dir: &Path, images: u64, (width, height): (u32, u32)) -> f64 {
    let settings = synth::Settings { images, width, height, ..Default::default() };
    let bytes = |index| fs::metadata(dir.join(settings.file(index))).map_or(0, |it| it.len());
    let bytes: u64 = (0..images).map(bytes).sum();
    bytes as f64 / (images * u64::from(width) * u64::from(height)) as f64
}

/// RandomResizedCrop 224, horizontal flip, ImageNet normalize.
pub fn training() -> Chain {
    Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
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

/// Median; for an even number of values the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
