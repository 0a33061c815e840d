//! Both passes with AVX2.
//!
//! The horizontal pass forms four output pixels at a time: a shuffle brings two neighbouring RGB pixels of
//! an output's taps into pairs of 16 bits, a multiply-add with the pair of coefficients sums them per channel,
//! and a 256-bit register does that for two outputs. The vertical pass runs along the row, 32 bytes at a
//! time, two rows per multiply-add.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use bytemuck::must_cast;

use crate::geometry::{Roi, Size};
use crate::tensor::CHANNELS;

use super::fast::{Ring, fit};
use super::{Axis, HALF, PRECISION_BITS};

/// Bits of the lower half of a coefficient.
const LOW_BITS: i32 = 11;

/// So many taps keep a sum of 255 times lower halves within an i32.
const MOST_TAPS: usize = 4096;

/// Coefficients of a pair of taps, for two outputs (a 128-bit lane each) and their channels: upper halves,
/// lower halves.
type Weights = [[i16; 16]; 2];

/// What the passes need beyond the table.
#[derive(Debug, Default)]
pub(super) struct Passes {
    /// The row that was pushed, with room to read past its end.
    line: Vec<u8>,
    input: Roi,
    /// Where in the line each output's taps begin, in bytes; a multiple of four outputs.
    offsets: Vec<u32>,
    /// Pairs of taps of an output.
    pairs: usize,
    /// `pairs` for every two outputs.
    weights: Vec<Weights>,
    /// Pairs of coefficients of the output row, upper and lower halves.
    rows: Vec<[i32; 2]>,
}

impl Passes {
    /// Prepares the passes, or leaves `None` where the CPU or the coefficients do not allow them.
    pub fn begin(passes: &mut Option<Self>, columns: Axis<'_>, rows: Axis<'_>, input: Roi) {
        let few = columns.taps().max(rows.taps()) <= MOST_TAPS;
        let narrow = [columns, rows]
            .iter()
            .all(|axis| axis.coefs.iter().all(|&k| i16::try_from(k >> LOW_BITS).is_ok()));
        if !(few && narrow && is_x86_feature_detected!("avx2")) {
            *passes = None;
            return;
        }
        let it = passes.get_or_insert_default();
        it.input = input;
        it.pairs = columns.taps().div_ceil(2);
        let outputs = columns.len().next_multiple_of(4);
        fit(&mut it.offsets, outputs);
        fit(&mut it.weights, outputs / 2 * it.pairs);
        fit(&mut it.rows, rows.taps().div_ceil(2));
        fit(&mut it.line, line_len(input.width, it.pairs));
        it.offsets.fill(0);
        it.weights.fill(Default::default());
        for index in 0..columns.len() {
            let (first, coefs) = columns.output(index);
            it.offsets[index] = CHANNELS as u32 * (first - input.x);
            let weights = &mut it.weights[index / 2 * it.pairs..][..it.pairs];
            for (weights, taps) in weights.iter_mut().zip(coefs.chunks(2)) {
                let halves = halves([taps[0], taps.get(1).copied().unwrap_or(0)]);
                for (weights, halves) in weights.iter_mut().zip(halves) {
                    weights[8 * (index % 2)..][..8].as_chunks_mut().0.fill(halves);
                }
            }
        }
    }

    pub fn scratch_bytes(&self) -> usize {
        self.line.capacity()
            + self.offsets.capacity() * size_of::<u32>()
            + self.weights.capacity() * size_of::<Weights>()
            + self.rows.capacity() * size_of::<[i32; 2]>()
    }

    pub fn max_scratch_bytes(table_len: usize, wanted: Size, side: u32) -> usize {
        let outputs = (wanted.width as usize).next_multiple_of(4);
        let taps = (table_len / wanted.width.max(1) as usize).min(MOST_TAPS);
        let row_taps = (table_len / wanted.height.max(1) as usize).min(MOST_TAPS);
        line_len(side, taps.div_ceil(2))
            + outputs * size_of::<u32>()
            + outputs / 2 * taps.div_ceil(2) * size_of::<Weights>()
            + row_taps.div_ceil(2) * size_of::<[i32; 2]>()
    }

    pub fn horizontal(&mut self, row: &[u8], out: &mut [u8]) {
        let len = CHANNELS * self.input.width as usize;
        self.line[..len].copy_from_slice(&row[..len]);
        let (line, offsets, weights) = (&self.line, &self.offsets, &self.weights);
        // SAFETY: `begin` has asked the CPU for AVX2, else there are no passes.
        unsafe {
            match self.pairs {
                1 => horizontal(line, offsets, weights, 1, out),
                2 => horizontal(line, offsets, weights, 2, out),
                3 => horizontal(line, offsets, weights, 3, out),
                4 => horizontal(line, offsets, weights, 4, out),
                pairs => horizontal(line, offsets, weights, pairs, out),
            }
        }
    }

    pub fn vertical(&mut self, ring: Ring<'_>, first: u32, coefs: &[i32], out: &mut [u8]) {
        let rows = &mut self.rows[..coefs.len().div_ceil(2)];
        for (row, taps) in rows.iter_mut().zip(coefs.chunks(2)) {
            *row = halves([taps[0], taps.get(1).copied().unwrap_or(0)]).map(bytemuck::cast);
        }
        // SAFETY: `begin` has asked the CPU for AVX2, else there are no passes.
        unsafe { vertical(ring, first, coefs.len() as u32, rows, out) }
    }
}

/// Bytes of a line of `width` pixels from which every output may read `pairs` pairs of taps, 16 bytes at a
/// time.
fn line_len(width: u32, pairs: usize) -> usize {
    CHANNELS * width as usize + 2 * CHANNELS * pairs + 16
}

/// The upper halves of two coefficients, and the lower.
fn halves(coefs: [i32; 2]) -> [[i16; 2]; 2] {
    [coefs.map(|k| (k >> LOW_BITS) as i16), coefs.map(|k| (k & ((1 << LOW_BITS) - 1)) as i16)]
}

#[inline(always)]
fn load16(line: &[u8], at: usize) -> __m128i {
    must_cast(*line[at..].first_chunk::<16>().expect("the line is padded"))
}

#[inline(always)]
fn load32(row: &[u8], at: usize) -> __m256i {
    must_cast(*row[at..].first_chunk::<32>().expect("the ring's rows are padded"))
}

/// Bytes to pairs of 16 bits: red of two pixels, green of them, blue of them, nothing; from pixel `first`
/// of the lane on.
#[inline(always)]
fn pair_mask(first: i8) -> __m256i {
    let (a, b) = (3 * first, 3 * first + 3);
    let lane = [a, -1, b, -1, a + 1, -1, b + 1, -1, a + 2, -1, b + 2, -1, -1, -1, -1, -1];
    must_cast([lane, lane])
}

#[inline]
#[target_feature(enable = "avx2")]
fn horizontal(line: &[u8], offsets: &[u32], weights: &[Weights], pairs: usize, out: &mut [u8]) {
    let groups = offsets.as_chunks::<4>().0.iter().zip(weights.chunks_exact(2 * pairs));
    for (group, (offsets, weights)) in groups.enumerate() {
        let (left, right) = weights.split_at(pairs);
        let left = two_outputs(line, [offsets[0], offsets[1]], left);
        let right = two_outputs(line, [offsets[2], offsets[3]], right);
        // Lanes: outputs 0 and 2, outputs 1 and 3; a fourth channel that is dropped.
        let words = _mm256_packs_epi32(left, right);
        let bytes = _mm256_packus_epi16(words, words);
        let even = _mm256_castsi256_si128(bytes);
        let odd = _mm256_extracti128_si256(bytes, 1);
        let drop = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
        let rgb = _mm_shuffle_epi8(_mm_unpacklo_epi32(even, odd), drop);
        out[12 * group..][..16].copy_from_slice(&must_cast::<_, [u8; 16]>(rgb));
    }
}

/// Red, green and blue of two outputs, as 32-bit values in a lane each.
#[inline]
#[target_feature(enable = "avx2")]
fn two_outputs(line: &[u8], offsets: [u32; 2], weights: &[Weights]) -> __m256i {
    let [left, right] = offsets.map(|offset| offset as usize);
    let (mask01, mask23) = (pair_mask(0), pair_mask(2));
    let mut high = _mm256_setzero_si256();
    let mut low = _mm256_set1_epi32(HALF);
    let mut add = |taps: __m256i, weights: &Weights| {
        let [high_weights, low_weights] = weights.map(must_cast::<_, __m256i>);
        high = _mm256_add_epi32(high, _mm256_madd_epi16(taps, high_weights));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(taps, low_weights));
    };
    let (quads, rest) = weights.as_chunks::<2>();
    for (quad, [first, second]) in quads.iter().enumerate() {
        let at = 4 * CHANNELS * quad;
        let pixels = _mm256_set_m128i(load16(line, right + at), load16(line, left + at));
        add(_mm256_shuffle_epi8(pixels, mask01), first);
        add(_mm256_shuffle_epi8(pixels, mask23), second);
    }
    if let [last] = rest {
        let at = 4 * CHANNELS * quads.len();
        let pixels = _mm256_set_m128i(load16(line, right + at), load16(line, left + at));
        add(_mm256_shuffle_epi8(pixels, mask01), last);
    }
    let sums = _mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low);
    _mm256_srai_epi32(sums, PRECISION_BITS as i32)
}

#[target_feature(enable = "avx2")]
fn vertical(ring: Ring<'_>, first: u32, count: u32, weights: &[[i32; 2]], out: &mut [u8]) {
    let zero = _mm256_setzero_si256();
    for (chunk, out) in out.chunks_mut(32).enumerate() {
        let mut high = [zero; 4];
        let mut low = [_mm256_set1_epi32(HALF); 4];
        for (y, weights) in (first..).step_by(2).zip(weights) {
            // Where the number of rows is odd the last one stands in for its pair, with weight 0.
            let above = load32(ring.row(y), 32 * chunk);
            let below = load32(ring.row((y + 1).min(first + count - 1)), 32 * chunk);
            let left = _mm256_unpacklo_epi8(above, below);
            let right = _mm256_unpackhi_epi8(above, below);
            let taps = [
                _mm256_unpacklo_epi8(left, zero),
                _mm256_unpackhi_epi8(left, zero),
                _mm256_unpacklo_epi8(right, zero),
                _mm256_unpackhi_epi8(right, zero),
            ];
            let [high_weights, low_weights] = weights.map(|pair| _mm256_set1_epi32(pair));
            for part in 0..4 {
                let product = _mm256_madd_epi16(taps[part], high_weights);
                high[part] = _mm256_add_epi32(high[part], product);
                let product = _mm256_madd_epi16(taps[part], low_weights);
                low[part] = _mm256_add_epi32(low[part], product);
            }
        }
        let mut sums = [zero; 4];
        for part in 0..4 {
            let sum = _mm256_add_epi32(_mm256_slli_epi32(high[part], LOW_BITS), low[part]);
            sums[part] = _mm256_srai_epi32(sum, PRECISION_BITS as i32);
        }
        let left = _mm256_packs_epi32(sums[0], sums[1]);
        let right = _mm256_packs_epi32(sums[2], sums[3]);
        let bytes: [u8; 32] = must_cast(_mm256_packus_epi16(left, right));
        let len = out.len();
        out.copy_from_slice(&bytes[..len]);
    }
}
