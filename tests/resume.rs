//! Going on where another loader was: with other workers, another batch, another number of shards.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{jpegs, training};
use feedwater::error::Fault;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder, LoaderState, Order, SampleRecord};
use feedwater::plan::{Last, LoaderSettings};
use feedwater::source::{Memory, Page, Source};
use proptest::prelude::*;

const SAMPLES: u64 = 61;

fn builder() -> LoaderBuilder {
    let source = Memory::new(jpegs(SAMPLES)).unwrap();
    Loader::builder(source, training())
        .device(DeviceChoice::Cpu)
        .workers(2)
        .batch(4)
        .shuffle(true)
        .seed(9)
        .last(Last::Partial)
}

/// A sample with what was drawn for it, and its pixels.
type Made = (u64, SampleRecord, Vec<u8>);

/// Up to so many batches, and the state after them.
fn run(loader: &Loader, batches: usize) -> (Vec<Made>, LoaderState) {
    let mut all = Vec::new();
    for batch in loader.into_iter().take(batches) {
        let batch = batch.unwrap();
        let bytes = batch.to_host().unwrap();
        let each = bytes.len() / batch.len();
        for (record, pixels) in batch.samples().iter().zip(bytes.chunks(each)) {
            all.push((record.index, *record, pixels.to_vec()));
        }
    }
    (all, loader.state())
}

fn epoch() -> Vec<Made> {
    run(&builder().build().unwrap(), usize::MAX).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// An epoch that is interrupted again and again, each time with another number of shards, batch size, workers and
    /// prefetch: every sample once, with the pixels of an epoch that nothing interrupted.
    #[test]
    fn an_epoch_is_exact_however_it_is_interrupted(
        legs in proptest::collection::vec((1u64..5, 1usize..7, 1usize..4, 1usize..4, 0usize..3), 1..5)
    ) {
        let mut made = Vec::new();
        let mut state: Option<LoaderState> = None;
        let last = legs.len();
        for (leg, (world, batch, workers, prefetch, batches)) in legs.into_iter().enumerate() {
            // All go on to the end in the last leg.
            let batches = if leg + 1 == last { usize::MAX } else { batches };
            let from = state;
            for rank in 0..world {
                let shard = builder().batch(batch).workers(workers).prefetch(prefetch).shard(rank, world);
                let shard = match from {
                    Some(from) if from.epoch > 0 => break,
                    Some(from) => shard.resume(from),
                    None => shard,
                };
                let (more, after) = run(&shard.build().unwrap(), batches);
                made.extend(more);
                if rank == 0 {
                    state = Some(after);
                }
            }
        }
        made.sort_by_key(|it| it.0);
        let mut whole = epoch();
        whole.sort_by_key(|it| it.0);
        prop_assert_eq!(made.len(), whole.len());
        prop_assert!(made == whole);
    }
}

#[test]
fn the_state_counts_what_was_handed_out_by_all_shards() {
    let loader = builder().shard(1, 3).build().unwrap();
    let start = LoaderState { seed: 9, shuffle: true, epoch: 0, position: 0, samples: SAMPLES };
    assert_eq!(loader.state(), start);
    let (_, state) = run(&loader, 2);
    assert_eq!(state, LoaderState { position: 24, ..start });
    // The loop was left: the next one is the next epoch.
    let (_, state) = run(&loader, 1);
    assert_eq!(state, LoaderState { epoch: 1, position: 12, ..start });
    let (_, state) = run(&loader, usize::MAX);
    assert_eq!(state, LoaderState { epoch: 3, position: 0, ..start });
}

#[test]
fn later_epochs_are_whole_and_in_their_own_order() {
    let first = builder().build().unwrap();
    let (_, state) = run(&first, 5);
    let (second_epoch, _) = run(&first, usize::MAX);
    let resumed = builder().workers(1).prefetch(3).resume(state).build().unwrap();
    assert_eq!(run(&resumed, usize::MAX).0.len(), SAMPLES as usize - 20);
    assert!(run(&resumed, usize::MAX).0 == second_epoch);
}

/// Counts the samples that were read.
struct Counted(Memory, Arc<AtomicU64>);

impl Source for Counted {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.0.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.0.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), Fault> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(index, page, limit)
    }
    fn largest_bytes(&self) -> u64 {
        self.0.largest_bytes()
    }
    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[test]
fn nothing_that_was_consumed_is_read_again() {
    let state = LoaderState { seed: 9, shuffle: true, epoch: 7, position: 56, samples: SAMPLES };
    let reads = Arc::new(AtomicU64::new(0));
    let source = Counted(Memory::new(jpegs(SAMPLES)).unwrap(), reads.clone());
    let builder = Loader::builder(source, training()).device(DeviceChoice::Cpu).batch(4);
    let loader = builder.last(Last::Partial).resume(state).epochs(Some(1)).build().unwrap();
    // The plan has looked at sixteen pictures.
    let before = 16;
    assert_eq!(run(&loader, usize::MAX).0.len(), 5);
    assert_eq!(reads.load(Ordering::Relaxed), before + 5);
}

#[test]
fn a_state_is_kept_as_a_few_numbers() {
    let state = LoaderState { seed: 9, shuffle: true, epoch: 3, position: 40, samples: 61 };
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(text, r#"{"seed":9,"shuffle":true,"epoch":3,"position":40,"samples":61}"#);
    assert_eq!(serde_json::from_str::<LoaderState>(&text).unwrap(), state);
}

#[test]
fn a_state_of_another_source_is_refused() {
    let state = LoaderState { seed: 9, shuffle: true, epoch: 3, position: 40, samples: 60 };
    let error = builder().resume(state).build().err().unwrap().to_string();
    assert!(error.contains("60 samples, this one has 61"), "{error}");
    let state = LoaderState { position: 62, samples: 61, ..state };
    let error = builder().resume(state).build().err().unwrap().to_string();
    assert!(error.contains("state.position: is 62"), "{error}");
}

/// The order is part of the public contract: a change breaks runs that are resumed.
#[test]
fn the_order_is_what_it_always_was() {
    let order = |seed, epoch, samples| {
        let settings = LoaderSettings { seed, shuffle: true, batch: 1, ..Default::default() };
        let epoch = Order::new(samples, &settings).epoch(epoch);
        (0..samples.min(12)).map(|batch| epoch.at(batch, 0).index).collect::<Vec<_>>()
    };
    assert_eq!(order(0, 0, 12), [7, 6, 1, 4, 8, 0, 10, 2, 9, 5, 11, 3]);
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
    assert_eq!(order(42, 3, 1_000_000_007), of_a_billion);
}
