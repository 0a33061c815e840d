//! Compares kernels with the CPU, bit for bit. Tests every operator, and whole chains.
//!
//! Both sides decode on the CPU, so that only the kernels can differ. If a chain has a tiled
//! kernel, a loader launches that one. The kernel with one thread per pixel is then launched
//! directly, on the same samples.

use std::sync::Arc;
use std::thread;

use feedwater::internals::image::PixelType;
use feedwater::internals::output;
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::internals::tensor::{DType, Layout};
use feedwater::internals::threads::in_parts;
use feedwater::internals::tune::Choice;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::{
    CenterCrop, Chain, ColorJitter, CutMix, Flip, GaussianBlur, Mixup, Normalize, Operator,
    Placement, RandomApply, RandomResizedCrop, Resize, View,
};
use feedwater::plan::LastBatch;
use feedwater::source::Memory;

use super::gpu::Gpu;
use super::{Check, Found, by_hand, epoch, loaders, message, read};

/// Returns one check per operator and one per chain. If `named` contains operators, returns only
/// their checks. With `brief`, an operator is compared in only two combinations of element type and
/// layout. Chains are always compared in all combinations.
pub fn checks(gpu: &Gpu, brief: bool, named: &[String]) -> Vec<Check> {
    let all = named.is_empty();
    let wanted = feedwater::internals::op::NAMES
        .iter()
        .filter(|name| all || named.iter().any(|it| it == *name));
    let operators = wanted.map(|name| (format!("gpu/operator/{name}"), examples_of(name)));
    let operators: Vec<_> = operators.collect();
    let operator_count = operators.len();
    let others = if all { chains() } else { Vec::new() };
    let others = others.into_iter().map(|(name, chain)| (format!("gpu/chain/{name}"), vec![chain]));
    let (names, chains): (Vec<_>, Vec<_>) = operators.into_iter().chain(others).unzip();
    let jobs =
        chains.iter().enumerate().flat_map(|(check, all)| all.iter().map(move |it| (check, it)));
    let jobs: Vec<_> = jobs
        .enumerate()
        .map(|(number, (check, chain))| Job {
            check,
            chain,
            other: (brief && check < operator_count).then_some(number),
        })
        .collect();
    let mut found: Vec<Result<Cases, String>> = vec![Ok(Cases::default()); names.len()];
    for (check, cases) in in_threads(gpu, &jobs) {
        let Ok(so_far) = &found[check] else { continue };
        found[check] = cases.map(|cases| so_far.and(cases));
    }
    let found = names.into_iter().zip(found);
    let mut checks: Vec<_> =
        found.map(|(name, found)| Check::new(name, found.map(Cases::message))).collect();
    if all {
        checks.push(Check::new("gpu/divisions", divisions(gpu)));
        checks.push(Check::new("gpu/batch-operators", mixing(gpu)));
        checks.push(Check::new("gpu/views", views(gpu)));
    }
    checks
}

/// Number of compared cases, and how many of them have a tiled kernel.
#[derive(Clone, Copy, Default)]
struct Cases {
    all: u32,
    tiled: u32,
}

impl Cases {
    fn and(self, other: Self) -> Self {
        Self { all: self.all + other.all, tiled: self.tiled + other.tiled }
    }

    fn message(self) -> String {
        let Self { all, tiled } = self;
        if all == 0 {
            return "not compared: no kernel executes it yet".into();
        }
        format!(
            "pixels equal the CPU's bit for bit in {all} cases; {tiled} cases ran both with and \
             without tiles"
        )
    }
}

/// A chain to compare.
struct Job<'a> {
    /// Index of the check to which the chain belongs, in the list of results.
    check: usize,
    chain: &'a Chain,
    /// If set, only two combinations of element type and layout are compared: the usual one, and
    /// another one that this number selects.
    other: Option<usize>,
}

/// Compares chains in several threads, because the compilation of kernels takes most of the time.
/// Returns each result with the index of its check.
fn in_threads(gpu: &Gpu, jobs: &[Job<'_>]) -> Vec<(usize, Result<Cases, String>)> {
    const MOST: usize = 8;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST);
    let of = |first: usize| jobs.iter().skip(first).step_by(threads);
    let work = |first| of(first).map(|job| (job.check, parity(gpu, job)));
    let panicked = |first| {
        let problem = "a thread of the checks panicked";
        of(first).map(|job| (job.check, Err(problem.to_string()))).collect()
    };
    let parts = in_parts(threads, |first| work(first).collect::<Vec<_>>());
    let parts = parts.into_iter().enumerate();
    parts.flat_map(|(first, it)| it.unwrap_or_else(|_| panicked(first))).collect()
}

/// Returns one chain for each example of the operator `name` that kernels can execute.
fn examples_of(name: &str) -> Vec<Chain> {
    let examples = examples().into_iter().filter(|operator| operator.name() == name);
    examples.map(|operator| batchable(vec![operator])).collect()
}

/// Returns the examples of all operators that kernels can execute.
fn examples() -> Vec<Arc<dyn Operator>> {
    let mut all = feedwater::internals::op::examples();
    all.retain(|operator| operator.kinds().not_on_device().is_none());
    all
}

/// Returns typical chains, and chains of random operators.
fn chains() -> Vec<(String, Chain)> {
    let evaluation = Chain::new()
        .then(Resize::shorter(44))
        .then(CenterCrop::to(40, 40))
        .then(Normalize::IMAGENET);
    let mut all =
        vec![("training".to_string(), loaders::training()), ("evaluation".into(), evaluation)];
    all.extend((1..=3).map(|seed| (format!("composed-{seed}"), composed(seed))));
    all
}

/// Composes a chain of random examples. Each operator accepts the pixels of the operator before it.
fn composed(seed: u64) -> Chain {
    const LENGTH: usize = 4;
    let examples = examples();
    let mut rng = SampleRng::new(SampleKey { seed, epoch: 0, index: 0 }, 0);
    let (mut operators, mut pixels) = (Vec::new(), PixelType::U8);
    while operators.len() < LENGTH {
        let operator = &examples[rng.below(examples.len() as u64) as usize];
        if let Ok(after) = operator.pixels(pixels) {
            pixels = after;
            operators.push(operator.clone());
        }
    }
    batchable(operators)
}

/// Creates a chain of these operators. Appends a crop if their output size is not fixed, because a
/// batch needs one size.
fn batchable(operators: Vec<Arc<dyn Operator>>) -> Chain {
    let size = operators.iter().fold(None, |size, operator| operator.fixed_output(size));
    let chain = operators
        .into_iter()
        .fold(Chain::new(), |chain, operator| chain.then_any(Placement::Auto, operator));
    if size.is_some() { chain } else { chain.then(CenterCrop::to(37, 29)) }
}

/// Compares a chain with the CPU in several element types and layouts. Records and bytes must be
/// equal.
fn parity(gpu: &Gpu, job: &Job<'_>) -> Result<Cases, String> {
    let chain = job.chain;
    let mut cases = Cases::default();
    let pixels = chain.steps().iter().try_fold(PixelType::U8, |pixels, step| {
        step.operator.pixels(pixels).map_err(|problem| format!("{chain:?}: {problem}"))
    })?;
    for (dtype, layout) in outputs(pixels, job.other) {
        let tiled = same(gpu, chain, dtype, layout)
            .map_err(|problem| format!("{chain:?} as {dtype} {layout}: {problem}"))?;
        cases = cases.and(Cases { all: 1, tiled: tiled.into() });
    }
    Ok(cases)
}

/// Returns the combinations of element type and layout that a tensor of these pixels can have. With
/// `other`, returns only the usual combination and the one that `other` selects.
fn outputs(pixels: PixelType, other: Option<usize>) -> Vec<(DType, Layout)> {
    let dtypes = DType::ALL.into_iter().filter(|&it| output::check(pixels, it).is_ok());
    let mut all: Vec<_> = dtypes.flat_map(|dtype| Layout::ALL.map(|it| (dtype, it))).collect();
    if let Some(number) = other {
        let usual = if pixels == PixelType::U8 { DType::U8 } else { DType::F32 };
        let some = [(usual, Layout::Nchw), all[number % all.len()]];
        all.retain(|it| some.contains(it));
    }
    all
}

/// Compares a chain in one element type and layout. Returns whether the chain has a tiled kernel.
fn same(gpu: &Gpu, chain: &Chain, dtype: DType, layout: Layout) -> Result<bool, String> {
    let samples: Vec<_> = loaders::samples()?.into_iter().take(6).collect();
    let source = Arc::new(Memory::new(samples.clone()).map_err(message)?);
    let builder = || {
        LoaderBuilder::new(source.clone(), chain.clone())
            .shard(0, 1)
            .batch_size(4)
            .configure(|it| it.loader.tune = false)
            .num_workers(2)
            .last_batch(LastBatch::Partial)
            .seed(SEED)
            .configure(|it| it.decode.placement = Placement::Cpu)
            .output(dtype, layout)
    };
    let expected = epoch(builder().device(DeviceChoice::Cpu))?;
    let mut loader = gpu.on(builder()).epochs(Some(1)).build().map_err(message)?;
    let actual = read(&mut loader)?;
    if expected.records != actual.records {
        return Err(format!("samples {:?} instead of {:?}", actual.records, expected.records));
    }
    equal(&expected.data, &actual.data, samples.len())?;
    let plan = loader.plan();
    let tiled = plan
        .device
        .as_ref()
        .is_some_and(|it| it.planned().chain.fused.as_ref().is_some_and(|text| text.tiled));
    if tiled {
        let actual = by_hand::tensors(&gpu.device, plan, &samples, SEED)?;
        equal(&expected.data, &actual, samples.len())
            .map_err(|problem| format!("without tiles: {problem}"))?;
    }
    Ok(tiled)
}

/// Compares the pixels and the soft targets of mixed batches, in every element type and layout.
fn mixing(gpu: &Gpu) -> Found {
    let samples: Vec<_> = loaders::samples()?.into_iter().take(23).collect();
    let source = Arc::new(Memory::new(samples).map_err(message)?);
    let made = |builder: LoaderBuilder| {
        let mut loader = builder.epochs(Some(1)).build().map_err(message)?;
        let (mut pixels, mut targets) = (Vec::new(), Vec::new());
        for batch in &mut loader {
            let batch = batch.map_err(message)?;
            pixels.extend(batch.to_host().map_err(message)?);
            targets.extend(batch.soft_targets_to_host().map_err(message)?);
        }
        Ok::<_, String>((pixels, targets))
    };
    for (dtype, layout) in DType::ALL.into_iter().flat_map(|it| Layout::ALL.map(|to| (it, to))) {
        let bytes = Chain::new().then(Resize::to(37, 29));
        let chain = if dtype == DType::U8 { bytes } else { bytes.then(Normalize::IMAGENET) };
        let chain = chain.then_batch(CutMix::default()).then_batch(Mixup::alpha(0.8));
        let builder = || {
            let builder =
                LoaderBuilder::new(source.clone(), chain.clone()).shard(0, 1).batch_size(6);
            let builder = builder
                .num_workers(2)
                .last_batch(LastBatch::Partial)
                .seed(SEED)
                .configure(|it| it.targets.classes = Some(1000));
            builder.configure(|it| it.decode.placement = Placement::Cpu).output(dtype, layout)
        };
        let expected = made(builder().device(DeviceChoice::Cpu))?;
        if made(gpu.on(builder()))? != expected {
            return Err(format!("batches of {dtype} {layout} differ from those of the CPU"));
        }
    }
    Ok("mixed batches and their targets equal the CPU bit for bit in all element types".into())
}

/// Checks chains that run partly on the CPU and partly on the GPU. The split moves to another
/// position every two batches, until every position was tested.
fn divisions(gpu: &Gpu) -> Found {
    const EPOCHS: usize = 4;
    let samples: Vec<_> = loaders::samples()?.into_iter().take(24).collect();
    let floats = Chain::new()
        .then(RandomResizedCrop::to(37, 29))
        .then(Normalize::IMAGENET)
        .then(Flip::default());
    let mut divisions = 0;
    for chain in [loaders::training(), floats] {
        let source = Arc::new(Memory::new(samples.clone()).map_err(message)?);
        let builder = || {
            let builder = LoaderBuilder::new(source.clone(), chain.clone()).shard(0, 1);
            builder
                .batch_size(2)
                .num_workers(2)
                .seed(SEED)
                .configure(|it| it.decode.placement = Placement::Cpu)
        };
        let mut on_cpu = builder().device(DeviceChoice::Cpu).build().map_err(message)?;
        let mut on_gpu = gpu.on(builder()).build().map_err(message)?;
        let offloads = on_gpu.plan().offloads.clone();
        for turn in 0..EPOCHS {
            let mut actual = Vec::new();
            let mut epoch = on_gpu.epoch();
            let mut number = 0;
            while let Some(batch) = epoch.next() {
                actual.extend(batch.and_then(|batch| batch.to_host()).map_err(message)?);
                let offload = offloads[(number / 2 + turn) % offloads.len()];
                epoch.choose(Choice { offload, ..epoch.choice() }).map_err(message)?;
                number += 1;
            }
            equal(&read(&mut on_cpu)?.data, &actual, samples.len())
                .map_err(|problem| format!("{chain:?}, epoch {turn}: {problem}"))?;
        }
        divisions += offloads.len();
    }
    Ok(format!(
        "with {divisions} different splits between CPU and GPU, the pixels equal those of the CPU \
         alone"
    ))
}

/// Compares views with those of the CPU, while the work moves between CPU and GPU.
fn views(gpu: &Gpu) -> Found {
    let samples: Vec<_> = loaders::samples()?.into_iter().take(24).collect();
    let source = Arc::new(Memory::new(samples).map_err(message)?);
    let around = |by: f64| Some([1.0 - by, 1.0 + by]);
    let colours = ColorJitter {
        brightness: around(0.4),
        contrast: around(0.4),
        saturation: around(0.2),
        hue: Some([-0.1, 0.1]),
    };
    let blur = GaussianBlur { kernel_size: [9, 9], sigma: [0.1, 2.0] };
    let crop = |side| {
        Chain::new()
            .then(RandomResizedCrop::to(side, side))
            .then(Flip { horizontal: 0.5, vertical: 0.0 })
            .then(RandomApply::new(0.8).then(colours))
            .then(RandomApply::new(0.5).then(blur))
            .then(Normalize::IMAGENET)
    };
    let mut outputs = 0;
    for main in [loaders::training(), Chain::new()] {
        let chain = main
            .view(View::new("large", crop(67)).count(2))
            .view(View::new("small", crop(29)).count(8).dtype(DType::F32));
        let builder = || {
            let builder = LoaderBuilder::new(source.clone(), chain.clone()).shard(0, 1);
            let builder = builder.batch_size(4).num_workers(2).seed(SEED).epochs(Some(2));
            builder.configure(|it| it.decode.placement = Placement::Cpu)
        };
        let mut on_cpu = builder().device(DeviceChoice::Cpu).build().map_err(message)?;
        let mut on_gpu = gpu.on(builder()).build().map_err(message)?;
        let offloads = on_gpu.plan().offloads.clone();
        for turn in 0..2 {
            let (mut expected, mut actual) = (on_cpu.epoch(), on_gpu.epoch());
            let mut number = 0;
            while let (Some(expected), Some(batch)) = (expected.next(), actual.next()) {
                let (expected, batch) = (expected.map_err(message)?, batch.map_err(message)?);
                for (expected, column) in expected.columns().zip(batch.columns()) {
                    let bytes = column.to_host().map_err(message)?;
                    equal(&expected.to_host().map_err(message)?, &bytes, batch.len())
                        .map_err(|problem| format!("{:?}: {problem}", column.name()))?;
                }
                let offload = offloads[(number / 2 + turn) % offloads.len()];
                actual.choose(Choice { offload, ..actual.choice() }).map_err(message)?;
                (number, outputs) = (number + 1, outputs + 10 * batch.len());
            }
        }
    }
    Ok(format!("{outputs} views equal those of the CPU bit for bit"))
}

fn equal(expected: &[u8], actual: &[u8], samples: usize) -> Result<(), String> {
    match expected.iter().zip(actual).position(|(a, b)| a != b) {
        None if expected.len() == actual.len() => Ok(()),
        None => Err(format!("{} bytes instead of {}", actual.len(), expected.len())),
        Some(at) => {
            let sample = at / (expected.len() / samples);
            let (a, b) = (actual[at], expected[at]);
            Err(format!(
                "byte {at} of the batch (in sample {sample}) is {a}, but the CPU gives {b}"
            ))
        }
    }
}

/// Seed of all loaders in these checks.
const SEED: u64 = 7;
