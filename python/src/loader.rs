//! A loader and its epochs.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use feedwater::footprint::Memory;
use feedwater::loader::SharedEpoch;
use pyo3::exceptions::{PyIndexError, PyTimeoutError};
use pyo3::prelude::*;

use crate::background::{self, LOOK};
use crate::batch::Batch;
use crate::error::raised;
use crate::source::Sequence;

/// Longest wait, a day.
const MOST_SECONDS: f64 = 86_400.0;
/// Pause between two waits of a thread. A mutex is not fair, so other threads have their turn later without it: of five threads that
/// waited, the one with a signal looked for it after 0.4 to 0.6 s, and after at most 0.2 s with the pause.
const TURN: Duration = Duration::from_millis(1);

/// Loaders that run. At the end of the program their threads end before the interpreter, which those that read a sequence need.
static RUNNING: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

/// A loader, until it is closed.
#[pyclass(frozen)]
pub struct Loader {
    slot: Arc<Slot>,
    /// Sequences of its source.
    sequences: Vec<Arc<Sequence>>,
}

/// A loader that runs. Nothing calls Python or waits while it holds this lock, so it may be taken with the interpreter attached.
type Slot = Mutex<Option<Running>>;

/// A loader and its epochs, which own it too.
struct Running {
    loader: Arc<feedwater::Loader>,
    epochs: Vec<Weak<Shared>>,
}

/// An epoch, until its loader is closed. Its lock is held during waits, so it is only taken with the interpreter detached.
type Shared = Mutex<Option<SharedEpoch>>;

impl Loader {
    pub fn new(loader: Arc<feedwater::Loader>, sequences: Vec<Arc<Sequence>>) -> Self {
        let slot = Arc::new(Mutex::new(Some(Running { loader, epochs: Vec::new() })));
        let mut running = locked(&RUNNING);
        running.retain(|slot| slot.strong_count() > 0);
        running.push(Arc::downgrade(&slot));
        Self { slot, sequences }
    }

    fn open(&self, py: Python<'_>) -> PyResult<Arc<feedwater::Loader>> {
        let loader = locked(&self.slot).as_ref().map(|running| running.loader.clone());
        loader.ok_or_else(|| raised(py, &feedwater::Error::Stopped))
    }
}

/// Closes a loader for others, and returns what is left to do: to wait for its threads.
fn closed(slot: &Slot) -> Option<impl FnOnce() + Send + 'static> {
    let Running { loader, epochs } = locked(slot).take()?;
    loader.stopper().stop();
    Some(move || {
        for epoch in epochs.iter().filter_map(Weak::upgrade) {
            drop(locked(&epoch).take());
        }
        drop(loader);
    })
}

/// Closes all loaders, and waits for all work that nobody waited for.
#[pyfunction]
pub fn finish(py: Python<'_>) -> PyResult<()> {
    let running = std::mem::take(&mut *locked(&RUNNING));
    for slot in running.iter().filter_map(Weak::upgrade) {
        if let Some(end) = closed(&slot) {
            background::run(py, end)?;
        }
    }
    background::finish(py)
}

#[pymethods]
impl Loader {
    /// Begins the next epoch.
    fn epoch(&self, py: Python<'_>) -> PyResult<Epoch> {
        let loader = self.open(py)?;
        let epoch = py.detach(move || loader.shared_epoch());
        let number = epoch.number();
        let shared = Arc::new(Mutex::new(Some(epoch)));
        let begun = Epoch { number, shared };
        let mut slot = locked(&self.slot);
        if let Some(running) = &mut *slot {
            running.epochs.retain(|epoch| epoch.strong_count() > 0);
            running.epochs.push(Arc::downgrade(&begun.shared));
            return Ok(begun);
        }
        // Closed meanwhile. The epoch may be the last owner of the loader, so it is dropped without the lock.
        drop(slot);
        Err(raised(py, &feedwater::Error::Stopped))
    }

    /// Batches in an epoch of this shard.
    #[getter]
    fn batches_per_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.open(py)?.batches_per_epoch())
    }

    /// Extents of a full batch, and the type of its elements.
    #[getter]
    fn shape(&self, py: Python<'_>) -> PyResult<(Vec<usize>, &'static str)> {
        let shape = self.open(py)?.plan().shape;
        Ok((shape.dims().to_vec(), shape.dtype.name()))
    }

    /// What happens to samples that do not fill the last batch, as JSON.
    #[getter]
    fn last(&self, py: Python<'_>) -> PyResult<String> {
        json(&self.open(py)?.plan().settings.loader.last)
    }

    /// Predicted bytes of host memory.
    #[getter]
    fn memory(&self, py: Python<'_>) -> PyResult<u64> {
        let loader = self.open(py)?;
        let bytes = |memory| loader.footprint().total_bytes(memory);
        Ok(bytes(Memory::Host) + bytes(Memory::Pinned))
    }

    /// Samples of the source.
    #[getter]
    fn samples(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.open(py)?.source().len())
    }

    /// Names of the classes in the order of their labels.
    #[getter]
    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.open(py)?.source().classes().to_vec())
    }

    /// Whether the source has annotated objects.
    #[getter]
    fn has_objects(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.open(py)?.source().annotations().is_some())
    }

    /// Path of a sample, or another name for it.
    fn location(&self, py: Python<'_>, index: u64) -> PyResult<String> {
        let loader = self.open(py)?;
        let source = loader.source();
        match index < source.len() {
            true => Ok(source.location(index)),
            false => Err(PyIndexError::new_err(format!(
                "sample {index} does not exist; the source has {}",
                source.len()
            ))),
        }
    }

    /// Fields of the samples of a batch, once: `None` for a sample that has none. `None` if no part of the source is a sequence.
    fn fields(&self, py: Python<'_>, batch: &Batch) -> PyResult<Option<Vec<Py<PyAny>>>> {
        if self.sequences.is_empty() {
            return Ok(None);
        }
        let loader = self.open(py)?;
        let sequence_of = |index: u64| {
            let (part, place) = loader.source().part(index);
            let is_it = |it: &Arc<Sequence>| ptr::addr_eq(Arc::as_ptr(it), part);
            self.sequences.iter().position(is_it).map(|number| (number, place))
        };
        let mut found: HashMap<(usize, u64), Py<PyAny>> = HashMap::new();
        let mut of = |index: u64| {
            let Some((number, place)) = sequence_of(index) else { return Ok(py.None()) };
            if let Some(fields) = found.get(&(number, place)) {
                return Ok(fields.clone_ref(py));
            }
            let fields = match self.sequences[number].fields(py, place) {
                // The item could not be read, which is an error of its sample.
                Err(_) if batch.has_failed(index) => py.None(),
                fields => fields?,
            };
            found.insert((number, place), fields.clone_ref(py));
            Ok(fields)
        };
        let fields = batch.indices().into_iter().map(&mut of).collect::<PyResult<_>>()?;
        // Samples that others replaced are in no batch.
        for (number, place) in batch.failed().filter_map(sequence_of) {
            self.sequences[number].forget(place);
        }
        Ok(Some(fields))
    }

    /// Where batches are made and why.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.open(py)?.device().to_string())
    }

    /// Rank and world.
    #[getter]
    fn shard(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let shard = self.open(py)?.plan().shard;
        Ok((shard.rank, shard.world))
    }

    /// Values of the bytes 0 and 255 of each channel, if the chain makes floats of bytes.
    #[getter]
    fn normalization(&self, py: Python<'_>) -> PyResult<Option<[[f32; 2]; 3]>> {
        Ok(feedwater_cli::normalization(self.open(py)?.plan()))
    }

    /// The position as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        json(&self.open(py)?.state())
    }

    /// Counts and times since the loader was built, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let loader = self.open(py)?;
        json(&py.detach(|| loader.stats()))
    }

    /// The report on where time goes: text, JSON and HTML.
    fn report(&self, py: Python<'_>) -> PyResult<(String, String, String)> {
        let loader = self.open(py)?;
        let report = py.detach(|| loader.report()).map_err(|error| raised(py, &error))?;
        Ok((report.to_string(), json(&report)?, report.to_html()))
    }

    /// The plan and the footprint as text.
    fn plan(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.open(py)?.plan().to_string())
    }

    /// Warnings for people.
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let loader = self.open(py)?;
        Ok(py.detach(|| loader.warnings()))
    }

    /// Ends the loader and its threads. Batches stay valid. Threads that read a sequence end after the items that they asked for;
    /// `wait` says whether this call waits for them.
    #[pyo3(signature = (wait=true))]
    fn close(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        match closed(&self.slot) {
            None => Ok(()),
            Some(end) if wait => background::run(py, end),
            Some(end) => background::leave(py, end),
        }
    }
}

/// Threads that read from a sequence in Python need the interpreter before they end.
impl Drop for Loader {
    fn drop(&mut self) {
        let Some(running) = locked(&self.slot).take() else { return };
        running.loader.stopper().stop();
        Python::attach(|py| py.detach(|| drop(running)));
    }
}

/// The batches of one epoch. Several threads may take them.
#[pyclass(frozen)]
pub struct Epoch {
    number: u32,
    shared: Arc<Shared>,
}

#[pymethods]
impl Epoch {
    /// Number of the epoch, from 0.
    #[getter]
    fn number(&self) -> u32 {
        self.number
    }

    /// The next batch, or none at the end. Waits at most this number of seconds, then raises `TimeoutError`. Signals, as of
    /// Ctrl-C, are handled while it waits.
    fn next_within(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<Batch>> {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, MOST_SECONDS));
        loop {
            let next = py.detach(|| {
                let next = match locked(&self.shared).as_mut() {
                    Some(epoch) => epoch.next_within(LOOK),
                    None => Poll::Ready(Some(Err(feedwater::Error::Stopped))),
                };
                if next.is_pending() {
                    // Another thread that waits, to take a batch or to begin an epoch, has a turn and looks for signals.
                    thread::sleep(TURN);
                }
                next
            });
            match next {
                Poll::Ready(None) => return Ok(None),
                Poll::Ready(Some(Ok(batch))) => return Ok(Some(Batch::new(batch))),
                Poll::Ready(Some(Err(error))) => return Err(raised(py, &error)),
                Poll::Pending => py.check_signals()?,
            }
            if Instant::now() >= deadline {
                return Err(PyTimeoutError::new_err("no batch is ready"));
            }
        }
    }
}

/// The last owner of a loader ends its threads, as above.
impl Drop for Epoch {
    fn drop(&mut self) {
        Python::attach(|py| py.detach(|| drop(locked(&self.shared).take())));
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value as JSON.
pub fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|problem| pyo3::exceptions::PyRuntimeError::new_err(problem.to_string()))
}
