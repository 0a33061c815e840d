//! `simulate`: loaders, a queue and a consumer as an image; or a measured pipeline on other hardware.

use std::path::PathBuf;

use clap::Args;

use super::CommandError;

mod draw;
mod loaders;
mod scale;

/// Simulates data loading: loaders, their queue and a training loop, or a measured pipeline on other hardware
///
/// Without --from, loaders make a batch each and a consumer uses them in order. By default 7 loaders take 2 s for a
/// batch (with a coefficient of variation of 0.06) and a step takes 100 ms. With --from, the field `model` of a
/// report is simulated as it was measured and on the hardware that the options describe: --workers and --resource are
/// of one GPU's loader, --cores and --disk-MBps of a host, --link-MBps of all hosts together; what is not given is
/// as measured. Cores of a host are divided among its GPUs. A batch of another size takes its step a time in
/// proportion, unless --step-ms is given. That GPUs wait for each other is not in it.
#[derive(Args)]
#[command(after_help = "\
Example:
  feedwater simulate --cv 0                           the loop halts every 7 batches
  feedwater simulate --cv 0 --desync                  it looks smooth, and waits as much
  feedwater simulate --load-ms 700 --html loop.html   the same as an animation
  feedwater simulate --from report.json --hosts 4 --gpus-per-host 8 --cores 96")]
pub struct Options {
    /// Loaders, each of which makes a batch at a time [default: 7]
    #[arg(long, conflicts_with = "from")]
    loaders: Option<u32>,
    /// Mean milliseconds that a loader takes for a batch [default: 2000]
    #[arg(long, conflicts_with = "from")]
    load_ms: Option<f64>,
    /// Milliseconds of a step of the consumer [default: 100, or as measured]
    #[arg(long)]
    step_ms: Option<f64>,
    /// Seconds to simulate [default: 30]
    #[arg(long, conflicts_with = "from")]
    seconds: Option<f64>,
    /// Coefficient of variation of the loading times, 0 to 5 [default: 0.06]
    #[arg(long, conflicts_with = "from")]
    cv: Option<f64>,
    /// Batches that may wait besides the one that each loader may hold [default: 0]
    #[arg(long, conflicts_with = "from")]
    queue: Option<u32>,
    /// Loaders begin one after another, evenly within the first loading time
    #[arg(long, conflicts_with = "from")]
    desync: bool,
    /// Writes an animation, one file without anything from outside
    #[arg(long, conflicts_with = "from", value_name = "FILE")]
    html: Option<PathBuf>,
    /// Chooses the times that vary
    #[arg(long, default_value_t = 7)]
    seed: u32,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,

    /// A file of JSON with a field `model`: what explain or simulate printed
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

/// A number from the command line within its range.
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

/// A share as a percentage; a small one keeps a digit.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}
