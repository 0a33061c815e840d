//! Fields of an item of a Python sequence, as values for columns.

use std::io::Read;
use std::path::{Path, PathBuf};

use feedwater::error::{DataError, Reason};
use feedwater::internals::error::reserve;
use feedwater::source::{FieldKind, FieldValue};
use pyo3::exceptions::{PyTypeError, PyUnicodeDecodeError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::arrays::Array;

/// Start of Python's message for a float that JSON cannot represent.
const OUT_OF_RANGE: &str = "Out of range float";

/// Value of a field, converted from a Python object.
pub enum Value {
    Missing,
    Boolean(bool),
    Integer(i128),
    Float(f64),
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
    /// Path of a file, which has the bytes.
    File(PathBuf),
    /// JSON of a list, a dictionary or an array of texts.
    Json(PyBackedStr),
    Array(Array),
}

impl Value {
    /// Converts a Python object: a number, a text, bytes, a dictionary of Hugging Face with bytes
    /// or a path, a list or a dictionary that JSON can represent, an array of texts, or an array of
    /// numbers of NumPy or of a library whose arrays NumPy accepts.
    pub fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if value.is_none() {
            return Ok(Value::Missing);
        }
        if value.is_instance_of::<PyBool>() {
            return Ok(Value::Boolean(value.extract()?));
        }
        if value.is_instance_of::<PyInt>() {
            return Ok(Value::Integer(value.extract()?));
        }
        if value.is_exact_instance_of::<PyFloat>() {
            return Ok(Value::Float(value.extract()?));
        }
        if value.is_instance_of::<PyString>() {
            return Ok(Value::Text(value.extract()?));
        }
        if let Ok(bytes) = value.extract() {
            return Ok(Value::Bytes(bytes));
        }
        if let Some(stored) = Value::of_hugging_face(value)? {
            return Ok(stored);
        }
        let is_json = value.is_instance_of::<PyList>()
            || value.is_instance_of::<PyTuple>()
            || value.is_instance_of::<PyDict>();
        let items = value.py().import("feedwater._items")?;
        if is_json || items.call_method1("has_texts", (value,))?.extract()? {
            let settings = PyDict::new(value.py());
            settings.set_item("allow_nan", false)?;
            settings.set_item("default", items.getattr("plain")?)?;
            let json = value.py().import("json")?;
            let text = json.getattr("dumps")?.call((value,), Some(&settings)).map_err(|error| {
                let is_range = error.to_string().contains(OUT_OF_RANGE);
                let way_out = match error.is_instance_of::<PyUnicodeDecodeError>(value.py()) {
                    true => "; bytes in it must be UTF-8: give others as a field of their own",
                    false if is_range => "; for a list with NaN or infinity give an array of NumPy",
                    false => "",
                };
                PyTypeError::new_err(format!(
                    "has a value that JSON cannot represent: {error}{way_out}"
                ))
            })?;
            return Ok(Value::Json(text.extract()?));
        }
        let Some(array) = Array::of(value)? else {
            let kind = value.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "is of the type {kind}; it must be a number, a text, bytes, an array, or a list or \
                 dictionary of such values"
            )));
        };
        match array.is_number() {
            true => Value::of(&value.call_method0("item")?),
            false => Ok(Value::Array(array)),
        }
    }

    /// Converts a dictionary with the keys `bytes` and `path` and no others, as rows of Hugging
    /// Face have for `Image(decode=False)`. If it has both, the path is only the name of the bytes.
    fn of_hugging_face(value: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Ok(value) = value.cast::<PyDict>() else { return Ok(None) };
        let (Some(bytes), Some(path), 2) =
            (value.get_item("bytes")?, value.get_item("path")?, value.len())
        else {
            return Ok(None);
        };
        Ok(match (bytes.is_none(), path.is_none()) {
            (true, true) => Some(Value::Missing),
            (true, false) => path.extract().ok().map(Value::File),
            (false, _) => bytes.extract().ok().map(Value::Bytes),
        })
    }

    /// Kind of the field.
    pub fn kind(&self) -> FieldKind {
        match self {
            Value::Boolean(_) | Value::Integer(_) | Value::Float(_) => FieldKind::Number,
            Value::Text(_) => FieldKind::Text,
            Value::Json(_) => FieldKind::Json,
            Value::Array(array) if array.is_png() => FieldKind::Bytes,
            Value::Array(_) => FieldKind::List,
            Value::Missing | Value::Bytes(_) | Value::File(_) => FieldKind::Bytes,
        }
    }

    /// Passes the value of the field `name` to a column, unless it is missing. The value may have
    /// `limit` bytes. Writes an array and the bytes of a file to `buffer` first. `unreadable` makes
    /// the error of a sample from an exception.
    pub fn put(
        &self,
        py: Python<'_>,
        (name, limit): (&str, u64),
        buffer: &mut Vec<u8>,
        unreadable: impl FnOnce(PyErr) -> DataError,
        put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        self.check(name, limit)?;
        match self {
            Value::Missing => Ok(()),
            // A boolean is a number in a column, but no key of a join.
            Value::Boolean(true) => put(FieldValue::Json(b"true")),
            Value::Boolean(false) => put(FieldValue::Json(b"false")),
            Value::Integer(number) => put(FieldValue::Integer(*number)),
            Value::Float(number) => put(FieldValue::Float(*number)),
            Value::Text(text) => put(FieldValue::Text(text)),
            Value::Bytes(bytes) => put(FieldValue::Bytes(bytes)),
            Value::File(path) => {
                py.detach(|| read_file(path, (name, limit), buffer))?;
                put(FieldValue::Bytes(buffer))
            }
            Value::Json(text) => put(FieldValue::Json(text.as_bytes())),
            Value::Array(array) => {
                reserve::renew(buffer, array.file_bytes() as usize)?;
                array.write(py, buffer).map_err(unreadable)?;
                match array.is_png() {
                    true => put(FieldValue::Bytes(buffer)),
                    false => put(FieldValue::Array(buffer)),
                }
            }
        }
    }

    /// Checks the size of the value, except that of a file.
    fn check(&self, name: &str, limit: u64) -> Result<(), DataError> {
        let len = match self {
            Value::Text(text) | Value::Json(text) => text.len() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::Array(array) => array.bytes(),
            Value::Missing
            | Value::Boolean(_)
            | Value::File(_)
            | Value::Integer(_)
            | Value::Float(_) => 0,
        };
        check_len(name, len, limit)
    }
}

fn check_len(name: &str, len: u64, limit: u64) -> Result<(), DataError> {
    if len > limit {
        let problem = format!(
            "the field {name:?} has {len} bytes; limits.max_field_bytes is {limit}; raise it"
        );
        return Err(DataError::new(Reason::Oversized, problem));
    }
    Ok(())
}

/// Reads the file of a field, which may have `limit` bytes.
fn read_file(
    path: &Path,
    (name, limit): (&str, u64),
    buffer: &mut Vec<u8>,
) -> Result<(), DataError> {
    let unreadable = |error: std::io::Error| {
        let problem = format!("the field {name:?}: {}: {error}", path.display());
        DataError::new(Reason::Unreadable, problem)
    };
    let mut file = feedwater::internals::file::open(path).map_err(unreadable)?;
    let len = file.metadata().map_err(unreadable)?.len();
    check_len(name, len, limit)?;
    reserve::renew(buffer, len as usize)?;
    file.read_exact(buffer).map_err(unreadable)
}
