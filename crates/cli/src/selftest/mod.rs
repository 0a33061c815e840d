//! `selftest`: tests this build on this machine.

use std::time::Instant;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use feedwater::error::SampleError;
use feedwater::gpu::Runtime;
use feedwater::loader::{Loader, LoaderBuilder, SampleRecord};
use serde::Serialize;
use serde_json::json;

use super::{CommandError, print, print_json, print_lines};

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
mod skipped;

/// Tests this build on this machine: fast paths against references, GPU against CPU, every decode
/// route, rings, and memory
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater selftest --json")]
pub struct Options {
    /// Fail if there is no GPU
    #[arg(long)]
    require_gpu: bool,
    /// Run only these groups of checks
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUPS")]
    only: Vec<Group>,
    /// Compare the kernel of each operator in only two combinations of element type and layout
    #[arg(long)]
    brief: bool,
    /// Compare only the kernels of these operators
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = PossibleValuesParser::new(feedwater::internals::op::NAMES))]
    operators: Vec<String>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// A group of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Loaders on the CPU
    Loader,
    /// Fast paths of operators, compared with their references
    Operator,
    /// GPU kernels, compared with the CPU
    Kernels,
    /// Decode routes, for each kind of JPEG
    Decode,
    /// Known faults of the JPEG engines: they write before earlier work in their stream has ended,
    /// or skip images
    Hazard,
    /// Odd and damaged files on the GPU
    Files,
    /// Memory use on the GPU
    Memory,
    /// Epochs left early, held batches, and two loaders on the GPU
    Life,
}

/// A named check with its result.
#[derive(Serialize)]
pub struct Check {
    /// Name of the check.
    pub name: String,
    /// Outcome of the check.
    pub result: Outcome,
    /// Description of the success, or of the reason for the failure or the skip.
    pub detail: String,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The check succeeded.
    Pass,
    /// The check failed.
    Fail,
    /// The check was not run, because something is missing that it needs.
    Skip,
}

/// Description of a check's success (`Ok`) or failure (`Err`).
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
        // Check memory first. After other checks, a loader would reuse memory that they have freed,
        // and its own allocations would not be visible.
        report.add(memory::on_cpu())?;
        report.add(loaders::checks())?;
        report.add(life::on_cpu())?;
        report.add(files::on_cpu())?;
    }
    if wanted(Group::Operator) {
        report.add(operators::checks())?;
    }
    let found = gpu::Gpu::find(&Runtime::default());
    let (brief, operators) = (options.brief, &options.operators);
    on_gpu::checks(&found, options.require_gpu, wanted, brief, operators, |checks| {
        report.add(checks)
    })?;
    report.end(begin.elapsed().as_secs_f64())
}

/// Collects the results of the checks. Text is printed as soon as a check has finished, so that it
/// is not lost if a library crashes later. JSON is printed at the end.
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
            print_lines(format!("{result}  {:<46}{}", check.name, check.detail))?;
        }
        self.checks.extend(checks);
        Ok(())
    }

    fn end(self, seconds: f64) -> Result<(), CommandError> {
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
            }))?;
        } else {
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

/// Samples and errors of one epoch.
#[derive(Clone)]
struct Epoch {
    records: Vec<SampleRecord>,
    /// Tensors of all batches, concatenated.
    data: Vec<u8>,
    errors: Vec<SampleError>,
}

fn epoch(builder: LoaderBuilder) -> Result<Epoch, String> {
    read(&mut builder.epochs(Some(1)).build().map_err(message)?)
}

fn read(loader: &mut Loader) -> Result<Epoch, String> {
    let mut seen = Epoch { records: Vec::new(), data: Vec::new(), errors: Vec::new() };
    for batch in loader {
        let batch = batch.map_err(message)?;
        seen.records.extend_from_slice(batch.samples());
        seen.errors.extend_from_slice(batch.errors());
        seen.data.extend(batch.to_host().map_err(message)?);
    }
    Ok(seen)
}

fn message(error: feedwater::Error) -> String {
    error.to_string()
}
