//! Memory of nvJPEG: its allocations, its part of the plan, and when it is freed.

use super::*;
use feedwater::internals::decode::{Decoders, JpegDecoder};
use feedwater::internals::header::{Header, Sampling};

#[test]
fn nvjpegs_memory_comes_only_from_its_row() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(Backend::Hybrid, 2, 64 * 1024).unwrap();
    let taken = machine.counts();
    for page in 0..2 {
        setup.decode(page, &file(IMAGE, 1), IMAGE.window()).unwrap();
    }
    let rounded = COEFFICIENT_BYTES.next_multiple_of(256);
    assert_eq!(setup.pinned.row_bytes("nvjpeg"), Some((2 * rounded, 64 * 1024)));
    let small = setup.memory.row_bytes("nvjpeg").unwrap().0;
    // A larger image needs larger buffers. The smaller ones are freed first.
    setup.decode(0, &file(Size::new(80, 60), 1), Roi::new(0, 0, 35, 35)).unwrap();
    assert!(setup.memory.row_bytes("nvjpeg").unwrap().0 >= small);
    let counts = machine.counts();
    assert_eq!(counts.device.peak_bytes, taken.device.bytes, "more was allocated from the driver");
    assert_eq!(counts.pinned.peak_bytes, taken.pinned.bytes, "more was allocated from the driver");

    // An image whose buffers do not fit is a budget error. The next image is decoded.
    match setup.decode(1, &file(Size::new(200, 200), 1), Roi::new(0, 0, 20, 20)) {
        Err(DecodeError::Fatal(Error::Budget { row, needed, .. })) => {
            assert_eq!((row.as_str(), needed), ("nvjpeg", 6 * 200 * 200));
        }
        other => panic!("{other:?}"),
    }
    setup.decode(1, &file(IMAGE, 7), IMAGE.window()).unwrap();
    assert_eq!(setup.pixels(1, IMAGE.window()).unwrap(), pattern(&file(IMAGE, 7), IMAGE.window()));
    let (memory, pinned) = (setup.memory.clone(), setup.pinned.clone());
    drop(setup);
    assert_eq!((memory.used_bytes(), pinned.used_bytes()), (0, 0));
    drop((memory, pinned));
    assert_clean(&machine, "memory");
}

#[test]
fn buffers_of_a_given_size_are_allocated_at_start_and_do_not_grow() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        let setup = setup(backend, 0, 64 * 1024).unwrap();
        let used = || (setup.memory.used_bytes(), setup.pinned.used_bytes());
        let mut decoder = PageDecoder::new(&setup.jpeg, 8192, 16 * 1024).unwrap();
        assert_eq!(used(), (8192, 16 * 1024));
        let destination = setup.memory.buffer("nvjpeg", PAGE_BYTES as usize).unwrap();
        decoder.decode(&setup.stream, &file(IMAGE, 1), IMAGE.window(), &destination).unwrap();
        assert_eq!(used(), (8192 + PAGE_BYTES, 16 * 1024));
        for (device_bytes, pinned_bytes) in [(1 << 20, 0), (0, 1 << 20)] {
            let error = PageDecoder::new(&setup.jpeg, device_bytes, pinned_bytes).unwrap_err();
            assert!(matches!(error, Error::Budget { needed: 1048576, .. }), "{error}");
        }
        drop((decoder, destination, setup));
        assert_clean(&machine, "sizes");
    }
}

/// Returns a loader of 12 images on one nvJPEG route.
fn loader(route: Route, limit: Option<u64>) -> Result<Loader> {
    let rgb = synth::image(1, 1, 96, 80);
    let jpeg = synth::encode(&rgb, 96, 80, 90, false).unwrap();
    let source = MemorySource::new(vec![(jpeg, 0); 12]).unwrap();
    let builder = Loader::builder(source, Chain::new().then(Resize::to(16, 16)));
    let builder =
        builder.batch_size(4).num_workers(3).configure(|it| it.loader.tune = false).epochs(Some(1));
    let builder = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime());
    builder
        .configure(|it| {
            it.limits.device_memory = limit;
            it.decode.routes = vec![route, Route::Cpu];
        })
        .build()
}

/// Returns the outcome of each sample, and the reason for each CPU fallback.
fn outcomes(loader: &mut Loader) -> Vec<(Outcome, Option<&'static str>)> {
    let batches = loader.into_iter().map(|batch| {
        let batch = batch.unwrap();
        batch.samples().iter().map(|it| (it.outcome, it.cpu_fallback)).collect::<Vec<_>>()
    });
    batches.flatten().collect()
}

/// Returns the planned device memory of a route's decode state, in bytes.
fn planned(loader: &Loader, route: Route) -> usize {
    let device = loader.plan().device.as_ref().unwrap();
    device.routes.iter().find(|it| it.route == route).map_or(0, |it| it.device_bytes)
}

/// Before a loader plans its memory, it measures the memory of nvJPEG's states, with or without
/// attached buffers.
#[test]
fn a_loader_plans_what_states_take() {
    let Some(machine) = exclusive() else { return };
    for route in [Route::NvjpegGpu, Route::NvjpegHybrid, Route::NvjpegHardware] {
        for (own, factor) in [(0, 1), (64 << 10, 1), (8 << 20, 1), (0, 2), (1 << 20, 9)] {
            machine.restart();
            // Sets the memory that a decode state needs besides its buffers. Decode states of the
            // JPEG engines have only buffers.
            machine.nvjpeg_own(own);
            machine.nvjpeg_memory_factors(factor, factor);
            let mut loader = loader(route, None).unwrap();
            assert_eq!(loader.plan().dropped_routes, []);
            let planned = planned(&loader, route);
            if route != Route::NvjpegHardware {
                let most = own + own / 4 + factor * (512 << 10) + (512 << 10);
                assert!(planned > own && planned < most, "{route:?} {own} {factor}: {planned}");
            }
            for (outcome, why) in outcomes(&mut loader) {
                let routes = [Outcome::Decoded(route), Outcome::Decoded(Route::Cpu)];
                assert!(routes.contains(&outcome), "{route:?} {own} {factor}: {why:?}");
                assert_eq!(why, None, "{route:?} {own} {factor}");
            }
            assert_ne!(
                machine.decoded(match route {
                    Route::NvjpegGpu => Backend::GpuHybrid,
                    Route::NvjpegHybrid => Backend::Hybrid,
                    _ => Backend::Hardware,
                }),
                0
            );
            drop(loader);
            assert_clean(&machine, "own memory");
        }
    }
}

/// If a route needs too much memory, the loader works without this route. The loader must not fail,
/// because `auto` chose the GPU.
#[test]
fn a_route_that_needs_too_much_is_not_used() {
    let Some(machine) = exclusive() else { return };
    for route in [Route::NvjpegGpu, Route::NvjpegHybrid, Route::NvjpegHardware] {
        // Each case has the memory of a state besides its buffers, a factor for buffers, and a
        // limit. The route needs more memory than any trial uses, or more than the limit leaves.
        let all =
            [(8 << 30, 1 << 14, None), (8 << 20, 64, Some(9 << 20)), (0, 1 << 14, Some(12 << 20))];
        for (own, factor, limit) in all {
            machine.restart();
            machine.nvjpeg_own(own);
            machine.nvjpeg_memory_factors(factor, factor);
            let mut loader = loader(route, limit).unwrap();
            let dropped = loader.plan().dropped_routes.clone();
            assert_eq!(dropped.len(), 1, "{route:?} {own} {factor} {limit:?}");
            assert_eq!(dropped[0].0, route);
            let said = format!("the route {} is not used: {}", route.name(), dropped[0].1);
            assert!(loader.warnings().contains(&said), "{:?}", loader.warnings());
            assert!(loader.plan().to_string().contains(&dropped[0].1));
            let on_cpu = (Outcome::Decoded(Route::Cpu), None);
            assert_eq!(outcomes(&mut loader), vec![on_cpu; 12]);
            drop(loader);
            assert_clean(&machine, "too much");
        }
    }
}

/// The device has too little memory for nvJPEG, but enough for the rest of the loader.
#[test]
fn a_route_that_needs_more_than_the_device_has_is_not_used() {
    let Some(machine) = exclusive() else { return };
    for route in [Route::NvjpegGpu, Route::NvjpegHybrid, Route::NvjpegHardware] {
        machine.restart();
        machine.nvjpeg_own(7 << 20);
        machine.nvjpeg_memory_factors(16, 16);
        machine.memory_limit(8 << 20);
        let mut loader = loader(route, None).unwrap();
        let dropped = loader.plan().dropped_routes.clone();
        assert_eq!(dropped.iter().map(|it| it.0).collect::<Vec<_>>(), [route], "{dropped:?}");
        assert_eq!(outcomes(&mut loader), vec![(Outcome::Decoded(Route::Cpu), None); 12]);
        drop(loader);
        assert_clean(&machine, "a small device");
    }
}

/// If a limit is exceeded even without nvJPEG, no route is dropped. The error names the limit that
/// is too small.
#[test]
fn no_route_is_dropped_where_that_does_not_help() {
    let Some(machine) = exclusive() else { return };
    let error = loader(Route::NvjpegGpu, Some(1000)).err().unwrap();
    let Error::Config(error) = error else { panic!("{error}") };
    assert_eq!(error.key, "limits.device_memory");
    assert!(error.rows.contains("output slots"), "{}", error.rows);
    assert_clean(&machine, "limits");
}

#[test]
fn trial_files_are_valid_and_have_the_wanted_length() {
    for size in [Size::new(16, 16), Size::new(17, 31), Size::new(500, 375)] {
        for progressive in [false, true] {
            for bytes in [0, 2_000, 20_000, 400_000] {
                let file = nvjpeg::trial_file(size, bytes, progressive);
                let header = Header::parse(&file).unwrap();
                let jpeg = header.jpeg.as_ref().unwrap();
                assert_eq!((header.size, jpeg.is_progressive()), (size, progressive));
                assert_eq!(jpeg.sampling(), Sampling::S444);
                let [fewest, most] = [0, usize::MAX / 64]
                    .map(|bytes| nvjpeg::trial_file(size, bytes, progressive).len());
                let wanted = bytes.clamp(fewest, most);
                let step = 3 * size.width.div_ceil(8) * size.height.div_ceil(8) + 64;
                assert!(
                    file.len() <= wanted && file.len() + step as usize >= wanted,
                    "{size} {bytes}: {}",
                    file.len()
                );
                for decoder in [JpegDecoder::Feedwater, JpegDecoder::Libjpeg] {
                    let mut rows = 0;
                    let mut decoders = Decoders::new().strict(true).jpeg(decoder);
                    decoders
                        .decode(&file, &header, size.window(), 1, &mut |group| {
                            rows += group.iter().count() as u32;
                        })
                        .unwrap();
                    assert_eq!(rows, size.height);
                }
            }
        }
    }
}

/// Makes the buffers of the decoder grow, so that it frees smaller ones.
fn grow(setup: &mut Setup) {
    setup.decode(0, &file(IMAGE, 1), IMAGE.window()).unwrap();
    setup.decode(0, &file(Size::new(80, 60), 2), Roi::new(0, 0, 35, 35)).unwrap();
}

#[test]
fn memory_whose_last_use_cannot_be_observed_is_not_used_again() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(Backend::Hybrid, 1, 1 << 20).unwrap();
    setup.decode(0, &file(IMAGE, 1), IMAGE.window()).unwrap();
    machine.fail("cuEventQuery", 1, LAUNCH_FAILED);
    let large = Size::new(80, 60);
    setup.decode(0, &file(large, 2), Roi::new(0, 0, 35, 35)).unwrap();
    assert_eq!(machine.counts().injected, 1);
    let rounded = COEFFICIENT_BYTES.next_multiple_of(256);
    assert_eq!(setup.pinned.withheld_bytes() + setup.memory.withheld_bytes(), rounded);
    let (memory, pinned) = (setup.memory.clone(), setup.pinned.clone());
    drop(setup);
    assert_eq!((memory.used_bytes(), pinned.used_bytes()), (0, rounded));
    drop((memory, pinned));
    assert_clean(&machine, "withheld");
}

/// After a failed call, its work is still queued in the stream, and waiting for the stream fails
/// too. The memory that the work may use is withheld from reuse.
#[test]
fn memory_of_a_call_that_cannot_be_waited_for_is_not_used_again() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(Backend::Hybrid, 1, 1 << 20).unwrap();
    machine.fail("nvjpegDecodeJpegDevice", 1, LAUNCH_FAILED);
    machine.fail("cuStreamSynchronize", 1, LAUNCH_FAILED);
    setup.decode(0, &file(IMAGE, 1), IMAGE.window()).unwrap_err();
    let (memory, pinned) = (setup.memory.clone(), setup.pinned.clone());
    let used = (memory.row_bytes("nvjpeg").unwrap().0, pinned.used_bytes());
    drop(setup);
    assert!(used.0 > 0 && used.1 > 0);
    assert_eq!((memory.withheld_bytes(), pinned.withheld_bytes()), used);
    drop((memory, pinned));
    // nvJPEG's objects are destroyed nevertheless, because the queued work uses only their memory.
    assert_eq!(machine.counts().live(), 0);
}

/// Memory that was freed while the device still used it becomes available later. An allocation
/// waits for such memory only if the row "nvjpeg" of the footprint has no other free memory.
#[test]
fn nobody_waits_for_freed_memory_while_the_row_has_room() {
    let Some(machine) = exclusive() else { return };
    let small = |setup: &mut Setup| setup.decode(0, &file(IMAGE, 1), Roi::new(0, 0, 20, 20));
    let large =
        |setup: &mut Setup| setup.decode(0, &file(Size::new(80, 60), 2), Roi::new(0, 0, 35, 35));
    // With the backend `Hybrid`, only nvJPEG's device buffer grows with the images of this test. It
    // grows during the only nvJPEG call for an image that has a stream as an argument.
    let mut roomy = setup(Backend::Hybrid, 1, 1 << 20).unwrap();
    small(&mut roomy).unwrap();
    roomy.stream.synchronize().unwrap();
    machine.endless_work(&roomy.stream);
    large(&mut roomy).unwrap();
    assert_eq!((machine.counts().faults(), roomy.jpeg.memory_waits()), (0, 0));
    machine.end_work();
    drop(roomy);
    assert_clean(&machine, "room");
    // In each step, the decoder has less memory, until the large image does not fit. In the last
    // steps in which the image fits, the old and the new device buffer do not fit at the same time.
    // So the allocation must wait until the device no longer uses the old buffer.
    let mut waits = 0;
    for device_bytes in (0..64).rev().map(|it| it * 256) {
        let mut setup = setup_with(Backend::Hybrid, 1, device_bytes, 1 << 20).unwrap();
        // With this schedule, queued work ends only when the host waits for it.
        machine.schedule(Schedule::Lazy);
        let fits = small(&mut setup).is_ok() && {
            // Each query of an event completes one queued operation.
            (0..50).for_each(|_| machine.work(&setup.stream, 1));
            large(&mut setup).is_ok()
        };
        waits += setup.jpeg.memory_waits();
        drop(setup);
        assert_clean(&machine, "no room");
        if !fits {
            break;
        }
    }
    assert!(waits > 0);
}

/// Freeing memory must not wait for streams of other code. A framework's stream may have much work
/// queued, or wait for other ranks.
#[test]
fn freeing_memory_waits_for_no_stream_of_others() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        let mut setup = setup(backend, 2, 1 << 20).unwrap();
        let framework = Stream::new(setup.stream.device()).unwrap();
        machine.endless_work(&framework);
        grow(&mut setup);
        setup.decoders.clear();
        assert_eq!(setup.pinned.used_bytes() + setup.memory.withheld_bytes(), 0);
        assert_eq!(machine.counts().faults(), 0, "{backend:?}");
        machine.end_work();
        drop((setup, framework));
        assert_clean(&machine, "framework");
    }
}

#[test]
fn memory_is_freed_while_a_graph_is_captured() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
        setup.stream.device().adopt_thread();
        machine.capturing(true);
        grow(&mut setup);
        setup.decoders.clear();
        machine.capturing(false);
        assert_eq!((setup.pinned.used_bytes(), setup.pinned.withheld_bytes()), (0, 0));
        drop(setup);
        assert_clean(&machine, "capture");
    }
}

/// A loader's threads continue while other threads capture CUDA graphs. A thread that captures may
/// also drop a decoder.
#[test]
fn a_decoder_is_dropped_by_a_thread_that_captures() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
        setup.decode(0, &file(IMAGE, 1), IMAGE.window()).unwrap();
        machine.capturing(true);
        setup.decoders.clear();
        assert_eq!(machine.counts().misused, 0, "{backend:?}");
        // The capture mode of this thread is restored: a forbidden call during the capture is still
        // an error.
        assert!(setup.stream.synchronize().is_err());
        assert_eq!(machine.counts().misused, 1);
        machine.restart();
    }
}
