//! Which sample stands at which place of an epoch.

use crate::plan::{Last, LoaderSettings};
use crate::random::Permutation;

/// The order of every epoch, for one shard of the set.
///
/// The epoch's order is a permutation of all indices (the identity without shuffling), the same for all
/// shards. Of the positions that are left, number `p` belongs to rank `p % world`, so all shards together hold every
/// sample exactly once, and the global order does not depend on the number of shards.
///
/// In the epoch with which a resumed loader begins, the positions that were consumed before are left out, so what is left
/// is the same whatever the number of shards was and is.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    samples: u64,
    settings: OrderSettings,
    /// The epoch that is begun in its middle, and at which position.
    begin: (u32, u64),
}

#[derive(Clone, Copy, Debug)]
struct OrderSettings {
    batch: u64,
    seed: u64,
    shuffle: bool,
    last: Last,
    rank: u64,
    world: u64,
}

/// What stands at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index of the sample in its source.
    pub index: u64,
    /// It only fills up the last batch.
    pub padding: bool,
}

/// One epoch's order.
#[derive(Clone, Copy, Debug)]
pub struct EpochOrder {
    settings: OrderSettings,
    samples: u64,
    permutation: Option<Permutation>,
    /// The first position.
    begin: u64,
}

impl Order {
    /// The order of a set of `samples`, at least 1.
    pub fn new(samples: u64, loader: &LoaderSettings) -> Self {
        let &LoaderSettings { batch, seed, shuffle, last, rank, world, .. } = loader;
        let batch = batch as u64;
        let settings = OrderSettings { batch, seed, shuffle, last, rank, world };
        Self { samples, settings, begin: (0, 0) }
    }

    /// The same order, but that `epoch` begins at `position`, below or equal to the number of samples.
    pub fn begin_at(self, epoch: u32, position: u64) -> Self {
        Self { begin: (epoch, position.min(self.samples)), ..self }
    }

    /// The order of one epoch.
    pub fn epoch(&self, epoch: u32) -> EpochOrder {
        let OrderSettings { seed, shuffle, .. } = self.settings;
        let permutation = shuffle.then(|| Permutation::new(seed, epoch, self.samples));
        let begin = if self.begin.0 == epoch { self.begin.1 } else { 0 };
        EpochOrder { settings: self.settings, samples: self.samples, permutation, begin }
    }

    /// The order of an epoch that begins at its beginning, whatever its number: for counts.
    pub fn whole(&self) -> EpochOrder {
        EpochOrder { settings: self.settings, samples: self.samples, permutation: None, begin: 0 }
    }

    /// The position up to which all shards together have consumed an epoch when each has had this many batches of it.
    pub fn consumed(&self, epoch: u32, batches: u64) -> u64 {
        let OrderSettings { batch, world, .. } = self.settings;
        let EpochOrder { begin, samples, .. } = self.epoch(epoch);
        begin.saturating_add(batches.saturating_mul(batch).saturating_mul(world)).min(samples)
    }
}

impl EpochOrder {
    /// Samples that this shard holds of what is left, padding not counted.
    pub fn own(&self) -> u64 {
        let OrderSettings { rank, world, .. } = self.settings;
        self.left().saturating_sub(rank).div_ceil(world)
    }

    /// Places of this shard, padding counted.
    pub fn places(&self) -> u64 {
        let OrderSettings { batch, last, world, .. } = self.settings;
        match last {
            Last::Drop => self.left() / world / batch * batch,
            Last::Pad => self.left().div_ceil(world).div_ceil(batch) * batch,
            Last::Partial => self.own(),
        }
    }

    /// Batches of this shard.
    pub fn batches(&self) -> u64 {
        self.places().div_ceil(self.settings.batch)
    }

    /// Samples in batch number `batch`.
    pub fn batch_len(&self, batch: u64) -> usize {
        let start = batch * self.settings.batch;
        self.settings.batch.min(self.places() - start) as usize
    }

    /// What stands at place number `place` of batch number `batch`.
    pub fn at(&self, batch: u64, place: usize) -> Position {
        let OrderSettings { rank, world, .. } = self.settings;
        let place = batch * self.settings.batch + place as u64;
        let own = self.own();
        let padding = place >= own;
        // A shard without a single sample of its own pads with the set's last one.
        let global = match (padding, own) {
            (false, _) => self.begin + place * world + rank,
            (true, 0) => self.samples - 1,
            (true, _) => self.begin + (own - 1) * world + rank,
        };
        let index = self.permutation.map_or(global, |permutation| permutation.at(global));
        Position { index, padding }
    }

    fn left(&self) -> u64 {
        self.samples - self.begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(samples: u64, batch: usize, last: Last, rank: u64, world: u64) -> Order {
        let settings =
            LoaderSettings { batch, last, rank, world, shuffle: true, ..Default::default() };
        Order::new(samples, &settings)
    }

    #[test]
    fn all_shards_together_hold_every_sample_once() {
        for (samples, world) in [(1, 1), (10, 3), (11, 4), (3, 5), (64, 8)] {
            for last in [Last::Partial, Last::Pad] {
                let mut seen = vec![0; samples as usize];
                for rank in 0..world {
                    let order = order(samples, 4, last, rank, world);
                    let epoch = order.epoch(7);
                    for place in 0..epoch.places() {
                        let position = epoch.at(0, place as usize);
                        seen[position.index as usize] += u32::from(!position.padding);
                    }
                }
                assert!(seen.iter().all(|&n| n == 1), "{samples} in {world} shards: {seen:?}");
            }
        }
    }

    #[test]
    fn padded_and_dropped_shards_have_equally_many_batches() {
        for last in [Last::Pad, Last::Drop] {
            let batches = |rank| order(103, 8, last, rank, 4).whole().batches();
            assert!((1..4).all(|rank| batches(rank) == batches(0)));
        }
        assert_eq!(order(103, 8, Last::Drop, 0, 4).whole().batches(), 3);
        assert_eq!(order(103, 8, Last::Pad, 0, 4).whole().batches(), 4);
    }

    #[test]
    fn a_partial_batch_holds_the_rest() {
        let order = order(10, 4, Last::Partial, 0, 1).whole();
        assert_eq!(
            (0..order.batches()).map(|it| order.batch_len(it)).collect::<Vec<_>>(),
            [4, 4, 2]
        );
    }

    #[test]
    fn the_global_order_does_not_depend_on_the_number_of_shards() {
        let one = order(20, 4, Last::Partial, 0, 1).epoch(3);
        for rank in 0..3 {
            let shard = order(20, 4, Last::Partial, rank, 3);
            for place in 0..shard.whole().places() {
                let of_one = one.at(0, (place * 3 + rank) as usize);
                assert_eq!(shard.epoch(3).at(0, place as usize), of_one);
            }
        }
    }

    /// However often an epoch is interrupted, and however many shards go on: every sample once, in the global order.
    #[test]
    fn what_is_left_of_an_epoch_is_the_same_for_any_number_of_shards() {
        let whole = order(97, 4, Last::Partial, 0, 1).epoch(5);
        let all: Vec<u64> = (0..97).map(|place| whole.at(0, place).index).collect();
        for (first, second) in [(1, 1), (3, 2), (2, 5), (4, 1)] {
            for batches in 0..4 {
                let position = order(97, 4, Last::Partial, 0, first).consumed(5, batches);
                assert_eq!(position, (4 * batches * first).min(97));
                let mut rest = vec![0; 97];
                for rank in 0..second {
                    let shard = order(97, 3, Last::Partial, rank, second).begin_at(5, position);
                    let epoch = shard.epoch(5);
                    for place in 0..epoch.places() {
                        rest[(position + place * second + rank) as usize] =
                            epoch.at(0, place as usize).index;
                    }
                    assert_eq!(shard.epoch(6).places(), shard.whole().places());
                }
                assert_eq!(rest[position as usize..], all[position as usize..]);
            }
        }
    }
}
