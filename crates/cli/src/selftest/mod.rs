//! `selftest`: this build on this machine, check by check.

use std::time::Instant;

use clap::{Args, ValueEnum};
use feedwater::error::SampleError;
use feedwater::gpu::Runtime;
use feedwater::loader::{Loader, LoaderBuilder, SampleRecord};
use serde::Serialize;
use serde_json::json;

use super::{CommandError, print, print_json};

pub mod by_hand;
pub mod decode;
mod difference;
pub mod files;
pub mod gpu;
pub mod hazard;
mod images;
mod kernels;
mod life;
mod loaders;
mod memory;
pub mod on_gpu;
mod operators;
mod throughput;

/// Checks this build on this machine: fast paths against references, CPU against GPU, every decode route, rings, memory
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater selftest --json")]
pub struct Options {
    /// Fail where there is no GPU
    #[arg(long)]
    require_gpu: bool,
    /// Only these groups of checks
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUPS")]
    only: Vec<Group>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// A group of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Loaders on the CPU
    Loader,
    /// Fast paths of operators against references
    Operator,
    /// Kernels of the GPU against the CPU
    Kernels,
    /// Decode routes, sort by sort of JPEG
    Decode,
    /// Engines that write ahead of their stream
    Hazard,
    /// Odd and damaged files on the GPU
    Files,
    /// Memory on the GPU
    Memory,
    /// Epochs left early, batches held, two loaders on the GPU
    Life,
    /// A short table of rates
    Throughput,
}

/// One named check.
#[derive(Serialize)]
pub struct Check {
    /// What is checked.
    pub name: String,
    /// How it went.
    pub result: Outcome,
    /// What was found, in words.
    pub detail: String,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Pass,
    /// Not as it should be.
    Fail,
    /// Not checked, since something it needs is missing.
    Skip,
}

/// What a check found: in words, whether it is well or not.
type Found = Result<String, String>;

impl Check {
    fn new(name: impl Into<String>, found: Found) -> Self {
        let (result, detail) = match found {
            Ok(detail) => (Outcome::Pass, detail),
            Err(detail) => (Outcome::Fail, detail),
        };
        Self { name: name.into(), result, detail }
    }

    fn skip(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), result: Outcome::Skip, detail: detail.into() }
    }
}

pub(crate) fn main(options: &Options) -> Result<(), CommandError> {
    let begin = Instant::now();
    let mut report = Report { checks: Vec::new(), json: options.json };
    let wanted = |group| options.only.is_empty() || options.only.contains(&group);
    if wanted(Group::Loader) {
        // Memory first, since what the others leave behind would hide what a loader takes.
        report.add(memory::on_cpu())?;
        report.add(loaders::checks())?;
        report.add(life::on_cpu())?;
        report.add(files::on_cpu())?;
    }
    if wanted(Group::Operator) {
        report.add(operators::checks())?;
    }
    let found = gpu::Gpu::find(&Runtime::default());
    on_gpu::checks(&found, options.require_gpu, wanted, |checks| report.add(checks))?;
    let (rates, failed) = match wanted(Group::Throughput) {
        true => throughput::measure(found.as_ref().ok()),
        false => (Vec::new(), Vec::new()),
    };
    report.add(failed)?;
    report.end(&rates, begin.elapsed().as_secs_f64())
}

/// The checks so far: told as they come, so that what went before is known where a library brings the process down; or all
/// at the end as JSON.
struct Report {
    checks: Vec<Check>,
    json: bool,
}

impl Report {
    fn add(&mut self, checks: Vec<Check>) -> Result<(), CommandError> {
        for check in &checks {
            if self.json {
                break;
            }
            let result = match check.result {
                Outcome::Pass => "pass",
                Outcome::Fail => "FAIL",
                Outcome::Skip => "skip",
            };
            print(format!("{result}  {:<46}{}", check.name, check.detail))?;
        }
        self.checks.extend(checks);
        Ok(())
    }

    fn end(self, rates: &[throughput::Rate], seconds: f64) -> Result<(), CommandError> {
        let Self { checks, json } = self;
        let count = |result| checks.iter().filter(|check| check.result == result).count();
        let (passed, failed, skipped) =
            (count(Outcome::Pass), count(Outcome::Fail), count(Outcome::Skip));
        if json {
            print_json(&json!({
                "passed": passed,
                "failed": failed,
                "skipped": skipped,
                "seconds": seconds,
                "checks": checks,
                "throughput": rates,
            }))?;
        } else {
            for rate in rates {
                let throughput::Rate { route, images_per_second, images, seconds } = rate;
                print(format!(
                    "rate  {route:<46}{images_per_second:.0} images/s ({images} of 500x375 to 224x224 in \
                     {seconds:.1} s: short, no bench)"
                ))?;
            }
            print(format!(
                "{passed} passed, {failed} failed, {skipped} skipped in {seconds:.0} s"
            ))?;
        }
        match failed {
            0 => Ok(()),
            _ => Err(CommandError::Failed(format!("{failed} of {} checks failed", checks.len()))),
        }
    }
}

/// What one epoch has given, batch after batch.
#[derive(Clone)]
struct Epoch {
    records: Vec<SampleRecord>,
    /// The tensors.
    data: Vec<u8>,
    faults: Vec<SampleError>,
}

fn epoch(builder: LoaderBuilder) -> Result<Epoch, String> {
    read(&builder.epochs(Some(1)).build().map_err(words)?)
}

fn read(loader: &Loader) -> Result<Epoch, String> {
    let mut seen = Epoch { records: Vec::new(), data: Vec::new(), faults: Vec::new() };
    for batch in loader {
        let batch = batch.map_err(words)?;
        seen.records.extend_from_slice(batch.samples());
        seen.faults.extend_from_slice(batch.faults());
        seen.data.extend(batch.to_host().map_err(words)?);
    }
    Ok(seen)
}

fn words(error: feedwater::Error) -> String {
    error.to_string()
}
