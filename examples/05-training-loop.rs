//! Runs a training loop without a model: each step keeps the GPU, or without a GPU the CPU, busy
//! for a given time. After each epoch, the program prints the share of the time in which the loop
//! waited for data.
//!
//! `cargo run --release --example 05-training-loop -- DIRECTORY [MILLISECONDS PER STEP] [EPOCHS]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use feedwater::gpu::{self, Device, Stream};
use feedwater::loader::{Batch, DeviceChoice, Loader};
use feedwater::op::{self, Chain};
use feedwater::source::Directory;
use feedwater::{DType, Layout};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// CUDA source of a kernel that keeps one multiprocessor busy, and that records begin and end of a
/// step. `globaltimer` counts nanoseconds, in steps of up to a microsecond.
const SPIN: &str = r#"
__device__ unsigned long long now() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

extern "C" __global__ void spin(unsigned long long* times, int step, unsigned long long nanoseconds) {
    const unsigned long long begin = now();
    unsigned long long end = begin;
    while (end - begin < nanoseconds) end = now();
    times[2 * step] = begin;
    times[2 * step + 1] = end;
}
"#;

/// Stands in for a model on the device: a kernel in its own stream. The host enqueues steps without
/// waiting for them.
struct OnDevice {
    stream: Arc<CudaStream>,
    ours: Arc<Stream>,
    spin: CudaFunction,
    /// Begin and end of every step of an epoch, in nanoseconds. Step 0 marks the beginning of the
    /// epoch.
    times: CudaSlice<u64>,
}

/// Duration of an epoch in seconds: the total, and the time in which the loop waited for data.
struct Seconds {
    all: f64,
    waited: f64,
}

impl OnDevice {
    fn new(steps: u64) -> Result<Self> {
        // cudarc panics without a driver. Here a driver exists, because the loader has opened this
        // device.
        let device = Device::open(0)?;
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        let ours = Arc::new(Stream::of_cudarc(&device, &stream)?);
        let cubin = gpu::compile(&device, SPIN)?;
        let spin = context.load_module(Ptx::from_binary(cubin))?.load_function("spin")?;
        let times = stream.alloc_zeros(2 * (steps as usize + 1))?;
        Ok(Self { stream, ours, spin, times })
    }

    /// Enqueues a step.
    #[allow(unsafe_code, reason = "a launch is as safe as its kernel")]
    fn launch(&mut self, step: usize, time: Duration) -> Result<()> {
        let (step, nanoseconds) = (step as i32, time.as_nanos() as u64);
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&self.spin);
        launch.arg(&mut self.times).arg(&step).arg(&nanoseconds);
        // SAFETY: the arguments have the types that the kernel declares. The kernel writes two
        // numbers within the buffer.
        unsafe { launch.launch(one) }?;
        Ok(())
    }

    fn epoch(&mut self, loader: &mut Loader, time: Duration) -> Result<Seconds> {
        self.launch(0, Duration::ZERO)?;
        let mut steps = 0;
        for batch in loader {
            let batch = batch?;
            batch.wait_in(&self.ours)?;
            steps += 1;
            self.launch(steps, time)?;
            // The batch is dropped before the step has run. The loader refills the batch's memory
            // only after the step.
        }
        // From the end of a step to the begin of the next step, the device waited for a batch.
        let times = self.stream.clone_dtoh(&self.times)?;
        let times = &times[1..2 * (steps + 1)];
        let (gaps, _) = times.as_chunks::<2>();
        let waited: u64 = gaps.iter().map(|[end, begin]| begin.saturating_sub(*end)).sum();
        let all = times[times.len() - 1].saturating_sub(times[0]);
        Ok(Seconds { all: all as f64 / 1e9, waited: waited as f64 / 1e9 })
    }
}

/// Stands in for a model on the host: a computation on this thread.
fn epoch_on_host(loader: &mut Loader, time: Duration) -> Result<Seconds> {
    let (begin, mut waited) = (Instant::now(), Duration::ZERO);
    let mut batches = loader.epoch();
    loop {
        let asked = Instant::now();
        let Some(batch) = batches.next() else { break };
        waited += asked.elapsed();
        compute(&batch?, time);
    }
    Ok(Seconds { all: begin.elapsed().as_secs_f64(), waited: waited.as_secs_f64() })
}

/// Keeps this thread busy for `time` by adding up bytes of the batch.
fn compute(batch: &Batch, time: Duration) {
    let begin = Instant::now();
    let bytes = batch.host().unwrap_or_default();
    let mut sum = 0u64;
    while begin.elapsed() < time {
        sum += bytes.iter().take(4096).map(|&byte| u64::from(byte)).sum::<u64>();
    }
    std::hint::black_box(sum);
}

fn main() -> std::result::Result<(), feedwater::MainError> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().ok_or("name a directory with one folder per class")?;
    let milliseconds: f64 = args.next().map_or(Ok(20.0), |text| text.parse())?;
    let epochs: u32 = args.next().map_or(Ok(2), |text| text.parse())?;
    let time = Duration::try_from_secs_f64(milliseconds / 1000.0)?;

    let chain = Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
        .then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(Directory::open(directory)?, chain)
        .device(DeviceChoice::Auto)
        .batch_size(32)
        .prefetch(2)
        .shuffle(true)
        .output(DType::F16, Layout::Nchw)
        .epochs(Some(epochs))
        .build()?;
    let steps = loader.batches_per_epoch();
    // `DeviceChoice::Auto` has chosen the first GPU, which `OnDevice` uses.
    let mut device = loader.plan().uses_gpu().then(|| OnDevice::new(steps)).transpose()?;
    println!("{}", loader.device());
    match device {
        Some(_) => println!("{steps} steps of {milliseconds} ms on the device"),
        None => {
            println!("{steps} steps of {milliseconds} ms on the CPU, shared with the loader")
        }
    }
    for epoch in 0..epochs {
        let Seconds { all, waited } = match &mut device {
            Some(device) => device.epoch(&mut loader, time)?,
            None => epoch_on_host(&mut loader, time)?,
        };
        let share = 100.0 * waited / all;
        println!("epoch {epoch}: {all:.2} s, of which {share:.1} % waiting for data");
    }
    Ok(())
}
