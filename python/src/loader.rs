//! A loader and its epochs.

use std::collections::HashMap;
use std::ffi::OsString;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use feedwater::footprint::Memory;
use feedwater::loader::SharedEpoch;
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;

use crate::background::{self, LOOK};
use crate::batch::Batch;
use crate::batch_fields::BatchFields;
use crate::columns::{column_sizes, normalization};
use crate::error::{raised, raised_of_item};
use crate::source::Sequence;
use crate::text::{json, location};
use crate::thread_state;

/// Maximum timeout of a wait, in seconds: one day.
const MOST_SECONDS: f64 = 86_400.0;
/// Pause of a thread between two waits. Mutexes are not fair: without a pause, other waiting
/// threads get the lock late. With five waiting threads, the thread with a signal noticed it after
/// 0.4 to 0.6 s without the pause, and after at most 0.2 s with it.
const TURN: Duration = Duration::from_millis(1);

/// Running loaders. [`finish`] closes them before the interpreter ends, because those of their
/// threads that read a Python sequence need the interpreter.
static RUNNING: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

/// Python's class of a loader. The loader is gone after `close`.
#[pyclass(frozen)]
pub struct Loader {
    slot: Arc<Slot>,
    /// Sequences of Python that are parts of the loader's source.
    sequences: Vec<Arc<Sequence>>,
}

/// A running loader, or `None` after it was closed. No code calls Python or waits while it holds
/// this lock, so the lock may be taken with the interpreter attached.
type Slot = Mutex<Option<Running>>;

/// A loader and its epochs. Each epoch is also an owner of the loader.
struct Running {
    loader: Arc<feedwater::Loader>,
    epochs: Vec<Weak<Shared>>,
}

/// An epoch, or `None` after its loader was closed. A thread holds the lock while it waits for a
/// batch, so the lock is only taken with the interpreter detached.
type Shared = Mutex<Option<SharedEpoch>>;

impl Loader {
    pub fn new(loader: Arc<feedwater::Loader>, sequences: Vec<Arc<Sequence>>) -> Self {
        let slot = Arc::new(Mutex::new(Some(Running { loader, epochs: Vec::new() })));
        let mut running = locked(&RUNNING);
        running.retain(|slot| slot.strong_count() > 0);
        running.push(Arc::downgrade(&slot));
        Self { slot, sequences }
    }

    /// Returns the loader, for a call that waits for the loader's threads.
    fn open_to_wait(&self, py: Python<'_>) -> PyResult<Arc<feedwater::Loader>> {
        check_thread(&self.sequences)?;
        self.open(py)
    }

    fn open(&self, py: Python<'_>) -> PyResult<Arc<feedwater::Loader>> {
        let loader = locked(&self.slot).as_ref().map(|running| running.loader.clone());
        loader.ok_or_else(|| raised(py, &feedwater::Error::Stopped))
    }
}

/// Stops a loader and removes it from its slot. Returns a function that waits for the loader's
/// threads.
fn closed(slot: &Slot) -> Option<impl FnOnce() + Send + 'static> {
    let Running { loader, epochs } = locked(slot).take()?;
    loader.stop_handle().stop();
    Some(move || {
        for epoch in epochs.iter().filter_map(Weak::upgrade) {
            drop(locked(&epoch).take());
        }
        drop(loader);
    })
}

/// Closes all loaders, and waits for all background work.
#[pyfunction]
pub fn finish(py: Python<'_>) -> PyResult<()> {
    let running = std::mem::take(&mut *locked(&RUNNING));
    for slot in running.iter().filter_map(Weak::upgrade) {
        if let Some(end) = closed(&slot) {
            background::run(py, end)?;
        }
    }
    let finished = background::finish(py);
    thread_state::end();
    finished
}

#[pymethods]
impl Loader {
    /// Begins the next epoch.
    fn epoch(&self, py: Python<'_>) -> PyResult<Epoch> {
        let loader = self.open_to_wait(py)?;
        if loader.is_in_an_epoch() {
            // Drop the fields of samples that were read for the rest of the running epoch, because
            // these samples will be in no batch.
            self.sequences.iter().for_each(|it| it.forget_all());
        }
        let owner = Arc::downgrade(&loader);
        let epoch = py.detach(move || loader.shared_epoch());
        let number = epoch.number();
        let shared = Arc::new(Mutex::new(Some(epoch)));
        let sequences = self.sequences.clone();
        let begun = Epoch { number, shared, loader: owner, sequences };
        let mut slot = locked(&self.slot);
        if let Some(running) = &mut *slot {
            running.epochs.retain(|epoch| epoch.strong_count() > 0);
            running.epochs.push(Arc::downgrade(&begun.shared));
            return Ok(begun);
        }
        // Another thread has closed the loader. The new epoch may be the last owner of the loader,
        // so unlock the slot before the epoch is dropped.
        drop(slot);
        Err(raised(py, &feedwater::Error::Stopped))
    }

    /// Number of batches on this shard in the running epoch, or in the next one if none is running.
    #[getter]
    fn batches_of_this_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.open(py)?.batches_of_this_epoch())
    }

    /// Number of batches on this shard in a whole epoch.
    #[getter]
    fn batches_per_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.open(py)?.batches_per_epoch())
    }

    /// Shape of a full batch, and the type of its elements.
    #[getter]
    fn shape(&self, py: Python<'_>) -> PyResult<(Vec<usize>, &'static str)> {
        let shape = self.open(py)?.plan().shape;
        Ok((shape.dims().to_vec(), shape.dtype.name()))
    }

    /// What happens to samples that do not fill the last batch, as JSON.
    #[getter]
    fn last(&self, py: Python<'_>) -> PyResult<String> {
        json(&self.open(py)?.plan().settings.loader.last_batch)
    }

    /// Predicted bytes of host memory.
    #[getter]
    fn memory(&self, py: Python<'_>) -> PyResult<u64> {
        let loader = self.open(py)?;
        let bytes = |memory| loader.footprint().total_bytes(memory);
        Ok(bytes(Memory::Host) + bytes(Memory::Pinned))
    }

    /// Number of samples in the source.
    #[getter]
    fn samples(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.open(py)?.source().len())
    }

    /// Names of the classes in the order of their labels.
    #[getter]
    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.open(py)?.source().classes().to_vec())
    }

    /// Raises an error if `__getitem__` of a sequence of this loader is the caller. The loader's
    /// threads wait for that item, so the caller must not wait for them.
    fn check_caller(&self) -> PyResult<()> {
        check_thread(&self.sequences)
    }

    /// Columns besides images, labels and soft targets: name, and maximum bytes of a sample.
    #[getter]
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<(String, usize)>> {
        Ok(column_sizes(self.open(py)?.plan()))
    }

    /// Whether batches have images besides the views.
    #[getter]
    fn has_images(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.open(py)?.plan().has_images())
    }

    /// Whether the source has annotated objects.
    #[getter]
    fn has_objects(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.open(py)?.source().annotations().is_some())
    }

    /// Path of a sample, or another name for it.
    fn location(&self, py: Python<'_>, index: u64) -> PyResult<OsString> {
        let loader = self.open(py)?;
        let source = loader.source();
        match index < source.len() {
            true => Ok(location(source, index)),
            false => Err(PyIndexError::new_err(format!(
                "sample {index} does not exist; the source has {} samples",
                source.len()
            ))),
        }
    }

    /// Sets whether the fields of items that are read stay in memory until a batch takes them.
    fn keep_fields(&self, keep: bool) {
        self.sequences.iter().for_each(|it| it.keep_fields(keep));
    }

    /// Returns the fields of a batch's samples. Unless `stay` is true, removes them from the memory
    /// of the sequences. Returns `None` if the source contains no sequence.
    #[pyo3(signature = (batch, stay=false))]
    fn fields(&self, py: Python<'_>, batch: &Batch, stay: bool) -> PyResult<Option<BatchFields>> {
        if self.sequences.is_empty() {
            return Ok(None);
        }
        let loader = self.open(py)?;
        let found = |index| {
            let (number, place) = sequence_of(&self.sequences, loader.source(), index)?;
            Some((self.sequences[number].clone(), place))
        };
        Ok(Some(BatchFields::new(py, batch, found, stay)))
    }

    /// The device on which batches are made, and why it was chosen.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.open(py)?.device().to_string())
    }

    /// Rank and world size.
    #[getter]
    fn shard(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let shard = self.open(py)?.plan().shard;
        Ok((shard.rank, shard.world))
    }

    /// Tensor values of the bytes 0 and 255 for each channel, by the name of the column.
    #[getter]
    fn normalization(&self, py: Python<'_>) -> PyResult<HashMap<String, [[f32; 2]; 3]>> {
        Ok(normalization(self.open(py)?.plan()))
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

    /// The counts in Prometheus's text format.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        let loader = self.open(py)?;
        Ok(py.detach(|| loader.metrics()))
    }

    /// The report on the bottleneck, as text, JSON and HTML.
    fn report(&self, py: Python<'_>) -> PyResult<(String, String, String)> {
        let loader = self.open(py)?;
        let report = py.detach(|| loader.report()).map_err(|error| raised(py, &error))?;
        Ok((report.to_string(), json(&report)?, report.to_html()))
    }

    /// The plan and the footprint as text.
    fn plan(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.open(py)?.plan().to_string())
    }

    /// Warnings for the user, except the warning about failed samples.
    fn notices(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let loader = self.open(py)?;
        Ok(py.detach(|| loader.notices()))
    }

    /// The warning about failed samples, with their number so far.
    fn failures(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let loader = self.open(py)?;
        Ok(py.detach(|| loader.failures()))
    }

    /// Waits at most `seconds` for the next batch, without advancing the position. Returns whether
    /// the wait has ended, and a copy of the batch, or `None` after the last epoch.
    fn peek_within(&self, py: Python<'_>, seconds: f64) -> PyResult<(bool, Option<Batch>)> {
        let loader = self.open_to_wait(py)?;
        let owner = Arc::downgrade(&loader);
        let next = waited(py, seconds, &self.sequences, &owner, || loader.peek_within(LOOK));
        // This may be the last reference to the loader. Dropping the loader waits for threads that
        // need the interpreter, so detach from it.
        py.detach(move || drop(loader));
        next
    }

    /// Ends the loader and its threads. Batches stay valid. Threads that read a sequence end after
    /// their current items. With `wait`, this call waits until all threads have ended.
    #[pyo3(signature = (wait=true))]
    fn close(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        self.sequences.iter().for_each(|it| it.forget_all());
        let wait = wait && check_thread(&self.sequences).is_ok();
        let Some(end) = closed(&self.slot) else { return Ok(()) };
        let sequences = self.sequences.clone();
        let end = move || {
            end();
            // Also drop the fields of items that were still being read, because they are in no
            // batch.
            Python::attach(|_| sequences.iter().for_each(|it| it.forget_all()));
        };
        if wait { background::run(py, end) } else { background::leave(py, end) }
    }
}

/// Dropping a loader waits for its threads, and threads that read a Python sequence need the
/// interpreter before they end. So `dropped` detaches from the interpreter while it waits, or lets
/// another thread wait.
impl Drop for Loader {
    fn drop(&mut self) {
        let Some(running) = locked(&self.slot).take() else { return };
        running.loader.stop_handle().stop();
        Python::attach(|py| dropped(py, &self.sequences, running));
    }
}

/// Drops a value that may be the last owner of a loader. Dropping a loader waits for the loader's
/// threads. If the current thread is one of these, another thread drops the value.
fn dropped(py: Python<'_>, sequences: &[Arc<Sequence>], owner: impl Send + 'static) {
    match check_thread(sequences) {
        Ok(()) => py.detach(|| drop(owner)),
        // If no thread can be started, the owner is dropped on this thread. This function cannot
        // report the error.
        Err(_) => drop(background::leave(py, move || drop(owner))),
    }
}

/// Fails if this thread is in `__getitem__` of one of these sequences. The loader's threads wait
/// for that item, so a wait for them would never end.
fn check_thread(sequences: &[Arc<Sequence>]) -> PyResult<()> {
    match sequences.iter().any(|it| it.is_asked_here()) {
        true => Err(PyRuntimeError::new_err(
            "__getitem__ of fw.samples uses the loader that asks for the item, which would wait for itself; use another loader there",
        )),
        false => Ok(()),
    }
}

/// The batches of one epoch. Several threads may call `next_within` at the same time.
#[pyclass(frozen)]
pub struct Epoch {
    number: u32,
    shared: Arc<Shared>,
    /// Loader, which is used to find the sample of an error.
    loader: Weak<feedwater::Loader>,
    sequences: Vec<Arc<Sequence>>,
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
fn waited(
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

/// Finds the sequence that a sample belongs to. Returns the sequence's number and the sample's
/// index in it.
fn sequence_of(
    sequences: &[Arc<Sequence>],
    source: &dyn feedwater::Source,
    index: u64,
) -> Option<(usize, u64)> {
    let (part, place) = source.part(index);
    let is_it = |it: &Arc<Sequence>| ptr::addr_eq(Arc::as_ptr(it), part);
    sequences.iter().position(is_it).map(|number| (number, place))
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

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
