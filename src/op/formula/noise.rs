//! Random numbers of a pixel, which depend on its position only.

use crate::random::{SampleRng, philox4x32_10};

/// Key of a sample's noise.
pub fn key(rng: &mut SampleRng) -> [u32; 2] {
    [rng.bits(), rng.bits()]
}

/// Four words of random bits for the pixel at (`x`, `y`) of the whole image: Philox4x32-10 with the sample's key.
#[inline(always)]
pub fn words(key: [u32; 2], x: i32, y: i32) -> [u32; 4] {
    philox4x32_10([x as u32, y as u32, 0, 0], key)
}

/// Standard normal number of 24 of the bits, between -5.42 and 5.42.
///
/// It is the quantile of (2 k + 1) / 2^25, where k are the 24 leading bits: sqrt(2) erfinv(v) with Giles' polynomials
/// ("Approximating the erfinv function", GPU Computing Gems, 2011) in f32, and a logarithm of additions and
/// multiplications, so that every machine computes the same bits. The error is below 2e-6.
#[inline(always)]
pub fn normal(bits: u32) -> f32 {
    // An odd integer of at most 24 bits, so both conversions are exact.
    let v = ((bits >> 8) as i32 * 2 + 1 - (1 << 24)) as f32 * (1.0 / (1 << 24) as f32);
    let w = -ln((1.0 - v) * (1.0 + v));
    let far = w >= 5.0;
    let at = if far { w.sqrt() - 3.0 } else { w - 2.5 };
    let mut sum = 0.0;
    for (near, tail) in CENTRE.into_iter().zip(TAIL) {
        sum = sum * at + if far { tail } else { near };
    }
    sum * v * std::f32::consts::SQRT_2
}

const CENTRE: [f32; 9] = [
    2.810_226_4e-8,
    3.432_739_4e-7,
    -3.523_387_7e-6,
    -4.391_506_5e-6,
    0.000_218_580_87,
    -0.001_253_725,
    -0.004_177_681_6,
    0.246_640_73,
    1.501_409_4,
];

const TAIL: [f32; 9] = [
    -0.000_200_214_26,
    0.000_100_950_56,
    0.001_349_343_2,
    -0.003_673_428_4,
    0.005_739_507_7,
    -0.007_622_461_3,
    0.009_438_870_5,
    1.001_674,
    2.832_976_8,
];

/// Natural logarithm of a normal number: that of the mantissa, between sqrt(1/2) and sqrt(2), by a polynomial of Cephes
/// (`logf.c`), plus the exponent times ln(2) in two parts.
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

    /// Kolmogorov and Smirnov's distance of 200,000 numbers from the normal distribution.
    #[test]
    fn noise_is_normal_and_its_channels_are_independent() {
        const COUNT: usize = 200_000;
        let pixels: Vec<[f32; 3]> = (0..COUNT as i32)
            .map(|at| {
                let [r, g, b, _] = words([7, 9], at % 500, at / 500);
                [r, g, b].map(normal)
            })
            .collect();
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
            // Exceeded by one key of a hundred.
            assert!(distance < 1.63 / (COUNT as f64).sqrt(), "channel {channel}: {distance}");
        }
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            let product: f64 = pixels.iter().map(|it| f64::from(it[a]) * f64::from(it[b])).sum();
            assert!((product / COUNT as f64).abs() < 4.0 / (COUNT as f64).sqrt(), "{a} {b}");
        }
        let neighbours: f64 =
            pixels.windows(2).map(|it| f64::from(it[0][0]) * f64::from(it[1][0])).sum();
        assert!((neighbours / COUNT as f64).abs() < 4.0 / (COUNT as f64).sqrt());
    }

    /// The quantile function has one maximum, no jump and no NaN.
    #[test]
    fn the_quantile_increases_and_is_odd() {
        let mut last = f32::NEG_INFINITY;
        for k in (0..1u32 << 24).step_by(61) {
            let value = normal(k << 8);
            assert!(value >= last - 2e-6 && value.abs() < 5.5, "{k}: {last} {value}");
            assert_eq!(value, -normal(((1 << 24) - 1 - k) << 8), "{k}");
            last = value;
        }
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
