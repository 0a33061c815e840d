//! The `feedwater` command line: commands, exit codes and output streams.
//!
//! * Exit code 0: success. 1: failure. 2: usage error (a wrong argument, or a wrong setting in a
//!   pipeline file). 128 + N: interrupted by signal N (see `interrupt.rs`).
//! * Results go to standard output. Progress (on a terminal only) and errors go to standard error.
//! * With `--json`, the last line of standard output is one JSON object.
//! * The functions `print`, `print_lines`, `print_json` and `tell` write all output. They escape
//!   control characters and direction marks, so that data cannot control the terminal. If a text
//!   has several lines, the caller must escape the line feeds in its data.
//! * If the reader of standard output closes it early, the command exits without an error.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Args, Parser, Subcommand};
use feedwater::Error;
use feedwater::gpu::Runtime;
use feedwater::internals::config::Pipeline;
use feedwater::internals::error::{Redacted, escaped, escaped_json, escaped_lines};
use feedwater::internals::gpu::nvjpeg::set_checking_program;
use feedwater::internals::loader::open_device;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

pub use sheet::normalization;

use arguments::{count, threads};
use requests::shown;

mod arguments;
mod bench;
mod bench_ops;
mod check_windows;
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

/// Loads images for vision models: reads image files and returns batches of tensors
#[derive(Parser)]
#[command(name = "feedwater", version, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Begin with:
  feedwater doctor                                hardware and libraries of this machine
  feedwater demo                                  one epoch of generated images through a training chain
  feedwater probe data/train                      what a folder, archive or other source contains
  feedwater synth data/train --images 200         images for a pipeline file of your own
  feedwater simulate --loaders 7 --load-ms 2000   a training loop that waits for its loaders, drawn as a timeline

Exit code: 0 success, 1 failure, 2 usage error (a wrong argument, or a wrong setting in the pipeline file),
129 SIGHUP, 130 SIGINT, 143 SIGTERM";

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
    #[command(hide = true)]
    CheckWindows(check_windows::Options),
}

/// A pipeline file and the device to run it on.
#[derive(Args)]
struct PipelineOptions {
    /// Path of the pipeline file (TOML)
    file: PathBuf,
    /// Device to run on, instead of the file's `device`. cuda is the GPU that belongs to the
    /// launcher's local rank. auto is that GPU, or the CPU if there is none
    #[arg(long, value_name = DEVICES)]
    device: Option<DeviceChoice>,
}

impl PipelineOptions {
    fn builder(&self) -> Result<LoaderBuilder, CommandError> {
        let pipeline = Pipeline::from_file(&self.file)?;
        let storage = shown(pipeline.storage()?);
        Ok(on(pipeline.builder_with(&storage)?, self.device))
    }
}

/// Values of the option `--device`, as shown in the help.
const DEVICES: &str = "auto|cpu|cuda|cuda:N";

/// Sets the device of a builder if the command line names a device.
fn on(builder: LoaderBuilder, device: Option<DeviceChoice>) -> LoaderBuilder {
    match device {
        Some(device) => builder.device(device),
        None => builder,
    }
}

/// Fails if the command line requires a GPU but none is usable. Called before images are generated,
/// which takes long.
fn require(device: Option<DeviceChoice>) -> Result<(), CommandError> {
    if let Some(device) = device.filter(|it| it.needs_gpu()) {
        open_device(device, &Runtime::default())?;
    }
    Ok(())
}

/// Reason why a command ended early.
pub enum CommandError {
    /// The work failed: exit code 1.
    Failed(String),
    /// The arguments or settings are wrong: exit code 2.
    Misused(String),
    /// A failure or a usage error, whose message is followed by more lines.
    Explained {
        /// The exit code.
        code: u8,
        /// The message.
        text: String,
        /// The additional lines: an excerpt of the pipeline file, or a compiler's log.
        more: String,
    },
    /// The reader of standard output closed it.
    Unread,
    /// A signal arrived before the command had anything to report.
    Interrupted,
}

impl From<feedwater_insight::Error> for CommandError {
    fn from(error: feedwater_insight::Error) -> Self {
        CommandError::Misused(error.to_string())
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        // Errors of kernel compilation have the compiler's log after the first line.
        let (text, mut more) = match text.split_once('\n') {
            Some((text, log)) => (text.to_string(), log.to_string()),
            None => (text, String::new()),
        };
        // On a terminal, also print the line of the file that has the error. Otherwise print only
        // one line, which other programs can read more easily.
        if let Some(location) = error.location()
            && io::stderr().is_terminal()
        {
            more = location.excerpt();
        }
        match (error, more.trim_end()) {
            (Error::Config(_), "") => CommandError::Misused(text),
            (_, "") => CommandError::Failed(text),
            (Error::Config(_), more) => {
                CommandError::Explained { code: 2, text, more: more.into() }
            }
            (_, more) => CommandError::Explained { code: 1, text, more: more.into() },
        }
    }
}

/// Converts a configuration error. If the wrong setting was given as an option, the message names
/// the option. `given` contains pairs of a setting's key and its option.
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

/// Command that starts this program again: the path of the program, and the arguments that come
/// before those of a command.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let code = match env::current_exe() {
        Ok(program) => main_as(vec![program.into()], env::args_os().skip(1)),
        Err(_) => main_as(Vec::new(), env::args_os().skip(1)),
    };
    ExitCode::from(code)
}

/// Runs the command that `arguments` name, within another program. `program` is the command that
/// starts this other program again: its path, and the arguments that lead to this function. Returns
/// the exit code. After a signal, ends the process instead.
pub fn main_as(program: Vec<OsString>, arguments: impl IntoIterator<Item = OsString>) -> u8 {
    set_checking_program(PROGRAM.get_or_init(|| program).iter().cloned());
    let arguments: Vec<OsString> = iter::once("feedwater".into()).chain(arguments).collect();
    let command = match arguments::parse(&arguments) {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    interrupt::listen();
    // If the limit of open files cannot be raised, files are closed and opened again more often,
    // which is no error.
    let _ = feedwater::internals::storage::raise_open_files_limit();
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
        Command::CheckWindows(options) => check_windows::main(&options),
    };
    let (code, text, more) = match done {
        Ok(()) | Err(CommandError::Unread | CommandError::Interrupted) => {
            interrupt::end_if_requested();
            return 0;
        }
        Err(CommandError::Failed(text)) => (1, text, String::new()),
        Err(CommandError::Misused(text)) => (2, text, String::new()),
        Err(CommandError::Explained { code, text, more }) => (code, text, more),
    };
    tell(format!("feedwater: {}", arguments::as_written(&text, &arguments)));
    if !more.is_empty() {
        let _ = writeln!(io::stderr(), "{}", escaped_lines(&more));
    }
    code
}

/// Prints a line of the result. Secrets in URLs are redacted.
fn print(line: impl Display) -> Result<(), CommandError> {
    write_result(&escaped(&redacted(line)))
}

/// Prints several lines of the result, whose data is already escaped. Secrets in URLs are redacted.
fn print_lines(text: impl Display) -> Result<(), CommandError> {
    write_result(&escaped_lines(&redacted(text)))
}

/// Prints the result as one line of JSON.
fn print_json(result: &impl Serialize) -> Result<(), CommandError> {
    let line = serde_json::to_string(result);
    let line = line.map_err(|error| CommandError::Failed(format!("JSON: {error}")))?;
    write_result(&escaped_json(&redacted(line)))
}

/// Prints a line on standard error. Secrets in URLs are redacted. If standard error is closed, the
/// line is lost.
fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", escaped(&redacted(line)));
}

fn redacted(text: impl Display) -> String {
    Redacted::new(text.to_string()).into_string()
}

fn write_result(text: &str) -> Result<(), CommandError> {
    writeln!(io::stdout(), "{text}").map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CommandError::Unread,
        _ => CommandError::Failed(format!("standard output: {error}")),
    })
}

/// Creates a progress bar on standard error. It is hidden unless standard error is a terminal.
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
