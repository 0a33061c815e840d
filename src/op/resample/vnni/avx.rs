//! Passes with AVX-VNNI. A block of 64 bytes is two vectors.
//!
//! This file has no closures: functions with a target feature are not inlined into `map` and
//! similar functions, which do not have the feature.

use std::arch::x86_64::*;

use bytemuck::{must_cast, must_cast_slice_mut};

use crate::tensor::CHANNELS;

use super::data::{Block, Digits, Passes, QUAD, RING_PIXEL, RowQuad, quad};
use crate::op::resample::params::{HALF, PRECISION_BITS};
use crate::op::resample::row_ring::ROWS_AT_ONCE;

#[inline(always)]
fn load(block: &Block) -> [__m256i; 2] {
    must_cast(block.0)
}

#[inline]
#[target_feature(enable = "avx2")]
fn spread(digit: [i8; QUAD]) -> __m256i {
    _mm256_set1_epi32(quad(digit))
}

/// Combines three sums, one for each digit of the coefficients, and shifts the result.
#[inline]
#[target_feature(enable = "avx2")]
fn join(sums: [__m256i; 3]) -> __m256i {
    let sum = _mm256_add_epi32(_mm256_slli_epi32(sums[0], 8), sums[1]);
    let sum = _mm256_add_epi32(_mm256_slli_epi32(sum, 8), sums[2]);
    _mm256_srai_epi32(sum, PRECISION_BITS as i32)
}

/// Clamps four vectors of sums to bytes, separately in each 128-bit lane.
#[inline]
#[target_feature(enable = "avx2")]
fn pack(sums: [__m256i; 4]) -> __m256i {
    let left = _mm256_packs_epi32(sums[0], sums[1]);
    _mm256_packus_epi16(left, _mm256_packs_epi32(sums[2], sums[3]))
}

/// Interleaves the stored rows into quads: blocks of four pixels of four rows.
#[inline]
#[target_feature(enable = "avx2")]
fn arrange(lines: &[u8], line_len: usize, step: usize, quads: &mut [Block]) {
    let lane: [i8; 16] = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1];
    let mask = must_cast(lane);
    let rows: [_; ROWS_AT_ONCE] = std::array::from_fn(|row| &lines[row * line_len..][..line_len]);
    for (index, block) in quads.iter_mut().enumerate() {
        for (part, row) in block.0.as_chunks_mut::<16>().0.iter_mut().zip(rows) {
            let bytes = row[CHANNELS * step * index..].first_chunk::<16>();
            let bytes = must_cast(*bytes.expect("lines are padded to whole blocks"));
            *part = must_cast(_mm_shuffle_epi8(bytes, mask));
        }
    }
}

#[target_feature(enable = "avx2,avxvnni")]
pub(super) fn horizontal(passes: &mut Passes, ring_start: usize) {
    let Passes { lines, line_len, quads, step, starts, groups, digits, ring, stride, .. } = passes;
    arrange(lines, *line_len, *step, quads);
    let out: &mut [u8] = must_cast_slice_mut(&mut ring[ring_start..][..*stride]);
    let fours = starts.as_chunks::<4>().0.iter().zip(digits.chunks_exact(4 * *groups));
    for (four, (starts, digits)) in fours.enumerate() {
        let mut sums = [[_mm256_setzero_si256(); 4]; 2];
        for (output, &start) in starts.iter().enumerate() {
            let quads = &quads[start as usize..][..*groups];
            let [above, below] = output_sums(quads, &digits[output * *groups..][..*groups]);
            (sums[0][output], sums[1][output]) = (above, below);
        }
        // Each 128-bit lane has four pixels of one row. Unpacking interleaves the bytes of the four
        // rows. Each resulting vector has one pixel of all four rows, and the four bytes of a
        // channel are adjacent.
        let [row0, row1]: [__m128i; 2] = must_cast(pack(sums[0]));
        let [row2, row3]: [__m128i; 2] = must_cast(pack(sums[1]));
        let above = [_mm_unpacklo_epi8(row0, row1), _mm_unpackhi_epi8(row0, row1)];
        let below = [_mm_unpacklo_epi8(row2, row3), _mm_unpackhi_epi8(row2, row3)];
        for half in 0..2 {
            let left = _mm_unpacklo_epi16(above[half], below[half]);
            let right = _mm_unpackhi_epi16(above[half], below[half]);
            for (pixel, bytes) in [left, right].into_iter().enumerate() {
                // The next pixel overwrites the unused fourth channel.
                let at = RING_PIXEL * (4 * four + 2 * half + pixel);
                out[at..][..16].copy_from_slice(&must_cast::<_, [u8; 16]>(bytes));
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn output_sums(quads: &[Block], digits: &[Digits]) -> [__m256i; 2] {
    let zero = _mm256_setzero_si256();
    let mut sums = [[zero, zero, _mm256_set1_epi32(HALF)]; 2];
    for (block, digits) in quads.iter().zip(digits) {
        let digits = [spread(digits[0]), spread(digits[1]), spread(digits[2])];
        for (sums, pixels) in sums.iter_mut().zip(load(block)) {
            for (sum, digit) in sums.iter_mut().zip(digits) {
                *sum = _mm256_dpbusd_avx_epi32(*sum, pixels, digit);
            }
        }
    }
    [join(sums[0]), join(sums[1])]
}

#[target_feature(enable = "avx2,avxvnni")]
pub(super) fn vertical(ring: &[Block], rows: &[RowQuad], out: &mut [u8]) {
    let (chunks, rest) = out.as_chunks_mut::<32>();
    for (chunk, out) in chunks.iter_mut().enumerate() {
        *out = must_cast(vertical_chunk(ring, rows, 2 * chunk));
    }
    if !rest.is_empty() {
        let bytes: [u8; 32] = must_cast(vertical_chunk(ring, rows, 2 * chunks.len()));
        let len = rest.len();
        rest.copy_from_slice(&bytes[..len]);
    }
}

/// Computes 32 bytes of an output row, starting at block `at` of the rows.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn vertical_chunk(ring: &[Block], rows: &[RowQuad], at: usize) -> __m256i {
    let zero = _mm256_setzero_si256();
    let mut sums = [[zero, zero, _mm256_set1_epi32(HALF)]; 4];
    for row in rows {
        let blocks = ring[row.start + at..].first_chunk::<2>().expect("rows are whole chunks");
        let [a, b, c] = row.digits;
        let digits = [spread(a), spread(b), spread(c)];
        let [first, second] = [load(&blocks[0]), load(&blocks[1])];
        let pixels = [first[0], first[1], second[0], second[1]];
        for (sums, pixels) in sums.iter_mut().zip(pixels) {
            for (sum, digit) in sums.iter_mut().zip(digits) {
                *sum = _mm256_dpbusd_avx_epi32(*sum, pixels, digit);
            }
        }
    }
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let [a, b, c, d] = sums;
    _mm256_permutevar8x32_epi32(pack([join(a), join(b), join(c), join(d)]), order)
}
