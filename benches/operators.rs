//! Measures the time of operators.
//!
//! On the CPU, the benchmark measures on one core:
//!
//! * single operators and whole recipes, compared with torchvision, Albumentations, OpenCV and DALI
//!   (`operators/peers.rs`);
//! * every operator with its example settings: its reference implementation and its fast path;
//! * resampling, compared with `fast_image_resize`. The pixels of `fast_image_resize` differ from
//!   Pillow's by up to one level. feedwater's pixels are equal to Pillow's.
//!
//! On a GPU, if there is one, the benchmark measures and prints as lines of JSON:
//!
//! * the kernels of each single operator, in a launch for 64 samples;
//! * the fused kernel of the training chain, compared with a copy of the same number of bytes on
//!   the device.
//!
//! On the simulated device of the tests, the benchmark uses fewer samples. It prints that the
//! device is simulated, and prints no rates.
//!
//! `FEEDWATER_BENCH_ONLY=TEXT` selects operators and recipes whose names contain the text, in the
//! comparison with other libraries (peers) and on the GPU. The argument `device=gpu` skips the
//! peers. With `FEEDWATER_PHOTOS`, the comparisons with peers use the user's own images
//! (docs/benchmarks.md).

#[path = "common/mod.rs"]
mod common;
#[path = "common/device_samples.rs"]
mod device_samples;
#[path = "operators/peers.rs"]
mod peers;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use device_samples::{DeviceSamples, image};
use fast_image_resize as fir;

use feedwater::footprint::{Footprint, Memory};
use feedwater::gpu::Device;
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::gpu::LaunchGoal;
use feedwater::internals::gpu::{DeviceBuffer, DevicePool, Kernel};
use feedwater::internals::image::{HostImage, PixelType};
use feedwater::internals::op::Actions;
use feedwater::internals::op::kernel_text::{KernelText, Leaf, kernel_text};
use feedwater::internals::op::kind::table;
use feedwater::internals::op::resample::{self, Filter, Resampler};
use feedwater::internals::op::wide::writer::TensorWriter;
use feedwater::internals::output::{RowPlace, Tail};
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::HostTransform;
use feedwater::op::custom::Wanted;
use feedwater::op::{Flip, Normalize, Operator, RandomResizedCrop};

const IMAGE: Size = Size::new(500, 375);

/// Returns an input image for an operator: bytes, or floats if the operator supports only floats.
fn input(op: &Arc<dyn Operator>) -> HostImage {
    match op.pixels(PixelType::U8) {
        Ok(_) => HostImage::U8(image(IMAGE)),
        Err(_) => HostImage::new(PixelType::F32, IMAGE.window()),
    }
}

fn operators(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("operator");
    for (example, op) in feedwater::internals::op::examples().iter().enumerate() {
        let src = input(op);
        let actions = Actions::of([&**op], SampleKey::default(), IMAGE);
        let size = actions.list.last().map_or(IMAGE, |last| last.whole);
        let (dtype, layout) = (DType::F32, Layout::Nchw);
        let shape = TensorShape { batch: 1, width: 1, height: 1, dtype, layout };
        let mut transform = HostTransform::of_shape(shape);
        let name = |path: &str| {
            format!("op={}/device=cpu/size={IMAGE}/example={example}/path={path}", op.name())
        };
        group.throughput(Throughput::Elements(size.pixels()));
        group.bench_function(name("reference"), |bencher| {
            bencher.iter(|| actions.reference(black_box(&src)));
        });
        group.bench_function(name("transform"), |bencher| {
            bencher.iter(|| transform.run_operator(&actions, 0, black_box(&src)).unwrap());
        });
    }
}

/// Whether the device is the simulated one of the tests.
fn is_simulated(device: &Device) -> bool {
    device.name().starts_with("Simulated")
}

fn operators_on_gpu(criterion: &mut Criterion) {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => return eprintln!("operator/device=gpu is skipped: {error}"),
    };
    let count = if is_simulated(&device) { 2 } else { 64 };
    let only = peers::only();
    let mut group = criterion.benchmark_group("operator");
    for (example, op) in feedwater::internals::op::examples().iter().enumerate() {
        if !op.name().contains(&only) {
            continue;
        }
        let chain: Vec<_> = match op.pixels(PixelType::U8) {
            Ok(_) => vec![op.clone()],
            Err(_) => vec![Arc::new(Normalize::IMAGENET) as _, op.clone()],
        };
        let bytes = op.pixels(PixelType::U8) == Ok(PixelType::U8);
        let output = (if bytes { DType::U8 } else { DType::F32 }, Layout::Nchw);
        if op.kinds().not_on_device().is_some() {
            continue;
        }
        let samples = match DeviceSamples::new(&device, &chain, output, IMAGE, count) {
            Ok(samples) => samples,
            Err(error) => return eprintln!("operator/device=gpu is skipped: {error}"),
        };
        let name =
            format!("op={}/device=gpu/size={IMAGE}/example={example}/samples={count}", op.name());
        group.throughput(Throughput::Elements(count as u64 * IMAGE.pixels()));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                time(&samples, iterations).expect("the same launch succeeded before")
            });
        });
    }
}

/// Returns the time of `launches` launches, one after another.
fn time(samples: &DeviceSamples, launches: u64) -> feedwater::Result<Duration> {
    let begin = Instant::now();
    for _ in 0..launches {
        samples.launch(LaunchGoal::Latency, 0, samples.count)?;
    }
    samples.stream.synchronize()?;
    Ok(begin.elapsed())
}

/// Prints the time of the training kernel, the time of a copy on the device with the same number of
/// bytes, and the cost of loading the cached kernel.
fn training_on_gpu(_: &mut Criterion) {
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
    kernel_text(Leaf::Roi, &kinds, TRAINING_OUTPUT.0, TRAINING_OUTPUT.1)
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
        let samples = DeviceSamples::new(device, &training_chain(), TRAINING_OUTPUT, size, count)?;
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

fn resampling(criterion: &mut Criterion) {
    let to = Size::new(224, 224);
    let cases = [
        (Size::new(500, 375), Roi::new(60, 40, 300, 260)),
        (Size::new(500, 375), Roi::new(0, 0, 500, 375)),
        (Size::new(500, 375), Roi::new(200, 100, 150, 130)),
        (Size::new(2048, 1536), Roi::new(300, 200, 1200, 1000)),
        (Size::new(2048, 1536), Roi::new(0, 0, 2048, 1536)),
    ];
    let filters = [
        (Filter::Bilinear, fir::FilterType::Bilinear, "bilinear"),
        (Filter::Bicubic, fir::FilterType::CatmullRom, "bicubic"),
    ];
    let mut group = criterion.benchmark_group("resample");
    for (size, window) in cases {
        for (filter, fir_filter, filter_name) in filters {
            let name = |path: &str| {
                format!("size={size}/window={window}/filter={filter_name}/path={path}")
            };
            let src = image(size);
            let mut params = resample::Params::new(window, to);
            let mut table = Vec::new();
            let wanted =
                Wanted { input: size, reduction: 1, padding: Size::default(), output: to.window() };
            let demanded = resample::fill_table(&mut params, wanted, filter, &mut table);

            let values = table::of(|channel, byte| Normalize::IMAGENET.value(channel, byte));
            let tail = Tail::new(Some(&values), DType::F32, Layout::Nchw);
            let mut line = vec![0; 3 * 224];
            let mut tensor = vec![0f32; 3 * 224 * 224];
            let mut resampler = Resampler::default();
            for stored in [false, true] {
                let path = if stored { "ours_normalized" } else { "ours" };
                group.bench_function(name(path), |bencher| {
                    bencher.iter(|| {
                        table.clear();
                        resample::fill_table(&mut params, wanted, filter, &mut table);
                        resampler.begin(&params, &table, src.window()).unwrap();
                        for y in demanded.y..demanded.bottom() {
                            resampler.push_row(y, src.row(y));
                            while let Some(y) = resampler.next_output() {
                                resampler.output_row(y, &mut line);
                                if stored {
                                    let tensor = bytemuck::cast_slice_mut(&mut tensor);
                                    let y = y as usize;
                                    let (width, height, mirrored) = (224, 224, false);
                                    let place = RowPlace { width, height, y, mirrored };
                                    let out = &mut TensorWriter::new(tensor, None);
                                    tail.store_bytes(&line, place, out);
                                }
                                black_box(&line);
                            }
                        }
                    });
                });
            }

            let rgba = src.data().as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 255]);
            let rgba = rgba.collect::<Vec<u8>>();
            let pixels = fir::PixelType::U8x4;
            let fir_src =
                fir::images::Image::from_vec_u8(size.width, size.height, rgba, pixels).unwrap();
            let mut fir_out = fir::images::Image::new(to.width, to.height, pixels);
            let options = fir::ResizeOptions::new()
                .resize_alg(fir::ResizeAlg::Convolution(fir_filter))
                .use_alpha(false)
                .crop(window.x.into(), window.y.into(), window.width.into(), window.height.into());
            let mut resizer = fir::Resizer::new();
            group.bench_function(name("fast_image_resize"), |bencher| {
                bencher.iter(|| {
                    resizer.resize(black_box(&fir_src), &mut fir_out, &options).unwrap();
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = peers::compare, training_on_gpu, resampling, operators, operators_on_gpu
}
criterion_main!(benches);
