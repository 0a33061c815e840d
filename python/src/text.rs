//! Texts for the Python code: values as JSON, and names of samples.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Returns the path of a sample, or another name for it. A path that is not Unicode keeps its
/// bytes; in Python, `os.fsencode` returns these bytes.
pub fn location(source: &dyn feedwater::Source, index: u64) -> OsString {
    let (part, place) = source.part(index);
    let path = part.identity().and_then(|it| it.path(place)).map(PathBuf::into_os_string);
    path.filter(|it| it.to_str().is_none()).unwrap_or_else(|| source.named_location(index).into())
}

/// Converts a value to JSON.
pub fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|problem| PyRuntimeError::new_err(problem.to_string()))
}
