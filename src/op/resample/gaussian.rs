//! Integer weights of Gaussian blurs, which are computed as a horizontal and a vertical pass.

use super::PRECISION_BITS;

/// Sum of the weights of an output: 1 in units of 2^-22.
const ONE: i32 = 1 << PRECISION_BITS;

/// Largest kernel, in pixels.
pub const MAX_BLUR: u32 = 1023;

/// Writes the weights of a Gaussian kernel with standard deviation `sigma` in pixels, above 0. The
/// kernel has an odd number of pixels, at most [`MAX_BLUR`]. Weights are in units of 2^-22. They
/// are symmetric, and their sum is 2^22.
///
/// The weight at distance x is exp(-x^2 / (2 sigma^2)), normalized, as in torchvision's
/// `gaussian_blur` (`functional/_misc.py`). torchvision adds up f32 products of both axes and
/// rounds once. feedwater has integer weights and rounds to bytes after each pass, so the results
/// differ by at most one level.
pub fn put_weights(sigma: f64, weights: &mut [i32]) {
    let radius = (weights.len() / 2) as i32;
    let power = |at: i32| {
        let deviations = f64::from(at) / sigma;
        libm::exp(-0.5 * deviations * deviations)
    };
    let sum: f64 = (-radius..=radius).map(power).sum();
    for (weight, at) in weights.iter_mut().zip(-radius..) {
        *weight = (power(at) / sum * f64::from(ONE) + 0.5) as i32;
    }
    weights[radius as usize] += ONE - weights.iter().sum::<i32>();
}

/// Writes the weights of output `index` on an axis of `len` pixels to `out`, which has as many
/// entries as the kernel. Unused entries at the end become 0. Returns the first input and the
/// number of inputs.
///
/// The image is reflected at its first and its last pixel, as by torchvision's padding `reflect`.
/// The weight of a reflected pixel is added to the weight of the pixel that it repeats. torchvision
/// refuses kernels that reach over a whole image. feedwater reflects the image repeatedly.
pub fn output(index: u32, len: u32, weights: &[i32], out: &mut [i32]) -> (u32, u32) {
    let radius = (weights.len() / 2) as i64;
    let (index, len) = (i64::from(index), i64::from(len));
    let first = (index - radius).max(0);
    let last = (index + radius).min(len - 1);
    out.fill(0);
    for (&weight, at) in weights.iter().zip(index - radius..) {
        out[(reflected(at, len) - first) as usize] += weight;
    }
    (first as u32, (last - first + 1) as u32)
}

/// Index of the pixel that appears at position `at` when an axis of `len` pixels is reflected at
/// its ends.
fn reflected(at: i64, len: i64) -> i64 {
    let period = (2 * (len - 1)).max(1);
    let at = at.rem_euclid(period);
    at.min(period - at).min(len - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_symmetric_and_sum_to_one() {
        for size in [1, 3, 5, 23, 101, MAX_BLUR] {
            for sigma in [1e-300, 0.01, 0.5, 1.0, 7.3, 1e6] {
                let mut weights = vec![0; size as usize];
                put_weights(sigma, &mut weights);
                assert_eq!(weights.iter().sum::<i32>(), ONE, "{size} {sigma}");
                assert!(weights.iter().all(|&it| it >= 0), "{size} {sigma}");
                assert!(weights.iter().eq(weights.iter().rev()), "{size} {sigma}");
            }
        }
    }

    #[test]
    fn every_output_has_all_weight_inside_the_image_and_ranges_never_go_back() {
        for size in [1, 3, 7, 23] {
            let mut kernel = vec![0; size as usize];
            put_weights(2.0, &mut kernel);
            for len in [1, 2, 3, 4, 7, 12, 30] {
                let mut last = (0, 0);
                for index in 0..len {
                    let mut out = vec![-1; size as usize];
                    let (first, count) = output(index, len, &kernel, &mut out);
                    assert_eq!(out[..count as usize].iter().sum::<i32>(), ONE);
                    assert!(out[count as usize..].iter().all(|&it| it == 0));
                    assert!(first + count <= len && first >= last.0 && first + count >= last.1);
                    last = (first, first + count);
                }
            }
        }
    }

    #[test]
    fn pixels_outside_are_reflected_without_repeating_the_border() {
        let shown: Vec<i64> = (-5..8).map(|at| reflected(at, 4)).collect();
        assert_eq!(shown, [1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]);
        assert_eq!(reflected(-3, 1), 0);
    }
}
