//! `bench-ops`: what each step of a sample costs alone, on the samples that a pipeline file really has.
//!
//! * One thread, on the CPU, whatever the placements are; and on the device, where there is one.
//! * On the device every operator is a kernel of its own here, a launch for up to 32 samples that leave with one size. Their
//!   pixels are there already. Beside them there are the output conversion and the kernel of the whole chain, as a loader
//!   launches it. Time is from an event before ten times all launches to an event after them, by the device's clock, the best
//!   of three or more; what passes between two launches is within.
//! * What a kernel makes must be what the CPU made, bit for bit, else the command fails.
//! * Where a later crop wants a part of an operator's output only, that part is made: by the operator with a crop on top.
//! * A route of decoding is timed in a loader that has no other, by the events with which loaders time it.
//! * Without a device, or without what compiles for it, there is a line that says why; with `--device gpu` that is an error.
//! * Samples are evenly spread over the source, with the random choices of epoch 0.
//! * Reading and parsing are timed once, as they come; everything after that three times, and the better of the last two
//!   counts, so that no step pays for memory that the system gives it for the first time, nor for another program's turn.
//! * Each operator gets the window that really reaches it in this chain. `decode, whole` is for comparison and not in the sum;
//!   so is `decode to tensor`, which is what the loader runs: rows go from the decoder through the operators without a
//!   image between them, so it may cost less than its steps alone.
//! * Megapixels are those of a step's input: of the image for reading, parsing and planning; of the decoded window; of an
//!   operator's window; of the sample for the output conversion.
//! * A sample that cannot be used is left out and counted.

use std::path::PathBuf;

use clap::Args;
use feedwater::Error;
use feedwater::config::Pipeline;
use feedwater::error::SampleError;
use feedwater::loader::DeviceChoice;
use feedwater::plan::Plan;
use feedwater::storage::Storage;

use super::doctor::warn_without_simd;
use super::requests::shown;
use super::{CommandError, DeviceOption, print, print_json, progress};
use device::OnDevice;
use host::Bench;

mod device;
mod host;
mod kernels;
mod made;
mod measured;
mod routes;
mod table;

/// Measures what each step and each operator costs alone: per image of this set, and per megapixel
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater bench-ops pipeline.toml --samples 200 --json")]
pub struct Options {
    /// The pipeline file (TOML)
    file: PathBuf,
    /// How many samples, evenly spread over the source
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    samples: u64,
    /// Where to measure besides the CPU; auto is the GPU where there is one
    #[arg(long, value_enum, default_value_t)]
    device: DeviceOption,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let pipeline = Pipeline::from_file(&options.file)?;
    let storage = shown(pipeline.storage()?);
    let source = pipeline.open_with(&storage)?;
    warn_without_simd();
    let plan = plan(&pipeline, &storage)?;
    let all = source.len();
    let samples = options.samples.min(all);
    let mut on_device = OnDevice::open(options.device, &plan)?;
    let bar = progress(samples, "samples");
    let mut bench = Bench::new(&plan, &*source);
    for look in 0..samples {
        // Exact also where the product does not fit into 64 bits.
        let index = (u128::from(look) * u128::from(all) / u128::from(samples)) as u64;
        match bench.sample(index) {
            Ok(made) => on_device.add(made)?,
            Err(fault) => bench.leave_out(|| {
                let location = source.location(index);
                SampleError::new(index, location, fault).to_string()
            }),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut result = bench.result(source.describe())?;
    (result.gpu, result.device) =
        on_device.measured(&pipeline, &storage, samples, result.image_megapixels)?;
    match options.json {
        true => print_json(&result)?,
        false => print(result.table())?,
    }
    match result.device.and_then(|device| device.problem()) {
        Some(problem) => Err(CommandError::Failed(problem)),
        None => Ok(()),
    }
}

/// The plan; where placements ask for a GPU, that of a machine which has one: the steps are the same.
fn plan(pipeline: &Pipeline, storage: &Storage) -> Result<Plan, CommandError> {
    let on_cpu = pipeline.builder_with(storage)?.device(DeviceChoice::Cpu).plan();
    match on_cpu {
        Err(Error::Unavailable { .. }) => {
            Ok(pipeline.builder_with(storage)?.device(DeviceChoice::Gpu(0)).plan()?)
        }
        other => Ok(other?),
    }
}
