//! Passes with AVX-512 VNNI. A block of 64 bytes is one vector.
//!
//! This file has no closures: functions with a target feature are not inlined into `map` and
//! similar functions, which do not have the feature.

use std::arch::x86_64::*;

use bytemuck::{must_cast, must_cast_slice_mut};

use crate::tensor::CHANNELS;

use super::data::{Block, Digits, Passes, QUAD, RING_PIXEL, RowQuad, quad};
use crate::op::resample::params::HALF;
use crate::op::resample::row_ring::ROWS_AT_ONCE;

/// Permutation of two vectors of 32-bit sums. Each 128-bit lane of a vector has the sums of one
/// row. The result has the upper 16 bits of each sum. The values of the four rows for one channel
/// are next to each other.
const PIXEL_WORDS: [i16; 32] = {
    let mut words = [0; 32];
    let mut at = 0;
    while at < 32 {
        let (row, quad) = (at % 4, at / 4);
        let (vector, channel) = (quad / 4, quad % 4);
        words[at] = (32 * vector + 2 * (4 * row + channel) + 1) as i16;
        at += 1;
    }
    words
};

/// Permutation of the bytes of four outputs. The bytes are in groups of four, which hold one
/// channel of four rows. The result has the groups red, green and blue of the first output, then
/// those of the second, and so on.
const PIXEL_ORDER: [i32; 16] = {
    let mut order = [0; 16];
    let mut at = 0;
    while at < 12 {
        order[at] = packed_at(4 * (at / CHANNELS) + at % CHANNELS);
        at += 1;
    }
    order
};

/// Permutation of two vectors of 32-bit sums. The result has the upper 16 bits of each sum, in the
/// order of the sums.
const WORDS: [i16; 32] = {
    let mut words = [0; 32];
    let mut at = 0;
    while at < 32 {
        words[at] = 2 * at as i16 + 1;
        at += 1;
    }
    words
};

/// Permutation of 64 bytes that were packed from four vectors of sums. Packing has changed the
/// order of the groups of four bytes. The permutation restores it.
const ORDER: [i32; 16] = {
    let mut order = [0; 16];
    let mut at = 0;
    while at < 16 {
        order[at] = packed_at(at);
        at += 1;
    }
    order
};

/// Position of group `at` of four bytes after two vectors of 16-bit numbers were packed to bytes.
/// Packing works separately in each 128-bit lane, so it changes the order of the groups.
const fn packed_at(at: usize) -> i32 {
    let (vector, at) = (at / 8, at % 8);
    (4 * (at / 2) + at % 2 + 2 * vector) as i32
}

#[inline(always)]
fn load(block: &Block) -> __m512i {
    must_cast(block.0)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn spread(digit: [i8; QUAD]) -> __m512i {
    _mm512_set1_epi32(quad(digit))
}

/// Combines three sums, one for each digit of the coefficients.
#[inline]
#[target_feature(enable = "avx512f")]
fn join(sums: [__m512i; 3]) -> __m512i {
    let sum = _mm512_add_epi32(_mm512_slli_epi32(sums[0], 8), sums[1]);
    _mm512_add_epi32(_mm512_slli_epi32(sum, 8), sums[2])
}

/// Shifts four vectors of sums and clamps them to bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn finish(sums: [__m512i; 4], words: __m512i, order: __m512i) -> [u8; 64] {
    // The permutation takes the upper 16 bits of each sum, which shifts it right by 16. The shift
    // by six more bits gives 22, the number of fraction bits of the coefficients.
    let left = _mm512_srai_epi16(_mm512_permutex2var_epi16(sums[0], words, sums[1]), 6);
    let right = _mm512_srai_epi16(_mm512_permutex2var_epi16(sums[2], words, sums[3]), 6);
    must_cast(_mm512_permutexvar_epi32(order, _mm512_packus_epi16(left, right)))
}

/// Interleaves the stored rows into quads: blocks of four pixels of four rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn arrange(lines: &[u8], line_len: usize, step: usize, quads: &mut [Block]) {
    let lane: [i8; 16] = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1];
    let mask = must_cast([lane; 4]);
    let last = CHANNELS * step * quads.len().saturating_sub(1);
    assert!(last + 16 <= line_len, "lines are padded to whole blocks");
    assert!(ROWS_AT_ONCE * line_len <= lines.len());
    let line = |row: usize| lines[row * line_len..].as_ptr();
    let rows = [line(0), line(1), line(2), line(3)];
    for (index, block) in quads.iter_mut().enumerate() {
        let at = CHANNELS * step * index;
        let load = |row: *const u8| {
            // SAFETY: at <= last, so the asserts above cover 16 bytes starting there.
            unsafe { _mm_loadu_si128(row.add(at).cast()) }
        };
        let vector = _mm512_castsi128_si512(load(rows[0]));
        let vector = _mm512_inserti32x4::<1>(vector, load(rows[1]));
        let vector = _mm512_inserti32x4::<2>(vector, load(rows[2]));
        let vector = _mm512_inserti32x4::<3>(vector, load(rows[3]));
        block.0 = must_cast(_mm512_shuffle_epi8(vector, mask));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn horizontal(passes: &mut Passes, ring_start: usize) {
    let Passes { lines, line_len, quads, step, starts, groups, digits, ring, stride, .. } = passes;
    arrange(lines, *line_len, *step, quads);
    let out: &mut [u8] = must_cast_slice_mut(&mut ring[ring_start..][..*stride]);
    match *groups {
        1 => outputs::<1>(quads, starts, digits.as_chunks().0, out),
        2 => outputs::<2>(quads, starts, digits.as_chunks().0, out),
        3 => outputs::<3>(quads, starts, digits.as_chunks().0, out),
        4 => outputs::<4>(quads, starts, digits.as_chunks().0, out),
        groups => {
            let (words, order) = (must_cast(PIXEL_WORDS), must_cast(PIXEL_ORDER));
            let fours = starts.as_chunks::<4>().0.iter().zip(digits.chunks_exact(4 * groups));
            for (four, (starts, digits)) in fours.enumerate() {
                let mut sums = [_mm512_setzero_si512(); 4];
                for (output, sum) in sums.iter_mut().enumerate() {
                    let quads = &quads[starts[output] as usize..][..groups];
                    *sum = output_sums(quads, &digits[output * groups..][..groups]);
                }
                store(out, four, finish(sums, words, order));
            }
        }
    }
}

/// Computes outputs that read few blocks each. The number of blocks is the constant `GROUPS`, so
/// that the compiler can unroll the loop over the blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn outputs<const GROUPS: usize>(
    quads: &[Block],
    starts: &[u32],
    digits: &[[Digits; GROUPS]],
    out: &mut [u8],
) {
    let (words, order) = (must_cast(PIXEL_WORDS), must_cast(PIXEL_ORDER));
    let fours = starts.as_chunks::<4>().0.iter().zip(digits.as_chunks::<4>().0);
    for (four, (starts, digits)) in fours.enumerate() {
        let mut sums = [_mm512_setzero_si512(); 4];
        for (output, sum) in sums.iter_mut().enumerate() {
            let quads = quads[starts[output] as usize..].first_chunk::<GROUPS>();
            *sum = output_sums(
                quads.expect("the line has all blocks that an output pixel reads"),
                &digits[output],
            );
        }
        store(out, four, finish(sums, words, order));
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn output_sums(quads: &[Block], digits: &[Digits]) -> __m512i {
    let mut sums = [_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_set1_epi32(HALF)];
    for (block, digits) in quads.iter().zip(digits) {
        let pixels = load(block);
        for (sum, &digit) in sums.iter_mut().zip(digits) {
            *sum = _mm512_dpbusd_epi32(*sum, pixels, spread(digit));
        }
    }
    join(sums)
}

/// Stores four pixels of four rows. The next store overwrites the unused bytes after them.
#[inline(always)]
fn store(out: &mut [u8], four: usize, bytes: [u8; 64]) {
    out[RING_PIXEL * 4 * four..][..64].copy_from_slice(&bytes);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn vertical(ring: &[Block], rows: &[RowQuad], out: &mut [u8]) {
    let (chunks, rest) = out.as_chunks_mut::<64>();
    for (chunk, out) in chunks.iter_mut().enumerate() {
        *out = vertical_chunk(ring, rows, 4 * chunk);
    }
    if !rest.is_empty() {
        let bytes = vertical_chunk(ring, rows, 4 * chunks.len());
        let len = rest.len();
        rest.copy_from_slice(&bytes[..len]);
    }
}

/// Computes 64 bytes of an output row, starting at block `at` of the rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn vertical_chunk(ring: &[Block], rows: &[RowQuad], at: usize) -> [u8; 64] {
    let zero = _mm512_setzero_si512();
    let mut sums = [[zero, zero, _mm512_set1_epi32(HALF)]; 4];
    for row in rows {
        let blocks = ring[row.start + at..].first_chunk::<4>().expect("rows are whole chunks");
        let [a, b, c] = row.digits;
        let digits = [spread(a), spread(b), spread(c)];
        for (sums, block) in sums.iter_mut().zip(blocks) {
            let pixels = load(block);
            for (sum, digit) in sums.iter_mut().zip(digits) {
                *sum = _mm512_dpbusd_epi32(*sum, pixels, digit);
            }
        }
    }
    let [a, b, c, d] = sums;
    let sums = [join(a), join(b), join(c), join(d)];
    finish(sums, must_cast(WORDS), must_cast(ORDER))
}
