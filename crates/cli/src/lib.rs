//! Commands, exit codes and what is said where.
//!
//! * Exit code 0: done. 1: failed. 2: misused, which is a wrong argument or a wrong setting in a pipeline file.
//!   128 and the number of a signal: interrupted (`interrupt.rs`).
//! * Results go to standard output, progress (on a terminal only) and errors to standard error.
//! * With `--json` the last line of standard output is one JSON object.
//! * Standard output that is closed early ends the command quietly.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use feedwater::Error;
use feedwater::config::Pipeline;
use feedwater::error::Redacted;
use feedwater::gpu::{self, Device};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::plan::Count;
use feedwater::storage;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use requests::shown;

mod bench;
mod bench_ops;
mod consumer;
mod demo;
mod doctor;
mod dump;
mod explain;
mod group;
mod images;
mod interrupt;
mod npy;
mod pack;
mod plan;
mod probe;
mod report;
mod requests;
mod run;
pub mod selftest;
mod sheet;
mod simulate;
mod synth;

/// Keeps a GPU fed: image files in, batches that are ready for the model out.
#[derive(Parser)]
#[command(name = "feedwater", version, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Begin with:
  feedwater doctor                                what this machine has
  feedwater demo                                  the main job, on images that it makes itself
  feedwater probe data/train                      what a folder, archive or other source holds
  feedwater synth data/train --images 200         images for a pipeline file of your own
  feedwater simulate --loaders 7 --load-ms 2000   a training loop that waits for its loaders, as an image

Exit code: 0 done, 1 failed, 2 misused (a wrong argument, or a wrong setting in the pipeline file), 129 hung up,
130 interrupted, 143 terminated";

#[derive(Subcommand)]
enum Command {
    Demo(demo::Options),
    Doctor(doctor::Options),
    Plan(plan::Options),
    Run(run::Options),
    Dump(dump::Options),
    Bench(bench::Options),
    Explain(explain::Options),
    BenchOps(bench_ops::Options),
    Synth(synth::Options),
    Probe(probe::Options),
    Simulate(simulate::Options),
    Pack(pack::Options),
    Selftest(selftest::Options),
}

/// A pipeline file, and where to run it.
#[derive(Args)]
struct PipelineOptions {
    /// The pipeline file (TOML)
    file: PathBuf,
    /// Where to run; auto is the GPU where there is one, else the CPU
    #[arg(long, value_enum, default_value_t)]
    device: DeviceOption,
}

impl PipelineOptions {
    fn builder(&self) -> Result<LoaderBuilder, CommandError> {
        let pipeline = Pipeline::from_file(&self.file)?;
        let storage = shown(pipeline.storage()?);
        Ok(pipeline.builder_with(&storage)?.device(self.device.choice()))
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum DeviceOption {
    Cpu,
    Gpu,
    #[default]
    Auto,
}

impl DeviceOption {
    fn choice(self) -> DeviceChoice {
        match self {
            DeviceOption::Cpu => DeviceChoice::Cpu,
            DeviceOption::Gpu => DeviceChoice::Gpu(0),
            DeviceOption::Auto => DeviceChoice::Auto,
        }
    }

    /// The name on the command line.
    fn name(self) -> &'static str {
        match self {
            DeviceOption::Cpu => "cpu",
            DeviceOption::Gpu => "gpu",
            DeviceOption::Auto => "auto",
        }
    }

    /// Fails where a GPU is asked for and there is none, before images are made for nothing.
    fn require(self) -> Result<(), CommandError> {
        if let DeviceChoice::Gpu(ordinal) = self.choice() {
            let device = Device::open(ordinal)?;
            gpu::compiler(&device)?;
        }
        Ok(())
    }
}

/// Why a command ended before its end.
pub enum CommandError {
    /// It could not be done.
    Failed(String),
    /// It was asked for in a way that cannot be.
    Misused(String),
    /// Nobody reads standard output any more.
    Unread,
    /// A signal came before there was anything to report.
    Interrupted,
}

impl From<feedwater_insight::Error> for CommandError {
    fn from(error: feedwater_insight::Error) -> Self {
        CommandError::Misused(error.to_string())
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let mut text = error.to_string();
        // For people the line of the file too, with a marker; for programs one line.
        if let Some(location) = error.location()
            && io::stderr().is_terminal()
        {
            text = format!("{text}\n{}", location.excerpt()).trim_end().into();
        }
        match error {
            Error::Config(_) => CommandError::Misused(text),
            _ => CommandError::Failed(text),
        }
    }
}

/// An error about settings, some of which options took the place of: each pair is a key and the option's name.
fn in_terms_of_options(error: Error, given: &[(&str, &str)]) -> CommandError {
    let Error::Config(mut error) = error else { return error.into() };
    for (setting, option) in given {
        error.problem = error.problem.replace(setting, option);
        if error.key == *setting {
            error.key = (*option).into();
        }
    }
    Error::Config(error).into()
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    interrupt::listen();
    // Where the system refuses, descriptors are closed and opened again more often.
    let _ = storage::raise_open_files_limit();
    let done = match command {
        Command::Demo(options) => demo::main(&options),
        Command::Doctor(options) => doctor::main(&options),
        Command::Plan(options) => plan::main(&options),
        Command::Run(options) => run::main(&options),
        Command::Dump(options) => dump::main(&options),
        Command::Bench(options) => bench::main(&options),
        Command::Explain(options) => explain::main(&options),
        Command::BenchOps(options) => bench_ops::main(&options),
        Command::Synth(options) => synth::main(&options),
        Command::Probe(options) => probe::main(&options),
        Command::Simulate(options) => simulate::main(&options),
        Command::Pack(options) => pack::main(&options),
        Command::Selftest(options) => selftest::main(&options),
    };
    let (code, text) = match done {
        Ok(()) | Err(CommandError::Unread | CommandError::Interrupted) => {
            interrupt::end_if_requested();
            return ExitCode::SUCCESS;
        }
        Err(CommandError::Failed(text)) => (1, text),
        Err(CommandError::Misused(text)) => (2, text),
    };
    // Standard error may be closed as well; then only the code is left to tell.
    let _ = writeln!(io::stderr(), "feedwater: {text}");
    ExitCode::from(code)
}

/// A number of threads on the command line.
fn count(text: &str) -> Result<Count, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(Count::Auto),
        (_, Ok(number @ 1..=1024)) => Ok(Count::Fixed(number)),
        _ => Err("must be a number from 1 to 1024, or auto".into()),
    }
}

/// A line, or several, of the result, without the secrets of URLs in it.
fn print(text: impl Display) -> Result<(), CommandError> {
    writeln!(io::stdout(), "{}", Redacted::new(text.to_string())).map_err(|error| {
        match error.kind() {
            ErrorKind::BrokenPipe => CommandError::Unread,
            _ => CommandError::Failed(format!("standard output: {error}")),
        }
    })
}

/// The result as one line of JSON.
fn print_json(result: &impl Serialize) -> Result<(), CommandError> {
    let line = serde_json::to_string(result);
    print(line.map_err(|error| CommandError::Failed(format!("JSON: {error}")))?)
}

/// A bar on standard error; invisible where that is not a terminal.
fn progress(len: u64, unit: &str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left");
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(len).with_style(style);
    interrupt::show(&bar, unit);
    bar
}

fn io_failure(path: &std::path::Path, error: &io::Error) -> CommandError {
    Error::io(path, error).into()
}
