//! `simulate`: draws loaders, a queue and a consumer over time, or predicts how a measured pipeline
//! performs on other hardware.

use std::path::PathBuf;

use clap::Args;

use super::CommandError;

mod draw;
mod loaders;
mod scale;

/// Simulates data loading: loaders, their queue and a training loop, or a measured pipeline on
/// other hardware
///
/// Without --from, each loader produces one batch at a time, and a consumer takes the batches in
/// order. By default, 7 loaders take 2 s per batch (coefficient of variation 0.06), and a step of
/// the consumer takes 100 ms.
///
/// With --from, the field `model` of a report is simulated twice: as measured, and on the hardware
/// that the options describe. --workers and --resource apply to the loader of one GPU, --cores and
/// --disk-MBps to one host, and --link-MBps to all hosts together. Options that are not given keep
/// the measured values. The cores of a host are divided among its GPUs. If the batch size changes,
/// the step time changes in proportion, unless --step-ms is given. GPUs that wait for each other
/// are not simulated.
#[derive(Args)]
#[command(after_help = "\
Example:
  feedwater simulate --cv 0                           the loop halts every 7 batches
  feedwater simulate --cv 0 --desync                  the loop looks smooth, but waits as long
  feedwater simulate --load-ms 700 --html loop.html   the same as an animation
  feedwater simulate --from report.json --hosts 4 --gpus-per-host 8 --cores 96")]
pub struct Options {
    /// Number of loaders, each of which produces one batch at a time [default: 7]
    #[arg(long, conflicts_with = "from")]
    loaders: Option<u32>,
    /// Mean milliseconds that a loader takes for a batch [default: 2000]
    #[arg(long, conflicts_with = "from")]
    load_ms: Option<f64>,
    /// Milliseconds that a step of the consumer takes [default: 100, or as measured]
    #[arg(long)]
    step_ms: Option<f64>,
    /// Seconds to simulate [default: 30]
    #[arg(long, conflicts_with = "from")]
    seconds: Option<f64>,
    /// Coefficient of variation of the loading times, 0 to 5 [default: 0.06]
    #[arg(long, conflicts_with = "from")]
    cv: Option<f64>,
    /// Number of batches that can wait for the consumer, in addition to one per loader [default: 0]
    #[arg(long, conflicts_with = "from")]
    queue: Option<u32>,
    /// Start the loaders one after another, evenly spread over the time of loading one batch
    #[arg(long, conflicts_with = "from")]
    desync: bool,
    /// Write an animation to this file, as self-contained HTML
    #[arg(long, conflicts_with = "from", value_name = "FILE")]
    html: Option<PathBuf>,
    /// Seed of the random loading times
    #[arg(long, default_value_t = 7)]
    seed: u32,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,

    /// JSON file with a field `model`, such as the output of explain or simulate
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    hardware: scale::Hardware,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    match &options.from {
        Some(path) => scale::main(path, options),
        None => loaders::main(options),
    }
}

/// Checks that a number from the command line is within its range.
fn within(
    name: &str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
) -> Result<f64, CommandError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (from, to) = (range.start(), range.end());
    Err(CommandError::Misused(format!("{name}: must be from {from} to {to}, is {value}")))
}

/// Formats a share as a percentage. Percentages below 10 have one decimal.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}
