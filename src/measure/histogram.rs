//! Histograms of durations.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::Latency;

/// Buckets per doubling of the value. The relative error of a value is at most 1/32.
const PARTS: u64 = 16;
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Values below 2^6 nanoseconds have buckets of 4 ns. Values of 2^40 ns (18 minutes) and more share
/// one bucket.
const LEAST: u32 = 6;
const MOST: u32 = 40;
const BUCKETS: usize = ((MOST - LEAST + 1) * PARTS as u32 + 1) as usize;

/// Concurrent histogram of durations, with a constant size: logarithmic buckets with linear parts,
/// as in HdrHistogram (hdrhistogram.org).
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU32]>,
    max: AtomicU64,
}

/// Counts of a histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    buckets: Vec<u32>,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(), max: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts a duration.
    pub fn add(&self, nanoseconds: u64) {
        self.add_many(nanoseconds, 1);
    }

    /// Adds `many` equal durations to the histogram.
    pub fn add_many(&self, nanoseconds: u64, many: u64) {
        self.buckets[bucket(nanoseconds)].fetch_add(many as u32, Relaxed);
        if nanoseconds > self.max.load(Relaxed) {
            self.max.fetch_max(nanoseconds, Relaxed);
        }
    }

    /// Returns the counts of all durations until now.
    pub fn counts(&self) -> Counts {
        let buckets = self.buckets.iter().map(|it| it.load(Relaxed)).collect();
        Counts { buckets, max: self.max.load(Relaxed) }
    }
}

impl Counts {
    /// Returns the counts since `earlier`. The maximum still covers all durations, because a
    /// maximum cannot be subtracted.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let before = earlier.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets = self.buckets.iter().zip(before).map(|(now, then)| now.wrapping_sub(then));
        Counts { buckets: buckets.collect(), max: self.max }
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Counts) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.wrapping_add(*theirs);
        }
        self.max = self.max.max(other.max);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&it| u64::from(it)).sum()
    }

    /// Number of durations up to each bound. The bounds are in seconds and must increase. If a
    /// bound lies inside a bucket, all durations of the bucket count as its middle.
    pub fn below(&self, bounds: &[f64]) -> Vec<u64> {
        let mut below = vec![0; bounds.len()];
        for (at, &many) in self.buckets.iter().enumerate().filter(|(_, many)| **many > 0) {
            let first = bounds.partition_point(|&bound| bound < centre(at));
            below[first..].iter_mut().for_each(|it| *it += u64::from(many));
        }
        below
    }

    /// Summary of the durations. `seconds` is their exact sum.
    pub fn latency(&self, seconds: f64) -> Latency {
        let count = self.count();
        if count == 0 {
            return Latency::default();
        }
        let mean = seconds / count as f64;
        let middle = self.mean();
        let squares: f64 = self
            .buckets
            .iter()
            .enumerate()
            .map(|(at, &many)| f64::from(many) * (centre(at) - middle).powi(2))
            .sum();
        let deviation = (squares / count as f64).sqrt();
        Latency {
            mean,
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            max: self.max as f64 * 1e-9,
            cv: if middle > 0.0 { deviation / middle } else { 0.0 },
        }
    }

    /// Returns `many` quantiles at equal steps of probability, in increasing order, as multiples of
    /// their mean. Empty if nothing was counted.
    pub fn quantiles(&self, many: usize) -> Vec<f64> {
        if self.count() == 0 {
            return Vec::new();
        }
        let at = |number: usize| self.quantile((number as f64 + 0.5) / many as f64);
        let values: Vec<f64> = (0..many).map(at).collect();
        let mean = values.iter().sum::<f64>() / many as f64;
        match mean > 0.0 {
            true => values.iter().map(|value| value / mean).collect(),
            false => Vec::new(),
        }
    }

    /// Quantile in seconds: the middle of the bucket that contains it.
    fn quantile(&self, part: f64) -> f64 {
        let wanted = part * self.count() as f64;
        let mut below = 0.0;
        for (at, &many) in self.buckets.iter().enumerate() {
            below += f64::from(many);
            if many > 0 && below >= wanted {
                return centre(at).min(self.max as f64 * 1e-9);
            }
        }
        self.max as f64 * 1e-9
    }

    fn mean(&self) -> f64 {
        let sum: f64 =
            self.buckets.iter().enumerate().map(|(at, &many)| f64::from(many) * centre(at)).sum();
        sum / self.count() as f64
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let octave = nanoseconds.max(1).ilog2();
    if octave < LEAST {
        return (nanoseconds >> (LEAST - PART_BITS)) as usize;
    }
    if octave >= MOST {
        return BUCKETS - 1;
    }
    let part = (nanoseconds >> (octave - PART_BITS)) & (PARTS - 1);
    ((octave - LEAST + 1) as u64 * PARTS + part) as usize
}

/// Middle of a bucket, in seconds.
fn centre(bucket: usize) -> f64 {
    let (octave, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    let (first, width) = match octave {
        0 => (part << (LEAST - PART_BITS), 1u64 << (LEAST - PART_BITS)),
        _ => {
            let width = 1u64 << (octave as u32 - 1 + LEAST - PART_BITS);
            ((PARTS + part) * width, width)
        }
    };
    (first as f64 + 0.5 * width as f64) * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_relative_error_of_a_value_is_at_most_one_in_32(value in 64u64..1 << 40) {
            let middle = centre(bucket(value)) * 1e9;
            prop_assert!((middle - value as f64).abs() <= value as f64 / 32.0 + 1e-3);
        }

        #[test]
        fn buckets_rise(value in 0u64..1 << 41) {
            prop_assert!(bucket(value) <= bucket(value + 1) && bucket(value) < BUCKETS);
        }
    }

    #[test]
    fn every_power_of_two_begins_a_bucket() {
        for octave in LEAST..MOST {
            assert_ne!(bucket((1 << octave) - 1), bucket(1 << octave), "2^{octave}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn a_summary_matches_the_values() {
        let histogram = Histogram::default();
        for micros in 1..=1000u64 {
            histogram.add(micros * 1000);
        }
        let all = histogram.counts();
        let Latency { mean, p50, p99, max, cv } = all.latency(0.5005);
        assert_eq!((all.count(), max), (1000, 1e-3));
        assert!((mean - 500.5e-6).abs() < 1e-12);
        assert!(
            (p50 / 500e-6 - 1.0).abs() < 0.04 && (p99 / 990e-6 - 1.0).abs() < 0.04,
            "{p50} {p99}"
        );
        // The coefficient of variation of a uniform distribution from 0 is 1 / sqrt(3).
        assert!((cv - 0.577).abs() < 0.01, "{cv}");
        let quantiles = all.quantiles(64);
        assert!(quantiles.is_sorted() && (quantiles.iter().sum::<f64>() / 64.0 - 1.0).abs() < 1e-9);
        assert!(quantiles[0] < 0.05 && quantiles[63] > 1.9);
    }

    #[test]
    fn since_and_add_are_inverse() {
        let histogram = Histogram::default();
        histogram.add(1000);
        let before = histogram.counts();
        histogram.add(5000);
        let after = histogram.counts().since(&before);
        assert_eq!(after.count(), 1);
        assert!((after.latency(5e-6).p50 / 5e-6 - 1.0).abs() < 0.04);
        let mut sum = after.clone();
        sum.add(&before);
        assert_eq!(sum, histogram.counts());
        assert_eq!(histogram.counts().since(&Counts::default()), histogram.counts());
        assert_eq!(
            (Counts::default().latency(0.0), Counts::default().quantiles(4)),
            Default::default()
        );
    }
}
