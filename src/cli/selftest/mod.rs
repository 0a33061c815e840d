//! `selftest`: this build on this machine, check by check.

use clap::Args;
use feedwater::loader::{LoaderBuilder, SampleRecord};
use serde::Serialize;
use serde_json::json;

use super::{Failure, print, print_json};

mod gpu;
mod loaders;
pub mod nvjpeg;
mod operators;

/// Checks this build on this machine: fast paths against references, CPU against GPU, rings, memory
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater selftest --json")]
pub struct Options {
    /// Fail where there is no GPU
    #[arg(long)]
    require_gpu: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
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
    Pass,
    Fail,
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

pub fn main(options: &Options) -> Result<(), Failure> {
    let mut checks = loaders::checks();
    checks.extend(operators::checks());
    checks.extend(gpu::checks(options.require_gpu));

    let count = |result| checks.iter().filter(|check| check.result == result).count();
    let (passed, failed, skipped) =
        (count(Outcome::Pass), count(Outcome::Fail), count(Outcome::Skip));
    if options.json {
        print_json(&json!({
            "passed": passed,
            "failed": failed,
            "skipped": skipped,
            "checks": checks,
        }))?;
    } else {
        for check in &checks {
            let result = match check.result {
                Outcome::Pass => "pass",
                Outcome::Fail => "FAIL",
                Outcome::Skip => "skip",
            };
            print(format!("{result}  {:<36}{}", check.name, check.detail))?;
        }
        print(format!("{passed} passed, {failed} failed, {skipped} skipped"))?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{failed} of {} checks failed", checks.len()))),
    }
}

/// The records and the tensors of one epoch, batch after batch.
fn epoch(builder: LoaderBuilder) -> Result<(Vec<SampleRecord>, Vec<u8>), String> {
    let loader = builder.epochs(Some(1)).build().map_err(words)?;
    let (mut records, mut data) = (Vec::new(), Vec::new());
    for batch in &loader {
        let batch = batch.map_err(words)?;
        records.extend_from_slice(batch.samples());
        data.extend(batch.to_host().map_err(words)?);
    }
    Ok((records, data))
}

fn words(error: feedwater::Error) -> String {
    error.to_string()
}
