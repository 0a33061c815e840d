//! The choice of the decode route.

use super::*;

/// PNGs, and images larger than a page, are processed on the CPU. They are uploaded into the same
/// batch as the other images. The reason why the CPU processes them is counted.
#[test]
fn images_that_no_route_supports_are_processed_on_the_cpu_and_counted() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(4));
    let samples = || {
        let mut all = jpegs(40);
        all[3].0 = common::png(5, 31, 27);
        all[8].0 = common::jpeg(70, 1400, 1000);
        // Trailing bytes, which no decoder reads, make this file larger than the page's buffer for
        // encoded bytes.
        all[9].0.extend(vec![0; 1 << 20]);
        all
    };
    for routes in
        [vec![Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid], Route::ALL.to_vec()]
    {
        // The plan inspects only images 0, 2, 5, 7, 10 and so on. The large image is not among
        // them.
        let make = || {
            let source = SlowShuffled(Memory::new(samples()).unwrap());
            let builder =
                settled(Loader::builder(source, training())).last_batch(LastBatch::Partial);
            builder.configure(|it| it.decode.routes = routes.clone())
        };
        let loader = same(make, "mixed");
        let stats = loader.stats();
        let on_cpu: u64 = stats.cpu_fallback.values().sum();
        assert_eq!(stats.images, 80);
        assert_eq!(stats.outcomes.values().sum::<u64>(), 80);
        // With the route `cpu`, images that nvJPEG does not support are decoded on the CPU, but
        // still processed by the kernel. The large image does not fit into a page, whatever the
        // route.
        let with_cpu = routes.contains(&Route::Cpu);
        assert_eq!(on_cpu, if with_cpu { 2 } else { 6 }, "{stats:?}");
        assert!(with_cpu || stats.outcomes["cpu"] == on_cpu, "{stats:?}");
        for epoch in &stats.epochs {
            assert_eq!(epoch.images, 40);
            assert_eq!(epoch.outcomes.values().sum::<u64>(), 40);
            assert_eq!(epoch.cpu_fallback.values().sum::<u64>(), on_cpu / 2);
        }
    }
}

/// Progressive images are decoded only on routes whose entropy decoder runs on the CPU.
#[test]
fn the_header_decides_which_routes_support_an_image() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(14));
    let samples = || {
        let mut all = jpegs(24);
        for (number, (bytes, _)) in all.iter_mut().enumerate().filter(|it| it.0 % 3 == 0) {
            *bytes = common::progressive(number as u64, 57, 43);
        }
        all
    };
    let run = |routes: &[Route]| {
        let make = || {
            builder(samples(), training())
                .last_batch(LastBatch::Partial)
                .configure(|it| it.decode.routes = routes.into())
        };
        same(make, &format!("{routes:?}")).stats()
    };
    let stats = run(&[Route::NvjpegHardware, Route::NvjpegHybrid]);
    assert!(stats.outcomes["nvjpeg-hybrid"] >= 16 && stats.cpu_fallback.is_empty(), "{stats:?}");
    let stats = run(&[Route::NvjpegHardware, Route::NvjpegGpu]);
    assert_eq!((stats.outcomes["nvjpeg-hybrid"], stats.outcomes["cpu"]), (0, 16), "{stats:?}");
    assert_eq!(stats.cpu_fallback.values().sum::<u64>(), 16, "{stats:?}");
}

/// Files that appear damaged are never passed to nvJPEG. The CPU decoder decides whether they are
/// errors. In this test, the CPU decoder is tolerant.
#[test]
fn files_that_look_damaged_never_reach_the_device() {
    let Some(machine) = machine() else { return };
    machine.set_decoder(Some(|_, _, _| panic!("nvJPEG was called")));
    let samples = || {
        let mut all = jpegs(8);
        for (bytes, _) in &mut all {
            // Removes the end marker. For libjpeg, a missing end marker is only a warning.
            bytes.truncate(bytes.len() - 2);
        }
        all
    };
    let make = || {
        builder(samples(), training())
            .on_error(OnError::Substitute)
            .configure(|it| it.decode.routes = vec![Route::NvjpegGpu, Route::NvjpegHardware])
    };
    let loader = same(make, "without an end");
    let stats = loader.stats();
    assert_eq!(stats.outcomes["nvjpeg-gpu"] + stats.outcomes["nvjpeg-hardware"], 0, "{stats:?}");
}

#[test]
fn a_version_that_is_known_to_be_unsafe_is_a_warning() {
    let Some(machine) = machine() else { return };
    let warnings = || {
        let loader = builder(jpegs(4), training())
            .device(DeviceChoice::Gpu(0))
            .runtime(&runtime())
            .build()
            .unwrap();
        loader.warnings()
    };
    assert_eq!(warnings(), Vec::<String>::new());
    machine.nvjpeg_version(13, 2, 2);
    let [warning] = &warnings()[..] else { panic!("one warning") };
    assert!(warning.contains("13.2.2") && warning.contains("13.2.3"), "{warning}");
}

/// With `decode.prescale`, only routes that can downscale are used, and the pixels equal those of
/// the CPU.
#[test]
fn downscaled_images_use_the_routes_that_downscale() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(15));
    // The sides of these images are not divisible by any reduction. The images have every
    // orientation.
    let image = |tag| common::with_orientation(&common::jpeg(tag, 401, 303), tag as u16 + 1);
    let large = || (0..8).map(|tag| (image(tag), 0)).collect::<Vec<_>>();
    let run = |routes: &[Route]| {
        let make = || {
            builder(large(), training()).configure(|it| {
                it.decode.prescale = true;
                it.decode.routes = routes.into();
            })
        };
        same(make, &format!("{routes:?}")).stats()
    };
    let stats = run(&[Route::Cpu, Route::NvjpegGpu]);
    assert_eq!((stats.outcomes["nvjpeg-gpu"], stats.cpu_fallback.len()), (0, 0), "{stats:?}");
    let stats = run(&[Route::NvjpegHardware, Route::NvjpegHybrid]);
    assert_eq!((stats.outcomes["nvjpeg-hybrid"], stats.cpu_fallback.len()), (0, 0), "{stats:?}");
}

/// At most `decode.max_cpu_threads` threads decode on the CPU at the same time. Other threads wait,
/// and nothing hangs.
#[test]
fn the_threads_that_decode_on_the_cpu_can_be_limited() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(16));
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    /// Number of threads that wait until all of them decode, so that the maximum does not depend on
    /// timing. If fewer threads arrive, they stop waiting after a minute.
    static WANTED: AtomicUsize = AtomicUsize::new(0);
    static BEGIN: Mutex<Option<Instant>> = Mutex::new(None);
    fn counted(file: &[u8], window: simulated::Window, rgb: &mut [u8]) -> i32 {
        MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Other threads can begin to decode during this wait. `MOST` then counts them.
        std::thread::sleep(Duration::from_millis(1));
        let begin = *BEGIN.lock().unwrap().get_or_insert_with(Instant::now);
        while MOST.load(Ordering::SeqCst) < WANTED.load(Ordering::SeqCst)
            && begin.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = libjpeg(file, window, rgb);
        NOW.fetch_sub(1, Ordering::SeqCst);
        status
    }
    machine.set_decoder(Some(counted));
    let run = |threads, wanted| {
        MOST.store(0, Ordering::SeqCst);
        WANTED.store(wanted, Ordering::SeqCst);
        let make = || {
            builder(jpegs(24), training()).num_workers(4).configure(|it| {
                it.decode.routes = vec![Route::NvjpegHybrid];
                it.decode.max_cpu_threads = threads;
            })
        };
        same(make, &format!("{threads:?}"));
        MOST.load(Ordering::SeqCst)
    };
    assert_eq!(run(Some(1), 1), 1);
    assert!(run(None, 2) > 1);
}
