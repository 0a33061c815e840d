//! Encoded images of the items of a Python sequence.

use std::io::Read;
use std::path::{Path, PathBuf};

use feedwater::error::{DataError, Reason};
use feedwater::source::custom::Page;
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::arrays::Array;

/// Encoded image of an item.
pub enum Encoded {
    Bytes(PyBackedBytes),
    File(PathBuf),
    Array(Array),
    /// No image. The error is raised when the image is read, because
    /// the second source of a join needs no images.
    Wrong(PyErr),
}

impl Encoded {
    /// `None` if the object is neither bytes, nor a path, nor an array, nor a dictionary with one
    /// of them, as the data sets of Hugging Face have: `{"bytes": ..., "path": ...}`. If it has
    /// both, the path is only the name of the bytes.
    pub fn of(item: &Bound<'_, PyAny>) -> Option<Self> {
        Self::read(item).unwrap_or_else(|error| Some(Encoded::Wrong(error)))
    }

    /// An object that is no image.
    pub fn wrong(problem: String) -> Self {
        Encoded::Wrong(PyTypeError::new_err(problem))
    }

    /// An image of an item that is a dictionary, if it is no image.
    pub fn wrong_image(image: &Bound<'_, PyAny>) -> Self {
        let kind = match image.is_instance_of::<PyDict>() {
            true => "dictionary in which neither \"bytes\" nor \"path\" has a usable value".into(),
            false => image.get_type().to_string(),
        };
        Self::wrong(format!(
            "the image of an item is a {kind}; it must be bytes, a path, an array, or a dictionary \
             of Hugging Face with bytes or a path (cast_column(\"image\", Image(decode=False)))"
        ))
    }

    fn read(item: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
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
