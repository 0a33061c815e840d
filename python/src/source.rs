//! A source that is a sequence in Python.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use feedwater::Source;
use feedwater::error::{DataError, Error, Reason, Result};
use feedwater::source::NO_LABEL;
use feedwater::source::custom::{Hints, Page};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyTuple;

use crate::error::raised;

/// A label that was not asked for yet.
const UNKNOWN: i64 = i64::MIN;

/// A sequence whose items are encoded bytes or paths, or tuples of them, a label and fields.
pub struct Sequence {
    /// Name in the pipeline.
    name: String,
    items: Py<PyAny>,
    /// Labels as they become known.
    labels: Vec<AtomicI64>,
    classes: Vec<String>,
    /// Whether labels were given, so that no item is asked for one.
    knows_labels: bool,
    /// Fields of samples that were read and are in no batch yet; `None` if batches do not ask for them.
    fields: Option<Mutex<HashMap<u64, Py<PyAny>>>>,
    /// Whether some item that was read has fields.
    has_fields: AtomicBool,
}

/// Items, labels if they are not those of the items, and names of the classes.
pub type Given = (Py<PyAny>, Option<Vec<i64>>, Vec<String>);

/// Sequences by their names in the pipeline.
pub type Own = BTreeMap<String, Given>;

/// Where the bytes of an item are.
enum Encoded {
    Bytes(PyBackedBytes),
    File(PathBuf),
}

impl Sequence {
    /// `keeps_fields`: whether batches ask for [`fields`](Self::fields).
    pub fn new(py: Python<'_>, name: &str, given: &Given, keeps_fields: bool) -> PyResult<Self> {
        let (items, labels, classes) = given;
        let len = items.bind(py).len()?;
        let refused =
            |key: &str, problem| raised(py, &Error::config(format!("{name}.{key}"), problem));
        if len == 0 {
            return Err(refused("items", "is empty; a source needs at least one sample".into()));
        }
        let knows_labels = labels.is_some();
        let labels = match labels {
            Some(labels) if labels.len() != len => {
                let problem = format!("has {} labels for {len} items", labels.len());
                return Err(refused("labels", problem));
            }
            Some(labels) => labels.iter().map(|&label| AtomicI64::new(label)).collect(),
            None => (0..len).map(|_| AtomicI64::new(UNKNOWN)).collect(),
        };
        Ok(Self {
            name: name.into(),
            items: items.clone_ref(py),
            labels,
            classes: classes.clone(),
            knows_labels,
            fields: keeps_fields.then(Mutex::default),
            has_fields: AtomicBool::new(false),
        })
    }

    /// Name in the pipeline.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fields of an item that was read, once; `None` of Python if it has none. If they were given before, or the sample came from
    /// a cache, the item is asked for again.
    pub fn fields(&self, py: Python<'_>, index: u64) -> PyResult<Py<PyAny>> {
        if !self.has_fields.load(Ordering::Relaxed) {
            return Ok(py.None());
        }
        match self.kept().and_then(|mut kept| kept.remove(&index)) {
            Some(fields) => Ok(fields),
            None => Ok(self.item(py, index)?.1),
        }
    }

    /// Drops the fields of an item whose sample failed.
    pub fn forget(&self, index: u64) {
        // Dropped without the lock, as that may run code of Python.
        let _fields = self.kept().and_then(|mut kept| kept.remove(&index));
    }

    /// Asks the sequence, which is the only thing that needs the interpreter. An item without fields has `None` of Python.
    fn item(&self, py: Python<'_>, index: u64) -> PyResult<(Encoded, Py<PyAny>)> {
        let item = self.items.bind(py).get_item(index)?;
        let (item, label, fields) = match item.cast::<PyTuple>() {
            Ok(tuple) if matches!(tuple.len(), 2 | 3) => {
                let label: Option<i64> = tuple.get_item(1)?.extract()?;
                let fields = match tuple.len() {
                    2 => py.None(),
                    _ => tuple.get_item(2)?.unbind(),
                };
                (tuple.get_item(0)?, label.unwrap_or(NO_LABEL), fields)
            }
            _ => (item, NO_LABEL, py.None()),
        };
        let known = &self.labels[index as usize];
        let _ = known.compare_exchange(UNKNOWN, label, Ordering::Relaxed, Ordering::Relaxed);
        let encoded = match item.extract() {
            Ok(bytes) => Encoded::Bytes(bytes),
            Err(_) => item.extract().map(Encoded::File).map_err(|_| {
                let kind = item.get_type();
                pyo3::exceptions::PyTypeError::new_err(format!(
                    "an item is a {kind}; it must be bytes or a path, or a tuple of one of them, a label and fields"
                ))
            })?,
        };
        Ok((encoded, fields))
    }

    /// Asks for an item that goes into a batch.
    fn taken(&self, py: Python<'_>, index: u64) -> PyResult<Encoded> {
        let (encoded, fields) = self.item(py, index)?;
        if !fields.is_none(py) {
            self.has_fields.store(true, Ordering::Relaxed);
        }
        if self.has_fields.load(Ordering::Relaxed) {
            // The former ones are dropped without the lock, as that may run code of Python.
            let _former = self.kept().and_then(|mut kept| kept.insert(index, fields));
        }
        Ok(encoded)
    }

    fn kept(&self) -> Option<MutexGuard<'_, HashMap<u64, Py<PyAny>>>> {
        let fields = self.fields.as_ref()?;
        Some(fields.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Source for Sequence {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn label(&self, index: u64) -> i64 {
        let label = &self.labels[index as usize];
        if label.load(Ordering::Relaxed) == UNKNOWN {
            // An error is that of the sample, when it is read.
            let _ = Python::attach(|py| self.item(py, index));
        }
        match label.load(Ordering::Relaxed) {
            UNKNOWN => NO_LABEL,
            label => label,
        }
    }

    fn location(&self, index: u64) -> String {
        format!("{}[{index}]", self.name)
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let taken = Python::attach(|py| {
            self.taken(py, index).map_err(|error| {
                let problem = error.value(py).repr().map(|it| it.to_string());
                let problem = problem.unwrap_or_else(|_| "an exception".into());
                DataError::new(Reason::Unreadable, problem)
            })
        });
        match taken? {
            Encoded::Bytes(bytes) => page.fill(&bytes, limit),
            Encoded::File(path) => read_file(&path, page, limit),
        }
    }

    fn describe(&self) -> String {
        format!("{}, a sequence in Python: {} samples", self.name, self.labels.len())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl Hints for Sequence {
    fn knows_labels(&self) -> bool {
        self.knows_labels
    }
}

fn read_file(path: &Path, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
    let unreadable = |error: std::io::Error| {
        DataError::new(Reason::Unreadable, format!("{}: {error}", path.display()))
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let len = file.metadata().map_err(unreadable)?.len();
    file.read_exact(page.space_within(len, limit)?).map_err(unreadable)
}
