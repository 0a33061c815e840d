//! Displacements of the operator `elastic`, which are those of torchvision's `ElasticTransform`
//! (`torchvision/transforms/v2/_geometry.py`).
//!
//! torchvision adds `alpha / side` times the blurred noise to a grid of positions from -1 to 1, and
//! samples the image at these positions. It computes in f32 and does not promise the order of its
//! sums. feedwater displaces a pixel by `alpha / 2` pixels times the blurred noise, rounded to
//! 1/65536 pixel. Its sums are f32 in a fixed order, and pixels are interpolated in integers
//! ([`Warp::displaced`](super::Warp::displaced)). Channel values differ from torchvision's by at
//! most one.

use crate::geometry::Size;
use crate::op::shared::noise::words;
use crate::op::shared::padding::{PadMode, Padding};
use crate::op::wide::pixels::Shuffles;
use crate::op::wide::{Instructions, Loop};

/// Strength and smoothness of displacements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smoothness {
    /// Strength in x and in y direction, in units of half a pixel. Default 50.
    pub alpha: [f64; 2],
    /// Standard deviation of the blur in x and in y direction, in pixels. Default 5. Either both
    /// are 0 (no blur) or both are above 0.
    pub sigma: [f64; 2],
}

/// Parameters from which the displacements of one sample are computed when they are needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field {
    /// Strength and smoothness.
    pub smoothness: Smoothness,
    /// Key of the random noise.
    pub key: [u32; 2],
}

impl Field {
    /// Appends the displacements of an image of this size: see [`Smoothness::append`].
    pub fn append(&self, size: Size, table: &mut Vec<i32>) {
        self.append_with(size, table, Instructions::here());
    }

    fn append_with(&self, size: Size, table: &mut Vec<i32>, instructions: Instructions) {
        let (width, key) = (size.width as usize, self.key);
        let noise = |numbers: &mut [f32]| instructions.run(Noise { key, width, numbers });
        self.smoothness.append_with(size, noise, table, instructions);
    }
}

impl Smoothness {
    /// Appends the displacements of a whole image to `table`, in units of 1/65536 pixel: pairs (x,
    /// y) in row order. `noise` writes uniform numbers from 0 to 1: first the x noise of all
    /// pixels, then the y noise of all pixels.
    ///
    /// Unlike in torchvision, the image may be smaller than the kernel of the blur. During the
    /// call, `table` grows by [`entries`](Self::entries) entries, because it also holds scratch
    /// memory. Nothing else is allocated.
    pub fn append(self, size: Size, noise: impl FnOnce(&mut [f32]), table: &mut Vec<i32>) {
        self.append_with(size, noise, table, Instructions::here());
    }

    fn append_with(
        self,
        size: Size,
        noise: impl FnOnce(&mut [f32]),
        table: &mut Vec<i32>,
        instructions: Instructions,
    ) {
        let Self { alpha, sigma } = self;
        let (pixels, start) = (size.pixels() as usize, table.len());
        table.resize(start + self.entries(size), 0);
        let (pairs, scratch) = table[start..].split_at_mut(2 * pixels);
        let (fields, scratch) = scratch.split_at_mut(2 * pixels);
        let fields = bytemuck::cast_slice_mut::<i32, f32>(fields);
        noise(fields);
        fields.iter_mut().for_each(|it| *it = *it * 2.0 - 1.0);
        for (field, blur) in fields.chunks_exact_mut(pixels).zip(sigma) {
            if blur > 0.0 {
                // The pairs are written after the blur, so the blur can use their memory.
                let between = bytemuck::cast_slice_mut(&mut pairs[..pixels]);
                let blur = Blur::new(size, radius(blur), sigma, scratch);
                instructions.run(Blurred { blur, field, between });
            }
        }
        let units = alpha.map(|it| it * 0.5 * 65536.0);
        instructions.run(Pairs { fields: fields.split_at(pixels), units, pairs });
        table.truncate(start + 2 * pixels);
    }

    /// Number of entries that [`append`](Self::append) needs for an image of this size: two per
    /// pixel for the result, and scratch memory.
    pub fn entries(self, size: Size) -> usize {
        let taps = 2 * radius(self.sigma[0].max(self.sigma[1])) + 1;
        let longest = size.width.max(size.height) as usize;
        let pixels = usize::try_from(size.pixels()).unwrap_or(usize::MAX);
        pixels.saturating_mul(4).saturating_add(3 * longest + 5 * taps)
    }
}

/// Loop that writes the x noise of all pixels, then the y noise of all pixels.
struct Noise<'a> {
    key: [u32; 2],
    width: usize,
    numbers: &'a mut [f32],
}

impl Loop for Noise<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        let Self { key, width, numbers } = self;
        // The numbers have 24 random bits, as in torch.
        let uniform = |bits: u32| (bits >> 8) as i32 as f32 * (1.0 / (1 << 24) as f32);
        let (along_columns, along_rows) = numbers.split_at_mut(numbers.len() / 2);
        let rows = along_columns.chunks_exact_mut(width).zip(along_rows.chunks_exact_mut(width));
        for (y, (along_columns, along_rows)) in (0..).zip(rows) {
            for (x, (a, b)) in (0..).zip(along_columns.iter_mut().zip(along_rows)) {
                let words = words(key, x, y);
                (*a, *b) = (uniform(words[0]), uniform(words[1]));
            }
        }
    }
}

/// Loop that scales the x and y fields to displacements, rounded to the nearest 1/65536 pixel, ties
/// to even.
struct Pairs<'a> {
    fields: (&'a [f32], &'a [f32]),
    units: [f64; 2],
    pairs: &'a mut [i32],
}

impl Loop for Pairs<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        /// Near `1.5 * 2^52`, an f64 has no fraction bits, and its lower bits are an integer.
        const WHOLE: f64 = (3u64 << 51) as f64;
        let (limits, [a, b]) = ([i32::MIN, i32::MAX].map(f64::from), self.units);
        let rounded = |value: f32, unit: f64| {
            let value = (f64::from(value) * unit).clamp(limits[0], limits[1]);
            (value + WHOLE).to_bits() as i32
        };
        let values = self.fields.0.iter().zip(self.fields.1);
        for (pair, (x, y)) in self.pairs.as_chunks_mut().0.iter_mut().zip(values) {
            *pair = [rounded(*x, a), rounded(*y, b)];
        }
    }
}

fn radius(sigma: f64) -> usize {
    ((8.0 * sigma + 1.0) as usize) / 2
}

/// Writes the weights of a normal distribution at whole pixels, with its mean in the middle of
/// `kernel`. Their sum is 1.
fn put_kernel(sigma: f64, kernel: &mut [f32]) {
    let radius = (kernel.len() / 2) as f64;
    let weight = |at: usize| {
        let distance = at as f64 - radius;
        libm::exp(-(distance * distance) / (2.0 * sigma * sigma))
    };
    let sum: f64 = (0..kernel.len()).map(weight).sum();
    for (at, value) in kernel.iter_mut().enumerate() {
        *value = (weight(at) / sum) as f32;
    }
}

/// Blur of the rows and then of the columns of a field. Beyond its edges, the field is mirrored at
/// the centres of its edge pixels.
struct Blur<'a> {
    width: usize,
    radius: usize,
    along_rows: &'a [f32],
    along_columns: &'a [f32],
    /// For each column and row of the field with a border of `radius` pixels, the column or row of
    /// the field that is mirrored there.
    columns: &'a [i32],
    rows: &'a [i32],
    /// Scratch memory for a row with its border.
    row: &'a mut [f32],
}

impl<'a> Blur<'a> {
    fn new(size: Size, radius: usize, sigma: [f64; 2], scratch: &'a mut [i32]) -> Self {
        let (width, height, taps) = (size.width as usize, size.height as usize, 2 * radius + 1);
        let (columns, rest) = scratch.split_at_mut(width + 2 * radius);
        let (rows, rest) = rest.split_at_mut(height + 2 * radius);
        let around = radius as i32;
        let padding = Padding { left: around, right: around, top: around, bottom: around };
        let axes = [padding.columns(PadMode::Reflect, size), padding.rows(PadMode::Reflect, size)];
        for (places, axis) in [&mut *columns, &mut *rows].into_iter().zip(axes) {
            for (at, place) in (0..).zip(places) {
                // With a mirrored border every position is a pixel of the image, so no fill is
                // needed.
                *place = axis.at(at).map_or(0, |at| at as i32);
            }
        }
        let (row, rest) = bytemuck::cast_slice_mut(rest).split_at_mut(width + 2 * radius);
        let (along_rows, rest) = rest.split_at_mut(taps);
        let along_columns = &mut rest[..taps];
        put_kernel(sigma[0], along_rows);
        put_kernel(sigma[1], along_columns);
        Self { width, radius, along_rows, along_columns, columns, rows, row }
    }
}

/// Loop that blurs `field` in place. `between` holds the field after the blur of its rows.
struct Blurred<'a> {
    blur: Blur<'a>,
    field: &'a mut [f32],
    between: &'a mut [f32],
}

impl Loop for Blurred<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        let Self { blur, field, between } = self;
        let Blur { width, radius, along_rows, along_columns, columns, rows, row } = blur;
        let right = radius + width;
        for (from, out) in field.chunks_exact(width).zip(between.chunks_exact_mut(width)) {
            row[radius..right].copy_from_slice(from);
            for at in (0..radius).chain(right..right + radius) {
                row[at] = from[columns[at] as usize];
            }
            weigh(along_rows, |tap| &row[tap..tap + width], out);
        }
        for (rows, out) in rows.windows(2 * radius + 1).zip(field.chunks_exact_mut(width)) {
            weigh(along_columns, |tap| &between[rows[tap] as usize * width..][..width], out);
        }
    }
}

/// Adds up weighted lines, in the order of the lines.
#[inline(always)]
fn weigh<'a>(weights: &[f32], line: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
    /// Number of sums that stay in registers.
    const LEN: usize = 64;
    let len = out.len();
    if len < LEN {
        out.fill(0.0);
        for (tap, weight) in weights.iter().enumerate() {
            out.iter_mut().zip(line(tap)).for_each(|(sum, value)| *sum += weight * value);
        }
        return;
    }
    for first in (0..len).step_by(LEN) {
        // The last block overlaps with the block before it.
        let first = first.min(len - LEN);
        let mut sums = [0.0; LEN];
        for (tap, weight) in weights.iter().enumerate() {
            let values = &line(tap)[first..first + LEN];
            for at in 0..LEN {
                sums[at] += weight * values[at];
            }
        }
        out[first..first + LEN].copy_from_slice(&sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bound over many operators may be larger than any image.
    #[test]
    fn the_entries_for_an_absurd_image_do_not_overflow() {
        let smoothness = Smoothness { alpha: [50.0; 2], sigma: [5.0; 2] };
        assert_eq!(smoothness.entries(Size::new(u32::MAX, u32::MAX)), usize::MAX);
    }

    /// Expected displacements, computed pixel by pixel with sums in the order of the taps.
    fn expected(field: &Field, size: Size) -> Vec<i32> {
        let Smoothness { alpha, sigma } = field.smoothness;
        let (width, height) = (size.width as usize, size.height as usize);
        let mut pairs = vec![0; 2 * width * height];
        for axis in [0, 1] {
            let uniform = |at: usize| {
                let words = words(field.key, (at % width) as i32, (at / width) as i32);
                (words[axis] >> 8) as f32 / 16_777_216.0 * 2.0 - 1.0
            };
            let mut values: Vec<f32> = (0..width * height).map(uniform).collect();
            for (direction, sigma) in sigma.into_iter().enumerate().filter(|(_, it)| *it > 0.0) {
                let mut kernel = vec![0.0; 2 * radius(field.smoothness.sigma[axis]) + 1];
                put_kernel(sigma, &mut kernel);
                let around = (kernel.len() / 2) as i32;
                let padding = Padding { left: around, top: around, ..Padding::default() };
                let columns = padding.columns(PadMode::Reflect, size);
                let rows = padding.rows(PadMode::Reflect, size);
                let inside = |it: Option<u32>| it.unwrap() as usize;
                let sum = |at: usize| {
                    let (x, y) = (at % width, at / width);
                    kernel.iter().enumerate().fold(0.0, |sum, (tap, weight)| {
                        sum + weight
                            * match direction {
                                0 => values[y * width + inside(columns.at((x + tap) as u32))],
                                _ => values[inside(rows.at((y + tap) as u32)) * width + x],
                            }
                    })
                };
                values = (0..width * height).map(sum).collect();
            }
            for (pair, value) in pairs.chunks_exact_mut(2).zip(values) {
                let unit = alpha[axis] * 0.5 * 65536.0;
                pair[axis] = (f64::from(value) * unit).round_ties_even() as i32;
            }
        }
        pairs
    }

    #[test]
    fn displacements_are_sums_in_the_order_of_the_taps() {
        let sizes = [[1, 1], [1, 40], [40, 2], [63, 9], [64, 30], [130, 70]];
        for (number, [width, height]) in (0..).zip(sizes) {
            for sigma in [[0.0; 2], [0.1, 4.0], [5.0, 5.0], [9.0, 0.7]] {
                let smoothness = Smoothness { alpha: [50.0, 10_000.0], sigma };
                let field = Field { smoothness, key: [number, 7] };
                let size = Size::new(width, height);
                let expected = expected(&field, size);
                for set in Instructions::all() {
                    let mut table = vec![5; 3];
                    field.append_with(size, &mut table, set);
                    assert_eq!(table[..3], [5; 3]);
                    assert!(table[3..] == expected, "{set:?} {size} {sigma:?}");
                }
            }
        }
    }
}
