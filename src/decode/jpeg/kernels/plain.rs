//! Loops that every CPU can run. Tests compare the other instruction sets with them.

use super::super::frame::ZIGZAG;
use super::{Four, Planes, REDUCIBLE, SANE};

/// Transforms four blocks to samples. Returns false if a coefficient lies outside the range `SANE`.
pub fn transform(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut is_sane = true;
    for number in 0..4 {
        let block = dequantized(four, number);
        is_sane &= block[0].iter().all(|coefficient| SANE.contains(coefficient));
        let samples = inverse_transform(&block);
        (0..8).for_each(|row| planes.put_block(number, row, samples[row]));
    }
    is_sane
}

/// Transforms four blocks to `SIDE` × `SIDE` samples (4 or 2). Returns false if a coefficient lies
/// outside `REDUCIBLE`.
pub fn reduce<const SIDE: usize>(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut is_sane = true;
    for number in 0..4 {
        let block = dequantized(four, number);
        is_sane &= block.as_flattened().iter().all(|coefficient| REDUCIBLE.contains(coefficient));
        let columns = transposed(&block).map(reducing_pass::<SIDE, 10>);
        for row in 0..SIDE {
            let samples = reducing_pass::<SIDE, 17>(columns.map(|column| column[row]));
            planes.put_block(number, row, samples.map(|it| (it.clamp(-128, 127) + 128) as u8));
        }
    }
    is_sane
}

/// Writes the mean of each of four blocks as one sample. Returns false if a DC coefficient is out
/// of range.
pub fn means(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut is_sane = true;
    for number in 0..4 {
        // For blocks of one sample, libjpeg-turbo has no vector code. Its C code uses a table of
        // samples with 1,024 entries, which limits the range of the coefficient.
        let dc = i32::from(four.blocks[number][0]) * i32::from(four.quantization[0][8 * number]);
        is_sane &= (-4096..4092).contains(&dc);
        planes.put_block(number, 0, [(((dc + 4) >> 3).clamp(-128, 127) + 128) as u8]);
    }
    is_sane
}

fn dequantized(four: &Four<'_>, number: usize) -> [[i16; 8]; 8] {
    let mut block = [[0; 8]; 8];
    for (place, coefficient) in ZIGZAG.into_iter().zip(four.blocks[number]) {
        let (row, column) = (usize::from(place / 8), usize::from(place % 8));
        let step = four.quantization[row][8 * number + column];
        block[row][column] = coefficient.wrapping_mul(step as i16);
    }
    block
}

/// One dimension of the transform to fewer samples (`jidctred.c`). Results are shifted by `SHIFT`
/// plus 2 bits for 4 samples, or plus 3 bits for 2 samples.
fn reducing_pass<const SIDE: usize, const SHIFT: u32>(input: [i16; 8]) -> [i16; SIDE] {
    let [zero, one, two, three, _, five, six, seven] = input.map(i32::from);
    let product = |value: i32, factor: i32| value.wrapping_mul(factor);
    let sum = |of: [i32; 4]| of.into_iter().fold(0, i32::wrapping_add);
    let (shift, values) = if SIDE == 4 {
        let middle = zero << 14;
        let even = [
            sum([middle, product(two, 15137), product(six, -6270), 0]),
            sum([middle, -product(two, 15137), -product(six, -6270), 0]),
        ];
        let odd = [
            sum([
                product(seven, -4176),
                product(five, -4926),
                product(three, 7373),
                product(one, 20995),
            ]),
            sum([
                product(seven, -1730),
                product(five, 11893),
                product(three, -17799),
                product(one, 8697),
            ]),
        ];
        let [first, second] = [0, 1].map(|at| even[at].wrapping_add(odd[at]));
        let [last, third] = [0, 1].map(|at| even[at].wrapping_sub(odd[at]));
        (SHIFT + 2, [first, second, third, last])
    } else {
        let middle = zero.wrapping_shl(15);
        let odd = sum([
            product(seven, -5906),
            product(five, 6967),
            product(three, -10426),
            product(one, 29692),
        ]);
        (SHIFT + 3, [middle.wrapping_add(odd), middle.wrapping_sub(odd), 0, 0])
    };
    std::array::from_fn(|at| {
        let rounded = values[at].wrapping_add(1 << (shift - 1)) >> shift;
        rounded.clamp(i16::MIN.into(), i16::MAX.into()) as i16
    })
}

/// Computes the samples of a dequantized block (`jidctint.c`: Loeffler, Ligtenberg and Moschytz,
/// 1989).
pub fn inverse_transform(block: &[[i16; 8]; 8]) -> [[u8; 8]; 8] {
    let columns = transposed(block).map(pass::<11>);
    let rows = transposed(&columns).map(pass::<18>);
    rows.map(|row| row.map(|value| (value.clamp(-128, 127) + 128) as u8))
}

fn transposed(block: &[[i16; 8]; 8]) -> [[i16; 8]; 8] {
    let mut turned = [[0; 8]; 8];
    for (y, row) in block.iter().enumerate() {
        for (x, value) in row.iter().enumerate() {
            turned[x][y] = *value;
        }
    }
    turned
}

/// One dimension of the inverse DCT. Sums of inputs wrap at 16 bits, and results saturate.
fn pass<const SHIFT: u32>(input: [i16; 8]) -> [i16; 8] {
    let sum = |a: usize, b: usize| i32::from(input[a].wrapping_add(input[b]));
    let [_, one, two, three, _, five, six, seven] = input.map(i32::from);
    // Factors have 13 fractional bits.
    let middle = sum(0, 4) << 13;
    let side = i32::from(input[0].wrapping_sub(input[4])) << 13;
    let (up, down) = (two * 4433 + six * (4433 - 15137), two * (4433 + 6270) + six * 4433);
    let even = [middle + down, side + up, side - up, middle - down];
    let (left, right) = (sum(7, 3), sum(5, 1));
    let left_turned = left * (9633 - 16069) + right * 9633;
    let right_turned = left * 9633 + right * (9633 - 3196);
    let odd = [
        one * (12299 - 7373) + seven * -7373 + right_turned,
        three * (25172 - 20995) + five * -20995 + left_turned,
        five * (16819 - 20995) + three * -20995 + right_turned,
        seven * (2446 - 7373) + one * -7373 + left_turned,
    ];
    let scaled = |value: i32| {
        let rounded = value.wrapping_add(1 << (SHIFT - 1)) >> SHIFT;
        rounded.clamp(i16::MIN.into(), i16::MAX.into()) as i16
    };
    let mut output = [0; 8];
    for at in 0..4 {
        output[at] = scaled(even[at].wrapping_add(odd[at]));
        output[7 - at] = scaled(even[at].wrapping_sub(odd[at]));
    }
    output
}

/// Adds the samples of two rows. The nearer row has weight 3, the other row weight 1.
pub fn sums(near: &[u8], far: &[u8], sums: &mut [i16]) {
    for (sum, (near, far)) in sums.iter_mut().zip(near.iter().zip(far)) {
        *sum = 3 * i16::from(*near) + i16::from(*far);
    }
}

/// Interpolates samples between two rows. The nearer row has weight 3.
pub fn blend(near: &[u8], far: &[u8], rounding: u16, samples: &mut [u8]) {
    for (sample, (near, far)) in samples.iter_mut().zip(near.iter().zip(far)) {
        *sample = ((3 * u16::from(*near) + u16::from(*far) + rounding) >> 2) as u8;
    }
}

/// Repeats each sample four times.
pub fn quadruple(samples: &[u8], wide: &mut [u8]) {
    for (wide, sample) in wide.as_chunks_mut::<4>().0.iter_mut().zip(samples) {
        *wide = [*sample; 4];
    }
}

/// Converts the samples of a row to 16 bits.
pub fn widen(samples: &[u8], wide: &mut [i16]) {
    for (wide, sample) in wide.iter_mut().zip(samples) {
        *wide = (*sample).into();
    }
}

/// Converts a row of luma, and sums of chroma of half the width, to pixels. The sums begin with the
/// left neighbour of the row's first sum.
pub fn half_chroma<const V: bool>(luma: &[u8], chroma: [&[i16]; 2], pixels: &mut [u8]) {
    let pairs = pixels.as_chunks_mut::<6>().0.iter_mut().zip(luma.as_chunks::<2>().0);
    for (at, (pixels, luma)) in pairs.enumerate() {
        let values = chroma.map(|sums| {
            let [left, here, right] = [sums[at], sums[at + 1], sums[at + 2]].map(i32::from);
            match V {
                true => [(3 * here + left + 8) >> 4, (3 * here + right + 7) >> 4],
                false => [(3 * here + left + 1) >> 2, (3 * here + right + 2) >> 2],
            }
        });
        let [even, odd] = [0, 1].map(|at| color(luma[at], values[0][at], values[1][at]));
        pixels[..3].copy_from_slice(&even);
        pixels[3..].copy_from_slice(&odd);
    }
}

/// Converts luma and chroma samples of the same width to pixels.
pub fn whole_chroma(luma: &[u8], [blue, red]: [&[u8]; 2], pixels: &mut [u8]) {
    let pixels = pixels.as_chunks_mut::<3>().0.iter_mut();
    for (pixel, ((luma, blue), red)) in pixels.zip(luma.iter().zip(blue).zip(red)) {
        *pixel = color(*luma, (*blue).into(), (*red).into());
    }
}

/// Converts luma to gray pixels.
pub fn gray(luma: &[u8], pixels: &mut [u8]) {
    for (pixel, luma) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(luma) {
        *pixel = [*luma; 3];
    }
}

/// Converts a pixel to red, green and blue with JFIF's factors, which have 16 fractional bits
/// (`jdcolor.c`).
fn color(luma: u8, blue: i32, red: i32) -> [u8; 3] {
    let [cb, cr] = [blue - 128, red - 128];
    let [r, b] = [(91881 * cr + 32768) >> 16, (116130 * cb + 32768) >> 16];
    let g = (-22554 * cb - 46802 * cr + 32768) >> 16;
    [r, g, b].map(|it| (i32::from(luma) + it).clamp(0, 255) as u8)
}
