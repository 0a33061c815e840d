//! Arguments of the commands: parsing, other names of options, and messages about wrong arguments.

use std::borrow::Cow;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use feedwater::internals::error::escaped;
use feedwater::plan::AutoCount;

use super::Cli;

/// Options with another name, which is that of the setting.
const OTHER_NAMES: [(&str, &str); 2] =
    [("--workers", "--num-workers"), ("--batch", "--batch-size")];

/// Options of other programs, with the options that have their meaning. Clap suggests only options
/// whose letters are similar.
const SIMILAR: [(&str, &str); 5] = [
    ("--threads", "--workers"),
    ("--num-threads", "--workers"),
    ("--jobs", "--workers"),
    ("--num_workers", "--workers"),
    ("--batch_size", "--batch"),
];

/// Parses the arguments. If they are wrong or request the help, prints this and returns the exit
/// code.
pub fn parse(arguments: &[OsString]) -> Result<Cli, u8> {
    parsed(arguments).map_err(|error| {
        // The error message quotes arguments, which may contain control characters. So parse
        // escaped copies of the arguments. They cause the same error, with a message that is safe
        // to print.
        let shown = arguments.iter().map(|it| escaped(&it.to_string_lossy()).into_owned().into());
        let mut error = parsed(&shown.collect::<Vec<_>>()).err().unwrap_or(error);
        explain(&mut error, arguments);
        // Printing fails only if the reader has closed the output, which is no error.
        let _ = error.print();
        error.exit_code() as u8
    })
}

fn parsed(arguments: &[OsString]) -> clap::error::Result<Cli> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The commands. A negative number is the value of the option before it, so that the message for it
/// states which numbers the option accepts.
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| {
        command.mut_args(|option| {
            let has_value = option.get_action().takes_values() && !option.is_positional();
            option.allow_negative_numbers(has_value)
        })
    })
}

/// Names options as they were written, and says how to write what an unknown option means.
fn explain(error: &mut clap::Error, arguments: &[OsString]) {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    if error.kind() != ErrorKind::UnknownArgument {
        let option = as_written(option, arguments).into_owned();
        error.insert(ContextKind::InvalidArg, ContextValue::String(option));
        return;
    }
    let mut commands = command();
    commands.build();
    let named = arguments.get(1).and_then(|name| name.to_str());
    let Some(command) = named.and_then(|name| commands.find_subcommand_mut(name)) else { return };
    let has = |id: &str| command.get_arguments().any(|it| it.get_id() == id);
    let name = option.split('=').next().unwrap_or_default();
    let similar = SIMILAR.iter().find(|(other, _)| *other == name).map(|(_, own)| *own);
    let own =
        similar.or_else(|| OTHER_NAMES.iter().flat_map(|it| [it.0, it.1]).find(|it| *it == name));
    let tip = match own {
        Some("--workers" | "--num-workers") if has("workers") => {
            "the number of threads is set with '--workers'".to_string()
        }
        Some("--workers" | "--num-workers") if has("file") => {
            "set num_workers under [loader] in the pipeline file".to_string()
        }
        Some("--batch" | "--batch-size") if has("batch") => {
            "the number of samples per batch is set with '--batch'".to_string()
        }
        Some("--batch" | "--batch-size") if has("file") => {
            "set batch_size under [loader] in the pipeline file".to_string()
        }
        _ => return,
    };
    // Clap's usage would contain the similar option instead.
    error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// Replaces the names of options in a message by the other names that the arguments have.
pub fn as_written<'a>(message: &'a str, arguments: &[OsString]) -> Cow<'a, str> {
    let is_written = |name: &str| {
        let mut names = arguments.iter().filter_map(|it| it.to_str()?.split('=').next());
        names.any(|it| it == name)
    };
    let mut message = Cow::Borrowed(message);
    for (name, other) in OTHER_NAMES {
        if is_written(other) && !is_written(name) {
            message = Cow::Owned(replaced(&message, name, other));
        }
    }
    message
}

/// Replaces an option. Longer options that begin with its name, such as `--batches`, stay.
fn replaced(message: &str, name: &str, other: &str) -> String {
    let mut parts = message.split(name);
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let is_longer = part.starts_with(|it: char| it.is_alphanumeric() || it == '-');
        text += if is_longer { name } else { other };
        text += part;
    }
    text
}

/// Parses a number of threads, or `auto`, from the command line.
pub fn count(text: &str) -> Result<AutoCount, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(AutoCount::Auto),
        (_, Ok(number @ 1..=1024)) => Ok(AutoCount::Fixed(number)),
        _ => Err("must be a number from 1 to 1024, or auto".into()),
    }
}

/// Parses a number of threads from the command line.
pub fn threads(text: &str) -> Result<u16, String> {
    match (text, text.parse()) {
        (_, Ok(number @ 1..=1024)) => Ok(number),
        ("auto", _) => {
            let problem = "must be a number from 1 to 1024; leave it out for one thread per core";
            Err(problem.into())
        }
        _ => Err("must be a number from 1 to 1024".into()),
    }
}
