//! Autotuning on the CPU. Choices are applied, the bytes do not change, and limits are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{self, jpegs, memory, training};
use feedwater::error::{DataError, Result};
use feedwater::internals::tune::Choice;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::plan::AutoCount;
use feedwater::source::custom::Page;
use feedwater::source::{Memory, Source};

/// A source of images with a high read latency.
struct Far {
    images: Memory,
    latency: Duration,
    reading: Arc<Reading>,
}

/// Number of reads that are in flight, and the maximum of this number so far.
#[derive(Default)]
struct Reading {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Source for Far {
    common::wraps!(self.images);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let now = self.reading.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.reading.most.fetch_max(now, Ordering::SeqCst);
        thread::sleep(self.latency);
        self.reading.now.fetch_sub(1, Ordering::SeqCst);
        self.images.read(index, page, limit)
    }
}

/// Returns a loader whose source needs this many milliseconds for a read, and the counters of its
/// reads.
fn far(milliseconds: u64) -> (LoaderBuilder, Arc<Reading>) {
    let reading = Arc::new(Reading::default());
    let images = Memory::new(jpegs(64)).unwrap();
    let latency = Duration::from_millis(milliseconds);
    let source = Far { images, latency, reading: reading.clone() };
    let builder = Loader::builder(source, training()).device(DeviceChoice::Cpu);
    (builder.batch_size(8).shuffle(true).seed(3), reading)
}

/// Consumes `batches` batches. The consumer's step takes the time `step`. Returns the bytes.
fn take(loader: &mut Loader, batches: usize, step: Duration) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while all.len() < batches {
        for batch in &mut *loader {
            all.push(batch.unwrap().to_host().unwrap());
            thread::sleep(step);
            if all.len() == batches {
                break;
            }
        }
    }
    all
}

/// Consumes batches until the loader's settings have settled. Fails after about 4000 batches.
fn settle(loader: &mut Loader, step: Duration) {
    for _ in 0..400 {
        // Consumes whole epochs, because leaving an epoch early would discard prefetched batches.
        take(loader, 8, step);
        if loader.is_settled() {
            return;
        }
    }
    panic!("not settled: {:#?}", loader.decisions());
}

#[test]
fn slow_reads_get_more_workers_and_no_byte_changes() {
    let mut fixed = far(0).0.num_workers(1).prefetch(1).build().unwrap();
    let mut loader =
        far(20).0.num_workers(AutoCount::Auto).prefetch(AutoCount::Auto).build().unwrap();
    let bounds = loader.plan().workers;
    assert!(bounds.most >= 4 && bounds.start < bounds.most, "{bounds:?}");
    assert_eq!(loader.choice().workers, bounds.start);
    let same = take(&mut fixed, 80, Duration::ZERO) == take(&mut loader, 80, Duration::ZERO);
    assert!(same, "the bytes must not depend on tuning");
    settle(&mut loader, Duration::ZERO);
    let decisions = loader.decisions();
    assert!(decisions.iter().any(|it| it.choice.workers > bounds.start), "{decisions:#?}");
    for value in [bounds.start.to_string(), decisions[0].choice.workers.to_string()] {
        assert!(decisions[0].why.contains(&value), "{value}: {decisions:#?}");
    }
    assert!(decisions[0].why.contains("workers"), "{decisions:#?}");
}

/// The test calls `choose` itself, because measurements depend on the load of this machine.
/// `tests/insight/tune/` tests which choice follows from measurements, on simulated machines.
#[test]
fn threads_ring_and_reports_follow_the_choice() {
    let loader = far(1).0.num_workers(1).build().unwrap();
    assert!(loader.decisions().is_empty() && loader.is_settled(), "fixed settings are not tuned");
    let mut loader =
        far(1).0.num_workers(AutoCount::Auto).prefetch(AutoCount::Auto).build().unwrap();
    loader.choose(Choice { workers: 1, prefetch: 2, ..loader.choice() }).unwrap();
    assert_eq!(loader.choice(), loader.decisions().last().unwrap().choice);
    // Workers began the first batches with the earlier settings, so these batches are not measured.
    take(&mut loader, 16, Duration::ZERO);
    let before = loader.measured();
    let ahead = |loader: &Loader| {
        let occupancy = loader.profile_since(&before).ring.occupancy;
        occupancy.iter().rposition(|share| *share > 0.0)
    };
    let mut epoch = loader.epoch();
    while let Some(batch) = epoch.next() {
        drop(batch.unwrap());
        // The consumer has returned its slot already. Waits until workers have filled this slot
        // too.
        while ahead(epoch.loader()) < Some(3) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let profile = loader.profile_since(&before);
    assert_eq!((profile.setup.workers, profile.setup.prefetch), (1, 2));
    let at_work = profile.threads.iter().filter(|it| it.count > 0).count();
    assert_eq!(at_work, 1, "{:#?}", profile.threads);
    assert_eq!(ahead(&loader), Some(3), "more batches are ready than allowed: {:?}", profile.ring);
}

#[test]
fn threads_never_exceed_the_limit() {
    let (builder, reading) = far(10);
    let mut loader = builder
        .num_workers(AutoCount::Auto)
        .prefetch(AutoCount::Auto)
        .configure(|it| it.limits.cpu_threads = Some(3))
        .build()
        .unwrap();
    settle(&mut loader, Duration::ZERO);
    assert!(loader.decisions().iter().all(|it| it.choice.workers <= 3));
    assert!(loader.choose(Choice { workers: 4, ..loader.choice() }).is_err());
    loader.choose(Choice { workers: 3, ..loader.choice() }).unwrap();
    take(&mut loader, 40, Duration::ZERO);
    assert_eq!(reading.most.load(Ordering::SeqCst), 3);
}

#[test]
fn an_autotuning_loader_ends_at_any_time() {
    for batches in [0, 1, 7, 20] {
        let mut loader = far(2)
            .0
            .num_workers(AutoCount::Auto)
            .prefetch(AutoCount::Auto)
            .epochs(Some(2))
            .build()
            .unwrap();
        for batch in loader.epoch().take(batches) {
            batch.unwrap();
        }
    }
    let loader = Loader::builder(memory(24), training()).device(DeviceChoice::Cpu).batch_size(4);
    let mut loader = loader.num_workers(AutoCount::Auto).epochs(Some(1)).build().unwrap();
    assert_eq!(loader.epoch().map(Result::unwrap).count(), 6);
    assert_eq!(loader.epoch().count(), 0);
}
