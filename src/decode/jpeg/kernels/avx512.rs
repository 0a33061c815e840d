//! AVX-512 loops with byte permutations, which transform four blocks at a time.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi16 as add16, _mm512_add_epi32 as add32, _mm512_and_si512 as and,
    _mm512_cvtepu8_epi16, _mm512_madd_epi16 as multiply_add, _mm512_mask_permutexvar_epi8,
    _mm512_mulhrs_epi16 as multiply_rounded, _mm512_mullo_epi16, _mm512_packs_epi16 as pack16,
    _mm512_packs_epi32 as pack32, _mm512_packus_epi16 as pack_unsigned16, _mm512_permutex_epi64,
    _mm512_permutex2var_epi16, _mm512_permutexvar_epi8, _mm512_set1_epi16 as splat16,
    _mm512_set1_epi32 as splat32, _mm512_setzero_si512 as zero, _mm512_shuffle_i64x2,
    _mm512_srai_epi16 as shift_right16, _mm512_srai_epi32 as shift_right32,
    _mm512_srli_epi16 as shift_right_unsigned16, _mm512_sub_epi16 as sub16,
    _mm512_sub_epi32 as sub32, _mm512_test_epi16_mask, _mm512_unpackhi_epi8 as unpack_high8,
    _mm512_unpackhi_epi16 as unpack_high16, _mm512_unpackhi_epi32 as unpack_high32,
    _mm512_unpackhi_epi64 as unpack_high64, _mm512_unpacklo_epi8 as unpack_low8,
    _mm512_unpacklo_epi16 as unpack_low16, _mm512_unpacklo_epi32 as unpack_low32,
    _mm512_unpacklo_epi64 as unpack_low64, _mm512_xor_si512 as xor,
};

use bytemuck::cast;

use super::super::frame::ZIGZAG;
use super::{Four, Planes, x86};

x86::arithmetic!("avx512f,avx512bw,avx512vl,avx512vbmi", __m512i);

/// Zigzag positions of the coefficients in the first four rows, and in the last four rows, of a
/// block.
const PLACES: [[u16; 32]; 2] = {
    let mut places = [[0; 32]; 2];
    let mut at = 0;
    while at < 64 {
        let place = ZIGZAG[at] as usize;
        places[place / 32][place % 32] = at as u16;
        at += 1;
    }
    places
};

/// For each third of 64 pixels: the position of each byte in its channel, and masks of the green
/// and blue bytes.
const INTERLEAVE: [([u8; 64], u64, u64); 3] = {
    let mut thirds = [([0; 64], 0, 0); 3];
    let mut at = 0;
    while at < 192 {
        let (pixel, third, byte) = (at / 3, at / 64, at % 64);
        thirds[third].0[byte] = (pixel / 16 * 16 + pixel % 16 / 2 + pixel % 2 * 8) as u8;
        match at % 3 {
            1 => thirds[third].1 |= 1 << byte,
            2 => thirds[third].2 |= 1 << byte,
            _ => {}
        }
        at += 1;
    }
    thirds
};

/// Transforms four blocks to samples. Returns false if a coefficient lies outside the range `SANE`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub fn transform<const SPARSE: bool>(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let [top, bottom] = [cast(PLACES[0]), cast(PLACES[1])];
    let mut halves = [[zero(); 4]; 2];
    for (block, coefficients) in four.blocks.into_iter().enumerate() {
        let [first, second]: [__m512i; 2] = cast(*coefficients);
        if SPARSE {
            halves[0][block] = _mm512_permutex2var_epi16(first, top, zero());
        } else {
            halves[0][block] = _mm512_permutex2var_epi16(first, top, second);
            halves[1][block] = _mm512_permutex2var_epi16(first, bottom, second);
        }
    }
    let [top, bottom] = [side_by_side(halves[0]), side_by_side(halves[1])];
    let steps = four.quantization;
    let mut dequantized = [zero(); 8];
    for row in 0..4 {
        dequantized[row] = _mm512_mullo_epi16(top[row], cast(steps[row]));
        if !SPARSE {
            dequantized[row + 4] = _mm512_mullo_epi16(bottom[row], cast(steps[row + 4]));
        }
    }
    let insanity = insane(dequantized[0]);
    let samples = samples::<SPARSE>(dequantized);
    for (row, two) in samples.into_iter().enumerate() {
        // Each half of `two` belongs to a pair of blocks: a row of both blocks, and the row below
        // it.
        let two = cast(_mm512_permutex_epi64::<0b11_01_10_00>(two));
        let [[first, first_next], [second, second_next]]: [[[u8; 16]; 2]; 2] = two;
        planes.put_pair(0, 2 * row, first);
        planes.put_pair(0, 2 * row + 1, first_next);
        planes.put_pair(1, 2 * row, second);
        planes.put_pair(1, 2 * row + 1, second_next);
    }
    _mm512_test_epi16_mask(insanity, insanity) == 0
}

/// Rearranges the rows of four blocks. Rows with the same number then lie side by side.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn side_by_side([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let [ab, ab2] = [_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xee>(a, b)];
    let [cd, cd2] = [_mm512_shuffle_i64x2::<0x44>(c, d), _mm512_shuffle_i64x2::<0xee>(c, d)];
    [
        _mm512_shuffle_i64x2::<0x88>(ab, cd),
        _mm512_shuffle_i64x2::<0xdd>(ab, cd),
        _mm512_shuffle_i64x2::<0x88>(ab2, cd2),
        _mm512_shuffle_i64x2::<0xdd>(ab2, cd2),
    ]
}

/// Widens bytes to 16-bit numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn widened(bytes: [u8; 32]) -> __m512i {
    _mm512_cvtepu8_epi16(cast(bytes))
}

/// Interleaves three channels to pixels. In each 128 bits of a channel, the even pixels come first.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn interleaved(channels: [__m512i; 3]) -> [u8; 192] {
    let [r, g, b] = channels;
    let mut thirds = [zero(); 3];
    for (third, (places, green, blue)) in thirds.iter_mut().zip(INTERLEAVE) {
        let places = cast(places);
        let red = _mm512_permutexvar_epi8(places, r);
        let two = _mm512_mask_permutexvar_epi8(red, green, places, g);
        *third = _mm512_mask_permutexvar_epi8(two, blue, places, b);
    }
    cast(thirds)
}
