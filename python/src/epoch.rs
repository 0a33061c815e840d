//! Epochs of a loader.

use std::sync::{Arc, Weak};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use feedwater::loader::SharedEpoch;
use pyo3::prelude::*;

use crate::background::LOOK;
use crate::batch::Batch;
use crate::error::{raised, raised_of_item};
use crate::running::{Shared, check_thread, dropped, locked};
use crate::source::{Sequence, sequence_of};

/// Maximum timeout of a wait, in seconds: one day.
const MOST_SECONDS: f64 = 86_400.0;
/// Pause of a thread between two waits. Mutexes are not fair: without a pause, other waiting
/// threads get the lock late. With five waiting threads, the thread with a signal noticed it after
/// 0.4 to 0.6 s without the pause, and after at most 0.2 s with it.
const TURN: Duration = Duration::from_millis(1);

/// The batches of one epoch. Several threads may call `next_within` at the same time.
#[pyclass(frozen)]
pub struct Epoch {
    pub number: u32,
    pub shared: Arc<Shared>,
    /// Loader, which is used to find the sample of an error.
    pub loader: Weak<feedwater::Loader>,
    pub sequences: Vec<Arc<Sequence>>,
}

#[pymethods]
impl Epoch {
    /// Number of the epoch, from 0.
    #[getter]
    fn number(&self) -> u32 {
        self.number
    }

    /// Number of remaining batches. The number stays above 0 if another epoch ended this one early.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> u64 {
        py.detach(|| locked(&self.shared).as_ref().map_or(0, SharedEpoch::remaining))
    }

    /// Waits at most `seconds` for the next batch. Returns whether the wait has ended, and the
    /// batch, or `None` at the end. Signals, such as that of Ctrl-C, are handled meanwhile.
    fn next_within(&self, py: Python<'_>, seconds: f64) -> PyResult<(bool, Option<Batch>)> {
        check_thread(&self.sequences)?;
        waited(py, seconds, &self.sequences, &self.loader, || match locked(&self.shared).as_mut() {
            Some(epoch) => epoch.next_within(LOOK),
            None => Poll::Ready(Some(Err(feedwater::Error::Stopped))),
        })
    }
}

/// Waits for a batch and checks for signals meanwhile.
pub fn waited(
    py: Python<'_>,
    seconds: f64,
    sequences: &[Arc<Sequence>],
    loader: &Weak<feedwater::Loader>,
    next: impl Fn() -> Poll<Option<feedwater::Result<feedwater::Batch>>> + Sync,
) -> PyResult<(bool, Option<Batch>)> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, MOST_SECONDS));
    loop {
        let next = py.detach(|| {
            let next = next();
            if next.is_pending() {
                // Give other waiting threads a turn, in which they check for signals.
                thread::sleep(TURN);
            }
            next
        });
        match next {
            Poll::Ready(None) => return Ok((true, None)),
            Poll::Ready(Some(Ok(batch))) => return Ok((true, Some(Batch::new(batch)))),
            Poll::Ready(Some(Err(error))) => {
                return Err(with_cause(py, &error, sequences, loader));
            }
            Poll::Pending => py.check_signals()?,
        }
        if Instant::now() >= deadline {
            return Ok((false, None));
        }
    }
}

/// Returns the exception for an error. If an item of a sequence failed, the item's exception is the
/// cause.
fn with_cause(
    py: Python<'_>,
    error: &feedwater::Error,
    sequences: &[Arc<Sequence>],
    loader: &Weak<feedwater::Loader>,
) -> PyErr {
    let (feedwater::Error::Sample(sample), Some(loader)) = (error, loader.upgrade()) else {
        return raised(py, error);
    };
    let found = sequence_of(sequences, loader.source(), sample.index);
    // This may be the last reference to the loader. Dropping the loader waits for its threads, so
    // detach from the interpreter.
    py.detach(move || drop(loader));
    let Some((number, place)) = found else { return raised(py, error) };
    let raised = raised_of_item(py, error);
    if let Some(cause) = sequences[number].exception(place) {
        raised.set_cause(py, Some(cause));
    }
    raised
}

/// Guard that ends an epoch when the guard is dropped, even if other threads still share the epoch.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(locked(&self.0).take());
    }
}

/// Dropping an epoch may drop its loader, which waits for the loader's threads. `dropped` does
/// not let these threads wait for the interpreter, or for this thread.
impl Drop for Epoch {
    fn drop(&mut self) {
        let ended = Ended(self.shared.clone());
        Python::attach(|py| dropped(py, &self.sequences, ended));
    }
}
