//! Operators on the CPU: every fast path against its reference.

use std::collections::BTreeMap;

use feedwater::geometry::{Roi, Size};
use feedwater::image::{HostImage, Image, PixelType};
use feedwater::op::{AnyOperator, Wanted};
use feedwater::random::{SampleKey, SampleRng};
use feedwater_tools::synth;

use super::{Check, Found};

/// Returns a check per operator that compares its fast path with its reference.
pub fn checks() -> Vec<Check> {
    let mut found: BTreeMap<&str, Found> = BTreeMap::new();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for operator in feedwater::op::examples() {
        let name = operator.name();
        for (sample, size) in SIZES.into_iter().enumerate() {
            for pixels in [PixelType::U8, PixelType::F32] {
                let Ok(out) = operator.pixels(pixels) else { continue };
                *counts.entry(name).or_default() += 1;
                if let Err(problem) = parity(&*operator, sample as u64, size, pixels, out) {
                    found.insert(name, Err(problem));
                }
            }
        }
    }
    counts
        .into_iter()
        .map(|(name, count)| {
            let well = Ok(format!("fast path equals the reference bit for bit in {count} cases"));
            Check::new(format!("operator/{name}"), found.remove(name).unwrap_or(well))
        })
        .collect()
}

/// Image sizes: odd, thin and ordinary.
const SIZES: [Size; 5] =
    [Size::new(61, 47), Size::new(1, 1), Size::new(3, 200), Size::new(333, 2), Size::new(128, 96)];

fn parity(
    operator: &dyn AnyOperator,
    index: u64,
    size: Size,
    pixels: PixelType,
    out: PixelType,
) -> Result<(), String> {
    let mut rng = SampleRng::new(SampleKey { seed: 1, epoch: 0, index }, 0);
    let (output, mut params) = operator.prepare(size, &mut rng);
    let mut table = Vec::new();
    let wanted = Wanted { input: size, reduction: 1, output: output.window() };
    let window = operator.demand(&mut params, wanted, &mut table);
    let src = input(index, size, window, pixels);
    let mut reference = HostImage::new(out, output.window());
    let mut fast = reference.clone();
    operator.reference(&params, &table, &src, &mut reference);
    operator.apply(&params, &table, &src, &mut fast);
    match same(&reference, &fast) {
        true => Ok(()),
        false => Err(format!("{operator:?} on {size}: the fast path differs from the reference")),
    }
}

/// Creates a window of an image.
fn input(index: u64, size: Size, window: Roi, pixels: PixelType) -> HostImage {
    let rgb = synth::image(1, index, size.width, size.height);
    let whole = Image::from_data(size.window(), rgb);
    let data: Vec<u8> = (window.y..window.bottom())
        .flat_map(|y| (window.x..window.right()).map(move |x| (x, y)))
        .flat_map(|(x, y)| whole.pixel(x, y))
        .collect();
    match pixels {
        PixelType::U8 => HostImage::U8(Image::from_data(window, data)),
        PixelType::F32 => {
            let data = data.into_iter().map(|byte| f32::from(byte) / 255.0 - 0.5).collect();
            HostImage::F32(Image::from_data(window, data))
        }
    }
}

/// Whether two images are equal bit for bit, floats included.
fn same(a: &HostImage, b: &HostImage) -> bool {
    match (a, b) {
        (HostImage::U8(a), HostImage::U8(b)) => a == b,
        (HostImage::F32(a), HostImage::F32(b)) => {
            a.window() == b.window()
                && a.data().iter().zip(b.data()).all(|(a, b)| a.to_bits() == b.to_bits())
        }
        _ => false,
    }
}
