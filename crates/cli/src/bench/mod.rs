//! `bench`: measures the throughput of the training chain on each decode route alone, and on all
//! routes together.
//!
//! * Each case runs in a process of its own. So its memory, CPU time and first batch can be
//!   measured. If a library crashes, only this case fails, and the reason is reported.
//! * A case consists of one warm-up epoch and the measured epochs. Its consumer drops every batch
//!   at once.
//! * Without a pipeline file, `bench` generates sets of photo-like JPEGs once and caches them. The
//!   first set has the chroma samplings, sizes and Huffman tables of ImageNet. The others are
//!   500x375, 2048x1536, progressive 500x375, and 500x375 with one progressive image in eight.
//!   Their pipeline files are stored beside them and also work with `run`, `plan` and `dump`.
//! * If the pipeline decodes images on the CPU, only the route `cpu` is measured. The other
//!   requested routes are listed with the reason why they are not measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use feedwater::internals::config::Pipeline;
use feedwater::internals::file;
use feedwater::internals::plan::Place;
use feedwater::loader::DeviceChoice;
use feedwater::plan::{AutoCount, Route};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::group::Group;
use super::images::cache;
use super::interrupt::{self, Polled};
use super::requests::shown;
use super::{CommandError, DEVICES, PROGRAM, count, print_json, print_lines, progress, require};
use case::Measured;
use sets::Set;
use table::Table;

mod case;
mod sets;
mod table;

/// Measures the training chain on every decode route: throughput, CPU time, memory, first batch
///
/// Each route is measured alone, and then all routes together with balancing. Without a pipeline
/// file, the images are generated once and cached. The cache is the folder $FEEDWATER_CACHE, or
/// else the folder feedwater in $XDG_CACHE_HOME or ~/.cache.
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater bench --images 500 --epochs 3 --json")]
pub struct Options {
    /// A pipeline file (TOML) to measure instead of the generated sets
    file: Option<PathBuf>,
    /// Number of images in the ImageNet-like and 500x375 sets. The progressive set has a quarter of
    /// this number, and the 2048x1536 set has an eighth
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "file")]
    images: u64,
    /// Number of measured epochs per case [default: as many as begin within 3 seconds]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: Option<u32>,
    /// Decode routes to measure, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = By::ALL)]
    routes: Vec<By>,
    /// Device to run on, instead of the file's `device`. cuda is the GPU that belongs to the
    /// launcher's local rank. auto is that GPU, or the CPU if there is none
    #[arg(long, value_name = DEVICES)]
    device: Option<DeviceChoice>,
    /// Number of worker threads, instead of loader.num_workers. auto chooses the number from
    /// measurements
    #[arg(long, alias = "num-workers", value_name = "auto|NUMBER", value_parser = count)]
    workers: Option<AutoCount>,
    /// Number of samples per batch [default of the generated sets: 256 on a GPU, 64 on the CPU]
    #[arg(long, alias = "batch-size", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: Option<u32>,
    /// Numbers of images per call of the JPEG engines, separated by commas, instead of
    /// decode.hardware_group. Each case that uses nvjpeg-hardware is measured once per number
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    hardware_group: Vec<u32>,
    /// Print the result as one line of JSON at the end
    #[arg(long)]
    json: bool,
    /// Measure only this case of the file, in this process
    #[arg(long, value_enum, hide = true, requires = "file")]
    case: Option<By>,
}

impl Options {
    /// Values of `decode.hardware_group` to measure; `None` keeps the value of the pipeline file.
    fn hardware_groups(&self) -> Vec<Option<u32>> {
        match &self.hardware_group[..] {
            [] => vec![None],
            groups => groups.iter().copied().map(Some).collect(),
        }
    }
}

/// Decode routes that a case uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// One route alone.
    Route(Route),
    /// All allowed routes. The balancer chooses one for each image from measured times.
    Balanced,
}

impl By {
    const ALL: [By; Route::ALL.len() + 1] = {
        let mut all = [By::Balanced; Route::ALL.len() + 1];
        let mut at = 0;
        while at < Route::ALL.len() {
            all[at] = By::Route(Route::ALL[at]);
            at += 1;
        }
        all
    };

    fn route(self) -> Option<Route> {
        match self {
            By::Route(route) => Some(route),
            By::Balanced => None,
        }
    }

    fn name(self) -> &'static str {
        self.route().map_or("balanced", Route::name)
    }
}

impl ValueEnum for By {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help =
            self.route().map_or("All allowed routes, balanced by measured queue times", |route| {
                route.about().trim_end_matches('.')
            });
        let value = PossibleValue::new(self.name()).help(help);
        Some(match self.route().and_then(Route::former_name) {
            Some(former) => value.alias(former),
            None => value,
        })
    }
}

impl Case {
    /// Name of the case's routes. If `--hardware-group` is given, the number of images per call
    /// follows.
    fn name(&self) -> String {
        match self.hardware_group {
            Some(group) => format!("{} x{group}", self.route.name()),
            None => self.route.name().into(),
        }
    }
}

impl Serialize for By {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Result of one case: one set on one route, or on all of them.
#[derive(Serialize)]
struct Case {
    set: String,
    route: By,
    /// Value of `--hardware-group` for this case.
    #[serde(skip_serializing_if = "Option::is_none")]
    hardware_group: Option<u32>,
    #[serde(flatten)]
    result: CaseResult,
}

/// Outcome of a case.
#[derive(Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
enum CaseResult {
    Measured(Box<Measured>),
    /// The case was not measured, for this reason.
    Skipped {
        reason: String,
    },
    Failed {
        reason: String,
    },
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    if let (Some(file), Some(by)) = (&options.file, options.case) {
        return print_json(&case::measure(file, by.route(), options)?);
    }
    require(options.device)?;
    let sets = match &options.file {
        Some(file) => vec![Set::of_file(file)],
        None => sets::make(&cache()?, options.images, options.json)?,
    };
    let cases = run(options, &sets)?;
    let count = |like: fn(&CaseResult) -> bool| cases.iter().filter(|it| like(&it.result)).count();
    let measured = count(|it| matches!(it, CaseResult::Measured(_)));
    let skipped = count(|it| matches!(it, CaseResult::Skipped { .. }));
    let failed = count(|it| matches!(it, CaseResult::Failed { .. }));
    print_lines(Table(&cases))?;
    if options.json {
        print_json(&json!({
            "cases": cases, "measured": measured, "skipped": skipped, "failed": failed,
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "bar_host_microseconds_per_image": table::HOST_BAR,
        }))?;
    }
    if interrupt::requested().is_some() {
        return Err(CommandError::Interrupted);
    }
    match (failed, measured) {
        (0, 1..) => Ok(()),
        (0, 0) => Err(CommandError::Failed(
            "no route of --routes can be measured on this machine; the lines that begin with \
             `skipped` give the reasons"
                .into(),
        )),
        _ => Err(CommandError::Failed(format!("{failed} of {} cases failed", cases.len()))),
    }
}

/// Runs all cases of all sets, one after the other.
fn run(options: &Options, sets: &[Set]) -> Result<Vec<Case>, CommandError> {
    let bar = progress((sets.len() * options.routes.len()) as u64, "cases");
    // If a signal arrives, the loop ends and the finished cases are printed.
    let _polled = Polled::begin();
    let mut cases = Vec::new();
    for set in sets {
        let available = AvailableRoutes::of(set, options)?;
        for &by in &options.routes {
            let against = available.reason_against(by, set);
            let groups = match against {
                None if available.has_engines(by) => options.hardware_groups(),
                _ => vec![None],
            };
            for hardware_group in groups {
                let result = match &against {
                    Some(reason) => CaseResult::Skipped { reason: reason.clone() },
                    None => measure(set, (by, hardware_group), &available, options),
                };
                if interrupt::requested().is_some() {
                    return Ok(cases);
                }
                cases.push(Case { set: set.name.clone(), route: by, hardware_group, result });
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(cases)
}

/// Decode routes that can be measured with the pipeline of a set.
struct AvailableRoutes {
    /// Device that the command line names, or else the pipeline file.
    device: DeviceChoice,
    /// Routes that the pipeline file allows.
    routes: Vec<Route>,
    /// Reason why images are decoded on the CPU. `None` if the GPU decodes them.
    on_cpu: Option<String>,
}

impl AvailableRoutes {
    fn of(set: &Set, options: &Options) -> Result<Self, CommandError> {
        let pipeline = Pipeline::from_file(&set.file)?;
        let routes = pipeline.settings.decode.routes.clone();
        let storage = shown(pipeline.storage()?);
        let device = options.device.unwrap_or(pipeline.settings.device);
        let plan = pipeline.builder_with(&storage)?.device(device).plan()?;
        let on_cpu = (plan.decode == Place::Cpu).then(|| match plan.uses_gpu() {
            true => "the pipeline file places decoding on the CPU".into(),
            false => "no GPU is used, so only the CPU path is measured".into(),
        });
        Ok(Self { device, routes, on_cpu })
    }

    /// Whether a case decodes images on the JPEG engines.
    fn has_engines(&self, by: By) -> bool {
        match by.route() {
            Some(route) => route.batches(),
            None => self.routes.iter().any(|route| route.batches()),
        }
    }

    /// Returns the reason why a case cannot be measured, or `None` if it can.
    fn reason_against(&self, by: By, set: &Set) -> Option<String> {
        match (by.route(), &self.on_cpu) {
            (Some(route), Some(_)) if !route.on_device() => None,
            (_, Some(why)) => Some(why.clone()),
            (Some(route), None) if !self.routes.contains(&route) => {
                Some(format!("decode.routes does not include {}", route.name()))
            }
            (Some(route), None) => {
                let why = route.takes(set.example.as_ref()?, 1).err()?;
                Some(format!("the route does not support these JPEGs: {why}"))
            }
            _ => None,
        }
    }
}

/// Runs one case in its own process.
fn measure(
    set: &Set,
    (by, hardware_group): (By, Option<u32>),
    available: &AvailableRoutes,
    options: &Options,
) -> CaseResult {
    let failed = |reason: String| CaseResult::Failed { reason };
    let Some([program, first @ ..]) = PROGRAM.get().map(Vec::as_slice) else {
        return failed(
            "the path of this program, which measures each case in a new process, is unknown"
                .into(),
        );
    };
    let device = match available.device {
        DeviceChoice::Auto if available.on_cpu.is_none() => DeviceChoice::LocalGpu,
        device => device,
    };
    let mut command = Command::new(program);
    command.args(first).arg("bench").arg(&set.file).args([
        "--case",
        by.name(),
        "--device",
        &device.to_string(),
    ]);
    let own_batch = if available.on_cpu.is_some() { 64 } else { 256 };
    let batch = options.batch.or((!set.is_users).then_some(own_batch));
    let numbers = [
        ("--batch", batch.map(|it| it.to_string())),
        ("--workers", options.workers.map(|it| it.to_string())),
        ("--epochs", options.epochs.map(|it| it.to_string())),
        ("--hardware-group", hardware_group.map(|it| it.to_string())),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            command.args([name, &value]);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = match Group::spawn(&mut command).and_then(Group::output) {
        Ok(output) => output,
        Err(error) => {
            return failed(format!(
                "the process that measures the case could not be started: {error}"
            ));
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let message = stderr.trim().lines().next_back().unwrap_or_default();
        let message = message.strip_prefix("feedwater: ").unwrap_or(message);
        return failed(match message {
            "" => output.status.to_string(),
            message => message.to_string(),
        });
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    match serde_json::from_str(stdout.lines().next_back().unwrap_or_default()) {
        Ok(measured) => CaseResult::Measured(Box::new(measured)),
        Err(error) => failed(format!(
            "the process that measured the case printed no valid JSON as its last line: {error}"
        )),
    }
}

/// Writes a text file. Does nothing if the file already has this content.
fn write_if_changed(path: &Path, text: &str) -> Result<(), CommandError> {
    if fs::read_to_string(path).is_ok_and(|kept| kept == text) {
        return Ok(());
    }
    file::write(path, text).map_err(|error| super::io_failure(path, &error))
}
