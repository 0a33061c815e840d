//! `bench-ops`: measures the cost of each step alone, on samples of a pipeline file.
//!
//! * The CPU steps run on one thread, also if the pipeline file places them on the GPU. If there is
//!   a GPU, its kernels are measured too.
//! * On the GPU, every operator is a kernel of its own. The pixels are already in device memory,
//!   and one launch processes up to 32 samples of one output size. All passes of a kernel count as
//!   one launch.
//! * The output conversion and the whole chain are measured in the same way as an operator. For the
//!   whole chain, the kernel is the one that a loader launches.
//! * Each measurement repeats all launches ten times between two CUDA events. The time of a kernel
//!   is a tenth of the time between these events. It includes the gaps between launches. The
//!   shortest of at least three measurements counts.
//! * The command fails if a kernel's output differs from the CPU's in any bit.
//! * If a later crop needs only a part of an operator's output, the crop is fused with the
//!   operator. So the kernel computes only that part, as in a loader.
//! * Decode routes are not measured here. The command `bench` measures them.
//! * If there is no GPU or no kernel compiler, one line of the output states the reason. With
//!   `--device cuda` this is an error.
//! * The samples are evenly spaced over the source. Their random numbers are those of epoch 0.
//! * Reading and parsing are measured once. All other steps run three times, and the shorter of the
//!   last two times counts. So page faults of the first run and most interruptions by other
//!   programs are not included.
//! * Each operator processes only the part of its input that the rest of the chain needs.
//! * The steps `decode, whole` and `decode to tensor` are comparisons and not part of the sum.
//!   `decode to tensor` runs all steps as a loader does: rows pass from the decoder through the
//!   operators without an intermediate image. So it may cost less than the sum of the steps.
//! * Megapixels are those of a step's input. This is the whole image for reading, parsing and
//!   planning, the decoded window for decoding, the operator's window for an operator, and the
//!   output of the chain for the output conversion.
//! * For images that are not RGB of 8 bits (`decode.pixels`), a line states what is measured.
//!   `decode, whole` is left out.
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
    /// Device to measure besides the CPU, instead of the file's `device`. cuda is the GPU that
    /// belongs to the launcher's local rank
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
    if !plan.has_images() {
        let problem = "has no operators, and bench-ops does not measure views; write the operators of a \
                       view as [[chain]] to measure them";
        return Err(Error::config("chain", problem).into());
    }
    let all = source.len();
    let samples = options.samples.min(all);
    let mut on_device = OnDevice::open(options.device.unwrap_or(pipeline.settings.device), &plan)?;
    let bar = progress(samples, "samples");
    let mut bench = Bench::new(&plan, &*source);
    for look in 0..samples {
        // Multiply in 128 bits, because the product may not fit in 64 bits.
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

/// Plans the pipeline on the CPU. If the file requires a GPU, the plan assumes a GPU instead,
/// because the steps are the same.
fn plan(pipeline: &Pipeline, storage: &Storage) -> Result<Plan, CommandError> {
    let on_cpu = pipeline.builder_with(storage)?.device(DeviceChoice::Cpu).plan();
    match on_cpu {
        Err(Error::Unavailable { .. }) => {
            Ok(pipeline.builder_with(storage)?.device(DeviceChoice::Gpu(0)).plan()?)
        }
        other => Ok(other?),
    }
}
