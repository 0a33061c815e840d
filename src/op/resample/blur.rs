//! Coefficients of Gaussian blurs. All outputs have the same weights, and the image is reflected at
//! its borders.

use std::ops::Range;

use super::gaussian::{self, MAX_BLUR};
use super::params::{PRECISION_BITS, WORDS};
use crate::geometry::Size;

/// A Gaussian blur of both axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blur {
    /// Width and height of the kernel in pixels, both odd.
    pub kernel: [u32; 2],
    /// Standard deviation on each axis, in pixels.
    pub sigma: [f64; 2],
}

impl Blur {
    /// Maximum number of table entries for an output of size `output` and kernels of at most
    /// `kernel` pixels.
    pub fn table_len(kernel: [u32; 2], output: Size) -> usize {
        let axis = |outputs: u32, taps: u32| outputs as usize * (2 + taps as usize);
        axis(output.width, kernel[0]).saturating_add(axis(output.height, kernel[1]))
    }

    /// Appends the bounds (first input and number of inputs) and the coefficients of the outputs
    /// `wanted` to the table. `axis` is 0 for columns and 1 for rows, and has `len` pixels. Returns
    /// the number of coefficients per output.
    pub(super) fn append(
        &self,
        axis: usize,
        len: u32,
        wanted: Range<u32>,
        table: &mut Vec<i32>,
    ) -> usize {
        let (outputs, taps, start) = (wanted.len(), self.kernel[axis] as usize, table.len());
        let weights = &mut [0; MAX_BLUR as usize][..taps];
        gaussian::put_weights(self.sigma[axis], weights);
        table.resize(start + outputs * (2 + taps), 0);
        let (bounds, coefs) = table[start..].split_at_mut(2 * outputs);
        let places = bounds.as_chunks_mut::<2>().0.iter_mut().zip(coefs.chunks_exact_mut(taps));
        for (index, (bounds, coefs)) in wanted.zip(places) {
            let (first, count) = gaussian::output(index, len, weights, coefs);
            *bounds = [first as i32, count as i32];
        }
        taps
    }

    /// Like [`append`](Self::append), with the same coefficients as f64, two entries each. Returns
    /// the number of entries per output.
    pub(super) fn append_doubles(
        &self,
        axis: usize,
        len: u32,
        wanted: Range<u32>,
        table: &mut Vec<i32>,
    ) -> usize {
        let (bounds, start) = (2 * wanted.len(), table.len());
        let taps = self.append(axis, len, wanted, table);
        let coefs = start + bounds;
        let count = table.len() - coefs;
        table.resize(coefs + WORDS * count, 0);
        // From the last to the first, so that no coefficient is overwritten before it is read.
        for at in (0..count).rev() {
            let weight = f64::from(table[coefs + at]) / f64::from(1 << PRECISION_BITS);
            let words = bytemuck::must_cast::<f64, [i32; WORDS]>(weight);
            table[coefs + WORDS * at..][..WORDS].copy_from_slice(&words);
        }
        WORDS * taps
    }
}
