//! Who takes the batches of `explain`.

use std::io::{self, ErrorKind, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use feedwater::loader::Batch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::group::Group;
use super::{CommandError, interrupt};

/// How long a command may work on after its input has ended.
const AFTER_INPUT: Duration = Duration::from_secs(2);
/// How often a signal is looked for while the command reads nothing.
const STEP: Duration = Duration::from_millis(50);

/// Who takes the batches.
pub enum Consumer {
    /// Nobody: they are given back at once.
    Idle,
    /// A step of this length.
    Sleeps(Duration),
    /// A command.
    Runs(Fed),
}

/// A command that is given every batch's bytes on its standard input.
pub struct Fed {
    command: String,
    group: Group,
    input: ChildStdin,
    /// Batches that were written whole.
    batches: u64,
    /// The time was over within a batch: what followed would make no sense to the command.
    stuck: bool,
}

impl Consumer {
    /// Starts the command in a process group of its own.
    pub fn run(command: &str) -> Result<Self, CommandError> {
        let failed = |error| CommandError::Failed(format!("--consumer-cmd {command:?}: {error}"));
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut group = Group::spawn(&mut shell).map_err(failed)?;
        let input = group.child().stdin.take();
        let input = input.ok_or_else(|| failed(io::Error::other("has no input")))?;
        // A command that reads nothing must not hold up the program.
        fcntl_getfl(&input)
            .and_then(|flags| fcntl_setfl(&input, flags | OFlags::NONBLOCK))
            .map_err(|error| failed(error.into()))?;
        let command = command.to_string();
        Ok(Consumer::Runs(Fed { command, group, input, batches: 0, stuck: false }))
    }

    /// Takes a batch; false where a signal came, or where a command has not read all of it by `until`. Such a command gets
    /// nothing more.
    pub fn take(&mut self, batch: Batch, until: Instant) -> Result<bool, CommandError> {
        Ok(match self {
            Consumer::Idle => true,
            Consumer::Sleeps(step) => interrupt::sleep(*step),
            Consumer::Runs(fed) => match batch.host() {
                Some(bytes) => fed.write(bytes, until)?,
                None => fed.write(&batch.to_host()?, until)?,
            },
        })
    }

    /// Whether it takes no more batches, and why.
    pub fn stuck(&self) -> Option<String> {
        match self {
            Consumer::Runs(Fed { command, batches, stuck: true, .. }) => Some(format!(
                "--consumer-cmd {command:?}: stopped reading its standard input after {batches} batches"
            )),
            _ => None,
        }
    }

    /// The command's input ends. What it does then is its own affair, for a while.
    pub fn end(self) {
        if let Consumer::Runs(Fed { mut group, input, stuck, .. }) = self {
            drop(input);
            let _ = group.end(if stuck { Duration::ZERO } else { AFTER_INPUT });
        }
    }
}

impl Fed {
    fn write(&mut self, mut bytes: &[u8], until: Instant) -> Result<bool, CommandError> {
        if self.stuck {
            return Ok(false);
        }
        while !bytes.is_empty() {
            match self.input.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || interrupt::requested().is_some() {
                        self.stuck = true;
                        return Ok(false);
                    }
                    self.wait(left.min(STEP));
                }
                // The signal that ends the program has ended the command first.
                Err(_) if interrupt::requested().is_some() => return Ok(false),
                Err(error) => return Err(self.gone(&error)),
            }
        }
        self.batches += 1;
        Ok(true)
    }

    /// Until the command reads something.
    fn wait(&self, longest: Duration) {
        let mut input = [PollFd::new(&self.input, PollFlags::OUT)];
        let longest = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        // Whatever it says, the next write says more.
        let _ = poll(&mut input, Some(&longest));
    }

    /// Why the command takes no more.
    fn gone(&mut self, error: &io::Error) -> CommandError {
        let Self { command, batches, group, .. } = self;
        let why = match group.end(AFTER_INPUT) {
            Ok(status) => format!("ended with {status}"),
            Err(_) => error.to_string(),
        };
        CommandError::Failed(format!("--consumer-cmd {command:?}: {why} after {batches} batches"))
    }
}
