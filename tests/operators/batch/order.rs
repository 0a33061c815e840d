//! Mixed samples do not depend on the batch size or the number of workers, and are the same after a
//! resume.

use feedwater::loader::{Loader, LoaderBuilder, PairOutcome};
use feedwater::plan::LastBatch;

use super::{Made, builder, epoch, mixing, run};

#[test]
fn samples_do_not_depend_on_the_batch_size_the_workers_or_the_last_batch() {
    for chain in mixing() {
        let make = |batch: usize, workers: usize, last: LastBatch| {
            epoch(builder(chain.clone()).batch_size(batch).num_workers(workers).last_batch(last))
        };
        let expected = make(2, 1, LastBatch::Partial);
        assert_eq!(expected.len(), 61);
        for (batch, workers) in [(4, 2), (8, 3), (16, 4), (64, 4), (16, 1)] {
            assert!(make(batch, workers, LastBatch::Partial) == expected, "{batch} {workers}");
            assert!(make(batch, workers, LastBatch::Pad) == expected, "{batch} {workers} padded");
        }
    }
}

#[test]
fn a_resumed_epoch_is_the_same_with_another_batch_size() {
    for chain in mixing() {
        let make = || builder(chain.clone()).last_batch(LastBatch::Partial);
        let expected = epoch(make());
        for (first, second) in [(4, 4), (2, 8), (16, 2), (6, 10)] {
            let mut loader = make().batch_size(first).build().unwrap();
            let mut made = run(&mut loader, 2);
            let state = loader.state();
            made.extend(epoch(make().batch_size(second).resume(state)));
            assert!(made == expected, "{first} {second}");
        }
    }
}

#[test]
fn epochs_and_seeds_draw_differently() {
    let [chain, ..] = mixing();
    let weights = |made: &[Made]| -> Vec<f32> {
        made.iter().flat_map(|it| it.pair.blends().iter().map(|it| it.weight)).collect()
    };
    let mut loader = builder(chain.clone()).build().unwrap();
    let [first, second] = [(); 2].map(|()| weights(&run(&mut loader, usize::MAX)));
    let other = weights(&epoch(builder(chain).seed(8)));
    assert_eq!((first.len(), second.len(), other.len()), (60, 60, 60));
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).filter(|(a, b)| a == b).count();
    assert_eq!((same(&first, &second), same(&first, &other)), (0, 0));
    // Both samples of a pair have the same weight. Different pairs have different weights.
    assert!(first.chunks(2).all(|pair| pair[0] == pair[1]));
    assert!(first.chunks(2).zip(first[2..].chunks(2)).all(|(a, b)| a[0] != b[0]));
}

/// If there are at least as many shards as repeats of a sample, the two samples of a pair are
/// different. Otherwise the loader warns.
#[test]
fn repeats_are_mixed_with_other_samples_of_their_shard() {
    let [chain, ..] = mixing();
    for (repeats, world) in [(2, 2), (3, 4), (4, 1), (3, 2)] {
        let of = |batch| {
            let builder =
                builder(chain.clone()).shuffle(true).configure(|it| it.loader.repeats = repeats);
            builder.shard(world - 1, world).batch_size(batch).last_batch(LastBatch::Partial)
        };
        let expected = epoch(of(2));
        assert!(epoch(of(6).num_workers(3)) == expected, "{repeats} {world}");
        let mut loader = of(4).build().unwrap();
        let mut made = run(&mut loader, 1);
        made.extend(epoch(of(2).configure(|it| it.loader.repeats = 1).resume(loader.state())));
        assert!(made == expected, "{repeats} {world}");
        let repeated = expected.chunks_exact(2).any(|it| it[0].index == it[1].index);
        let warnings = loader.warnings();
        let names = |it: &String| it.contains("loader.repeats");
        assert_eq!(warnings.iter().any(names), repeated, "{repeats} {world}: {warnings:?}");
        assert_eq!(repeated, u64::from(repeats) > world, "{repeats} {world}");
    }
}

/// Pairs are formed within a shard, so they depend on the number of shards.
#[test]
fn each_shard_mixes_its_own_samples() {
    let [chain, ..] = mixing();
    let of = |rank, batch| -> LoaderBuilder {
        builder(chain.clone()).shard(rank, 2).batch_size(batch).last_batch(LastBatch::Partial)
    };
    let [first, second] = [0, 1].map(|rank| epoch(of(rank, 4)));
    assert_eq!((first.len(), second.len()), (31, 30));
    assert!(first == epoch(of(0, 8)) && second == epoch(of(1, 16)));
    assert_eq!(first[30].pair.outcome(), PairOutcome::Alone);
    let mut loader = of(1, 6).build().unwrap();
    let mut made = run(&mut loader, 2);
    made.extend(epoch(of(1, 2).resume(loader.state())));
    assert!(made == second);
}

/// If an epoch is left early, slots return with samples whose mixing is incomplete. These samples
/// must not affect the next epoch.
#[test]
fn leaving_an_epoch_early_does_not_change_the_next_one() {
    let [chain, ..] = mixing();
    let mut whole = builder(chain.clone()).build().unwrap();
    run(&mut whole, usize::MAX);
    let expected = run(&mut whole, usize::MAX);
    for batches in [0, 1, 3] {
        let mut loader: Loader = builder(chain.clone()).num_workers(3).build().unwrap();
        run(&mut loader, batches);
        assert!(run(&mut loader, usize::MAX) == expected, "{batches}");
    }
}
