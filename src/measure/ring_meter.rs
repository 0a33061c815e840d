//! Measurements of the ring of batches over time.

use std::collections::VecDeque;
use std::time::Instant;

use super::histogram::{Counts, Histogram};

/// Meter of the ring: the time with each number of ready batches, and the time to fill a batch.
#[derive(Debug)]
pub struct RingMeter {
    /// For each number of ready batches from 0 to the number of slots, the time with this number,
    /// in nanoseconds.
    levels: Vec<u64>,
    since: Option<Instant>,
    /// Sequence numbers of batches that are being filled, with the time when each began.
    filling: VecDeque<(u64, Instant)>,
    /// Sequence numbers of ready batches, oldest first.
    waiting: VecDeque<u64>,
    published: u64,
    making: Histogram,
    made: u64,
    /// Time when the newest batch was published, if no other batch was ready at that time.
    newest: Option<Instant>,
    delivered: u64,
    delivery: u64,
}

/// Counts of a [`RingMeter`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// For each number of ready batches from 0, the time with this number, in nanoseconds.
    pub levels: Vec<u64>,
    /// Number of batches that became ready.
    pub published: u64,
    /// Time from a batch's first cell to the batch being ready.
    pub making: Counts,
    /// Sum of the times in `making`, in nanoseconds.
    pub made: u64,
    /// Number of batches that became ready while the consumer waited.
    pub delivered: u64,
    /// Total time from when a batch became ready to when the consumer received it, in nanoseconds,
    /// summed over the batches counted in `delivered`. This is the time to wake the consumer.
    pub delivery: u64,
}

impl RingMeter {
    /// Creates a meter for a ring of `slots` slots.
    pub fn new(slots: usize) -> Self {
        Self {
            levels: vec![0; slots + 1],
            since: None,
            filling: VecDeque::new(),
            waiting: VecDeque::new(),
            published: 0,
            making: Histogram::default(),
            made: 0,
            newest: None,
            delivered: 0,
            delivery: 0,
        }
    }

    /// Number of ready batches.
    pub fn ready(&self) -> usize {
        self.waiting.len().min(self.levels.len() - 1)
    }

    /// Number of batches that are being filled.
    pub fn filling(&self) -> usize {
        self.filling.len()
    }

    pub(super) fn begun(&mut self, sequence: u64, now: Instant) {
        self.filling.push_back((sequence, now));
    }

    pub(super) fn done(&mut self, sequence: u64, published: bool, now: Instant) {
        let Some(at) = self.filling.iter().position(|(it, _)| *it == sequence) else { return };
        let Some((_, begun)) = self.filling.remove(at) else { return };
        if published {
            let took = (now - begun).as_nanos() as u64;
            self.making.add(took);
            self.made += took;
            self.published += 1;
            self.pass(now);
            self.newest = self.waiting.is_empty().then_some(now);
            self.waiting.push_back(sequence);
        }
    }

    /// Removes the oldest ready batch and returns its sequence number. `waited` is whether the
    /// consumer waited for the batch and received it.
    pub(super) fn taken(&mut self, waited: bool, now: Instant) -> Option<u64> {
        if let (Some(published), true) = (self.newest.take(), waited) {
            self.delivered += 1;
            self.delivery += now.saturating_duration_since(published).as_nanos() as u64;
        }
        self.pass(now);
        self.waiting.pop_front()
    }

    pub(super) fn counts(&self, now: Instant) -> RingCounts {
        let mut levels = self.levels.clone();
        if let Some(since) = self.since {
            levels[self.ready()] += now.saturating_duration_since(since).as_nanos() as u64;
        }
        RingCounts {
            levels,
            published: self.published,
            making: self.making.counts(),
            made: self.made,
            delivered: self.delivered,
            delivery: self.delivery,
        }
    }

    /// Adds the time since the last change to the time of the current number of ready batches.
    /// Counting begins with the first batch.
    fn pass(&mut self, now: Instant) {
        let ready = self.ready();
        if let Some(since) = self.since.replace(now) {
            self.levels[ready] += now.saturating_duration_since(since).as_nanos() as u64;
        }
    }
}

impl RingCounts {
    /// Returns the counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.levels.iter().copied().chain(std::iter::repeat(0));
        Self {
            levels: self.levels.iter().zip(before).map(|(now, then)| now - then).collect(),
            published: self.published - earlier.published,
            making: self.making.since(&earlier.making),
            made: self.made - earlier.made,
            delivered: self.delivered - earlier.delivered,
            delivery: self.delivery - earlier.delivery,
        }
    }

    /// For each number of ready batches from 0, the share of the time with this number. Empty
    /// before the first batch.
    pub fn occupancy(&self) -> Vec<f64> {
        let all: u64 = self.levels.iter().sum();
        match all {
            0 => Vec::new(),
            all => self.levels.iter().map(|&it| it as f64 / all as f64).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_is_counted_at_the_level_before_each_change() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut ring = RingMeter::new(2);
        assert_eq!(ring.counts(start).occupancy(), [0.0; 0]);
        ring.begun(0, at(0));
        ring.begun(1, at(2));
        ring.done(0, true, at(10));
        ring.done(1, true, at(20));
        ring.taken(false, at(50));
        let before = ring.counts(at(60));
        assert_eq!(before.levels, [0, 20_000_000, 30_000_000]);
        ring.taken(true, at(70));
        let counts = ring.counts(at(100));
        assert_eq!(counts.levels, [30_000_000, 30_000_000, 30_000_000]);
        assert_eq!(counts.since(&before).levels, [30_000_000, 10_000_000, 0]);
        assert_eq!((counts.published, counts.made, counts.making.count()), (2, 28_000_000, 2));
    }

    #[test]
    fn delivery_is_the_time_from_ready_to_received() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut ring = RingMeter::new(2);
        ring.begun(0, at(0));
        ring.begun(1, at(0));
        ring.done(0, true, at(10));
        ring.taken(true, at(13));
        ring.done(1, true, at(20));
        ring.taken(false, at(90));
        let counts = ring.counts(at(100));
        assert_eq!((counts.delivered, counts.delivery), (1, 3_000_000));
    }

    #[test]
    fn a_discarded_batch_is_never_ready() {
        let now = Instant::now();
        let mut ring = RingMeter::new(2);
        ring.begun(7, now);
        ring.done(7, false, now);
        ring.done(8, true, now);
        assert_eq!((ring.ready(), ring.counts(now).published, ring.filling.len()), (0, 0, 0));
    }
}
