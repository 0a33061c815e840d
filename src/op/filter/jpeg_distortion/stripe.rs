//! Losses of JPEG compression, computed in vertical stripes of the image. Many blocks are
//! compressed at once. In a stripe, each block is compressed only once.
//!
//! Stripes are narrow, because a row of their tiles must fit on the stack. Stripes overlap by one
//! tile on each side, because chroma is smoothed across tiles.

use std::ops::Range;

use crate::geometry::Size;
use crate::image::Image;
use crate::op::wide::Loop;
use crate::op::wide::pixels::Shuffles;

use super::formula::blocks::{self, Steps};
use super::formula::{self as jpeg, Pixel, Quality, neighbour};

/// Compresses and decompresses the window of `out`. The image has the size `size` and more than 4
/// columns.
pub struct Compression<'a> {
    pub size: Size,
    pub quality: &'a Quality,
    pub src: &'a Image<u8>,
    pub out: &'a mut Image<u8>,
}

impl Loop for Compression<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        let Self { size, quality, src, out } = self;
        let window = out.window();
        let rows = jpeg::blocks(window.y)..jpeg::blocks_end(window.bottom(), size.height);
        let end = jpeg::blocks_end(window.right(), size.width);
        let (luma, chroma) = (Steps::of_luma(quality), Steps::of_chroma(quality));
        let mut left = window.x;
        while left < window.right() {
            let first = jpeg::blocks(left);
            let tiles = ((end - first) as usize).min(TILES);
            // If another stripe follows, the last tile of this stripe only provides chroma for the
            // tile before it.
            let last = first + tiles as u32;
            let right = if last == end { window.right() } else { SIDE * (last - 1) };
            // The width is a whole number of `BLOCK`s, the pixels that are converted at once. A
            // `BLOCK` is as wide as two tiles.
            let width = tiles.next_multiple_of(2) * SIDE as usize;
            let stripe = Stripe { size, src, luma, chroma, left: SIDE * first, width };
            stripe.run(rows.clone(), left..right, out);
            left = right;
        }
    }
}

/// Side of a tile in pixels. A tile has four blocks of luma, and one block of each chroma.
const SIDE: u32 = 16;

/// Maximum number of tiles in a row of a stripe.
const TILES: usize = 32;

/// Maximum number of columns of a stripe.
const WIDTH: usize = SIDE as usize * TILES;

/// Number of pixels that are converted between RGB and YCbCr at once.
const BLOCK: usize = 32;

/// Samples of one row of tiles, before or after compression.
struct Tiles {
    /// Luma. Each array holds a row of the upper blocks, followed by the same row of the lower
    /// blocks.
    luma: [[u8; 2 * WIDTH]; 8],
    /// Chroma. Each element is one row.
    chroma: [Chroma; 8],
}

/// Pixels of one row of a stripe.
type Pixels = [Pixel; WIDTH];

/// A row of blue chroma, followed by the same row of red chroma.
type Chroma = [u8; WIDTH];

impl Tiles {
    const EMPTY: Self = Self { luma: [[0; 2 * WIDTH]; 8], chroma: [[0; WIDTH]; 8] };
}

/// A vertical stripe of the image.
struct Stripe<'a> {
    size: Size,
    src: &'a Image<u8>,
    luma: Steps,
    chroma: Steps,
    /// First column of the stripe.
    left: u32,
    /// Number of columns, a multiple of 32. Columns beyond the last column of `src` repeat that
    /// column.
    width: usize,
}

impl Stripe<'_> {
    /// Computes the columns `columns` of the output from the rows `rows` of tiles.
    #[inline(always)]
    fn run(&self, rows: Range<u32>, columns: Range<u32>, out: &mut Image<u8>) {
        let mut tiles = [Tiles::EMPTY, Tiles::EMPTY];
        let [mut now, mut next] = tiles.each_mut();
        let mut above = [0; WIDTH];
        // A row is decompressed after the row below it has been compressed, because smoothing needs
        // the chroma of the row below.
        for row in rows.start..rows.end + 1 {
            if row < rows.end {
                self.compress(row, next);
            }
            if row > rows.start {
                self.decompress(row - 1, [&above, &next.chroma[0]], now, columns.clone(), out);
                above = now.chroma[7];
            }
            std::mem::swap(&mut now, &mut next);
        }
    }

    /// Compresses row number `row` of the tiles.
    #[inline(always)]
    fn compress(&self, row: u32, tiles: &mut Tiles) {
        let last = self.size.height.div_ceil(2) - 1;
        let (mut pixels, mut chroma) = ([[0; 3]; WIDTH], [[[0; WIDTH]; 2]; 2]);
        for pair in 0..8 {
            let top = SIDE * row + 2 * pair as u32;
            for (below, chroma) in chroma.iter_mut().enumerate() {
                let y = 2 * pair + below;
                let luma = &mut tiles.luma[y % 8][y / 8 * self.width..][..self.width];
                self.read(top + below as u32, &mut pixels);
                split(&pixels, luma, chroma);
            }
            if top / 2 <= last {
                self.halve(&chroma, &mut tiles.chroma[pair]);
            } else {
                // Rows below the image repeat its last row of chroma.
                tiles.chroma[pair] = tiles.chroma[pair - 1];
            }
        }
        for left in (0..2 * self.width).step_by(blocks::WIDTH) {
            blocks::compress(&mut tiles.luma, left, &self.luma);
        }
        for left in (0..self.width).step_by(blocks::WIDTH) {
            blocks::compress(&mut tiles.chroma, left, &self.chroma);
        }
    }

    /// Copies the stripe's part of row `y`, or of the last row of the image if `y` is below the
    /// image.
    #[inline(always)]
    fn read(&self, y: u32, pixels: &mut Pixels) {
        let row = self.src.row(y.min(self.size.height - 1)).as_chunks::<3>().0;
        let row = &row[(self.left - self.src.window().x) as usize..];
        let row = &row[..row.len().min(self.width)];
        pixels[..row.len()].copy_from_slice(row);
        pixels[row.len()..self.width].fill(row[row.len() - 1]);
    }

    /// Averages the chroma of two rows over squares of four pixels.
    #[inline(always)]
    fn halve(&self, [above, below]: &[[[u8; WIDTH]; 2]; 2], halved: &mut Chroma) {
        for (of, halved) in halved.chunks_exact_mut(self.width / 2).take(2).enumerate() {
            let above = above[of].as_chunks::<2>().0;
            let below = below[of].as_chunks::<2>().0;
            for (at, (halved, ([a, b], [c, d]))) in
                halved.iter_mut().zip(above.iter().zip(below)).enumerate()
            {
                let sum = u16::from(*a) + u16::from(*b) + u16::from(*c) + u16::from(*d);
                // libjpeg rounds halves down in even columns and up in odd ones.
                *halved = ((sum + 1 + at as u16 % 2) >> 2) as u8;
            }
        }
    }

    /// Writes the columns `columns` of a row of tiles to `out`. `beside` holds the rows of chroma
    /// above and below these tiles.
    #[inline(always)]
    fn decompress(
        &self,
        row: u32,
        beside: [&Chroma; 2],
        tiles: &Tiles,
        columns: Range<u32>,
        out: &mut Image<u8>,
    ) {
        let window = out.window();
        let (mut pixels, mut chroma) = ([[0; 3]; WIDTH], [[0; WIDTH]; 2]);
        for y in (SIDE * row).max(window.y)..(SIDE * (row + 1)).min(window.bottom()) {
            let far = neighbour(y, (self.size.height - 1) / 2);
            let far = match (far / 8).cmp(&row) {
                std::cmp::Ordering::Less => beside[0],
                std::cmp::Ordering::Equal => &tiles.chroma[far as usize % 8],
                std::cmp::Ordering::Greater => beside[1],
            };
            let place = y as usize % SIDE as usize;
            let luma = &tiles.luma[place % 8][place / 8 * self.width..][..self.width];
            self.double(&tiles.chroma[place / 2], far, &mut chroma);
            join(luma, &chroma, &mut pixels);
            let pixels = &pixels[(columns.start - self.left) as usize..][..columns.len()];
            let out = out.row_mut(y).as_chunks_mut().0;
            out[(columns.start - window.x) as usize..][..columns.len()].copy_from_slice(pixels);
        }
    }

    /// Smooths the chroma of a row of pixels. `near` is the row of chroma that contains these
    /// pixels, `far` the second-nearest row.
    #[inline(always)]
    fn double(&self, near: &Chroma, far: &Chroma, doubled: &mut [[u8; WIDTH]; 2]) {
        let half = self.width / 2;
        let last = ((self.size.width - 1) / 2 - self.left / 2) as usize;
        // The array has one more sum at each end: the neighbour of the first sample, and that of
        // the last sample.
        let mut sums = [0; WIDTH / 2 + 2];
        for (of, doubled) in doubled.iter_mut().enumerate() {
            let (near, far) = (&near[of * half..][..half], &far[of * half..][..half]);
            for ((sum, near), far) in sums[1..=half].iter_mut().zip(near).zip(far) {
                *sum = 3 * u16::from(*near) + u16::from(*far);
            }
            sums[0] = sums[1];
            if last < half {
                sums[last + 2] = sums[last + 1];
            }
            let neighbours = sums[..half].iter().zip(&sums[2..half + 2]);
            let pairs = doubled[..self.width].as_chunks_mut::<2>().0;
            for ((pair, near), (before, after)) in pairs.iter_mut().zip(&sums[1..]).zip(neighbours)
            {
                let (left, right) = (3 * near + before + 8, 3 * near + after + 7);
                // The two bytes of a pair are written as one number, because compilers then
                // generate better instructions.
                *pair = ((left >> 4) | (right >> 4) << 8).to_le_bytes();
            }
        }
    }
}

/// Computes luma and chroma of the pixels of a row.
#[inline(always)]
fn split(pixels: &Pixels, luma: &mut [u8], [blue, red]: &mut [[u8; WIDTH]; 2]) {
    for (number, luma) in luma.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        let first = number * BLOCK;
        let [mut r, mut g, mut b] = [[0; BLOCK]; 3];
        for (at, pixel) in pixels[first..first + BLOCK].iter().enumerate() {
            [r[at], g[at], b[at]] = *pixel;
        }
        let (blue, red) = (&mut blue[first..first + BLOCK], &mut red[first..first + BLOCK]);
        for at in 0..BLOCK {
            let pixel = [r[at], g[at], b[at]];
            let chroma = jpeg::chroma(pixel);
            (luma[at], blue[at], red[at]) =
                (jpeg::luma(pixel) as u8, chroma[0] as u8, chroma[1] as u8);
        }
    }
}

/// Computes the pixels of a row from luma and chroma.
#[inline(always)]
fn join(luma: &[u8], [blue, red]: &[[u8; WIDTH]; 2], pixels: &mut Pixels) {
    for (number, luma) in luma.as_chunks::<BLOCK>().0.iter().enumerate() {
        let first = number * BLOCK;
        let (blue, red) = (&blue[first..first + BLOCK], &red[first..first + BLOCK]);
        let [mut r, mut g, mut b] = [[0; BLOCK]; 3];
        for at in 0..BLOCK {
            let chroma = [i32::from(blue[at]) - 128, i32::from(red[at]) - 128];
            [r[at], g[at], b[at]] = jpeg::colour(i32::from(luma[at]), chroma);
        }
        for (at, pixel) in pixels[first..first + BLOCK].iter_mut().enumerate() {
            *pixel = [r[at], g[at], b[at]];
        }
    }
}
