//! A loader and its epochs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use feedwater::footprint::Memory;
use feedwater::loader::SharedEpoch;
use pyo3::exceptions::{PyIndexError, PyTimeoutError};
use pyo3::prelude::*;

use crate::batch::Batch;
use crate::error::raised;

/// Time between looks for signals while a batch is awaited.
const LOOK: Duration = Duration::from_millis(50);

/// Longest wait, a day.
const MOST_SECONDS: f64 = 86_400.0;

/// A loader, until it is closed.
#[pyclass(frozen, weakref)]
pub struct Loader(Mutex<Option<Arc<feedwater::Loader>>>);

impl Loader {
    pub fn new(loader: Arc<feedwater::Loader>) -> Self {
        Self(Mutex::new(Some(loader)))
    }

    fn open(&self, py: Python<'_>) -> PyResult<Arc<feedwater::Loader>> {
        let loader = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        loader.ok_or_else(|| raised(py, &feedwater::Error::Stopped))
    }
}

#[pymethods]
impl Loader {
    /// Begins the next epoch.
    fn epoch(&self, py: Python<'_>) -> PyResult<Epoch> {
        let loader = self.open(py)?;
        Ok(Epoch(Mutex::new(Some(py.detach(move || loader.shared_epoch())))))
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

    /// Where batches are made and why.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.open(py)?.device().to_string())
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

    /// Ends the loader and its threads. Batches stay valid.
    fn close(&self, py: Python<'_>) {
        let loader = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(loader) = loader {
            loader.stopper().stop();
            py.detach(|| drop(loader));
        }
    }
}

/// Threads that read from a sequence in Python need the interpreter before they end.
impl Drop for Loader {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}

/// The batches of one epoch.
#[pyclass(frozen)]
pub struct Epoch(Mutex<Option<SharedEpoch>>);

#[pymethods]
impl Epoch {
    /// Number of the epoch, from 0.
    #[getter]
    fn number(&self, py: Python<'_>) -> u32 {
        py.detach(|| self.locked().as_ref().map_or(0, SharedEpoch::number))
    }

    /// The next batch, or none at the end. Waits at most this number of seconds, then raises `TimeoutError`. Signals, as of
    /// Ctrl-C, are handled while it waits.
    fn next_within(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<Batch>> {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, MOST_SECONDS));
        loop {
            let next = py.detach(|| match self.locked().as_mut() {
                Some(epoch) => epoch.next_within(LOOK),
                None => Poll::Ready(None),
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

impl Epoch {
    fn locked(&self) -> MutexGuard<'_, Option<SharedEpoch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last owner of a loader ends its threads, as above.
impl Drop for Epoch {
    fn drop(&mut self) {
        Python::attach(|py| py.detach(|| drop(self.locked().take())));
    }
}

/// A value as JSON.
pub fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|problem| pyo3::exceptions::PyRuntimeError::new_err(problem.to_string()))
}
