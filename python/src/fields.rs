//! Fields of an item of a Python sequence, as values for columns.

use feedwater::error::{DataError, Reason};
use feedwater::source::{FieldKind, FieldValue, Flat};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

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

/// Numbers of an array, with its shape.
pub struct Array {
    numbers: Numbers,
    shape: Vec<usize>,
}

enum Numbers {
    Bytes(PyBackedBytes),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
}

impl Numbers {
    /// Size in bytes.
    fn bytes(&self) -> usize {
        match self {
            Numbers::Bytes(list) => list.len(),
            Numbers::Integers(list) => size_of_val(&list[..]),
            Numbers::Floats(list) => size_of_val(&list[..]),
            Numbers::Doubles(list) => size_of_val(&list[..]),
        }
    }
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
                PyTypeError::new_err(format!("has a value that JSON cannot represent: {error}"))
            })?;
            return Ok(Value::Json(text.extract()?));
        }
        match value.hasattr("__array__")? {
            true => Array::of(value).map(Value::Array),
            false => {
                let kind = value.get_type().name()?;
                Err(PyTypeError::new_err(format!(
                    "is of the type {kind}; it must be a number, a text, bytes, an array, or a \
                     list or dictionary of such values"
                )))
            }
        }
    }

    /// Kind of the field.
    pub fn kind(&self) -> FieldKind {
        match self {
            Value::Integer(_) | Value::Float(_) => FieldKind::Number,
            Value::Text(_) => FieldKind::Text,
            Value::Json(_) => FieldKind::Json,
            Value::Array(_) => FieldKind::List,
            Value::Missing | Value::Bytes(_) => FieldKind::Bytes,
        }
    }

    /// Passes the value to a column, unless it is missing.
    pub fn put(
        &self,
        put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        match self {
            Value::Missing => Ok(()),
            Value::Integer(number) => put(FieldValue::Integer(*number)),
            Value::Float(number) => put(FieldValue::Float(*number)),
            Value::Text(text) => put(FieldValue::Text(text)),
            Value::Bytes(bytes) => put(FieldValue::Bytes(bytes)),
            Value::Json(text) => put(FieldValue::Json(text.as_bytes())),
            Value::Array(Array { numbers, shape }) => {
                let flat = match numbers {
                    Numbers::Bytes(list) => Flat::Bytes(list),
                    Numbers::Integers(list) => Flat::Integers(list),
                    Numbers::Floats(list) => Flat::Floats(list),
                    Numbers::Doubles(list) => Flat::Doubles(list),
                };
                put(FieldValue::Tensor(flat, shape))
            }
        }
    }

    /// Checks the size of the value.
    pub fn check(&self, name: &str, limit: u64) -> Result<(), DataError> {
        let len = match self {
            Value::Text(text) | Value::Json(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Array(array) => array.numbers.bytes(),
            Value::Missing | Value::Integer(_) | Value::Float(_) => 0,
        };
        if len as u64 > limit {
            let problem = format!(
                "the field {name:?} has {len} bytes; limits.max_field_bytes is {limit}; raise it"
            );
            return Err(DataError::new(Reason::Oversized, problem));
        }
        Ok(())
    }
}

impl Array {
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let numpy = value.py().import("numpy")?;
        let array = numpy.call_method1("asarray", (value,))?;
        let dtype = array.getattr("dtype")?;
        let (kind, bytes): (String, usize) =
            (dtype.getattr("kind")?.extract()?, dtype.getattr("itemsize")?.extract()?);
        let shape = array.getattr("shape")?.extract()?;
        let data = |dtype: &str| -> PyResult<PyBackedBytes> {
            let bytes = array.call_method1("astype", (dtype,))?.call_method0("tobytes")?;
            Ok(bytes.extract()?)
        };
        let numbers = match (kind.as_str(), bytes) {
            ("b" | "u", 1) => Numbers::Bytes(data("uint8")?),
            ("u", 8) if beyond(&array)? => {
                return Err(PyTypeError::new_err("has an integer above 2^63"));
            }
            ("i" | "u", _) => Numbers::Integers(numbers(&data("int64")?, i64::from_ne_bytes)),
            ("f", ..=4) => Numbers::Floats(numbers(&data("float32")?, f32::from_ne_bytes)),
            ("f", 8) => Numbers::Doubles(numbers(&data("float64")?, f64::from_ne_bytes)),
            _ => {
                let text = format!("is an array of {dtype}; it must have integers or floats");
                return Err(PyTypeError::new_err(text));
            }
        };
        Ok(Self { numbers, shape })
    }
}

fn numbers<T, const N: usize>(bytes: &[u8], of: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|number| of(*number)).collect()
}

/// Whether an array of unsigned integers has one that is no i64.
fn beyond(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_empty = array.getattr("size")?.extract::<usize>()? == 0;
    Ok(!is_empty && array.call_method0("max")?.extract::<u64>()? > i64::MAX as u64)
}
