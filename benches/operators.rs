//! Measures the time of operators.
//!
//! On one core of the CPU, the benchmark compares single operators and whole recipes with
//! torchvision, Albumentations, OpenCV and DALI (`operators/peers.rs`).
//!
//! On a GPU, if there is one, it measures the fused kernel of the training chain, compares it with
//! a copy of the same number of bytes on the device, and prints lines of JSON. On the simulated
//! device of the tests, it uses fewer samples, prints that the device is simulated, and prints no
//! rates. `feedwater bench-ops --device cuda` measures the kernels of single operators.
//!
//! `FEEDWATER_BENCH_ONLY=TEXT` selects operators and recipes whose names contain the text in the
//! comparison with other libraries (peers). The argument `device=gpu` skips the peers. With
//! `FEEDWATER_PHOTOS`, the comparisons use the user's own images (docs/benchmarks.md).

#[path = "common/mod.rs"]
mod common;
#[path = "common/device_samples.rs"]
mod device_samples;
#[path = "operators/peers.rs"]
mod peers;

use std::sync::Arc;
use std::time::Instant;

use device_samples::DeviceSamples;
use feedwater::footprint::{Footprint, Memory};
use feedwater::gpu::Device;
use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::LaunchGoal;
use feedwater::internals::gpu::{DeviceBuffer, DevicePool, Kernel};
use feedwater::internals::op::kernel_text::{KernelText, Leaf, kernel_text};
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::op::{Flip, Normalize, Operator, RandomResizedCrop};

const IMAGE: Size = Size::new(500, 375);

fn main() {
    peers::compare();
    training_on_gpu();
}

/// Whether the device is the simulated one of the tests.
fn is_simulated(device: &Device) -> bool {
    device.name().starts_with("Simulated")
}

/// Prints the time of the training kernel, the time of a copy on the device with the same number of
/// bytes, and the cost of loading the cached kernel.
fn training_on_gpu() {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => return eprintln!("training/device=gpu is skipped: {error}"),
    };
    let simulated = is_simulated(&device);
    let samples = if simulated { 16 } else { 256 };
    let measured = || -> feedwater::Result<()> {
        start(&device, simulated)?;
        for size in [IMAGE, Size::new(2048, 1536)] {
            let training = Training::new(&device, size, samples)?;
            for group in [samples, 8] {
                training.measure(&device, size, group, simulated)?;
            }
        }
        Ok(())
    };
    if let Err(error) = measured() {
        eprintln!("training/device=gpu is skipped: {error}");
    }
}

fn training_chain() -> [Arc<dyn Operator>; 3] {
    let flip = Flip { horizontal: 0.5, vertical: 0.0 };
    [Arc::new(RandomResizedCrop::to(224, 224)), Arc::new(flip), Arc::new(Normalize::IMAGENET)]
}

/// Element type and layout of the training job.
const TRAINING_OUTPUT: (DType, Layout) = (DType::F16, Layout::Nchw);

fn training_text() -> KernelText {
    let chain = training_chain();
    let kinds: Vec<_> = chain.iter().flat_map(|op| op.kinds().list().to_vec()).collect();
    let (dtype, layout) = TRAINING_OUTPUT;
    let shape = TensorShape { batch: 1, width: 1, height: 1, channels: 3, dtype, layout };
    kernel_text(Leaf::Roi, &kinds, shape)
}

/// Prints the time to compile and load the training kernel, and the time to load it from the cache
/// on disk.
fn start(device: &Arc<Device>, simulated: bool) -> feedwater::Result<()> {
    let directory = std::env::temp_dir().join(format!("feedwater-bench-{}", std::process::id()));
    let runtime = device.runtime().clone().with_cache_directory(&directory);
    let device = &Device::open_with(device.ordinal(), &runtime)?;
    let text = training_text();
    let load = || -> feedwater::Result<f64> {
        let begin = Instant::now();
        Kernel::load(device, &text.source, text.entry(), text.sample_bytes)?;
        Ok(1e3 * begin.elapsed().as_secs_f64())
    };
    let compiled = load()?;
    let kept = (0..5).map(|_| load()).collect::<feedwater::Result<Vec<f64>>>()?;
    let kept = kept.into_iter().fold(f64::INFINITY, f64::min);
    // Ignores errors, because a temporary directory that remains is harmless.
    let _ = std::fs::remove_dir_all(directory);
    println!(
        "{{\"bench\":\"kernel_start\",\"device\":\"{}\",\"simulated\":{simulated},\
         \"compile_ms\":{compiled:.1},\"kept_ms\":{kept:.2},\"bar_ms\":20}}",
        device.name()
    );
    Ok(())
}

/// Samples of the training job on the device.
struct Training {
    samples: DeviceSamples,
    /// Source and destination of the copy. Each has half as many bytes as the kernel reads and
    /// writes.
    copied: [DeviceBuffer; 2],
}

impl Training {
    fn new(device: &Arc<Device>, size: Size, count: usize) -> feedwater::Result<Self> {
        let samples =
            DeviceSamples::new(device, &training_chain(), TRAINING_OUTPUT, (size, None), count)?;
        let mut footprint = Footprint::default();
        footprint.add(Memory::Device, "copy", samples.bytes as u64 / 2, 2, "");
        let pool = DevicePool::take(device, &footprint)?;
        let buffer = || pool.buffer("copy", samples.bytes / 2);
        Ok(Self { copied: [buffer()?, buffer()?], samples })
    }

    /// Prints a line of results for launches of `group` samples.
    fn measure(
        &self,
        device: &Device,
        size: Size,
        group: usize,
        simulated: bool,
    ) -> feedwater::Result<()> {
        /// Maximum share of the device's time that the kernel may take at `IMAGES_PER_SECOND`.
        const BAR: f64 = 0.02;
        const IMAGES_PER_SECOND: f64 = 20_000.0;
        let DeviceSamples { stream, count, bytes, .. } = &self.samples;
        let kernel = self.seconds(simulated, || {
            (0..*count)
                .step_by(group)
                .try_for_each(|first| self.samples.launch(LaunchGoal::Throughput, first, group))
        })?;
        let [from, to] = &self.copied;
        // `bytes` counts what the kernel reads and writes. A copy of n bytes reads n bytes and
        // writes n bytes, so a copy of half of `bytes` moves as much as the kernel.
        let copy = self
            .seconds(simulated, || feedwater::internals::gpu::copy(stream, from, to, bytes / 2))?;
        let rates = if simulated {
            String::from("\"simulated\":true")
        } else {
            let rate = |seconds: f64| *bytes as f64 / seconds / 1e9;
            format!(
                "\"simulated\":false,\"kernel_us\":{:.1},\"kernel_gb_per_s\":{:.0},\
                 \"copy_gb_per_s\":{:.0},\"images_per_second\":{IMAGES_PER_SECOND},\
                 \"share_of_device\":{:.4},\"bar\":{BAR}",
                1e6 * kernel,
                rate(kernel),
                rate(copy),
                kernel / *count as f64 * IMAGES_PER_SECOND
            )
        };
        println!(
            "{{\"bench\":\"fused_training\",\"device\":\"{}\",\"size\":\"{size}\",\"samples\":{count},\
             \"group\":{group},\"bytes\":{bytes},{rates}}}",
            device.name()
        );
        Ok(())
    }

    /// Returns the seconds per call on the device: the fastest of seven runs of 20 calls. If `once`
    /// is true, makes a single call.
    fn seconds(
        &self,
        once: bool,
        work: impl Fn() -> feedwater::Result<()>,
    ) -> feedwater::Result<f64> {
        let (runs, calls) = if once { (1, 1) } else { (7, 20) };
        let mut best = f64::INFINITY;
        let stream = &self.samples.stream;
        for _ in 0..runs {
            stream.synchronize()?;
            let begin = Instant::now();
            for _ in 0..calls {
                work()?;
            }
            stream.synchronize()?;
            best = best.min(begin.elapsed().as_secs_f64() / f64::from(calls));
        }
        Ok(best)
    }
}
