//! Reproducible photo-like JPEGs for the demo, the tests and the benches.
//!
//! Each image is a small landscape or still life, painted row by row from back to front: a sky with a sun and clouds, ridges of
//! fractal noise that fade in haze, a ground in perspective, and stones, fruit, leaves or trunks with shading and shadows.
//! Objects out of focus have soft edges, and sensor noise covers everything. Images cycle through ten scenes, so the default ten
//! classes can be told apart by eye.
//!
//! They cost a JPEG decoder as much as photographs. At the default size and quality they have 0.51 bytes per pixel, and 37 % of
//! their luma AC coefficients are zero (medians); at 3 megapixels 0.30 and 62 %. Figures of real photographs:
//! `benches/results/synthetic-2026-11-22.md`.
//!
//! The bytes are equal on every machine: all arithmetic is integer or one of `+ - * / sqrt` in floating point, which IEEE 754
//! rounds identically everywhere, and the encoder is plain Rust without a SIMD variant.

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
use feedwater::file::{self, AtomicFile};
use feedwater::threads::in_parts;

pub use image::image;

mod image;
mod land;
mod noise;
mod objects;
mod row;
mod scene;

/// Settings of a set of synthetic images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of images, at least 1.
    pub images: u64,
    /// Width in pixels, 1 to 65535.
    pub width: u32,
    /// Height in pixels, 1 to 65535.
    pub height: u32,
    /// JPEG quality in libjpeg's terms, 1 to 100. The chroma has half the resolution in both directions (4:2:0).
    pub quality: u8,
    /// Number of class folders, at least 1; image `i` is in class `i % classes`.
    pub classes: u64,
    /// Seed of the images, next to their index and size.
    pub seed: u64,
    /// Whether JPEGs are progressive instead of baseline.
    pub progressive: bool,
}

impl Default for Settings {
    /// Default: 2000 images of ImageNet's mean size in ten classes.
    fn default() -> Self {
        Self {
            images: 2000,
            width: 500,
            height: 375,
            quality: 92,
            classes: 10,
            seed: 0,
            progressive: false,
        }
    }
}

impl Settings {
    /// Checks the settings; an invalid one is an [`Error::Config`] with its field.
    pub fn check(&self) -> Result<()> {
        let at_least_1 = |key, value| match value {
            0 => Err(Error::config(key, "must be at least 1, is 0")),
            _ => Ok(()),
        };
        at_least_1("images", self.images)?;
        at_least_1("classes", self.classes)?;
        for (key, value) in [("width", self.width), ("height", self.height)] {
            if !(1..=MAX_SIDE).contains(&value) {
                return Err(Error::config(key, format!("must be 1 to {MAX_SIDE}, is {value}")));
            }
        }
        if !(1..=100).contains(&self.quality) {
            return Err(Error::config("quality", format!("must be 1 to 100, is {}", self.quality)));
        }
        Ok(())
    }

    /// Path of image `index` in the directory: `class003/0000013.jpg`.
    pub fn file(&self, index: u64) -> PathBuf {
        let digits = digits(self.classes - 1).max(3);
        let folder = format!("class{:0digits$}", index % self.classes);
        let digits = digits_of_names(self.images);
        Path::new(&folder).join(format!("{index:0digits$}.jpg"))
    }
}

/// Contents of a directory that [`write()`] has filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Settings of the set.
    pub settings: Settings,
    /// Total bytes of all files.
    pub bytes: u64,
}

impl Summary {
    /// Mean bytes per pixel.
    pub fn bytes_per_pixel(&self) -> f64 {
        let Settings { images, width, height, .. } = self.settings;
        self.bytes as f64 / (images as f64 * f64::from(width) * f64::from(height))
    }
}

/// Fills `dir` with the images, on all cores, and calls `progress` with the number of images after each.
///
/// A hidden manifest is written last; [`complete`] uses it to detect a complete set.
///
/// # Errors
///
/// [`Error::Config`] for invalid settings, [`Error::Io`] where a file cannot be written.
pub fn write(dir: &Path, settings: &Settings, progress: impl Fn(u64) + Sync) -> Result<Summary> {
    settings.check()?;
    make_folders(dir, settings)?;
    let manifest = dir.join(MANIFEST);
    if manifest.exists() {
        fs::remove_file(&manifest).map_err(|error| Error::io(&manifest, &error))?;
    }
    let (next, done, bytes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= settings.images {
                break;
            }
            match write_one(dir, settings, index) {
                Ok(len) => {
                    bytes.fetch_add(len, Ordering::Relaxed);
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
    let summary = Summary { settings: *settings, bytes: bytes.into_inner() };
    write_manifest(dir, &summary)?;
    Ok(summary)
}

/// Returns the summary of `dir` if [`write()`] has completed it with these settings.
///
/// Relies on the manifest, which is written last.
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
/// [`Error::Config`] if a side is 0 or over 65535, or if `rgb` does not have `3 * width * height` bytes.
pub fn encode(
    rgb: &[u8],
    width: u32,
    height: u32,
    quality: u8,
    progressive: bool,
) -> Result<Vec<u8>> {
    let side = |key: &str, value: u32| {
        let fits = u16::try_from(value).ok().filter(|&value| value > 0);
        fits.ok_or_else(|| Error::config(key, format!("must be 1 to {MAX_SIDE}, is {value}")))
    };
    let (columns, rows) = (side("width", width)?, side("height", height)?);
    let mut jpeg = Vec::with_capacity(rgb.len() / 4);
    let mut encoder = Encoder::new(&mut jpeg, quality);
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    encoder.set_progressive(progressive);
    encoder
        .encode(rgb, columns, rows, ColorType::Rgb)
        .map_err(|error| Error::config("rgb", error.to_string()))?;
    Ok(jpeg)
}

/// Largest width and height of a JPEG, in pixels.
const MAX_SIDE: u32 = 65_535;

/// Version of the images. Increase it whenever the bytes of any image change.
const VERSION: u32 = 3;

/// Name of the manifest; hidden, so that no source takes it for a sample.
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

fn write_one(dir: &Path, settings: &Settings, index: u64) -> Result<u64> {
    let Settings { width, height, quality, seed, progressive, .. } = *settings;
    let jpeg = encode(&image(seed, index, width, height), width, height, quality, progressive)?;
    let path = dir.join(settings.file(index));
    // Not synced to disk: without a manifest the set is incomplete and can be made again.
    let written = AtomicFile::create(&path).and_then(|mut file| {
        file.write_all(&jpeg)?;
        file.commit_unsynced()
    });
    written.map_err(|error| Error::io(&path, &error))?;
    Ok(jpeg.len() as u64)
}

fn write_manifest(dir: &Path, summary: &Summary) -> Result<()> {
    let path = dir.join(MANIFEST);
    let manifest = Manifest { version: VERSION, summary: *summary };
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|error| Error::Internal { problem: format!("manifest: {error}") })?;
    file::write(&path, text).map_err(|error| Error::io(&path, &error))
}

/// Number of digits in file names, constant up to ten million images.
fn digits_of_names(images: u64) -> usize {
    digits(images - 1).max(7)
}

fn digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn sha256(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// (seed, index, width, height, progressive), SHA-256 of the pixels, SHA-256 of the JPEG.
    #[test]
    fn bytes_are_equal_on_every_machine() {
        let golden = [
            (
                (0, 0, 500, 375, false),
                "e8bf55a2340b98c935c6dd5a9b3542a8ece7a55a8bf4ad7ab7cfa7d279af659c",
                "5c36444c91b70a9ab2df49309c4f12d2cbee3dea9529433c771344285dbdbd8f",
            ),
            (
                (1, 7, 131, 97, true),
                "f1f951d01e07b7c02cc678413b35c992d5c411bf204f852e53a77d545160a616",
                "37a03d2874f1fd31de8c6048c1b2883221bace7e3a144b802bc7080659242a47",
            ),
        ];
        for ((seed, index, width, height, progressive), pixels, jpeg) in golden {
            let rgb = image(seed, index, width, height);
            let file = encode(&rgb, width, height, 92, progressive).unwrap();
            let found = (sha256(&rgb), sha256(&file));
            assert_eq!(found, (pixels.into(), jpeg.into()), "seed {seed} index {index}");
        }
    }

    #[test]
    fn every_scene_is_equal_on_every_machine() {
        let scenes: Vec<u8> = (20..30).flat_map(|index| image(5, index, 120, 90)).collect();
        assert_eq!(
            sha256(&scenes),
            "959165e9bf057f7285ccd4b1d716a2db7fb07e29871cee7d13d52d108955a6a8"
        );
    }

    #[test]
    fn an_image_depends_on_seed_and_index() {
        let base = image(0, 0, 40, 30);
        assert_eq!(base, image(0, 0, 40, 30));
        assert_ne!(base, image(0, 1, 40, 30));
        assert_ne!(base, image(1, 0, 40, 30));
    }

    #[test]
    fn smallest_and_thinnest_images_can_be_made() {
        for (width, height) in [(1, 1), (1, 200), (300, 1), (2, 3)] {
            let rgb = image(3, 0, width, height);
            assert_eq!(rgb.len(), (3 * width * height) as usize);
            assert!(encode(&rgb, width, height, 90, false).is_ok(), "{width}x{height}");
        }
    }

    #[test]
    fn a_jpeg_has_about_as_many_bytes_as_a_photograph_of_its_size() {
        let quality = Settings::default().quality;
        for (width, height, count, expected) in
            [(500, 375, 10, 0.46..0.56), (2048, 1536, 2, 0.24..0.40)]
        {
            let bytes: usize = (0..u64::from(count))
                .map(|index| image(0, index, width, height))
                .map(|rgb| encode(&rgb, width, height, quality, false).unwrap().len())
                .sum();
            let per_pixel = bytes as f64 / f64::from(count * width * height);
            assert!(expected.contains(&per_pixel), "{width}x{height}: {per_pixel} bytes per pixel");
        }
    }

    #[test]
    fn a_set_is_complete_only_for_its_own_settings() {
        let dir = tempfile::tempdir().unwrap();
        let settings =
            Settings { images: 7, width: 24, height: 16, classes: 3, ..Default::default() };
        assert_eq!(complete(dir.path(), &settings), None);
        let most = AtomicU64::new(0);
        let summary =
            write(dir.path(), &settings, |done| _ = most.fetch_max(done, Ordering::Relaxed))
                .unwrap();
        assert_eq!(most.into_inner(), 7);
        assert_eq!(complete(dir.path(), &settings), Some(summary));
        assert_eq!(complete(dir.path(), &Settings { seed: 1, ..settings }), None);
        let file = dir.path().join("class001/0000004.jpg");
        let jpeg = fs::read(&file).unwrap();
        let rgb = image(0, 4, 24, 16);
        assert_eq!(jpeg, encode(&rgb, 24, 16, settings.quality, false).unwrap());
        let on_disk: u64 = (0..7)
            .map(|index| fs::metadata(dir.path().join(settings.file(index))).unwrap().len())
            .sum();
        assert_eq!(on_disk, summary.bytes);
    }

    #[test]
    fn errors_of_invalid_settings_name_the_field() {
        let default = Settings::default();
        // The field, and the value and its bounds in ascending order.
        for (settings, field, numbers) in [
            (Settings { images: 0, ..default }, "images", &[0, 1][..]),
            (Settings { classes: 0, ..default }, "classes", &[0, 1]),
            (Settings { width: 0, ..default }, "width", &[0, 1, 65_535]),
            (Settings { height: 65_536, ..default }, "height", &[1, 65_535, 65_536]),
            (Settings { quality: 101, ..default }, "quality", &[1, 100, 101]),
        ] {
            let error = settings.check().unwrap_err();
            let Error::Config(error) = error else { panic!("{error}") };
            let digits = error.problem.split(|it: char| !it.is_ascii_digit());
            let mut found: Vec<u32> = digits.filter_map(|it| it.parse().ok()).collect();
            found.sort_unstable();
            assert_eq!((error.key.as_str(), &found[..]), (field, numbers), "{error}");
        }
    }
}
