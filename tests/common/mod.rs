//! Images, chains and sources that all test programs share, and checks of errors.

#![allow(missing_docs, reason = "only tests and benches use it")]

use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use feedwater::error::{ConfigError, DataError, Error};
use feedwater::internals::geometry::Size;
use feedwater::internals::image::{HostImage, Image};
use feedwater::op::custom::{Draw, ImageFormula, Kind, Kinds};
use feedwater::op::{self, Chain, Operator};
use feedwater::source::custom::Page;
use feedwater::source::{FileList, Memory, Source};
pub use jpeg_encoder::SamplingFactor;
use jpeg_encoder::{ColorType, Encoder};

pub mod pages;
pub mod with_fields;
#[path = "../../crates/insight/tests/words/mod.rs"]
pub mod words;

/// Whether the environment variable `FEEDWATER_TEST_ALL` is set and not 0, as in `.ci/full`. Then
/// tests of many similar cases try all of them. Otherwise they try some, always the same ones.
pub fn tests_all_cases() -> bool {
    env::var_os("FEEDWATER_TEST_ALL").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Yields one of every three successive cases, or all cases if [`tests_all_cases`]. `number` is the
/// index of the first one, modulo 3. A test that combines the cases with others passes the number
/// of the other case, so that it tries each case at least once. The place among three successive
/// cases varies, so that not all numbers of tried cases are multiples of three.
pub fn some_of<T>(cases: impl IntoIterator<Item = T>, number: usize) -> impl Iterator<Item = T> {
    let all = tests_all_cases();
    let is_tried = move |at: usize| all || (at + at / 3) % 3 == number % 3;
    cases.into_iter().enumerate().filter(move |(at, _)| is_tried(*at)).map(|(_, case)| case)
}

/// Returns pixels with gradients, edges and noise, equal for equal arguments.
pub fn image(seed: u64, width: u32, height: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 59) as u32
    };
    let mut pixels = Vec::with_capacity((3 * width * height) as usize);
    for y in 0..height {
        for x in 0..width {
            let edge = if (x / 7 + y / 5 + seed as u32).is_multiple_of(2) { 60 } else { 0 };
            for channel in 0..3 {
                let slope = (x * (3 + channel) + y * (5 - channel) + 17 * seed as u32) % 160;
                pixels.push((slope + edge + noise()) as u8);
            }
        }
    }
    pixels
}

/// Returns an image of waves with noise, with the same bytes as `picture` in tests/golden/ops.py.
pub fn picture(size: Size, seed: u64) -> Image<u8> {
    let value = |at: u64| {
        let (x, y, c) = (at / 3 % u64::from(size.width), at / 3 / u64::from(size.width), at % 3);
        let mut noise = (at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        noise ^= noise >> 29;
        noise = noise.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56;
        let wave = (x * (5 + c) + y * (3 + 2 * c)) % 512;
        let wave = if wave < 256 { wave } else { 511 - wave };
        (if noise < 96 { noise * 2 } else { wave }) as u8
    };
    Image::from_data(size.window(), (0..3 * size.pixels()).map(value).collect())
}

/// Encodes [`image`] as a baseline JPEG, 4:2:0, quality 90.
pub fn jpeg(seed: u64, width: u32, height: u32) -> Vec<u8> {
    encode(seed, width, height, false)
}

/// Encodes [`image`] as a progressive JPEG.
pub fn progressive(seed: u64, width: u32, height: u32) -> Vec<u8> {
    encode(seed, width, height, true)
}

/// Encodes [`image`] as a PNG.
pub fn png(seed: u64, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let pixels = image(seed, width, height);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    bytes
}

/// Encodes samples with `bits` bits each as a PNG: indices if there is a `palette`, otherwise gray.
/// Samples of 16 bits have the high byte first.
pub fn png_of_samples(
    samples: &[u8],
    (width, height): (u32, u32),
    bits: u8,
    palette: Option<&[u8]>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_depth(png::BitDepth::from_u8(bits).unwrap());
    encoder.set_color(png::ColorType::Grayscale);
    if let Some(palette) = palette {
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_palette(palette.to_vec());
    }
    encoder.write_header().unwrap().write_image_data(samples).unwrap();
    bytes
}

/// Encodes samples of 8 or 16 bits as a PNG of gray, gray and alpha, RGB, or RGBA, by the number of
/// channels. Samples of 16 bits have the high byte first.
pub fn png_of_channels(
    samples: &[u8],
    (width, height): (u32, u32),
    channels: usize,
    bits: u8,
) -> Vec<u8> {
    use png::ColorType::{Grayscale, GrayscaleAlpha, Rgb, Rgba};

    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_depth(png::BitDepth::from_u8(bits).unwrap());
    encoder.set_color([Grayscale, GrayscaleAlpha, Rgb, Rgba][channels - 1]);
    encoder.write_header().unwrap().write_image_data(samples).unwrap();
    bytes
}

/// Encodes gray samples of `bits` bits as an interlaced PNG. `level` returns the sample in a column
/// of a row.
pub fn interlaced_png(
    (width, height): (u32, u32),
    bits: u32,
    level: impl Fn(u32, u32) -> u8,
) -> Vec<u8> {
    // First column and row of each pass, and the distances between its columns and rows.
    let passes = [
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ];
    let mut rows = Vec::new();
    for (first_x, first_y, step_x, step_y) in passes {
        for y in (first_y..height).step_by(step_y) {
            let columns: Vec<u32> = (first_x..width).step_by(step_x).collect();
            let mut row = vec![0; (columns.len() as u32 * bits).div_ceil(8) as usize];
            for (place, x) in (0..).zip(&columns) {
                let shift = 8 - bits - bits * place % 8;
                row[(bits * place / 8) as usize] |= level(*x, y) << shift;
            }
            if !row.is_empty() {
                rows.push(0);
                rows.extend(row);
            }
        }
    }
    let len = rows.len() as u16;
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in &rows {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    let stored = [&[0x78, 1, 1][..], &len.to_le_bytes(), &(!len).to_le_bytes(), &rows].concat();
    let data = [stored, (b << 16 | a).to_be_bytes().to_vec()].concat();
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    let head = [size, vec![bits as u8, 0, 0, 0, 1]].concat();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", head), (b"IDAT", data), (b"IEND", Vec::new())] {
        let chunk = [&kind[..], &data].concat();
        let crc = chunk.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
            })
        });
        png.extend((data.len() as u32).to_be_bytes());
        png.extend(chunk);
        png.extend((!crc).to_be_bytes());
    }
    png
}

/// Encodes [`image`] as a JPEG with this chroma sampling. With `None`, encodes a grayscale JPEG
/// three times as wide, whose levels are the bytes of the image.
pub fn sampled_jpeg(seed: u64, width: u32, height: u32, chroma: Option<SamplingFactor>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 90);
    let (pixels, width) = (image(seed, width, height), width as u16);
    let (width, color) = match chroma {
        Some(factor) => {
            encoder.set_sampling_factor(factor);
            (width, ColorType::Rgb)
        }
        None => (3 * width, ColorType::Luma),
    };
    encoder.encode(&pixels, width, height as u16, color).unwrap();
    bytes
}

/// Encodes [`image`] as a baseline JPEG, 4:4:4, with a restart marker after every third MCU.
pub fn jpeg_with_restarts(seed: u64, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 90);
    encoder.set_restart_interval(3);
    let pixels = image(seed, width, height);
    encoder.encode(&pixels, width as u16, height as u16, ColorType::Rgb).unwrap();
    bytes
}

fn encode(seed: u64, width: u32, height: u32, progressive: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 90);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.set_progressive(progressive);
    let pixels = image(seed, width, height);
    encoder.encode(&pixels, width as u16, height as u16, ColorType::Rgb).unwrap();
    bytes
}

/// Adds the EXIF orientation `value` to a JPEG.
pub fn with_orientation(jpeg: &[u8], value: u16) -> Vec<u8> {
    let mut segment =
        b"\xFF\xE1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    segment.extend(value.to_le_bytes());
    segment.extend([0; 6]);
    [&jpeg[..2], &segment, &jpeg[2..]].concat()
}

/// Returns `count` JPEGs of different sizes in memory; the label is the index.
pub fn jpegs(count: u64) -> Vec<(Vec<u8>, i64)> {
    (0..count)
        .map(|seed| {
            (jpeg(seed, 40 + (seed * 7 % 23) as u32, 30 + (seed * 5 % 19) as u32), seed as i64)
        })
        .collect()
}

/// Returns [`jpegs`] as a source.
pub fn memory(count: u64) -> Memory {
    Memory::new(jpegs(count)).unwrap()
}

/// Chain: random crop to 24x20, flip, normalize.
pub fn training() -> Chain {
    Chain::new()
        .then(op::RandomResizedCrop::to(24, 20))
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
        .then(op::Normalize::IMAGENET)
}

/// The chain of a pipeline file: random crop to 32x24, flip, normalize.
pub const TRAINING: &str = r#"
[[chain]]
op = "random_resized_crop"
width = 32
height = 24
[[chain]]
op = "flip"
horizontal = 0.5
[[chain]]
op = "normalize"
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
"#;

/// Chain: shorter side to 26, centre crop to 22x22, normalize.
pub fn evaluation() -> Chain {
    Chain::new()
        .then(op::Resize::shorter(26))
        .then(op::CenterCrop::to(22, 22))
        .then(op::Normalize::IMAGENET)
}

/// Returns the error of an invalid setting or file.
#[track_caller]
pub fn config_error<T>(result: Result<T, Error>) -> ConfigError {
    match result {
        Err(Error::Config(error)) => error,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("expected an error"),
    }
}

/// Checks that `result` is a configuration error with this key, whose message contains each of
/// `values`.
#[track_caller]
pub fn refused<T>(result: Result<T, Error>, key: &str, values: &[&str]) {
    let error = config_error(result);
    assert_eq!(error.key, key, "{error}");
    assert!(words::has_words(&error.problem, values), "{values:?}: {error}");
}

/// Checks that `result` is an error in a file. The error's key must begin with `key` and end with
/// the line or byte offset `at`, and its message must contain each of `values`.
#[track_caller]
pub fn refused_at<T>(result: Result<T, Error>, key: &str, at: u64, values: &[&str]) {
    let error = config_error(result);
    assert!(error.key.starts_with(&format!("{key}: ")), "{error}");
    assert_eq!(position(&error), at, "{error}");
    assert!(words::has_words(&error.problem, values), "{values:?}: {error}");
}

/// Returns the number at the end of a file error's key: a line or a byte offset, as in
/// `source.list: a.csv, line 4`.
#[track_caller]
pub fn position(error: &ConfigError) -> u64 {
    let digits = error.key.rsplit(|it: char| !it.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("no position in {:?}: {error}", error.key))
}

/// Opens a list of files. If none of the listed files exists, the error names one of them. In this
/// case, creates that file without contents and opens the list again.
pub fn with_a_file(
    list: &Path,
    open: impl Fn() -> Result<FileList, Error>,
) -> Result<FileList, Error> {
    let opened = open();
    let Err(Error::Config(error)) = &opened else { return opened };
    let Some(written) = quoted(&error.problem) else { return opened };
    let file = list.parent().unwrap().join(written);
    // Only the error for missing files contains the whole path. Every other result is returned as
    // it is.
    let names_it = error.problem.contains(&*file.to_string_lossy());
    if !names_it || file.exists() || !file.starts_with(env::temp_dir()) {
        return opened;
    }
    file.parent().map(fs::create_dir_all).transpose().unwrap();
    fs::write(file, "").unwrap();
    open()
}

/// Returns the first text in double quotes in a message.
fn quoted(text: &str) -> Option<String> {
    let begin = text.find('"')?;
    serde_json::Deserializer::from_str(&text[begin..]).into_iter().next()?.ok()
}

/// An operator that runs only on the CPU: replaces each byte `b` by `255 - b`.
#[derive(Clone, Copy, Debug)]
pub struct Invert;

impl Operator for Invert {
    fn name(&self) -> &'static str {
        "invert"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::image::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.image::<Self>(&(), draw.size());
    }
}

impl ImageFormula for Invert {
    type Params = ();

    fn reference(_: &(), src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            panic!("invert takes bytes")
        };
        let window = out.window();
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                out.set_pixel(x, y, src.pixel(x, y).map(|byte| 255 - byte));
            }
        }
    }
}

/// Writes methods of a source that wraps another one, `wraps!(self.field)`: the required ones
/// except `read`, and `inner`.
#[macro_export]
macro_rules! wraps {
    (self.$inner:tt) => {
        fn len(&self) -> u64 {
            self.$inner.len()
        }
        fn label(&self, index: u64) -> i64 {
            self.$inner.label(index)
        }
        fn location(&self, index: u64) -> String {
            self.$inner.location(index)
        }
        fn inner(&self) -> Option<&dyn feedwater::source::Source> {
            Some(&self.$inner)
        }
    };
}

/// A source that wraps another: implements the four required methods and `inner`.
pub struct Wrapping(pub Arc<dyn Source>);

impl Source for Wrapping {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.0.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.0.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.0.read(index, page, limit)
    }
    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.0)
    }
}
