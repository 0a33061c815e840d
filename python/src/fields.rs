//! Fields of an item of a Python sequence, as values for columns.

use feedwater::error::{DataError, Reason};
use feedwater::internals::error::reserve;
use feedwater::source::{FieldKind, FieldValue};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::arrays::Array;

/// Value of a field, converted from a Python object.
pub enum Value {
    Missing,
    Integer(i128),
    Float(f64),
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
    /// JSON of a list or a dictionary.
    Json(PyBackedStr),
    Array(Array),
}

impl Value {
    /// Converts a Python object: a number, a text, bytes, a list or a dictionary that JSON can
    /// represent, or an array of NumPy or of a library whose arrays NumPy accepts.
    pub fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if value.is_none() {
            return Ok(Value::Missing);
        }
        if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyInt>() {
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
        let is_json = value.is_instance_of::<PyList>()
            || value.is_instance_of::<PyTuple>()
            || value.is_instance_of::<PyDict>();
        if is_json {
            let settings = PyDict::new(value.py());
            settings.set_item("allow_nan", false)?;
            let items = value.py().import("feedwater._items")?;
            settings.set_item("default", items.getattr("plain")?)?;
            let json = value.py().import("json")?;
            let text = json.getattr("dumps")?.call((value,), Some(&settings)).map_err(|error| {
                let way_out = match error.is_instance_of::<PyValueError>(value.py()) {
                    true => "; for a list with NaN or infinity give an array of NumPy",
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

    /// Kind of the field.
    pub fn kind(&self) -> FieldKind {
        match self {
            Value::Integer(_) | Value::Float(_) => FieldKind::Number,
            Value::Text(_) => FieldKind::Text,
            Value::Json(_) => FieldKind::Json,
            Value::Array(array) if array.is_png() => FieldKind::Bytes,
            Value::Array(_) => FieldKind::List,
            Value::Missing | Value::Bytes(_) => FieldKind::Bytes,
        }
    }

    /// Passes the value to a column, unless it is missing. Writes an array to `buffer` first.
    /// `unreadable` makes the error of a sample from an exception.
    pub fn put(
        &self,
        py: Python<'_>,
        buffer: &mut Vec<u8>,
        unreadable: impl FnOnce(PyErr) -> DataError,
        put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        match self {
            Value::Missing => Ok(()),
            Value::Integer(number) => put(FieldValue::Integer(*number)),
            Value::Float(number) => put(FieldValue::Float(*number)),
            Value::Text(text) => put(FieldValue::Text(text)),
            Value::Bytes(bytes) => put(FieldValue::Bytes(bytes)),
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

    /// Checks the size of the value.
    pub fn check(&self, name: &str, limit: u64) -> Result<(), DataError> {
        let len = match self {
            Value::Text(text) | Value::Json(text) => text.len() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::Array(array) => array.bytes(),
            Value::Missing | Value::Integer(_) | Value::Float(_) => 0,
        };
        if len > limit {
            let problem = format!(
                "the field {name:?} has {len} bytes; limits.max_field_bytes is {limit}; raise it"
            );
            return Err(DataError::new(Reason::Oversized, problem));
        }
        Ok(())
    }
}
