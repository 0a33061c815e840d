//! Whole epochs on the device path with a simulated driver. The loader, its launcher and the source
//! text of the kernels are the real ones. The CPU decoder replaces nvJPEG, so all bits can be
//! compared with the CPU path.
//!
//! The simulated streams run queued work as late, or in as random an order, as CUDA's rules allow.
//! A missing wait therefore shows as a wrong batch.

#![allow(unsafe_code, reason = "batches are copied as users of cudarc copy them")]

mod architectures;
mod bad_images;
mod batch_operators;
mod columns;
mod device_cache;
mod devices;
mod hardware;
mod held;
mod launches;
mod masks;
mod one_hot;
mod own_decoder;
mod passes;
mod programs;
mod routes;
mod views;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{
    self, Invert, SamplingFactor, evaluation, jpegs, sampled_jpeg, some_of, training,
};
use crate::machine;
use crate::simulated::images::{assert_clean, libjpeg};
use crate::simulated::{self, LAUNCH_FAILED, Schedule, runtime};
use feedwater::error::{DataError, Error, Reason};
use feedwater::footprint::{Footprint, Memory as MemoryKind};
use feedwater::gpu::{Device, Stream};
use feedwater::internals::gpu::DevicePool;
use feedwater::internals::gpu::nvjpeg::Backend;
use feedwater::internals::measure::trace_bytes;
use feedwater::internals::plan::Place;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder, SampleRecord};
use feedwater::op::{self, Chain, Placement};
use feedwater::plan::{LastBatch, OnError, Route};
use feedwater::source::custom::{Fields, Heads, Hints, Page};
use feedwater::source::{Memory, Source};
use feedwater::testing::check_operator;
use serde_json::Value;

fn builder(samples: Vec<(Vec<u8>, i64)>, chain: Chain) -> LoaderBuilder {
    settled(Loader::builder(Memory::new(samples).unwrap(), chain))
}

fn settled(builder: LoaderBuilder) -> LoaderBuilder {
    builder
        .batch_size(4)
        .num_workers(2)
        .configure(|it| it.loader.tune = false)
        .shuffle(true)
        .seed(3)
}

fn jitter() -> op::ColorJitter {
    let around = |by: f64| Some([1.0 - by, 1.0 + by]);
    op::ColorJitter {
        brightness: around(0.4),
        contrast: around(0.4),
        saturation: around(0.4),
        hue: Some([-0.1, 0.1]),
    }
}

/// A source whose hints report slow reads in random order, so a plan inspects only few samples.
struct SlowShuffled<S>(S);

impl<S: Source> Source for SlowShuffled<S> {
    common::wraps!(self.0);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.0.read(index, page, limit)
    }

    fn fields(&self) -> Option<&dyn Fields> {
        self.0.fields()
    }

    // Without `heads`, a plan cannot read headers separately.
    fn heads(&self) -> Option<&dyn Heads> {
        None
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl<S: Source> Hints for SlowShuffled<S> {
    fn slow_shuffled(&self) -> Option<String> {
        Some("read it in order".into())
    }
}

/// Runs two epochs and returns the records and bytes of every batch.
fn epochs(loader: &mut Loader) -> Vec<(Vec<SampleRecord>, Vec<u8>)> {
    let mut all = Vec::new();
    for _ in 0..2 {
        for batch in &mut *loader {
            let batch = batch.unwrap();
            let bytes = batch.to_host().unwrap();
            assert_eq!(batch.host().is_some(), batch.device_ptr().is_none());
            all.push((batch.samples().to_vec(), bytes));
        }
    }
    all
}

/// Changes a loader so that it decodes on the CPU.
fn on_cpu(builder: LoaderBuilder) -> LoaderBuilder {
    builder.configure(|it| it.decode.placement = Placement::Cpu).device(DeviceChoice::Cpu)
}

/// Checks that a loader on the device gives the same batches as a loader on the CPU. Only the
/// decode routes of the samples may differ. Returns the loader on the device.
fn same(make: impl Fn() -> LoaderBuilder, what: &str) -> Loader {
    let cpu = epochs(&mut on_cpu(make()).build().unwrap());
    let mut loader = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
    assert!(loader.plan().uses_gpu(), "{what}");
    let gpu = epochs(&mut loader);
    assert_eq!(cpu.len(), gpu.len(), "{what}");
    for (number, (cpu, gpu)) in cpu.iter().zip(&gpu).enumerate() {
        let without_outcome =
            |it: &SampleRecord| (it.index, it.label, it.size, it.trace, it.replaces, it.padding);
        let (left, right) = (cpu.0.iter().map(without_outcome), gpu.0.iter().map(without_outcome));
        assert!(left.eq(right), "{what}: records of batch {number}");
        assert!(cpu.1 == gpu.1, "{what}: bytes of batch {number}");
    }
    loader
}

/// Returns lists of routes: each route alone, and all routes together.
fn routes() -> Vec<Vec<Route>> {
    Route::ALL.into_iter().map(|route| vec![route]).chain([Route::ALL.to_vec()]).collect()
}

#[test]
fn an_operator_without_cuda_text_runs_on_the_cpu_and_later_ones_on_the_gpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(1));
    let chain = || {
        Chain::new()
            .then(op::Resize::to(24, 16))
            .then(Invert)
            .then(op::Flip { horizontal: 0.5, vertical: 0.0 })
            .then(op::Normalize::IMAGENET)
    };
    let loader = same(|| builder(jpegs(10), chain()), "resize, invert, flip, normalize");
    assert_eq!((loader.plan().decode, loader.plan().cpu_steps()), (Place::Cpu, 2));
    let text = loader.plan().to_string();
    let reason = text.lines().find(|line| line.starts_with("reason")).unwrap();
    for value in ["invert", "chain[1]", "CUDA"] {
        assert!(reason.contains(value), "{value}: {reason}");
    }
    // The chain's last operator runs only on the CPU, so no operator remains for the GPU.
    let all = builder(jpegs(10), Chain::new().then(op::Resize::to(24, 16)).then(Invert));
    assert!(!all.device(DeviceChoice::Gpu(0)).build().unwrap().plan().uses_gpu());
}

#[test]
fn the_harness_for_operators_compares_the_device_too() {
    let Some(_machine) = machine() else { return };
    let report = check_operator(op::Flip { horizontal: 0.5, vertical: 0.5 }).unwrap();
    assert_eq!((report.no_host_kernel, report.no_device), (None, None));
}

/// There are more images than pages, and the prefetched batches need more pages than there are. So
/// each page is reused while work on it is still queued. The simulated hardware engines write
/// either during the call or in stream order.
#[test]
fn whole_epochs_equal_the_cpu_bit_for_bit_on_every_route_and_schedule() {
    let Some(machine) = machine() else { return };
    let schedules = [Schedule::Eager, Schedule::Lazy, Schedule::Random(1), Schedule::Random(2)];
    let cases = routes().into_iter().flat_map(|routes| {
        schedules.map(|schedule| (routes.clone(), schedule, schedule != Schedule::Random(2)))
    });
    for (routes, schedule, hopper) in cases {
        let what = format!("{routes:?} {schedule:?} hopper {hopper}");
        machine.schedule(schedule);
        machine.hopper(hopper);
        // The route `cpu` decodes on the CPU, so only the operators run on the GPU.
        let gpu = if routes == [Route::Cpu] { Placement::Cpu } else { Placement::Gpu };
        let make = || {
            let builder = builder(jpegs(58), training())
                .last_batch(LastBatch::Pad)
                .num_workers(3)
                .prefetch(20);
            builder.configure(|it| {
                it.decode.placement = gpu;
                it.decode.routes = routes.clone();
            })
        };
        let loader = same(make, &what);
        let stats = loader.stats();
        let by_routes: u64 = routes.iter().map(|route| stats.outcomes[route.name()]).sum();
        assert_eq!((by_routes, stats.cpu_fallback.len()), (116, 0), "{what}: {stats:?}");
        drop(loader);
        assert_clean(&machine, &what);
    }
}

#[test]
fn every_dtype_layout_and_chain_equals_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(7));
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for layout in Layout::ALL {
            let make = || builder(jpegs(8), evaluation()).output(dtype, layout);
            same(make, &format!("{dtype} {layout}"));
        }
    }
    let bytes = || {
        Chain::new().then(op::Resize::to(17, 23)).then(op::Flip { vertical: 1.0, horizontal: 0.0 })
    };
    same(|| builder(jpegs(8), bytes()).output(DType::U8, Layout::Nhwc), "u8");
}

/// All images are decoded on the CPU, and none, one or two of the three operators run there too.
/// The uploaded images are therefore bytes or, after `Normalize`, floats.
#[test]
fn every_placement_equals_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(9));
    let chain = |cpu: usize| {
        let place = |number| if number < cpu { Placement::Cpu } else { Placement::Auto };
        Chain::new()
            .then_on(place(0), op::RandomResizedCrop::to(19, 21))
            .then_on(place(1), op::Normalize::IMAGENET)
            .then_on(place(2), op::Flip { horizontal: 0.5, vertical: 0.5 })
    };
    for cpu in 0..3 {
        let loader = same(
            || builder(jpegs(10), chain(cpu)).configure(|it| it.decode.placement = Placement::Cpu),
            &format!("decode and {cpu} operators on the cpu"),
        );
        let stats = loader.stats();
        assert_eq!((stats.outcomes["cpu"], stats.cpu_fallback.len()), (16, 0));
    }
    let all = || builder(jpegs(10), chain(3)).device(DeviceChoice::Gpu(0)).runtime(&runtime());
    let loader = all().build().unwrap();
    assert!(
        !loader.plan().uses_gpu(),
        "the batches of a chain that runs only on the cpu must be in host memory"
    );
}

#[test]
fn orientations_are_applied_in_the_kernel() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(5));
    let samples = || {
        (1..=8u8)
            .map(|orientation| {
                let jpeg = common::jpeg(u64::from(orientation), 41, 29);
                (with_orientation(&jpeg, orientation), i64::from(orientation))
            })
            .collect::<Vec<_>>()
    };
    same(|| builder(samples(), training()), "eight orientations");
}

/// Inserts an EXIF segment after the JPEG's first marker.
fn with_orientation(jpeg: &[u8], value: u8) -> Vec<u8> {
    let mut exif =
        b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([value, 0, 0, 0, 0, 0, 0, 0]);
    [&jpeg[..2], &exif, &jpeg[2..]].concat()
}

fn damaged() -> Vec<(Vec<u8>, i64)> {
    let mut all = jpegs(16);
    all[5].0.truncate(150);
    all[10].0 = b"no image".to_vec();
    all
}

/// The predicted memory is exactly what is allocated at the start. Nothing is allocated later.
#[test]
fn memory_equals_the_plan() {
    let Some(machine) = machine() else { return };
    let mut loader = builder(jpegs(16), training())
        .device(DeviceChoice::Gpu(0))
        .runtime(&runtime())
        .build()
        .unwrap();
    let taken = machine.counts();
    epochs(&mut loader);
    let after = machine.counts();
    assert_eq!(taken.device.peak_bytes, after.device.peak_bytes);
    assert_eq!(taken.pinned.peak_bytes, after.pinned.peak_bytes);
    let memory = loader.stats().memory;
    assert_eq!(memory.device_bytes_predicted, after.device.bytes);
    assert_eq!(memory.pinned_bytes_predicted, after.pinned.bytes);
    assert!(memory.device_bytes_peak <= memory.device_bytes_predicted);
}

#[test]
fn a_trace_has_the_threads_of_the_device_in_its_row_and_an_arrow_for_every_batch() {
    let Some(_machine) = machine() else { return };
    for routes in routes() {
        let builder = builder(jpegs(20), training()).epochs(Some(2)).trace(500);
        let builder = builder.configure(|it| it.decode.routes = routes.clone());
        let builder = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime());
        let mut loader = builder.build().unwrap();
        epochs(&mut loader);
        let row = loader.footprint().row("trace").unwrap();
        let threads = loader.measured().by_thread.len() as u64;
        assert_eq!(row.total_bytes(), trace_bytes(500, threads), "{routes:?}");
        let mut text = Vec::new();
        loader.trace_json(&mut text).unwrap();
        let trace: Value = serde_json::from_slice(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let count = |key: &str, value: &str| events.iter().filter(|it| it[key] == value).count();
        assert_eq!((count("ph", "s"), count("ph", "f")), (10, 10), "{routes:?}");
        assert_eq!(count("name", "read"), 40, "{routes:?}");
        assert!(count("name", "kernel") > 0, "{routes:?}");
    }
}

/// The consumer may drop a batch while its training step is still queued. The slot must not be
/// refilled before the step is done.
#[test]
fn a_batch_may_be_dropped_before_the_work_on_it_has_run() {
    let Some(machine) = machine() else { return };
    let make = || builder(jpegs(40), training()).prefetch(1).epochs(Some(1));
    let cpu: Vec<Vec<u8>> = make()
        .device(DeviceChoice::Cpu)
        .build()
        .unwrap()
        .epoch()
        .map(|batch| batch.unwrap().to_host().unwrap())
        .collect();
    for schedule in
        [Schedule::Lazy, Schedule::Random(21), Schedule::Random(22), Schedule::Random(23)]
    {
        machine.schedule(schedule);
        let device = Device::open_with(0, &runtime()).unwrap();
        device.bind().unwrap();
        let stream = Arc::new(Stream::new(&device).unwrap());
        let mut rows = Footprint::default();
        rows.add(MemoryKind::Device, "copies", cpu[0].len() as u64, cpu.len() as u64, "");
        let pool = DevicePool::take(&device, &rows).unwrap();
        let copies: Vec<_> =
            cpu.iter().map(|it| pool.buffer("copies", it.len()).unwrap()).collect();
        let mut loader = make().stream(stream.clone()).build().unwrap();
        for (batch, copy) in loader.epoch().zip(&copies) {
            let batch = batch.unwrap();
            let (source, target) = (batch.device_ptr().unwrap(), copy.address());
            // SAFETY: `source` and `target` are device memory with this many bytes. The batch is
            // alive while the copy is queued, as required. The target lives until the stream is
            // empty.
            unsafe {
                let stream = stream.raw().cast();
                let bytes = batch.shape().bytes();
                cudarc::driver::result::memcpy_dtod_async(target, source, bytes, stream).unwrap();
            }
        }
        for (number, (copy, cpu)) in copies.iter().zip(&cpu).enumerate() {
            let mut bytes = vec![0; cpu.len()];
            feedwater::internals::gpu::read_back(&stream, copy, 0, &mut bytes).unwrap();
            assert!(bytes == *cpu, "batch {number}, {schedule:?}");
        }
    }
}

/// Runs a loader with the smallest valid memory limits, which are read from the error message for
/// limits of 0. The batches have the same bytes as without limits, and the loader needs less
/// memory.
#[test]
fn memory_limits_change_no_byte() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(31));
    let make = || builder(jpegs(18), training()).prefetch(3).last_batch(LastBatch::Pad);
    let on_gpu = || make().device(DeviceChoice::Gpu(0)).runtime(&runtime());
    let error = on_gpu()
        .configure(|it| {
            it.limits.device_memory = Some(0);
            it.limits.pinned_memory = Some(0);
        })
        .build()
        .err()
        .unwrap();
    let text = error.to_string();
    // All limits are 0. So the largest number after a key in the error message is the smallest
    // valid limit.
    let smallest = |key: &str| {
        let (_, rest) = text.split_once(key).unwrap();
        let line = rest.split("limits.").next().unwrap().lines().next().unwrap();
        let words = line.split_whitespace().map(|word| word.trim_end_matches([',', ';', ':']));
        words.filter_map(|word| word.parse::<u64>().ok()).max().unwrap()
    };
    let [device, pinned] = ["limits.device_memory", "limits.pinned_memory"].map(smallest);
    let limited = same(
        || {
            make().configure(|it| {
                it.limits.device_memory = Some(device);
                it.limits.pinned_memory = Some(pinned);
            })
        },
        "least",
    );
    assert!(limited.plan().reductions.iter().any(|it| it.name == "prefetch"));
    let memory = limited.stats().memory;
    assert_eq!((memory.device_bytes_predicted, memory.pinned_bytes_predicted), (device, pinned));
    let free = on_gpu().build().unwrap().stats().memory;
    assert!(free.device_bytes_predicted > device && free.pinned_bytes_predicted > pinned);
}

/// Each loader has its own runtime and compiles its own kernels. All loaders produce equal batches.
#[test]
fn concurrent_loaders_store_kernels_in_the_directory_of_their_runtime() {
    let Some(machine) = machine() else { return };
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let before = machine.compilations();
    let mut loaders = directories.each_ref().map(|directory| {
        let runtime = runtime().with_cache_directory(directory.path());
        let builder = builder(jpegs(8), training()).device(DeviceChoice::Gpu(0));
        builder.runtime(&runtime).build().unwrap()
    });
    let is_kernel = |it: &fs::DirEntry| it.path().extension().is_some_and(|it| it == "cubin");
    let kept = directories.each_ref().map(|it| {
        fs::read_dir(it.path()).unwrap().filter(|it| is_kernel(it.as_ref().unwrap())).count()
    });
    assert!(kept[0] > 0 && kept[0] == kept[1], "{kept:?}");
    assert_eq!(machine.compilations() - before, kept.iter().sum::<usize>() as u64);
    let [one, other] = loaders.each_mut().map(Loader::epoch);
    for (one, other) in one.zip(other) {
        let [one, other] = [one, other].map(|batch| batch.unwrap().to_host().unwrap());
        assert!(one == other);
    }
}
