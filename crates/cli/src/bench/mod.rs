//! `bench`: what the training chain reaches by every route of decoding, alone and balanced.
//!
//! * Every case is a process of its own, so that its memory, its processor time and its first batch are its own, and so
//!   that a library which brings a case down does not end the others: the case counts as failed, with the reason.
//! * A case is an epoch to warm up, then the measured ones. Its consumer drops batches.
//! * Without a file the sets are photo-like JPEGs that are made once and kept: 500x375, 2048x1536, progressive ones of
//!   500x375, and the first with an eighth of them progressive. Beside them lie their pipeline files, which `run`, `plan`
//!   and `dump` take as well.
//! * Where images are decoded on the CPU there is one way to do it, and it is measured alone; what was asked for
//!   besides is named with the reason.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use feedwater::config::Pipeline;
use feedwater::file;
use feedwater::plan::{Count, Place, Route};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::doctor::warn_without_simd;
use super::group::Group;
use super::images::cache;
use super::interrupt::{self, Polled};
use super::requests::shown;
use super::{CommandError, DeviceOption, count, print, print_json, progress};
use case::Measured;
use sets::Set;
use table::Table;

mod case;
mod sets;
mod table;

/// Measures the training chain by every route of decoding: rate, processor time, memory, first batch
///
/// Each route alone, then all of them balanced. Without a pipeline file the images are made once and kept in
/// $FEEDWATER_CACHE, else in feedwater under $XDG_CACHE_HOME or ~/.cache.
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater bench --images 500 --epochs 3 --json")]
pub struct Options {
    /// A pipeline file (TOML) instead of the sets that are made
    file: Option<PathBuf>,
    /// Images of 500x375; of the progressive there are a quarter, of the large an eighth
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "file")]
    images: u64,
    /// Measured epochs of each case; without it, until 3 seconds have passed
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: Option<u32>,
    /// What to measure, by comma
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = By::ALL)]
    routes: Vec<By>,
    /// Where to run; auto is the GPU where there is one, else the CPU
    #[arg(long, value_enum, default_value_t)]
    device: DeviceOption,
    /// Threads, instead of loader.workers; auto chooses from what is measured
    #[arg(long, value_name = "auto|NUMBER", value_parser = count)]
    workers: Option<Count>,
    /// Samples in a batch; of the sets that are made 256 on a GPU and 64 on the CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: Option<u32>,
    /// End with the result as one line of JSON
    #[arg(long)]
    json: bool,
    /// Measure this one case of the file, in this process
    #[arg(long, value_enum, hide = true, requires = "file")]
    case: Option<By>,
}

/// By what images are decoded in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// One route alone.
    Route(Route),
    /// All that the settings allow, by measured queue times.
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
            self.route().map_or("All that the settings allow, by measured queue times", |route| {
                route.about().trim_end_matches('.')
            });
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl Serialize for By {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One set by one route, and how it went.
#[derive(Serialize)]
struct Case {
    set: String,
    route: By,
    #[serde(flatten)]
    result: CaseResult,
}

/// How a case went.
#[derive(Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
enum CaseResult {
    Measured(Box<Measured>),
    /// It cannot be, for this reason.
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
    options.device.require()?;
    warn_without_simd();
    let sets = match &options.file {
        Some(file) => vec![Set::of_file(file)],
        None => sets::make(&cache()?, options.images, options.json)?,
    };
    let cases = run(options, &sets)?;
    let count = |like: fn(&CaseResult) -> bool| cases.iter().filter(|it| like(&it.result)).count();
    let measured = count(|it| matches!(it, CaseResult::Measured(_)));
    let skipped = count(|it| matches!(it, CaseResult::Skipped { .. }));
    let failed = count(|it| matches!(it, CaseResult::Failed { .. }));
    print(Table(&cases))?;
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
        (0, 0) => Err(CommandError::Failed("no route of --routes can be measured here".into())),
        _ => Err(CommandError::Failed(format!("{failed} of {} cases failed", cases.len()))),
    }
}

/// Every case of every set, one after the other.
fn run(options: &Options, sets: &[Set]) -> Result<Vec<Case>, CommandError> {
    let bar = progress((sets.len() * options.routes.len()) as u64, "cases");
    // The cases that are done are shown.
    let _polled = Polled::begin();
    let mut cases = Vec::new();
    for set in sets {
        let ways = Ways::of(set, options)?;
        for &by in &options.routes {
            let result = match ways.reason_against(by, set) {
                Some(reason) => CaseResult::Skipped { reason },
                None => measure(set, by, &ways, options),
            };
            if interrupt::requested().is_some() {
                return Ok(cases);
            }
            cases.push(Case { set: set.name.clone(), route: by, result });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(cases)
}

/// In which ways a set can be decoded here.
struct Ways {
    /// Those that the settings allow where decoding is on the device, else none.
    routes: Vec<Route>,
    /// Why decoding is on the CPU, where it is.
    on_cpu: Option<String>,
}

impl Ways {
    fn of(set: &Set, options: &Options) -> Result<Self, CommandError> {
        let pipeline = Pipeline::from_file(&set.file)?;
        let routes = pipeline.settings.decode.routes.clone();
        let storage = shown(pipeline.storage()?);
        let plan = pipeline.builder_with(&storage)?.device(options.device.choice()).plan()?;
        let on_cpu = (plan.decode == Place::Cpu).then(|| match plan.uses_gpu() {
            true => "images are decoded on the CPU, as the file says".into(),
            false => "no GPU is used here, the CPU path alone is measured".into(),
        });
        Ok(Self { routes, on_cpu })
    }

    /// Why a case cannot be.
    fn reason_against(&self, by: By, set: &Set) -> Option<String> {
        match (by.route(), &self.on_cpu) {
            (Some(route), Some(_)) if !route.on_device() => None,
            (_, Some(why)) => Some(why.clone()),
            (Some(route), None) if !self.routes.contains(&route) => {
                Some(format!("decode.routes leaves {} out", route.name()))
            }
            (Some(route), None) => {
                let why = route.takes(set.example.as_ref()?, 1).err()?;
                Some(format!("it does not take these JPEGs: {why}"))
            }
            _ => None,
        }
    }
}

/// Runs one case in a process of its own.
fn measure(set: &Set, by: By, ways: &Ways, options: &Options) -> CaseResult {
    let failed = |reason: String| CaseResult::Failed { reason };
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(format!("the path of this program: {error}")),
    };
    let device = match options.device {
        DeviceOption::Auto if ways.on_cpu.is_none() => DeviceOption::Gpu,
        device => device,
    };
    let mut command = Command::new(program);
    command.arg("bench").arg(&set.file).args(["--case", by.name(), "--device", device.name()]);
    let own_batch = if ways.on_cpu.is_some() { 64 } else { 256 };
    let batch = options.batch.or((!set.is_users).then_some(own_batch));
    let numbers = [
        ("--batch", batch.map(|it| it.to_string())),
        ("--workers", options.workers.map(|it| it.to_string())),
        ("--epochs", options.epochs.map(|it| it.to_string())),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            command.args([name, &value]);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = match Group::spawn(&mut command).and_then(Group::output) {
        Ok(output) => output,
        Err(error) => return failed(format!("the case could not be started: {error}")),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let words = stderr.trim().lines().next_back().unwrap_or_default();
        let words = words.strip_prefix("feedwater: ").unwrap_or(words);
        return failed(match words {
            "" => output.status.to_string(),
            words => words.to_string(),
        });
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    match serde_json::from_str(stdout.lines().next_back().unwrap_or_default()) {
        Ok(measured) => CaseResult::Measured(Box::new(measured)),
        Err(error) => failed(format!("the case told nothing that can be read: {error}")),
    }
}

/// Puts a text into a file, unless it is there already.
fn keep(path: &Path, text: &str) -> Result<(), CommandError> {
    if fs::read_to_string(path).is_ok_and(|kept| kept == text) {
        return Ok(());
    }
    file::write(path, text).map_err(|error| super::io_failure(path, &error))
}
