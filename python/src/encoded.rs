//! Encoded images of the items of a Python sequence.

use std::io::Read;
use std::path::{Path, PathBuf};

use feedwater::error::{DataError, Reason};
use feedwater::source::custom::Page;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::arrays::Array;

/// Encoded image of an item.
pub enum Encoded {
    Bytes(PyBackedBytes),
    File(PathBuf),
    Array(Array),
}

impl Encoded {
    /// `None` if the object is neither bytes, nor a path, nor an array, nor a dictionary with one
    /// of them, as the data sets of Hugging Face have: `{"bytes": ..., "path": ...}`. If it has
    /// both, the path is only the name of the bytes.
    ///
    /// # Errors
    /// The errors of [`Array::of`], and what the conversion of the object raises.
    pub fn of(item: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if let Ok(item) = item.cast::<PyDict>() {
            let given = |key| item.get_item(key).ok().flatten().filter(|value| !value.is_none());
            return match (given("bytes"), given("path")) {
                (Some(bytes), _) => usable(bytes.extract().map(Encoded::Bytes), item.py()),
                (None, Some(path)) => usable(path.extract().map(Encoded::File), item.py()),
                (None, None) => Ok(None),
            };
        }
        if let Some(array) = Array::of(item)? {
            return Ok(Some(Encoded::Array(array)));
        }
        match usable(item.extract().map(Encoded::Bytes), item.py())? {
            Some(bytes) => Ok(Some(bytes)),
            None => usable(item.extract().map(Encoded::File), item.py()),
        }
    }
}

/// `None` if an object has another type.
fn usable<E: Into<PyErr>>(found: Result<Encoded, E>, py: Python<'_>) -> PyResult<Option<Encoded>> {
    match found.map_err(Into::into) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_instance_of::<PyMemoryError>(py) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Reads the file of an image into a page.
pub fn read_file(path: &Path, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
    let unreadable = |error: std::io::Error| {
        DataError::new(Reason::Unreadable, format!("{}: {error}", path.display()))
    };
    let mut file = feedwater::internals::file::open(path).map_err(unreadable)?;
    let len = file.metadata().map_err(unreadable)?.len();
    file.read_exact(page.space_within(len, limit)?).map_err(unreadable)
}
