//! Whether reads that are made at the same time hold each other up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Reads that are in flight, and how long they took by how many there were: the sums of a straight line's fit. Of all
/// threads of a loader.
#[derive(Debug, Default)]
pub struct ReadContention {
    in_flight: AtomicUsize,
    reads: AtomicU64,
    others: AtomicU64,
    others_squared: AtomicU64,
    micros: AtomicU64,
    micros_by_others: AtomicU64,
}

/// The sums of [`ReadContention`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Reads.
    pub reads: u64,
    /// The sum of the numbers of other reads that were in flight when each began.
    pub others: u64,
    /// The sum of their squares.
    pub others_squared: u64,
    /// The sum of how long each took, in microseconds.
    pub micros: u64,
    /// The sum of that times the number of others.
    pub micros_by_others: u64,
}

/// A read that is in flight.
#[derive(Debug)]
pub struct InFlight<'a> {
    read_contention: &'a ReadContention,
    others: u64,
    begin: Instant,
}

impl ReadContention {
    /// A read begins. It is over when what this gives is dropped.
    pub fn begin(&self) -> InFlight<'_> {
        let others = self.in_flight.fetch_add(1, Relaxed) as u64;
        InFlight { read_contention: self, others, begin: Instant::now() }
    }

    /// The sums so far.
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
    /// What was counted after `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            others: self.others - earlier.others,
            others_squared: self.others_squared - earlier.others_squared,
            micros: self.micros - earlier.micros,
            micros_by_others: self.micros_by_others - earlier.micros_by_others,
        }
    }

    /// How much longer a read takes for each other read that is in flight, as a part of what it takes alone: 0 where they
    /// do not hold each other up, 1 where they are served one after another. `None` where that cannot be told, since
    /// there were nearly always as many.
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

    /// Reads of which each takes this long with so many others in flight.
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
    fn reads_that_queue_are_told_from_those_that_do_not() {
        let some = || (0..400).map(|it| it % 4);
        let queued = reads(|others| 500 * (1 + others), some()).slowdown().unwrap();
        let free = reads(|_| 500, some()).slowdown().unwrap();
        let half = reads(|others| 500 + 250 * others, some()).slowdown().unwrap();
        assert!((queued - 1.0).abs() < 1e-9 && free.abs() < 1e-9 && (half - 0.5).abs() < 1e-9);
        assert_eq!(reads(|_| 500, (0..400).map(|_| 3)).slowdown(), None);
        assert_eq!(reads(|_| 500, (0..40).map(|it| it % 4)).slowdown(), None);
    }

    #[test]
    fn a_read_knows_how_many_others_there_were() {
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
