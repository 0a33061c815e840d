//! The GPU against the CPU: every operator and chains, bit for bit; rings and memory on the device.
//!
//! Pictures are decoded on the CPU on both sides, so that nothing but the kernels differs.

use std::sync::Arc;

use feedwater::footprint::bytes;
use feedwater::gpu::{self, Device};
use feedwater::image::PixelType;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder, MemoryStats};
use feedwater::op::{self, AnyOperator, CenterCrop, Chain, Normalize, Placement, Resize};
use feedwater::output;
use feedwater::plan::Last;
use feedwater::random::{SampleKey, SampleRng};
use feedwater::source::Memory;
use feedwater::tensor::{DType, Layout};

use super::{Check, Found, epoch, loaders, nvjpeg, words};

/// All checks, where there is a GPU. What is missing is a failure where a GPU is required.
pub fn checks(required: bool) -> Vec<Check> {
    let absent = |name: &str, why| match required {
        true => Check::new(name, Err(why)),
        false => Check::skip(name, why),
    };
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => return vec![absent("gpu/device", error.to_string())],
    };
    let (major, minor) = device.capability();
    let name = format!("{} (sm_{major}{minor})", device.name());
    let mut checks = vec![Check::new("gpu/device", Ok(name))];
    match gpu::compiler(&device) {
        Ok((major, minor)) => {
            checks.push(Check::new("gpu/compiler", Ok(format!("NVRTC {major}.{minor}"))));
        }
        Err(error) => {
            checks.push(absent("gpu/compiler", error.to_string()));
            return checks;
        }
    }
    for name in op::NAMES {
        checks.push(Check::new(format!("gpu/operator/{name}"), operator(name)));
    }
    for (name, chain) in chains() {
        checks.push(Check::new(format!("gpu/chain/{name}"), parity(&[chain])));
    }
    checks.push(Check::new("gpu/ring", loaders::shut_down(on_gpu)));
    checks.push(Check::new("gpu/footprint", footprint(&device)));
    match gpu::nvjpeg::Library::open(Some(device.driver_version() / 1000)) {
        Ok(_) => checks.extend(nvjpeg::checks()),
        Err(error) => checks.push(absent("gpu/decode", error.to_string())),
    }
    checks
}

/// The loader of the checks on the CPU, on the GPU with all that it can do.
fn on_gpu() -> Result<LoaderBuilder, String> {
    Ok(loaders::builder()?.device(DeviceChoice::Gpu(0)))
}

/// Every example of one operator.
fn operator(name: &str) -> Found {
    let examples = op::examples().into_iter().filter(|operator| operator.name() == name);
    let chains: Vec<_> = examples.map(|operator| batchable(vec![operator])).collect();
    parity(&chains)
}

/// Chains as they are used, and some that nobody wrote.
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

/// Examples drawn one after another, of those that take the pixels that there are.
fn composed(seed: u64) -> Chain {
    const LENGTH: usize = 4;
    let examples = op::examples();
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

/// A chain of these; where they do not give every sample the same size, a crop follows.
fn batchable(operators: Vec<Arc<dyn AnyOperator>>) -> Chain {
    let size = operators.iter().fold(None, |size, operator| operator.fixed_output(size));
    let chain = operators
        .into_iter()
        .fold(Chain::new(), |chain, operator| chain.then_any(Placement::Auto, operator));
    if size.is_some() { chain } else { chain.then(CenterCrop::to(37, 29)) }
}

/// Every chain in every element type and layout: the same records and the same bits as on the CPU.
fn parity(chains: &[Chain]) -> Found {
    let mut cases = 0;
    for chain in chains {
        let pixels = chain.steps().iter().try_fold(PixelType::U8, |pixels, step| {
            step.operator.pixels(pixels).map_err(|problem| format!("{chain:?}: {problem}"))
        })?;
        for dtype in DType::ALL.into_iter().filter(|&it| output::check(pixels, it).is_ok()) {
            for layout in Layout::ALL {
                cases += 1;
                same(chain, dtype, layout)
                    .map_err(|problem| format!("{chain:?} as {dtype} {layout}: {problem}"))?;
            }
        }
    }
    Ok(format!("equal to the CPU, bit for bit, in {cases} cases"))
}

fn same(chain: &Chain, dtype: DType, layout: Layout) -> Result<(), String> {
    let samples = loaders::samples()?.into_iter().take(6).collect();
    let source = Arc::new(Memory::new(samples).map_err(words)?);
    let run = |device| {
        let builder = LoaderBuilder::new(source.clone(), chain.clone())
            .batch(4)
            .workers(2)
            .last(Last::Partial)
            .seed(7)
            .decode(Placement::Cpu)
            .output(dtype, layout)
            .device(device);
        epoch(builder)
    };
    let (records, expected) = run(DeviceChoice::Cpu)?;
    let (records_on_gpu, given) = run(DeviceChoice::Gpu(0))?;
    if records != records_on_gpu {
        return Err(format!("samples {records_on_gpu:?} instead of {records:?}"));
    }
    match expected.iter().zip(&given).position(|(a, b)| a != b) {
        None if expected.len() == given.len() => Ok(()),
        None => Err(format!("{} bytes instead of {}", given.len(), expected.len())),
        Some(at) => {
            let sample = at / (expected.len() / records.len());
            let (a, b) = (given[at], expected[at]);
            Err(format!("byte {at} (sample {sample}) is {a} instead of {b}"))
        }
    }
}

/// What the pools have in use at most, against the plan, and that nothing grows.
fn footprint(device: &Device) -> Found {
    // nvJPEG may leave some of its row unused; without it all rows are in use to the last byte.
    let memory = ten_epochs(device, on_gpu()?.decode(Placement::Cpu))?;
    for (name, predicted, peak) in figures(&memory) {
        if peak != predicted || peak == 0 {
            return Err(format!("{name}: {predicted} bytes predicted, {peak} used"));
        }
    }
    let memory = ten_epochs(device, on_gpu()?)?;
    for (name, predicted, peak) in figures(&memory) {
        if peak > predicted || peak == 0 {
            return Err(format!("{name}, with nvJPEG: {predicted} bytes predicted, {peak} used"));
        }
    }
    let figures = figures(&memory).map(|(name, predicted, peak)| {
        format!("{name}: {} predicted, {} used", bytes(predicted), bytes(peak))
    });
    Ok(format!("{}; the same after ten epochs", figures.join("; ")))
}

/// Predicted and used bytes, by the sort of memory.
fn figures(memory: &MemoryStats) -> [(&'static str, u64, u64); 2] {
    [
        ("device", memory.device_bytes_predicted, memory.device_bytes_peak),
        ("pinned", memory.pinned_bytes_predicted, memory.pinned_bytes_peak),
    ]
}

/// The figures after ten epochs, where they are those after the first, on the whole device too.
fn ten_epochs(device: &Device, builder: LoaderBuilder) -> Result<MemoryStats, String> {
    // Other processes on the device take and give memory as well; what grows with every batch is more.
    const SLACK: u64 = 64 << 20;
    let loader = builder.build().map_err(words)?;
    one_epoch(&loader)?;
    let (first, (free, _)) = (loader.stats().memory, device.memory_bytes().map_err(words)?);
    for _ in 1..10 {
        one_epoch(&loader)?;
    }
    let (last, (free_at_end, _)) = (loader.stats().memory, device.memory_bytes().map_err(words)?);
    if last != first {
        return Err(format!("grew from the first epoch ({first:?}) to the tenth ({last:?})"));
    }
    match free_at_end + SLACK < free {
        true => Err(format!("{} of the device went from epoch 1 to 10", bytes(free - free_at_end))),
        false => Ok(last),
    }
}

fn one_epoch(loader: &Loader) -> Result<(), String> {
    for batch in loader {
        batch.map_err(words)?;
    }
    Ok(())
}
