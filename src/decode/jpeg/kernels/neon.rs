//! NEON, which every 64-bit ARM has: a pair of blocks at a time.

use std::arch::aarch64::{
    int16x4_t, int16x8_t, int32x4_t, uint8x16_t, uint8x16x3_t, uint8x16x4_t, vaddq_s16, vaddq_s32,
    vcombine_s16, vcombine_u8, vcreate_s8, vdup_n_u8, vdupq_n_s16, vdupq_n_s32,
    vget_high_s16 as high, vget_high_u8, vget_low_s16 as low, vget_low_u8, vmlal_n_s16, vmovl_s8,
    vmovl_u8, vmull_n_s16, vmulq_s16, vqmovn_s16, vqmovn_s32, vqmovun_s16, vqtbl4q_u8, vqtbx4q_u8,
    vreinterpretq_s16_s64, vreinterpretq_s16_u16, vreinterpretq_s32_s16, vreinterpretq_s64_s32,
    vrshrn_n_s32, vshll_n_s16, vshrq_n_s16, vshrq_n_s32, vst3q_u8, vsubq_s16, vsubq_s32,
    vtrn1q_s16, vtrn1q_s32, vtrn1q_s64, vtrn2q_s16, vtrn2q_s32, vtrn2q_s64, vzip1q_s16, vzip2q_s16,
};

use bytemuck::cast;

use super::super::ac_table::PATTERN;
use super::super::blocks::Widening;
use super::super::frame::ZIGZAG;
use super::{Four, Planes, SANE, neighbours};

/// Places of the bytes of each row in the first 64 bytes of a block in the order of the file, and in the last. Places
/// outside of them give zero, or leave what is there.
const PLACES: [[[u8; 16]; 2]; 8] = {
    let mut places = [[[0xff; 16]; 2]; 8];
    let mut at = 0;
    while at < 64 {
        let (row, column) = ((ZIGZAG[at] / 8) as usize, (ZIGZAG[at] % 8) as usize);
        let half = &mut places[row][at / 32];
        half[2 * column] = (2 * (at % 32)) as u8;
        half[2 * column + 1] = (2 * (at % 32) + 1) as u8;
        at += 1;
    }
    places
};

/// Stores eight coefficients at once.
pub struct Wide;

impl Widening for Wide {
    #[inline(always)]
    fn widen(pattern: &[i8; PATTERN], to: &mut [i16; PATTERN]) {
        // SAFETY: every 64-bit ARM has NEON.
        *to = cast(unsafe { vmovl_s8(vcreate_s8(cast(*pattern))) });
    }
}

/// Transforms four blocks.
#[target_feature(enable = "neon")]
pub fn transform<const SPARSE: bool>(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut is_sane = true;
    for pair in 0..2 {
        let [mut left, mut right] = [[vdupq_n_s16(0); 8]; 2];
        for (number, samples) in [(2 * pair, &mut left), (2 * pair + 1, &mut right)] {
            let halves: [[uint8x16_t; 4]; 2] = cast(*four.blocks[number]);
            let [[a, b, c, d], [e, f, g, h]] = halves;
            let (first, second) = (uint8x16x4_t(a, b, c, d), uint8x16x4_t(e, f, g, h));
            let mut block = [vdupq_n_s16(0); 8];
            for (row, (line, [in_first, in_second])) in block.iter_mut().zip(PLACES).enumerate() {
                let low = vqtbl4q_u8(first, cast(in_first));
                let coefficients: int16x8_t = cast(vqtbx4q_u8(low, second, cast(in_second)));
                let steps = four.quantization[row].as_chunks::<8>().0[number];
                *line = vmulq_s16(coefficients, cast(steps));
            }
            let first_row: [i16; 8] = cast(block[0]);
            is_sane &= first_row.iter().all(|coefficient| SANE.contains(coefficient));
            *samples = transposed(pass::<18>(transposed(pass::<11>(block))));
        }
        for (row, (left, right)) in left.into_iter().zip(right).enumerate() {
            let bytes: [i8; 16] =
                cast(vcombine_u8(cast(vqmovn_s16(left)), cast(vqmovn_s16(right))));
            planes.put_pair(pair, row, bytes.map(|sample| sample as u8 ^ 0x80));
        }
    }
    is_sane
}

/// One dimension of the transform (`jidctint.c`) with factors of 13 bits after the point. Sums of inputs wrap at 16 bits.
#[inline]
#[target_feature(enable = "neon")]
fn pass<const SHIFT: i32>(rows: [int16x8_t; 8]) -> [int16x8_t; 8] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
    let sums = [vaddq_s16(r0, r4), vsubq_s16(r0, r4), vaddq_s16(r7, r3), vaddq_s16(r5, r1)];
    let left = half::<SHIFT>(
        [low(sums[0]), low(sums[1]), low(sums[2]), low(sums[3])],
        [low(r1), low(r2), low(r3), low(r5), low(r6), low(r7)],
    );
    let right = half::<SHIFT>(
        [high(sums[0]), high(sums[1]), high(sums[2]), high(sums[3])],
        [high(r1), high(r2), high(r3), high(r5), high(r6), high(r7)],
    );
    let mut both = [vdupq_n_s16(0); 8];
    for (both, (left, right)) in both.iter_mut().zip(left.into_iter().zip(right)) {
        *both = vcombine_s16(vqmovn_s32(left), vqmovn_s32(right));
    }
    both
}

/// Half of the columns.
#[inline]
#[target_feature(enable = "neon")]
fn half<const SHIFT: i32>(
    [sum, difference, seven_three, five_one]: [int16x4_t; 4],
    [r1, r2, r3, r5, r6, r7]: [int16x4_t; 6],
) -> [int32x4_t; 8] {
    let products = |a: int16x4_t, by_a: i16, b: int16x4_t, by_b: i16| {
        vmlal_n_s16(vmull_n_s16(a, by_a), b, by_b)
    };
    let rounding = vdupq_n_s32(1 << (SHIFT - 1));
    let middle = vaddq_s32(vshll_n_s16::<13>(sum), rounding);
    let side = vaddq_s32(vshll_n_s16::<13>(difference), rounding);
    let up = products(r2, 4433, r6, 4433 - 15137);
    let down = products(r2, 4433 + 6270, r6, 4433);
    let even = [
        vaddq_s32(middle, down),
        vaddq_s32(side, up),
        vsubq_s32(side, up),
        vsubq_s32(middle, down),
    ];
    let left = products(seven_three, 9633 - 16069, five_one, 9633);
    let right = products(seven_three, 9633, five_one, 9633 - 3196);
    let odd = [
        vaddq_s32(products(r7, -7373, r1, 12299 - 7373), right),
        vaddq_s32(products(r5, -20995, r3, 25172 - 20995), left),
        vaddq_s32(products(r5, 16819 - 20995, r3, -20995), right),
        vaddq_s32(products(r7, 2446 - 7373, r1, -7373), left),
    ];
    let mut results = [rounding; 8];
    for at in 0..4 {
        results[at] = shifted::<SHIFT>(vaddq_s32(even[at], odd[at]));
        results[7 - at] = shifted::<SHIFT>(vsubq_s32(even[at], odd[at]));
    }
    results
}

#[inline]
#[target_feature(enable = "neon")]
fn shifted<const SHIFT: i32>(values: int32x4_t) -> int32x4_t {
    match SHIFT {
        11 => vshrq_n_s32::<11>(values),
        _ => vshrq_n_s32::<18>(values),
    }
}

/// Exchanges rows and columns of a block.
#[inline]
#[target_feature(enable = "neon")]
fn transposed(rows: [int16x8_t; 8]) -> [int16x8_t; 8] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
    let twos = |a, b| {
        let two = [vtrn1q_s16(a, b), vtrn2q_s16(a, b)];
        [vreinterpretq_s32_s16(two[0]), vreinterpretq_s32_s16(two[1])]
    };
    let ([a0, a1], [a2, a3], [a4, a5], [a6, a7]) =
        (twos(r0, r1), twos(r2, r3), twos(r4, r5), twos(r6, r7));
    let fours = |a, b| {
        let four = [vtrn1q_s32(a, b), vtrn2q_s32(a, b)];
        [vreinterpretq_s64_s32(four[0]), vreinterpretq_s64_s32(four[1])]
    };
    let ([b0, b2], [b1, b3], [b4, b6], [b5, b7]) =
        (fours(a0, a2), fours(a1, a3), fours(a4, a6), fours(a5, a7));
    let first = |a, b| vreinterpretq_s16_s64(vtrn1q_s64(a, b));
    let second = |a, b| vreinterpretq_s16_s64(vtrn2q_s64(a, b));
    [
        first(b0, b4),
        first(b1, b5),
        first(b2, b6),
        first(b3, b7),
        second(b0, b4),
        second(b1, b5),
        second(b2, b6),
        second(b3, b7),
    ]
}

/// Sums of samples of two rows, the nearer one with weight 3.
#[target_feature(enable = "neon")]
pub fn sums(near: &[u8], far: &[u8], sums: &mut [i16]) {
    super::plain::sums(near, far, sums);
}

/// Samples of a row as numbers of 16 bits.
#[target_feature(enable = "neon")]
pub fn widen(samples: &[u8], wide: &mut [i16]) {
    super::plain::widen(samples, wide);
}

/// Pixels of luma and of half as many sums of chroma, the first of which lies before the row.
#[target_feature(enable = "neon")]
pub fn half_chroma<const V: bool>(luma: &[u8], chroma: [&[i16]; 2], pixels: &mut [u8]) {
    let (pixels, luma) = (pixels.as_chunks_mut::<48>().0, luma.as_chunks::<16>().0);
    let [blue, red] = [neighbours::<8>(chroma[0]), neighbours::<8>(chroma[1])];
    for (((pixels, luma), blue), red) in pixels.iter_mut().zip(luma).zip(blue).zip(red) {
        let between = |((left, here), right): ((&[i16; 8], &[i16; 8]), &[i16; 8])| {
            let [left, here, right]: [int16x8_t; 3] = [cast(*left), cast(*here), cast(*right)];
            let thrice = vaddq_s16(here, vaddq_s16(here, here));
            let of = |other, bias| vaddq_s16(vaddq_s16(thrice, other), vdupq_n_s16(bias));
            let [even, odd] = match V {
                true => [vshrq_n_s16::<4>(of(left, 8)), vshrq_n_s16::<4>(of(right, 7))],
                false => [vshrq_n_s16::<2>(of(left, 1)), vshrq_n_s16::<2>(of(right, 2))],
            };
            [vzip1q_s16(even, odd), vzip2q_s16(even, odd)]
        };
        *pixels = colors(cast(*luma), between(blue), between(red));
    }
}

/// Pixels of luma and as much chroma.
#[target_feature(enable = "neon")]
pub fn whole_chroma(luma: &[u8], chroma: [&[u8]; 2], pixels: &mut [u8]) {
    let (pixels, luma) = (pixels.as_chunks_mut::<48>().0, luma.as_chunks::<16>().0);
    let [blue, red] = [chroma[0].as_chunks::<16>().0, chroma[1].as_chunks::<16>().0];
    for (((pixels, luma), blue), red) in pixels.iter_mut().zip(luma).zip(blue).zip(red) {
        *pixels = colors(cast(*luma), wide(cast(*blue)), wide(cast(*red)));
    }
}

/// Gray pixels of luma.
#[target_feature(enable = "neon")]
pub fn gray(luma: &[u8], pixels: &mut [u8]) {
    for (pixels, luma) in pixels.as_chunks_mut::<48>().0.iter_mut().zip(luma.as_chunks::<16>().0) {
        let luma = cast(*luma);
        *pixels = interleaved(uint8x16x3_t(luma, luma, luma));
    }
}

/// Pixels of luma and of chroma, with JFIF's factors in 16 bits after the point (`jdcolor.c`).
#[inline]
#[target_feature(enable = "neon")]
fn colors(luma: uint8x16_t, blue: [int16x8_t; 2], red: [int16x8_t; 2]) -> [u8; 48] {
    let luma = wide(luma);
    let mut halves = [[vdup_n_u8(0); 3]; 2];
    for (half, ((luma, blue), red)) in halves.iter_mut().zip(luma.into_iter().zip(blue).zip(red)) {
        let offset = vdupq_n_s16(128);
        let [blue, red] = [vsubq_s16(blue, offset), vsubq_s16(red, offset)];
        // A product without its lower 16 bits, rounded.
        let rounded = |it: int16x8_t, factor: i16| {
            vcombine_s16(
                vrshrn_n_s32::<16>(vmull_n_s16(low(it), factor)),
                vrshrn_n_s32::<16>(vmull_n_s16(high(it), factor)),
            )
        };
        let of_both = |blue: int16x4_t, red: int16x4_t| {
            let factors = [-22554, (65536 - 46802) as i16];
            vrshrn_n_s32::<16>(vmlal_n_s16(vmull_n_s16(blue, factors[0]), red, factors[1]))
        };
        let both = vcombine_s16(of_both(low(blue), low(red)), of_both(high(blue), high(red)));
        let r = vaddq_s16(vaddq_s16(luma, red), rounded(red, (91881 - 65536) as i16));
        let g = vaddq_s16(luma, vsubq_s16(both, red));
        let twice = vaddq_s16(blue, blue);
        let b = vaddq_s16(luma, vaddq_s16(twice, rounded(blue, (116130 - 131072) as i16)));
        *half = [vqmovun_s16(r), vqmovun_s16(g), vqmovun_s16(b)];
    }
    let [[r, g, b], [r2, g2, b2]] = halves;
    interleaved(uint8x16x3_t(vcombine_u8(r, r2), vcombine_u8(g, g2), vcombine_u8(b, b2)))
}

/// Bytes as numbers of 16 bits.
#[inline]
#[target_feature(enable = "neon")]
fn wide(bytes: uint8x16_t) -> [int16x8_t; 2] {
    [
        vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))),
        vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(bytes))),
    ]
}

#[inline]
#[target_feature(enable = "neon")]
fn interleaved(channels: uint8x16x3_t) -> [u8; 48] {
    let mut pixels = [0; 48];
    // SAFETY: the array has the 48 bytes that are written.
    unsafe { vst3q_u8(pixels.as_mut_ptr(), channels) };
    pixels
}
