//! Device time on the simulated machine, whose streams have clocks: times, waits, NVML readings.

mod stopwatch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{evaluation, jpeg, jpegs, progressive, training};
use crate::machine;
use crate::simulated::images::{assert_clean, libjpeg};
use crate::simulated::{
    COPY_NS, DECODE_NS, KERNEL_NS, LAUNCH_FAILED, Reading, Schedule, Simulated, exclusive, runtime,
};
use feedwater::error::Error;
use feedwater::footprint::{Footprint, Memory as MemoryKind};
use feedwater::gpu::{Device, Event, Stream};
use feedwater::internals::gpu::nvml::Nvml;
use feedwater::internals::gpu::{DevicePool, Stopwatch, fill, probe};
use feedwater::internals::measure::{DeviceMeter, DeviceTime, Profile, Stage};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{self, Chain, Placement};
use feedwater::plan::Route;
use feedwater::source::Memory;

const SCHEDULES: [Schedule; 4] =
    [Schedule::Lazy, Schedule::Eager, Schedule::Random(1), Schedule::Random(2)];

/// Whether `text` contains this number as a whole word.
fn has_number(text: &str, number: u32) -> bool {
    text.split(|it: char| !it.is_ascii_alphanumeric()).any(|it| it == number.to_string())
}

/// Polls until `there` returns a value. Fails after 60 s.
fn until<T>(mut there: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(it) = there() {
            return it;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no value within 60 s");
        std::thread::yield_now();
    }
}

/// Returns how often the host has waited for the device so far.
fn host_waits(machine: &Simulated) -> u64 {
    let waits = ["cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"];
    waits.iter().map(|name| machine.calls(name)).sum()
}

fn builder(samples: Vec<(Vec<u8>, i64)>, chain: Chain) -> LoaderBuilder {
    let builder = Loader::builder(Memory::new(samples).unwrap(), chain);
    builder
        .batch_size(4)
        .num_workers(2)
        .configure(|it| it.loader.tune = false)
        .shuffle(true)
        .seed(3)
        .device(DeviceChoice::Gpu(0))
        .runtime(&runtime())
}

/// Consumes all batches of `epochs` epochs, and waits for the device at the end of each epoch.
fn use_all(loader: &mut Loader, epochs: usize) {
    for _ in 0..epochs {
        for batch in &mut *loader {
            batch.unwrap().to_host().unwrap();
        }
    }
}

fn nanoseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round()
}

fn device(profile: &Profile, stage: Stage) -> &DeviceTime {
    profile.stage(stage).unwrap().device.as_ref().unwrap()
}

/// On every route, the measured device time of images and launches equals the simulated time.
#[test]
fn the_kernel_and_every_route_are_timed_by_the_device() {
    let Some(machine) = machine() else { return };
    let mut seen = 0;
    for schedule in SCHEDULES {
        for route in [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid] {
            machine.schedule(schedule);
            let mut loader = builder(jpegs(40), training())
                .configure(|it| it.decode.routes = vec![route])
                .build()
                .unwrap();
            use_all(&mut loader, 2);
            let profile = loader.profile();
            let kernel = device(&profile, Stage::Kernel);
            assert!(kernel.all_items >= 80, "{schedule:?} {route:?} {kernel:?}");
            let per_sample = nanoseconds(kernel.per_item());
            assert!(kernel.items == 0 || per_sample == KERNEL_NS as f64, "{kernel:?}");
            let decode = device(&profile, Stage::DeviceDecode);
            assert!(decode.all_items >= 80, "{decode:?}");
            // With nvJPEG's kernels, each image takes two operations: a copy to the device and a
            // decode. With the JPEG engines, a whole group of images takes one operation.
            let (many, each) = match route {
                Route::NvjpegHardware => (decode.spans, DECODE_NS),
                _ => (decode.items, 2 * DECODE_NS),
            };
            assert_eq!(nanoseconds(decode.seconds), (many * each) as f64, "{route:?} {decode:?}");
            seen += kernel.items + decode.items;
            let [by_route] = &profile.routes[..] else { panic!("one route") };
            assert_eq!((&*by_route.route, by_route.share), (route.name(), 1.0));
            assert_eq!(by_route.device.as_ref(), Some(decode));
            drop(loader);
            assert_clean(&machine, &format!("{schedule:?} {route:?}"));
        }
    }
    assert!(seen > 100, "{seen} samples were measured");
}

#[test]
fn copies_to_the_device_are_timed() {
    let Some(_machine) = machine() else { return };
    let samples = || (0..24).map(|tag| (jpeg(tag, 64, 48), 0)).collect::<Vec<_>>();
    let chain = Chain::new().then(op::Resize::to(32, 24)).then(op::Normalize::IMAGENET);
    let mut loader = builder(samples(), chain)
        .configure(|it| it.decode.placement = Placement::Cpu)
        .build()
        .unwrap();
    use_all(&mut loader, 1);
    let profile = loader.profile();
    let copies = device(&profile, Stage::Upload);
    assert!(copies.items > 0 && copies.all_items >= 24, "{copies:?}");
    assert_eq!(nanoseconds(copies.per_item()), (3 * 64 * 48 * COPY_NS) as f64);
    assert!(profile.stage(Stage::DeviceDecode).is_none_or(|it| it.device.is_none()));
}

/// The consumer's stream waits if it needs the batch before the batch is ready. The reported wait
/// is measured on that stream, so it does not depend on the host's clock.
#[test]
fn the_exposed_wait_is_that_of_the_consumers_stream() {
    let Some(machine) = machine() else { return };
    for late in [0, 3_000_000_000] {
        machine.schedule(Schedule::Random(4));
        let device = Device::open_with(0, &runtime()).unwrap();
        let stream = Arc::new(Stream::new(&device).unwrap());
        let (first, last) = (Event::timed(&device).unwrap(), Event::timed(&device).unwrap());
        let builder = builder(jpegs(4), evaluation()).epochs(Some(1)).stream(stream.clone());
        let mut loader = builder.build().unwrap();
        machine.work(&stream, late);
        first.record(&stream).unwrap();
        let batch = loader.epoch().next().unwrap().unwrap();
        last.record(&stream).unwrap();
        stream.synchronize().unwrap();
        let waited = last.elapsed_since(&first).unwrap().unwrap();
        let profile = loader.profile();
        let measured = profile.consumer.waited_on_device.unwrap();
        assert_eq!((measured.spans, measured.items, measured.all_items), (1, 4, 4));
        assert_eq!(nanoseconds(measured.seconds), waited.as_nanos() as f64);
        // If `late` is 0, the stream waits at least as long as the kernel runs, else not at all.
        assert_eq!(waited.as_nanos() as u64 >= 4 * KERNEL_NS, late == 0, "{waited:?}");
        assert!(late == 0 || waited.is_zero(), "{waited:?}");
        drop((batch, loader, first, last, stream, device));
        assert_clean(&machine, "exposed wait");
    }
}

#[test]
fn events_are_created_only_at_the_start() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(5));
    let mut loader = builder(jpegs(20), training())
        .configure(|it| it.decode.routes = Route::ALL.into())
        .build()
        .unwrap();
    let start = machine.counts();
    assert!(start.timed_events > 0 && start.timed_events < start.events);
    for _ in 0..3 {
        use_all(&mut loader, 1);
        loader.profile();
        let now = machine.counts();
        assert_eq!((now.events, now.timed_events), (start.events, start.timed_events));
    }
}

/// The host waits only for each image's page, decoder and launch buffer. Measuring adds no waits.
#[test]
fn measuring_never_makes_the_host_wait() {
    let Some(machine) = machine() else { return };
    let waits = |epochs| {
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        // Work finishes at once, so no thread waits for a free buffer.
        machine.schedule(Schedule::Eager);
        let builder = builder(jpegs(20), training())
            .configure(|it| it.decode.routes = vec![Route::NvjpegGpu])
            .num_workers(1);
        let mut loader = builder.epochs(Some(epochs)).build().unwrap();
        for _ in 0..epochs {
            let mut epoch = loader.epoch();
            while let Some(batch) = epoch.next() {
                batch.unwrap();
                epoch.profile();
            }
        }
        let profile = loader.profile();
        assert!(device(&profile, Stage::Kernel).spans > 0);
        drop(loader);
        assert_clean(&machine, "waits");
        ["cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"]
            .map(|it| machine.calls(it))
    };
    let (one, three) = (waits(1), waits(3));
    // Three waits per sample, and one per batch before its labels are copied.
    assert_eq!(three[0] - one[0], 2 * (3 * 20 + 5), "events");
    assert_eq!((one[1], one[2]), (three[1], three[2]), "calls that wait for streams and contexts");
}

#[test]
fn a_profile_includes_the_device_and_survives_serialization() {
    let Some(machine) = machine() else { return };
    machine.nvml(Reading::Gpu, 50);
    let builder = builder(jpegs(8), training()).watch_device(Some(Duration::from_millis(1)));
    let mut loader = builder.build().unwrap();
    use_all(&mut loader, 1);
    until(|| loader.profile().device);
    let profile = loader.profile();
    assert!(profile.memory.device_peak > 0 && profile.memory.pinned_peak > 0);
    assert!(profile.memory.device_peak <= profile.setup.device_bytes);
    assert!((profile.routes.iter().map(|it| it.share).sum::<f64>() - 1.0).abs() < 1e-9);
    let text = serde_json::to_string(&profile).unwrap();
    let read: Profile = serde_json::from_str(&text).unwrap();
    assert_eq!((read.memory, read.device.unwrap().gpu), (profile.memory, Some(0.5)));
    for stage in [Stage::Upload, Stage::DeviceDecode, Stage::Kernel] {
        let times = [&read, &profile].map(|it| it.stage(stage).and_then(|it| it.device.clone()));
        let counts = times.map(|it| it.map(|it| (it.spans, it.items, it.all_items)));
        assert_eq!(counts[0], counts[1], "{stage:?}");
    }
    assert_eq!(read.routes.len(), profile.routes.len());
}

/// A measuring period with only baseline images is followed by a period with only progressive
/// images. In this test, only the route `nvjpeg-hybrid` decodes progressive images.
#[test]
fn a_window_counts_the_images_of_its_own_routes() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Eager);
    let baseline = (0..40).map(|tag| (jpeg(tag, 64, 48), 0));
    let samples = baseline.chain((0..40).map(|tag| (progressive(tag, 64, 48), 0))).collect();
    let builder = builder(samples, training()).shuffle(false).num_workers(1).epochs(Some(1));
    let mut loader = builder
        .configure(|it| it.decode.routes = vec![Route::NvjpegGpu, Route::NvjpegHybrid])
        .build()
        .unwrap();
    let of = |profile: &Profile, route: Route| {
        profile.routes.iter().find(|it| it.route == route.name()).unwrap().clone()
    };
    let mut epoch = loader.epoch();
    while epoch.profile().routes.iter().map(|it| it.images).sum::<u64>() < 56 {
        epoch.next().unwrap().unwrap().to_host().unwrap();
    }
    let (before, first) = (epoch.measured(), epoch.profile());
    for batch in epoch {
        batch.unwrap().to_host().unwrap();
    }
    let (window, whole) = (loader.profile_since(&before), loader.profile());
    for route in [Route::NvjpegGpu, Route::NvjpegHybrid] {
        let [window, whole] = [&window, &whole].map(|it| of(it, route));
        let then = before.routes.iter().find(|it| it.route == route.name()).unwrap();
        assert_eq!(window.images, whole.images - then.images, "{route:?}");
        assert!((0.0..=1.0).contains(&window.busy) && window.busy.is_finite(), "{window:?}");
    }
    assert!(of(&first, Route::NvjpegGpu).images > 0 && of(&whole, Route::NvjpegGpu).share > 0.0);
    let (cuda, host) = (of(&window, Route::NvjpegGpu), of(&window, Route::NvjpegHybrid));
    assert_eq!((cuda.images, cuda.share, host.share), (0, 0.0, 1.0));
    assert!((1..=24).contains(&host.images), "{host:?}");
    assert!(cuda.device.is_none() && host.device.is_some(), "{cuda:?}");
    // Peaks of memory are those of the whole run, not only of the profiled part.
    assert_eq!(window.memory, whole.memory);
    // A profile without images has a share of 0 for every route.
    let nothing = loader.profile_since(&loader.measured());
    assert!(nothing.routes.iter().all(|it| (it.images, it.share, it.busy) == (0, 0.0, 0.0)));
    drop(loader);
    assert_clean(&machine, "windows");
}

#[test]
fn nvml_reads_the_device_that_cuda_uses() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let nvml = Nvml::open(&runtime()).unwrap();
    let monitor = nvml.monitor(&device).unwrap();
    let told = monitor.read().unwrap();
    assert_eq!(told, Default::default(), "unsupported readings are absent");
    for (reading, value) in [
        (Reading::Gpu, 97),
        (Reading::Jpeg, 40),
        (Reading::Decoder, 0),
        (Reading::Used, 3 << 30),
        (Reading::Total, 140 << 30),
        (Reading::Sent, 12),
        (Reading::Received, 9_000_000),
    ] {
        machine.nvml(reading, value);
    }
    let told = monitor.read().unwrap();
    assert_eq!((told.gpu, told.jpeg, told.decoder), (Some(0.97), Some(0.4), Some(0.0)));
    assert_eq!((told.memory_used, told.memory_total), (Some(3 << 30), Some(140 << 30)));
    assert_eq!((told.sent, told.received), (Some(12e3), Some(9e9)));
    machine.fail("nvmlDeviceGetJpgUtilization", 1, 15);
    let error = monitor.read().unwrap_err();
    let Error::Device { call, problem } = error else { panic!("{error}") };
    assert_eq!(call, "nvmlDeviceGetJpgUtilization");
    assert!(has_number(&problem, 15), "{problem}");
    drop((monitor, nvml, device));
    assert_eq!(machine.nvml_users(), 0);
    assert_eq!(probe(&runtime()).nvml.unwrap().version, "13.580.0");
    machine.fail("nvmlInit_v2", 1, 9);
    let problem = probe(&runtime()).nvml.unwrap_err();
    assert!(problem.contains("NVML") && has_number(&problem, 9), "{problem}");
    assert_clean(&machine, "nvml");
    assert_eq!(machine.nvml_users(), 0);
}

#[test]
fn a_loader_monitors_its_device_on_request() {
    let Some(machine) = machine() else { return };
    machine.nvml(Reading::Gpu, 50);
    let period = Some(Duration::from_millis(1));
    let watched = || builder(jpegs(8), training()).watch_device(period);
    let mut loader = watched().build().unwrap();
    // One reading of NVML fails, and the next one succeeds.
    machine.fail("nvmlDeviceGetUtilizationRates", 2, 15);
    let told = until(|| loader.profile().device.filter(|it| it.readings > 2 && it.failed > 0));
    assert_eq!((told.gpu, told.failed, told.jpeg), (Some(0.5), 1, None));
    assert_eq!(loader.device_utilisation().unwrap().gpu, Some(0.5));
    use_all(&mut loader, 1);
    drop(loader);
    assert_eq!(machine.nvml_users(), 0);

    machine.fail("nvmlInit_v2", 1, 9);
    let mut loader = watched().build().unwrap();
    let warnings = loader.warnings();
    assert!(warnings[0].contains("NVML") && has_number(&warnings[0], 9), "{warnings:?}");
    assert_eq!(loader.profile().device, None);
    use_all(&mut loader, 1);
    drop(loader);

    let loader = builder(jpegs(8), training()).build().unwrap();
    assert_eq!((loader.profile().device, machine.nvml_users()), (None, 0));
    drop(loader);
    let loader = builder(jpegs(8), training()).device(DeviceChoice::Cpu).build().unwrap();
    let error = loader.device_utilisation().unwrap_err();
    let Error::Unavailable { reason, .. } = error else { panic!("{error}") };
    assert!(reason.contains("CPU"), "{reason}");
    assert_eq!(loader.profile().consumer.waited_on_device, None);
    drop(loader);
    assert_clean(&machine, "watched");
}
