//! Losses of JPEG compression: the arithmetic of libjpeg-turbo's encoder and decoder, without the
//! lossless coding between them.
//!
//! The JPEG is baseline with 4:2:0 and the tables of Annex K, as Pillow's
//! `Image.save(file, "JPEG", quality=...)` writes it. The formulas are those of `jccolor.c`,
//! `jcsample.c` (`h2v2_downsample`), `jfdctint.c`, `jcdctmgr.c`, `jidctint.c`, `jdsample.c`
//! (`h2v2_fancy_upsample`) and `jdcolor.c`. They use only integers.

pub mod blocks;

use crate::geometry::{Roi, Size};

/// Side of a block, in samples.
const SIDE: usize = 8;

/// A block of samples or coefficients.
type Block = [[i32; SIDE]; SIDE];

/// Samples of a block after decoding.
pub type Samples = [[u8; SIDE]; SIDE];

/// Red, green and blue of a pixel.
pub type Pixel = [u8; 3];

/// Quantization steps for a quality from 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quality {
    luma: Block,
    chroma: Block,
}

impl Quality {
    /// Computes the steps like libjpeg's `jpeg_set_quality`, limited to 255.
    pub fn new(quality: u32) -> Self {
        let quality = quality.clamp(1, 100) as i32;
        let percent = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
        let scaled = |table: Block| {
            table.map(|row| row.map(|step| ((step * percent + 50) / 100).clamp(1, 255)))
        };
        Self { luma: scaled(LUMA), chroma: scaled(CHROMA) }
    }
}

/// An image that is compressed as a JPEG with 4:2:0.
#[derive(Clone, Copy, Debug)]
pub struct Compressed<'a, P> {
    /// Size of the image.
    pub size: Size,
    /// Quantization steps.
    pub quality: &'a Quality,
    /// Returns the pixel at a column and row of the image.
    pub pixel: P,
}

impl<P: Fn(u32, u32) -> Pixel> Compressed<'_, P> {
    /// Luma of the block in column `column` and row `row` of the blocks, after compression.
    pub fn luma(&self, column: u32, row: u32) -> Samples {
        let of = |x: usize, y: usize| luma(self.inside(at(column, x), at(row, y)));
        lossy(of, &self.quality.luma)
    }

    /// Blue and red chroma of the blocks in column `column` and row `row`, after compression. Each
    /// block covers 16x16 pixels.
    pub fn chroma(&self, column: u32, row: u32) -> [Samples; 2] {
        let last = self.size.height.div_ceil(2) - 1;
        let mut sums = [[[0; 2]; SIDE]; SIDE];
        for (y, sums) in sums.iter_mut().enumerate() {
            // Rows below the image repeat its last row of chroma.
            let top = 2 * at(row, y).min(last);
            for (x, sum) in sums.iter_mut().enumerate() {
                let left = 2 * at(column, x);
                let four = [(left, top), (left + 1, top), (left, top + 1), (left + 1, top + 1)];
                let four = four.map(|(x, y)| chroma(self.inside(x, y)));
                // libjpeg rounds halves down in even columns and up in odd ones.
                let bias = 1 + x as i32 % 2;
                *sum = [0, 1].map(|of| (four.iter().map(|it| it[of]).sum::<i32>() + bias) >> 2);
            }
        }
        [0, 1].map(|of| lossy(|x, y| sums[y][x][of], &self.quality.chroma))
    }

    /// The pixel at (`x`, `y`), or the nearest pixel of the image.
    fn inside(&self, x: u32, y: u32) -> Pixel {
        (self.pixel)(x.min(self.size.width - 1), y.min(self.size.height - 1))
    }
}

/// Window of an image of size `size` that is needed to compute the window `wanted` of the
/// compressed image.
pub fn demand(size: Size, wanted: Roi) -> Roi {
    let axis = |first: u32, end: u32, len: u32| {
        let first = blocks(first) * 16;
        let end = ((blocks_end(end, len)) * 16).min(len);
        (first, end - first)
    };
    let (x, width) = axis(wanted.x, wanted.right(), size.width);
    let (y, height) = axis(wanted.y, wanted.bottom(), size.height);
    Roi::new(x, y, width, height)
}

/// Number of the first chroma block that the pixels from `first` on need. A pixel needs the chroma
/// sample at its place and the one before it.
pub fn blocks(first: u32) -> u32 {
    (first / 2).saturating_sub(1) / SIDE as u32
}

/// Number after the last chroma block that the pixels before `end` need. The image has `len` pixels
/// along this axis.
pub fn blocks_end(end: u32, len: u32) -> u32 {
    let last = ((end - 1) / 2 + 1).min((len - 1) / 2);
    last / SIDE as u32 + 1
}

/// Colour of the pixel at (`x`, `y`) of an image of size `size`, from its luma and from
/// `chroma(column, row)`, which returns blue and red chroma.
#[inline(always)]
pub fn pixel(
    size: Size,
    (x, y): (u32, u32),
    luma: u8,
    chroma: impl Fn(u32, u32) -> [u8; 2],
) -> Pixel {
    let (column, row) = (x / 2, y / 2);
    let sums = if size.width <= 4 {
        // libjpeg does not smooth the chroma of an image of at most 4 columns.
        chroma(column, row).map(|it| 16 * i32::from(it))
    } else {
        let (last_column, last_row) = ((size.width - 1) / 2, (size.height - 1) / 2);
        let far_column = neighbour(x, last_column);
        let far_row = neighbour(y, last_row);
        let of = |column| {
            let (near, far) = (chroma(column, row), chroma(column, far_row));
            [0, 1].map(|of| 3 * i32::from(near[of]) + i32::from(far[of]))
        };
        let (near, far) = (of(column), of(far_column));
        let bias = 8 - (x % 2) as i32;
        [0, 1].map(|of| 3 * near[of] + far[of] + bias)
    };
    colour(i32::from(luma), sums.map(|it| (it >> 4) - 128))
}

/// Colour of a pixel with this luma, 0 to 255, and this blue and red chroma, -128 to 127.
#[inline(always)]
pub fn colour(luma: i32, [blue, red]: [i32; 2]) -> Pixel {
    [
        (luma + ((91_881 * red + 32_768) >> 16)).clamp(0, 255) as u8,
        (luma + ((-22_554 * blue - 46_802 * red + 32_768) >> 16)).clamp(0, 255) as u8,
        (luma + ((116_130 * blue + 32_768) >> 16)).clamp(0, 255) as u8,
    ]
}

/// Number of the second-nearest chroma sample along one axis. For an even pixel, it is the sample
/// before the pixel's own one, for an odd pixel the sample after it.
pub fn neighbour(at: u32, last: u32) -> u32 {
    if at.is_multiple_of(2) { (at / 2).saturating_sub(1) } else { (at / 2 + 1).min(last) }
}

fn at(block: u32, place: usize) -> u32 {
    block * SIDE as u32 + place as u32
}

/// Luma of a pixel, 0 to 255.
#[inline(always)]
pub fn luma([r, g, b]: Pixel) -> i32 {
    let [r, g, b] = [r, g, b].map(i32::from);
    (19_595 * r + 38_470 * g + 7_471 * b + 32_768) >> 16
}

/// Blue and red chroma of a pixel, 0 to 255.
#[inline(always)]
pub fn chroma([r, g, b]: Pixel) -> [i32; 2] {
    const MIDDLE: i32 = (128 << 16) + 32_767;
    let [r, g, b] = [r, g, b].map(i32::from);
    [
        (-11_059 * r - 21_709 * g + 32_768 * b + MIDDLE) >> 16,
        (32_768 * r - 27_439 * g - 5_329 * b + MIDDLE) >> 16,
    ]
}

/// Samples of a block after compression and decompression.
fn lossy(sample: impl Fn(usize, usize) -> i32, steps: &Block) -> Samples {
    let mut block: Block = std::array::from_fn(|y| std::array::from_fn(|x| sample(x, y) - 128));
    forward(&mut block);
    for (row, steps) in block.iter_mut().zip(steps) {
        for (value, step) in row.iter_mut().zip(steps) {
            // `forward` gives 8 times the coefficients.
            let divisor = 8 * step;
            *value = value.signum() * ((value.abs() + divisor / 2) / divisor) * step;
        }
    }
    inverse(&mut block);
    block.map(|row| row.map(|value| (value + 128).clamp(0, 255) as u8))
}

const BITS: i32 = 13;
const PASS_BITS: i32 = 2;

/// Odd part of the transform, the same in both directions (Loeffler, Ligtenberg and Moschytz,
/// 1989).
#[inline(always)]
fn odd([a, b, c, d]: [i32; 4]) -> [i32; 4] {
    let (z1, z2, z3, z4) = (a + d, b + c, a + c, b + d);
    let z5 = (z3 + z4) * 9633;
    let (z1, z2) = (z1 * -7373, z2 * -20_995);
    let (z3, z4) = (z3 * -16_069 + z5, z4 * -3196 + z5);
    [a * 2446 + z1 + z3, b * 16_819 + z2 + z4, c * 25_172 + z2 + z3, d * 12_299 + z1 + z4]
}

/// Forward transform of a block, like libjpeg's `jpeg_fdct_islow`.
fn forward(block: &mut Block) {
    let rows = block.map(|row| forward_line(row, BITS - PASS_BITS, |sum| sum << PASS_BITS));
    let columns = transposed(&rows)
        .map(|column| forward_line(column, BITS + PASS_BITS, |sum| rounded(sum, PASS_BITS)));
    *block = transposed(&columns);
}

fn transposed(block: &Block) -> Block {
    std::array::from_fn(|y| std::array::from_fn(|x| block[x][y]))
}

#[inline(always)]
fn forward_line(v: [i32; SIDE], shift: i32, whole: impl Fn(i32) -> i32) -> [i32; SIDE] {
    let sums = [v[0] + v[7], v[1] + v[6], v[2] + v[5], v[3] + v[4]];
    let differences = [v[3] - v[4], v[2] - v[5], v[1] - v[6], v[0] - v[7]];
    let (a, d) = (sums[0] + sums[3], sums[0] - sums[3]);
    let (b, c) = (sums[1] + sums[2], sums[1] - sums[2]);
    let z = (c + d) * 4433;
    let [o7, o5, o3, o1] = odd(differences).map(|it| rounded(it, shift));
    let (e2, e6) = (rounded(z + d * 6270, shift), rounded(z - c * 15_137, shift));
    [whole(a + b), o1, e2, o3, whole(a - b), o5, e6, o7]
}

/// Inverse transform of a block, like libjpeg's `jpeg_idct_islow`.
fn inverse(block: &mut Block) {
    let columns = transposed(block).map(|column| inverse_line(column, BITS - PASS_BITS));
    *block = transposed(&columns).map(|row| inverse_line(row, BITS + PASS_BITS + 3));
}

#[inline(always)]
fn inverse_line(v: [i32; SIDE], shift: i32) -> [i32; SIDE] {
    let z = (v[2] + v[6]) * 4433;
    let (low, high) = (z - v[6] * 15_137, z + v[2] * 6270);
    let (sum, difference) = ((v[0] + v[4]) << BITS, (v[0] - v[4]) << BITS);
    let even = [sum + high, difference + low, difference - low, sum - high];
    let odd = odd([v[7], v[5], v[3], v[1]]);
    let mut out = [0; SIDE];
    for place in 0..4 {
        out[place] = rounded(even[place] + odd[3 - place], shift);
        out[7 - place] = rounded(even[place] - odd[3 - place], shift);
    }
    out
}

#[inline(always)]
fn rounded(value: i32, shift: i32) -> i32 {
    (value + (1 << (shift - 1))) >> shift
}

/// Quantization steps of luma: table K.1 of the JPEG standard's Annex K.
const LUMA: Block = [
    [16, 11, 10, 16, 24, 40, 51, 61],
    [12, 12, 14, 19, 26, 58, 60, 55],
    [14, 13, 16, 24, 40, 57, 69, 56],
    [14, 17, 22, 29, 51, 87, 80, 62],
    [18, 22, 37, 56, 68, 109, 103, 77],
    [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101],
    [72, 92, 95, 98, 112, 100, 103, 99],
];

/// Quantization steps of chroma: table K.2 of the JPEG standard's Annex K.
const CHROMA: Block = [
    [17, 18, 24, 47, 99, 99, 99, 99],
    [18, 21, 26, 66, 99, 99, 99, 99],
    [24, 26, 56, 99, 99, 99, 99, 99],
    [47, 66, 99, 99, 99, 99, 99, 99],
    [99, 99, 99, 99, 99, 99, 99, 99],
    [99, 99, 99, 99, 99, 99, 99, 99],
    [99, 99, 99, 99, 99, 99, 99, 99],
    [99, 99, 99, 99, 99, 99, 99, 99],
];
