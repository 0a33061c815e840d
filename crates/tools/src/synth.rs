//! Generates reproducible photo-like JPEGs for the demo, the tests and the benchmarks.
//!
//! Each image shows a small landscape or still life, which is painted from back to front. It has a
//! sky with a sun and clouds, ridges of fractal noise that fade into haze, and a ground in
//! perspective. In front are stones, fruit, leaves or trunks with shading and shadows. Objects that
//! are out of focus have soft edges, and sensor noise covers the whole image. The images cycle
//! through ten scenes, so a viewer can tell the ten default classes apart.
//!
//! The files of a [`Files::LikeImageNet`] set have the chroma samplings, qualities, sizes and
//! Huffman tables that were counted on ImageNet files, in the same proportions. All files of a
//! [`Files::Uniform`] set have one size, quality and chroma sampling. [`census`] counts the
//! composition of any set.
//!
//! A JPEG decoder takes as long for these files as for photographs. A set like ImageNet has 0.54
//! bytes per pixel, as counted on 1,000 ImageNet files. Uniform images of the default size and
//! quality have 0.51 bytes per pixel, and 37 % of their luma AC coefficients are zero (medians).
//! `benches/results/synthetic-2026-11-27.md` has the figures of real photographs.
//!
//! The files have the same bytes on every machine. The code computes only with integers, and with
//! `+ - * / sqrt` in floating point, which IEEE 754 rounds identically everywhere. The encoder is
//! plain Rust and has no SIMD variants.

use std::fs;
use std::io::Write;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use serde::{Deserialize, Serialize};

use feedwater::error::{Error, Result};
use feedwater::internals::file::{self, AtomicFile};
use feedwater::internals::header::Sampling;
use feedwater::internals::threads::in_parts;

use census::{Census, FileFacts};
use image::Detail;
use mixture::Encoding;

pub use image::image;
pub use optimize::optimized;

pub mod census;
mod huffman;
mod image;
mod land;
mod mixture;
mod noise;
mod objects;
mod optimize;
mod row;
mod scene;
mod segments;

/// Settings of a set of synthetic images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of images, at least 1.
    pub images: u64,
    /// Number of class folders, at least 1. Image `i` is in class `i % classes`.
    pub classes: u64,
    /// Seed of the images. The pixels of an image depend on the seed, its index and its size.
    pub seed: u64,
    /// Sizes and encoding of the files.
    pub files: Files,
}

/// Sizes and encoding of the files of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// Files with chroma samplings, qualities, sizes and Huffman tables in the proportions that
    /// were counted on 1,000 ImageNet files.
    #[default]
    #[serde(rename = "like-imagenet")]
    LikeImageNet,
    /// Files that all have the same size, quality and chroma sampling (4:2:0).
    Uniform(Uniform),
}

/// Size and encoding of all files of a uniform set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Uniform {
    /// Width in pixels, 1 to 65535.
    pub width: u32,
    /// Height in pixels, 1 to 65535.
    pub height: u32,
    /// JPEG quality, 1 to 100 as in libjpeg. The chroma has half the resolution in both directions
    /// (4:2:0).
    pub quality: u8,
    /// Whether JPEGs are progressive instead of baseline.
    pub progressive: bool,
}

impl Default for Settings {
    /// Settings of 2000 images like ImageNet's in ten classes, with seed 0.
    fn default() -> Self {
        Self { images: 2000, classes: 10, seed: 0, files: Files::default() }
    }
}

impl Default for Uniform {
    /// Images of 500 x 375 pixels, the most frequent size of ImageNet, in quality 92.
    fn default() -> Self {
        Self { width: 500, height: 375, quality: 92, progressive: false }
    }
}

impl Settings {
    /// Creates the settings of a uniform set with the default quality.
    pub fn uniform(images: u64, width: u32, height: u32) -> Self {
        let files = Files::Uniform(Uniform { width, height, ..Uniform::default() });
        Self { images, files, ..Self::default() }
    }

    /// Checks the settings. If a field is invalid, fails with [`Error::Config`] that names the
    /// field.
    pub fn check(&self) -> Result<()> {
        let at_least_1 = |key, value| match value {
            0 => Err(Error::config(key, "must be at least 1, is 0")),
            _ => Ok(()),
        };
        at_least_1("images", self.images)?;
        at_least_1("classes", self.classes)?;
        let Files::Uniform(Uniform { width, height, quality, .. }) = self.files else {
            return Ok(());
        };
        for (key, value) in [("width", width), ("height", height)] {
            if !(1..=MAX_SIDE).contains(&value) {
                return Err(Error::config(key, format!("must be 1 to {MAX_SIDE}, is {value}")));
            }
        }
        if !(1..=100).contains(&quality) {
            return Err(Error::config("quality", format!("must be 1 to 100, is {quality}")));
        }
        Ok(())
    }

    /// Path of image `index` below the directory, such as `class003/0000013.jpg`.
    pub fn file(&self, index: u64) -> PathBuf {
        let digits = digits(self.classes - 1).max(3);
        let folder = format!("class{:0digits$}", index % self.classes);
        let digits = digits_of_names(self.images);
        Path::new(&folder).join(format!("{index:0digits$}.jpg"))
    }

    /// Returns the content of file `index` of the set.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Config`] for invalid sizes.
    pub fn jpeg(&self, index: u64) -> Result<Vec<u8>> {
        let form = match self.files {
            Files::LikeImageNet => Encoding::of(self.seed, index),
            Files::Uniform(Uniform { width, height, quality, progressive }) => {
                let rgb = image(self.seed, index, width, height);
                return encode(&rgb, width, height, quality, progressive);
            }
        };
        let rgb = image::detailed(self.seed, index, form.size, form.detail);
        let jpeg = encode_as(&rgb, &form)?;
        if form.own_tables && !form.progressive { optimized(&jpeg) } else { Ok(jpeg) }
    }
}

/// Settings and composition of a directory that [`write()`] has filled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Settings of the set.
    pub settings: Settings,
    /// Composition of the set, counted on the written files.
    pub census: Census,
}

/// Writes the images of a set into `dir`, using all cores. Calls `progress` after each image with
/// the number of images written so far.
///
/// Writes a hidden manifest after all images. [`complete`] uses the manifest to check that the set
/// is complete.
///
/// # Errors
///
/// Fails with [`Error::Config`] for invalid settings, and with [`Error::Io`] if a file cannot be
/// written.
pub fn write(dir: &Path, settings: &Settings, progress: impl Fn(u64) + Sync) -> Result<Summary> {
    settings.check()?;
    make_folders(dir, settings)?;
    let manifest = dir.join(MANIFEST);
    if manifest.exists() {
        fs::remove_file(&manifest).map_err(|error| Error::io(&manifest, &error))?;
    }
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let facts = Mutex::new(Vec::new());
    let failed = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= settings.images {
                break;
            }
            match write_one(dir, settings, index) {
                Ok(file) => {
                    if let Ok(mut facts) = facts.lock() {
                        facts.push(file);
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    if let Ok(mut failure) = failure.lock() {
                        failure.get_or_insert(error);
                    }
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for part in in_parts(threads, |_| work()) {
        part.unwrap_or_else(|panic| resume_unwind(panic));
    }
    if let Ok(Some(error)) = failure.into_inner() {
        return Err(error);
    }
    let census = Census::of(&facts.into_inner().unwrap_or_default());
    let summary = Summary { settings: *settings, census };
    write_manifest(dir, &summary)?;
    Ok(summary)
}

/// Returns the summary of `dir` if [`write()`] has written the complete set with these settings.
/// The manifest proves that, because it is written last.
///
pub fn complete(dir: &Path, settings: &Settings) -> Option<Summary> {
    let text = fs::read(dir.join(MANIFEST)).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    (manifest.version == VERSION && manifest.summary.settings == *settings)
        .then_some(manifest.summary)
}

/// Encodes `width * height` RGB pixels as a baseline or progressive JPEG (4:2:0).
///
/// # Errors
///
/// Fails with [`Error::Config`] if a side is 0 or over 65535, or if `rgb` does not have three bytes
/// per pixel.
pub fn encode(
    rgb: &[u8],
    width: u32,
    height: u32,
    quality: u8,
    progressive: bool,
) -> Result<Vec<u8>> {
    let (size, sampling) = ([width, height], Sampling::S420);
    encode_as(
        rgb,
        &Encoding {
            size,
            sampling,
            quality,
            progressive,
            own_tables: false,
            detail: Detail::UNIFORM,
        },
    )
}

/// Encodes RGB pixels as a JPEG. Sequential files always get the standard Huffman tables here. The
/// caller replaces them if the file must have tables of its own.
fn encode_as(rgb: &[u8], form: &Encoding) -> Result<Vec<u8>> {
    let Encoding { size: [width, height], sampling, quality, progressive, own_tables, .. } = *form;
    let side = |key: &str, value: u32| {
        let fits = u16::try_from(value).ok().filter(|&value| value > 0);
        fits.ok_or_else(|| Error::config(key, format!("must be 1 to {MAX_SIDE}, is {value}")))
    };
    let (columns, rows) = (side("width", width)?, side("height", height)?);
    let mut jpeg = Vec::with_capacity(rgb.len() / 4);
    let mut encoder = Encoder::new(&mut jpeg, quality);
    encoder.set_progressive(progressive);
    // In this call, the encoder optimizes only the tables of progressive files. To optimize those
    // of a sequential file, it would write one scan per component. So the tables of sequential
    // files are replaced later.
    encoder.set_optimized_huffman_tables(progressive && own_tables);
    encoder.set_sampling_factor(match sampling {
        Sampling::S422 => SamplingFactor::R_4_2_2,
        Sampling::S440 => SamplingFactor::R_4_4_0,
        Sampling::S420 => SamplingFactor::R_4_2_0,
        _ => SamplingFactor::R_4_4_4,
    });
    let encoded = if sampling == Sampling::Gray {
        encoder.encode(&luma(rgb), columns, rows, ColorType::Luma)
    } else {
        encoder.encode(rgb, columns, rows, ColorType::Rgb)
    };
    encoded.map_err(|error| Error::config("rgb", error.to_string()))?;
    Ok(jpeg)
}

/// Computes the luma of RGB pixels with the weights of JFIF, as multiples of 1/256.
fn luma(rgb: &[u8]) -> Vec<u8> {
    let weighted = |&[red, green, blue]: &[u8; 3]| {
        (77 * u32::from(red) + 150 * u32::from(green) + 29 * u32::from(blue) + 128) >> 8
    };
    // The weights add up to 256, so the result fits in a byte.
    rgb.as_chunks().0.iter().map(|pixel| weighted(pixel) as u8).collect()
}

/// Largest width and height of a JPEG, in pixels.
const MAX_SIDE: u32 = 65_535;

/// Version of the images. Increase it whenever a change of the code changes the bytes of any image.
const VERSION: u32 = 4;

/// Name of the manifest. It is hidden, so no source reads it as a sample.
const MANIFEST: &str = ".feedwater-synth.json";

#[derive(Serialize, Deserialize)]
struct Manifest {
    version: u32,
    #[serde(flatten)]
    summary: Summary,
}

fn make_folders(dir: &Path, settings: &Settings) -> Result<()> {
    for class in 0..settings.classes.min(settings.images) {
        let file = dir.join(settings.file(class));
        let folder = file.parent().unwrap_or(dir);
        fs::create_dir_all(folder).map_err(|error| Error::io(folder, &error))?;
    }
    Ok(())
}

fn write_one(dir: &Path, settings: &Settings, index: u64) -> Result<Option<FileFacts>> {
    let jpeg = settings.jpeg(index)?;
    let path = dir.join(settings.file(index));
    // Files are not synced to disk. After a crash the manifest is missing, so the set counts as
    // incomplete and is written again.
    let written = AtomicFile::create(&path).and_then(|mut file| {
        file.write_all(&jpeg)?;
        file.commit_unsynced()
    });
    written.map_err(|error| Error::io(&path, &error))?;
    Ok(FileFacts::of(&jpeg))
}

fn write_manifest(dir: &Path, summary: &Summary) -> Result<()> {
    let path = dir.join(MANIFEST);
    let manifest = Manifest { version: VERSION, summary: summary.clone() };
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|error| Error::Internal { problem: format!("manifest: {error}") })?;
    file::write(&path, text).map_err(|error| Error::io(&path, &error))
}

/// Number of digits of the image number in file names. At least 7, so all sets of up to ten million
/// images have equally long names.
fn digits_of_names(images: u64) -> usize {
    digits(images - 1).max(7)
}

fn digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests;
