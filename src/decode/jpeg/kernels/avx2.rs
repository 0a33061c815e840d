//! AVX2 loops, which transform two blocks at a time.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi16 as add16, _mm256_add_epi32 as add32, _mm256_and_si256 as and,
    _mm256_blend_epi32, _mm256_broadcastsi128_si256, _mm256_cvtepu8_epi16,
    _mm256_madd_epi16 as multiply_add, _mm256_mulhrs_epi16 as multiply_rounded,
    _mm256_mullo_epi16 as multiply_low, _mm256_or_si256 as or, _mm256_packs_epi16 as pack16,
    _mm256_packs_epi32 as pack32, _mm256_packus_epi16 as pack_unsigned16,
    _mm256_permute2x128_si256, _mm256_permute4x64_epi64, _mm256_set_m128i,
    _mm256_set1_epi16 as splat16, _mm256_set1_epi32 as splat32, _mm256_setzero_si256 as zero,
    _mm256_shuffle_epi8, _mm256_srai_epi16 as shift_right16, _mm256_srai_epi32 as shift_right32,
    _mm256_srli_epi16 as shift_right_unsigned16, _mm256_sub_epi16 as sub16,
    _mm256_sub_epi32 as sub32, _mm256_testz_si256, _mm256_unpackhi_epi8 as unpack_high8,
    _mm256_unpackhi_epi16 as unpack_high16, _mm256_unpackhi_epi32 as unpack_high32,
    _mm256_unpackhi_epi64 as unpack_high64, _mm256_unpacklo_epi8 as unpack_low8,
    _mm256_unpacklo_epi16 as unpack_low16, _mm256_unpacklo_epi32 as unpack_low32,
    _mm256_unpacklo_epi64 as unpack_low64, _mm256_xor_si256 as xor, _pdep_u64,
};
use std::ops::Range;

use bytemuck::cast;

use super::super::bands::{Bands, Block, Mask, Operations, step};
use super::super::bits::Input;
use super::super::blocks::{Coding, Reader};
use super::{Four, Planes, x86};

x86::arithmetic!("avx2", __m256i);
x86::unzigzag!("avx2", __m256i);
x86::reduction!("avx2", __m256i);
x86::reading!("avx2,bmi1,bmi2,lzcnt,movbe,popcnt", Bmi2);

/// Implementation of [`Operations`] with instructions of BMI2. Used only in functions that are
/// compiled with BMI2.
struct Bmi2;

impl Operations for Bmi2 {
    #[inline(always)]
    fn pick(mask: Mask, above: u32) -> Mask {
        let below = mask.count_ones().wrapping_sub(above + 1);
        let bit = 1u64.checked_shl(below).unwrap_or(0);
        // SAFETY: only functions compiled with BMI2 call this function.
        unsafe { _pdep_u64(bit, mask) }
    }

    #[inline(always)]
    fn add(block: &mut Block, mask: Mask, more: u64, low: u32) {
        // SAFETY: only functions compiled with BMI2 call this function.
        let mut places = unsafe { _pdep_u64(more, mask) };
        while places != 0 {
            let coefficient = &mut block[(63 - places.trailing_zeros()) as usize & 63];
            *coefficient = coefficient.wrapping_add(step(*coefficient, low));
            places &= places - 1;
        }
    }
}

/// Transforms four blocks to samples. Returns false if a coefficient lies outside the range `SANE`.
#[target_feature(enable = "avx2")]
pub fn transform<const SPARSE: bool>(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut insanity = zero();
    for pair in 0..2 {
        let (eights, steps) = side_by_side(four, pair);
        let dequantized = dequantized::<SPARSE>(eights, steps);
        insanity = or(insanity, insane(dequantized[0]));
        let samples = samples::<SPARSE>(dequantized);
        for (row, two) in samples.into_iter().enumerate() {
            // `one` is a row of both blocks, and `next` is the row below it.
            let [one, next]: [[u8; 16]; 2] = cast(_mm256_permute4x64_epi64::<0b11_01_10_00>(two));
            planes.put_pair(pair, 2 * row, one);
            planes.put_pair(pair, 2 * row + 1, next);
        }
    }
    _mm256_testz_si256(insanity, insanity) == 1
}

/// Transforms four blocks to `SIDE` × `SIDE` samples. Returns false if a coefficient lies outside
/// `REDUCIBLE`.
#[target_feature(enable = "avx2")]
pub fn reduce<const SIDE: usize>(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut insanity = zero();
    for pair in 0..2 {
        let (eights, steps) = side_by_side(four, pair);
        let dequantized = dequantized::<false>(eights, steps);
        insanity = or(insanity, irreducible(dequantized));
        let samples: [[u8; 16]; 2] = cast(reduced::<SIDE>(dequantized));
        for (block, samples) in samples.into_iter().enumerate() {
            for (row, samples) in samples.as_chunks::<SIDE>().0.iter().take(SIDE).enumerate() {
                planes.put_block(2 * pair + block, row, *samples);
            }
        }
    }
    _mm256_testz_si256(insanity, insanity) == 1
}

/// Returns the coefficients of a pair of blocks in groups of eight, in zigzag order, and the
/// quantization steps of each row.
#[inline]
#[target_feature(enable = "avx2")]
fn side_by_side(four: &Four<'_>, pair: usize) -> ([__m256i; 8], [[u16; 16]; 8]) {
    // A loop is needed here, because the closure of `map` would be compiled without AVX2 and would
    // not be inlined.
    let mut steps = [[0; 16]; 8];
    for (steps, row) in steps.iter_mut().zip(four.quantization) {
        *steps = row.as_chunks().0[pair];
    }
    let [first, second] =
        [four.blocks[2 * pair].as_chunks().0, four.blocks[2 * pair + 1].as_chunks().0];
    let mut eights = [zero(); 8];
    for (eight, (first, second)) in eights.iter_mut().zip(first.iter().zip(second)) {
        let [first, second]: [[i16; 8]; 2] = [*first, *second];
        *eight = _mm256_set_m128i(cast(second), cast(first));
    }
    (eights, steps)
}

/// Shuffles the bytes of each 128-bit half by `places`.
#[inline]
#[target_feature(enable = "avx2")]
fn shuffled(vector: __m256i, places: &[u8; 16]) -> __m256i {
    _mm256_shuffle_epi8(vector, _mm256_broadcastsi128_si256(cast(*places)))
}

/// Widens bytes to 16-bit numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn widened(bytes: [u8; 16]) -> __m256i {
    _mm256_cvtepu8_epi16(cast(bytes))
}

/// Interleaves three channels to pixels. In each half of a channel, the even pixels come first.
#[inline]
#[target_feature(enable = "avx2")]
fn interleaved(channels: [__m256i; 3]) -> [u8; 96] {
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
    // The first three vectors are the parts of the first half of the pixels. The last three are
    // those of the second half.
    cast([
        _mm256_permute2x128_si256::<0x20>(parts[0], parts[1]),
        _mm256_blend_epi32::<0xf0>(parts[2], parts[0]),
        _mm256_permute2x128_si256::<0x31>(parts[1], parts[2]),
    ])
}
