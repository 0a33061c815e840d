//! Detects whether concurrent reads slow each other down.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Meter of the reads of all threads of a loader. It keeps the sums for a linear fit, which gives
/// the duration of a read as a function of the number of other reads in flight.
#[derive(Debug, Default)]
pub struct ReadContention {
    in_flight: AtomicUsize,
    reads: AtomicU64,
    others: AtomicU64,
    others_squared: AtomicU64,
    micros: AtomicU64,
    micros_by_others: AtomicU64,
}

/// The counters of [`ReadContention`], read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Number of reads.
    pub reads: u64,
    /// Sum over all reads of the number of other reads in flight when the read began.
    pub others: u64,
    /// Sum over all reads of the square of the number of other reads in flight.
    pub others_squared: u64,
    /// Sum of the durations of all reads, in microseconds.
    pub micros: u64,
    /// Sum over all reads of the duration times the number of other reads.
    pub micros_by_others: u64,
}

/// Guard of a read in flight.
#[derive(Debug)]
pub struct InFlight<'a> {
    read_contention: &'a ReadContention,
    others: u64,
    begin: Instant,
}

impl ReadContention {
    /// Begins a read; it ends when the guard is dropped.
    pub fn begin(&self) -> InFlight<'_> {
        let others = self.in_flight.fetch_add(1, Relaxed) as u64;
        InFlight { read_contention: self, others, begin: Instant::now() }
    }

    /// Returns the sums over all reads that have ended.
    pub fn reads(&self) -> Reads {
        Reads {
            reads: self.reads.load(Relaxed),
            others: self.others.load(Relaxed),
            others_squared: self.others_squared.load(Relaxed),
            micros: self.micros.load(Relaxed),
            micros_by_others: self.micros_by_others.load(Relaxed),
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let micros = self.begin.elapsed().as_micros() as u64;
        let Self { read_contention: it, others, .. } = self;
        it.in_flight.fetch_sub(1, Relaxed);
        it.reads.fetch_add(1, Relaxed);
        it.others.fetch_add(*others, Relaxed);
        it.others_squared.fetch_add(*others * *others, Relaxed);
        it.micros.fetch_add(micros, Relaxed);
        it.micros_by_others.fetch_add(micros * *others, Relaxed);
    }
}

impl Reads {
    /// Returns the sums since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            others: self.others - earlier.others,
            others_squared: self.others_squared - earlier.others_squared,
            micros: self.micros - earlier.micros,
            micros_by_others: self.micros_by_others - earlier.micros_by_others,
        }
    }

    /// Relative slowdown of a read per other read in flight, from 0 (independent) to 1 (served one
    /// after another). `None` if it cannot be determined, because the number in flight hardly
    /// varied or there were fewer than 100 reads.
    pub fn slowdown(self) -> Option<f64> {
        let Self { reads, others, others_squared, micros, micros_by_others } = self;
        let [n, x, xx, y, xy] =
            [reads, others, others_squared, micros, micros_by_others].map(|it| it as f64);
        let spread = xx - x * x / n;
        if reads < 100 || spread / n < 0.05 {
            return None;
        }
        let slope = (xy - x * y / n) / spread;
        let alone = y / n - slope * x / n;
        (alone > 0.0).then(|| (slope / alone).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sums of simulated reads. The function `time` gives the duration of a read for
    /// the number of other reads in flight.
    fn reads(time: impl Fn(u64) -> u64, others: impl Iterator<Item = u64>) -> Reads {
        let mut sums = Reads::default();
        for it in others {
            sums.reads += 1;
            sums.others += it;
            sums.others_squared += it * it;
            sums.micros += time(it);
            sums.micros_by_others += time(it) * it;
        }
        sums
    }

    #[test]
    fn queued_reads_are_distinguished_from_independent_ones() {
        let some = || (0..400).map(|it| it % 4);
        let queued = reads(|others| 500 * (1 + others), some()).slowdown().unwrap();
        let free = reads(|_| 500, some()).slowdown().unwrap();
        let half = reads(|others| 500 + 250 * others, some()).slowdown().unwrap();
        assert!((queued - 1.0).abs() < 1e-9 && free.abs() < 1e-9 && (half - 0.5).abs() < 1e-9);
        assert_eq!(reads(|_| 500, (0..400).map(|_| 3)).slowdown(), None);
        assert_eq!(reads(|_| 500, (0..40).map(|it| it % 4)).slowdown(), None);
    }

    #[test]
    fn a_read_counts_the_others_in_flight() {
        let together = ReadContention::default();
        let first = together.begin();
        drop(together.begin());
        drop(first);
        drop(together.begin());
        let sums = together.reads();
        assert_eq!((sums.reads, sums.others, sums.others_squared), (3, 1, 1));
        assert_eq!(sums.since(sums), Reads::default());
    }
}
