//! Runs work on another thread while the calling thread of Python checks for signals. So Ctrl-C
//! ends the wait at once.

use std::panic;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use feedwater::internals::threads::refused;
use pyo3::prelude::*;

use crate::error::raised;

const NAME: &str = "feedwater-python";

/// Interval between two checks for signals, such as that of Ctrl-C.
pub const LOOK: Duration = Duration::from_millis(50);

/// Threads that run in the background without a caller that waits for them. They may need the
/// interpreter, so [`finish`] waits for them before the interpreter ends.
static LEFT: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Runs work on another thread and returns its result. If a signal raises an exception, the work
/// continues and its result is dropped.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (done, result) = mpsc::channel();
    let thread = start(py, move || drop(done.send(work())))?;
    let result = Mutex::new(result);
    let next = || result.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK);
    loop {
        match py.detach(next) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    keep(thread);
                    return Err(raised);
                }
            }
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panicked) => panic::resume_unwind(panicked),
                Ok(()) => unreachable!("the thread sends its result before it ends"),
            },
        }
    }
}

/// Runs work on another thread without waiting for it.
pub fn leave(py: Python<'_>, work: impl FnOnce() + Send + 'static) -> PyResult<()> {
    start(py, work).map(keep)
}

/// Waits for all threads in [`LEFT`].
pub fn finish(py: Python<'_>) -> PyResult<()> {
    loop {
        let next = LEFT.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(thread) = next else { return Ok(()) };
        run(py, move || drop(thread.join()))?;
    }
}

fn start(py: Python<'_>, work: impl FnOnce() + Send + 'static) -> PyResult<JoinHandle<()>> {
    // Start the thread detached from the interpreter. If it cannot be started, the work is dropped
    // here, and values that it owns may wait for threads that need the interpreter.
    let started = py.detach(|| thread::Builder::new().name(NAME.into()).spawn(work));
    started.map_err(|error| {
        raised(py, &refused(NAME, &error, "end other programs, or use fewer workers"))
    })
}

fn keep(thread: JoinHandle<()>) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|thread| !thread.is_finished());
    left.push(thread);
}
