//! What the passes keep, the same for both widths of vectors.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::op::resample::ring::ROWS_AT_ONCE;
use crate::tensor::CHANNELS;

/// Taps of a dot product.
pub(super) const QUAD: usize = 4;

/// Bytes of a pixel of four rows in the ring.
pub(super) const RING_PIXEL: usize = CHANNELS * ROWS_AT_ONCE;

/// A vector in memory.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Block(pub [u8; 64]);

impl Default for Block {
    fn default() -> Self {
        Self([0; 64])
    }
}

/// Digits of four coefficients, highest first.
pub(super) type Digits = [[i8; QUAD]; 3];

/// Four rows of the ring, by their first block, and the coefficients of an output row for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowQuad {
    pub(super) start: usize,
    pub(super) digits: Digits,
}

/// The instructions that a CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// AVX-VNNI.
    Bits256,
    /// AVX-512 VNNI.
    Bits512,
}

/// The passes and their memory.
#[derive(Debug)]
pub struct Passes {
    pub(super) width: Width,
    /// The bytes of a row that outputs read.
    pub(super) read: Range<usize>,
    /// These of the rows that were pushed, each with room to read past its end.
    pub(super) lines: Vec<u8>,
    pub(super) line_len: usize,
    pub(super) quads: Vec<Block>,
    /// Pixels from a block of `quads` to the next.
    pub(super) step: usize,
    /// The first block of each output's taps; a multiple of four outputs.
    pub(super) starts: Vec<u32>,
    /// Blocks of an output's taps.
    pub(super) groups: usize,
    /// `groups` for every output.
    pub(super) digits: Vec<Digits>,
    pub(super) ring: Vec<Block>,
    /// Blocks from four rows of the ring to the next four.
    pub(super) stride: usize,
    pub(super) first_row: u32,
    /// What the output row needs of the ring.
    pub(super) rows: Vec<RowQuad>,
}

/// A digit of four coefficients as a number.
pub(super) fn quad(digit: [i8; QUAD]) -> i32 {
    bytemuck::cast(digit)
}
