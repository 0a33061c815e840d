//! `run`: epochs of a pipeline file, with the rate and where the time went.

use clap::Args;
use feedwater::loader::Loader;

use super::report::{Report, warn};
use super::{Failure, PipelineOptions, print, print_json, progress};

/// Loads whole epochs and shows the rate, where the time went and the memory
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater run pipeline.toml --epochs 2 --json")]
pub struct Options {
    #[command(flatten)]
    pipeline: PipelineOptions,
    /// How many epochs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Stop after this many batches in all
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Threads, instead of loader.workers
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), Failure> {
    let mut builder = options.pipeline.builder()?.epochs(Some(options.epochs));
    if let Some(workers) = options.workers {
        builder = builder.workers(workers.into());
    }
    let loader = builder.build()?;
    warn(&loader);
    let known = loader.warnings();
    consume(&loader, options.epochs, options.batches)?;
    for warning in loader.warnings().iter().filter(|it| !known.contains(it)) {
        eprintln!("warning: {warning}");
    }
    let report = Report::new(&loader);
    match options.json {
        true => print_json(&report),
        false => print(&report),
    }
}

/// Takes batches and gives them back at once, as a model does that takes no time.
fn consume(loader: &Loader, epochs: u32, batches: Option<u64>) -> Result<(), Failure> {
    let all = u64::from(epochs) * loader.batches_per_epoch();
    let mut left = batches.unwrap_or(all).min(all);
    let bar = progress(left, "batches");
    while left > 0 {
        for batch in loader {
            drop(batch?);
            bar.inc(1);
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}
