//! NEON loops, which transform a pair of blocks at a time. Every 64-bit ARM CPU has NEON.

use std::arch::aarch64::{
    int16x4_t, int16x8_t, int32x4_t, uint8x8_t, uint8x16_t, uint8x16x2_t, uint8x16x3_t,
    uint8x16x4_t, vaddq_s16, vaddq_s32, vaddw_u8, vcombine_s16, vcombine_u8, vcreate_s8,
    vdup_n_s16, vdup_n_u8, vdupq_n_s16, vdupq_n_s32, vdupq_n_u16, vget_high_s16 as high,
    vget_high_u8, vget_low_s16 as low, vget_low_u8, vmlal_n_s16, vmlal_u8, vmovl_s8, vmull_n_s16,
    vmulq_s16, vqmovun_s16, vqrdmulhq_n_s16, vqshrn_n_s16, vqshrn_n_s32, vqtbl2q_u8, vqtbl4q_u8,
    vqtbx4q_u8, vreinterpretq_s16_s64, vreinterpretq_s16_u16, vreinterpretq_s32_s16,
    vreinterpretq_s64_s32, vreinterpretq_u16_s16, vrshrn_n_s32, vrshrq_n_s16, vshll_n_s16,
    vshrn_n_s32, vshrq_n_s16, vst3q_u8, vsubl_u8, vsubq_s16, vsubq_s32, vtrn1q_s16, vtrn1q_s32,
    vtrn1q_s64, vtrn2q_s16, vtrn2q_s32, vtrn2q_s64, vzip1q_s16, vzip2q_s16,
};

use bytemuck::cast;

use super::super::ac_table::PATTERN;
use super::super::blocks::Widening;
use super::super::frame::ZIGZAG;
use super::{Four, Planes, SANE, neighbours};

/// Byte positions of each row's coefficients in the first 64 bytes and in the last 64 bytes of a
/// block in zigzag order. Positions out of range yield zero (instruction `tbl`), or keep the
/// previous byte (`tbx`).
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

/// Widens eight coefficients from 8 to 16 bits at once.
pub struct Wide;

impl Widening for Wide {
    #[inline(always)]
    fn widen(pattern: &[i8; PATTERN], to: &mut [i16; PATTERN]) {
        // SAFETY: every 64-bit ARM CPU has NEON.
        *to = cast(unsafe { vmovl_s8(vcreate_s8(cast(*pattern))) });
    }
}

/// Transforms four blocks to samples. Returns false if a coefficient lies outside the range `SANE`.
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
            let rows = if SPARSE { 4 } else { 8 };
            let lines = block[..rows].iter_mut().zip(PLACES).enumerate();
            for (row, (line, [in_first, in_second])) in lines {
                let coefficients: int16x8_t = cast(if SPARSE {
                    vqtbl2q_u8(uint8x16x2_t(a, b), cast(in_first))
                } else {
                    let low = vqtbl4q_u8(first, cast(in_first));
                    vqtbx4q_u8(low, second, cast(in_second))
                });
                let steps = four.quantization[row].as_chunks::<8>().0[number];
                *line = vmulq_s16(coefficients, cast(steps));
            }
            let first_row: [i16; 8] = cast(block[0]);
            is_sane &= first_row.iter().all(|coefficient| SANE.contains(coefficient));
            let columns = transposed(pass::<11, SPARSE, SPARSE>(block));
            *samples = transposed(pass::<18, SPARSE, false>(columns));
        }
        for (row, (left, right)) in left.into_iter().zip(right).enumerate() {
            let bytes: [i8; 16] =
                cast(vcombine_u8(cast(vqshrn_n_s16::<2>(left)), cast(vqshrn_n_s16::<2>(right))));
            planes.put_pair(pair, row, bytes.map(|sample| sample as u8 ^ 0x80));
        }
    }
    is_sane
}

/// One dimension of the inverse DCT (`jidctint.c`). Factors have 13 fractional bits. Sums of inputs
/// wrap at 16 bits. With a `SHIFT` of 18, the results are shifted by only 16 bits, so they keep two
/// fractional bits. With `SPARSE`, rows 4 to 7 are zero. With `HALF`, columns 4 to 7 are zero.
#[inline]
#[target_feature(enable = "neon")]
fn pass<const SHIFT: i32, const SPARSE: bool, const HALF: bool>(
    rows: [int16x8_t; 8],
) -> [int16x8_t; 8] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
    let sums = match SPARSE {
        true => [r0, r0, r3, r1],
        false => [vaddq_s16(r0, r4), vsubq_s16(r0, r4), vaddq_s16(r7, r3), vaddq_s16(r5, r1)],
    };
    let left = half::<SHIFT, SPARSE>(
        [low(sums[0]), low(sums[1]), low(sums[2]), low(sums[3])],
        [low(r1), low(r2), low(r3), low(r5), low(r6), low(r7)],
    );
    let right = match HALF {
        true => [vdup_n_s16(0); 8],
        false => half::<SHIFT, SPARSE>(
            [high(sums[0]), high(sums[1]), high(sums[2]), high(sums[3])],
            [high(r1), high(r2), high(r3), high(r5), high(r6), high(r7)],
        ),
    };
    let mut both = [vdupq_n_s16(0); 8];
    for (both, (left, right)) in both.iter_mut().zip(left.into_iter().zip(right)) {
        *both = vcombine_s16(left, right);
    }
    both
}

/// Transforms half of the columns.
#[inline]
#[target_feature(enable = "neon")]
fn half<const SHIFT: i32, const SPARSE: bool>(
    [sum, difference, seven_three, five_one]: [int16x4_t; 4],
    [r1, r2, r3, r5, r6, r7]: [int16x4_t; 6],
) -> [int16x4_t; 8] {
    let products = |a: int16x4_t, by_a: i16, b: int16x4_t, by_b: i16| {
        vmlal_n_s16(vmull_n_s16(a, by_a), b, by_b)
    };
    // In sparse blocks, `b` is zero, so its product is left out.
    let with_zero = |a: int16x4_t, by_a: i16, b: int16x4_t, by_b: i16| match SPARSE {
        true => vmull_n_s16(a, by_a),
        false => products(a, by_a, b, by_b),
    };
    let rounding = vdupq_n_s32(1 << (SHIFT - 1));
    let middle = vaddq_s32(vshll_n_s16::<13>(sum), rounding);
    let side = vaddq_s32(vshll_n_s16::<13>(difference), rounding);
    let up = with_zero(r2, 4433, r6, 4433 - 15137);
    let down = with_zero(r2, 4433 + 6270, r6, 4433);
    let even = [
        vaddq_s32(middle, down),
        vaddq_s32(side, up),
        vsubq_s32(side, up),
        vsubq_s32(middle, down),
    ];
    let left = products(seven_three, 9633 - 16069, five_one, 9633);
    let right = products(seven_three, 9633, five_one, 9633 - 3196);
    let odd = [
        vaddq_s32(with_zero(r1, 12299 - 7373, r7, -7373), right),
        vaddq_s32(with_zero(r3, 25172 - 20995, r5, -20995), left),
        vaddq_s32(with_zero(r3, -20995, r5, 16819 - 20995), right),
        vaddq_s32(with_zero(r1, -7373, r7, 2446 - 7373), left),
    ];
    let mut results = [vdup_n_s16(0); 8];
    for at in 0..4 {
        results[at] = shifted::<SHIFT>(vaddq_s32(even[at], odd[at]));
        results[7 - at] = shifted::<SHIFT>(vsubq_s32(even[at], odd[at]));
    }
    results
}

#[inline]
#[target_feature(enable = "neon")]
fn shifted<const SHIFT: i32>(values: int32x4_t) -> int16x4_t {
    match SHIFT {
        11 => vqshrn_n_s32::<11>(values),
        _ => vshrn_n_s32::<16>(values),
    }
}

/// Transposes a block.
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

/// Computes `3 * near + far + bias` for the samples of two rows. The function `between` adds up
/// four of these sums, so the bias is a quarter of a constant that subtracts 128 and rounds the
/// even pixels.
#[target_feature(enable = "neon")]
pub fn sums(near: &[u8], far: &[u8], sums: &mut [i16]) {
    let sources = near.as_chunks::<8>().0.iter().zip(far.as_chunks::<8>().0);
    for (sum, (near, far)) in sums.as_chunks_mut::<8>().0.iter_mut().zip(sources) {
        let bias = vdupq_n_u16(((8 - 16 * 128) / 4) as i16 as u16);
        *sum = cast(vaddw_u8(vmlal_u8(bias, cast(*near), vdup_n_u8(3)), cast(*far)));
    }
}

/// Converts the samples of a row to 16 bits and subtracts 128.
#[target_feature(enable = "neon")]
pub fn widen(samples: &[u8], wide: &mut [i16]) {
    for (wide, samples) in wide.as_chunks_mut::<8>().0.iter_mut().zip(samples.as_chunks::<8>().0) {
        *wide = cast(centred(cast(*samples)));
    }
}

/// Converts a row of luma, and sums of chroma of half the width, to pixels. The sums begin with the
/// left neighbour of the row's first sum.
#[target_feature(enable = "neon")]
pub fn half_chroma<const V: bool>(luma: &[u8], chroma: [&[i16]; 2], pixels: &mut [u8]) {
    let (pixels, luma) = (pixels.as_chunks_mut::<48>().0, luma.as_chunks::<16>().0);
    let [blue, red] = [neighbours::<8>(chroma[0]), neighbours::<8>(chroma[1])];
    for (((pixels, luma), blue), red) in pixels.iter_mut().zip(luma).zip(blue).zip(red) {
        let ((left, here), right) = blue;
        let blue = between::<V>(cast(*left), cast(*here), cast(*right));
        let ((left, here), right) = red;
        let red = between::<V>(cast(*left), cast(*here), cast(*right));
        write_colors(cast(*luma), blue, red, pixels);
    }
}

/// Converts luma and chroma samples of the same width to pixels.
#[target_feature(enable = "neon")]
pub fn whole_chroma(luma: &[u8], chroma: [&[u8]; 2], pixels: &mut [u8]) {
    let (pixels, luma) = (pixels.as_chunks_mut::<48>().0, luma.as_chunks::<16>().0);
    let [blue, red] = [chroma[0].as_chunks::<16>().0, chroma[1].as_chunks::<16>().0];
    for (((pixels, luma), blue), red) in pixels.iter_mut().zip(luma).zip(blue).zip(red) {
        let both = |it: uint8x16_t| [centred(vget_low_u8(it)), centred(vget_high_u8(it))];
        write_colors(cast(*luma), both(cast(*blue)), both(cast(*red)), pixels);
    }
}

/// Converts luma to gray pixels.
#[target_feature(enable = "neon")]
pub fn gray(luma: &[u8], pixels: &mut [u8]) {
    for (pixels, luma) in pixels.as_chunks_mut::<48>().0.iter_mut().zip(luma.as_chunks::<16>().0) {
        let luma = cast(*luma);
        interleave(uint8x16x3_t(luma, luma, luma), pixels);
    }
}

/// Subtracts 128 from samples.
#[inline]
#[target_feature(enable = "neon")]
fn centred(samples: uint8x8_t) -> int16x8_t {
    vreinterpretq_s16_u16(vsubl_u8(samples, vdup_n_u8(128)))
}

/// Interpolates the chroma of pixels and subtracts 128. The nearest sum has weight 3, its neighbour
/// weight 1. With `V`, each sum was computed from two rows.
#[inline]
#[target_feature(enable = "neon")]
fn between<const V: bool>(left: int16x8_t, sum: int16x8_t, right: int16x8_t) -> [int16x8_t; 2] {
    let thrice = vaddq_s16(sum, vaddq_s16(sum, sum));
    let [even, odd] = [vaddq_s16(thrice, left), vaddq_s16(thrice, right)];
    let [even, odd] = match V {
        true => [vshrq_n_s16::<4>(even), vshrq_n_s16::<4>(vaddq_s16(odd, vdupq_n_s16(-1)))],
        // The instruction `vrshrq_n_s16::<2>` adds 2 before it shifts, so `odd` needs no addition.
        false => [vshrq_n_s16::<2>(vaddq_s16(even, vdupq_n_s16(1))), vrshrq_n_s16::<2>(odd)],
    };
    [vzip1q_s16(even, odd), vzip2q_s16(even, odd)]
}

/// Converts luma, and chroma minus 128, to pixels with JFIF's factors, which have 16 fractional
/// bits (`jdcolor.c`).
#[inline]
#[target_feature(enable = "neon")]
fn write_colors(luma: uint8x16_t, blue: [int16x8_t; 2], red: [int16x8_t; 2], to: &mut [u8; 48]) {
    let [r, g, b] = colors(vget_low_u8(luma), blue[0], red[0]);
    let [r2, g2, b2] = colors(vget_high_u8(luma), blue[1], red[1]);
    let [r, g, b] = [vcombine_u8(r, r2), vcombine_u8(g, g2), vcombine_u8(b, b2)];
    interleave(uint8x16x3_t(r, g, b), to);
}

/// Computes red, green and blue.
#[inline]
#[target_feature(enable = "neon")]
fn colors(luma: uint8x8_t, blue: int16x8_t, red: int16x8_t) -> [uint8x8_t; 3] {
    // The instruction doubles the product, rounds it, and keeps the upper 16 bits. The factors have
    // 14 fractional bits. For all 256 chroma values, the result still equals that of JFIF's
    // factors, which have 16 fractional bits.
    let scaled = |chroma, factor| vqrdmulhq_n_s16(vaddq_s16(chroma, chroma), factor);
    let products =
        |blue, red| vrshrn_n_s32::<15>(vmlal_n_s16(vmull_n_s16(blue, -11277), red, -23401));
    let g = vcombine_s16(products(low(blue), low(red)), products(high(blue), high(red)));
    [scaled(red, 22971), g, scaled(blue, 29033)]
        .map(|it| vqmovun_s16(vreinterpretq_s16_u16(vaddw_u8(vreinterpretq_u16_s16(it), luma))))
}

#[inline]
#[target_feature(enable = "neon")]
fn interleave(channels: uint8x16x3_t, pixels: &mut [u8; 48]) {
    // SAFETY: the array has the 48 bytes that the instruction writes.
    unsafe { vst3q_u8(pixels.as_mut_ptr(), channels) };
}
