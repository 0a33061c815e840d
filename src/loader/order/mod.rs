//! Order of samples in each epoch.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::error::Result;
use crate::plan::{LastBatch, LoaderSettings, Shard};
use crate::random::Permutation;

use windows::{Files, Windows};

mod windows;

/// Order of every epoch, for one shard of the set.
///
/// * An epoch's order is a permutation of all indices, or the identity without shuffling. All
///   shards have the same order. Of the positions that remain in the epoch, position number `p`
///   belongs to rank `p % world`. So all shards together have every position exactly once, and the
///   global order does not depend on the number of shards.
/// * With `loader.repeats` of `r`, position `p` has the sample that position `p / r` would have
///   without repeats. So each sample occurs `r` consecutive times over all shards, as with
///   torchvision's `RASampler`. The length of an epoch does not change, so an epoch contains only
///   the first `1 / r` of the permutation.
/// * In the first epoch of a resumed loader, the consumed positions are skipped. The number of
///   shards may differ before and after resuming, without an effect on the remaining positions.
/// * A loader that is restricted to some positions ([`within`](Self::within)) has the same samples
///   at these positions as a loader of the whole epoch.
/// * With `loader.last_batch` set to `drop` or `pad`, all shards have the same number of batches,
///   also in an epoch that starts in the middle. With `partial`, every position occurs exactly
///   once, and shards may differ by one batch.
/// * `loader.shuffle` alone permutes the whole set. It computes each position separately, without a
///   table. It takes about 100 bytes, and some tens of nanoseconds per sample, for any size of the
///   set.
/// * `loader.shuffle_window` puts the source's files into a random order. It then permutes blocks
///   of `window` samples twice, the second time displaced by half a block. Any `window` consecutive
///   positions are read from at most three consecutive blocks, and so from the files in these
///   blocks: one or two files if files are longer than three blocks. A sample moves by at most 1.5
///   blocks.
/// * The order depends only on the seed, the epoch, the number of samples and the repeats, and with
///   `loader.shuffle_window` also on the window size and the ends of the files. The order is part
///   of the public contract: changing it is a breaking change.
///
/// Cost for `N` = one billion samples: a full shuffle takes no memory that depends on `N`. It
/// permutes numbers of `2 ceil(log2(N) / 2) = 30` bits. Results of `N` or more are permuted again,
/// so a position takes 1.07 permutations on average (at most 4 for any `N`). With
/// `loader.shuffle_window`, `F` files take `40 F` bytes (4 MB for 100 000 files of 10 000 samples),
/// `O(F)` time at the start of each epoch, and a search in `log2(F) = 17` steps per sample.
/// Resuming computes one position, which takes `O(1)` time, or `O(F)` with `loader.shuffle_window`.
#[derive(Clone, Debug)]
pub struct Order {
    samples: u64,
    settings: OrderSettings,
    /// Files of the source, if the order depends on them.
    files: Option<Arc<Files>>,
    /// Epoch that starts in the middle, and its first position.
    begin: (u32, u64),
    /// Positions of each epoch that are used.
    positions: Range<u64>,
}

#[derive(Clone, Copy, Debug)]
struct OrderSettings {
    batch: u64,
    seed: u64,
    shuffle: bool,
    repeats: u64,
    last: LastBatch,
    rank: u64,
    world: u64,
}

/// Sample at one position of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index of the sample in its source.
    pub index: u64,
    /// Number of earlier positions of the epoch with the same sample.
    pub repeat: u32,
    /// Whether the sample is padding of the last batch.
    pub padding: bool,
}

/// Number of samples and batches of one shard in one epoch.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    settings: OrderSettings,
    /// First position, and position after the last one.
    begin: u64,
    end: u64,
}

/// Order of one epoch, with its [`Extent`].
#[derive(Clone, Debug)]
pub struct EpochOrder {
    extent: Extent,
    visit: Visit,
}

/// Mapping from positions to indices.
#[derive(Clone, Debug)]
enum Visit {
    Source,
    Whole(Permutation),
    Windows(Windows),
}

impl Order {
    /// Creates the order of a set of `samples` samples, at least 1, for one of its shards.
    /// `file_ends` is used only with `loader.shuffle_window`.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`](crate::Error::Internal) if `loader.shuffle_window` is set and
    /// `file_ends` does not satisfy [`Source::file_ends`](crate::source::Source::file_ends).
    pub fn new(
        samples: u64,
        loader: &LoaderSettings,
        shard: &Shard,
        file_ends: &[u64],
    ) -> Result<Self> {
        let &LoaderSettings {
            batch_size,
            seed,
            shuffle,
            shuffle_window,
            repeats,
            last_batch: last,
            ..
        } = loader;
        let &Shard { rank, world, .. } = shard;
        let (batch, repeats) = (batch_size as u64, repeats.into());
        let settings = OrderSettings { batch, seed, shuffle, repeats, last, rank, world };
        let files = match shuffle_window.filter(|_| shuffle) {
            Some(window) => Some(Arc::new(Files::new(samples, file_ends, window)?)),
            None => None,
        };
        Ok(Self { samples, settings, files, begin: (0, 0), positions: 0..samples })
    }

    /// Restricts every epoch to these positions, which must be within `0..samples`.
    pub fn within(self, positions: Range<u64>) -> Self {
        Self { positions, ..self }
    }

    /// Lets `epoch` begin at `position`, which is at most the number of samples.
    pub fn begin_at(self, epoch: u32, position: u64) -> Self {
        Self { begin: (epoch, position.min(self.samples)), ..self }
    }

    /// Order of one epoch. With `loader.shuffle_window`, computing it takes time proportional to
    /// the number of files.
    pub fn epoch(&self, epoch: u32) -> EpochOrder {
        let OrderSettings { seed, shuffle, .. } = self.settings;
        let visit = match &self.files {
            _ if !shuffle => Visit::Source,
            Some(files) => Visit::Windows(files.epoch(seed, epoch)),
            None => Visit::Whole(Permutation::new(seed, epoch, self.samples)),
        };
        EpochOrder { extent: self.extent(epoch), visit }
    }

    /// Size of one epoch of this shard, in constant time.
    pub fn extent(&self, epoch: u32) -> Extent {
        let begin = if self.begin.0 == epoch { self.begin.1 } else { 0 };
        let Range { start, end } = self.positions;
        Extent { settings: self.settings, begin: begin.clamp(start, end), end }
    }

    /// Size of a complete epoch of this shard, that is, of an epoch that is not resumed in the
    /// middle.
    pub fn whole(&self) -> Extent {
        let Range { start: begin, end } = self.positions;
        Extent { settings: self.settings, begin, end }
    }

    /// Number of positions of an epoch that all shards together have consumed when each shard has
    /// consumed `batches` batches. Positions before the epoch's start are included.
    pub fn consumed(&self, epoch: u32, batches: u64) -> u64 {
        let OrderSettings { batch, world, .. } = self.settings;
        let Extent { begin, end, .. } = self.extent(epoch);
        begin.saturating_add(batches.saturating_mul(batch).saturating_mul(world)).min(end)
    }

    /// CRC-32C of the ends of the source's files, if the order depends on them.
    pub fn files(&self) -> Option<u32> {
        self.files.as_ref().map(|files| files.checksum())
    }
}

impl Extent {
    /// Number of samples that this shard reads in the epoch, without padding. Positions that were
    /// consumed before the loader was resumed do not count.
    pub fn own(&self) -> u64 {
        let OrderSettings { rank, world, .. } = self.settings;
        self.left().saturating_sub(rank).div_ceil(world)
    }

    /// Number of samples of this shard, including padding.
    pub fn places(&self) -> u64 {
        let OrderSettings { batch, last, world, .. } = self.settings;
        match last {
            LastBatch::Drop => self.left() / world / batch * batch,
            LastBatch::Pad => self.left().div_ceil(world).div_ceil(batch) * batch,
            LastBatch::Partial => self.own(),
        }
    }

    /// Number of samples of this shard that are in no batch, because they do not fill the last one.
    pub fn left_over(&self) -> u64 {
        self.own().saturating_sub(self.places())
    }

    /// Number of batches of this shard.
    pub fn batches(&self) -> u64 {
        self.places().div_ceil(self.settings.batch)
    }

    /// Number of samples in batch number `batch`.
    pub fn batch_len(&self, batch: u64) -> usize {
        let start = batch * self.settings.batch;
        self.settings.batch.min(self.places() - start) as usize
    }

    /// Position in the epoch's order, over all shards, of place `place` of batch number `batch`.
    /// Positions after the last one belong to padding.
    pub fn position(&self, batch: u64, place: usize) -> u64 {
        let OrderSettings { rank, world, .. } = self.settings;
        self.begin + (batch * self.settings.batch + place as u64) * world + rank
    }

    fn left(&self) -> u64 {
        self.end - self.begin
    }
}

impl Deref for EpochOrder {
    type Target = Extent;

    fn deref(&self) -> &Extent {
        &self.extent
    }
}

impl EpochOrder {
    /// The sample at index `place` of batch number `batch`.
    pub fn at(&self, batch: u64, place: usize) -> Position {
        let Extent { settings, begin, end } = self.extent;
        let OrderSettings { repeats, rank, world, .. } = settings;
        let own = self.own();
        let padding = batch * settings.batch + place as u64 >= own;
        // A shard without samples pads with the last sample of the epoch.
        let global = match (padding, own) {
            (false, _) => self.position(batch, place),
            (true, 0) => end - 1,
            (true, _) => begin + (own - 1) * world + rank,
        };
        let (place, repeat) = (global / repeats, (global % repeats) as u32);
        let index = match &self.visit {
            Visit::Source => place,
            Visit::Whole(permutation) => permutation.at(place),
            Visit::Windows(windows) => windows.at(place),
        };
        Position { index, repeat, padding }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(samples: u64, batch: usize, last: LastBatch, rank: u64, world: u64) -> Order {
        let settings = LoaderSettings {
            batch_size: batch,
            last_batch: last,
            shuffle: true,
            ..Default::default()
        };
        Order::new(samples, &settings, &Shard { rank, world, from: "settings" }, &[]).unwrap()
    }

    #[test]
    fn all_shards_together_hold_every_sample_once() {
        for (samples, world) in [(1, 1), (10, 3), (11, 4), (3, 5), (64, 8)] {
            for last in [LastBatch::Partial, LastBatch::Pad] {
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
    fn shards_with_pad_or_drop_have_the_same_number_of_batches() {
        for last in [LastBatch::Pad, LastBatch::Drop] {
            let batches = |rank| order(103, 8, last, rank, 4).whole().batches();
            assert!((1..4).all(|rank| batches(rank) == batches(0)));
        }
        assert_eq!(order(103, 8, LastBatch::Drop, 0, 4).whole().batches(), 3);
        let left_over =
            |last| (0..4).map(|it| order(103, 8, last, it, 4).whole().left_over()).sum::<u64>();
        assert_eq!(
            [LastBatch::Drop, LastBatch::Pad, LastBatch::Partial].map(left_over),
            [103 - 4 * 3 * 8, 0, 0]
        );
        assert_eq!(order(103, 8, LastBatch::Pad, 0, 4).whole().batches(), 4);
    }

    #[test]
    fn a_partial_batch_holds_the_rest() {
        let order = order(10, 4, LastBatch::Partial, 0, 1).whole();
        assert_eq!(
            (0..order.batches()).map(|it| order.batch_len(it)).collect::<Vec<_>>(),
            [4, 4, 2]
        );
    }

    #[test]
    fn the_global_order_does_not_depend_on_the_number_of_shards() {
        let one = order(20, 4, LastBatch::Partial, 0, 1).epoch(3);
        for rank in 0..3 {
            let shard = order(20, 4, LastBatch::Partial, rank, 3);
            for place in 0..shard.whole().places() {
                let of_one = one.at(0, (place * 3 + rank) as usize);
                assert_eq!(shard.epoch(3).at(0, place as usize), of_one);
            }
        }
    }

    /// Consecutive parts of an epoch together equal the epoch, even if a resumed epoch begins in
    /// the middle of a part.
    #[test]
    fn parts_of_an_epoch_are_the_epoch() {
        let whole = order(97, 4, LastBatch::Partial, 0, 1).epoch(5);
        let all: Vec<u64> = (0..97).map(|place| whole.at(0, place).index).collect();
        for cuts in [&[0, 97][..], &[0, 1, 2, 97], &[0, 40, 44, 96, 97]] {
            for (epoch, position) in [(4, 50), (5, 0), (5, 42), (5, 97)] {
                let mut parts = Vec::new();
                for pair in cuts.windows(2) {
                    let part = order(97, 4, LastBatch::Partial, 0, 1).within(pair[0]..pair[1]);
                    let part = part.begin_at(epoch, position);
                    let part = part.epoch(5);
                    parts.extend((0..part.places()).map(|place| part.at(0, place as usize).index));
                }
                let begin = if epoch == 5 { position as usize } else { 0 };
                assert_eq!(parts, all[begin..], "{cuts:?} from {position} of epoch {epoch}");
            }
        }
    }

    #[test]
    fn a_part_is_divided_and_padded_like_a_whole_epoch() {
        let whole = order(50, 4, LastBatch::Partial, 0, 1).epoch(2);
        for (last, places) in
            [(LastBatch::Drop, [4, 4]), (LastBatch::Pad, [8, 8]), (LastBatch::Partial, [5, 4])]
        {
            for rank in 0..2 {
                let part = order(50, 4, last, rank, 2).within(10..19).epoch(2);
                assert_eq!(part.places(), places[rank as usize]);
                for place in 0..part.places() {
                    let expected = (10 + 2 * place + rank).min(18 - rank);
                    let position = part.at(0, place as usize);
                    assert_eq!(position.index, whole.at(0, expected as usize).index);
                    assert_eq!(position.padding, place >= part.own());
                }
            }
        }
        let shard = order(50, 4, LastBatch::Partial, 0, 2).within(10..19);
        assert_eq!(
            (shard.consumed(2, 0), shard.consumed(2, 1), shard.consumed(2, 2)),
            (10, 18, 19)
        );
    }

    /// After any number of interruptions, and for any number of resuming shards, every sample
    /// occurs once, in the global order.
    #[test]
    fn remaining_samples_do_not_depend_on_the_number_of_shards() {
        let whole = order(97, 4, LastBatch::Partial, 0, 1).epoch(5);
        let all: Vec<u64> = (0..97).map(|place| whole.at(0, place).index).collect();
        for (first, second) in [(1, 1), (3, 2), (2, 5), (4, 1)] {
            for batches in 0..4 {
                let position = order(97, 4, LastBatch::Partial, 0, first).consumed(5, batches);
                assert_eq!(position, (4 * batches * first).min(97));
                let mut rest = vec![0; 97];
                for rank in 0..second {
                    let shard =
                        order(97, 3, LastBatch::Partial, rank, second).begin_at(5, position);
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
