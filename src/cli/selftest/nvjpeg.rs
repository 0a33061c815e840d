//! nvJPEG against libjpeg-turbo: within [`MOST`] levels everywhere, and within [`MEAN`] on average.
//!
//! The two agree in entropy decoding, which is exact, and may differ where they round: in the inverse DCT (by a level
//! of Y, Cb or Cr), in the interpolation of halved chroma (by another) and in the conversion to RGB, which multiplies
//! an error of chroma by up to 1.772 and adds that of luma. Four levels is where these meet, which is seldom. What is
//! really wrong, such as a window that is off by a pixel, differs by tens at every edge. The bound is chosen by this
//! reckoning; no GPU has confirmed it yet.

use std::sync::Arc;

use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, Crop, Placement};
use feedwater::plan::Last;
use feedwater::source::Memory;
use feedwater::synth;
use feedwater::tensor::{DType, Layout};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::{Check, Found, epoch, words};

/// Most levels by which a byte of RGB may differ.
const MOST: u8 = 4;

/// Most levels by which the bytes of all windows of one sort of JPEG may differ on average.
const MEAN: f64 = 0.5;

/// Columns and rows of the pictures: no multiple of a block, and large enough for many.
const SIZE: (u32, u32) = (203, 149);

/// Windows as x, y, width, height: all, in the middle of blocks, the last column and row, one pixel.
const WINDOWS: [[u32; 4]; 4] =
    [[0, 0, SIZE.0, SIZE.1], [33, 17, 101, 55], [SIZE.0 - 9, SIZE.1 - 7, 9, 7], [7, 91, 1, 1]];

/// One check for each sort of JPEG.
pub fn checks() -> Vec<Check> {
    let sorts = [
        ("4:2:0", SamplingFactor::F_2_2, false, false),
        ("4:4:4", SamplingFactor::F_1_1, false, false),
        ("gray", SamplingFactor::F_1_1, true, false),
        ("progressive", SamplingFactor::F_2_2, false, true),
    ];
    sorts
        .into_iter()
        .map(|(name, sampling, gray, progressive)| {
            let samples = (0..4).map(|index| picture(index, sampling, gray, progressive)).collect();
            let found = samples_agree(samples);
            Check::new(format!("gpu/decode/{name}"), found)
        })
        .collect()
}

fn picture(
    index: u64,
    sampling: SamplingFactor,
    gray: bool,
    progressive: bool,
) -> Result<Vec<u8>, String> {
    let rgb = synth::picture(4, index, SIZE.0, SIZE.1);
    let mut jpeg = Vec::new();
    let mut encoder = Encoder::new(&mut jpeg, 90);
    encoder.set_sampling_factor(sampling);
    encoder.set_progressive(progressive);
    let (width, height) = (SIZE.0 as u16, SIZE.1 as u16);
    let encoded = if gray {
        let luma: Vec<u8> = rgb.chunks_exact(3).map(|pixel| pixel[1]).collect();
        encoder.encode(&luma, width, height, ColorType::Luma)
    } else {
        encoder.encode(&rgb, width, height, ColorType::Rgb)
    };
    encoded.map_err(|error| error.to_string())?;
    Ok(jpeg)
}

/// Decodes every window with both and compares the bytes.
fn samples_agree(samples: Result<Vec<Vec<u8>>, String>) -> Found {
    let samples: Vec<_> = samples?.into_iter().map(|jpeg| (jpeg, 0)).collect();
    let source = Arc::new(Memory::new(samples).map_err(words)?);
    let (mut worst, mut sum, mut count) = (0, 0, 0);
    for [x, y, width, height] in WINDOWS {
        let run = |device, decode| {
            let chain = Chain::new().then(Crop { x, y, width, height });
            let builder = LoaderBuilder::new(source.clone(), chain)
                .batch(4)
                .last(Last::Partial)
                .output(DType::U8, Layout::Nhwc)
                .decode(decode)
                .device(device);
            epoch(builder)
        };
        let (_, expected) = run(DeviceChoice::Cpu, Placement::Cpu)?;
        let (records, given) = run(DeviceChoice::Gpu(0), Placement::Gpu)?;
        let window = format!("{width}x{height}+{x}+{y}");
        if let Some(record) = records.iter().find(|record| record.outcome.name() == "cpu") {
            let index = record.index;
            return Err(format!("window {window}: nvJPEG did not decode picture {index}"));
        }
        let (most, total) = difference(&expected, &given);
        if most > MOST {
            return Err(format!(
                "window {window}: differs by up to {most} levels, {MOST} are allowed"
            ));
        }
        (worst, sum, count) = (most.max(worst), sum + total, count + expected.len());
    }
    let mean = sum as f64 / count as f64;
    if mean > MEAN {
        return Err(format!("differs by {mean:.3} levels on average, {MEAN} are allowed"));
    }
    Ok(format!("within {worst} levels of the CPU ({MOST} allowed), {mean:.3} on average ({MEAN})"))
}

/// The largest difference of bytes, and the sum of all.
fn difference(a: &[u8], b: &[u8]) -> (u8, u64) {
    let all = || a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    (all().max().unwrap_or(0), all().map(u64::from).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_largest_and_sum() {
        assert_eq!(difference(&[1, 2, 3, 4], &[1, 2, 3, 4]), (0, 0));
        assert_eq!(difference(&[10, 20, 30, 40], &[11, 20, 27, 40]), (3, 4));
    }

    #[test]
    fn every_sort_of_picture_can_be_made() {
        for gray in [false, true] {
            for progressive in [false, true] {
                picture(1, SamplingFactor::F_2_2, gray, progressive).unwrap();
            }
        }
    }
}
