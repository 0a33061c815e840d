//! `simulate --from`: simulates a measured pipeline on the measured and on other hardware.

use std::path::Path;

use clap::Args;
use feedwater::internals::file;
use feedwater_insight::Error;
use feedwater_insight::model::{self, Forecast, Model, Options as Run};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{CommandError, io_failure, print, print_json};
use super::{Options, percent, within};

/// A simulation has at least `BATCHES` batches and at least `SAMPLES` samples, unless it would then
/// exceed [`VISITS`].
const BATCHES: u64 = 500;
const SAMPLES: u64 = 40_000;
/// Largest number of samples multiplied by the number of stages in one simulation. A simulation of
/// this size takes about a second.
const VISITS: u64 = 2_000_000;
/// Largest report file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Options that describe hardware different from the measured hardware.
#[derive(Args)]
pub struct Hardware {
    /// Number of workers of each GPU's loader
    #[arg(long, alias = "num-workers", requires = "from")]
    workers: Option<u32>,
    /// Number of CPU cores per host
    #[arg(long, requires = "from")]
    cores: Option<u32>,
    /// Prefetched batches
    #[arg(long, requires = "from")]
    prefetch: Option<u32>,
    /// Number of samples per batch
    #[arg(long, alias = "batch-size", requires = "from")]
    batch: Option<u32>,
    /// Number of GPUs per host
    #[arg(long, requires = "from", default_value_t = 1)]
    gpus_per_host: u32,
    /// Number of hosts
    #[arg(long, requires = "from", default_value_t = 1)]
    hosts: u32,
    /// Number of servers of a resource, such as the JPEG engines, per GPU
    #[arg(long, requires = "from", value_name = "NAME=SERVERS")]
    resource: Vec<String>,
    /// Multiply the time of a stage by this factor
    #[arg(long, requires = "from", value_name = "NAME=FACTOR")]
    scale_stage: Vec<String>,
    /// Throughput of the disk that the GPUs of a host share, in 10^6 bytes per second
    #[arg(long = "disk-MBps", requires = "from", value_name = "RATE")]
    disk_mbps: Option<f64>,
    /// Throughput of the link or storage that all hosts share, in 10^6 bytes per second
    #[arg(long = "link-MBps", requires = "from", value_name = "RATE")]
    link_mbps: Option<f64>,
    /// Mean number of bytes of an encoded sample, for --disk-MBps and --link-MBps [default: from
    /// the report]
    #[arg(long, requires = "from")]
    sample_bytes: Option<f64>,
}

/// Function that reads one share from a forecast, such as the share of the time in which the
/// consumer waits.
type Share = fn(&Forecast) -> f64;

/// The fields of a report that this command reads. Other fields are ignored.
#[derive(Deserialize)]
struct Report {
    model: Value,
    #[serde(default)]
    sample_bytes: Option<f64>,
    #[serde(default)]
    profile: Value,
}

impl Report {
    /// Mean number of bytes that are read for a sample: the value of the report's own field, or
    /// else what `explain` measured. Samples that are cached without their files are not read.
    fn sample_bytes(&self) -> Option<f64> {
        let number = |name: &str| self.profile.pointer(name).and_then(Value::as_f64);
        let read = 1.0 - number("/data/unread_share").unwrap_or(0.0).clamp(0.0, 1.0);
        let met = || number("/data/mean_bytes").map(|bytes| read * bytes);
        self.sample_bytes.or_else(met).filter(|bytes| *bytes > 0.0)
    }
}

pub fn main(path: &Path, options: &Options) -> Result<(), CommandError> {
    let report = read(path)?;
    let hardware = hardware(options, report.sample_bytes())?;
    let measured: Model = serde_json::from_value(report.model)
        .map_err(|error| misused(path, &format!("model: {error}")))?;
    let changed = hardware.apply(&measured).map_err(|error| in_terms_of_options(path, &error))?;
    let as_measured = simulate(&measured, options.seed)?;
    let as_changed = simulate(&changed, options.seed)?;
    let gpus = hardware.gpus();
    if options.json {
        let result = |model: &Model, forecast: &Forecast, gpus: f64| {
            json!({
                "gpus": gpus,
                "images_per_second": forecast.samples_per_second * gpus,
                "images_per_second_per_gpu": forecast.samples_per_second,
                "consumer_waits": forecast.consumer_waits,
                "readiness": forecast.readiness,
                "limits": limits(model),
                "forecast": forecast,
                "model": model,
            })
        };
        return print_json(&json!({
            "hardware": hardware,
            "measured": result(&measured, &as_measured, 1.0),
            "changed": result(&changed, &as_changed, gpus),
            "gain": gpus * as_changed.samples_per_second / as_measured.samples_per_second - 1.0,
        }));
    }
    let row = |name: &str, measured: String, changed: String| {
        print(format!("{name:<26}{measured:>18}{changed:>18}"))
    };
    let rate = |rate: f64| format!("{rate:.1}");
    row("", "as measured".into(), "changed".into())?;
    row("GPUs", "1".into(), gpus.to_string())?;
    let (one, other) = (as_measured.samples_per_second, as_changed.samples_per_second);
    row("images/s", rate(one), rate(other * gpus))?;
    row("images/s per GPU", rate(one), rate(other))?;
    let shares: [(&str, Share); 4] = [
        ("the consumer waits", |it| it.consumer_waits),
        ("arrivals find a batch", |it| it.readiness),
        ("cores are busy", |it| it.cores),
        ("workers wait for a slot", |it| it.worker_shares().slot),
    ];
    for (name, share) in shares {
        row(name, percent(share(&as_measured)), percent(share(&as_changed)))?;
    }
    for (name, model, forecast) in
        [("measured", &measured, &as_measured), ("changed", &changed, &as_changed)]
    {
        print(format!("{name}: {}", bounds(model, forecast)))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Report, CommandError> {
    let failed = |error: std::io::Error| io_failure(path, &error);
    let text = file::read_text(path, MAX_BYTES).map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| {
        misused(
            path,
            &format!(
                "the file is not a report of feedwater explain --json or simulate --json, which \
                 has a field `model`: {error}"
            ),
        )
    })
}

fn misused(path: &Path, problem: &str) -> CommandError {
    CommandError::Misused(format!("{}: {problem}", path.display()))
}

/// Converts an error of the model. Adds the file or the options to its message if the message does
/// not name them.
fn in_terms_of_options(path: &Path, error: &Error) -> CommandError {
    match error {
        Error { key, problem } if key == "sample_bytes" => {
            CommandError::Misused(format!("--sample-bytes: {problem}"))
        }
        error => misused(path, &error.to_string()),
    }
}

fn hardware(options: &Options, sample_bytes: Option<f64>) -> Result<model::Hardware, CommandError> {
    let asked = &options.hardware;
    let step = options.step_ms.map(|step| within("--step-ms", step, 0.0..=1e9)).transpose()?;
    let rate = |name: &str, rate: Option<f64>| match rate {
        Some(rate) => within(name, rate, 1e-6..=1e12).map(|rate| Some(rate * 1e6)),
        None => Ok(None),
    };
    let given =
        asked.sample_bytes.map(|it| within("--sample-bytes", it, 1.0..=1e12)).transpose()?;
    Ok(model::Hardware {
        workers: asked.workers,
        cores: asked.cores,
        prefetch: asked.prefetch,
        batch: asked.batch,
        step: step.map(|step| step / 1e3),
        resources: pairs("--resource", &asked.resource)?,
        stages: pairs("--scale-stage", &asked.scale_stage)?,
        gpus_per_host: asked.gpus_per_host,
        hosts: asked.hosts,
        disk: rate("--disk-MBps", asked.disk_mbps)?,
        link: rate("--link-MBps", asked.link_mbps)?,
        sample_bytes: given.or(sample_bytes),
    })
}

/// Parses the values of options of the form NAME=VALUE.
fn pairs<T: std::str::FromStr>(
    option: &str,
    texts: &[String],
) -> Result<Vec<(String, T)>, CommandError> {
    let pair = |text: &String| {
        let (name, value) = text.rsplit_once('=')?;
        Some((name.to_string(), value.trim().parse().ok()?))
    };
    let wrong =
        |text: &String| CommandError::Misused(format!("{option}: must be NAME=NUMBER, is {text}"));
    texts.iter().map(|text| pair(text).ok_or_else(|| wrong(text))).collect()
}

/// Simulates a model. The simulation is long enough for a steady result, but takes at most about a
/// second.
fn simulate(model: &Model, seed: u32) -> Result<Forecast, CommandError> {
    let visits = u64::from(model.batch) * model.stages.len() as u64;
    let enough = BATCHES.max(SAMPLES / u64::from(model.batch.max(1)));
    let batches = (VISITS / visits.max(1)).clamp(20, enough) as u32;
    let run = Run::batches(batches, batches / 10).seed(seed);
    Ok(model.run(&run)?)
}

fn limits(model: &Model) -> Vec<Value> {
    let capacity = model.capacity();
    let named = capacity
        .iter()
        .map(|(limit, rate)| json!({ "limit": limit.name(model), "images_per_second": rate }));
    named.collect()
}

/// Formats the smallest throughput bound and the next larger one.
fn bounds(model: &Model, forecast: &Forecast) -> String {
    let capacity = model.capacity();
    let Some((limit, rate)) = capacity.first() else { return "nothing limits".into() };
    let name = limit.name(model);
    let reached = percent(forecast.samples_per_second / rate);
    let mut text = format!(
        "{name} allow {rate:.1} images/s per GPU, and the simulated run reaches {reached} of that"
    );
    if let Some((next, rate)) = capacity.get(1) {
        text += &format!("; next {}, {rate:.1}", next.name(model));
    }
    text
}
