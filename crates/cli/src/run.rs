//! `run`: loads epochs of a pipeline file, and reports the throughput and where the time was spent.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use feedwater::internals::file::AtomicFile;
use feedwater::loader::Loader;
use feedwater::plan::AutoCount;

use super::doctor::warn_without_simd;
use super::interrupt::{self, Polled};
use super::report::{Report, warn};
use super::{
    CommandError, PipelineOptions, count, in_terms_of_options, io_failure, print_json, print_lines,
    progress, tell,
};

/// Loads whole epochs and reports throughput, time per stage and memory
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater run pipeline.toml --epochs 2 --json")]
pub struct Options {
    #[command(flatten)]
    pipeline: PipelineOptions,
    /// Number of epochs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Stop after this many batches
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Number of worker threads, instead of loader.num_workers. auto chooses the number from
    /// measurements
    #[arg(long, alias = "num-workers", value_name = "auto|NUMBER", value_parser = count)]
    workers: Option<AutoCount>,
    /// Write a trace to this file, to be opened at ui.perfetto.dev. It has the latest spans of
    /// every thread, of the consumer and of the ring, and is also written if the run is interrupted
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// Number of latest spans per thread that the trace keeps
    #[arg(long, value_name = "SPANS", default_value_t = 65536, requires = "trace", value_parser = clap::value_parser!(u32).range(1..))]
    trace_spans: u32,
    /// Mark every stage of every thread for the profilers of NVIDIA: nsys profile feedwater run
    /// --nvtx ...
    #[arg(long)]
    nvtx: bool,
    /// Write the measurements as JSON to this file
    #[arg(long, value_name = "PROFILE")]
    profile: Option<PathBuf>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let mut builder = options.pipeline.builder()?.epochs(Some(options.epochs));
    builder = match options.workers {
        None => builder,
        Some(AutoCount::Auto) => builder.num_workers(AutoCount::Auto),
        Some(AutoCount::Fixed(workers)) => builder.num_workers(workers),
    };
    // Create the files before the run, so that a wrong path is reported at once.
    let trace = options.trace.as_deref().map(create).transpose()?;
    let profile = options.profile.as_deref().map(create).transpose()?;
    if trace.is_some() {
        builder = builder.trace(options.trace_spans as usize);
    }
    let given = options.workers.map(|_| ("loader.num_workers", "--workers"));
    let built = builder.nvtx(options.nvtx).build();
    let mut loader = built.map_err(|error| in_terms_of_options(error, given.as_slice()))?;
    let _polled = Polled::waiting_for(&loader);
    warn(&loader);
    let known = loader.warnings();
    consume(&mut loader, options.epochs, options.batches)?;
    for warning in loader.warnings().iter().filter(|it| !known.contains(it)) {
        tell(format!("warning: {warning}"));
    }
    if let Some((path, file)) = trace {
        write(path, file, |out| loader.trace_json(out))?;
    }
    if let Some((path, file)) = profile {
        let profile = loader.profile();
        write(path, file, |out| Ok(serde_json::to_writer(out, &profile)?))?;
    }
    let report = Report::new(&loader);
    warn_without_simd(&report.jpeg);
    match options.json {
        true => print_json(&report),
        false => print_lines(&report),
    }
}

fn create(path: &Path) -> Result<(&Path, AtomicFile), CommandError> {
    let file = AtomicFile::create(path).map_err(|error| io_failure(path, &error))?;
    Ok((path, file))
}

fn write(
    path: &Path,
    mut file: AtomicFile,
    what: impl FnOnce(&mut AtomicFile) -> io::Result<()>,
) -> Result<(), CommandError> {
    let written = interrupt::saving(|| {
        what(&mut file)?;
        file.write_all(b"\n")?;
        file.commit()
    });
    written.map_err(|error| io_failure(path, &error))
}

/// Consumes batches by dropping them at once, like a model that takes no time. A signal ends the
/// loop.
fn consume(loader: &mut Loader, epochs: u32, batches: Option<u64>) -> Result<(), CommandError> {
    let all = u64::from(epochs) * loader.batches_per_epoch();
    let mut left = batches.unwrap_or(all).min(all);
    let bar = progress(left, "batches");
    // A batch whose samples were all dropped is not delivered, so an epoch may have fewer batches
    // than `batches_per_epoch`. For this reason, the loop counts epochs and not only batches.
    for _ in 0..epochs {
        if left == 0 || interrupt::requested().is_some() {
            break;
        }
        for batch in &mut *loader {
            if interrupt::requested().is_some() {
                return Ok(());
            }
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
