//! Encoded images of the items of a Python sequence.

use std::io::Read;
use std::path::{Path, PathBuf};

use feedwater::error::{DataError, Reason};
use feedwater::source::custom::Page;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

/// Encoded image of an item.
pub enum Encoded {
    Bytes(PyBackedBytes),
    File(PathBuf),
}

impl Encoded {
    /// `None` if the object is neither bytes, nor a path, nor an array, nor a dictionary with one
    /// of them, as the data sets of Hugging Face have: `{"bytes": ..., "path": ...}`. If it has
    /// both, the path is only the name of the bytes.
    pub fn of(item: &Bound<'_, PyAny>) -> Option<Self> {
        if let Ok(item) = item.cast::<PyDict>() {
            let given = |key| item.get_item(key).ok().flatten().filter(|value| !value.is_none());
            return match given("bytes") {
                Some(bytes) => bytes.extract().map(Encoded::Bytes).ok(),
                None => given("path")?.extract().map(Encoded::File).ok(),
            };
        }
        if item.hasattr("__array_interface__").unwrap_or(false) {
            return array(item).ok()?.extract().map(Encoded::Bytes).ok();
        }
        let bytes = item.extract().map(Encoded::Bytes).ok();
        bytes.or_else(|| item.extract().map(Encoded::File).ok())
    }
}

/// Bytes of a `.npy` file with this array or image of Pillow.
fn array<'py>(item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if item.hasattr("getbands")? {
        let module = item.py().import("feedwater._items")?;
        return npy(&module.call_method1("pixels", (item,))?);
    }
    npy(item)
}

/// Bytes of a `.npy` file with this array.
fn npy<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let numpy = py.import("numpy")?;
    let file = py.import("io")?.call_method0("BytesIO")?;
    let contiguous = numpy.call_method1("ascontiguousarray", (array,))?;
    let options = PyDict::new(py);
    options.set_item("allow_pickle", false)?;
    numpy.call_method("save", (&file, contiguous), Some(&options))?;
    file.call_method0("getvalue")
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
