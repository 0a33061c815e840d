//! Pillow's `ImageFilter.GaussianBlur` (`src/libImaging/BoxBlur.c`): three passes of a box filter
//! along rows, then three along columns. Each pass rounds to bytes. Beyond an edge, the pixel at
//! the edge is repeated.

use crate::op::wide::pixels::Shuffles;
use crate::op::wide::{Instructions, Loop};

/// One pass of a box filter in which the outermost pixel on each side has a weight of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxBlur {
    /// Number of pixels on each side of the middle that have the full weight.
    pub radius: u32,
    /// Full weight of a pixel, in units of 2^-24.
    pub weight: u32,
    /// Weight of the outermost pixel on each side, in units of 2^-24.
    pub far: u32,
}

impl BoxBlur {
    /// Number of passes along each axis.
    pub const PASSES: usize = 3;

    /// Filter whose three passes approximate a Gaussian. `deviation` is its standard deviation in
    /// pixels and must be more than 0. Computed in f32 as in Pillow.
    pub fn gaussian(deviation: f32) -> Self {
        let variance = deviation * deviation / Self::PASSES as f32;
        let length = (12.0 * f64::from(variance) + 1.0).sqrt() as f32;
        let whole = ((f64::from(length) - 1.0) / 2.0).floor() as f32;
        let part = (2.0 * whole + 1.0) * (whole * (whole + 1.0) - 3.0 * variance)
            / (6.0 * (variance - (whole + 1.0) * (whole + 1.0)));
        let half = whole + part;
        let radius = half as u32;
        let weight = ((1 << 24) as f32 / (half * 2.0 + 1.0)) as u32;
        let far = (1u32 << 24).wrapping_sub((radius * 2 + 1).wrapping_mul(weight)) / 2;
        Self { radius, weight, far }
    }

    /// Filters values with a radius of at most 1. `taps` holds five slices of input values, at the
    /// distances -2, -1, 0, 1 and 2 pixels from each value of `out`. Each slice has the length of
    /// `out`.
    pub fn values(&self, taps: [&[u8]; 5], out: &mut [u8], instructions: Instructions) {
        debug_assert!(self.radius <= 1);
        instructions.run(Values { filter: self, taps, out });
    }

    /// Filters a line of pixels into `out`, which has the same length. The length is at least 1.
    pub fn pass(&self, line: &[[u8; 3]], out: &mut [[u8; 3]]) {
        let (radius, last) = (self.radius as isize, line.len() as isize - 1);
        let at = |place: isize| line[place.clamp(0, last) as usize].map(u32::from);
        let mut sums = [0u32; 3];
        for place in -radius - 1..radius {
            let pixel = at(place);
            (0..3).for_each(|channel| sums[channel] += pixel[channel]);
        }
        for (place, out) in (0..).zip(out) {
            let (first, next) = (at(place - radius - 1), at(place + radius));
            let beyond = at(place + radius + 1);
            for channel in 0..3 {
                sums[channel] = sums[channel] + next[channel] - first[channel];
                let far = (first[channel] + beyond[channel]).wrapping_mul(self.far);
                let sum = sums[channel].wrapping_mul(self.weight).wrapping_add(far);
                out[channel] = (sum.wrapping_add(1 << 23) >> 24) as u8;
            }
        }
    }
}

struct Values<'a> {
    filter: &'a BoxBlur,
    taps: [&'a [u8]; 5],
    out: &'a mut [u8],
}

impl Loop for Values<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        let Self { filter: BoxBlur { radius, weight, far }, taps: [a, b, c, d, e], out } = self;
        let len = out.len();
        let (a, b, c, d, e) = (&a[..len], &b[..len], &c[..len], &d[..len], &e[..len]);
        for at in 0..len {
            let near = u32::from(b[at]) + u32::from(d[at]);
            let (sum, ends) = match radius {
                0 => (u32::from(c[at]), near),
                _ => (near + u32::from(c[at]), u32::from(a[at]) + u32::from(e[at])),
            };
            let sum = sum.wrapping_mul(*weight).wrapping_add(ends.wrapping_mul(*far));
            out[at] = (sum.wrapping_add(1 << 23) >> 24) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_a_pass() {
        for deviation in [0.1, 0.7, 1.2, 2.0] {
            let filter = BoxBlur::gaussian(deviation);
            for len in [1, 2, 21, 64, 100] {
                let line: Vec<[u8; 3]> =
                    (0..len).map(|x| [3, 50, 90].map(|c| (x * x * 7 + c * x) as u8)).collect();
                let mut expected = line.clone();
                filter.pass(&line, &mut expected);
                // Beyond an edge, the pixel at the edge is repeated.
                let (first, last) = (line[0], line[len - 1]);
                let padded = [&[first; 2], &line[..], &[last; 2]].concat();
                let taps = [0, 1, 2, 3, 4].map(|at| padded[at..][..len].as_flattened());
                for set in Instructions::all() {
                    let mut found = vec![[0; 3]; len];
                    filter.values(taps, found.as_flattened_mut(), set);
                    assert_eq!(found, expected, "{deviation} {len} {set:?}");
                }
            }
        }
    }
}
