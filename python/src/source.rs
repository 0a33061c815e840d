//! A source that is a sequence in Python.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use feedwater::Source;
use feedwater::error::{DataError, Error, Reason, Result};
use feedwater::source::NO_LABEL;
use feedwater::source::custom::Page;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyTuple;

use crate::error::raised;

/// A label that was not asked for yet.
const UNKNOWN: i64 = i64::MIN;

/// A sequence whose items are encoded bytes or paths, or pairs of them and a label.
pub struct Sequence {
    items: Py<PyAny>,
    /// Labels as they become known.
    labels: Vec<AtomicI64>,
    classes: Vec<String>,
}

/// Items, labels if they are not those of the items, and names of the classes.
pub type Given = (Py<PyAny>, Option<Vec<i64>>, Vec<String>);

/// Where the bytes of an item are.
enum Encoded {
    Bytes(PyBackedBytes),
    File(PathBuf),
}

impl Sequence {
    pub fn new(py: Python<'_>, (items, labels, classes): Given) -> PyResult<Self> {
        let len = items.bind(py).len()?;
        let refused = |key, problem| raised(py, &Error::config(key, problem));
        if len == 0 {
            return Err(refused("items", "is empty; a source needs at least one sample".into()));
        }
        let labels = match labels {
            Some(labels) if labels.len() != len => {
                let problem = format!("has {} labels for {len} items", labels.len());
                return Err(refused("labels", problem));
            }
            Some(labels) => labels.into_iter().map(AtomicI64::new).collect(),
            None => (0..len).map(|_| AtomicI64::new(UNKNOWN)).collect(),
        };
        Ok(Self { items, labels, classes })
    }

    /// Asks the sequence, which is the only thing that needs the interpreter.
    fn item(&self, index: u64) -> PyResult<Encoded> {
        Python::attach(|py| {
            let item = self.items.bind(py).get_item(index)?;
            let (item, label) = match item.cast::<PyTuple>() {
                // Fields are Python's affair.
                Ok(tuple) if matches!(tuple.len(), 2 | 3) => {
                    let label: Option<i64> = tuple.get_item(1)?.extract()?;
                    (tuple.get_item(0)?, label.unwrap_or(NO_LABEL))
                }
                _ => (item, NO_LABEL),
            };
            let known = &self.labels[index as usize];
            let _ = known.compare_exchange(UNKNOWN, label, Ordering::Relaxed, Ordering::Relaxed);
            match item.extract() {
                Ok(bytes) => Ok(Encoded::Bytes(bytes)),
                Err(_) => item.extract().map(Encoded::File).map_err(|_| {
                    let kind = item.get_type();
                    pyo3::exceptions::PyTypeError::new_err(format!(
                        "an item is a {kind}; it must be bytes or a path, or a tuple of one of them, a label and fields"
                    ))
                }),
            }
        })
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
            let _ = self.item(index);
        }
        match label.load(Ordering::Relaxed) {
            UNKNOWN => NO_LABEL,
            label => label,
        }
    }

    fn location(&self, index: u64) -> String {
        format!("samples[{index}]")
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        match self.item(index) {
            Ok(Encoded::Bytes(bytes)) => page.fill(&bytes, limit),
            Ok(Encoded::File(path)) => read_file(&path, page, limit),
            Err(error) => {
                let problem = Python::attach(|py| error.value(py).repr().map(|it| it.to_string()));
                let problem = problem.unwrap_or_else(|_| "an exception".into());
                Err(DataError::new(Reason::Unreadable, problem))
            }
        }
    }

    fn describe(&self) -> String {
        format!("a sequence in Python: {} samples", self.labels.len())
    }

    fn classes(&self) -> &[String] {
        &self.classes
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
