//! Horizontal and vertical resampling passes with dot products of bytes: AVX-512 VNNI or AVX-VNNI.
//!
//! The instruction multiplies four unsigned bytes with four signed bytes and adds the products to a
//! 32-bit sum. A 22-bit coefficient is therefore split into three signed digits of 8 bits, `(a *
//! 2^8 + b) * 2^8 + c`. Three sums are computed and then combined. The sums may overflow and wrap,
//! but the result is exact because the final sum fits 32 bits.
//!
//! The four bytes of a dot product have to be neighbours in memory. **Quads** are the stored rows
//! in this order. A block of 64 bytes has four pixels of four rows: for each row four reds, four
//! greens, four blues and four unused bytes. An output reads consecutive blocks. Its first tap is
//! in the first of these blocks. Other pixels in these blocks get the weight 0. **The ring** holds
//! the rows after the horizontal pass, four rows together: for each byte of a row, the bytes of the
//! four rows are side by side.

#![allow(unsafe_code)]

use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::tensor::CHANNELS;

use super::row_ring::ROWS_AT_ONCE;
use crate::op::resample::params::{Axis, TableBounds};

pub(super) use data::{Passes, Width};

use data::{Block, Digits, QUAD, RING_PIXEL, RowQuad};

mod avx;
mod avx512;
mod data;

impl Passes {
    /// Whether the coefficients of an axis fit three digits.
    pub fn fit(axis: Axis<'_>) -> bool {
        axis.coefs.iter().all(|&k| i8::try_from(top_digit(k)).is_ok())
    }

    /// Prepares the passes for a resampling. The CPU must have the instructions of `width`.
    pub fn begin(
        passes: &mut Option<Self>,
        width: Width,
        columns: Axis<'_>,
        rows: Axis<'_>,
        input: Roi,
    ) -> Result<(), DataError> {
        let it = passes.get_or_insert_with(|| Self::new(width));
        it.width = width;
        let read = columns.inputs();
        let byte = |x: u32| CHANNELS * (x - input.x) as usize;
        it.read = byte(read.start)..byte(read.end);
        (it.step, it.groups) = step_and_groups(columns.taps());
        let outputs = columns.len().next_multiple_of(4);
        reserve::renew(&mut it.starts, outputs)?;
        it.starts.fill(0);
        reserve::renew(&mut it.digits, outputs * it.groups)?;
        it.digits.fill(Default::default());
        let mut last = 0;
        for (index, digits) in it.digits.chunks_exact_mut(it.groups).take(columns.len()).enumerate()
        {
            let (first, coefs) = columns.output(index);
            let first = (first - read.start) as usize;
            it.starts[index] = (first / it.step) as u32;
            last = first / it.step;
            split(digits, first % it.step, coefs);
        }
        let blocks = last + it.groups;
        reserve::renew(&mut it.quads, blocks)?;
        it.line_len = line_len(read.end - read.start, it.groups);
        reserve::renew(&mut it.lines, ROWS_AT_ONCE * it.line_len)?;
        it.stride = ring_stride(columns.len());
        reserve::renew(&mut it.ring, it.stride * ring_quads(rows.taps()))?;
        it.first_row = rows.inputs().start;
        reserve::renew(&mut it.rows, ring_quads(rows.taps()))
    }

    fn new(width: Width) -> Self {
        Self {
            width,
            read: 0..0,
            lines: Vec::new(),
            line_len: 0,
            quads: Vec::new(),
            step: QUAD,
            starts: Vec::new(),
            groups: 0,
            digits: Vec::new(),
            ring: Vec::new(),
            stride: 0,
            first_row: 0,
            rows: Vec::new(),
        }
    }

    pub fn scratch_bytes(&self) -> usize {
        self.lines.capacity()
            + (self.quads.capacity() + self.ring.capacity()) * size_of::<Block>()
            + self.starts.capacity() * size_of::<u32>()
            + self.digits.capacity() * size_of::<Digits>()
            + self.rows.capacity() * size_of::<RowQuad>()
    }

    /// Upper bounds of the buffers in bytes, in the order of `ScratchBytes`: ring, lines, starts,
    /// digits, quads, and row quads.
    pub fn most_bytes(table: TableBounds, columns: u32, side: u32) -> [usize; 6] {
        let outputs = (columns as usize).next_multiple_of(4);
        let [taps, row_taps] = table.taps;
        let (_, groups) = step_and_groups(taps);
        // Upper bound of the number of `Digits`, for any number of outputs up to `columns`. Outputs
        // are padded to a multiple of 4. Four taps form a group, and an output may need one group
        // more than its taps fill.
        let by_entries = (table.columns + 4 * columns as usize + 3 * taps + 18) / 4;
        // Blocks of four input pixels overlap only if outputs have at most four taps. Neighbouring
        // outputs then begin at most five pixels apart (four, and one for rounding), so five blocks
        // per output are enough.
        let side_blocks = side as usize / QUAD + 1;
        let blocks = side_blocks.max((QUAD + 1) * outputs).min(side as usize + 1) + groups;
        [
            ring_stride(outputs) * ring_quads(row_taps) * size_of::<Block>(),
            ROWS_AT_ONCE * line_len(side, groups),
            outputs * size_of::<u32>(),
            by_entries.min(outputs * groups) * size_of::<Digits>(),
            blocks * size_of::<Block>(),
            ring_quads(row_taps) * size_of::<RowQuad>(),
        ]
    }

    /// Stores a row for the horizontal pass at index `place` of the rows that are processed
    /// together.
    pub fn keep(&mut self, place: usize, row: &[u8]) {
        let row = &row[self.read.clone()];
        self.lines[place * self.line_len..][..row.len()].copy_from_slice(row);
    }

    /// Runs the horizontal pass on the stored rows, starting with row `y`, and writes them into the
    /// ring.
    pub fn horizontal(&mut self, y: u32) {
        let start = self.ring_start(y);
        match self.width {
            // SAFETY: the caller of `begin` chose `width` because the CPU has its instructions.
            Width::Bits512 => unsafe { avx512::horizontal(self, start) },
            // SAFETY: the caller of `begin` chose `width` because the CPU has its instructions.
            Width::Bits256 => unsafe { avx::horizontal(self, start) },
        }
    }

    /// Computes the output row whose taps begin at row `first`.
    pub fn vertical(&mut self, first: u32, coefs: &[i32], out: &mut [u8]) {
        let skipped = (first - self.first_row) as usize % ROWS_AT_ONCE;
        let count = (skipped + coefs.len()).div_ceil(ROWS_AT_ONCE);
        let mut digits = coefs;
        for index in 0..count {
            let here = ROWS_AT_ONCE - if index == 0 { skipped } else { 0 };
            let (coefs, rest) = digits.split_at(here.min(digits.len()));
            digits = rest;
            let start = self.ring_start(first + (ROWS_AT_ONCE * index) as u32);
            let row = &mut self.rows[index];
            *row = RowQuad { start, digits: Default::default() };
            split(std::slice::from_mut(&mut row.digits), ROWS_AT_ONCE - here, coefs);
        }
        let (ring, rows) = (&self.ring[..], &self.rows[..count]);
        match self.width {
            // SAFETY: the caller of `begin` chose `width` because the CPU has its instructions.
            Width::Bits512 => unsafe { avx512::vertical(ring, rows, out) },
            // SAFETY: the caller of `begin` chose `width` because the CPU has its instructions.
            Width::Bits256 => unsafe { avx::vertical(ring, rows, out) },
        }
    }

    /// First block of the four ring rows that contain row `y`.
    fn ring_start(&self, y: u32) -> usize {
        let quads = self.ring.len() / self.stride;
        self.stride * ((y - self.first_row) as usize / ROWS_AT_ONCE % quads)
    }
}

/// Number of pixels from one block to the next, and number of blocks per output. With few taps,
/// blocks overlap, so that one block holds all taps of an output.
fn step_and_groups(taps: usize) -> (usize, usize) {
    match taps {
        ..=1 => (4, 1),
        2 | 3 => (2, 1),
        4 => (1, 1),
        _ => (4, (taps + QUAD - 1).div_ceil(QUAD)),
    }
}

/// Length in bytes of a stored line of `width` pixels. Its padding lets every output read `groups`
/// blocks, each with loads of 16 bytes.
fn line_len(width: u32, groups: usize) -> usize {
    CHANNELS * (width as usize + QUAD * groups) + 16
}

/// Number of blocks for four rows of the ring: the vectors that an output row needs, and one for a
/// store past the last pixel.
fn ring_stride(width: usize) -> usize {
    ((RING_PIXEL * width.next_multiple_of(4)) / size_of::<Block>() + 1).next_multiple_of(4)
}

/// Number of groups of four rows in the ring. One group is being written. The other groups hold all
/// taps of an output except its last one, wherever the taps begin in a group. So no row is
/// overwritten before the last output that needs it has read it.
fn ring_quads(taps: usize) -> usize {
    taps.saturating_sub(1).div_ceil(ROWS_AT_ONCE) + 1
}

/// Writes the digits of the coefficients `coefs` to the taps from `skipped` on. Other digits are
/// unchanged.
fn split(digits: &mut [Digits], skipped: usize, coefs: &[i32]) {
    for (at, &k) in (skipped..).zip(coefs) {
        let [a, b, c] = &mut digits[at / QUAD];
        let at = at % QUAD;
        a[at] = top_digit(k) as i8;
        b[at] = ((k + 0x80) >> 8) as i8;
        c[at] = k as i8;
    }
}

/// Most significant digit of a coefficient. The two lower digits are numbers from -128 to 127.
fn top_digit(k: i32) -> i32 {
    (((k + 0x80) >> 8) + 0x80) >> 8
}
