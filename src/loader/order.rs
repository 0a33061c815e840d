//! Which sample stands at which place of an epoch.

use crate::plan::{Last, LoaderSettings};
use crate::random::Permutation;

/// The order of every epoch, for one shard of the set.
///
/// The epoch's order is a permutation of all indices (the identity without shuffling), the same for all
/// shards. Position `p` of that order belongs to rank `p % world`, so all shards together hold every sample
/// exactly once, and the global order does not depend on the number of shards.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    samples: u64,
    settings: OrderSettings,
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
    order: Order,
    permutation: Option<Permutation>,
}

impl Order {
    /// The order of a set of `samples`, at least 1.
    pub fn new(samples: u64, loader: &LoaderSettings) -> Self {
        let &LoaderSettings { batch, seed, shuffle, last, rank, world, .. } = loader;
        let batch = batch as u64;
        Self { samples, settings: OrderSettings { batch, seed, shuffle, last, rank, world } }
    }

    /// Samples that this shard holds of an epoch, padding not counted.
    pub fn own(&self) -> u64 {
        let OrderSettings { rank, world, .. } = self.settings;
        self.samples.saturating_sub(rank).div_ceil(world)
    }

    /// Places in this shard's epoch, padding counted.
    pub fn places(&self) -> u64 {
        let OrderSettings { batch, last, world, .. } = self.settings;
        match last {
            Last::Drop => self.samples / world / batch * batch,
            Last::Pad => self.samples.div_ceil(world).div_ceil(batch) * batch,
            Last::Partial => self.own(),
        }
    }

    /// Batches in this shard's epoch.
    pub fn batches(&self) -> u64 {
        self.places().div_ceil(self.settings.batch)
    }

    /// Samples in batch number `batch` of an epoch.
    pub fn batch_len(&self, batch: u64) -> usize {
        let start = batch * self.settings.batch;
        self.settings.batch.min(self.places() - start) as usize
    }

    /// The order of one epoch.
    pub fn epoch(&self, epoch: u32) -> EpochOrder {
        let OrderSettings { seed, shuffle, .. } = self.settings;
        let permutation = shuffle.then(|| Permutation::new(seed, epoch, self.samples));
        EpochOrder { order: *self, permutation }
    }
}

impl EpochOrder {
    /// What stands at a place of this shard's epoch.
    pub fn at(&self, place: u64) -> Position {
        let Order { samples, settings: OrderSettings { rank, world, .. } } = self.order;
        let own = self.order.own();
        let padding = place >= own;
        // A shard without a single sample of its own pads with the set's last one.
        let global = match (padding, own) {
            (false, _) => place * world + rank,
            (true, 0) => samples - 1,
            (true, _) => (own - 1) * world + rank,
        };
        let index = self.permutation.map_or(global, |permutation| permutation.at(global));
        Position { index, padding }
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
                    for place in 0..order.places() {
                        let position = epoch.at(place);
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
            let batches = |rank| order(103, 8, last, rank, 4).batches();
            assert!((1..4).all(|rank| batches(rank) == batches(0)));
        }
        assert_eq!(order(103, 8, Last::Drop, 0, 4).batches(), 3);
        assert_eq!(order(103, 8, Last::Pad, 0, 4).batches(), 4);
    }

    #[test]
    fn a_partial_batch_holds_the_rest() {
        let order = order(10, 4, Last::Partial, 0, 1);
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
            for place in 0..shard.places() {
                assert_eq!(shard.epoch(3).at(place), one.at(place * 3 + rank));
            }
        }
    }
}
