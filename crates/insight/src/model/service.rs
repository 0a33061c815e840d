//! Service times: the time that a stage takes for one sample, constant or random.

use serde::{Deserialize, Serialize};

/// Time in seconds that a stage takes for one sample, constant or random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Mean time in seconds.
    pub mean: f64,
    /// Equally likely times as multiples of the mean. The mean of these values is 1. Empty if the
    /// time is constant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<f64>,
}

impl Service {
    /// Number of quantiles that this type creates from measured values.
    pub const QUANTILES: usize = 64;
    /// Largest coefficient of variation that [`lognormal`](Self::lognormal) supports.
    pub const MAX_CV: f64 = 5.0;

    /// Creates a constant time.
    pub fn constant(mean: f64) -> Self {
        Self { mean, quantiles: Vec::new() }
    }

    /// Creates a log-normally distributed time with this mean and coefficient of variation
    /// (standard deviation divided by the mean). The coefficient is clamped to
    /// 0..=[`MAX_CV`](Self::MAX_CV). A table of 64 values has no tail and would lose variance, so
    /// the table is computed from a wider distribution. The table has exactly the requested mean
    /// and coefficient.
    pub fn lognormal(mean: f64, cv: f64) -> Self {
        let cv = cv.clamp(0.0, Self::MAX_CV);
        if cv == 0.0 {
            return Self::constant(mean);
        }
        let normal: Vec<f64> = (0..Self::QUANTILES)
            .map(|at| normal_quantile((at as f64 + 0.5) / Self::QUANTILES as f64))
            .collect();
        let table = |sigma: f64| {
            let values: Vec<f64> = normal.iter().map(|z| (sigma * z).exp()).collect();
            relative(&values)
        };
        // Search for the sigma whose table has the coefficient of variation `cv`. The coefficient
        // grows with sigma, and a sigma of 20 is far more than `MAX_CV` needs.
        let (mut low, mut high) = (0.0, 20.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if deviation(&table(middle)) < cv { low = middle } else { high = middle }
        }
        Self { mean, quantiles: table((low + high) / 2.0) }
    }

    /// Creates a service time from measured values in seconds, in any order. All values are equally
    /// likely. More than 64 values are sorted and divided into 64 groups of equal size, and each
    /// group is replaced by its mean. This preserves the mean of all values. Without values, the
    /// service time is 0.
    pub fn from_quantiles(values: &[f64]) -> Self {
        if values.len() > Self::QUANTILES {
            let ones: Vec<(f64, u64)> = values.iter().map(|&value| (value, 1)).collect();
            return Self::from_histogram(&ones);
        }
        let mean = mean(values);
        let varies = values.iter().any(|&value| value != values[0]);
        let quantiles = if varies && mean > 0.0 { relative(values) } else { Vec::new() };
        Self { mean, quantiles }
    }

    /// Creates a service time from pairs, in any order: a measured value in seconds, and the number
    /// of its occurrences. The sorted occurrences are divided into 64 groups of equal size, and
    /// each group is replaced by its mean. This preserves the mean of all occurrences.
    pub fn from_histogram(seen: &[(f64, u64)]) -> Self {
        let mut seen: Vec<(f64, u64)> =
            seen.iter().copied().filter(|(_, count)| *count > 0).collect();
        seen.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = seen.iter().map(|(_, count)| *count as f64).sum();
        let part = total / Self::QUANTILES as f64;
        let mut values = Vec::with_capacity(Self::QUANTILES);
        let (mut sum, mut room) = (0.0, part);
        for (value, count) in seen {
            let mut left = count as f64;
            while left >= room && values.len() + 1 < Self::QUANTILES {
                values.push((sum + value * room) / part);
                left -= room;
                (sum, room) = (0.0, part);
            }
            sum += value * left;
            room -= left;
        }
        if total > 0.0 {
            values.push(sum / part);
        }
        Self::from_quantiles(&values)
    }

    /// Coefficient of variation: the standard deviation divided by the mean.
    pub fn cv(&self) -> f64 {
        if self.quantiles.is_empty() { 0.0 } else { deviation(&self.quantiles) }
    }

    /// Returns the random time with index `number`. Each `stream` has its own sequence of times.
    pub(super) fn draw(&self, seed: u32, number: u32, stream: u32) -> f64 {
        let len = self.quantiles.len() as u64;
        if len == 0 {
            return self.mean;
        }
        let bits = u64::from(bits(seed, number, stream));
        self.mean * self.quantiles[((bits * len) >> 32) as usize]
    }
}

/// Returns 32 random bits for these three numbers, with the hash function `lowbias32` (C. Wellons,
/// "Prospecting for Hash Functions").
fn bits(seed: u32, number: u32, stream: u32) -> u32 {
    let mixed = mix(seed.wrapping_add(0x9e37_79b9));
    mix(mix(mixed ^ number).wrapping_add(stream))
}

fn mix(mut value: u32) -> u32 {
    value = (value ^ (value >> 16)).wrapping_mul(0x7feb_352d);
    value = (value ^ (value >> 15)).wrapping_mul(0x846c_a68b);
    value ^ (value >> 16)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn relative(values: &[f64]) -> Vec<f64> {
    let mean = mean(values);
    values.iter().map(|value| value / mean).collect()
}

/// Standard deviation of values whose mean is 1.
fn deviation(values: &[f64]) -> f64 {
    let squares: Vec<f64> = values.iter().map(|value| (value - 1.0) * (value - 1.0)).collect();
    mean(&squares).sqrt()
}

/// Quantile function of the normal distribution, accurate to 2e-9 (P. J. Acklam's rational
/// approximation).
fn normal_quantile(p: f64) -> f64 {
    let polynomial = |x: f64, factors: &[f64]| factors.iter().fold(0.0, |sum, it| sum * x + it);
    if p < 0.02425 {
        let q = (-2.0 * p.ln()).sqrt();
        let above = [
            -7.784894002430293e-3,
            -0.3223964580411365,
            -2.400758277161838,
            -2.549732539343734,
            4.374664141464968,
            2.938163982698783,
        ];
        let below =
            [7.784695709041462e-3, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0];
        return polynomial(q, &above) / polynomial(q, &below);
    }
    if p > 1.0 - 0.02425 {
        return -normal_quantile(1.0 - p);
    }
    let q = p - 0.5;
    let above = [
        -39.69683028665376,
        220.9460984245205,
        -275.9285104469687,
        138.357751867269,
        -30.66479806614716,
        2.506628277459239,
    ];
    let below = [
        -54.47609879822406,
        161.5858368580409,
        -155.6989798598866,
        66.80131188771972,
        -13.28068155288572,
        1.0,
    ];
    q * polynomial(q * q, &above) / polynomial(q * q, &below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lognormal_table_has_the_requested_mean_and_variation() {
        for cv in [0.01, 0.1, 0.3, 1.0, 2.0, 5.0] {
            let service = Service::lognormal(0.02, cv);
            assert_eq!(service.quantiles.len(), 64);
            assert!((mean(&service.quantiles) - 1.0).abs() < 1e-12);
            assert!((service.cv() - cv).abs() < 1e-9, "{cv}: {}", service.cv());
        }
        // The median of a log-normal distribution is mean / sqrt(1 + cv^2). The median of a table
        // of 64 values is close to it.
        let table = Service::lognormal(1.0, 0.3).quantiles;
        let median = (table[31] + table[32]) / 2.0;
        assert!((median - 1.0 / (1.09f64).sqrt()).abs() < 0.005, "{median}");
        assert_eq!(Service::lognormal(3.0, 0.0), Service::constant(3.0));
    }

    #[test]
    fn normal_quantiles_match_published_values() {
        let known = [(0.975, 1.959963984540054), (0.5, 0.0), (0.001, -3.090232306167813)];
        for (p, z) in known {
            assert!((normal_quantile(p) - z).abs() < 1e-8, "{p}");
        }
    }

    #[test]
    fn measured_values_keep_their_mean_and_distribution() {
        let few = Service::from_quantiles(&[1.0, 3.0]);
        assert_eq!((few.mean, few.quantiles), (2.0, vec![0.5, 1.5]));
        assert_eq!(Service::from_quantiles(&[2.0, 2.0]), Service::constant(2.0));
        assert_eq!(Service::from_quantiles(&[]), Service::constant(0.0));
        assert_eq!(Service::from_histogram(&[]), Service::constant(0.0));
        assert_eq!(Service::from_histogram(&[(0.5, 7)]), Service::constant(0.5));

        let values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let many = Service::from_quantiles(&values);
        assert_eq!(many.quantiles.len(), 64);
        assert!((many.mean - 500.5).abs() < 1e-9);
        assert!(many.quantiles.is_sorted());
        // The standard deviation of a uniform distribution from 0 is its mean divided by sqrt(3),
        // so the coefficient of variation is 1 / sqrt(3).
        assert!((many.cv() - 1.0 / 3f64.sqrt()).abs() < 0.001);

        let two = Service::from_histogram(&[(4.0, 1), (1.0, 3)]);
        assert!((two.mean - 1.75).abs() < 1e-12);
        let slow = two.quantiles.iter().filter(|it| **it > 2.0).count();
        assert_eq!((two.quantiles.len(), slow), (64, 16));
    }

    /// Checks that all values of a table are about equally frequent in every stream.
    #[test]
    fn draws_are_uniform_and_streams_independent() {
        let service = Service { mean: 1.0, quantiles: (0..64).map(f64::from).collect() };
        for stream in [0, 1, u32::MAX] {
            let mut seen = [0u32; 64];
            for number in 0..64_000 {
                seen[service.draw(7, number, stream) as usize] += 1;
            }
            let square: f64 =
                seen.iter().map(|it| (f64::from(*it) - 1000.0).powi(2) / 1000.0).sum();
            // A chi-squared variable with 63 degrees of freedom is outside of 30..110 with a
            // probability of 1e-4.
            assert!((30.0..110.0).contains(&square), "{stream}: {square}");
        }
        let same = |a: (u32, u32), b: (u32, u32)| {
            (0..1000)
                .filter(|it| service.draw(a.0, *it, a.1) == service.draw(b.0, *it, b.1))
                .count()
        };
        assert!(
            same((1, 0), (1, 1)) < 50 && same((1, 0), (2, 0)) < 50 && same((1, 0), (0, 1)) < 50
        );
        assert_eq!(same((1, 2), (1, 2)), 1000);
    }
}
