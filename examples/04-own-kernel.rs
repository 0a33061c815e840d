//! Processes batches with a CUDA kernel of your own, in your own stream, while the loader fills the
//! next batches. The kernel sums up each channel of each image. Without a GPU, the program prints a
//! note and computes the sums on the host.
//!
//! `cargo run --release --example 04-own-kernel -- DIRECTORY`

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use feedwater::gpu::{self, Device};
use feedwater::handoff::CudaTensor;
use feedwater::loader::{Batch, DeviceChoice, Loader};
use feedwater::op::{self, Chain};
use feedwater::source::Directory;
use feedwater::{DType, Layout};

/// Each block sums up one plane: `blockIdx.x` is the channel, `blockIdx.y` the image.
const SUMS: &str = r#"
extern "C" __global__ void sums(const float* batch, float* out, int pixels) {
    const int plane = blockIdx.y * gridDim.x + blockIdx.x;
    float sum = 0;
    for (int i = threadIdx.x; i < pixels; i += blockDim.x) sum += batch[(long long)plane * pixels + i];
    atomicAdd(&out[plane], sum);
}
"#;

/// Channels of a batch: red, green and blue.
const CHANNELS: usize = 3;
/// Threads per block.
const THREADS: u32 = 256;

/// The consumer's stream and kernel.
struct Consumer {
    stream: Arc<CudaStream>,
    sums: CudaFunction,
}

impl Consumer {
    fn new(ordinal: usize) -> Result<Self, Box<dyn std::error::Error>> {
        // cudarc panics without a driver. Here a driver exists, because the loader has opened this
        // device. The context is the device's primary context, which the loader uses too.
        let context = CudaContext::new(ordinal)?;
        let stream = context.new_stream()?;
        // Compiles for the architecture of this device. The result is cached on disk.
        let cubin = gpu::compile(&*Device::open(ordinal)?, SUMS)?;
        let sums = context.load_module(Ptx::from_binary(cubin))?.load_function("sums")?;
        Ok(Self { stream, sums })
    }

    /// Returns the sum of each plane (a channel of an image). The host waits only until these
    /// numbers are copied. A consumer that keeps its results on the device does not need to wait.
    #[allow(unsafe_code, reason = "a launch is as safe as its kernel")]
    fn sums(&self, batch: Batch) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
        let shape = batch.shape();
        let pixels = shape.width as i32 * shape.height as i32;
        // Makes our stream wait until the batch is filled. The loader refills the batch's memory
        // only after the work in our stream has ended.
        let tensor = CudaTensor::<f32>::new(batch, &self.stream)?;
        let mut out = self.stream.alloc_zeros::<f32>(shape.batch * CHANNELS)?;
        let config = LaunchConfig {
            grid_dim: (CHANNELS as u32, shape.batch as u32, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let view = tensor.view();
        let mut launch = self.stream.launch_builder(&self.sums);
        launch.arg(&view).arg(&mut out).arg(&pixels);
        // SAFETY: the arguments have the types that the kernel declares. The kernel reads and
        // writes only within the two slices.
        unsafe { launch.launch(config) }?;
        // The kernel may still run. The loader refills the batch's memory only after the kernel has
        // ended.
        drop(tensor);
        Ok(self.stream.clone_dtoh(&out)?)
    }
}

/// Computes the sum of each plane on the host.
fn sums(batch: &Batch) -> Vec<f32> {
    let shape = batch.shape();
    let plane = shape.sample_len() / CHANNELS;
    let values = batch.as_f32().unwrap_or_default();
    values.chunks_exact(plane).map(|plane| plane.iter().sum()).collect()
}

fn main() -> Result<(), feedwater::MainError> {
    let directory = std::env::args().nth(1).ok_or("name a directory with one folder per class")?;
    let chain = Chain::new()
        .then(op::Resize::shorter(256))
        .then(op::CenterCrop::to(224, 224))
        .then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(Directory::open(directory)?, chain)
        .device(DeviceChoice::Auto)
        .batch_size(32)
        .output(DType::F32, Layout::Nchw)
        .build()?;
    println!("{}", loader.device());
    // `DeviceChoice::Auto` has chosen the first GPU, whose ordinal is 0.
    let consumer = loader.plan().uses_gpu().then(|| Consumer::new(0)).transpose()?;
    if consumer.is_none() {
        println!("no batches on a GPU, so no kernel: computing the sums on the host");
    }

    let (mut totals, mut pixels) = ([0f64; CHANNELS], 0f64);
    for batch in &mut loader {
        let batch = batch?;
        let shape = batch.shape();
        let planes = match &consumer {
            Some(consumer) => consumer.sums(batch)?,
            None => sums(&batch),
        };
        for sample in planes.chunks_exact(CHANNELS) {
            totals.iter_mut().zip(sample).for_each(|(total, &sum)| *total += f64::from(sum));
        }
        pixels += (shape.batch * shape.sample_len() / CHANNELS) as f64;
    }
    let [red, green, blue] = totals.map(|total| total / pixels);
    println!("mean after normalize: red {red:.4}, green {green:.4}, blue {blue:.4}");
    Ok(())
}
