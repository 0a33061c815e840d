//! Loaders that read remote files.

use super::*;

/// Writes images into a bucket, and the same images into a local folder.
pub fn images(bucket: &str, count: u64) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (number, (jpeg, label)) in common::jpegs(count).into_iter().enumerate() {
        let name = format!("{label}/{number:04}.jpg");
        BUCKETS.put(&format!("/{bucket}/{name}"), &jpeg[..]);
        fs::create_dir_all(root.path().join(label.to_string())).unwrap();
        fs::write(root.path().join(name), jpeg).unwrap();
    }
    root
}

fn batches(source: impl Source + 'static, epochs: usize) -> Vec<Vec<u8>> {
    let mut loader = Loader::builder(source, common::training())
        .batch_size(5)
        .num_workers(2)
        .seed(3)
        .shuffle(true)
        // Without an end, the loader would prefetch samples of one more epoch.
        .epochs(Some(epochs as u32))
        .device(DeviceChoice::Cpu)
        .build()
        .unwrap();
    let mut batches = Vec::new();
    for _ in 0..epochs {
        for batch in &mut loader {
            batches.push(batch.unwrap().to_host().unwrap());
        }
    }
    batches
}

/// Each of the two workers reads one sample at a time. So all other requests in flight are
/// prefetches.
#[test]
fn the_loader_keeps_requests_in_flight_and_its_batches_equal_local_ones() {
    let _alone = LATENCY.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let local = images("ahead", 60);
    let expected = batches(Directory::open(local.path()).unwrap(), 2);
    BUCKETS.latency(Duration::from_millis(30));
    for (connections, fewest) in [(1, 1), (8, 8), (32, 32)] {
        let storage = storage(&StorageSettings { connections, ..settings() });
        let source = directory("s3://ahead", &storage).unwrap();
        BUCKETS.forget("/ahead/");
        // The plan sends the first 16 requests, and keeps fewer of them in flight than the loader.
        // So the server answers these at once.
        BUCKETS.gather(16, fewest);
        assert!(batches(source, 2) == expected);
        let most = BUCKETS.most_in_flight();
        assert!(most >= fewest && most <= connections, "{most} of {connections}");
    }
    BUCKETS.latency(Duration::ZERO);
}

/// Checks only that the loader prefetches at most the chosen number of samples.
/// `tests/insight/prefetch/` tests, on simulated storage, which number is chosen for which
/// measurements.
#[test]
fn no_more_is_prefetched_than_was_chosen_and_no_byte_depends_on_it() {
    let _alone = LATENCY.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let local = images("chosen", 60);
    let storage = storage(&StorageSettings { connections: 32, ..settings() });
    let build = |source: Directory, tune: bool| {
        let builder =
            Loader::builder(source, common::training()).configure(|it| it.loader.tune = tune);
        let builder = builder.batch_size(5).num_workers(2).seed(3).shuffle(true);
        builder.device(DeviceChoice::Cpu).build().unwrap()
    };
    let epochs = |loader: &mut Loader, count: usize, step: Duration| {
        let mut bytes = Vec::new();
        for _ in 0..count {
            for batch in &mut *loader {
                bytes.push(batch.unwrap().to_host().unwrap());
                std::thread::sleep(step);
            }
        }
        bytes
    };
    BUCKETS.latency(Duration::from_millis(30));
    let mut fixed = build(directory("s3://chosen", &storage).unwrap(), false);
    let untuned = epochs(&mut fixed, 2, Duration::ZERO);
    let report = fixed.read_ahead().unwrap();
    assert_eq!((report.window, report.most, report.decisions), (64, 64, vec![]));
    assert_eq!(fixed.profile().setup.read_ahead, 64);
    drop(fixed);

    let mut loader = build(directory("s3://chosen", &storage).unwrap(), true);
    assert_eq!(loader.read_ahead().unwrap().window, 64, "the first window must be large");
    let step = Duration::from_millis(10);
    let mut tuned = Vec::new();
    while loader.read_ahead().unwrap().decisions.is_empty() {
        tuned.extend(epochs(&mut loader, 1, step));
    }
    // The reason of a decision must contain the rate of samples and the latency of requests.
    let first = loader.read_ahead().unwrap().decisions.swap_remove(0);
    assert!(first.why.contains("samples/s") && first.why.contains(" ms"), "{first:#?}");
    // The first decision has changed the number of prefetched samples. After two more epochs, no
    // request that was sent before this decision is in flight.
    tuned.extend(epochs(&mut loader, 2, step));
    BUCKETS.forget("/chosen/");
    tuned.extend(epochs(&mut loader, 3, step));
    // At most the prefetched samples and two samples that workers read are in flight.
    let report = loader.read_ahead().unwrap();
    assert_eq!(loader.profile().setup.read_ahead as usize, report.window);
    let longest = report.decisions.iter().map(|it| it.window).max().unwrap();
    let most = BUCKETS.most_in_flight();
    assert!(most <= longest + 2, "{most} in flight: {report:#?}");
    BUCKETS.latency(Duration::ZERO);

    let mut files = build(Directory::open(local.path()).unwrap(), true);
    assert_eq!(files.read_ahead(), None);
    let expected = epochs(&mut files, tuned.len() / 12, Duration::ZERO);
    assert!(tuned == expected && untuned == expected[..24]);
}

#[test]
fn a_dropped_loader_cancels_its_requests() {
    let (_, _guard) = buckets();
    images("hanging", 64);
    let storage = storage(&StorageSettings { timeout: 600, ..settings() });
    let source = directory("s3://hanging", &storage).unwrap();
    for index in (0..64).filter(|index| index % 4 != 0) {
        // The server never answers requests for samples, except for those that the plan inspects.
        let path = source.path(index).to_str().unwrap().replace("s3:/", "");
        BUCKETS.fail(&path, [Fault::Hang; 8]);
    }
    let builder =
        Loader::builder(source, common::training()).batch_size(5).num_workers(2).shuffle(false);
    let loader = builder.device(DeviceChoice::Cpu).build().unwrap();
    // Waits until all requests have been sent: 16 of the plan and 40 that the server never answers.
    while BUCKETS.log("/hanging/").iter().filter(|it| it.method == "GET").count() < 16 + 40 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let begin = Instant::now();
    drop(loader);
    assert!(begin.elapsed() < Duration::from_secs(300), "{:?}", begin.elapsed());
}

#[test]
fn the_footprint_includes_prefetched_samples() {
    let (_, _guard) = buckets();
    let local = images("footprint", 12);
    let rows = |source: Directory| {
        let builder = Loader::builder(source, common::training()).device(DeviceChoice::Cpu);
        builder.num_workers(3).plan().unwrap().footprint
    };
    let footprint = rows(Directory::open(local.path()).unwrap());
    assert!(footprint.row("read ahead").is_none() && footprint.row("connections").is_none());
    let source = |storage: &Storage| directory("s3://footprint", storage).unwrap();
    let largest = source(&USUAL).largest_bytes().unwrap();
    let ahead = |settings: StorageSettings| {
        let footprint = rows(source(&storage(&settings)));
        let row = footprint.row("read ahead").unwrap().clone();
        assert_eq!(row.each_bytes, largest);
        (row.count, footprint.row("connections").unwrap().count)
    };
    assert_eq!(ahead(StorageSettings { connections: 20, ..settings() }), (2 * 20 + 2 * 3, 20));
    let little = StorageSettings { connections: 20, read_ahead: 5 * largest + 1, ..settings() };
    assert_eq!(ahead(little), (5 + 2 * 3, 20));
    assert_eq!(ahead(StorageSettings { read_ahead: 0, ..settings() }).0, 1 + 2 * 3);
}
