//! Transform of blocks to fewer samples, for JPEGs that are reduced while they are decoded.

/// Defines the transform of blocks to 4 × 4 or 2 × 2 samples.
macro_rules! reduction {
    ($features:literal, $Vector:ty) => {
        /// One dimension of the transform to fewer samples (`jidctred.c`), for the first or the
        /// last half of the columns.
        macro_rules! reducing_half {
            ($rows:ident, $SIDE:ident, $shift:literal, $unpack:ident) => {{
                let [r0, r1, r2, r3, _, r5, r6, r7] = $rows;
                let products = |pairs: $Vector, first: i32, second: i32| {
                    multiply_add(pairs, splat32(x86::pair(first, second)))
                };
                // Scales the middle value to 14 fractional bits. In the reduction to four samples,
                // the second product also adds the rounding constant, which is half of the unit
                // that the later shift drops.
                const ROUNDING: i32 = 1 << ($shift + 1);
                let other = if ROUNDING < 1 << 14 { ROUNDING } else { 1 << 14 };
                let middle =
                    products($unpack(r0, splat16((ROUNDING / other) as i16)), 1 << 14, other);
                let (seven_five, three_one) = ($unpack(r7, r5), $unpack(r3, r1));
                if $SIDE == 4 {
                    let side = products($unpack(r2, r6), 15137, -6270);
                    let even = [add32(middle, side), sub32(middle, side)];
                    let odd = [
                        add32(products(seven_five, -4176, -4926), products(three_one, 7373, 20995)),
                        add32(
                            products(seven_five, -1730, 11893),
                            products(three_one, -17799, 8697),
                        ),
                    ];
                    [
                        shift_right32::<{ $shift + 2 }>(add32(even[0], odd[0])),
                        shift_right32::<{ $shift + 2 }>(add32(even[1], odd[1])),
                        shift_right32::<{ $shift + 2 }>(sub32(even[1], odd[1])),
                        shift_right32::<{ $shift + 2 }>(sub32(even[0], odd[0])),
                    ]
                } else {
                    let middle = add32(middle, middle);
                    let odd = add32(
                        products(seven_five, -5906, 6967),
                        products(three_one, -10426, 29692),
                    );
                    [
                        shift_right32::<{ $shift + 3 }>(add32(middle, odd)),
                        shift_right32::<{ $shift + 3 }>(sub32(middle, odd)),
                        zero(),
                        zero(),
                    ]
                }
            }};
        }

        /// Returns nonzero bits if a coefficient lies outside the range `REDUCIBLE`.
        #[inline]
        #[target_feature(enable = $features)]
        fn irreducible(rows: [$Vector; 8]) -> $Vector {
            let outside = |row| and(add16(row, splat16(1 << 11)), splat16(-1 << 12));
            rows.into_iter().fold(zero(), |found, row| or(found, outside(row)))
        }

        /// Transforms dequantized blocks to fewer samples, row by row in the first bytes of each
        /// 128 bits.
        #[inline]
        #[target_feature(enable = $features)]
        fn reduced<const SIDE: usize>(rows: [$Vector; 8]) -> $Vector {
            let low = reducing_half!(rows, SIDE, 10, unpack_low16);
            let high = reducing_half!(rows, SIDE, 10, unpack_high16);
            let rows = [
                pack32(low[0], high[0]),
                pack32(low[1], high[1]),
                pack32(low[2], high[2]),
                pack32(low[3], high[3]),
                zero(),
                zero(),
                zero(),
                zero(),
            ];
            let columns = transposed(rows);
            let [c0, c1, c2, c3] = reducing_half!(columns, SIDE, 17, unpack_low16);
            // Columns of four bytes are shuffled to rows.
            let columns = limited(pack32(c0, c1), pack32(c2, c3));
            shuffled(columns, if SIDE == 4 { &x86::FOURS } else { &x86::TWOS })
        }
    };
}

pub(in crate::decode::jpeg::kernels) use reduction;
