//! `explain`: finds what limits a pipeline, and predicts the gain of each change.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use feedwater::internals::config::Pipeline;
use feedwater::internals::file::{self, AtomicFile};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::source::Source;
use feedwater::source::custom::HostPage;
use feedwater_insight::explain::{
    Differential, Options as ExplainOptions, Ranks, ReadScaling, Report, explain,
};

use super::consumer::Consumer;
use super::doctor::warn_without_simd;
use super::interrupt::{self, Polled};
use super::report::warn;
use super::requests::shown;
use super::{CommandError, DEVICES, io_failure, on, print_json, print_lines, progress, tell};

/// Runs a pipeline and reports its bottleneck, the settings to change and their predicted gain
///
/// The file is a pipeline file (TOML). Files whose names end in .json are reports that were saved
/// earlier. They are read, and no pipeline runs. A single report is explained again. Reports of
/// several ranks are merged, and the slowest rank is named.
#[derive(Args)]
#[command(
    after_help = "Example:\n  feedwater explain pipeline.toml --step-ms 45 --html report.html\n  feedwater explain rank*.json --html ranks.html"
)]
pub struct Options {
    /// A pipeline file, or one or more saved reports
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Device to run on, instead of the file's `device`. cuda is the GPU that belongs to the
    /// launcher's local rank. auto is that GPU, or the CPU if there is none
    #[arg(long, value_name = DEVICES)]
    device: Option<DeviceChoice>,
    /// Simulate a consumer that takes this many milliseconds for each batch
    #[arg(long, conflicts_with = "consumer_cmd", value_parser = milliseconds)]
    step_ms: Option<f64>,
    /// Shell command that consumes the batches: it receives the bytes of every batch on standard
    /// input, and so determines the pace. The command and its child processes are terminated at the
    /// end
    #[arg(long, value_name = "COMMAND")]
    consumer_cmd: Option<String>,
    /// Seconds to measure after the warm-up
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Also measure how reads scale with the number of threads, and compare three runs: without a
    /// loader, with encoded data in memory, and unchanged
    #[arg(long)]
    probe: bool,
    /// Price of one GPU hour, in your currency
    #[arg(long, value_name = "PRICE", value_parser = seconds)]
    price: Option<f64>,
    /// Write the report as JSON to this file. The commands `explain` and `simulate --from` read it
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write the report to this file as a self-contained HTML page with a table of simulated
    /// changes. For several reports, the page compares the ranks
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the report as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Smallest number of batches in a measurement.
const MIN_BATCHES: u64 = 2;

/// A measurement ends after this multiple of the requested seconds, even if the command has not
/// read the current batch.
const DEADLINE_FACTOR: f64 = 1.5;

/// Shortest time in seconds that a command gets to start and to read [`MIN_BATCHES`] batches.
const MIN_DEADLINE_SECONDS: f64 = 3.0;

/// Largest report file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Largest number of samples that are kept in memory for the run with encoded data in memory.
const CACHED_SAMPLES: u64 = 4096;

pub fn main(options: &Options) -> Result<(), CommandError> {
    let is_report = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
    if options.files.iter().all(is_report) {
        return read_reports(options);
    }
    let [file] = options.files.as_slice() else {
        let text = "give one pipeline file, or reports whose names end in .json";
        return Err(CommandError::Misused(text.into()));
    };
    // Create the files before the run, so that a wrong path is reported at once.
    let outputs = Outputs::create(options)?;
    let report = run(options, file)?;
    outputs.write(&report)?;
    match options.json {
        true => print_json(&report),
        false => print_lines(&report),
    }
}

/// Explains saved reports, without running a pipeline.
fn read_reports(options: &Options) -> Result<(), CommandError> {
    let mut reports = Vec::new();
    for path in &options.files {
        let text = file::read_text(path, MAX_BYTES).map_err(|error| io_failure(path, &error))?;
        let saved: Report = serde_json::from_str(&text).map_err(|error| {
            let path = path.display();
            CommandError::Misused(format!(
                "{path}: the file is not a report that feedwater explain --save wrote: {error}"
            ))
        })?;
        let explain_options = ExplainOptions {
            price_per_hour: options.price.or(saved.cost.map(|cost| cost.price_per_hour)),
            scaling: saved.scaling.clone(),
            differential: saved.differential,
            ..ExplainOptions::default()
        };
        reports.push(explain(&saved.profile, &explain_options)?);
    }
    if let [report] = reports.as_slice() {
        Outputs::create(options)?.write(report)?;
        return match options.json {
            true => print_json(report),
            false => print_lines(report),
        };
    }
    if options.save.is_some() {
        let text = "--save writes the report of one run, but several reports are given; --json prints the merged result";
        return Err(CommandError::Misused(text.into()));
    }
    let ranks = Ranks::merge(&reports)?;
    if let Some(path) = &options.html {
        file::write(path, ranks.to_html()).map_err(|error| io_failure(path, &error))?;
    }
    match options.json {
        true => print_json(&ranks),
        false => print_lines(&ranks),
    }
}

/// Output files that the options request.
struct Outputs<'a> {
    json: Option<(&'a Path, AtomicFile)>,
    html: Option<(&'a Path, AtomicFile)>,
}

impl<'a> Outputs<'a> {
    fn create(options: &'a Options) -> Result<Self, CommandError> {
        let create = |path: &'a PathBuf| match AtomicFile::create(path) {
            Ok(file) => Ok((path.as_path(), file)),
            Err(error) => Err(io_failure(path, &error)),
        };
        let json = options.save.as_ref().map(create).transpose()?;
        Ok(Self { json, html: options.html.as_ref().map(create).transpose()? })
    }

    fn write(self, report: &Report) -> Result<(), CommandError> {
        let put = |(path, mut file): (&Path, AtomicFile), text: &str| {
            let written = file.write_all(text.as_bytes()).and_then(|()| file.commit());
            written.map_err(|error| io_failure(path, &error))
        };
        if let Some(output) = self.json {
            let json = serde_json::to_string(report);
            let json = json.map_err(|error| CommandError::Failed(format!("JSON: {error}")))?;
            put(output, &(json + "\n"))?;
        }
        if let Some(output) = self.html {
            put(output, &report.to_html())?;
        }
        Ok(())
    }
}

fn run(options: &Options, file: &Path) -> Result<Report, CommandError> {
    let pipeline = Pipeline::from_file(file)?;
    let storage = shown(pipeline.storage()?);
    let builder = || -> Result<LoaderBuilder, CommandError> {
        Ok(on(pipeline.builder_with(&storage)?, options.device))
    };
    let mut loader = builder()?.build()?;
    warn(&loader);
    let polled = Polled::waiting_for(&loader);
    let mut consumer = match (&options.consumer_cmd, options.step_ms) {
        (Some(command), _) => Consumer::run(command)?,
        (None, Some(ms)) => Consumer::Sleeps(Duration::from_secs_f64(1e-3 * ms)),
        (None, None) => Consumer::Idle,
    };
    warm_up(&mut loader, &mut consumer, options.seconds)?;
    let before = loader.measured();
    let batches =
        measure(&mut loader, &mut consumer, options.seconds, DEADLINE_FACTOR * options.seconds)?;
    if batches < MIN_BATCHES && interrupt::requested().is_some() {
        return Err(CommandError::Interrupted);
    }
    if let Some(stuck) = consumer.stuck() {
        if batches < MIN_BATCHES {
            let text = format!(
                "{stuck}, but at least {MIN_BATCHES} batches must be measured after the warm-up; \
                 use a command that keeps reading, or raise --seconds above {}",
                options.seconds
            );
            return Err(CommandError::Failed(text));
        }
        tell(format!("warning: {stuck}"));
    }
    let profile = loader.profile_since(&before);
    warn_without_simd(&loader.stats().jpeg);
    let mut explain_options =
        ExplainOptions { price_per_hour: options.price, ..ExplainOptions::default() };
    if options.probe && interrupt::requested().is_none() {
        // Drop the loader first, because its own reads would distort the measurement of reads.
        drop((polled, loader));
        let builder = builder()?;
        explain_options.scaling =
            Some(scaling(&*builder.source(), profile.setup.workers, options.seconds));
        // The throughput of the consumer alone follows from its step time.
        let synthetic = f64::from(profile.setup.batch) / profile.consumer.step.mean.max(1e-9);
        let cached = cached(builder, &mut consumer, options.seconds)?;
        let cold = profile.images_per_second();
        explain_options.differential =
            cached.map(|cached| Differential { synthetic, cached, cold });
    }
    consumer.end();
    match explain(&profile, &explain_options) {
        // A signal ended the measurement too early for a report.
        Err(_) if interrupt::requested().is_some() => Err(CommandError::Interrupted),
        explained => Ok(explained?),
    }
}

/// Runs the loader without measuring, until it has started and autotuning has ended. Takes at most
/// four times as long as `seconds`.
fn warm_up(loader: &mut Loader, consumer: &mut Consumer, seconds: f64) -> Result<(), CommandError> {
    for _ in 0..20 {
        // The deadline is `seconds`, not a fifth of it, because a command may need most of this
        // time to start.
        measure(loader, consumer, 0.2 * seconds, seconds)?;
        let over = consumer.stuck().is_some() || interrupt::requested().is_some();
        if over || loader.is_settled() {
            break;
        }
    }
    Ok(())
}

/// Passes batches to the consumer for `seconds`, in as many epochs as needed. Returns the number of
/// batches.
///
/// Passes at least [`MIN_BATCHES`] batches, unless a signal arrives or the command reads too
/// slowly. The command gets `most` seconds to read, or [`MIN_DEADLINE_SECONDS`] if that is more.
fn measure(
    loader: &mut Loader,
    consumer: &mut Consumer,
    seconds: f64,
    most: f64,
) -> Result<u64, CommandError> {
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds);
    let last = begin + Duration::from_secs_f64(most.max(MIN_DEADLINE_SECONDS));
    let bar = progress((1e3 * seconds) as u64, "ms");
    let mut batches = 0;
    loop {
        for batch in &mut *loader {
            let batch = match batch {
                Err(_) if interrupt::requested().is_some() => return Ok(batches),
                batch => batch?,
            };
            bar.set_position((1e3 * begin.elapsed().as_secs_f64().min(seconds)) as u64);
            if !consumer.take(batch, last)? {
                return Ok(batches);
            }
            batches += 1;
            if Instant::now() >= end && batches >= MIN_BATCHES {
                bar.finish_and_clear();
                return Ok(batches);
            }
        }
    }
}

/// Measures the throughput in images/s while the encoded bytes of the first samples are in memory.
/// Returns `None` if the consumer stops taking batches.
fn cached(
    builder: LoaderBuilder,
    consumer: &mut Consumer,
    seconds: f64,
) -> Result<Option<f64>, CommandError> {
    let mut loader = builder.first_samples_cached(CACHED_SAMPLES)?.build()?;
    let _polled = Polled::waiting_for(&loader);
    for batch in &mut loader {
        if batch.is_err() && interrupt::requested().is_some() {
            return Ok(None);
        }
        drop(batch?);
    }
    warm_up(&mut loader, consumer, seconds)?;
    let before = loader.measured();
    let batches = measure(&mut loader, consumer, seconds, DEADLINE_FACTOR * seconds)?;
    Ok((batches >= MIN_BATCHES).then(|| loader.profile_since(&before).images_per_second()))
}

/// Measures how many samples per second threads read if they do nothing else.
fn scaling(source: &dyn Source, workers: u32, seconds: f64) -> ReadScaling {
    let len = u128::from(source.len());
    ReadScaling::measure(workers, (0.3 * seconds).clamp(0.6, 6.0), |place| {
        // Read samples that are far apart, so that no read finds its data in a cache of the system.
        let index = (u128::from(place) * 0x9e37_79b9_7f4a_7c15 % len) as u64;
        source.read(index, &mut HostPage::default(), u64::MAX).is_ok()
    })
}

fn milliseconds(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|it| (0.0..=3.6e6).contains(it))
        .ok_or_else(|| format!("{text} is not a number of milliseconds from 0 to 3600000"))
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|it| *it > 0.0 && *it <= 1e6)
        .ok_or_else(|| format!("{text} is not a number above 0 and up to 1000000"))
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|it| it.is_finite())
}
