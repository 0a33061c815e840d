//! Random numbers for each pixel, which depend only on the sample's key and the position of the
//! pixel.

use std::f32::consts::FRAC_PI_4;

use crate::random::{SampleRng, philox4x32_10};

/// Draws the key of a sample's noise.
pub fn key(rng: &mut SampleRng) -> [u32; 2] {
    [rng.bits(), rng.bits()]
}

/// Four words of random bits for the pixel at (`x`, `y`) of the whole image: Philox4x32-10 with the
/// sample's key.
#[inline(always)]
pub fn words(key: [u32; 2], x: i32, y: i32) -> [u32; 4] {
    philox4x32_10([x as u32, y as u32, 0, 0], key)
}

/// Returns the noise of the three channels. If `is_gray` is 1, all get that of the first.
#[inline(always)]
pub fn equal_if_gray([red, green, blue]: [f32; 3], is_gray: u32) -> [f32; 3] {
    if is_gray == 0 { [red, green, blue] } else { [red; 3] }
}

/// Three independent standard normal numbers from the random words of a pixel, between -5.77 and
/// 5.77.
///
/// This is the Box-Muller transform ("A note on the generation of random normal deviates", 1958) of
/// two pairs of words, in f32. Logarithm, sine and cosine are polynomials of additions and
/// multiplications, so that every machine computes the same bits. The error is below 2e-6. The code
/// has no branches, so that compilers use vector instructions.
#[inline(always)]
pub fn normals(words: [u32; 4]) -> [f32; 3] {
    let [first, second] = pair(words[0], words[1]);
    let [third, _] = pair(words[2], words[3]);
    [first, second, third]
}

/// Two normal numbers, computed as a point in the plane. The 23 leading bits of `distance` decide
/// its distance from the origin, the 32 bits of `direction` its direction.
#[inline(always)]
fn pair(distance: u32, direction: u32) -> [f32; 2] {
    // The odd integer is never 0, so its logarithm is finite. It has at most 24 bits, so an f32
    // holds it exactly.
    let uniform = ((distance >> 9) as i32 * 2 + 1) as f32 * (1.0 / (1 << 24) as f32);
    let radius = (-2.0 * ln(uniform)).sqrt();
    // An angle from -pi / 4 to pi / 4. The two leading bits of `direction` turn and mirror the
    // point afterwards.
    let angle = ((direction << 2) as i32) as f32 * (FRAC_PI_4 / (1u32 << 31) as f32);
    let [sine, cosine] = sine_and_cosine(angle);
    let mirrored = direction & 1 << 30 != 0;
    let [x, y] = if mirrored { [sine, cosine] } else { [cosine, sine] };
    let sign = direction & 1 << 31;
    [x, y].map(|it| radius * f32::from_bits(it.to_bits() ^ sign))
}

/// Sine and cosine of an angle from -pi / 4 to pi / 4, by polynomials of Cephes (`sinf.c`).
#[inline(always)]
fn sine_and_cosine(angle: f32) -> [f32; 2] {
    let square = angle * angle;
    let [a, b, c] = SINE;
    let sine = ((a * square + b) * square + c) * square * angle + angle;
    let [a, b, c] = COSINE;
    let cosine = ((a * square + b) * square + c) * square * square - 0.5 * square + 1.0;
    [sine, cosine]
}

const SINE: [f32; 3] = [-1.951_529_6e-4, 8.332_161e-3, -0.166_666_55];

const COSINE: [f32; 3] = [2.443_315_7e-5, -1.388_731_6e-3, 0.041_666_646];

/// Natural logarithm of a positive f32 that is not subnormal. A polynomial of Cephes (`logf.c`)
/// gives the logarithm of the mantissa, which is between sqrt(1/2) and sqrt(2). The exponent times
/// ln(2) is added in two parts.
#[inline(always)]
fn ln(value: f32) -> f32 {
    let bits = value.to_bits() as i32;
    let exponent = (bits - 0x3f35_04f3) >> 23;
    let f = f32::from_bits((bits - (exponent << 23)) as u32) - 1.0;
    let square = f * f;
    let mut sum = 0.0;
    for coefficient in LN {
        sum = sum * f + coefficient;
    }
    let exponent = exponent as f32;
    let small = sum * f * square - 2.121_944_4e-4 * exponent - 0.5 * square;
    f + small + 0.693_359_4 * exponent
}

const LN: [f32; 9] = [
    0.070_376_836,
    -0.115_146_1,
    0.116_769_98,
    -0.124_201_41,
    0.142_493_23,
    -0.166_680_58,
    0.200_007_15,
    -0.249_999_94,
    0.333_333_3,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the numbers of each channel are distributed normally (Kolmogorov-Smirnov
    /// distance of 200,000 numbers), and that neither the channels of a pixel nor neighbouring
    /// pixels are correlated.
    #[test]
    fn noise_is_normal_and_its_channels_are_independent() {
        const COUNT: usize = 200_000;
        let pixels: Vec<[f32; 3]> =
            (0..COUNT as i32).map(|at| normals(words([7, 9], at % 500, at / 500))).collect();
        for channel in 0..3 {
            let mut values: Vec<f32> = pixels.iter().map(|pixel| pixel[channel]).collect();
            values.sort_by(f32::total_cmp);
            let distance = values
                .iter()
                .enumerate()
                .map(|(rank, &value)| {
                    let below = 0.5 * libm::erfc(-f64::from(value) / std::f64::consts::SQRT_2);
                    (below - rank as f64 / COUNT as f64).abs()
                })
                .fold(0.0, f64::max);
            // One key in a hundred exceeds this limit by chance.
            assert!(distance < 1.63 / (COUNT as f64).sqrt(), "channel {channel}: {distance}");
        }
        // Two channels are the coordinates of one point. A dependence through the distance of this
        // point from the origin would show only in the correlation of their squares.
        let same: fn(f64) -> f64 = |it| it;
        let square: fn(f64) -> f64 = |it| (it * it - 1.0) / 2f64.sqrt();
        let correlation = |of: fn(f64) -> f64, pairs: &mut dyn Iterator<Item = (f32, f32)>| {
            pairs.map(|(a, b)| of(a.into()) * of(b.into())).sum::<f64>() / COUNT as f64
        };
        for of in [same, square] {
            let mut found = Vec::new();
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                found.push(correlation(of, &mut pixels.iter().map(|it| (it[a], it[b]))));
            }
            for channel in 0..3 {
                let neighbours = pixels.windows(2).map(|it| (it[0][channel], it[1][channel]));
                found.push(correlation(of, &mut { neighbours }));
            }
            let most = 4.0 / (COUNT as f64).sqrt();
            assert!(found.iter().all(|it| it.abs() < most), "{found:?}");
        }
    }

    /// Compares the numbers with those of the same formula in f64, for all distances and for
    /// directions in all parts of the circle.
    #[test]
    fn numbers_are_points_of_the_plane() {
        let mut most = 0.0f64;
        for k in 0..1u32 << 23 {
            // Multiples of a large odd number reach every part of the circle.
            let direction = k.wrapping_mul(0x9e37_79b9);
            let radius = (-2.0 * libm::log(f64::from(2 * k + 1) / f64::from(1 << 24))).sqrt();
            let eighths = f64::from((direction << 2) as i32) / f64::from(1u32 << 31);
            let angle = eighths * std::f64::consts::FRAC_PI_4;
            let mut point = [libm::cos(angle), libm::sin(angle)];
            if direction >> 30 & 1 == 1 {
                point.reverse();
            }
            let sign = if direction >> 31 == 1 { -1.0 } else { 1.0 };
            for (found, exact) in pair(k << 9, direction).into_iter().zip(point) {
                assert!(found.abs() < 5.78);
                most = most.max((f64::from(found) - sign * radius * exact).abs());
            }
        }
        assert!(most < 2e-6, "{most}");
    }

    #[test]
    fn a_pixel_has_other_words_in_another_sample() {
        let mut rng = SampleRng::new(Default::default(), 0);
        let keys = [key(&mut rng), key(&mut rng)];
        assert_ne!(words(keys[0], 3, 4), words(keys[1], 3, 4));
        assert_ne!(words(keys[0], 3, 4), words(keys[0], 4, 3));
        assert_eq!(words(keys[0], 3, 4), words(keys[0], 3, 4));
    }
}
