//! Resumes an epoch of one loader in another one that has different numbers of workers, shards, and
//! samples per batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::words::has_words;
use crate::common::{self, config_error, jpegs, refused, training};
use feedwater::error::DataError;
use feedwater::internals::loader::Order;
use feedwater::internals::plan::Shard;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder, LoaderState, SampleRecord};
use feedwater::plan::{LastBatch, LoaderSettings};
use feedwater::source::custom::{Heads, Hints, Page};
use feedwater::source::{Directory, Memory, Source};
use proptest::prelude::*;

const SAMPLES: u64 = 61;

fn builder() -> LoaderBuilder {
    let source = Counted(Memory::new(jpegs(SAMPLES)).unwrap(), Arc::default());
    Loader::builder(source, training())
        .device(DeviceChoice::Cpu)
        .num_workers(2)
        .batch_size(4)
        .shuffle(true)
        .seed(9)
        .last_batch(LastBatch::Partial)
}

/// Index of a sample, its record (with the random draws), and its pixels.
type Made = (u64, SampleRecord, Vec<u8>);

/// Consumes at most `batches` batches. Returns their samples and the loader's state after them.
fn run(loader: &mut Loader, batches: usize) -> (Vec<Made>, LoaderState) {
    let mut all = Vec::new();
    for batch in loader.into_iter().take(batches) {
        let batch = batch.unwrap();
        let bytes = batch.to_host().unwrap();
        let each = bytes.len() / batch.len();
        for (record, pixels) in batch.samples().iter().zip(bytes.chunks(each)) {
            if record.padding {
                continue;
            }
            all.push((record.index, *record, pixels.to_vec()));
        }
    }
    (all, loader.state())
}

fn last() -> impl Strategy<Value = LastBatch> {
    prop_oneof![Just(LastBatch::Drop), Just(LastBatch::Pad), Just(LastBatch::Partial)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Interrupts an epoch repeatedly. The parts have different numbers of shards, batch sizes,
    /// numbers of workers and prefetch depths. Every sample, or every repeat of a sample, must
    /// appear once, with the draws and pixels of an epoch that is not interrupted.
    #[test]
    fn an_epoch_is_exact_after_any_interruptions(
        legs in proptest::collection::vec((1u64..5, 1usize..7, 1usize..4, 1usize..4, 0usize..3), 1..5),
        pad: bool,
        window in proptest::option::of(1u64..40),
        repeats in 1u32..5,
    ) {
        let last = if pad { LastBatch::Pad } else { LastBatch::Partial };
        let builder = || builder().last_batch(last).configure(|it| {
it.loader.shuffle_window = window;
it.loader.repeats = repeats;
});
        let mut made = Vec::new();
        let mut state: Option<LoaderState> = None;
        let count = legs.len();
        for (leg, (world, batch, workers, prefetch, batches)) in legs.into_iter().enumerate() {
            // The last part runs to the end of the epoch.
            let batches = if leg + 1 == count { usize::MAX } else { batches };
            let from = state;
            for rank in 0..world {
                let shard = builder().batch_size(batch).num_workers(workers).prefetch(prefetch).shard(rank, world);
                let shard = match from {
                    Some(from) if from.epoch > 0 => break,
                    // The state that is resumed overrides these two settings.
                    Some(from) => shard.configure(|it| {
it.loader.shuffle_window = None;
it.loader.repeats = 1;
}).resume(from),
                    None => shard,
                };
                let (more, after) = run(&mut shard.build().unwrap(), batches);
                made.extend(more);
                if rank == 0 {
                    state = Some(after);
                }
            }
        }
        made.sort_by_key(|it| (it.0, it.1.repeat));
        let mut whole = run(&mut builder().build().unwrap(), usize::MAX).0;
        whole.sort_by_key(|it| (it.0, it.1.repeat));
        prop_assert_eq!(made.len(), SAMPLES as usize);
        prop_assert!(made == whole);
    }
}

#[test]
fn loaders_of_parts_give_what_one_loader_gives() {
    for (last, samples) in [(LastBatch::Drop, 60), (LastBatch::Pad, 61), (LastBatch::Partial, 61)] {
        let builder = || builder().last_batch(last).start_epoch(3).epochs(Some(1));
        let (whole, _) = run(&mut builder().build().unwrap(), usize::MAX);
        assert_eq!(whole.len(), samples);
        for cuts in [&[0, 4, 61][..], &[0, 20, 24, 56, 61], &[0, 3, 21, 61]] {
            // With `drop`, each part must end with a whole batch. The first part of the last cuts
            // has 3 samples, which is less than a batch, so these cuts are left out.
            if last == LastBatch::Drop && cuts[1] == 3 {
                continue;
            }
            let mut parts = Vec::new();
            for pair in cuts.windows(2) {
                let part = builder().positions(Some(pair[0]..pair[1]));
                let part = part.num_workers(1 + pair[0] as usize % 3).build();
                parts.extend(run(&mut part.unwrap(), usize::MAX).0);
            }
            assert!(parts == whole, "{last:?} {cuts:?}");
        }
    }
}

#[test]
fn a_loader_of_a_part_resumes_in_it() {
    let part = || builder().positions(Some(20..41));
    let mut loader = part().build().unwrap();
    let (whole, _) = run(&mut loader, usize::MAX);
    let (first, state) = run(&mut part().build().unwrap(), 2);
    assert_eq!((state.epoch, state.position), (0, 28));
    let mut resumed = part().resume(state).build().unwrap();
    let (rest, state) = run(&mut resumed, usize::MAX);
    assert!([first, rest].concat() == whole && whole.len() == 21);
    assert_eq!((state.epoch, state.position), (1, 0));
    assert!(run(&mut resumed, usize::MAX).0 == run(&mut loader, usize::MAX).0);
}

/// With a larger batch size, the rest of an epoch may fill no batch. The first loop is then empty.
#[test]
fn an_empty_rest_of_an_epoch_is_a_warning() {
    let drops = || builder().last_batch(LastBatch::Drop);
    let (_, state) = run(&mut drops().build().unwrap(), 12);
    assert_eq!(state.position, 48);
    for (batch, is_empty) in [(4, false), (12, false), (14, true), (60, true)] {
        let mut loader = drops().batch_size(batch).resume(state).build().unwrap();
        let warnings = loader.warnings();
        let warned =
            warnings.iter().any(|it| it.contains("the 13 samples that are left of epoch 0"));
        assert_eq!(warned, is_empty, "{batch}: {warnings:?}");
        assert_eq!(loader.epoch().count() == 0, is_empty);
    }
    // The end of an epoch that leaves out as many samples as every epoch.
    let (_, state) = run(&mut drops().build().unwrap(), 15);
    let loader = drops().resume(state).build().unwrap();
    assert!(loader.warnings().is_empty(), "{:?}", loader.warnings());
}

#[test]
fn positions_must_be_a_part_of_the_epoch() {
    for (positions, words) in [(5..5, ["5", "61"]), (60..62, ["62", "61"]), (90..95, ["90", "61"])]
    {
        refused(builder().positions(Some(positions)).build(), "positions", &words);
    }
    let ranks = builder().shard(0, 4).positions(Some(10..13)).build();
    refused(ranks, "loader.last_batch", &["3", "4"]);
}

/// Returns the order of one shard. The set has `samples` samples in files of 10.
fn order(
    samples: u64,
    batch: usize,
    last: LastBatch,
    window: Option<u64>,
    rank: u64,
    world: u64,
) -> Order {
    let settings = LoaderSettings {
        batch_size: batch,
        last_batch: last,
        shuffle: true,
        shuffle_window: window,
        seed: 5,
        ..Default::default()
    };
    let ends: Vec<u64> = (1..=samples.div_ceil(10)).map(|it| (10 * it).min(samples)).collect();
    Order::new(samples, &settings, &Shard { rank, world, from: "settings" }, &ends).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Changes the number of ranks in the middle of an epoch. With `drop` and `pad`, all ranks have
    /// equally many batches. With `partial`, the numbers of batches differ by at most one. Every
    /// sample appears once, except that `drop` leaves out less than one batch per rank at the end
    /// of the order.
    #[test]
    fn ranks_stay_in_step_and_no_sample_is_lost(
        samples in 1u64..400,
        legs in proptest::collection::vec((1u64..9, 1usize..8, 0u64..6), 1..6),
        last in last(),
        window in proptest::option::of(1u64..100),
        epoch in 0u32..3,
    ) {
        let whole = order(samples, 1, LastBatch::Partial, window, 0, 1).epoch(epoch);
        let whole: Vec<u64> = (0..samples).map(|it| whole.at(it, 0).index).collect();
        let mut seen = Vec::new();
        let mut position = 0;
        let mut excluded = 0;
        let count = legs.len();
        for (leg, (world, batch, batches)) in legs.into_iter().enumerate() {
            let ranks: Vec<Order> = (0..world)
                .map(|rank| order(samples, batch, last, window, rank, world).begin_at(epoch, position))
                .collect();
            let all: Vec<u64> = ranks.iter().map(|it| it.extent(epoch).batches()).collect();
            let spread = all.iter().max().unwrap() - all.iter().min().unwrap();
            prop_assert!(spread <= u64::from(last == LastBatch::Partial), "{:?}", all);
            let batches = if leg + 1 == count { u64::MAX } else { batches };
            for rank in &ranks {
                let epoch = rank.epoch(epoch);
                for batch in 0..epoch.batches().min(batches) {
                    let places = (0..epoch.batch_len(batch)).map(|place| epoch.at(batch, place));
                    seen.extend(places.filter(|it| !it.padding).map(|it| it.index));
                }
            }
            if batches >= all[0] {
                excluded = if last == LastBatch::Drop { world * batch as u64 - 1 } else { 0 };
                break;
            }
            position = ranks[0].consumed(epoch, batches);
        }
        let kept = seen.len();
        prop_assert!(kept as u64 + excluded >= samples, "{} of {}", kept, samples);
        let mut expected = whole[..kept].to_vec();
        expected.sort_unstable();
        seen.sort_unstable();
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn the_state_counts_the_samples_delivered_by_all_shards() {
    let mut loader = builder().shard(1, 3).build().unwrap();
    let start = LoaderState {
        seed: 9,
        shuffle: true,
        epoch: 0,
        position: 0,
        samples: SAMPLES,
        ..Default::default()
    };
    let start = LoaderState { source: loader.state().source, ..start };
    assert_eq!(loader.state(), start);
    let (_, state) = run(&mut loader, 2);
    assert_eq!(state, LoaderState { position: 24, ..start });
    // The loop over the first epoch was left early, so the next loop is a new epoch.
    let (_, state) = run(&mut loader, 1);
    assert_eq!(state, LoaderState { epoch: 1, position: 12, ..start });
    let (_, state) = run(&mut loader, usize::MAX);
    assert_eq!(state, LoaderState { epoch: 3, position: 0, ..start });
}

#[test]
fn later_epochs_are_complete_and_have_their_own_order() {
    let mut first = builder().build().unwrap();
    let (_, state) = run(&mut first, 5);
    let (second_epoch, _) = run(&mut first, usize::MAX);
    let mut resumed = builder().num_workers(1).prefetch(3).resume(state).build().unwrap();
    assert_eq!(run(&mut resumed, usize::MAX).0.len(), SAMPLES as usize - 20);
    assert!(run(&mut resumed, usize::MAX).0 == second_epoch);
}

/// A source that counts reads, and reports that its samples lie in two files.
struct Counted(Memory, Arc<AtomicU64>);

impl Source for Counted {
    common::wraps!(self.0);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(index, page, limit)
    } // Without `heads`, headers are read with `read`, so that these reads are counted.
    fn heads(&self) -> Option<&dyn Heads> {
        None
    }
    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl Hints for Counted {
    fn file_ends(&self) -> Vec<u64> {
        vec![20, self.len()]
    }
}

#[test]
fn consumed_samples_are_not_read_again() {
    let state = LoaderState {
        seed: 9,
        shuffle: true,
        epoch: 7,
        position: 56,
        samples: SAMPLES,
        ..Default::default()
    };
    let reads = Arc::new(AtomicU64::new(0));
    let source = Counted(Memory::new(jpegs(SAMPLES)).unwrap(), reads.clone());
    let builder = Loader::builder(source, training()).device(DeviceChoice::Cpu).batch_size(4);
    let mut loader =
        builder.last_batch(LastBatch::Partial).resume(state).epochs(Some(1)).build().unwrap();
    // Building the loader has read every image once, because the plan inspects them.
    let before = SAMPLES;
    assert_eq!(run(&mut loader, usize::MAX).0.len(), 5);
    assert_eq!(reads.load(Ordering::Relaxed), before + 5);
}

#[test]
fn a_state_is_a_few_numbers() {
    let state = LoaderState {
        seed: 9,
        shuffle: true,
        epoch: 3,
        position: 40,
        samples: 61,
        ..Default::default()
    };
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(text, r#"{"seed":9,"shuffle":true,"epoch":3,"position":40,"samples":61}"#);
    assert_eq!(serde_json::from_str::<LoaderState>(&text).unwrap(), state);
    let state = builder().configure(|it| it.loader.repeats = 3).build().unwrap().state();
    let text = serde_json::to_string(&state).unwrap();
    let begin =
        r#"{"seed":9,"shuffle":true,"epoch":0,"position":0,"samples":61,"repeats":3,"source":"#;
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(serde_json::from_str::<LoaderState>(&text).unwrap(), state);
    let state =
        builder().configure(|it| it.loader.shuffle_window = Some(8)).build().unwrap().state();
    let text = serde_json::to_string(&state).unwrap();
    let begin = r#"{"seed":9,"shuffle":true,"epoch":0,"position":0,"samples":61,"shuffle_window":8,"files":"#;
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(serde_json::from_str::<LoaderState>(&text).unwrap(), state);
}

#[test]
fn repeats_of_a_state_are_checked() {
    let state = builder().configure(|it| it.loader.repeats = 3).build().unwrap().state();
    for (repeats, values) in [(0, ["256", "0"]), (257, ["256", "257"])] {
        let resumed = builder().resume(LoaderState { repeats: Some(repeats), ..state }).build();
        refused(resumed, "loader.repeats", &values);
    }
}

#[test]
fn a_state_with_windows_requires_the_same_files() {
    let state =
        builder().configure(|it| it.loader.shuffle_window = Some(8)).build().unwrap().state();
    let resumed = |state| builder().resume(state).build();
    assert!(resumed(state).is_ok());
    // Three errors: the files of the state differ from the files of the source. The state has no
    // files, although its shuffle window needs them. The state has files but no shuffle window.
    let window = &["state.shuffle_window"];
    let error = config_error(resumed(LoaderState { files: state.files.map(|it| it ^ 1), ..state }));
    assert_eq!(error.key, "state.files", "{error}");
    assert!(!has_words(&error.problem, window), "{error}");
    refused(resumed(LoaderState { files: None, ..state }), "state.files", window);
    refused(resumed(LoaderState { shuffle_window: None, ..state }), "state.files", &[]);
}

/// A shard without samples would end its epoch at once. The other ranks would wait for it forever,
/// so this is an error.
#[test]
fn partial_epochs_need_a_sample_for_every_shard() {
    for rank in [0, 69] {
        let built = builder().shard(rank, 70).build();
        refused(built, "loader.last_batch", &["partial", "61", "70", "pad"]);
    }
    let (made, _) =
        run(&mut builder().last_batch(LastBatch::Pad).shard(69, 70).build().unwrap(), usize::MAX);
    assert_eq!(made.len(), 0);
}

#[test]
fn a_state_of_another_source_is_an_error() {
    let state = LoaderState {
        seed: 9,
        shuffle: true,
        epoch: 3,
        position: 40,
        samples: 60,
        ..Default::default()
    };
    refused(builder().resume(state).build(), "state", &["60", "61"]);
    let state = LoaderState { position: 62, samples: 61, ..state };
    refused(builder().resume(state).build(), "state.position", &["62", "61"]);
}

/// The state is from a source with the same number of samples, but with a different name of the
/// first or the last sample. These may be different samples, or the same samples after renaming or
/// packing. So the loader only warns.
#[test]
fn a_state_of_a_source_with_other_names_is_a_warning() {
    let folder = |name: &str| {
        let directory = tempfile::tempdir().unwrap();
        for (number, jpeg) in jpegs(3).into_iter().enumerate() {
            std::fs::write(directory.path().join(format!("{name}-{number}.jpg")), jpeg.0).unwrap();
        }
        directory
    };
    let load = |directory: &tempfile::TempDir, state: Option<LoaderState>| {
        let source = Directory::open(directory.path()).unwrap();
        let builder = Loader::builder(source, training()).device(DeviceChoice::Cpu).batch_size(1);
        state.into_iter().fold(builder, LoaderBuilder::resume).build().unwrap()
    };
    let [one, moved, other] = ["a", "a", "b"].map(folder);
    let state = LoaderState { position: 1, ..load(&one, None).state() };
    assert_eq!(load(&moved, Some(state)).warnings(), [""; 0]);
    let warnings = load(&other, Some(state)).warnings();
    assert!(warnings.len() == 1 && has_words(&warnings[0], &["state.source", "1"]), "{warnings:?}");
    let earlier = LoaderState { source: None, ..state };
    assert_eq!(load(&other, Some(earlier)).warnings(), [""; 0]);
}
