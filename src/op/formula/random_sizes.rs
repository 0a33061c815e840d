//! Sizes that torchvision draws (`torchvision/transforms/v2/_geometry.py`): `random_zoom_out`, `scale_jitter`,
//! `random_shortest_size`. torchvision computes the first two in f32, and so do these functions.

use crate::geometry::Size;
use crate::random::SampleRng;

use super::pad::Padding;

/// Draws the numbers of torchvision's `RandomZoomOut` (after its probability): the factor of the canvas, and the place of the image
/// in it, from left and top (0) to right and bottom (1).
pub fn draw_zoom_out(factors: [f64; 2], rng: &mut SampleRng) -> (f32, [f32; 2]) {
    (drawn(factors, rng), [rng.uniform() as f32, rng.uniform() as f32])
}

/// Padding of `random_zoom_out`.
pub fn zoom_out(input: Size, factor: f32, place: [f32; 2]) -> Padding {
    let axis = |len: u32, place: f32| {
        let canvas = (len as f32 * factor) as i32;
        let before = ((canvas - len as i32) as f32 * place) as i32;
        (before, canvas - (before + len as i32))
    };
    let (left, right) = axis(input.width, place[0]);
    let (top, bottom) = axis(input.height, place[1]);
    Padding { left, top, right, bottom }
}

/// Draws the scale of torchvision's `ScaleJitter`: uniform in `scales`.
pub fn draw_scale_jitter(scales: [f64; 2], rng: &mut SampleRng) -> f32 {
    drawn(scales, rng)
}

/// Size of `scale_jitter`: the largest within `target`, times `scale`. At least one pixel, where torchvision fails.
pub fn scale_jitter(input: Size, target: Size, scale: f32) -> Size {
    let (width, height) = (f64::from(input.width), f64::from(input.height));
    let fit = (f64::from(target.height) / height).min(f64::from(target.width) / width);
    let factor = fit as f32 * scale;
    let side = |len: u32| ((len as f32 * factor) as u32).max(1);
    Size::new(side(input.width), side(input.height))
}

/// Draws one of the shorter sides of torchvision's `RandomShortestSize`, evenly.
pub fn draw_shortest_size(shorter: &[u32], rng: &mut SampleRng) -> u32 {
    shorter[rng.below(shorter.len() as u64) as usize]
}

/// Size of `random_shortest_size`: the shorter side has `shorter` pixels, unless the longer one would have more than `longest`. At
/// least one pixel, where torchvision fails.
pub fn shortest_size(input: Size, shorter: u32, longest: Option<u32>) -> Size {
    let (short, long) = (input.width.min(input.height), input.width.max(input.height));
    let by_short = f64::from(shorter) / f64::from(short);
    let factor = longest.map_or(by_short, |most| by_short.min(f64::from(most) / f64::from(long)));
    let side = |len: u32| ((f64::from(len) * factor) as u32).max(1);
    Size::new(side(input.width), side(input.height))
}

/// Uniform in a range, in f32 as `low + rand * (high - low)`.
fn drawn([low, high]: [f64; 2], rng: &mut SampleRng) -> f32 {
    rng.uniform() as f32 * (high - low) as f32 + low as f32
}
