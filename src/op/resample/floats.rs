//! Resampling of floats, bit-identical to `Image.resize` of Pillow for images of mode `F`
//! (`ImagingResampleHorizontal_32bpc` and `ImagingResampleVertical_32bpc` of `Resample.c`): sums of
//! f64, rounded to f32 after the horizontal and after the vertical pass.

use crate::geometry::Roi;
use crate::image::Image;
use crate::tensor::CHANNELS;

use super::Params;

/// Window of the image between the horizontal and the vertical pass.
pub fn between(params: &Params, table: &[i32]) -> Roi {
    let (wanted, inputs) = (params.wanted(), params.rows(table).inputs());
    Roi::new(wanted.x, inputs.start, wanted.width, inputs.end - inputs.start)
}

/// Horizontal pass. `out` has the window that [`between`] returns.
pub fn across(params: &Params, table: &[i32], src: &Image<f32>, out: &mut Image<f32>) {
    let (columns, window) = (params.columns(table), out.window());
    for y in window.y..window.bottom() {
        let pixels = src.row(y).as_chunks::<CHANNELS>().0;
        let outputs = out.row_mut(y).as_chunks_mut::<CHANNELS>().0;
        for (number, pixel) in outputs.iter_mut().enumerate() {
            let (first, weights) = columns.float_output(number);
            let taps = &pixels[(first - src.window().x) as usize..];
            *pixel = weighted(weights.zip(taps.iter().copied()));
        }
    }
}

/// Vertical pass over the result of [`across`].
pub fn down(params: &Params, table: &[i32], src: &Image<f32>, out: &mut Image<f32>) {
    /// Number of pixels whose sums are computed together, so that each row of the input is read in
    /// order.
    const BLOCK: usize = 64;
    let (rows, wanted, window) = (params.rows(table), params.wanted(), out.window());
    let skipped = (window.x - src.window().x) as usize;
    for y in window.y..window.bottom() {
        let (first, weights) = rows.float_output((y - wanted.y) as usize);
        let outputs = out.row_mut(y).as_chunks_mut::<CHANNELS>().0;
        for (number, outputs) in outputs.chunks_mut(BLOCK).enumerate() {
            let mut sums = [[0.0; CHANNELS]; BLOCK];
            for (weight, y) in weights.clone().zip(first..) {
                let pixels = &src.row(y).as_chunks::<CHANNELS>().0[skipped + BLOCK * number..];
                for (sum, pixel) in sums.iter_mut().zip(&pixels[..outputs.len()]) {
                    add(sum, weight, *pixel);
                }
            }
            for (output, sum) in outputs.iter_mut().zip(sums) {
                *output = sum.map(|sum| sum as f32);
            }
        }
    }
}

fn weighted(taps: impl Iterator<Item = (f64, [f32; CHANNELS])>) -> [f32; CHANNELS] {
    let mut sums = [0.0; CHANNELS];
    taps.for_each(|(weight, pixel)| add(&mut sums, weight, pixel));
    sums.map(|sum| sum as f32)
}

fn add(sums: &mut [f64; CHANNELS], weight: f64, pixel: [f32; CHANNELS]) {
    for (sum, value) in sums.iter_mut().zip(pixel) {
        *sum += f64::from(value) * weight;
    }
}
