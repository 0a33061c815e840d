//! Process groups of the commands that this program starts.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::interrupt;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);
/// Interval at which the program checks whether the command has exited.
const STEP: Duration = Duration::from_millis(5);

/// A command in its own process group. The whole group is killed when this value is dropped, or
/// when a signal ends the program.
pub struct Group {
    child: Child,
    leader: Pid,
    ended: bool,
}

impl Group {
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let leader = Pid::from_child(&child);
        interrupt::add_group(leader);
        Ok(Self { child, leader, ended: false })
    }

    /// Returns the process of the command, which owns the pipes to it.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Reads the command's output until it exits.
    pub fn output(mut self) -> io::Result<Output> {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let (stdout, stderr) = thread::scope(|scope| {
            // Read standard error in another thread. Otherwise the command could block on a full
            // pipe while this thread reads standard output.
            let stderr = thread::Builder::new().spawn_scoped(scope, || read(stderr))?;
            Ok::<_, io::Error>((read(stdout), stderr.join().unwrap_or_default()))
        })?;
        Ok(Output { status: self.end(Duration::MAX)?, stdout, stderr })
    }

    /// Waits until the command exits, but at most for `patience`. Then sends SIGTERM to the group,
    /// and SIGKILL after another [`GRACE`].
    pub fn end(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        let begin = Instant::now();
        let (mut term_sent, mut killed) = (None::<Instant>, false);
        while !self.has_exited()? {
            match term_sent {
                None if begin.elapsed() >= patience || interrupt::requested().is_some() => {
                    self.send(Signal::TERM);
                    term_sent = Some(Instant::now());
                }
                Some(since) if since.elapsed() >= GRACE && !killed => {
                    self.send(Signal::KILL);
                    killed = true;
                }
                _ => thread::sleep(STEP),
            }
        }
        // Kill processes that the command left behind in its group. This program has not waited for
        // the exit status of the command yet. So the ID of the group is still reserved, and no
        // other process can have it.
        if term_sent.is_none() {
            self.send(Signal::TERM);
            thread::sleep(STEP);
        }
        self.send(Signal::KILL);
        self.ended = true;
        interrupt::remove_group(self.leader);
        self.child.wait()
    }

    /// Whether the command has exited. Does not reap the command, so its process ID stays reserved.
    pub fn has_exited(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.leader), options)?.is_some())
    }

    fn send(&self, signal: Signal) {
        // Fails if the group is already empty, which is no problem.
        let _ = kill_process_group(self.leader, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end(Duration::ZERO);
        }
    }
}

fn read(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // After an error, return what was read before.
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}
