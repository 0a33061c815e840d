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
            *pixel = match columns.is_copied() {
                true => taps[0],
                false => weighted(weights.zip(taps.iter().copied())),
            };
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
        if rows.is_copied() {
            let pixels = &src.row(first).as_chunks::<CHANNELS>().0[skipped..];
            outputs.copy_from_slice(&pixels[..outputs.len()]);
            continue;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Size;
    use crate::op::Filter;
    use crate::op::custom::Wanted;
    use crate::op::resample::Weights;

    /// Bits of the result of resampling a window of an image, and bits of the window.
    fn bits(filter: Filter, of: Roi, to: Size, values: &[f32]) -> [Vec<u32>; 2] {
        let input = Size::new(9, 7);
        let mut src = Image::new(Roi::new(0, 0, 9, 7));
        for y in 0..input.height {
            for (x, value) in src.row_mut(y).iter_mut().enumerate() {
                *value = values[(x + 5 * y as usize) % values.len()];
            }
        }
        let (mut params, mut table) = (Params::new(of, to), Vec::new());
        let (reduction, padding, output) =
            (1, Size::default(), Roi::new(0, 0, to.width, to.height));
        let wanted = Wanted { input, reduction, padding, output };
        Weights::Filter(filter).fill_table(&mut params, wanted, true, &mut table);
        let mut middle = Image::new(between(&params, &table));
        across(&params, &table, &src, &mut middle);
        let mut out = Image::new(output);
        down(&params, &table, &middle, &mut out);
        let rows = |image: &Image<f32>, window: Roi| -> Vec<u32> {
            let columns = CHANNELS * window.x as usize..CHANNELS * window.right() as usize;
            let rows = (window.y..window.bottom()).flat_map(|y| &image.row(y)[columns.clone()]);
            rows.map(|value| value.to_bits()).collect()
        };
        [rows(&out, output), rows(&src, of)]
    }

    const FILTERS: [Filter; 6] = [
        Filter::Nearest,
        Filter::Box,
        Filter::Bilinear,
        Filter::Hamming,
        Filter::Bicubic,
        Filter::Lanczos,
    ];

    /// As Pillow, whose `resize` copies the image, or crops it, if no axis changes its length.
    #[test]
    fn an_image_that_keeps_its_size_keeps_its_bits() {
        let values = [-0.0, 0.0, 1.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1e-42, 3e38];
        for filter in FILTERS {
            for of in [Roi::new(0, 0, 9, 7), Roi::new(2, 1, 4, 5)] {
                let [out, kept] = bits(filter, of, of.size(), &values);
                assert_eq!(out, kept, "{filter:?}");
            }
        }
    }

    /// If one axis changes, Pillow sums the values of the other pass from 0.0, so -0.0 becomes 0.0.
    /// `nearest` copies.
    #[test]
    fn negative_zeros_become_positive_if_an_axis_changes() {
        for filter in FILTERS {
            for to in [Size::new(9, 5), Size::new(5, 7), Size::new(18, 7), Size::new(9, 14)] {
                let [out, _] = bits(filter, Roi::new(0, 0, 9, 7), to, &[-0.0]);
                let expected = if filter == Filter::Nearest { -0.0f32 } else { 0.0 };
                assert!(out.iter().all(|bits| *bits == expected.to_bits()), "{filter:?}, {to:?}");
            }
        }
    }
}
