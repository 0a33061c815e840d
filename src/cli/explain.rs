//! `explain`: what limits a pipeline, what to change, and what that gains.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use feedwater::explain::{Differential, Options as Wishes, Ranks, ReadScaling, Report, explain};
use feedwater::loader::{Batch, Loader, LoaderBuilder};
use feedwater::source::{HostPage, Source};
use feedwater::storage;

use super::report::warn;
use super::{DeviceOption, Failure, io_failure, print, print_json, progress};

/// Runs a pipeline, and says what limits it, what to change and what that gains
///
/// The file is a pipeline file (TOML). Reports that were saved before (names that end in .json) are read instead:
/// one is explained again, those of several ranks are merged and the slow rank is named.
#[derive(Args)]
#[command(
    after_help = "Example:\n  feedwater explain pipeline.toml --step-ms 45 --html report.html\n  feedwater explain rank*.json --html ranks.html"
)]
pub struct Options {
    /// A pipeline file, or reports
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where to run; auto is the GPU where there is one, else the CPU
    #[arg(long, value_enum, default_value_t)]
    device: DeviceOption,
    /// Milliseconds that the consumer takes for a batch
    #[arg(long, conflicts_with = "consumer_cmd", value_parser = milliseconds)]
    step_ms: Option<f64>,
    /// A command (for sh) that is given every batch's bytes on its standard input; its pace is the consumer's
    #[arg(long, value_name = "COMMAND")]
    consumer_cmd: Option<String>,
    /// Seconds to measure, after a warm-up
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Also measure how reads scale with threads, and three runs that differ in one thing each: without a loader, with
    /// bytes from memory, and as it is
    #[arg(long)]
    probe: bool,
    /// What an hour of the GPU costs, in your currency
    #[arg(long, value_name = "PRICE", value_parser = seconds)]
    price: Option<f64>,
    /// Write the report as JSON into this file, for `explain` and `simulate --from`
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write the report as a page that needs nothing else, with sliders that run the same model; of several reports, the
    /// ranks side by side
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the report as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Samples that the cached run is made of, at most.
const CACHED_SAMPLES: u64 = 4096;

pub fn main(options: &Options) -> Result<(), Failure> {
    let is_report = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
    if options.files.iter().all(is_report) {
        return read_reports(options);
    }
    let [file] = options.files.as_slice() else {
        let text = "give one pipeline file, or reports whose names end in .json";
        return Err(Failure::Misused(text.into()));
    };
    let report = run(options, file)?;
    save(options, &report)?;
    match options.json {
        true => print_json(&report),
        false => print(&report),
    }
}

/// Bytes of a saved report, at most.
const MOST_REPORT_BYTES: u64 = 64 << 20;

/// Explains reports that were saved.
fn read_reports(options: &Options) -> Result<(), Failure> {
    let mut reports = Vec::new();
    for path in &options.files {
        let text = storage::read_at_most(path, MOST_REPORT_BYTES);
        let text = text.map_err(|error| io_failure(path, &error))?;
        let saved: Report = serde_json::from_slice(&text).map_err(|error| {
            let path = path.display();
            Failure::Misused(format!("{path}: is no report of feedwater explain --save: {error}"))
        })?;
        let wishes = Wishes {
            price_per_hour: options.price.or(saved.cost.map(|cost| cost.price_per_hour)),
            scaling: saved.scaling.clone(),
            differential: saved.differential,
            ..Wishes::default()
        };
        reports.push(explain(&saved.profile, &wishes)?);
    }
    if let [report] = reports.as_slice() {
        save(options, report)?;
        return match options.json {
            true => print_json(report),
            false => print(report),
        };
    }
    if options.save.is_some() {
        let text = "--save keeps the report of one run, and several are given; --json prints what is merged of them";
        return Err(Failure::Misused(text.into()));
    }
    let ranks = Ranks::merge(&reports)?;
    if let Some(path) = &options.html {
        fs::write(path, ranks.to_html()).map_err(|error| io_failure(path, &error))?;
    }
    match options.json {
        true => print_json(&ranks),
        false => print(&ranks),
    }
}

/// Writes the files that were asked for.
fn save(options: &Options, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &options.save {
        let json = serde_json::to_string(report);
        let json = json.map_err(|error| Failure::Failed(format!("JSON: {error}")))?;
        fs::write(path, json + "\n").map_err(|error| io_failure(path, &error))?;
    }
    if let Some(path) = &options.html {
        fs::write(path, report.to_html()).map_err(|error| io_failure(path, &error))?;
    }
    Ok(())
}

fn run(options: &Options, file: &Path) -> Result<Report, Failure> {
    let builder = || -> Result<LoaderBuilder, Failure> {
        let pipeline = feedwater::config::Pipeline::from_file(file)?;
        Ok(pipeline.builder()?.device(options.device.choice()))
    };
    let loader = builder()?.build()?;
    warn(&loader);
    let mut consumer = Consumer::new(options)?;
    warm_up(&loader, &mut consumer, 0.2 * options.seconds)?;
    let before = loader.measured();
    measure(&loader, &mut consumer, options.seconds)?;
    let profile = loader.profile_since(&before);
    let wishes = match options.probe {
        false => Wishes { price_per_hour: options.price, ..Wishes::default() },
        true => {
            // The loader's own reads must not be in the way.
            drop(loader);
            let builder = builder()?;
            let scaling = scaling(&*builder.source(), profile.setup.workers, options.seconds);
            // What the consumer does in its steps alone.
            let synthetic = f64::from(profile.setup.batch) / profile.consumer.step.mean.max(1e-9);
            let cached = cached(builder, &mut consumer, options.seconds)?;
            let cold = profile.images_per_second();
            let differential = Some(Differential { synthetic, cached, cold });
            Wishes {
                price_per_hour: options.price,
                scaling: Some(scaling),
                differential,
                ..Wishes::default()
            }
        }
    };
    consumer.end();
    Ok(explain(&profile, &wishes)?)
}

/// The start is not measured, nor what a loader tries out that chooses for itself: up to twenty times as long.
fn warm_up(loader: &Loader, consumer: &mut Consumer, seconds: f64) -> Result<(), Failure> {
    for _ in 0..20 {
        measure(loader, consumer, seconds)?;
        if loader.is_settled() {
            break;
        }
    }
    Ok(())
}

/// Hands batches to the consumer for so many seconds, epoch after epoch; at least two batches.
fn measure(loader: &Loader, consumer: &mut Consumer, seconds: f64) -> Result<(), Failure> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let bar = progress((1e3 * seconds) as u64, "ms");
    let mut batches = 0;
    while Instant::now() < end || batches < 2 {
        for batch in loader {
            consumer.take(batch?)?;
            batches += 1;
            let left = end.saturating_duration_since(Instant::now());
            bar.set_position((1e3 * (seconds - left.as_secs_f64())) as u64);
            if left.is_zero() && batches >= 2 {
                break;
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Images a second with the bytes of the set's first samples in memory.
fn cached(builder: LoaderBuilder, consumer: &mut Consumer, seconds: f64) -> Result<f64, Failure> {
    let loader = builder.first_samples_cached(CACHED_SAMPLES)?.build()?;
    for batch in &loader {
        drop(batch?);
    }
    warm_up(&loader, consumer, 0.2 * seconds)?;
    let before = loader.measured();
    measure(&loader, consumer, seconds)?;
    Ok(loader.profile_since(&before).images_per_second())
}

/// How fast threads read samples and do nothing else.
fn scaling(source: &dyn Source, workers: u32, seconds: f64) -> ReadScaling {
    let len = u128::from(source.len());
    ReadScaling::measure(workers, (0.3 * seconds).clamp(0.6, 6.0), |place| {
        // Far from one another, so that what was read before is not read again soon.
        let index = (u128::from(place) * 0x9e37_79b9_7f4a_7c15 % len) as u64;
        source.read(index, &mut HostPage::default(), u64::MAX).is_ok()
    })
}

/// Who takes the batches.
enum Consumer {
    /// Nobody: they are given back at once.
    Idle,
    /// A step of this length.
    Sleeps(Duration),
    /// A command.
    Runs(Child, ChildStdin),
}

impl Consumer {
    fn new(options: &Options) -> Result<Self, Failure> {
        let Some(command) = &options.consumer_cmd else {
            let step = options.step_ms.map(|ms| Duration::from_secs_f64(1e-3 * ms));
            return Ok(step.map_or(Consumer::Idle, Consumer::Sleeps));
        };
        let failed = |error| Failure::Failed(format!("--consumer-cmd {command:?}: {error}"));
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        match child.stdin.take() {
            Some(stdin) => Ok(Consumer::Runs(child, stdin)),
            None => Err(Failure::Failed(format!("--consumer-cmd {command:?} has no input"))),
        }
    }

    fn take(&mut self, batch: Batch) -> Result<(), Failure> {
        match self {
            Consumer::Idle => {}
            Consumer::Sleeps(step) => thread::sleep(*step),
            Consumer::Runs(_, input) => {
                let written = match batch.host() {
                    Some(bytes) => input.write_all(bytes),
                    None => input.write_all(&batch.to_host()?),
                };
                written.map_err(|error| {
                    Failure::Failed(format!("--consumer-cmd: takes no more batches: {error}"))
                })?;
            }
        }
        drop(batch);
        Ok(())
    }

    /// The command's input ends; what it does then is its own affair, but it is waited for.
    fn end(self) {
        if let Consumer::Runs(mut child, input) = self {
            drop(input);
            let _ = child.wait();
        }
    }
}

fn milliseconds(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|it| (0.0..=3.6e6).contains(it))
        .ok_or_else(|| format!("{text} is no number of milliseconds from 0 to 3600000"))
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|it| *it > 0.0 && *it <= 1e6)
        .ok_or_else(|| format!("{text} is no number above 0 and up to 1000000"))
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|it| it.is_finite())
}
