//! Memory of the VNNI passes, shared by both vector widths.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::op::resample::row_ring::ROWS_AT_ONCE;
use crate::tensor::CHANNELS;

/// Number of taps in a dot product.
pub(super) const QUAD: usize = 4;

/// Number of bytes of a pixel in the ring, which stores four rows together.
pub(super) const RING_PIXEL: usize = CHANNELS * ROWS_AT_ONCE;

/// Vector of 64 bytes in memory.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Block(pub [u8; 64]);

impl Default for Block {
    fn default() -> Self {
        Self([0; 64])
    }
}

/// Digits of four coefficients: an array for each of the three digits, the most significant first.
pub(super) type Digits = [[i8; QUAD]; 3];

/// Four rows of the ring, identified by the index of their first block, and the coefficients of an
/// output row for these rows.
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

/// Horizontal and vertical passes with VNNI, and their memory.
#[derive(Debug)]
pub struct Passes {
    pub(super) width: Width,
    /// Range of bytes in an input row from which output pixels are computed.
    pub(super) read: Range<usize>,
    /// Bytes in the range `read` of the stored rows. Each row has padding because outputs read past
    /// its end.
    pub(super) lines: Vec<u8>,
    pub(super) line_len: usize,
    pub(super) quads: Vec<Block>,
    /// Number of pixels from one block of `quads` to the next.
    pub(super) step: usize,
    /// Index of the block at which the taps of each output begin. The number of entries is a
    /// multiple of four.
    pub(super) starts: Vec<u32>,
    /// Number of blocks per output.
    pub(super) groups: usize,
    /// Coefficients: `groups` entries for every output.
    pub(super) digits: Vec<Digits>,
    pub(super) ring: Vec<Block>,
    /// Number of blocks from four rows of the ring to the next four.
    pub(super) stride: usize,
    pub(super) first_row: u32,
    /// Rows of the ring from which the current output row is computed.
    pub(super) rows: Vec<RowQuad>,
}

/// One digit of each of four coefficients, as one 32-bit number.
pub(super) fn quad(digit: [i8; QUAD]) -> i32 {
    bytemuck::cast(digit)
}
