//! Handling of SIGINT, SIGTERM and SIGHUP.
//!
//! * By default, a signal ends a command at once. A last line states the position of its progress
//!   bar.
//! * A command with results to report holds a [`Polled`]. It checks [`requested`], reports, and
//!   returns.
//! * In both cases the process ends within one second, even if a thread hangs in a read. A trace
//!   may be written for up to ten seconds. A second signal ends the process at once.
//! * When the process ends, output files are complete or absent, and started process groups are
//!   killed.
//! * The exit code is 128 + the signal's number: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
//! * A signal that was ignored when the program started stays ignored, as `nohup` and shells
//!   expect.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use feedwater::internals::file;
use feedwater::loader::{Loader, StopHandle};
use indicatif::ProgressBar;
use rustix::process::{Pid, Signal as Kill, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Longest time from a signal to the end of a command with a [`Polled`].
const GRACE: Duration = Duration::from_millis(700);
/// Longest time from a signal to the end of a command that is writing files.
const SAVING: Duration = Duration::from_secs(10);
/// Interval at which the end of writing is polled.
const STEP: Duration = Duration::from_millis(20);
/// Longest time for removing unfinished files, and again for printing the last line.
const LAST: Duration = Duration::from_millis(100);

/// A signal that asks the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(i32);

impl Signal {
    pub fn name(self) -> &'static str {
        match self.0 {
            SIGINT => "SIGINT",
            SIGTERM => "SIGTERM",
            _ => "SIGHUP",
        }
    }

    /// Exit code of a process that this signal ended.
    fn code(self) -> u8 {
        128 + self.0 as u8
    }
}

struct InterruptState {
    signal: Option<Signal>,
    /// Whether the command polls for signals itself.
    polled: bool,
    /// Whether output files are being written.
    saving: bool,
    /// Stops the loader that the command is waiting for.
    stopper: Option<StopHandle>,
    /// The latest progress bar and its unit.
    bar: Option<(ProgressBar, String)>,
    /// Advice to the user for the last line.
    advice: Option<&'static str>,
    /// Leaders of the started process groups.
    groups: Vec<Pid>,
}

static STATE: Mutex<InterruptState> = Mutex::new(InterruptState {
    signal: None,
    polled: false,
    saving: false,
    stopper: None,
    bar: None,
    advice: None,
    groups: Vec::new(),
});
static CHANGED: Condvar = Condvar::new();
/// Whether a thread is already ending the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Starts handling signals. If no thread can be started, signals keep their default action.
pub fn listen() {
    let ignored = ignored();
    let handled =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(move |it| ignored >> (it - 1) & 1 == 0);
    let (sender, registered) = channel();
    // Register the signals in the thread that handles them. Without this thread, registered signals
    // would be lost.
    let handle = move || {
        let signals = Signals::new(handled);
        let _ = sender.send(());
        if let Ok(mut signals) = signals {
            signals.forever().for_each(|number| on_signal(Signal(number)));
        }
    };
    if start(handle) {
        let _ = registered.recv();
    }
    // With a handler for SIGXFSZ, a write beyond `ulimit -f` returns an error with the file's name
    // instead of killing the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

fn on_signal(signal: Signal) {
    let mut state = lock();
    let again = state.signal.is_some();
    let first = *state.signal.get_or_insert(signal);
    let (polled, stopper) = (state.polled, state.stopper.take());
    for &group in &state.groups {
        let _ = kill_process_group(group, Kill::TERM);
    }
    drop(state);
    CHANGED.notify_all();
    if again || !polled {
        end(first);
    }
    let end_in_time = move || {
        let begin = Instant::now();
        thread::sleep(GRACE);
        while lock().saving && begin.elapsed() < SAVING {
            thread::sleep(STEP);
        }
        end(first);
    };
    if !start(end_in_time) {
        // Without a thread, wait here. The loader is not stopped, because that could take longer.
        end_in_time();
    }
    // Stop the loader last, because this waits for the loader's locks.
    if let Some(stopper) = stopper {
        stopper.stop();
    }
}

/// Runs work on another thread. Returns false if no thread can be started.
fn start(work: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name("feedwater-signal".into()).spawn(work).is_ok()
}

/// Ends the process now, unless another thread is already doing so.
fn end(signal: Signal) {
    if ENDING.swap(true, Ordering::AcqRel) {
        return;
    }
    for &group in &lock().groups {
        let _ = kill_process_group(group, Kill::KILL);
    }
    file::discard_pending(LAST);
    // Print in another thread: a stopped terminal accepts no output and must not delay the exit.
    let (sender, receiver) = channel();
    let message = message(signal);
    // If no thread can be started, the line is not printed; the exit code still names the signal.
    start(move || {
        // Begin a new line after the progress bar.
        let line = if io::stderr().is_terminal() { "\n" } else { "" };
        let _ = writeln!(io::stderr(), "{line}feedwater: {message}");
        let _ = sender.send(());
    });
    let _ = receiver.recv_timeout(LAST);
    signal_hook::low_level::exit(signal.code().into());
}

/// Ends the process after the command has returned, if a signal asked for it.
pub fn end_if_requested() {
    if let Some(signal) = requested() {
        end(signal);
        // Another thread is ending the process.
        loop {
            thread::park();
        }
    }
}

/// Returns the signal that asked the program to end.
pub fn requested() -> Option<Signal> {
    lock().signal
}

/// Guard of a command that polls [`requested`] at least ten times a second and ends by itself.
pub struct Polled(());

impl Polled {
    /// Creates a guard under which a signal also stops waits for batches of this loader.
    pub fn waiting_for(loader: &Loader) -> Self {
        let polled = Self::begin();
        let stopper = loader.stop_handle();
        let mut state = lock();
        match state.signal {
            None => state.stopper = Some(stopper),
            Some(_) => {
                drop(state);
                stopper.stop();
            }
        }
        polled
    }

    pub fn begin() -> Self {
        lock().polled = true;
        Self(())
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        let mut state = lock();
        state.stopper = None;
        // After a signal, the command still ends by itself.
        state.polled = state.signal.is_some();
    }
}

/// Runs `save` with an extended deadline after a signal: writing a trace of many threads takes longer than a second.
pub fn saving<T>(save: impl FnOnce() -> T) -> T {
    lock().saving = true;
    let saved = save();
    lock().saving = false;
    saved
}

/// Sleeps until `duration` is over or a signal arrives. Returns whether there was no signal.
pub fn sleep(duration: Duration) -> bool {
    let until = Instant::now() + duration;
    let mut state = lock();
    while state.signal.is_none() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        let waited = CHANGED.wait_timeout(state, left);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    false
}

/// Sets the progress bar whose position the last line states.
pub fn show(bar: &ProgressBar, unit: &str) {
    lock().bar = Some((bar.clone(), unit.to_string()));
}

/// Sets the advice that the last line ends with.
pub fn advise(advice: &'static str) {
    lock().advice = Some(advice);
}

/// Registers a process group to be killed when the process ends.
pub fn add_group(leader: Pid) {
    lock().groups.push(leader);
}

/// Removes a process group that has ended.
pub fn remove_group(leader: Pid) {
    lock().groups.retain(|it| *it != leader);
}

/// Formats the signal, the progress and the advice.
fn message(signal: Signal) -> String {
    let state = lock();
    let mut message = format!("interrupted by {}", signal.name());
    if let Some((bar, unit)) = &state.bar {
        let (position, len) = (bar.position(), bar.length().unwrap_or(0));
        message += &format!(" after {position} of {len} {unit}");
    }
    if let Some(advice) = state.advice {
        message += &format!("; {advice}");
    }
    message
}

fn lock() -> MutexGuard<'static, InterruptState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the signals that this process ignores, as a mask: bit 0 is signal 1.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
