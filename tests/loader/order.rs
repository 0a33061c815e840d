//! Order of the samples in an epoch. The order is uniform and has no visible correlations. Windowed
//! shuffles are local. The order does not depend on the number of shards, and is the same in all
//! versions.
//!
//! The statistical bounds are so wide that a good order exceeds them with one of ten million keys.
//! The keys are fixed, so the results are always the same.

use crate::common::tests_all_cases;
use feedwater::error::{ConfigError, DataError, Error, Result};
use feedwater::internals::loader::{EpochOrder, Order};
use feedwater::internals::plan::Shard;
use feedwater::internals::random::Permutation;
use feedwater::plan::{LastBatch, LoaderSettings};
use feedwater::source::Source;
use feedwater::source::custom::{Hints, Page};
use proptest::prelude::*;
use serde_json::Value;

/// Returns a permutation of all numbers below `len`.
fn permuted(seed: u64, epoch: u32, len: u64) -> Vec<u64> {
    let permutation = Permutation::new(seed, epoch, len);
    (0..len).map(|position| permutation.at(position)).collect()
}

/// Returns two lists of keys (seed, epoch): different seeds with one epoch, and different epochs
/// with one seed. They have `count` keys each if [`tests_all_cases`], and a quarter of
/// that otherwise.
fn keys(count: u64) -> [Vec<(u64, u32)>; 2] {
    let count = if tests_all_cases() { count } else { count / 4 };
    [(0..count).map(|it| (it, 0)).collect(), (0..count).map(|it| (7, it as u32)).collect()]
}

/// Returns by how many standard deviations the counts differ from equal counts. This is a
/// chi-square test with `freedom` degrees of freedom (approximation by Wilson and Hilferty 1931).
fn deviation(counts: &[u32], freedom: f64) -> f64 {
    let expected = counts.iter().map(|&it| f64::from(it)).sum::<f64>() / counts.len() as f64;
    let chi: f64 = counts.iter().map(|&it| (f64::from(it) - expected).powi(2) / expected).sum();
    let part = 2.0 / (9.0 * freedom);
    ((chi / freedom).cbrt() - (1.0 - part)) / part.sqrt()
}

const MOST: f64 = 5.2;

/// Returns the lexicographic rank of an order among all orders of its length, from 0.
fn number(order: &[u64]) -> usize {
    let smaller = |at: usize| order[at + 1..].iter().filter(|&&it| it < order[at]).count();
    (0..order.len()).fold(0, |number, at| number * (order.len() - at) + smaller(at))
}

#[test]
fn all_orders_of_a_few_elements_are_equally_frequent() {
    for len in 2..=6u64 {
        let orders: usize = (1..=len as usize).product();
        for keys in keys((orders as u64 * 100).max(20_000)) {
            let mut counts = vec![0; orders];
            for (seed, epoch) in keys {
                counts[number(&permuted(seed, epoch, len))] += 1;
            }
            let deviation = deviation(&counts, (orders - 1) as f64);
            assert!(deviation.abs() < MOST, "{len} elements: {deviation}");
        }
    }
}

/// Permutations of small blocks, which windowed shuffles use, are uniform too.
#[test]
fn all_orders_of_a_small_block_are_equally_frequent() {
    let permutation = Permutation::new(3, 1, 5);
    let mut counts = vec![0; 120];
    for block in 0..24_000 {
        let block = permutation.block(block, 5);
        counts[number(&(0..5).map(|it| block.at(it)).collect::<Vec<_>>())] += 1;
    }
    let deviation = deviation(&counts, 119.0);
    assert!(deviation.abs() < MOST, "{deviation}");
}

#[test]
fn every_place_gets_every_element_equally_often() {
    // The lengths are close to powers of two and four. Together they need both of the methods that
    // construct permutations.
    for len in [3, 5, 15, 16, 17, 24, 64, 65, 1024, 1025] {
        for keys in keys(if len < 100 { 10_000 } else { 600 }) {
            // If a permutation is long, its positions and elements are counted in 32 parts of
            // almost equal length.
            let parts = len.min(32);
            let mut counts = vec![0; (parts * parts) as usize];
            let width = len / parts;
            for (seed, epoch) in keys {
                for (position, element) in permuted(seed, epoch, len).into_iter().enumerate() {
                    let (row, column) = (position as u64 / width, element / width);
                    if row < parts && column < parts {
                        counts[(row * parts + column) as usize] += 1;
                    }
                }
            }
            let deviation = deviation(&counts, ((parts - 1) * (parts - 1)) as f64);
            assert!(deviation.abs() < MOST, "{len} elements: {deviation}");
        }
    }
}

/// Every element must be followed by every other element equally often.
#[test]
fn every_element_has_every_neighbour_equally_often() {
    for len in [4, 5, 9, 16, 17, 33] {
        for keys in keys(20_000) {
            let mut counts = vec![0; (len * len) as usize];
            for (seed, epoch) in keys {
                for pair in permuted(seed, epoch, len).windows(2) {
                    counts[(pair[0] * len + pair[1]) as usize] += 1;
                }
            }
            let pairs: Vec<u32> = (0..len * len)
                .filter(|it| it / len != it % len)
                .map(|it| counts[it as usize])
                .collect();
            // In this table of pairs, the sums of the rows and columns are almost fixed, which
            // reduces the degrees of freedom.
            let deviation = deviation(&pairs, ((len - 1) * (len - 1)) as f64);
            assert!(deviation < MOST + 1.0, "{len} elements: {deviation}");
        }
    }
}

/// Returns the correlation between two series of numbers below `len`, in standard deviations. It is
/// the larger of two values: the deviation of the joint frequencies in 16x16 parts, and the
/// correlation coefficient.
fn correlation(len: u64, pairs: impl Iterator<Item = (u64, u64)>) -> f64 {
    let mut counts = [0; 256];
    let (mut sum, mut n) = (0.0, 0.0);
    let scaled = |it: u64| (it as f64 + 0.5) / len as f64;
    for (a, b) in pairs {
        let (a, b) = (scaled(a), scaled(b));
        counts[(a * 16.0) as usize * 16 + (b * 16.0) as usize] += 1;
        // If a and b are independent and uniform from 0 to 1, (a - 0.5) * (b - 0.5) has mean 0 and
        // variance 1/144.
        sum += (a - 0.5) * (b - 0.5);
        n += 1.0;
    }
    let coefficient = sum * 12.0 / f64::sqrt(n);
    deviation(&counts, 255.0).abs().max(coefficient.abs())
}

/// Tests pairs of positions at several distances (strides). Long permutations divide a position
/// into two halves of bits (a Feistel network). If the halves were mixed badly, pairs at strides of
/// powers of two would be correlated.
#[test]
fn neighbours_are_not_correlated() {
    for len in [1000, 1024, 4096, 100_000, 10_000_019, 1 << 30] {
        let permutation = Permutation::new(11, 4, len);
        let count = (len / 2).min(60_000);
        for stride in [1, 2, 3, 16, 32, 64, 100, 256, 4096, 1 << 15, len / 2] {
            if stride + count > len {
                continue;
            }
            let pairs = (0..count).map(|it| (permutation.at(it), permutation.at(it + stride)));
            let found = correlation(len, pairs);
            assert!(found < MOST, "{len} elements, {stride} apart: {found}");
        }
    }
}

#[test]
fn epochs_and_seeds_are_not_correlated() {
    for len in [1000, 4096, 10_000_019] {
        for (seed, epoch) in
            [(0, 1), (0, 2), (1, 0), (2, 0), (1 << 32, 0), (1 << 63, 0), (0, 1 << 31)]
        {
            let (first, second) = (Permutation::new(0, 0, len), Permutation::new(seed, epoch, len));
            let count = len.min(60_000);
            let found = correlation(len, (0..count).map(|it| (first.at(it), second.at(it))));
            assert!(found < MOST, "{len} elements, seed {seed}, epoch {epoch}: {found}");
        }
    }
    // In two independent orders of any length, one element on average has the same position in
    // both.
    let same: usize = (0..2000)
        .map(|epoch| {
            let (first, second) = (permuted(3, epoch, 50), permuted(3, epoch + 1, 50));
            first.iter().zip(&second).filter(|(a, b)| a == b).count()
        })
        .sum();
    assert!((1770..2230).contains(&same), "{same}");
}

const WHOLE: Shard = Shard { rank: 0, world: 1, from: "settings" };

/// Returns the order of an epoch with a windowed shuffle over files. `files` has the number of
/// samples of each file.
fn windowed(files: &[u64], window: u64, seed: u64, epoch: u32) -> EpochOrder {
    order(files, window, seed, WHOLE).unwrap().epoch(epoch)
}

fn order(files: &[u64], window: u64, seed: u64, shard: Shard) -> Result<Order> {
    let mut end = 0;
    let ends: Vec<u64> = files
        .iter()
        .map(|len| {
            end += len;
            end
        })
        .collect();
    let settings = LoaderSettings {
        batch_size: 1,
        shuffle: true,
        shuffle_window: Some(window),
        seed,
        last_batch: LastBatch::Partial,
        ..Default::default()
    };
    Order::new(end, &settings, &shard, &ends)
}

fn indices(epoch: &EpochOrder) -> Vec<u64> {
    (0..epoch.places()).map(|place| epoch.at(place, 0).index).collect()
}

proptest! {
    #[test]
    fn a_windowed_shuffle_has_every_sample_once_for_any_number_of_shards(
        files in prop::collection::vec(0u64..40, 1..12),
        window in 1u64..200,
        seed: u64,
        epoch: u32,
        world in 1u64..7,
    ) {
        prop_assume!(files.iter().sum::<u64>() > 0);
        let all = indices(&windowed(&files, window, seed, epoch));
        let mut sorted = all.clone();
        sorted.sort_unstable();
        prop_assert!(sorted.into_iter().eq(0..files.iter().sum()));
        for rank in 0..world {
            let shard = Shard { rank, world, from: "settings" };
            let own = indices(&order(&files, window, seed, shard).unwrap().epoch(epoch));
            let expected = all.iter().skip(rank as usize).step_by(world as usize);
            prop_assert!(own.iter().eq(expected));
        }
    }

    /// Reads are nearly sequential. The samples at any `window` consecutive positions are close to
    /// each other in the sequence that reads one file after the other. Their places in that
    /// sequence span at most `3 * window` positions.
    #[test]
    fn windows_are_read_nearly_in_sequence(
        files in prop::collection::vec(1u64..60, 1..9),
        window in 1u64..50,
        seed: u64,
    ) {
        let all = indices(&windowed(&files, window, seed, 0));
        // With a shuffle window of one sample, only the order of the files is random. `place` gets
        // each sample's position in that order.
        let mut place = vec![0; all.len()];
        let mut visited: Vec<u64> = Vec::new();
        let ends: Vec<u64> = files.iter().scan(0, |end, len| { *end += len; Some(*end) }).collect();
        let file = |index: u64| ends.partition_point(|&end| end <= index) as u64;
        for (position, index) in indices(&windowed(&files, 1, seed, 0)).into_iter().enumerate() {
            place[index as usize] = position as u64;
            if visited.last() != Some(&file(index)) {
                visited.push(file(index));
            }
        }
        prop_assert_eq!(visited.len(), files.len(), "each file must be read in one piece");
        for (position, &index) in all.iter().enumerate() {
            let distance = place[index as usize].abs_diff(position as u64);
            prop_assert!(2 * distance < 3 * window, "a sample is {} positions from its place", distance);
        }
        for run in all.windows(window.min(all.len() as u64) as usize) {
            let places = run.iter().map(|&index| place[index as usize]);
            let (low, high) = (places.clone().min().unwrap(), places.max().unwrap());
            prop_assert!(high / window - low / window <= 2, "from {} to {}", low, high);
        }
    }
}

/// A windowed shuffle distributes the W samples of each shuffle window over `2 W` positions. Except
/// near the ends of the order, each of these positions is equally probable for a sample.
#[test]
fn a_sample_reaches_all_positions_of_two_windows_equally_often() {
    const WINDOW: u64 = 8;
    let mut counts = [0; 2 * WINDOW as usize];
    for seed in 0..8000 {
        let all = indices(&windowed(&[64], WINDOW, seed, 0));
        // Sample 25 belongs to the window 24..=31. The samples of this window are spread over the
        // positions 20..=35.
        let position = all.iter().position(|&it| it == 25).unwrap();
        counts[position - 20] += 1;
    }
    let deviation = deviation(&counts, (2 * WINDOW - 1) as f64);
    assert!(deviation.abs() < MOST, "{deviation}: {counts:?}");
}

#[test]
fn files_have_a_different_order_in_each_epoch() {
    let mut counts = vec![0; 24];
    for epoch in 0..4800 {
        let all = indices(&windowed(&[3, 3, 3, 3], 1, 5, epoch));
        let files: Vec<u64> = all.iter().step_by(3).map(|it| it / 3).collect();
        counts[number(&files)] += 1;
    }
    let deviation = deviation(&counts, 23.0);
    assert!(deviation.abs() < MOST, "{deviation}: {counts:?}");
}

/// A source that reports at which samples its files end.
struct Files(u64, Vec<u64>);

impl Source for Files {
    fn len(&self) -> u64 {
        self.0
    }
    fn label(&self, _: u64) -> i64 {
        -1
    }
    fn location(&self, index: u64) -> String {
        index.to_string()
    }
    fn read(&self, _: u64, _: &mut dyn Page, _: u64) -> Result<(), DataError> {
        Ok(())
    }
    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl Hints for Files {
    fn file_ends(&self) -> Vec<u64> {
        self.1.clone()
    }
}

#[test]
fn windows_need_files_and_a_shuffle() {
    use feedwater::loader::{DeviceChoice, Loader};
    use feedwater::op::{CenterCrop, Chain};
    let built = |files: Vec<u64>, shuffle| {
        let chain = Chain::new().then(CenterCrop::to(4, 4));
        let builder = Loader::builder(Files(10, files), chain).device(DeviceChoice::Cpu);
        let builder = builder
            .batch_size(2)
            .shuffle(shuffle)
            .configure(|it| it.loader.shuffle_window = Some(4));
        builder.build().map(|_| ())
    };
    let config = |result: Result<()>| match result {
        Err(Error::Config(ConfigError { key, problem, .. })) => (key, problem),
        other => panic!("{other:?}"),
    };
    // The first error concerns a source that does not report files, the second one a loader that
    // does not shuffle. Only the second error suggests this line of a pipeline file.
    let line = "loader.shuffle = true";
    let (key, problem) = config(built(vec![], true));
    assert!(key == "loader.shuffle_window" && !problem.contains(line), "{problem}");
    let (key, problem) = config(built(vec![10], false));
    assert!(key == "loader.shuffle_window" && problem.contains(line), "{problem}");
    for wrong in [vec![4, 3, 10], vec![4, 9], vec![4, 11]] {
        let error = built(wrong, true).unwrap_err();
        let Error::Internal { problem } = error else { panic!("{error}") };
        assert!(problem.contains("file_ends") && problem.contains("10"), "{problem}");
    }
    built(vec![4, 4, 10], true).unwrap();
}

/// Compares repeated samples of each rank with timm's sampler, whose results
/// `tests/golden/operators/orders.py` stores. timm's sampler gives all ranks equally many samples.
/// With `last = "partial"`, a rank may have fewer.
#[test]
fn repeats_go_to_the_ranks_as_with_timm() {
    let golden: Value =
        serde_json::from_str(include_str!("../golden/operators/orders.json")).unwrap();
    for row in golden["repeats"].as_array().unwrap() {
        let number = |key: &str| row[key].as_u64().unwrap();
        let [samples, world, rank, repeats] = ["samples", "world", "rank", "repeats"].map(number);
        let settings =
            LoaderSettings { shuffle: true, last_batch: LastBatch::Partial, ..Default::default() };
        let once = Order::new(samples, &settings, &WHOLE, &[]).unwrap().epoch(3);
        let settings = LoaderSettings { repeats: repeats as u32, ..settings };
        let shard = Shard { rank, world, from: "settings" };
        let order = Order::new(samples, &settings, &shard, &[]).unwrap().epoch(3);
        let theirs = row["indices"].as_array().unwrap();
        assert_eq!(theirs.len() as u64, samples.div_ceil(world));
        assert_eq!(order.places(), (samples - rank).div_ceil(world));
        for (place, position) in theirs.iter().zip(0..order.places() as usize) {
            let expected = once.at(0, place.as_u64().unwrap() as usize).index;
            let repeat = (rank + position as u64 * world) % repeats;
            let ours = order.at(0, position);
            assert_eq!(
                (ours.index, u64::from(ours.repeat)),
                (expected, repeat),
                "{row} {position}"
            );
        }
    }
}

/// The order is part of the public contract, because resumed runs would break if it changed.
#[test]
fn the_order_is_stable_between_versions() {
    let whole = |seed, epoch, samples: u64| {
        let settings = LoaderSettings { seed, shuffle: true, batch_size: 1, ..Default::default() };
        let epoch = Order::new(samples, &settings, &WHOLE, &[]).unwrap().epoch(epoch);
        (0..samples.min(12)).map(|batch| epoch.at(batch, 0).index).collect::<Vec<_>>()
    };
    assert_eq!(whole(0, 0, 12), [11, 10, 5, 7, 9, 0, 3, 1, 2, 6, 8, 4]);
    assert_eq!(whole(42, 3, 1000), [264, 63, 3, 990, 317, 629, 255, 184, 512, 142, 59, 906]);
    let of_a_billion = [
        143_152_128,
        732_147_511,
        401_744_022,
        44_948_703,
        714_605_898,
        461_137_004,
        301_800_624,
        727_709_676,
        201_081_491,
        197_923_036,
        750_939_108,
        614_542_798,
    ];
    assert_eq!(whole(42, 3, 1_000_000_007), of_a_billion);
    let of_files = indices(&windowed(&[5, 4, 0, 6], 4, 42, 3));
    assert_eq!(of_files, [8, 5, 12, 11, 6, 7, 9, 0, 14, 10, 1, 13, 4, 2, 3]);
    let large = windowed(&[400_000_000, 300_000_000, 300_000_007], 100_000, 42, 3);
    let of_large: Vec<u64> = (0..6).map(|it| large.at(it * 150_000_001, 0).index).collect();
    assert_eq!(of_large, [400_068_167, 550_019_224, 699_949_189, 849_981_601, 13_767, 150_087_669]);
}
