//! Inverse DCT and color conversion for x86-64, written once for vectors of every width. Each
//! instruction set imports its instructions under common names and implements data movement itself.

use std::arch::x86_64::{_mm_cvtepi8_epi16, _mm_cvtsi64_si128};

use bytemuck::cast;

use super::super::ac_table::PATTERN;
use super::super::blocks::Widening;

mod reduction;

/// Widens eight coefficients at once. Used only in functions that are compiled with SSE4.1.
pub struct Wide;

impl Widening for Wide {
    #[inline(always)]
    fn widen(pattern: &[i8; PATTERN], to: &mut [i16; PATTERN]) {
        // SAFETY: only functions compiled with SSE4.1 call this function.
        *to = cast(unsafe { _mm_cvtepi8_epi16(_mm_cvtsi64_si128(cast(*pattern))) });
    }
}

/// Byte shuffles from zigzag order to rows, for each row and each group of eight coefficients.
/// Bytes of other rows are cleared.
pub const UNZIGZAG: [[[u8; 16]; 8]; 8] = {
    let mut shuffles = [[[0x80; 16]; 8]; 8];
    let mut at = 0;
    while at < 64 {
        let place = super::super::frame::ZIGZAG[at] as usize;
        let shuffle = &mut shuffles[place / 8][at / 8];
        shuffle[2 * (place % 8)] = 2 * (at % 8) as u8;
        shuffle[2 * (place % 8) + 1] = 2 * (at % 8) as u8 + 1;
        at += 1;
    }
    shuffles
};

/// Whether a group of eight coefficients, in zigzag order, contains coefficients of `row`.
pub const fn is_in_row(row: usize, eight: usize) -> bool {
    let mut at = 0;
    while at < 16 {
        if UNZIGZAG[row][eight][at] != 0x80 {
            return true;
        }
        at += 1;
    }
    false
}

/// For each channel and each 16 bytes of pixels: positions of the bytes in the channel, in which
/// even pixels come first.
pub const INTERLEAVE: [[[u8; 16]; 3]; 3] = {
    let mut shuffles = [[[0x80; 16]; 3]; 3];
    let mut at = 0;
    while at < 48 {
        let pixel = at / 3;
        shuffles[at % 3][at / 16][at % 16] = (pixel / 2 + pixel % 2 * 8) as u8;
        at += 1;
    }
    shuffles
};

/// Byte shuffles from columns of four bytes to rows: `FOURS` to rows of four bytes, `TWOS` to rows
/// of two bytes.
pub const FOURS: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
pub const TWOS: [u8; 16] =
    [0, 4, 1, 5, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80];

/// Packs two 16-bit factors for a sum of two products.
pub const fn pair(first: i32, second: i32) -> i32 {
    (first as u16 as u32 | (second as u16 as u32) << 16) as i32
}

/// Defines both passes of the transform, the transposition of blocks and the color conversion.
/// Blocks lie side by side: the vector of a row has 128 bits per block.
macro_rules! arithmetic {
    ($features:literal, $Vector:ty) => {
        /// One dimension of the inverse DCT (`jidctint.c`: Loeffler, Ligtenberg and Moschytz,
        /// 1989). Factors have 13 fractional bits. With `SPARSE`, rows 4 to 7 are zero.
        macro_rules! pass {
            ($name:ident, $shift:literal) => {
                #[inline]
                #[target_feature(enable = $features)]
                fn $name<const SPARSE: bool, const HALF: bool>(rows: [$Vector; 8]) -> [$Vector; 8] {
                    let low = half!(rows, $shift, unpack_low16, SPARSE);
                    let high = match HALF {
                        true => [zero(); 8],
                        false => half!(rows, $shift, unpack_high16, SPARSE),
                    };
                    [
                        pack32(low[0], high[0]),
                        pack32(low[1], high[1]),
                        pack32(low[2], high[2]),
                        pack32(low[3], high[3]),
                        pack32(low[4], high[4]),
                        pack32(low[5], high[5]),
                        pack32(low[6], high[6]),
                        pack32(low[7], high[7]),
                    ]
                }
            };
        }

        /// Transforms half of the columns, as 32-bit numbers. Sums of inputs wrap at 16 bits.
        macro_rules! half {
            ($rows:ident, $shift:literal, $unpack:ident, $sparse:ident) => {{
                let [r0, r1, r2, r3, r4, r5, r6, r7] = $rows;
                let products = |pairs: $Vector, first: i32, second: i32| {
                    multiply_add(pairs, splat32(x86::pair(first, second)))
                };
                // Scales to 13 fractional bits. For rounding, the second product adds half of what
                // the later shift by $shift bits drops.
                const ROUNDING: i32 = 1 << ($shift - 1);
                let other = if ROUNDING < 1 << 13 { ROUNDING } else { 1 << 13 };
                let wide = |row: $Vector| {
                    products($unpack(row, splat16((ROUNDING / other) as i16)), 1 << 13, other)
                };
                let (sum, difference) = match $sparse {
                    true => (r0, r0),
                    false => (add16(r0, r4), sub16(r0, r4)),
                };
                let middle = wide(sum);
                let side = match $sparse {
                    true => middle,
                    false => wide(difference),
                };
                let two_six = $unpack(r2, r6);
                let up = products(two_six, 4433, 4433 - 15137);
                let down = products(two_six, 4433 + 6270, 4433);
                let even =
                    [add32(middle, down), add32(side, up), sub32(side, up), sub32(middle, down)];
                let turned = match $sparse {
                    true => $unpack(r3, r1),
                    false => $unpack(add16(r7, r3), add16(r5, r1)),
                };
                let left = products(turned, 9633 - 16069, 9633);
                let right = products(turned, 9633, 9633 - 3196);
                let seven_one = $unpack(r7, r1);
                let five_three = $unpack(r5, r3);
                let odd = [
                    add32(products(seven_one, -7373, 12299 - 7373), right),
                    add32(products(five_three, -20995, 25172 - 20995), left),
                    add32(products(five_three, 16819 - 20995, -20995), right),
                    add32(products(seven_one, 2446 - 7373, -7373), left),
                ];
                [
                    shift_right32::<$shift>(add32(even[0], odd[0])),
                    shift_right32::<$shift>(add32(even[1], odd[1])),
                    shift_right32::<$shift>(add32(even[2], odd[2])),
                    shift_right32::<$shift>(add32(even[3], odd[3])),
                    shift_right32::<$shift>(sub32(even[3], odd[3])),
                    shift_right32::<$shift>(sub32(even[2], odd[2])),
                    shift_right32::<$shift>(sub32(even[1], odd[1])),
                    shift_right32::<$shift>(sub32(even[0], odd[0])),
                ]
            }};
        }

        pass!(columns, 11);
        pass!(rows, 18);

        /// Transposes each block.
        #[inline]
        #[target_feature(enable = $features)]
        fn transposed(rows: [$Vector; 8]) -> [$Vector; 8] {
            let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
            let [a0, a1] = [unpack_low16(r0, r1), unpack_high16(r0, r1)];
            let [a2, a3] = [unpack_low16(r2, r3), unpack_high16(r2, r3)];
            let [a4, a5] = [unpack_low16(r4, r5), unpack_high16(r4, r5)];
            let [a6, a7] = [unpack_low16(r6, r7), unpack_high16(r6, r7)];
            let [b0, b1] = [unpack_low32(a0, a2), unpack_high32(a0, a2)];
            let [b2, b3] = [unpack_low32(a1, a3), unpack_high32(a1, a3)];
            let [b4, b5] = [unpack_low32(a4, a6), unpack_high32(a4, a6)];
            let [b6, b7] = [unpack_low32(a5, a7), unpack_high32(a5, a7)];
            [
                unpack_low64(b0, b4),
                unpack_high64(b0, b4),
                unpack_low64(b1, b5),
                unpack_high64(b1, b5),
                unpack_low64(b2, b6),
                unpack_high64(b2, b6),
                unpack_low64(b3, b7),
                unpack_high64(b3, b7),
            ]
        }

        /// Transforms dequantized blocks to samples. Each vector of the result has two rows of each
        /// block.
        #[inline]
        #[target_feature(enable = $features)]
        fn samples<const SPARSE: bool>(block: [$Vector; 8]) -> [$Vector; 4] {
            let turned = transposed(columns::<SPARSE, SPARSE>(block));
            let [c0, c1, c2, c3, c4, c5, c6, c7] = rows::<SPARSE, false>(turned);
            // Transposing bytes takes fewer instructions than transposing 16-bit numbers.
            let [a, b] = [limited(c0, c1), limited(c2, c3)];
            let [c, d] = [limited(c4, c5), limited(c6, c7)];
            let [even0, odd0] = [unpack_low8(a, b), unpack_high8(a, b)];
            let [even4, odd4] = [unpack_low8(c, d), unpack_high8(c, d)];
            let [left0, left4] = [unpack_low8(even0, odd0), unpack_high8(even0, odd0)];
            let [right0, right4] = [unpack_low8(even4, odd4), unpack_high8(even4, odd4)];
            [
                unpack_low32(left0, right0),
                unpack_high32(left0, right0),
                unpack_low32(left4, right4),
                unpack_high32(left4, right4),
            ]
        }

        /// Returns nonzero bits if a coefficient lies outside the range `SANE`.
        #[inline]
        #[target_feature(enable = $features)]
        fn insane(first_row: $Vector) -> $Vector {
            and(add16(first_row, splat16(1 << 13)), splat16(-1 << 14))
        }

        /// Adds 128 to the samples of two vectors and converts them to bytes.
        #[inline]
        #[target_feature(enable = $features)]
        fn limited(first: $Vector, second: $Vector) -> $Vector {
            xor(pack16(first, second), splat32(0x8080_8080_u32 as i32))
        }

        /// Converts luma, and chroma minus 128, to red, green and blue with JFIF's factors, which
        /// have 16 fractional bits (`jdcolor.c`).
        #[inline]
        #[target_feature(enable = $features)]
        fn colors(luma: $Vector, blue: $Vector, red: $Vector) -> [$Vector; 3] {
            // The factors have 14 fractional bits: the instruction shifts by 15, and chroma is
            // doubled. For all chroma values, JFIF's factors with 16 fractional bits give the same
            // result.
            let scaled = |chroma: $Vector, factor: i16| {
                multiply_rounded(add16(chroma, chroma), splat16(factor))
            };
            let products = |pairs: $Vector| {
                let sum = multiply_add(pairs, splat32(x86::pair(-22554 / 2, -46802 / 2)));
                shift_right32::<15>(add32(sum, splat32(1 << 14)))
            };
            let low = products(unpack_low16(blue, red));
            let high = products(unpack_high16(blue, red));
            let r = add16(luma, scaled(red, 22971));
            let g = add16(luma, pack32(low, high));
            let b = add16(luma, scaled(blue, 29033));
            [r, g, b]
        }

        /// Converts luma, and the chroma of even and odd pixels, to red, green and blue. In each
        /// 128 bits of the result, the even pixels come first.
        #[inline]
        #[target_feature(enable = $features)]
        fn even_odd(luma: $Vector, even: [$Vector; 2], odd: [$Vector; 2]) -> [$Vector; 3] {
            let [e, o] = [
                colors(and(luma, splat16(255)), even[0], even[1]),
                colors(shift_right_unsigned16::<8>(luma), odd[0], odd[1]),
            ];
            [pack_unsigned16(e[0], o[0]), pack_unsigned16(e[1], o[1]), pack_unsigned16(e[2], o[2])]
        }

        /// Converts luma and chroma samples of the same width to red, green and blue.
        #[inline]
        #[target_feature(enable = $features)]
        fn full_chroma(luma: $Vector, blue: $Vector, red: $Vector) -> [$Vector; 3] {
            let offset = splat16(128);
            let even = |it: $Vector| sub16(and(it, splat16(255)), offset);
            let odd = |it: $Vector| sub16(shift_right_unsigned16::<8>(it), offset);
            even_odd(luma, [even(blue), even(red)], [odd(blue), odd(red)])
        }

        /// Interpolates the chroma of even and odd pixels and subtracts 128. The nearest sum has
        /// weight 3, its neighbour weight 1. With `V`, each sum was computed from two rows.
        #[inline]
        #[target_feature(enable = $features)]
        fn between<const V: bool>(left: $Vector, sum: $Vector, right: $Vector) -> [$Vector; 2] {
            let thrice = add16(sum, add16(sum, sum));
            let [even, odd] = [add16(thrice, left), add16(thrice, right)];
            match V {
                true => [shift_right16::<4>(even), shift_right16::<4>(add16(odd, splat16(-1)))],
                false => [
                    shift_right16::<2>(add16(even, splat16(1))),
                    shift_right16::<2>(add16(odd, splat16(2))),
                ],
            }
        }

        /// Computes `3 * near + far + bias` for the samples of two rows. The function `between`
        /// adds up four of these sums, so the bias is a quarter of a constant that subtracts 128
        /// and rounds the even pixels.
        #[target_feature(enable = $features)]
        pub fn sums(near: &[u8], far: &[u8], sums: &mut [i16]) {
            const N: usize = size_of::<$Vector>() / 2;
            let sources = near.as_chunks::<N>().0.iter().zip(far.as_chunks::<N>().0);
            for (sum, (near, far)) in sums.as_chunks_mut::<N>().0.iter_mut().zip(sources) {
                let [near, far] = [widened(*near), widened(*far)];
                let biased = add16(far, splat16((8 - 16 * 128) / 4));
                *sum = cast(add16(add16(near, biased), add16(near, near)));
            }
        }

        /// Converts the samples of a row to 16 bits and subtracts 128.
        #[target_feature(enable = $features)]
        pub fn widen(samples: &[u8], wide: &mut [i16]) {
            const N: usize = size_of::<$Vector>() / 2;
            for (wide, samples) in wide.as_chunks_mut::<N>().0.iter_mut().zip(samples.as_chunks().0)
            {
                *wide = cast(sub16(widened(*samples), splat16(128)));
            }
        }

        /// Converts luma, and half-width chroma sums that begin with a left neighbour, to pixels.
        #[target_feature(enable = $features)]
        pub fn half_chroma<const V: bool>(luma: &[u8], chroma: [&[i16]; 2], pixels: &mut [u8]) {
            const N: usize = size_of::<$Vector>() / 2;
            let pixels = pixels.as_chunks_mut::<{ 6 * N }>().0;
            let luma = luma.as_chunks::<{ 2 * N }>().0;
            let [blue, red] =
                [super::neighbours::<N>(chroma[0]), super::neighbours::<N>(chroma[1])];
            for (((pixels, luma), blue), red) in pixels.iter_mut().zip(luma).zip(blue).zip(red) {
                let ((left, here), right) = blue;
                let blue = between::<V>(cast(*left), cast(*here), cast(*right));
                let ((left, here), right) = red;
                let red = between::<V>(cast(*left), cast(*here), cast(*right));
                *pixels = interleaved(even_odd(cast(*luma), [blue[0], red[0]], [blue[1], red[1]]));
            }
        }

        /// Converts luma and chroma samples of the same width to pixels.
        #[target_feature(enable = $features)]
        pub fn whole_chroma(luma: &[u8], chroma: [&[u8]; 2], pixels: &mut [u8]) {
            const N: usize = size_of::<$Vector>();
            let pixels = pixels.as_chunks_mut::<{ 3 * N }>().0;
            let [blue, red] = [chroma[0].as_chunks::<N>().0, chroma[1].as_chunks::<N>().0];
            let luma = luma.as_chunks::<N>().0;
            for (((pixels, luma), blue), red) in pixels.iter_mut().zip(luma).zip(blue).zip(red) {
                *pixels = interleaved(full_chroma(cast(*luma), cast(*blue), cast(*red)));
            }
        }

        /// Converts luma to gray pixels.
        #[target_feature(enable = $features)]
        pub fn gray(luma: &[u8], pixels: &mut [u8]) {
            const N: usize = size_of::<$Vector>();
            for (pixels, luma) in
                pixels.as_chunks_mut::<{ 3 * N }>().0.iter_mut().zip(luma.as_chunks::<N>().0)
            {
                let luma: $Vector = cast(*luma);
                // Even pixels come first, as in `even_odd`.
                let [even, odd] = [and(luma, splat16(255)), shift_right_unsigned16::<8>(luma)];
                let value = pack_unsigned16(even, odd);
                *pixels = interleaved([value, value, value]);
            }
        }
    };
}

/// Dequantizes one row of blocks.
macro_rules! row {
    ($SPARSE:ident, $eights:ident, $steps:ident, $row:literal: $($eight:literal)*) => {{
        let mut row = zero();
        $(if const { x86::is_in_row($row, $eight) && (!$SPARSE || $row < 4 && $eight < 2) } {
            row = or(row, shuffled($eights[$eight], &x86::UNZIGZAG[$row][$eight]));
        })*
        if $SPARSE && $row >= 4 { row } else { multiply_low(row, cast($steps[$row])) }
    }};
}

/// Defines the function that moves blocks from zigzag order to rows and dequantizes them.
macro_rules! unzigzag {
    ($features:literal, $Vector:ty) => {
        /// Returns dequantized rows of blocks whose coefficients are in groups of eight, in zigzag
        /// order.
        #[inline]
        #[target_feature(enable = $features)]
        fn dequantized<const SPARSE: bool>(
            eights: [$Vector; 8],
            steps: [[u16; size_of::<$Vector>() / 2]; 8],
        ) -> [$Vector; 8] {
            [
                x86::row!(SPARSE, eights, steps, 0: 0 1 2 3 4 5 6 7),
                x86::row!(SPARSE, eights, steps, 1: 0 1 2 3 4 5 6 7),
                x86::row!(SPARSE, eights, steps, 2: 0 1 2 3 4 5 6 7),
                x86::row!(SPARSE, eights, steps, 3: 0 1 2 3 4 5 6 7),
                x86::row!(SPARSE, eights, steps, 4: 0 1 2 3 4 5 6 7),
                x86::row!(SPARSE, eights, steps, 5: 0 1 2 3 4 5 6 7),
                x86::row!(SPARSE, eights, steps, 6: 0 1 2 3 4 5 6 7),
                x86::row!(SPARSE, eights, steps, 7: 0 1 2 3 4 5 6 7),
            ]
        }
    };
}

/// Compiles the entropy decoder for an instruction set.
macro_rules! reading {
    ($features:literal, $Operations:ty) => {
        /// Calls [`Coding::decode`].
        #[target_feature(enable = $features)]
        pub fn decode(
            coding: &Coding<'_>,
            blocks: Range<usize>,
            reader: &mut Reader<'_>,
        ) -> Option<()> {
            coding.decode::<x86::Wide>(blocks, reader)
        }

        /// Calls [`Coding::parse`].
        #[target_feature(enable = $features)]
        pub fn parse(coding: &Coding<'_>, units: usize, reader: &mut Reader<'_>) -> Option<()> {
            coding.parse(units, reader)
        }

        /// Calls [`Bands::first`].
        #[target_feature(enable = $features)]
        pub fn first(
            bands: &mut Bands<'_>,
            input: &mut Input<'_>,
            masks: &mut [Mask],
            blocks: &mut [Block],
        ) -> Option<()> {
            bands.first(input.parts(), masks, blocks)
        }

        /// Calls [`Bands::refine`].
        #[target_feature(enable = $features)]
        pub fn refine(
            bands: &mut Bands<'_>,
            input: &mut Input<'_>,
            masks: &mut [Mask],
            blocks: &mut [Block],
        ) -> Option<()> {
            bands.refine::<$Operations>(input.parts(), masks, blocks)
        }
    };
}

pub(super) use reduction::reduction;
pub(super) use {arithmetic, reading, row, unzigzag};
