//! Fields of the samples of a batch.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::batch::Batch;
use crate::source::{Sequence, sequence_of};

/// Python's class of the fields of a batch's samples. It calls `__getitem__` only on request, for
/// samples whose fields were not kept, such as those from a cache.
#[pyclass(frozen)]
pub struct BatchFields {
    /// Number of the item of each sample. `None` if the sample is of no sequence.
    samples: Vec<Option<usize>>,
    items: Vec<Item>,
    list: PyOnceLock<Py<PyList>>,
}

/// An item whose sample is in the batch, once or several times.
struct Item {
    sequence: Arc<Sequence>,
    place: u64,
    /// Fields that were read together with the image.
    kept: Option<Py<PyAny>>,
    /// Whether the sample failed, so the item may be unreadable.
    has_failed: bool,
}

impl BatchFields {
    /// Takes the fields of a batch's samples from the memory of their sequences, where they remain
    /// with `stay`.
    pub fn new(py: Python<'_>, batch: &Batch, sequences: &[Arc<Sequence>], stay: bool) -> Self {
        let found = |index| sequence_of(sequences, batch.source(), index);
        let mut items = Vec::new();
        let mut numbers = HashMap::new();
        let mut number_of = |index: u64| {
            let (sequence, place) = found(index)?;
            let sequence = &sequences[sequence];
            let number = *numbers.entry(index).or_insert(items.len());
            if number == items.len() {
                let kept = sequence.fields(py, place, stay);
                let has_failed = batch.has_failed(index);
                items.push(Item { sequence: sequence.clone(), place, kept, has_failed });
            }
            Some(number)
        };
        let samples = batch.indices().into_iter().map(&mut number_of).collect();
        if !stay {
            // Drop the fields of replaced samples, which are in no batch.
            for (sequence, place) in batch.failed().filter_map(found) {
                sequences[sequence].forget(place);
            }
        }
        Self { samples, items, list: PyOnceLock::new() }
    }
}

#[pymethods]
impl BatchFields {
    /// The fields of each sample, with Python's `None` for a sample without fields.
    fn list(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        let read = || {
            let fields = self.items.iter().map(|item| item.read(py));
            let fields = fields.collect::<PyResult<Vec<_>>>()?;
            let of = |number: &Option<usize>| number.map(|number| fields[number].clone_ref(py));
            PyResult::Ok(PyList::new(py, self.samples.iter().map(of))?.unbind())
        };
        Ok(self.list.get_or_try_init(py, read)?.clone_ref(py))
    }
}

impl Item {
    fn read(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(fields) = &self.kept {
            return Ok(fields.clone_ref(py));
        }
        match self.sequence.fields_again(py, self.place) {
            // The item could not be read. The batch already reports this error.
            Err(_) if self.has_failed => Ok(py.None()),
            fields => fields,
        }
    }
}
