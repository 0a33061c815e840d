//! Tests what the documentation of `Loader` promises about its lifecycle.

mod epochs;
mod policy;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{self, evaluation, jpegs, memory, training};
use feedwater::error::{DataError, Error, Reason};
use feedwater::loader::{Batch, DeviceChoice, Loader, LoaderBuilder, Outcome};
use feedwater::op::custom::{Draw, Kinds};
use feedwater::op::{Chain, Operator};
use feedwater::plan::{AutoCount, LastBatch, OnError, Route};
use feedwater::source::custom::Page;
use feedwater::source::{Memory, Source};

fn builder(count: u64) -> LoaderBuilder {
    Loader::builder(memory(count), training())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(2)
        .shuffle(true)
}

/// Returns the bytes of every sample of an epoch, by the sample's index.
fn samples(loader: &mut Loader) -> BTreeMap<u64, Vec<u8>> {
    let mut all = BTreeMap::new();
    for batch in loader {
        let batch = batch.unwrap();
        let bytes = batch.shape().sample_bytes();
        for (index, sample) in batch.indices().zip(batch.host().unwrap().chunks_exact(bytes)) {
            assert!(all.insert(index, sample.to_vec()).is_none(), "sample {index} appeared twice");
        }
    }
    all
}

fn order(loader: &mut Loader) -> Vec<u64> {
    loader.into_iter().flat_map(|batch| batch.unwrap().indices().collect::<Vec<_>>()).collect()
}

#[test]
fn each_loop_is_the_next_epoch() {
    let mut loader = builder(20).build().unwrap();
    let (first, second) = (order(&mut loader), order(&mut loader));
    assert_ne!(first, second, "each epoch must have its own order");
    let sorted = |mut it: Vec<u64>| {
        it.sort_unstable();
        it
    };
    assert_eq!(sorted(first), (0..20).collect::<Vec<_>>());
    assert_eq!(sorted(second), (0..20).collect::<Vec<_>>());
}

#[test]
fn epochs_ends_the_loader() {
    let mut loader = builder(8).epochs(Some(2)).build().unwrap();
    assert_eq!(loader.epoch().count(), 2);
    assert_eq!(loader.epoch().count(), 2);
    assert_eq!(loader.epoch().count(), 0);
}

#[test]
fn the_first_epoch_can_be_chosen() {
    let mut loader = builder(20).build().unwrap();
    order(&mut loader);
    let second = order(&mut loader);
    assert_eq!(order(&mut builder(20).start_epoch(1).build().unwrap()), second);
}

/// The bytes of a sample depend only on the seed, the epoch and the sample's index.
#[test]
fn bytes_do_not_depend_on_workers_prefetch_batch_size_or_shards() {
    let base = samples(&mut builder(24).seed(5).build().unwrap());
    assert_eq!(base.len(), 24);
    for workers in [1, 3, 8] {
        let mut loader = builder(24).seed(5).num_workers(workers).build().unwrap();
        assert!(samples(&mut loader) == base, "{workers} workers");
    }
    for prefetch in [1, 5] {
        let mut loader = builder(24).seed(5).prefetch(prefetch).build().unwrap();
        assert!(samples(&mut loader) == base, "{prefetch} batches prefetched");
    }
    let chosen = builder(24)
        .seed(5)
        .num_workers(AutoCount::Auto)
        .prefetch(AutoCount::Auto)
        .configure(|it| it.limits.cpu_threads = Some(3));
    let mut loader = chosen.build().unwrap();
    assert_eq!((loader.plan().workers.most, loader.plan().ahead_batches.most), (3, 8));
    assert!(samples(&mut loader) == base, "autotuned workers and prefetch");
    for batch in [1, 7, 24] {
        let mut loader =
            builder(24).seed(5).batch_size(batch).last_batch(LastBatch::Partial).build().unwrap();
        assert!(samples(&mut loader) == base, "batches of {batch}");
    }
    for world in [2, 5] {
        let mut all = BTreeMap::new();
        for rank in 0..world {
            let mut loader = builder(24)
                .seed(5)
                .batch_size(2)
                .last_batch(LastBatch::Partial)
                .shard(rank, world)
                .build()
                .unwrap();
            for (index, sample) in samples(&mut loader) {
                assert!(all.insert(index, sample).is_none(), "sample {index} is in two shards");
            }
        }
        assert!(all == base, "{world} shards");
    }
    let other = samples(&mut builder(24).seed(6).build().unwrap());
    assert!(other != base, "another seed must draw other crops");
}

#[test]
fn the_same_seed_gives_the_same_batches_in_the_same_order() {
    let run = || {
        let mut loader = builder(20).seed(9).num_workers(3).build().unwrap();
        let batches: Vec<_> =
            loader.epoch().map(|batch| batch.unwrap().to_host().unwrap()).collect();
        batches
    };
    assert!(run() == run());
}

#[test]
fn each_repeat_draws_on_its_own_and_the_first_as_without_repeats() {
    let made = |repeats| {
        let mut loader = builder(40)
            .shuffle(true)
            .configure(|it| it.loader.repeats = repeats)
            .last_batch(LastBatch::Partial)
            .build()
            .unwrap();
        let mut made = BTreeMap::new();
        for batch in &mut loader {
            let batch = batch.unwrap();
            let each = batch.host().unwrap().chunks(batch.shape().sample_bytes());
            for (record, pixels) in batch.samples().iter().zip(each) {
                made.insert((record.index, record.repeat), (record.trace, pixels.to_vec()));
            }
        }
        made
    };
    let (once, repeated) = (made(1), made(3));
    assert_eq!((once.len(), repeated.len()), (40, 40));
    let mut compared = 0;
    for (&(index, repeat), sample) in &repeated {
        assert_eq!(*sample == once[&(index, 0)], repeat == 0, "{index} {repeat}");
        if let Some(next) = repeated.get(&(index, repeat + 1)) {
            assert!(next != sample);
            compared += 1;
        }
    }
    assert_eq!(compared, 26);
}

#[test]
fn labels_and_records_belong_to_their_sample() {
    let mut loader = builder(12).build().unwrap();
    let images = jpegs(12);
    for batch in &mut loader {
        let batch = batch.unwrap();
        for (label, sample) in batch.labels().iter().zip(batch.samples()) {
            assert_eq!(*label, sample.index as i64);
            assert_eq!(sample.outcome, Outcome::Decoded(Route::Cpu));
            let header =
                feedwater::internals::header::Header::parse(&images[sample.index as usize].0)
                    .unwrap();
            assert_eq!(sample.size, header.size);
            assert!(sample.size.window().contains(sample.trace.roi));
        }
    }
}

#[test]
fn the_last_batch_is_dropped_padded_or_partial() {
    let lens = |last| {
        let mut loader = builder(10).last_batch(last).build().unwrap();
        let batches: Vec<_> = loader
            .epoch()
            .map(|batch| {
                let batch = batch.unwrap();
                assert_eq!(batch.host().unwrap().len(), batch.shape().bytes());
                (batch.len(), batch.samples().iter().filter(|it| it.padding).count())
            })
            .collect();
        (batches, loader.stats())
    };
    assert_eq!(lens(LastBatch::Drop).0, [(4, 0), (4, 0)]);
    assert_eq!(lens(LastBatch::Partial).0, [(4, 0), (4, 0), (2, 0)]);
    let (batches, stats) = lens(LastBatch::Pad);
    assert_eq!(batches, [(4, 0), (4, 0), (4, 2)]);
    assert_eq!((stats.images, stats.padding, stats.outcomes["cpu"]), (10, 2, 10));
}

#[test]
fn a_shard_without_a_batch_is_an_error_that_names_the_settings() {
    let error = builder(3).build().err().unwrap();
    let Error::Config(error) = error else { panic!("{error}") };
    assert_eq!(error.key, "loader.batch_size");
    for value in ["4", "3", "loader.last_batch", "partial", "pad"] {
        assert!(error.problem.contains(value), "{value}: {error}");
    }
}

#[test]
fn leaving_a_loop_early_discards_the_rest_of_its_epoch() {
    let mut loader = builder(40).build().unwrap();
    let whole = {
        let mut other = builder(40).build().unwrap();
        order(&mut other);
        order(&mut other)
    };
    for batch in loader.epoch().take(1) {
        assert_eq!(batch.unwrap().epoch(), 0);
    }
    assert_eq!(order(&mut loader), whole, "the next loop must be the whole next epoch");
}

#[test]
fn many_loops_left_early_leak_no_slot() {
    let mut loader = builder(40).num_workers(3).build().unwrap();
    for epoch in 0..50 {
        let batch = loader.epoch().next().unwrap().unwrap();
        assert_eq!((batch.epoch(), batch.number()), (epoch, 0));
    }
}

#[test]
fn exactly_all_slots_can_be_held() {
    let mut loader = builder(40).prefetch(2).build().unwrap();
    let mut epoch = loader.epoch();
    let held: Vec<Batch> = epoch.by_ref().take(3).map(|batch| batch.unwrap()).collect();
    let copies: Vec<_> = held.iter().map(|batch| batch.to_host().unwrap()).collect();
    drop(held);
    assert_eq!(epoch.count(), 7);
    assert!(copies.windows(2).all(|pair| pair[0] != pair[1]));
}

/// The consumer waits while it holds all slots. This is no error, because another thread may still
/// drop a batch, but the loader reports it.
#[test]
fn waiting_for_a_batch_while_all_slots_are_held_is_reported() {
    let mut loader = builder(40).prefetch(2).build().unwrap();
    let held = std::sync::Mutex::new(Vec::new());
    let mut epoch = loader.epoch();
    let loader = epoch.loader();
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            for _ in 0..3 {
                let batch = epoch.next().unwrap().unwrap();
                held.lock().unwrap().push(batch);
            }
            epoch.next().unwrap().map(|batch| batch.number())
        });
        let told = loop {
            let told = loader.warnings();
            if !told.is_empty() {
                break told;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert!(told[0].contains('3') && told[0].contains("loader.prefetch"), "{told:?}");
        held.lock().unwrap().clear();
        assert_eq!(consumer.join().unwrap().unwrap(), 3);
    });
}

#[test]
fn a_leaked_batch_only_shortens_the_ring() {
    let mut loader = builder(40).prefetch(2).build().unwrap();
    let mut epoch = loader.epoch();
    for _ in 0..2 {
        std::mem::forget(epoch.next().unwrap().unwrap());
    }
    assert_eq!(epoch.count(), 8, "the epoch must continue with the remaining slot");
}

#[test]
fn a_panicking_consumer_drops_its_batch_and_the_loader() {
    let result = std::panic::catch_unwind(|| {
        let mut loader = builder(40).build().unwrap();
        for batch in &mut loader {
            let batch = batch.unwrap();
            assert!(batch.number() < 2, "the consumer fails on purpose");
        }
    });
    assert!(result.is_err());
}

#[test]
fn the_consumer_may_be_another_thread_and_batches_outlive_the_loader() {
    let mut loader = builder(16).build().unwrap();
    let batches: Vec<Batch> = std::thread::scope(|scope| {
        let consumer = scope.spawn(|| loader.epoch().map(|it| it.unwrap()).take(3).collect());
        consumer.join().unwrap()
    });
    let copies: Vec<_> = batches.iter().map(|batch| batch.to_host().unwrap()).collect();
    drop(loader);
    std::thread::spawn(move || {
        for (batch, copy) in batches.iter().zip(&copies) {
            assert!(batch.host().unwrap() == copy);
        }
    })
    .join()
    .unwrap();
}

/// Callers can distinguish a missing file from one that they may not read, in the error that ends a
/// run and in the errors that are counted.
#[test]
fn the_system_error_of_a_sample_is_preserved() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.jpg", "b.jpg"].map(|name| folder.path().join(name));
    for (path, (bytes, _)) in paths.iter().zip(jpegs(2)) {
        std::fs::write(path, bytes).unwrap();
    }
    let source = std::sync::Arc::new(feedwater::source::Directory::open(folder.path()).unwrap());
    std::fs::remove_file(&paths[1]).unwrap();
    let builder = |on_error| {
        let builder = LoaderBuilder::new(source.clone(), evaluation()).device(DeviceChoice::Cpu);
        builder.batch_size(2).on_error(on_error).build().unwrap()
    };
    let error = builder(OnError::Stop).epoch().next().unwrap().err().unwrap();
    let kept = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>();
    assert_eq!(kept.unwrap().kind(), std::io::ErrorKind::NotFound, "{error}");
    let batch = builder(OnError::Substitute).epoch().next().unwrap().unwrap();
    let [fault] = batch.errors() else { panic!("{:?}", batch.errors()) };
    assert_eq!(fault.reason, Reason::Unreadable);
    assert_eq!(fault.source.as_ref().unwrap().kind(), std::io::ErrorKind::NotFound);
}

/// A source whose reads block until the test releases them. It imitates a stalled disk.
struct Stalled(Memory, Arc<(Mutex<bool>, Condvar)>);

impl Source for Stalled {
    common::wraps!(self.0);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let (free, changed) = &*self.1;
        let _free = changed.wait_while(free.lock().unwrap(), |free| !*free).unwrap();
        self.0.read(index, page, limit)
    }
}

/// While the source does not finish its reads, the consumer waits for a batch. `StopHandle::stop`
/// ends this wait.
#[test]
fn a_stopper_ends_the_wait_for_a_batch_while_reads_are_stalled() {
    let free = Arc::new((Mutex::new(true), Condvar::new()));
    let source = Stalled(memory(40), free.clone());
    // Reads do not block yet, because building the loader reads some headers.
    let loader =
        Loader::builder(source, training()).device(DeviceChoice::Cpu).batch_size(4).num_workers(2);
    let mut loader = loader.shuffle(false).epochs(Some(2)).prefetch(1).build().unwrap();
    let mut epoch = loader.epoch();
    let first = epoch.next().unwrap().unwrap();
    *free.0.lock().unwrap() = false;
    let stopper = epoch.stop_handle();
    let stopping = std::thread::spawn(move || stopper.stop());
    let ended = epoch.find_map(|batch| batch.err()).expect("an error, not the end of the epoch");
    assert!(matches!(ended, Error::Stopped), "{ended}");
    stopping.join().unwrap();
    drop((epoch, first));
    let again = loader.epoch().next().unwrap();
    assert!(matches!(again, Err(Error::Stopped)));
    // Dropping the loader waits for its reads, so the reads must end first.
    *free.0.lock().unwrap() = true;
    free.1.notify_all();
    let stopper = loader.stop_handle();
    drop(loader);
    stopper.stop();
}

#[test]
fn dropping_the_loader_at_any_time_does_not_hang() {
    for taken in 0..6 {
        let mut loader = builder(24).num_workers(3).build().unwrap();
        assert_eq!(loader.epoch().take(taken).count(), taken);
    }
}

/// An operator with a bug: it panics at the sixth sample that a worker processes.
#[derive(Clone, Debug)]
struct Broken;

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Message of the panic in [`Broken`].
const BUG: &str = "a bug in the operator";

impl Operator for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([])
    }

    fn draw(&self, _: &mut Draw<'_>) {
        // A plan calls `draw` too, to find out sizes. Only calls on workers are counted.
        let is_worker = std::thread::current().name().is_some_and(|it| it.starts_with("feedwater"));
        let calls = if is_worker { CALLS.fetch_add(1, Ordering::Relaxed) } else { 0 };
        assert!(calls < 5, "{BUG}");
    }
}

#[test]
fn a_panic_in_an_operator_ends_the_loader_with_an_error() {
    let chain = Chain::new().then(Broken).then(feedwater::op::Resize::to(8, 8));
    let mut loader = Loader::builder(memory(40), chain)
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(2)
        .build()
        .unwrap();
    let error = loader.epoch().find_map(|batch| batch.err()).unwrap();
    let Error::Internal { problem } = error else { panic!("{error}") };
    assert!(problem.contains(BUG), "{problem}");
}
