//! `bench-ops`: measures the cost of each step alone, on real samples of a pipeline file.
//!
//! * The CPU steps run on one thread, whatever the placements are. The device is measured too, if there is one.
//! * On the device every operator is a separate kernel, with one launch for up to 32 samples of one output size whose pixels are
//!   already there. A kernel with several passes is launched once per pass, which counts as one launch. The output conversion is
//!   measured too, and the kernel of the whole chain, as a loader launches it. The time is between CUDA events before and after
//!   ten repetitions of all launches, gaps between launches included; the best of three or more measurements counts.
//! * The command fails if a kernel's output differs from the CPU's in any bit.
//! * If a later crop needs only a part of an operator's output, only that part is computed, by the operator with the crop fused.
//! * Decode routes are measured by `bench`.
//! * Without a device or a kernel compiler, a line states the reason; with `--device cuda` this is an error.
//! * Samples are evenly spaced over the source and use the random choices of epoch 0.
//! * Reading and parsing are timed once. All other steps run three times, and the shorter of the last two times counts, which
//!   excludes first-touch page faults and preemption.
//! * Each operator gets the window that reaches it in this chain. `decode, whole` is for comparison and not part of the sum.
//!   Neither is `decode to tensor`, which is what the loader runs: rows pass from the decoder through the operators without an
//!   intermediate image, so it may cost less than its steps alone.
//! * Megapixels are those of a step's input: the image for reading, parsing and planning; the decoded window; an operator's
//!   window; the sample for the output conversion.
//! * Unusable samples are skipped and counted.

use std::path::PathBuf;

use clap::Args;
use feedwater::Error;
use feedwater::config::Pipeline;
use feedwater::error::SampleError;
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
    /// Device to measure besides the CPU, instead of the file's `device`; cuda is the GPU of the launcher's local rank
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

/// Returns the plan. Placements on a GPU are planned as if there were one: the steps are the same.
fn plan(pipeline: &Pipeline, storage: &Storage) -> Result<Plan, CommandError> {
    let on_cpu = pipeline.builder_with(storage)?.device(DeviceChoice::Cpu).plan();
    match on_cpu {
        Err(Error::Unavailable { .. }) => {
            Ok(pipeline.builder_with(storage)?.device(DeviceChoice::Gpu(0)).plan()?)
        }
        other => Ok(other?),
    }
}
