//! Runs device code on the simulated machine: kernels with planted errors, a long run of the
//! training chain, and every schedule of warps and blocks. `tests/device_code/run.sh` runs these
//! tests together with the other tests that launch kernels.

use crate::common::{
    SamplingFactor, evaluation, jpeg, jpeg_with_restarts, sampled_jpeg, tests_all_cases, training,
};
use crate::simulated::device_code::executes_device_code;
use crate::simulated::images::assert_clean;
use crate::simulated::{Schedule, Simulated, runtime};
use feedwater::footprint::{Footprint, Memory as MemoryKind};
use feedwater::gpu::{Device, Stream};
use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::kernel::FUSED;
use feedwater::internals::gpu::{DevicePool, Kernel, PinnedPool, Shape, Staged, fill};
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{self, Chain, Placement};
use feedwater::plan::{LastBatch, OnError, Route, Settings};
use feedwater::source::Memory;

fn machine() -> Option<Simulated> {
    assert!(executes_device_code(), "run tests/device_code/run.sh");
    crate::machine()
}

/// Launches a kernel with the statements `body` in one block of 64 threads. Returns the number of
/// memory faults and races. `words` points to 64 initialized words, `never` to 64 uninitialized
/// ones.
fn faults_of(machine: &Simulated, body: &str) -> u64 {
    let text = format!(
        "struct Sample {{ unsigned *words, *never; }};
         extern \"C\" __global__ void fused(const Sample* samples, int, int, int) {{
             const unsigned thread = threadIdx.x;
             unsigned *words = samples->words, *never = samples->never;
             __shared__ unsigned shared[64];
             {body}
         }}"
    );
    let device = Device::open_with(0, &runtime()).unwrap();
    let mut footprint = Footprint::default();
    footprint.add(MemoryKind::Device, "samples", 256, 1, "");
    footprint.add(MemoryKind::Pinned, "samples", 256, 1, "");
    footprint.add(MemoryKind::Device, "words", 256, 1, "");
    let memory = DevicePool::take(&device, &footprint).unwrap();
    let pinned = PinnedPool::take(&device, &footprint).unwrap();
    let words = memory.buffer("words", 256).unwrap();
    // The buffer `never` is an allocation of its own, so accesses beside it are outside of all
    // memory.
    let mut other = Footprint::default();
    other.add(MemoryKind::Device, "never", 256, 1, "");
    let never = DevicePool::take(&device, &other).unwrap().buffer("never", 256).unwrap();
    let stream = Stream::new(&device).unwrap();
    fill(&stream, &words, 0..256, 0).unwrap();
    let host = pinned.buffer("samples", 256).unwrap();
    let mut samples = Staged::new(host, memory.buffer("samples", 256).unwrap()).unwrap();
    let addresses = [words.address(), never.address()].map(u64::to_le_bytes).concat();
    samples.bytes().unwrap()[..16].copy_from_slice(&addresses);
    samples.upload(&stream, 0..16).unwrap();
    let kernel = Kernel::load(&device, &text, FUSED, 16).unwrap();
    let shape = Shape { grid: (1, 1, 1), block: (64, 1), shared_bytes: 0 };
    kernel.launch_shape(&stream, samples.device(), 0, 1, Size::new(1, 1), shape).unwrap();
    let waited = stream.synchronize();
    let faults = machine.expected_kernel_faults();
    assert_eq!(waited.is_err(), faults > 0, "a fault must be an error of the launch");
    faults
}

#[test]
#[ignore = "needs device code: tests/device_code/run.sh"]
fn planted_faults_are_seen() {
    let Some(machine) = machine() else { return };
    let exchange = |between: &str| {
        format!("shared[thread] = thread; {between} words[thread] = shared[63 - thread];")
    };
    for (body, faults) in [
        ("words[thread] = 2 * thread;".to_owned(), false),
        (exchange("__syncthreads();"), false),
        (exchange(""), true),
        ("if (thread < 9) __syncthreads();".to_owned(), true),
        ("words[thread] = shared[thread];".to_owned(), true),
        ("words[thread] = never[thread];".to_owned(), true),
        ("never[thread + 1] = thread;".to_owned(), true),
        (
            "((unsigned short*)never)[1] = 0; words[thread] = *(unsigned*)((char*)words + 2);"
                .to_owned(),
            true,
        ),
        ("words[thread / 2] = thread;".to_owned(), true),
    ] {
        for every_schedule in [false, true] {
            machine.every_schedule(every_schedule);
            assert_eq!(faults_of(&machine, &body) > 0, faults, "{body}");
        }
    }
}

fn builder(chain: Chain, samples: u64, (width, height): (u32, u32)) -> LoaderBuilder {
    let files = (0..samples).map(|seed| {
        let (more, taller) = ((seed * 37 % 41) as u32, (seed * 29 % 31) as u32);
        (jpeg(seed, width + more, height + taller), seed as i64)
    });
    let source = Memory::new(files.collect::<Vec<_>>()).unwrap();
    let builder = Loader::builder(source, chain)
        .num_workers(2)
        .configure(|it| it.loader.tune = false)
        .seed(5);
    builder.last_batch(LastBatch::Pad).epochs(Some(1))
}

/// Checks that the simulated device and the CPU give the same bytes for all batches. Returns the
/// number of batches.
fn same(make: impl Fn() -> LoaderBuilder, what: &str) -> usize {
    let mut cpu = make()
        .configure(|it| it.decode.placement = Placement::Cpu)
        .device(DeviceChoice::Cpu)
        .build()
        .unwrap();
    let mut gpu = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
    assert!(gpu.plan().uses_gpu(), "{what}");
    let mut batches = 0;
    for (cpu, gpu) in cpu.epoch().zip(gpu.epoch()) {
        assert!(cpu.unwrap().to_host().unwrap() == gpu.unwrap().to_host().unwrap(), "{what}");
        batches += 1;
    }
    batches
}

#[test]
#[ignore = "needs device code: tests/device_code/run.sh"]
fn a_hundred_batches_of_the_training_chain_equal_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(9));
    let chain = || {
        Chain::new()
            .then(op::RandomResizedCrop::to(224, 224))
            .then(op::Flip { horizontal: 0.5, vertical: 0.0 })
            .then(op::Normalize::IMAGENET)
    };
    let make = || builder(chain(), 200, (150, 110)).batch_size(2).output(DType::F16, Layout::Nchw);
    assert_eq!(same(make, "training"), 100);
    let (counts, totals) = (machine.counts(), machine.totals());
    assert_eq!((counts.live(), counts.faults()), (0, 0), "{counts:?}");
    assert_eq!(totals.launches, counts.launches, "{totals:?}");
    assert!(totals.mma > 0, "{totals:?}");
}

/// Returns a chain whose second kernel has passes of every kind: two passes of sums, one pass of
/// histograms, one pass of a stencil, and a pass that warps some of the samples.
fn programs() -> Chain {
    passes_of(24, 20)
}

fn passes_of(width: u32, height: u32) -> Chain {
    Chain::new()
        .then(op::RandomResizedCrop::to(width, height))
        .then(op::Flip { horizontal: 0.5, vertical: 0.0 })
        .then(op::GaussianBlur { kernel_size: [3, 5], sigma: [0.5, 1.5] })
        .then(op::Equalize::default())
        .then(op::Sharpness { factor: [0.0, 2.0] })
        .then(op::RandAugment::default())
        .then(op::Normalize::IMAGENET)
        .then(op::RandomErasing { probability: 0.5, std: [1.0; 3], ..Default::default() })
}

#[test]
#[ignore = "needs device code: tests/device_code/run.sh"]
fn no_schedule_of_warps_and_blocks_changes_a_batch() {
    let Some(machine) = machine() else { return };
    machine.every_schedule(true);
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for layout in Layout::ALL {
            let chains =
                [("training", training()), ("evaluation", evaluation()), ("programs", programs())];
            for (name, chain) in chains {
                let what = format!("{name} {dtype} {layout}");
                let make =
                    || builder(chain.clone(), 8, (40, 30)).batch_size(4).output(dtype, layout);
                assert_eq!(same(make, &what), 2, "{what}");
            }
        }
    }
    assert_clean(&machine, "end");
}

/// The output has ten tiles, and two blocks count each histogram. So each pass has several blocks,
/// which the machine runs in different orders.
#[test]
#[ignore = "needs device code: tests/device_code/run.sh"]
fn no_schedule_of_the_blocks_of_a_pass_changes_a_batch() {
    let Some(machine) = machine() else { return };
    machine.every_schedule(true);
    let chain = passes_of(101, 93).then(op::CenterCrop::to(40, 30));
    let make =
        || builder(chain.clone(), 4, (120, 100)).batch_size(4).output(DType::F16, Layout::Nchw);
    assert_eq!(same(make, "several blocks"), 1);
    assert_clean(&machine, "end");
}

/// Also runs on Volta, whose tensor cores cannot multiply bytes. Volta also lacks the packing
/// instruction that the tile code uses.
#[test]
#[ignore = "needs device code: tests/device_code/run.sh"]
fn gpus_without_products_of_bytes_equal_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.compiler_knows(&[70, 72, 75, 80, 90]);
    let runs =
        [(70, DType::F16), (70, DType::BF16), (70, DType::F32), (72, DType::F16), (75, DType::F16)];
    for (architecture, dtype) in runs {
        machine.architecture(architecture, true);
        let products = machine.totals().mma;
        let chains =
            [("training", training()), ("evaluation", evaluation()), ("programs", programs())];
        for (name, chain) in chains {
            let what = format!("{name} {dtype} on sm_{architecture}");
            let make =
                || builder(chain.clone(), 4, (40, 30)).batch_size(4).output(dtype, Layout::Nchw);
            let compilations = machine.compilations();
            assert_eq!(same(make, &what), 1, "{what}");
            // If an earlier run of the tests cached the kernels, nothing is compiled.
            if machine.compilations() > compilations {
                assert_eq!(machine.compiled_for(), format!("sm_{architecture}"), "{what}");
            }
        }
        assert_eq!(machine.totals().mma > products, architecture >= 75, "sm_{architecture}");
    }
    assert_clean(&machine, "end");
}

/// Small images share launches, and their second epoch decodes with row indexes. A large image
/// needs several blocks of each kernel that decodes symbols.
#[test]
#[ignore = "needs device code: tests/device_code/run.sh"]
fn no_schedule_of_the_jpeg_kernels_changes_a_batch() {
    let Some(machine) = machine() else { return };
    machine.every_schedule(true);
    let chain =
        || Chain::new().then(op::RandomResizedCrop::to(40, 30)).then(op::Normalize::IMAGENET);
    for (samples, size, epochs) in [(8, (150, 110), 2), (1, (620, 460), 1)] {
        let make = || {
            let builder = builder(chain(), samples, size).batch_size(4).epochs(Some(epochs));
            builder.configure(|it| {
                it.decode.routes = vec![Route::Feedwater];
                it.cache.row_index = Some(1 << 20);
            })
        };
        let mut cpu = make()
            .configure(|it| it.decode.placement = Placement::Cpu)
            .device(DeviceChoice::Cpu)
            .build()
            .unwrap();
        let mut gpu = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
        for _ in 0..epochs {
            for (cpu, gpu) in cpu.epoch().zip(gpu.epoch()) {
                assert!(cpu.unwrap().to_host().unwrap() == gpu.unwrap().to_host().unwrap());
            }
        }
        assert_eq!(
            gpu.stats().outcomes["feedwater"],
            u64::from(epochs) * samples,
            "{:?}",
            gpu.stats()
        );
    }
    assert_clean(&machine, "end");
}

/// Small JPEGs of all kinds, with and without row indexes, and from device memory. Of the images,
/// half have Huffman tables of their own, one in seven has restart markers, and one in eight has
/// damaged data.
#[test]
#[ignore = "needs device code: tests/device_code/run.sh"]
fn no_schedule_changes_small_jpegs_of_any_kind() {
    let Some(machine) = machine() else { return };
    machine.every_schedule(true);
    let images = if tests_all_cases() { 304 } else { 16 };
    let factors = [
        None,
        Some(SamplingFactor::F_1_1),
        Some(SamplingFactor::F_2_1),
        Some(SamplingFactor::F_1_2),
        Some(SamplingFactor::F_2_2),
        Some(SamplingFactor::F_4_1),
    ];
    let file = |seed: u64| {
        let (width, height) = (17 + (seed * 13 % 41) as u32, 17 + (seed * 29 % 37) as u32);
        let mut file = match seed % 7 {
            3 => jpeg_with_restarts(seed, width, height),
            _ => sampled_jpeg(seed, width, height, factors[seed as usize / 2 % 6]),
        };
        if seed.is_multiple_of(2) {
            file = feedwater_tools::synth::optimized(&file).unwrap();
        }
        if seed % 8 == 5 {
            let at = file.len() - 30 - (seed * 7 % 90) as usize;
            file[at] ^= 1 << (seed / 8 % 8);
        }
        (file, seed as i64)
    };
    let files: Vec<_> = (0..images).map(file).collect();
    let chain = || Chain::new().then(op::RandomResizedCrop::to(6, 5)).then(op::Normalize::IMAGENET);
    let mut windows = 0;
    for device in [None, Some(1 << 20)] {
        let make = || {
            let source = Memory::new(files.clone()).unwrap();
            let builder = Loader::builder(source, chain()).num_workers(2).seed(6).batch_size(8);
            let builder = builder.last_batch(LastBatch::Pad).epochs(Some(2));
            builder.on_error(OnError::Substitute).configure(|it| {
                it.loader.tune = false;
                it.decode.routes = vec![Route::Feedwater];
                it.cache.row_index = Some(1 << 20);
                it.cache.device = device;
            })
        };
        let on_cpu = |it: &mut Settings| it.decode.placement = Placement::Cpu;
        let mut cpu = make().configure(on_cpu).device(DeviceChoice::Cpu).build().unwrap();
        let mut gpu = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
        for _ in 0..2 {
            for (cpu, gpu) in cpu.epoch().zip(gpu.epoch()) {
                assert!(cpu.unwrap().to_host().unwrap() == gpu.unwrap().to_host().unwrap());
            }
        }
        let stats = gpu.stats();
        windows += stats.outcomes["feedwater"];
        println!("{:?} {:?}", stats.cpu_fallback, stats.errors);
    }
    println!("{images} images, {windows} windows");
    assert!(windows >= 3 * images, "{windows} windows");
    assert_clean(&machine, "end");
}
