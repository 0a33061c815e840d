//! SSE4.1 loops, which transform one block at a time.

use std::arch::x86_64::{
    __m128i, _mm_add_epi16 as add16, _mm_add_epi32 as add32, _mm_and_si128 as and,
    _mm_cvtepu8_epi16, _mm_madd_epi16 as multiply_add, _mm_mulhrs_epi16 as multiply_rounded,
    _mm_mullo_epi16 as multiply_low, _mm_or_si128 as or, _mm_packs_epi16 as pack16,
    _mm_packs_epi32 as pack32, _mm_packus_epi16 as pack_unsigned16, _mm_set_epi64x,
    _mm_set1_epi16 as splat16, _mm_set1_epi32 as splat32, _mm_setzero_si128 as zero,
    _mm_shuffle_epi8, _mm_srai_epi16 as shift_right16, _mm_srai_epi32 as shift_right32,
    _mm_srli_epi16 as shift_right_unsigned16, _mm_sub_epi16 as sub16, _mm_sub_epi32 as sub32,
    _mm_testz_si128, _mm_unpackhi_epi8 as unpack_high8, _mm_unpackhi_epi16 as unpack_high16,
    _mm_unpackhi_epi32 as unpack_high32, _mm_unpackhi_epi64 as unpack_high64,
    _mm_unpacklo_epi8 as unpack_low8, _mm_unpacklo_epi16 as unpack_low16,
    _mm_unpacklo_epi32 as unpack_low32, _mm_unpacklo_epi64 as unpack_low64, _mm_xor_si128 as xor,
};
use std::ops::Range;

use bytemuck::cast;

use super::super::bands::{Bands, Block, Mask, Plain};
use super::super::bits::Input;
use super::super::blocks::{Coding, Reader};
use super::{Four, Planes, x86};

x86::arithmetic!("sse4.1", __m128i);

x86::unzigzag!("sse4.1", __m128i);
x86::reduction!("sse4.1", __m128i);
x86::reading!("sse4.1", Plain);

/// Transforms four blocks to samples. Returns false if a coefficient lies outside the range `SANE`.
#[target_feature(enable = "sse4.1")]
pub fn transform<const SPARSE: bool>(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut insanity = zero();
    for pair in 0..2 {
        let [mut left, mut right] = [[zero(); 4]; 2];
        for (number, block) in [(2 * pair, &mut left), (2 * pair + 1, &mut right)] {
            let steps = steps_of(four, number);
            let dequantized = dequantized::<SPARSE>(cast(*four.blocks[number]), steps);
            insanity = or(insanity, insane(dequantized[0]));
            *block = samples::<SPARSE>(dequantized);
        }
        for (row, (left, right)) in left.into_iter().zip(right).enumerate() {
            planes.put_pair(pair, 2 * row, cast(unpack_low64(left, right)));
            planes.put_pair(pair, 2 * row + 1, cast(unpack_high64(left, right)));
        }
    }
    _mm_testz_si128(insanity, insanity) == 1
}

/// Transforms four blocks to `SIDE` × `SIDE` samples. Returns false if a coefficient lies outside
/// `REDUCIBLE`.
#[target_feature(enable = "sse4.1")]
pub fn reduce<const SIDE: usize>(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut insanity = zero();
    for number in 0..4 {
        let dequantized = dequantized::<false>(cast(*four.blocks[number]), steps_of(four, number));
        insanity = or(insanity, irreducible(dequantized));
        let samples: [u8; 16] = cast(reduced::<SIDE>(dequantized));
        for (row, samples) in samples.as_chunks::<SIDE>().0.iter().take(SIDE).enumerate() {
            planes.put_block(number, row, *samples);
        }
    }
    _mm_testz_si128(insanity, insanity) == 1
}

fn steps_of(four: &Four<'_>, number: usize) -> [[u16; 8]; 8] {
    four.quantization.each_ref().map(|row| row.as_chunks().0[number])
}

/// Shuffles the bytes of a vector by `places`.
#[inline]
#[target_feature(enable = "sse4.1")]
fn shuffled(vector: __m128i, places: &[u8; 16]) -> __m128i {
    _mm_shuffle_epi8(vector, cast(*places))
}

/// Widens bytes to 16-bit numbers.
#[inline]
#[target_feature(enable = "sse4.1")]
fn widened(bytes: [u8; 8]) -> __m128i {
    _mm_cvtepu8_epi16(_mm_set_epi64x(0, i64::from_le_bytes(bytes)))
}

/// Interleaves three channels to pixels. In each channel, the even pixels come first.
#[inline]
#[target_feature(enable = "sse4.1")]
fn interleaved(channels: [__m128i; 3]) -> [u8; 48] {
    let [r, g, b] = channels;
    let mut parts = [zero(); 3];
    for (at, part) in parts.iter_mut().enumerate() {
        let [red, green, blue] = [
            shuffled(r, &x86::INTERLEAVE[0][at]),
            shuffled(g, &x86::INTERLEAVE[1][at]),
            shuffled(b, &x86::INTERLEAVE[2][at]),
        ];
        *part = or(or(red, green), blue);
    }
    cast(parts)
}
