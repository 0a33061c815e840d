//! The cache of files in device memory (`cache.device`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use feedwater::error::ConfigError;
use feedwater::loader::CacheStats;

/// Samples that count how often each of them is read.
struct Counted {
    samples: Memory,
    reads: Arc<Vec<AtomicU64>>,
}

impl Source for Counted {
    common::wraps!(self.samples);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.reads[index as usize].fetch_add(1, Ordering::Relaxed);
        self.samples.read(index, page, limit)
    }
    fn fields(&self) -> Option<&dyn Fields> {
        self.samples.fields()
    }
    // Without `heads`, a plan reads headers with `read`.
    fn heads(&self) -> Option<&dyn Heads> {
        None
    }
}

/// Decodes on the route `feedwater` for three epochs, with `device` bytes for files in device
/// memory.
fn cached(builder: LoaderBuilder, device: u64) -> LoaderBuilder {
    let builder = builder.last_batch(LastBatch::Partial).epochs(Some(3));
    builder.configure(|it| {
        it.decode.routes = vec![Route::Feedwater];
        it.decode.hardware_group = Some(5);
        it.cache.device = Some(device);
    })
}

fn on_device(builder: LoaderBuilder) -> Loader {
    builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap()
}

/// Runs all epochs of a loader on the CPU and of one on the device, and compares their batches.
fn compare(make: impl Fn() -> LoaderBuilder, what: &str) -> Loader {
    let mut cpu = on_cpu(make()).build().unwrap();
    let mut gpu = on_device(make());
    for epoch in 0..3 {
        let (cpu, gpu) = (cpu.epoch(), gpu.epoch());
        for (number, (cpu, gpu)) in cpu.zip(gpu).enumerate() {
            let (cpu, gpu) = (cpu.unwrap(), gpu.unwrap());
            let facts = |it: &SampleRecord| (it.index, it.label, it.size, it.orientation, it.trace);
            assert!(cpu.samples().iter().map(facts).eq(gpu.samples().iter().map(facts)), "{what}");
            let (cpu, gpu) = (cpu.to_host().unwrap(), gpu.to_host().unwrap());
            assert!(cpu == gpu, "{what}: batch {number} of epoch {epoch}");
        }
    }
    gpu
}

fn device_stats(loader: &Loader) -> CacheStats {
    loader.stats().caches.into_iter().find(|it| it.cache == "device").unwrap()
}

/// JPEGs of most chroma subsamplings and orientations, some with Huffman tables of their own or
/// with restart markers. Every twelfth image is a PNG, and another one progressive; these are
/// decoded on the CPU.
fn files() -> Vec<(Vec<u8>, i64)> {
    let factors = [
        None,
        Some(SamplingFactor::F_1_1),
        Some(SamplingFactor::F_2_1),
        Some(SamplingFactor::F_1_2),
        Some(SamplingFactor::F_2_2),
    ];
    let file = |seed: u64| {
        let (width, height) = (33 + (seed * 13 % 57) as u32, 31 + (seed * 11 % 43) as u32);
        let file = match seed % 12 {
            5 => return common::png(seed, width, height),
            8 => return common::progressive(seed, width, height),
            3 => common::jpeg_with_restarts(seed, width, height),
            _ => sampled_jpeg(seed, width, height, factors[seed as usize % 5]),
        };
        let own_tables = seed.is_multiple_of(2);
        let file =
            if own_tables { feedwater_tools::synth::optimized(&file).unwrap() } else { file };
        common::with_orientation(&file, 1 + (seed / 3 % 8) as u16)
    };
    (0..48).map(|seed| (file(seed), seed as i64)).collect()
}

/// The third epoch reads no file that is kept, and all batches are those of the CPU.
#[test]
fn files_on_the_device_are_not_read_again() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(21));
    for (name, chain) in [("training", training()), ("evaluation", evaluation())] {
        let reads = Arc::new(Vec::from_iter((0..48).map(|_| AtomicU64::new(0))));
        let make = |reads: &Arc<Vec<AtomicU64>>| {
            let samples = Memory::new(files()).unwrap();
            let source = Counted { samples, reads: reads.clone() };
            cached(settled(Loader::builder(source, chain.clone())), 1 << 20)
        };
        let others = Arc::new(Vec::from_iter((0..48).map(|_| AtomicU64::new(0))));
        let mut cpu = on_cpu(make(&others)).build().unwrap();
        let mut gpu = on_device(make(&reads));
        for _ in 0..3 {
            for (cpu, gpu) in cpu.epoch().zip(gpu.epoch()) {
                let (cpu, gpu) = (cpu.unwrap().to_host(), gpu.unwrap().to_host());
                assert!(cpu.unwrap() == gpu.unwrap(), "{name}");
            }
        }
        let stats = gpu.stats();
        assert_eq!((stats.outcomes["feedwater"], stats.outcomes["cpu"]), (120, 24), "{stats:?}");
        let device = device_stats(&gpu);
        assert_eq!(device.samples, 40, "{device:?}");
        let last = device.epochs.last().unwrap();
        assert_eq!((last.epoch, last.hits, last.misses), (2, 40, 8), "{device:?}");
        for (seed, reads) in (0..).zip(&*reads) {
            let reads = reads.load(Ordering::Relaxed);
            match seed % 12 {
                // The plan has read each file once.
                5 | 8 => assert_eq!(reads, 1 + 3, "sample {seed}"),
                // A sample may be wanted for the second epoch before the first one has decoded it.
                _ => assert!((1 + 1..=1 + 2).contains(&reads), "sample {seed}: {reads}"),
            }
        }
        assert_eq!(stats.memory.device_bytes_peak, stats.memory.device_bytes_predicted);
        drop(gpu);
        assert_clean(&machine, name);
    }
}

/// If the memory is too small for all files, some are kept and the others are read in each epoch.
#[test]
fn a_full_cache_keeps_what_it_has() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(22));
    let all: usize = files().iter().map(|(file, _)| file.len()).sum();
    for bytes in [1, 2000, all as u64 / 3] {
        let loader = compare(|| cached(builder(files(), training()), bytes), "full");
        let device = device_stats(&loader);
        assert!(device.taken_bytes <= bytes && device.limit_bytes == bytes, "{device:?}");
        assert!(device.samples < 40 && (device.samples > 0) == (bytes >= 2000), "{device:?}");
        let last = device.epochs.last().unwrap();
        assert!(last.hits <= device.samples, "{device:?}");
        assert_eq!(last.hits > 0, bytes >= 2000, "{device:?}");
    }
}

/// A file whose data is damaged is never kept, and fails or is decoded on the CPU in each epoch.
#[test]
fn damaged_files_are_not_kept() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(23));
    let samples = || {
        let mut all = jpegs(24);
        for (file, _) in all.iter_mut().step_by(4) {
            let middle = file.len() * 2 / 3;
            file[middle..middle + 6].fill(0xfe);
        }
        all
    };
    for policy in [OnError::Substitute, OnError::Skip] {
        let make = || cached(builder(samples(), training()).on_error(policy), 1 << 20);
        let loader = compare(make, &format!("{policy:?}"));
        let device = device_stats(&loader);
        assert!((16..24).contains(&device.samples), "{device:?}");
        if policy == OnError::Skip {
            assert_eq!(3 * device.samples, loader.stats().outcomes["feedwater"], "{device:?}");
        }
        // What damaged files took was given back.
        let all: usize = samples().iter().map(|(file, _)| file.len()).sum();
        assert!(device.taken_bytes < all as u64, "{device:?}");
    }
}

/// Row indexes that are given are used for files on the device too, and views read their planes.
#[test]
fn indexes_views_and_reductions_work_with_files_on_the_device() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(24));
    let view =
        || Chain::new().then(op::RandomResizedCrop::to(15, 13)).then(op::Normalize::IMAGENET);
    let with_view = || training().view(op::View::new("other", view()).count(2));
    let indexed = || {
        let builder = cached(builder(files(), training()), 1 << 20);
        builder.configure(|it| it.cache.row_index = Some(1 << 20))
    };
    compare(indexed, "row indexes");
    let views = compare(|| cached(builder(files(), with_view()), 1 << 20), "views");
    assert_eq!(device_stats(&views).epochs.last().unwrap().hits, 40);
    let large = || {
        let of = |seed| (sampled_jpeg(seed, 200, 180, Some(SamplingFactor::F_2_2)), 0);
        (0..12).map(of).collect::<Vec<_>>()
    };
    let reduced = || {
        let builder = cached(builder(large(), evaluation()), 1 << 20);
        builder.configure(|it| it.decode.prescale = true)
    };
    assert_eq!(device_stats(&compare(reduced, "prescale")).epochs.last().unwrap().hits, 12);
}

/// Samples that the CPU processes by choice are read again, although their files are on the device.
#[test]
fn a_choice_of_the_cpu_reads_the_files() {
    use feedwater::internals::plan::Offload;
    use feedwater::internals::tune::Choice;
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(25));
    let make = || cached(builder(jpegs(24), training()), 1 << 20);
    let mut cpu = on_cpu(make()).build().unwrap();
    let mut gpu = on_device(make().configure(|it| {
        it.loader.tune = true;
        it.decode.routes.push(Route::Cpu);
    }));
    for epoch in 0..3 {
        let places = gpu.plan().offloads.clone();
        let (cpu, gpu_loader) = (cpu.epoch(), &mut gpu);
        let choice = match epoch {
            1 => Offload::NOTHING,
            _ => *places.last().unwrap(),
        };
        gpu_loader.choose(Choice { offload: choice, ..gpu_loader.choice() }).unwrap();
        for (cpu, gpu) in cpu.zip(gpu_loader.epoch()) {
            let (cpu, gpu) = (cpu.unwrap().to_host(), gpu.unwrap().to_host());
            assert!(cpu.unwrap() == gpu.unwrap(), "epoch {epoch}");
        }
    }
    assert!(gpu.stats().outcomes["cpu"] > 0);
}

/// Profiles tell whether the cache is in effect, and which share of the files was not read.
#[test]
fn profiles_have_the_share_of_files_that_were_not_read() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(26));
    let make = || cached(builder(jpegs(24), training()), 1 << 20);
    let run = |builder: LoaderBuilder| {
        let mut loader = on_device(builder);
        (0..3).for_each(|_| loader.epoch().for_each(|batch| drop(batch.unwrap())));
        loader.profile()
    };
    let without = run(make().configure(|it| it.cache.device = None));
    assert_eq!((without.setup.cache_device, without.data.unread_share), (None, 0.0));
    assert!(without.setup.decodes_with_kernels);
    let with = run(make());
    assert_eq!(with.setup.cache_device, Some(1 << 20));
    // The second epoch reads at most the files that the first one has not decoded yet.
    assert!((0.33..0.67).contains(&with.data.unread_share), "{:?}", with.data);
}

#[test]
fn settings_without_effect_are_errors() {
    let Some(_machine) = machine() else { return };
    let make = || cached(builder(jpegs(8), training()), 1 << 20);
    let refused = |builder: LoaderBuilder| -> ConfigError {
        let built = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build();
        match built.err().unwrap() {
            Error::Config(error) => error,
            error => panic!("{error}"),
        }
    };
    for (builder, word) in [
        (make().configure(|it| it.decode.routes = vec![Route::NvjpegGpu]), "feedwater"),
        (make().configure(|it| it.decode.placement = Placement::Cpu), "feedwater"),
        (
            make().configure(|it| {
                it.cache.decoded = Some(1 << 20);
                it.decode.routes.push(Route::Cpu);
            }),
            "cache.decoded",
        ),
        (make().configure(|it| it.cache.device = Some(0)), "at least 1"),
    ] {
        let error = refused(builder);
        assert_eq!(error.key, "cache.device");
        assert!(error.problem.contains(word), "{word}: {error}");
    }
    // Without a GPU, nothing is kept on one.
    assert!(on_cpu(make()).build().is_ok());
}
