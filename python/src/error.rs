//! Converts feedwater's errors to the exceptions of `feedwater.errors`. The key, the file or the
//! sample of an error becomes an attribute of its exception.

use feedwater::Error;
use feedwater::error::{DataError, Reason};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the Python exception for an error.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    made(py, error).unwrap_or_else(|problem| {
        let text = PyRuntimeError::new_err(error.to_string());
        text.set_cause(py, Some(problem));
        text
    })
}

/// Returns the Python exception for a sample of a Python sequence. No command can list the bad
/// samples of a sequence, so the text advises to set `on_error`.
pub fn raised_of_item(py: Python<'_>, error: &Error) -> PyErr {
    let raised = raised(py, error);
    if let Error::Sample(sample) = error {
        let text = format!(
            "{sample}; to go on without such samples, set on_error to \"skip\", \"substitute\" or \"drop\""
        );
        // If `args` cannot be set, the exception keeps its text, which has no advice.
        let _ = raised.value(py).setattr("args", (text,));
    }
    raised
}

fn made(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    let class = match error {
        Error::Config(config) => {
            fields.set_item("key", &config.key)?;
            "ConfigError"
        }
        Error::Sample(sample) => {
            fields.set_item("index", sample.index)?;
            fields.set_item("location", &sample.location)?;
            fields.set_item("reason", sample.reason.name())?;
            "SampleError"
        }
        Error::Io { path, .. } => {
            fields.set_item("filename", path.as_os_str())?;
            "FileError"
        }
        Error::Unavailable { what, .. } => {
            fields.set_item("what", what)?;
            "UnavailableError"
        }
        Error::Budget { row, needed, limit } => {
            fields.set_item("row", row)?;
            fields.set_item("needed", needed)?;
            fields.set_item("limit", limit)?;
            "BudgetError"
        }
        Error::Memory { needed, available, .. } => {
            fields.set_item("needed", needed)?;
            fields.set_item("available", available)?;
            "HostMemoryError"
        }
        Error::Forked { built_in } => {
            fields.set_item("built_in", built_in)?;
            "ForkedError"
        }
        Error::Device { call, .. } => {
            fields.set_item("call", call)?;
            "DeviceError"
        }
        Error::Compile { .. } => "CompileError",
        Error::Stopped => "StoppedError",
        _ => "InternalError",
    };
    let class = py.import("feedwater.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call((error.to_string(),), Some(&fields))?))
}

/// Error of a sample for an exception. It has this reason, unless memory was exhausted.
pub fn data_error(py: Python<'_>, reason: Reason, error: &PyErr) -> DataError {
    let reason = match error.is_instance_of::<PyMemoryError>(py) {
        true => Reason::OutOfMemory,
        false => reason,
    };
    DataError::new(reason, message(py, error))
}

/// Formats type and text of an exception.
fn message(py: Python<'_>, error: &PyErr) -> String {
    let name = error.get_type(py).name().map(|name| name.to_string());
    let name = name.unwrap_or_else(|_| "an exception".into());
    match error.value(py).str().map(|text| text.to_string()) {
        Ok(text) if !text.is_empty() => format!("{name}: {text}"),
        _ => name,
    }
}
