//! Handles with different settings in one process. Each handle uses its own settings and has its
//! own statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedwater::loader::Stats;
use feedwater::plan::{LastBatch, OnError, Settings};
use feedwater::source::Concat;
use feedwater::storage::RequestEvent;

use super::loading::images;
use super::*;

/// Index of the sample whose requests fail. The plan must not inspect this sample.
const FAILING: u64 = 1;

fn loader(source: impl Source + 'static) -> Loader {
    Loader::builder(source, common::training())
        .batch_size(5)
        .last_batch(LastBatch::Partial)
        .num_workers(2)
        .shuffle(false)
        .on_error(OnError::Substitute)
        .epochs(Some(1))
        .device(DeviceChoice::Cpu)
        .build()
        .unwrap()
}

/// Returns a counter of the requests of this handle that fail.
fn failures(storage: &Storage) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    storage.watch_requests(move |event| {
        let failed = matches!(event, RequestEvent::Failed { .. });
        counted.fetch_add(usize::from(failed), Ordering::Relaxed);
    });
    count
}

fn requests(stats: &Stats, path: &str) -> (u64, u64) {
    (stats.storage.requests, BUCKETS.log(path).len() as u64)
}

#[test]
fn concurrent_loaders_use_their_own_settings() {
    let (server, _guard) = buckets();
    let kept = tempfile::tempdir().unwrap();
    let hasty = StorageSettings {
        retries: 0,
        connections: 3,
        cache: 1 << 24,
        cache_directory: Some(kept.path().into()),
        ..settings()
    };
    let hasty = storage(&hasty);
    let patient = storage(&StorageSettings { retries: 3, connections: 7, ..settings() });
    let sources = [("handles-hasty", &hasty), ("handles-patient", &patient)].map(|(name, it)| {
        images(name, 64);
        directory(format!("s3://{name}"), it).unwrap()
    });
    let failed = [&hasty, &patient].map(failures);
    for source in &sources {
        let path = source.path(FAILING).to_str().unwrap().replace("s3:/", "");
        server.fail(&path, [Fault::Status(503)]);
    }
    let [mut first, mut second] = sources.map(loader);
    let connections = |loader: &Loader| loader.plan().settings.storage.connections;
    assert_eq!((connections(&first), connections(&second)), (3, 7));
    let mut differ = 0;
    for (one, other) in first.epoch().zip(second.epoch()) {
        let [one, other] = [one, other].map(|batch| batch.unwrap().to_host().unwrap());
        differ += usize::from(one != other);
    }
    // The first handle does not retry, so its sample is replaced by zeros.
    assert_eq!(differ, 1);
    let [one, other] = [&first, &second].map(Loader::stats);
    assert_eq!((one.errors["unreadable"], other.errors["unreadable"]), (1, 0));
    assert_eq!((one.storage.retries, other.storage.retries), (0, 1));
    assert_eq!(failed.map(|it| it.load(Ordering::Relaxed)), [1, 1]);
    for (stats, path) in [(&one, "/handles-hasty"), (&other, "/handles-patient")] {
        let (counted, sent) = requests(stats, path);
        assert_eq!(counted, sent, "{path}");
    }
    assert!(one.storage.cache_misses >= 64 && other.storage.cache_misses == 0);
    assert!(fs::read_dir(kept.path()).unwrap().count() > 0);
}

#[test]
fn a_loader_counts_each_handle_of_its_parts_once() {
    let (server, _guard) = buckets();
    let handles = [(); 2].map(|()| storage(&settings()));
    for number in 0..3 {
        let (jpeg, _) = common::jpegs(1).remove(0);
        server.put(&format!("/parts-{number}/0.jpg"), jpeg);
    }
    // The first two parts share one handle.
    let parts = [&handles[0], &handles[0], &handles[1]].into_iter().enumerate();
    let part = |(number, handle)| -> Arc<dyn Source> {
        Arc::new(directory(format!("s3://parts-{number}"), handle).unwrap())
    };
    let mut loader = loader(Concat::new(parts.map(part).collect()).unwrap());
    for batch in &mut loader {
        batch.unwrap();
    }
    let stats = loader.stats();
    let (counted, sent) = requests(&stats, "/parts-");
    assert_eq!(counted, sent);
    assert_eq!(counted, handles.iter().map(|it| it.stats().requests).sum::<u64>());
}

#[test]
fn the_handles_settings_override_those_of_the_loader() {
    let (server, _guard) = buckets();
    let (jpeg, _) = common::jpegs(1).remove(0);
    server.put("/whose/0.jpg", jpeg);
    let handle = storage(&StorageSettings { connections: 5, ..settings() });
    let others = StorageSettings { connections: 9, ..settings() };
    let plan = Loader::builder(directory("s3://whose", &handle).unwrap(), common::training())
        .settings(Settings { storage: others, ..Default::default() })
        .batch_size(1)
        .device(DeviceChoice::Cpu)
        .plan()
        .unwrap();
    assert_eq!(plan.settings.storage, *handle.settings());
    assert_eq!(plan.footprint.row("connections").unwrap().count, 5);
}
