//! Signals that ask the program to end: SIGINT, SIGTERM and SIGHUP.
//!
//! * A command ends at once, with a line that says how far its progress bar was. One that has results to report before
//!   its end takes part ([`Polled`]): it sees [`requested`], reports, and returns.
//! * Either way the process ends within a second, also where a thread hangs in a read; only a trace that is being written
//!   has ten. A second signal ends it at once. Outputs are then complete or absent, and process groups that were started are gone.
//! * The exit code is 128 and the signal's number: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
//! * A signal that was ignored when the program began stays ignored, as `nohup` and shells want it.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use feedwater::file;
use feedwater::loader::{Loader, Stopper};
use indicatif::ProgressBar;
use rustix::process::{Pid, Signal as Kill, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// What a command that takes part has from the signal to its end.
const PATIENCE: Duration = Duration::from_millis(700);
/// What it has where it is writing its files at that time.
const SAVING: Duration = Duration::from_secs(10);
/// How often is looked whether they are written.
const STEP: Duration = Duration::from_millis(20);
/// What removing unfinished files, and then telling, may take at the end.
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

    /// The exit code of a process that it has ended.
    fn code(self) -> u8 {
        128 + self.0 as u8
    }
}

struct State {
    signal: Option<Signal>,
    /// Whether the command takes part.
    polled: bool,
    /// Whether files are being written that the user wants to have.
    saving: bool,
    /// What ends the loader that the command waits for.
    stopper: Option<Stopper>,
    /// The bar that was shown last, and its unit.
    bar: Option<(ProgressBar, String)>,
    /// What to do next, in words.
    advice: Option<&'static str>,
    /// Leaders of process groups that were started.
    groups: Vec<Pid>,
}

static STATE: Mutex<State> = Mutex::new(State {
    signal: None,
    polled: false,
    saving: false,
    stopper: None,
    bar: None,
    advice: None,
    groups: Vec::new(),
});
static CHANGED: Condvar = Condvar::new();
/// Whether a thread has begun to end the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Begins to listen. Where that fails signals end the process as they do by default.
pub fn listen() {
    let ignored = ignored();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|it| ignored >> (it - 1) & 1 == 0);
    if let Ok(mut signals) = Signals::new(wanted) {
        thread::spawn(move || {
            for number in signals.forever() {
                on_signal(Signal(number));
            }
        });
    }
    // Writing beyond `ulimit -f` becomes an error that names the file, instead of the process's end.
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
    thread::spawn(move || {
        let begin = Instant::now();
        thread::sleep(PATIENCE);
        while lock().saving && begin.elapsed() < SAVING {
            thread::sleep(STEP);
        }
        end(first);
    });
    // Last, since it waits for locks of the loader.
    if let Some(stopper) = stopper {
        stopper.stop();
    }
}

/// Ends the process now, where no other thread is about to.
fn end(signal: Signal) {
    if ENDING.swap(true, Ordering::AcqRel) {
        return;
    }
    for &group in &lock().groups {
        let _ = kill_process_group(group, Kill::KILL);
    }
    file::discard_pending(LAST);
    // A terminal that is halted takes no line, and must not hold up the end.
    let (told, is_told) = channel();
    let words = words(signal);
    thread::spawn(move || {
        // Not into the line of the progress bar.
        let line = if io::stderr().is_terminal() { "\n" } else { "" };
        let _ = writeln!(io::stderr(), "{line}feedwater: {words}");
        let _ = told.send(());
    });
    let _ = is_told.recv_timeout(LAST);
    signal_hook::low_level::exit(signal.code().into());
}

/// Ends the process after a command that has returned, where a signal asked for it.
pub fn end_if_requested() {
    if let Some(signal) = requested() {
        end(signal);
        // Another thread is about to.
        loop {
            thread::park();
        }
    }
}

/// The signal that has asked for the end.
pub fn requested() -> Option<Signal> {
    lock().signal
}

/// While it lives the command takes part in its end: it looks at [`requested`] at least ten times a second.
pub struct Polled(());

impl Polled {
    /// The waits for batches of this loader end with a signal.
    pub fn waiting_for(loader: &Loader) -> Self {
        let polled = Self::begin();
        let stopper = loader.stopper();
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
        // One that was asked to end is still about to.
        state.polled = state.signal.is_some();
    }
}

/// Writes files for which a signal waits: a trace of many threads takes longer than a second.
pub fn saving<T>(save: impl FnOnce() -> T) -> T {
    lock().saving = true;
    let saved = save();
    lock().saving = false;
    saved
}

/// Sleeps, but for a signal; whether there was none.
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

/// Says in the last line how far this bar was.
pub fn show(bar: &ProgressBar, unit: &str) {
    lock().bar = Some((bar.clone(), unit.to_string()));
}

/// Says in the last line what the user can do next.
pub fn advise(advice: &'static str) {
    lock().advice = Some(advice);
}

/// Kills this process group at the end, however it comes.
pub fn add_group(leader: Pid) {
    lock().groups.push(leader);
}

/// The group is gone.
pub fn remove_group(leader: Pid) {
    lock().groups.retain(|it| *it != leader);
}

/// What has happened, and how far the command was.
fn words(signal: Signal) -> String {
    let state = lock();
    let mut words = format!("interrupted by {}", signal.name());
    if let Some((bar, unit)) = &state.bar {
        let (position, len) = (bar.position(), bar.length().unwrap_or(0));
        words += &format!(" after {position} of {len} {unit}");
    }
    if let Some(advice) = state.advice {
        words += &format!("; {advice}");
    }
    words
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signals that this process ignores, as a mask: bit 0 is signal 1.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
