//! A training loop without a model: each step keeps the device, or the CPU, busy for a given time, and in the end
//! the loop says for what share of its time it had to wait for data.
//!
//! `cargo run --release --example 05-training-loop -- DIRECTORY [MILLISECONDS PER STEP] [EPOCHS]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use feedwater::gpu::{Device, Event, Stream, kernel};
use feedwater::loader::{Batch, Loader};
use feedwater::op::{self, Chain};
use feedwater::source::Directory;
use feedwater::tensor::{DType, Layout};

/// Keeps one multiprocessor busy. `globaltimer` counts nanoseconds, in steps of up to a microsecond.
const SPIN: &str = r#"
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}
"#;

/// What stands for the model.
enum Step {
    /// A kernel in a stream of its own. The host runs one step ahead, as training loops do.
    OnDevice { device: Arc<Device>, stream: Arc<CudaStream>, ours: Arc<Stream>, spin: CudaFunction },
    /// A computation on this thread.
    OnCpu,
}

impl Step {
    fn new(loader: &Loader) -> Result<Self, Box<dyn std::error::Error>> {
        if !loader.plan().uses_gpu() {
            return Ok(Step::OnCpu);
        }
        // The loader has seen that there is a driver, without which cudarc would panic.
        let device = Device::open(0)?;
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        let ours = Arc::new(Stream::of_cudarc(&device, &stream)?);
        let module = context.load_module(Ptx::from_binary(kernel::compile(&device, SPIN)?))?;
        let spin = module.load_function("spin")?;
        Ok(Step::OnDevice { device, stream, ours, spin })
    }

    /// One step on a batch, which is given back when the step is over, on the device without the host's waiting.
    fn run(&self, batch: Batch, time: Duration) -> Result<Option<Event>, Box<dyn std::error::Error>> {
        match self {
            Step::OnDevice { device, stream, ours, spin } => {
                batch.on(ours)?;
                let nanoseconds = time.as_nanos() as u64;
                let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
                let mut launch = stream.launch_builder(spin);
                launch.arg(&nanoseconds);
                spin_once(launch, one)?;
                let done = Event::new(device)?;
                done.record(ours)?;
                Ok(Some(done))
            }
            Step::OnCpu => {
                let begin = Instant::now();
                let mut sum = 0u64;
                while begin.elapsed() < time {
                    let bytes = batch.host().unwrap_or_default();
                    sum += bytes.iter().take(4096).map(|&byte| u64::from(byte)).sum::<u64>();
                }
                std::hint::black_box(sum);
                Ok(None)
            }
        }
    }
}

#[allow(unsafe_code, reason = "a launch is as safe as its kernel")]
fn spin_once(
    mut launch: cudarc::driver::LaunchArgs<'_>,
    one: LaunchConfig,
) -> Result<(), cudarc::driver::DriverError> {
    // SAFETY: the kernel takes one 64-bit integer and touches no memory.
    unsafe { launch.launch(one) }.map(|_| ())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().ok_or("name a directory with one folder per class")?;
    let milliseconds: f64 = args.next().map_or(Ok(20.0), |text| text.parse())?;
    let epochs: u32 = args.next().map_or(Ok(2), |text| text.parse())?;
    let time = Duration::try_from_secs_f64(milliseconds / 1000.0)?;

    let chain = Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
        .then(op::Normalize::IMAGENET);
    let loader = Loader::builder(Directory::open(directory)?, chain)
        .batch(32)
        .prefetch(2)
        .shuffle(true)
        .output(DType::F16, Layout::Nchw)
        .epochs(Some(epochs))
        .build()?;
    let step = Step::new(&loader)?;
    println!("{}", loader.device());
    println!("a step takes {milliseconds} ms on the {}", match step {
        Step::OnDevice { .. } => "device",
        Step::OnCpu => "CPU, of which the loader's threads have the less",
    });

    for epoch in 0..epochs {
        let (begin, mut waited, mut steps, mut images) = (Instant::now(), Duration::ZERO, 0, 0);
        let mut batches = (&loader).into_iter();
        // The step that the device is at. On the device a wait for data counts only from when this is over: until
        // then the device has work, and no batch is late.
        let mut running: Option<Event> = None;
        loop {
            let asked = Instant::now();
            let Some(batch) = batches.next() else { break };
            let got = Instant::now();
            let batch = batch?;
            // The batch is there when its last kernel is through, not when it is handed out.
            let late = match (&running, batch.ready()) {
                (Some(running), Some(ready)) => {
                    running.synchronize()?;
                    let idle = Instant::now();
                    ready.synchronize()?;
                    idle.elapsed()
                }
                (None, Some(ready)) => {
                    ready.synchronize()?;
                    asked.elapsed()
                }
                _ => got - asked,
            };
            waited += late;
            steps += 1;
            images += batch.len();
            running = step.run(batch, time)?;
        }
        if let Some(running) = running {
            running.synchronize()?;
        }
        let all = begin.elapsed();
        println!(
            "epoch {epoch}: {steps} steps, {:.0} images/s, waited for data {:.1} % of {:.2} s",
            images as f64 / all.as_secs_f64(),
            100.0 * waited.as_secs_f64() / all.as_secs_f64(),
            all.as_secs_f64(),
        );
    }
    Ok(())
}
