//! `bench-ops`: measures the cost of each step alone, on real samples of a pipeline file.
//!
//! * The CPU steps run on one thread, even if the file places them on the GPU. A GPU is measured
//!   too, if there is one.
//! * On the GPU, every operator is a kernel of its own. One launch processes up to 32 samples of
//!   one output size, whose pixels are already in device memory. All passes of a kernel count as
//!   one launch.
//! * The output conversion is measured in the same way, and so is the kernel of the whole chain
//!   that a loader launches.
//! * A kernel time is the time between two CUDA events, divided by ten repetitions of all launches
//!   between them. It includes the gaps between launches. The shortest of at least three
//!   measurements counts.
//! * The command fails if a kernel's output differs from the CPU's in any bit.
//! * If a later crop needs only a part of an operator's output, the crop is fused with the
//!   operator, and only that part is computed.
//! * Decode routes are not measured here, but by `bench`.
//! * Without a GPU or a kernel compiler, one line states the reason; with `--device cuda` this is
//!   an error.
//! * Samples are evenly spaced over the source and use the random numbers of epoch 0.
//! * Reading and parsing are timed once. All other steps run three times, and the shorter of the
//!   last two times counts. This excludes first-touch page faults and most preemption.
//! * Each operator processes the window that this chain needs of its input.
//! * `decode, whole` and `decode to tensor` are comparisons outside of the sum. `decode to tensor`
//!   is the loader's way: rows pass from the decoder through the operators without an intermediate
//!   image. It may cost less than the sum of the steps.
//! * Megapixels are counted at the input of a step. That is the image for reading, parsing and
//!   planning, the decoded window for decoding, the operator's window for an operator, and the
//!   sample for the output conversion.
//! * Unusable samples are skipped and counted.

use std::path::PathBuf;

use clap::Args;
use feedwater::Error;
use feedwater::error::SampleError;
use feedwater::internals::config::Pipeline;
use feedwater::loader::DeviceChoice;
use feedwater::plan::Plan;
use feedwater::storage::Storage;

use super::requests::shown;
use super::{CommandError, DEVICES, print_json, print_lines, progress};
use device::OnDevice;
use host::Bench;

mod device;
mod host;
mod kernels;
mod made;
mod measured;
mod table;

/// Measures the cost of each step and each operator alone, per image of this set and per megapixel
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater bench-ops pipeline.toml --samples 200 --json")]
pub struct Options {
    /// Path of the pipeline file (TOML)
    file: PathBuf,
    /// Number of samples, evenly spaced over the source
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    samples: u64,
    /// Device to measure besides the CPU, instead of the file's `device`; cuda is the GPU of the
    /// launcher's local rank
    #[arg(long, value_name = DEVICES)]
    device: Option<DeviceChoice>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let pipeline = Pipeline::from_file(&options.file)?;
    let storage = shown(pipeline.storage()?);
    let source = pipeline.open_with(&storage)?;
    let plan = plan(&pipeline, &storage)?;
    let all = source.len();
    let samples = options.samples.min(all);
    let mut on_device = OnDevice::open(options.device.unwrap_or(pipeline.settings.device), &plan)?;
    let bar = progress(samples, "samples");
    let mut bench = Bench::new(&plan, &*source);
    for look in 0..samples {
        // Computed in 128 bits: the product may overflow 64.
        let index = (u128::from(look) * u128::from(all) / u128::from(samples)) as u64;
        match bench.sample(index) {
            Ok(made) => on_device.add(made)?,
            Err(error) => bench.skip(|| {
                let location = source.location(index);
                SampleError::new(index, location, error).to_string()
            }),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut result = bench.result(source.describe())?;
    (result.gpu, result.device) = on_device.measured()?;
    match options.json {
        true => print_json(&result)?,
        false => print_lines(result.table())?,
    }
    match result.device.and_then(|device| device.problem()) {
        Some(problem) => Err(CommandError::Failed(problem)),
        None => Ok(()),
    }
}

/// Plans the pipeline. If the file requires a GPU, the plan assumes one, because the steps are the
/// same.
fn plan(pipeline: &Pipeline, storage: &Storage) -> Result<Plan, CommandError> {
    let on_cpu = pipeline.builder_with(storage)?.device(DeviceChoice::Cpu).plan();
    match on_cpu {
        Err(Error::Unavailable { .. }) => {
            Ok(pipeline.builder_with(storage)?.device(DeviceChoice::Gpu(0)).plan()?)
        }
        other => Ok(other?),
    }
}
