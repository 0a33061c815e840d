//! Consumers that take the batches during `explain`.

use std::io::{self, ErrorKind, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use feedwater::internals::footprint::counted;
use feedwater::loader::Batch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::group::Group;
use super::{CommandError, interrupt};

/// Longest time that a command may take to exit after its input was closed.
const AFTER_INPUT: Duration = Duration::from_secs(2);
/// Interval at which the program checks for signals while the command does not read.
const STEP: Duration = Duration::from_millis(50);

/// A consumer of batches.
pub enum Consumer {
    /// The consumer drops each batch at once.
    Idle,
    /// The consumer holds each batch and sleeps for this time.
    Sleeps(Duration),
    /// The consumer is a command, to which batches are written.
    Runs(Fed),
}

/// A command that receives the bytes of every batch on standard input.
pub struct Fed {
    command: String,
    group: Group,
    input: ChildStdin,
    /// Number of batches that were completely written to the command.
    batches: u64,
    /// Whether the command stopped reading in the middle of a batch. If so, it receives nothing
    /// more.
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
        // Make writing non-blocking. Otherwise a command that does not read would block this
        // program.
        fcntl_getfl(&input)
            .and_then(|flags| fcntl_setfl(&input, flags | OFlags::NONBLOCK))
            .map_err(|error| failed(error.into()))?;
        let command = command.to_string();
        Ok(Consumer::Runs(Fed { command, group, input, batches: 0, stuck: false }))
    }

    /// Consumes a batch. Returns false if a signal arrived, or if the command has not read the
    /// whole batch by the time `until`. Such a command receives no more batches.
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

    /// Returns the reason why the consumer takes no more batches. Returns `None` if it still takes
    /// batches.
    pub fn stuck(&self) -> Option<String> {
        match self {
            Consumer::Runs(Fed { command, batches, stuck: true, .. }) => Some(format!(
                "--consumer-cmd {command:?}: the command stopped reading its standard input after \
                 {}",
                counted(*batches, "batch")
            )),
            _ => None,
        }
    }

    /// Closes the command's input, and waits for a limited time until the command exits.
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
                // Another thread has already terminated the command because of the signal.
                Err(_) if interrupt::requested().is_some() => return Ok(false),
                Err(error) => return Err(self.gone(&error)),
            }
        }
        self.batches += 1;
        Ok(true)
    }

    /// Waits until the command reads, but at most for `longest`.
    fn wait(&self, longest: Duration) {
        let mut input = [PollFd::new(&self.input, PollFlags::OUT)];
        let longest = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        // If polling failed, the next write fails too and reports the error.
        let _ = poll(&mut input, Some(&longest));
    }

    /// Describes why the command takes no more batches.
    fn gone(&mut self, error: &io::Error) -> CommandError {
        let Self { command, batches, group, .. } = self;
        let why = match group.end(AFTER_INPUT) {
            Ok(status) => format!("ended with {status}"),
            Err(_) => error.to_string(),
        };
        let batches = counted(*batches, "batch");
        CommandError::Failed(format!("--consumer-cmd {command:?}: {why} after {batches}"))
    }
}
