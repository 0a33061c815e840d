//! State of the passes, shared by both vector widths.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::op::resample::row_ring::ROWS_AT_ONCE;
use crate::tensor::CHANNELS;

/// Taps per dot product.
pub(super) const QUAD: usize = 4;

/// Bytes of a pixel of four rows in the ring.
pub(super) const RING_PIXEL: usize = CHANNELS * ROWS_AT_ONCE;

/// Vector in memory.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Block(pub [u8; 64]);

impl Default for Block {
    fn default() -> Self {
        Self([0; 64])
    }
}

/// Digits of four coefficients, most significant first.
pub(super) type Digits = [[i8; QUAD]; 3];

/// Four rows of the ring, identified by their first block, and the coefficients of an output row for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowQuad {
    pub(super) start: usize,
    pub(super) digits: Digits,
}

/// VNNI instruction set of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// AVX-VNNI.
    Bits256,
    /// AVX-512 VNNI.
    Bits512,
}

/// Horizontal and vertical passes and their memory.
#[derive(Debug)]
pub struct Passes {
    pub(super) width: Width,
    /// Range of a row's bytes that outputs read.
    pub(super) read: Range<usize>,
    /// Those bytes of the pushed rows, each row with padding to read past its end.
    pub(super) lines: Vec<u8>,
    pub(super) line_len: usize,
    pub(super) quads: Vec<Block>,
    /// Pixels from one block of `quads` to the next.
    pub(super) step: usize,
    /// First block of each output's taps. Length is a multiple of four outputs.
    pub(super) starts: Vec<u32>,
    /// Blocks per output.
    pub(super) groups: usize,
    /// `groups` digits for every output.
    pub(super) digits: Vec<Digits>,
    pub(super) ring: Vec<Block>,
    /// Blocks from four rows of the ring to the next four.
    pub(super) stride: usize,
    pub(super) first_row: u32,
    /// Ring rows of the current output row.
    pub(super) rows: Vec<RowQuad>,
}

/// Digit of four coefficients as one 32-bit number.
pub(super) fn quad(digit: [i8; QUAD]) -> i32 {
    bytemuck::cast(digit)
}
