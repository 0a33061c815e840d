//! A loader and its epochs.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, Weak};

use feedwater::explain::{Options, explain};
use feedwater::footprint::Memory;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::background::{self, LOOK};
use crate::batch::Batch;
use crate::batch_fields::BatchFields;
use crate::columns::{column_sizes, normalization};
use crate::epoch::{Epoch, waited};
use crate::error::raised;
use crate::running::{Last, Slot, check_thread, closed, dropped, locked};
use crate::source::Sequence;
use crate::text::{json, location};
use crate::thread_state;

/// Running loaders. [`finish`] closes them before the interpreter ends, because those of their
/// threads that read a Python sequence need the interpreter.
static RUNNING: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

/// Python's class of a loader. After `close`, its last values remain.
#[pyclass(frozen)]
pub struct Loader {
    slot: Arc<Slot>,
    /// Sequences of Python that are parts of the loader's source.
    sequences: Vec<Arc<Sequence>>,
}

impl Loader {
    pub fn new(loader: Arc<feedwater::Loader>, sequences: Vec<Arc<Sequence>>) -> Self {
        let slot = Arc::new(Slot::new(loader));
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
        let running = locked(&self.slot.running);
        let loader = running.as_ref().filter(|it| !it.is_closing).map(|it| it.loader.clone());
        drop(running);
        loader.ok_or_else(|| raised(py, &feedwater::Error::Stopped))
    }

    /// Returns a value of the running loader, or of its last values after it was closed.
    fn value<T: Send>(
        &self,
        py: Python<'_>,
        of_running: impl FnOnce(&feedwater::Loader) -> T + Send,
        of_last: impl FnOnce(&Last) -> T + Send,
    ) -> PyResult<T> {
        let running = locked(&self.slot.running).as_ref().map(|running| running.loader.clone());
        let Some(loader) = running else {
            let last = py.detach(|| self.slot.last.get().map(of_last));
            return last.ok_or_else(|| raised(py, &feedwater::Error::Stopped));
        };
        let value = py.detach(|| of_running(&loader));
        // This is the last reference to the loader if it was closed meanwhile.
        if let Some(loader) = Arc::into_inner(loader) {
            dropped(py, &self.sequences, loader);
        }
        Ok(value)
    }
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
        let mut slot = locked(&self.slot.running);
        if let Some(running) = slot.as_mut().filter(|running| !running.is_closing) {
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
    fn batches_per_epoch(&self) -> u64 {
        self.slot.facts.batches_per_epoch
    }

    /// Shape of a full batch, and the type of its elements.
    #[getter]
    fn shape(&self) -> (Vec<usize>, &'static str) {
        let shape = self.slot.facts.plan.shape;
        (shape.dims().to_vec(), shape.dtype.name())
    }

    /// What happens to samples that do not fill the last batch, as JSON.
    #[getter]
    fn last(&self) -> PyResult<String> {
        json(&self.slot.facts.plan.settings.loader.last_batch)
    }

    /// Predicted bytes of host memory.
    #[getter]
    fn memory(&self) -> u64 {
        let bytes = |memory| self.slot.facts.plan.footprint.total_bytes(memory);
        bytes(Memory::Host) + bytes(Memory::Pinned)
    }

    /// Number of samples in the source.
    #[getter]
    fn samples(&self) -> u64 {
        self.slot.facts.samples
    }

    /// Names of the classes in the order of their labels.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.slot.facts.classes.clone()
    }

    /// Raises an error if `__getitem__` of a sequence of this loader is the caller. The loader's
    /// threads wait for that item, so the caller must not wait for them.
    fn check_caller(&self) -> PyResult<()> {
        check_thread(&self.sequences)
    }

    /// Columns besides images, labels and soft targets: name, and maximum bytes of a sample.
    #[getter]
    fn columns(&self) -> Vec<(String, usize)> {
        column_sizes(&self.slot.facts.plan)
    }

    /// Whether batches have images besides the views.
    #[getter]
    fn has_images(&self) -> bool {
        self.slot.facts.plan.has_images()
    }

    /// Whether the source has annotated objects.
    #[getter]
    fn has_objects(&self) -> bool {
        self.slot.facts.has_objects
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
    fn fields(&self, py: Python<'_>, batch: &Batch, stay: bool) -> Option<BatchFields> {
        let has_sequences = !self.sequences.is_empty();
        has_sequences.then(|| BatchFields::new(py, batch, &self.sequences, stay))
    }

    /// The device on which batches are made, and why it was chosen.
    #[getter]
    fn device(&self) -> String {
        self.slot.facts.device.clone()
    }

    /// Rank and world size.
    #[getter]
    fn shard(&self) -> (u64, u64) {
        let shard = self.slot.facts.plan.shard;
        (shard.rank, shard.world)
    }

    /// Tensor values of the bytes 0 and 255 for each channel, by the name of the column.
    #[getter]
    fn normalization(&self) -> HashMap<String, [[f32; 2]; 3]> {
        normalization(&self.slot.facts.plan)
    }

    /// The position as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        self.value(py, |loader| json(&loader.state()), |last| json(&last.state))?
    }

    /// Counts and times since the loader was built, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        self.value(py, |loader| json(&loader.stats()), |last| json(&last.stats))?
    }

    /// The counts in Prometheus's text format.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        self.value(py, feedwater::Loader::metrics, |last| last.metrics.clone())
    }

    /// The report on the bottleneck, as text, JSON and HTML.
    fn report(&self, py: Python<'_>) -> PyResult<(String, String, String)> {
        let of_last = |last: &Last| Ok(explain(&last.profile, &Options::default())?);
        let report = self.value(py, feedwater::Loader::report, of_last)?;
        let report = report.map_err(|error| raised(py, &error))?;
        Ok((report.to_string(), json(&report)?, report.to_html()))
    }

    /// The plan and the footprint as text.
    fn plan(&self) -> String {
        self.slot.facts.plan.to_string()
    }

    /// Warnings for the user, except the warning about failed samples.
    fn notices(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.value(py, feedwater::Loader::notices, |last| last.notices.clone())
    }

    /// The warning about failed samples, with their number so far.
    fn failures(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.value(py, feedwater::Loader::failures, |last| last.failures.clone())
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
        let Some(running) = locked(&self.slot.running).take() else { return };
        running.loader.stop_handle().stop();
        Python::attach(|py| dropped(py, &self.sequences, running));
    }
}
