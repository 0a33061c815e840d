//! The route of feedwater's own decoder. Its kernels run for real, compiled for the host.

use super::*;

/// Decodes on the route `feedwater` only, with `group` images per call.
fn only_feedwater(builder: LoaderBuilder, group: usize) -> LoaderBuilder {
    builder.configure(|it| {
        it.decode.routes = vec![Route::Feedwater];
        it.decode.hardware_group = Some(group);
    })
}

#[test]
fn batches_equal_the_cpus_for_each_size_of_a_call() {
    let Some(machine) = machine() else { return };
    machine.set_decoder(Some(|_, _, _| panic!("nvJPEG was called")));
    for (seed, group) in [1, 2, 7, 16].into_iter().enumerate() {
        machine.schedule(Schedule::Random(seed as u64));
        for chain in [training(), evaluation()] {
            let make = || {
                let builder = builder(jpegs(40), chain.clone()).last_batch(LastBatch::Partial);
                only_feedwater(builder.epochs(Some(2)).num_workers(4), group)
            };
            let stats = same(make, &format!("{group} images per call")).stats();
            assert_eq!(stats.outcomes["feedwater"], 80, "{stats:?}");
            assert!(stats.cpu_fallback.is_empty(), "{stats:?}");
        }
    }
}

/// Images of most chroma subsamplings, with Huffman tables of their own, EXIF orientations, other
/// formats and progressive files among them. Only these last ones are decoded on the CPU.
#[test]
fn images_of_every_kind_equal_the_cpus() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(11));
    let factors = [
        None,
        Some(SamplingFactor::F_1_1),
        Some(SamplingFactor::F_2_1),
        Some(SamplingFactor::F_1_2),
        Some(SamplingFactor::F_2_2),
    ];
    let samples = || {
        let mut all = Vec::new();
        for (number, seed) in (0..48u64).enumerate() {
            let (width, height) = (33 + (seed * 13 % 57) as u32, 31 + (seed * 11 % 43) as u32);
            let mut file = sampled_jpeg(seed, width, height, factors[number % 5]);
            if number % 2 == 0 {
                file = feedwater_tools::synth::optimized(&file).unwrap();
            }
            match number % 12 {
                5 => file = common::png(seed, width, height),
                8 => file = common::progressive(seed, width, height),
                _ => file = common::with_orientation(&file, 1 + (seed / 3 % 8) as u16),
            }
            all.push((file, seed as i64));
        }
        all
    };
    let crop = || Chain::new().then(op::CenterCrop::to(21, 17)).then(op::Normalize::IMAGENET);
    for (name, chain) in [("training", training()), ("evaluation", evaluation()), ("crop", crop())]
    {
        let make = || {
            let builder = builder(samples(), chain.clone()).last_batch(LastBatch::Partial);
            only_feedwater(builder.epochs(Some(2)), 7)
        };
        let stats = same(make, name).stats();
        assert_eq!(stats.outcomes["feedwater"], 80, "{name}: {stats:?}");
        assert_eq!(stats.outcomes["cpu"], 16, "{name}: {stats:?}");
        let reasons: Vec<_> = stats.cpu_fallback.iter().collect();
        assert_eq!(reasons.len(), 2, "{name}: {reasons:?}");
    }
}

/// With `decode.prescale`, the kernels reduce images as the CPU does.
#[test]
fn reduced_images_equal_the_cpus() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(12));
    let samples = || {
        let sizes = [(100, 90), (190, 170), (400, 390), (223, 301)];
        let all = (0..16u64).map(|seed| {
            let (width, height) = sizes[seed as usize % 4];
            let factor = [Some(SamplingFactor::F_1_1), Some(SamplingFactor::F_2_2), None];
            (sampled_jpeg(seed, width, height, factor[seed as usize % 3]), seed as i64)
        });
        all.collect::<Vec<_>>()
    };
    let make = || {
        let builder = builder(samples(), evaluation()).last_batch(LastBatch::Partial);
        only_feedwater(builder.epochs(Some(2)), 5).configure(|it| it.decode.prescale = true)
    };
    let stats = same(make, "prescale").stats();
    assert_eq!(stats.outcomes["feedwater"], 32, "{stats:?}");
}

/// Damage that only the kernels find: the image is decoded on the CPU, counted with its reason, and
/// its neighbours in the call are not affected.
#[test]
fn images_with_damaged_data_are_decoded_on_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(13));
    let samples = || {
        let mut all = jpegs(24);
        for (file, _) in all.iter_mut().step_by(5) {
            let middle = file.len() * 2 / 3;
            file[middle..middle + 6].fill(0xfe);
        }
        all
    };
    for policy in [OnError::Substitute, OnError::Skip] {
        let make = || {
            let builder = builder(samples(), training()).last_batch(LastBatch::Partial);
            only_feedwater(builder.epochs(Some(2)).on_error(policy), 6)
        };
        let stats = same(make, &format!("{policy:?}")).stats();
        // Most of the damage is found by the kernels, some of it before.
        assert!(stats.outcomes["feedwater"] >= 38, "{stats:?}");
        let data: u64 = stats
            .cpu_fallback
            .iter()
            .filter(|(why, _)| why.contains("coded data"))
            .map(|(_, count)| count)
            .sum();
        let failed = stats.errors.values().sum::<u64>();
        assert!(data + failed >= 10, "{stats:?}");
    }
}

/// Views read the same planes as the main chain.
#[test]
fn views_read_the_planes_of_the_main_chain() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(14));
    let chain = || {
        let view = Chain::new()
            .then(op::RandomResizedCrop::to(15, 13))
            .then(jitter())
            .then(op::Normalize::IMAGENET);
        training().view(op::View::new("other", view).count(2))
    };
    let make = || {
        let builder = builder(jpegs(20), chain()).last_batch(LastBatch::Partial);
        only_feedwater(builder.epochs(Some(1)), 4)
    };
    let mut cpu = on_cpu(make()).build().unwrap();
    let mut gpu = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
    for (cpu, gpu) in cpu.epoch().zip(gpu.epoch()) {
        let (cpu, gpu) = (cpu.unwrap(), gpu.unwrap());
        assert!(cpu.to_host().unwrap() == gpu.to_host().unwrap());
        for (cpu, gpu) in cpu.columns().zip(gpu.columns()) {
            assert!(cpu.to_host().unwrap() == gpu.to_host().unwrap(), "{cpu:?}");
        }
    }
    assert_eq!(gpu.stats().outcomes["feedwater"], 20);
}

/// The route needs no nvJPEG.
#[test]
fn the_route_works_without_nvjpeg() {
    let Some(_machine) = machine() else { return };
    let without =
        runtime().with_library(feedwater::gpu::LibraryName::NvJpeg, "/there/is/no/libnvjpeg.so");
    let make = || only_feedwater(builder(jpegs(8), training()).epochs(Some(1)), 4);
    let mut loader = make().device(DeviceChoice::Gpu(0)).runtime(&without).build().unwrap();
    let mut cpu = on_cpu(make()).build().unwrap();
    for (cpu, gpu) in cpu.epoch().zip(loader.epoch()) {
        assert!(cpu.unwrap().to_host().unwrap() == gpu.unwrap().to_host().unwrap());
    }
    assert_eq!(loader.stats().outcomes["feedwater"], 8);
}

/// An epoch makes the row indexes, and the next one uses them, with the same bits. With the setting
/// it is the first epoch that makes them, by default the second one.
#[test]
fn row_indexes_are_made_and_used() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(15));
    for (setting, epochs) in [(Some(1 << 20), 2), (None, 3)] {
        let make = || {
            let builder = builder(jpegs(24), training()).last_batch(LastBatch::Partial);
            let builder = only_feedwater(builder.epochs(Some(epochs)), 5);
            builder.configure(|it| it.cache.row_index = setting)
        };
        let mut cpu = on_cpu(make()).build().unwrap();
        let mut gpu = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
        for epoch in 0..epochs {
            for (cpu, gpu) in cpu.epoch().zip(gpu.epoch()) {
                let (cpu, gpu) = (cpu.unwrap().to_host(), gpu.unwrap().to_host());
                assert!(cpu.unwrap() == gpu.unwrap(), "epoch {epoch}");
            }
        }
        let stats = gpu.stats();
        assert_eq!(stats.outcomes["feedwater"], 24 * u64::from(epochs), "{stats:?}");
        let cache = stats.caches.iter().find(|it| it.cache == "row_index").unwrap();
        assert_eq!((cache.samples, cache.rejected), (24, 0), "{cache:?}");
        // The next epoch may want a sample before its index is made.
        assert!((12..=24).contains(&cache.hits), "{cache:?}");
    }
}
