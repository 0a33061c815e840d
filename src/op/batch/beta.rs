//! Draws from a symmetric Beta distribution.

use crate::random::SampleRng;

/// Range of the parameter `alpha`. At the lower end, nearly all numbers are close to 0 or 1. At the
/// upper end, they have a standard deviation of 0.011 around 1/2.
pub const ALPHAS: (f64, f64) = (0.001, 1000.0);

/// Draws a number from 0 to 1 from Beta(`alpha`, `alpha`). `alpha` must be in the range [`ALPHAS`].
///
/// For `alpha` up to 1, the algorithm is that of M. D. Jöhnk, "Erzeugung von betaverteilten und
/// gammaverteilten Zufallszahlen", Metrika 8 (1964). For a larger `alpha`, it is algorithm BB of R.
/// C. H. Cheng, "Generating beta variates with nonintegral shape parameters", Communications of the
/// ACM 21 (1978). Both reject at most half of their draws.
pub fn beta(alpha: f64, rng: &mut SampleRng) -> f64 {
    if alpha <= 1.0 { johnk(alpha, rng) } else { cheng(alpha, rng) }
}

/// Jöhnk's algorithm: `U^(1/alpha) / (U^(1/alpha) + V^(1/alpha))` for the first pair of uniform
/// numbers U and V whose denominator is at most 1. Computed in logarithms, because the powers
/// underflow for a small `alpha`.
fn johnk(alpha: f64, rng: &mut SampleRng) -> f64 {
    loop {
        let [x, y] = [(); 2].map(|()| libm::log(above_zero(rng)) / alpha);
        let most = x.max(y);
        let log_sum = most + libm::log(libm::exp(x - most) + libm::exp(y - most));
        if log_sum <= 0.0 {
            return libm::exp(x - log_sum);
        }
    }
}

/// Cheng's algorithm BB, with `a = b = alpha` in his notation.
fn cheng(alpha: f64, rng: &mut SampleRng) -> f64 {
    let sum = 2.0 * alpha;
    let beta = ((sum - 2.0) / (2.0 * alpha * alpha - sum)).sqrt();
    let gamma = alpha + 1.0 / beta;
    loop {
        let [u, v] = [(); 2].map(|()| above_zero(rng));
        let logit = beta * libm::log(u / (1.0 - u));
        let w = alpha * libm::exp(logit);
        let z = u * u * v;
        let r = gamma * logit - libm::log(4.0);
        let s = alpha + r - w;
        let quick = s + 1.0 + libm::log(5.0) >= 5.0 * z;
        let accepts = || {
            let t = libm::log(z);
            s >= t || r + sum * libm::log(sum / (alpha + w)) >= t
        };
        if quick || accepts() {
            return w / (alpha + w);
        }
    }
}

/// A uniform number above 0 and below 1.
fn above_zero(rng: &mut SampleRng) -> f64 {
    loop {
        let uniform = rng.uniform();
        if uniform > 0.0 {
            return uniform;
        }
    }
}
