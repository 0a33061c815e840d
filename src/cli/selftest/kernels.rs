//! The kernels against the CPU: every operator and chains, bit for bit.
//!
//! Pictures are decoded on the CPU on both sides, so that nothing but the kernels differs. A loader launches the tiled
//! kernel where a chain has one; the kernel with a thread for each pixel is launched besides, on the same samples.

use std::sync::Arc;
use std::thread;

use feedwater::decode::HostDecoder;
use feedwater::footprint::{Footprint, Memory as Sort};
use feedwater::geometry::{Orientation, Size};
use feedwater::gpu::{Device, DevicePool, Kernel, PinnedPool, Stream, Upload, read_back};
use feedwater::header::Header;
use feedwater::image::{HostImage, PixelType};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::kernel_text::{FloatsParams, RoiParams, write_sample};
use feedwater::op::{self, AnyOperator, CenterCrop, Chain, Normalize, Placement, Resize};
use feedwater::output;
use feedwater::plan::{Last, Plan, SamplePlan};
use feedwater::random::{SampleKey, SampleRng};
use feedwater::source::Memory;
use feedwater::tensor::{DType, Layout};
use feedwater::transform::{HostTransform, Picture};

use super::gpu::Gpu;
use super::{Check, epoch, loaders, read, words};

/// A check for each operator and for each chain.
pub fn checks(gpu: &Gpu) -> Vec<Check> {
    let operators =
        op::NAMES.iter().map(|name| (format!("gpu/operator/{name}"), examples_of(name)));
    let others =
        chains().into_iter().map(|(name, chain)| (format!("gpu/chain/{name}"), vec![chain]));
    let (names, chains): (Vec<_>, Vec<_>) = operators.chain(others).unzip();
    let jobs =
        chains.iter().enumerate().flat_map(|(check, all)| all.iter().map(move |it| (check, it)));
    let jobs: Vec<_> = jobs.collect();
    let mut found: Vec<Result<Cases, String>> = vec![Ok(Cases::default()); names.len()];
    for (check, cases) in in_threads(&gpu.device, &jobs) {
        found[check] = std::mem::replace(&mut found[check], Ok(Cases::default()))
            .and_then(|so_far| Ok(so_far.and(cases?)));
    }
    names
        .into_iter()
        .zip(found)
        .map(|(name, found)| Check::new(name, found.map(Cases::words)))
        .collect()
}

/// How many cases were compared.
#[derive(Clone, Copy, Default)]
struct Cases {
    all: u32,
    tiled: u32,
}

impl Cases {
    fn and(self, other: Self) -> Self {
        Self { all: self.all + other.all, tiled: self.tiled + other.tiled }
    }

    fn words(self) -> String {
        let Self { all, tiled } = self;
        format!(
            "equal to the CPU, bit for bit, in {all} cases; in {tiled} of them with tiles and without"
        )
    }
}

/// Compares chains, each with the number of its check: several at a time, since most of the time is the compiler's.
fn in_threads(
    device: &Arc<Device>,
    jobs: &[(usize, &Chain)],
) -> Vec<(usize, Result<Cases, String>)> {
    const MOST: usize = 8;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST);
    let work = |first: usize| {
        let mine = jobs.iter().skip(first).step_by(threads);
        mine.map(|&(check, chain)| (check, parity(device, chain))).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|first| scope.spawn(move || work(first))).collect();
        let panicked = || vec![(0, Err("a thread of the checks panicked".into()))];
        threads.into_iter().flat_map(|it| it.join().unwrap_or_else(|_| panicked())).collect()
    })
}

/// Every example of one operator.
fn examples_of(name: &str) -> Vec<Chain> {
    let examples = op::examples().into_iter().filter(|operator| operator.name() == name);
    examples.map(|operator| batchable(vec![operator])).collect()
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

/// A chain in every element type and layout: the same records and the same bits as on the CPU.
fn parity(device: &Arc<Device>, chain: &Chain) -> Result<Cases, String> {
    let mut cases = Cases::default();
    let pixels = chain.steps().iter().try_fold(PixelType::U8, |pixels, step| {
        step.operator.pixels(pixels).map_err(|problem| format!("{chain:?}: {problem}"))
    })?;
    for dtype in DType::ALL.into_iter().filter(|&it| output::check(pixels, it).is_ok()) {
        for layout in Layout::ALL {
            let tiled = same(device, chain, dtype, layout)
                .map_err(|problem| format!("{chain:?} as {dtype} {layout}: {problem}"))?;
            cases = cases.and(Cases { all: 1, tiled: tiled.into() });
        }
    }
    Ok(cases)
}

/// Whether there is a tiled kernel, where all is well.
fn same(device: &Arc<Device>, chain: &Chain, dtype: DType, layout: Layout) -> Result<bool, String> {
    let samples: Vec<_> = loaders::samples()?.into_iter().take(6).collect();
    let source = Arc::new(Memory::new(samples.clone()).map_err(words)?);
    let builder = |device| {
        LoaderBuilder::new(source.clone(), chain.clone())
            .batch(4)
            .workers(2)
            .last(Last::Partial)
            .seed(SEED)
            .decode(Placement::Cpu)
            .output(dtype, layout)
            .device(device)
    };
    let expected = epoch(builder(DeviceChoice::Cpu))?;
    let loader = builder(DeviceChoice::Gpu(0)).epochs(Some(1)).build().map_err(words)?;
    let given = read(&loader)?;
    if expected.records != given.records {
        return Err(format!("samples {:?} instead of {:?}", given.records, expected.records));
    }
    equal(&expected.data, &given.data, samples.len())?;
    let plan = loader.plan();
    let tiled = plan.device.as_ref().is_some_and(|it| it.kernel.tiled);
    if tiled {
        let without = Raw::take(device, plan, samples.len()).map_err(words)?;
        let given = without.launch(plan, &samples)?;
        equal(&expected.data, &given, samples.len())
            .map_err(|problem| format!("without tiles: {problem}"))?;
    }
    Ok(tiled)
}

fn equal(expected: &[u8], given: &[u8], samples: usize) -> Result<(), String> {
    match expected.iter().zip(given).position(|(a, b)| a != b) {
        None if expected.len() == given.len() => Ok(()),
        None => Err(format!("{} bytes instead of {}", given.len(), expected.len())),
        Some(at) => {
            let sample = at / (expected.len() / samples);
            let (a, b) = (given[at], expected[at]);
            Err(format!("byte {at} (sample {sample}) is {a} instead of {b}"))
        }
    }
}

const SEED: u64 = 7;

/// What a launch of a kernel by hand needs.
struct Raw {
    device: Arc<Device>,
    memory: DevicePool,
    pinned: PinnedPool,
    stream: Stream,
}

/// Most bytes of a sample's pixels on their way to the device, and of its parameters and tables.
const PIXELS: usize = 12 * 160 * 128;
const PARAMETERS: usize = 64 << 10;

impl Raw {
    fn take(device: &Arc<Device>, plan: &Plan, samples: usize) -> feedwater::Result<Self> {
        let mut rows = Footprint::default();
        for memory in [Sort::Device, Sort::Pinned] {
            rows.add(memory, "pixels", PIXELS as u64, samples as u64, "");
            rows.add(memory, "parameters", PARAMETERS as u64, samples as u64, "");
        }
        rows.add(Sort::Device, "out", plan.shape.sample_bytes() as u64, samples as u64, "");
        Ok(Self {
            device: device.clone(),
            memory: DevicePool::take(device, &rows)?,
            pinned: PinnedPool::take(device, &rows)?,
            stream: Stream::new(device)?,
        })
    }

    /// Makes the samples one after another with the kernel that has a thread for each pixel.
    fn launch(&self, plan: &Plan, samples: &[(Vec<u8>, i64)]) -> Result<Vec<u8>, String> {
        let Some(on_device) = &plan.device else { return Err("there is no kernel".into()) };
        let text = &on_device.kernel;
        let kernel = Kernel::load(&self.device, &text.source, "fused", text.sample_bytes);
        let kernel = kernel.map_err(words)?;
        let mut all = Vec::new();
        for (index, (file, _)) in samples.iter().enumerate() {
            let key = SampleKey { seed: SEED, epoch: 0, index: index as u64 };
            all.extend(self.sample(plan, &kernel, key, file)?);
        }
        Ok(all)
    }

    fn sample(
        &self,
        plan: &Plan,
        kernel: &Kernel,
        key: SampleKey,
        file: &[u8],
    ) -> Result<Vec<u8>, String> {
        let Some(on_device) = &plan.device else { return Err("there is no kernel".into()) };
        let mut sample = SamplePlan::default();
        let header = Header::parse(file).map_err(|fault| fault.to_string())?;
        plan.sample(key, &header, &mut sample).map_err(|fault| fault.to_string())?;
        let mut transform = HostTransform::new(plan);
        let picture = Picture { plan, sample: &sample, header: &header, bytes: file };
        transform
            .run_prefix(picture, &mut HostDecoder::new(), plan.cpu_steps())
            .map_err(|fault| fault.to_string())?;
        let window = transform.image().window();
        let run = || -> feedwater::Result<Vec<u8>> {
            let pixels = self.memory.buffer("pixels", PIXELS)?;
            let out = self.memory.buffer("out", plan.shape.sample_bytes())?;
            let block = self.memory.buffer("parameters", PARAMETERS)?;
            let (bytes, leaf): (&[u8], Vec<u8>) = match transform.image() {
                HostImage::U8(image) => {
                    let whole = Size::new(window.right(), window.bottom());
                    let (address, upright) = (pixels.address(), Orientation::UPRIGHT);
                    let leaf = RoiParams::new(address, 3 * window.width, window, whole, upright);
                    (image.data(), bytemuck::bytes_of(&leaf).to_vec())
                }
                HostImage::F32(image) => {
                    let leaf = FloatsParams::new(pixels.address(), 3 * window.width, window);
                    (bytemuck::cast_slice(image.data()), bytemuck::bytes_of(&leaf).to_vec())
                }
            };
            let mut upload = Upload::new(self.pinned.buffer("pixels", PIXELS)?)?;
            upload.bytes()?[..bytes.len()].copy_from_slice(bytes);
            upload.copy(&self.stream, 0..bytes.len(), &pixels, 0)?;

            let mut parameters = Upload::new(self.pinned.buffer("parameters", PARAMETERS)?)?;
            let tables = on_device.kernel.sample_bytes.next_multiple_of(8);
            let table = bytemuck::cast_slice(&sample.table);
            parameters.bytes()?[tables..tables + table.len()].copy_from_slice(table);
            let first = plan.cpu_steps();
            let params = plan.steps.iter().zip(&sample.steps).skip(first).map(|(step, planned)| {
                let mut params = planned.params.clone();
                let address = block.address() + (tables + 4 * planned.table.start) as u64;
                step.operator.set_table(&mut params, address);
                params
            });
            let params: Vec<_> = params.collect();
            let text_bytes = on_device.kernel.sample_bytes;
            write_sample(&mut parameters.bytes()?[..text_bytes], out.address(), &leaf, &params);
            parameters.copy(&self.stream, 0..tables + table.len(), &block, 0)?;
            kernel.launch(&self.stream, &block, 0, 1, plan.shape.width, plan.shape.height)?;
            let mut tensor = vec![0; plan.shape.sample_bytes()];
            read_back(&self.stream, &out, 0, &mut tensor)?;
            Ok(tensor)
        };
        run().map_err(words)
    }
}
