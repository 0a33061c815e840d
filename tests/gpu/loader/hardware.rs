//! Calls in which the JPEG engines decode several images at once.

use super::*;

/// After the loader's start, no decode state is created, although calls differ in size and each
/// epoch ends with a smaller call.
#[test]
fn each_size_of_a_call_gives_the_same_batches_and_makes_no_state() {
    let Some(machine) = machine() else { return };
    for (seed, group) in [1, 2, 7, 16, 64].into_iter().enumerate() {
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        machine.schedule(Schedule::Random(seed as u64));
        let make = || {
            let builder =
                builder(jpegs(40), training()).last_batch(LastBatch::Partial).epochs(Some(2));
            builder.num_workers(4).configure(|it| {
                it.decode.routes = vec![Route::NvjpegHardware];
                it.decode.hardware_group = Some(group);
            })
        };
        let loader = same(make, &format!("{group} images per call"));
        let device = loader.plan().device.clone().unwrap();
        assert_eq!(device.hardware_group, group);
        // The loader has one decode state if a call has one image, otherwise two. Before the loader
        // starts, trial calls with one image and with a whole group create the same number of
        // states.
        let states = 2 * group.min(2) as u64;
        assert_eq!(machine.calls("nvjpegJpegStateCreate"), states, "{group}");
        let stats = loader.stats();
        assert_eq!(stats.outcomes["nvjpeg-hardware"], 80, "{stats:?}");
        assert_eq!(machine.decoded(Backend::Hardware), 80);
    }
}

/// With the minimum number of pages, each page is reused while work on its previous image is still
/// queued. Simulated engines that keep the stream's order read the new file late. Simulated Hopper
/// engines write the new pixels early.
#[test]
fn a_page_is_used_again_when_engines_and_kernel_have_read_it() {
    let Some(machine) = machine() else { return };
    let make = |limit| {
        let builder =
            builder(jpegs(58), training()).last_batch(LastBatch::Pad).num_workers(3).prefetch(20);
        builder.configure(|it| {
            it.decode.routes = vec![Route::NvjpegHardware];
            it.limits.device_memory = limit;
        })
    };
    let build = |limit| make(limit).device(DeviceChoice::Gpu(0)).runtime(&runtime()).build();
    let predicted = |loader: Loader| loader.stats().memory.device_bytes_predicted;
    let mut limit = predicted(build(None).unwrap());
    while let Ok(smaller) = build(Some(limit - 1))
        && smaller.plan().dropped_routes.is_empty()
    {
        limit = predicted(smaller);
    }
    let schedules = [Schedule::Lazy, Schedule::Random(41), Schedule::Random(42)];
    for (schedule, hopper) in schedules.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        machine.schedule(schedule);
        machine.hopper(hopper);
        same(|| make(Some(limit)), &format!("{schedule:?} hopper {hopper}"));
    }
}

/// Each call contains images of only one chroma subsampling, as in nvImageCodec.
#[test]
fn a_call_has_images_of_one_chroma_sampling() {
    let Some(machine) = machine() else { return };
    machine.set_decoder(Some(libjpeg));
    use SamplingFactor::{F_1_1, F_1_2, F_2_1, F_2_2};
    let samplings = [Some(F_2_2), Some(F_1_1), None, Some(F_2_1), Some(F_1_2)];
    let files = (0..100u32).map(|number| {
        let chroma = samplings[number as usize * 7 % 11 % samplings.len()];
        (sampled_jpeg(number.into(), 96 + number, 80, chroma), number.into())
    });
    let files = files.collect::<Vec<_>>();
    for (seed, group) in [2, 7, 16].into_iter().enumerate() {
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        machine.schedule(Schedule::Random(seed as u64));
        let make = || {
            let builder =
                builder(files.clone(), training()).last_batch(LastBatch::Partial).epochs(Some(2));
            builder.num_workers(4).configure(|it| {
                it.decode.routes = vec![Route::NvjpegHardware];
                it.decode.hardware_group = Some(group);
            })
        };
        let loader = same(make, &format!("{group} images per call"));
        let stats = loader.stats();
        assert_eq!(stats.outcomes["nvjpeg-hardware"], 200, "{stats:?}");
        assert_eq!(machine.mixed_calls(), 0, "{group}");
    }
}

/// If calls of the engines do not end, only the images of these calls are delayed. Kernels are
/// launched for all other images.
#[test]
fn a_slow_call_of_the_engines_delays_no_other_image() {
    let Some(machine) = machine() else { return };
    const GROUP: usize = 2;
    for hopper in [true, false] {
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        machine.hopper(hopper);
        machine.schedule(Schedule::Eager);
        let make = || {
            let builder = builder(jpegs(60), training()).prefetch(8).epochs(Some(2));
            builder.configure(|it| {
                it.decode.routes = vec![Route::NvjpegHardware, Route::Cpu];
                it.decode.hardware_group = Some(GROUP);
            })
        };
        machine.hold_engines();
        let before = machine.samples_run();
        let gpu = || make().device(DeviceChoice::Gpu(0)).runtime(&runtime());
        let mut loader = gpu().build().unwrap();
        // The loader must process all images that fit into the slots, except the images of the two
        // calls that do not end, and those that are gathered for the next call.
        let begun = 4 * loader.plan().slots();
        let expected = (begun - 3 * GROUP) as u64;
        assert!(expected >= 24, "{begun}");
        let (begin, mut run) = (Instant::now(), 0);
        while run < expected && begin.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
            run = machine.samples_run() - before;
        }
        // Lets the calls end before the loader is dropped, because dropping waits for them.
        machine.end_work();
        assert!(run >= expected, "hopper {hopper}: {run} of {expected} samples");
        let expected = epochs(&mut on_cpu(make()).build().unwrap());
        let delivered = epochs(&mut loader);
        assert!(expected.iter().map(|it| &it.1).eq(delivered.iter().map(|it| &it.1)));
        assert!(loader.stats().outcomes["nvjpeg-hardware"] > 0, "{:?}", loader.stats());
        drop(loader);
        assert_clean(&machine, "end");
    }
}

/// The engines skip some images. The page of a skipped image still contains the previous image, so
/// the loader must decode the skipped image on the CPU.
#[test]
fn an_image_that_the_engines_skip_is_made_on_the_cpu_and_counted() {
    let Some(machine) = machine() else { return };
    let schedules = [Schedule::Lazy, Schedule::Eager, Schedule::Random(51), Schedule::Random(52)];
    for (schedule, hopper) in schedules.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        for every in [1, 3, 17] {
            machine.restart();
            machine.set_decoder(Some(libjpeg));
            machine.schedule(schedule);
            machine.hopper(hopper);
            machine.skipping(every);
            let make = || {
                let builder =
                    builder(jpegs(40), training()).last_batch(LastBatch::Partial).epochs(Some(2));
                builder.num_workers(3).configure(|it| {
                    it.decode.routes = vec![Route::NvjpegHardware];
                    it.decode.hardware_group = Some(7);
                })
            };
            let what = format!("{schedule:?} hopper {hopper}, every {every}");
            let loader = same(make, &what);
            let stats = loader.stats();
            let skipped = stats.cpu_fallback["nvJPEG skipped it and reported success"];
            assert_eq!(skipped, 80 / u64::from(every), "{what}: {stats:?}");
            assert_eq!(stats.outcomes["nvjpeg-hardware"], 80 - skipped, "{what}: {stats:?}");
            // After the first skipped image, each call has only one image.
            let calls = machine.calls("nvjpegDecodeBatchedEx");
            assert!(calls > 80 - 4 * 7, "{what}: {calls}");
        }
    }
}

/// Calls of the engines end at random times, fail, and skip images.
#[test]
fn failing_and_skipping_calls_change_no_byte_and_are_counted() {
    let Some(machine) = machine() else { return };
    for seed in 0..6 {
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        machine.schedule(Schedule::Random(60 + seed));
        machine.hopper(seed % 2 == 0);
        machine.skipping(4 + seed as u32);
        // The first failure affects a whole group. The later ones affect calls in which the images
        // of a failed group are decoded one by one.
        for nth in [1, 3, 4, 11] {
            machine.fail("nvjpegDecodeBatchedEx", nth, LAUNCH_FAILED);
        }
        let make = || {
            let builder =
                builder(jpegs(40), training()).last_batch(LastBatch::Partial).epochs(Some(2));
            builder.num_workers(3).configure(|it| {
                it.decode.routes = vec![Route::NvjpegHardware];
                it.decode.hardware_group = Some(5);
            })
        };
        let stats = same(make, &format!("seed {seed}")).stats();
        let on_cpu: u64 = stats.cpu_fallback.values().sum();
        assert_eq!(stats.outcomes["nvjpeg-hardware"] + on_cpu, 80, "{stats:?}");
        assert_eq!(stats.outcomes["cpu"], on_cpu, "{stats:?}");
        assert!(stats.cpu_fallback["nvJPEG skipped it and reported success"] >= 5, "{stats:?}");
        assert!(stats.cpu_fallback["nvJPEG failed at it: execution failed"] >= 1, "{stats:?}");
        assert_eq!(machine.counts().injected, 4);
    }
}

/// Memory is measured with a trial image before the start. A real image may need larger buffers.
#[test]
fn images_that_need_more_memory_than_was_measured_change_no_byte_and_are_counted() {
    let Some(machine) = machine() else { return };
    for route in [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid] {
        for (factor, seed) in [(2, 70), (30, 71), (3000, 72)] {
            machine.restart();
            machine.set_decoder(Some(libjpeg));
            machine.schedule(Schedule::Random(seed));
            machine.nvjpeg_memory_factors(factor, 1);
            let make = || {
                let builder =
                    builder(jpegs(40), training()).last_batch(LastBatch::Partial).epochs(Some(2));
                builder.num_workers(3).configure(|it| {
                    it.decode.routes = vec![route];
                    it.decode.hardware_group = Some(5);
                })
            };
            let stats = same(make, &format!("{route:?} {factor}")).stats();
            let decoded = stats.outcomes.get(route.name()).copied().unwrap_or(0);
            let on_cpu: u64 = stats.cpu_fallback.values().sum();
            assert_eq!(decoded + on_cpu, 80, "{route:?} {factor}: {stats:?}");
            if factor == 3000 {
                assert_eq!(
                    stats.cpu_fallback["nvJPEG's memory has no room for it"], 80,
                    "{route:?}"
                );
            }
        }
    }
}

/// Files that the engines refuse are decoded on the CPU. If nvJPEG reports the refusal in advance
/// (`admitted` is false), no call fails. Otherwise calls fail until the loader has learned that the
/// engines refuse files with this chroma subsampling.
#[test]
fn a_class_of_files_that_the_engines_refuse_is_remembered() {
    let Some(machine) = machine() else { return };
    use SamplingFactor::{F_1_2, F_2_2};
    let files = (0..100u32).map(|number| {
        let chroma = if number % 3 == 0 { F_1_2 } else { F_2_2 };
        (sampled_jpeg(number.into(), 96, 80, Some(chroma)), number.into())
    });
    let files = files.collect::<Vec<_>>();
    for (seed, admitted) in [(0, false), (1, true), (2, true)] {
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        machine.schedule(Schedule::Random(90 + seed));
        machine.refusing(0x12, admitted);
        let make = || {
            let builder =
                builder(files.clone(), training()).last_batch(LastBatch::Partial).epochs(Some(2));
            builder.num_workers(3).configure(|it| {
                it.decode.routes = vec![Route::NvjpegHardware];
                it.decode.hardware_group = Some(7);
            })
        };
        let stats = same(make, &format!("admitted {admitted}")).stats();
        let reasons = &stats.cpu_fallback;
        let [told, tried] =
            ["nvJPEG's engines do not support it", "nvJPEG refused it: not supported"]
                .map(|why| reasons.get(why).copied().unwrap_or(0));
        assert_eq!((told + tried, stats.outcomes["nvjpeg-hardware"]), (68, 132), "{stats:?}");
        // Files with the refused sampling factors are tried alone three times. Images that were
        // gathered before the third refusal are tried too.
        assert!(if admitted { (3..=30).contains(&tried) } else { tried == 0 }, "{stats:?}");
        // The 100 images have only two kinds of sampling factors, so nvJPEG is queried only twice.
        assert_eq!(machine.calls("nvjpegDecodeBatchedSupportedEx"), 2, "{stats:?}");
    }
}

/// A call takes equally long if some of the engines are idle. So a call has at most one image per
/// engine, or a multiple of the number of engines.
#[test]
fn calls_have_as_many_images_as_there_are_engines_or_a_multiple() {
    let Some(machine) = machine() else { return };
    machine.set_decoder(Some(libjpeg));
    machine.hardware_engines(5);
    let make = || {
        let builder = builder(jpegs(300), training()).last_batch(LastBatch::Partial).prefetch(40);
        builder.num_workers(4).configure(|it| {
            it.decode.routes = vec![Route::NvjpegHardware];
            it.decode.hardware_group = Some(12);
        })
    };
    let loader = same(make, "five engines");
    assert_eq!(loader.stats().outcomes["nvjpeg-hardware"], 600);
    // With five engines, no call may have 6 to 9, 11 or 12 images.
    let sizes = machine.call_sizes();
    let odd = sizes.iter().filter(|(size, _)| **size > 5 && **size % 5 != 0);
    assert_eq!(odd.count(), 0, "{sizes:?}");
}

/// If nvJPEG cannot parse a file, the engines still decode other files with the same chroma
/// subsampling.
#[test]
fn one_unusual_file_does_not_keep_its_class_from_the_engines() {
    let Some(machine) = machine() else { return };
    machine.set_decoder(Some(libjpeg));
    // In the first run, nvJPEG cannot parse one of the files. In the second run, it refuses one of
    // the files.
    for function in ["nvjpegJpegStreamParseHeader", "nvjpegDecodeBatchedSupportedEx"] {
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        machine.fail(function, 1, LAUNCH_FAILED);
        let make = || {
            let builder =
                builder(jpegs(40), training()).last_batch(LastBatch::Partial).epochs(Some(2));
            builder.num_workers(3).configure(|it| {
                it.decode.routes = vec![Route::NvjpegHardware];
                it.decode.hardware_group = Some(5);
            })
        };
        let stats = same(make, function).stats();
        assert_eq!(stats.outcomes["nvjpeg-hardware"], 80, "{function}: {stats:?}");
        assert_eq!(machine.counts().injected, 1);
    }
}
