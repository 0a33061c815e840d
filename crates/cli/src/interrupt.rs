//! Handles the signals SIGINT, SIGTERM and SIGHUP.
//!
//! * By default, a signal ends a command at once. The last line of output then states how far the
//!   progress bar was.
//! * A command that has results to report holds a [`Polled`]. The command checks [`requested`]
//!   regularly, reports its results after a signal, and returns.
//! * In both cases the process ends within one second, even if a thread hangs in a read. Only
//!   writing a trace may take up to ten seconds. A second signal ends the process at once.
//! * When the process ends, each output file is either complete or absent. The process groups that
//!   the process started are killed.
//! * The exit code is 128 + the signal's number: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
//! * A signal that was already ignored when the program started stays ignored, as `nohup` and
//!   shells expect.

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

/// Longest time from a signal to the end of the process if the command holds a [`Polled`].
const GRACE: Duration = Duration::from_millis(700);
/// Longest time from a signal to the end of the process if the command is writing files.
const SAVING: Duration = Duration::from_secs(10);
/// Interval at which the program checks whether the command has finished writing its files.
const STEP: Duration = Duration::from_millis(20);
/// Longest time for removing unfinished files. The same time limits printing the last line.
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

    /// Exit code of the process after this signal.
    fn code(self) -> u8 {
        128 + self.0 as u8
    }
}

struct InterruptState {
    signal: Option<Signal>,
    /// Whether the command checks for signals itself.
    polled: bool,
    /// Whether output files are being written at the moment.
    saving: bool,
    /// Stops the loader for whose batches the command waits.
    stopper: Option<StopHandle>,
    /// The latest progress bar, and the unit of its position.
    bar: Option<(ProgressBar, String)>,
    /// Advice to the user, printed in the last line.
    advice: Option<&'static str>,
    /// Leaders of the process groups that this program has started.
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

/// Starts handling signals. If the thread that handles signals cannot be started, signals keep
/// their default action.
pub fn listen() {
    let ignored = ignored();
    let handled =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(move |it| ignored >> (it - 1) & 1 == 0);
    let (sender, registered) = channel();
    // Register the signals in the thread that handles them. If this thread cannot be started, the
    // signals keep their default action. If they were registered without it, they would be lost.
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
    // A write beyond `ulimit -f` raises SIGXFSZ, which kills the process by default. With this
    // handler, the write returns an error instead, which names the file.
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
        // No thread can be started, so wait in this one. Skip stopping the loader, which could take
        // longer.
        end_in_time();
    }
    // Stop the loader last, because stopping it waits for the loader's locks.
    if let Some(stopper) = stopper {
        stopper.stop();
    }
}

/// Runs work on a new thread. Returns false if no thread can be started.
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
    // Print in another thread. A terminal that is stopped accepts no output, which must not delay
    // the exit.
    let (sender, receiver) = channel();
    let message = message(signal);
    // If no thread can be started, the line is not printed. The exit code still tells which signal
    // it was.
    start(move || {
        // On a terminal, begin a new line after the progress bar.
        let line = if io::stderr().is_terminal() { "\n" } else { "" };
        let _ = writeln!(io::stderr(), "{line}feedwater: {message}");
        let _ = sender.send(());
    });
    let _ = receiver.recv_timeout(LAST);
    signal_hook::low_level::exit(signal.code().into());
}

/// Ends the process if a signal requested it. Called after the command has returned.
pub fn end_if_requested() {
    if let Some(signal) = requested() {
        end(signal);
        // Another thread is already ending the process, so wait for the end.
        loop {
            thread::park();
        }
    }
}

/// Returns the signal that asked the program to end, if one arrived.
pub fn requested() -> Option<Signal> {
    lock().signal
}

/// Guard that a command holds while it checks [`requested`] at least ten times a second. After a
/// signal, the command ends by itself.
pub struct Polled(());

impl Polled {
    /// Creates a guard. While the guard exists, a signal also stops the loader. A command that
    /// waits for a batch of this loader then continues at once.
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
        // If a signal has arrived, `polled` stays set: the command ends by itself and must not be
        // interrupted.
        state.polled = state.signal.is_some();
    }
}

/// Runs `save`, which writes files. After a signal, the program waits up to [`SAVING`] for `save`
/// to finish, because writing a trace of many threads takes more than a second.
pub fn saving<T>(save: impl FnOnce() -> T) -> T {
    lock().saving = true;
    let saved = save();
    lock().saving = false;
    saved
}

/// Sleeps for `duration`, or until a signal arrives. Returns false if a signal arrived.
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

/// Sets the progress bar whose position is printed in the last line after a signal.
pub fn show(bar: &ProgressBar, unit: &str) {
    lock().bar = Some((bar.clone(), unit.to_string()));
}

/// Sets the advice that is printed at the end of the last line after a signal.
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

/// Formats the last line: the signal, the position of the progress bar, and the advice.
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

/// Returns the signals that this process ignores, as a mask. Bit 0 stands for signal 1.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
