//! Labels of the items of a Python sequence.

use feedwater::source::NO_LABEL;
use pyo3::prelude::*;

/// 2^53: above this number, not every whole number is a float. So a label that is a float of this
/// size or larger may have been rounded.
const MOST_OF_A_FLOAT: f64 = (1u64 << 53) as f64;

/// Converts a label: a whole number of any type, or Python's `None` for no label.
pub fn label_of(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    if value.is_none() {
        return Ok(NO_LABEL);
    }
    if let Ok(label) = value.extract() {
        return Ok(label);
    }
    let problem = match value.extract::<f64>() {
        Ok(label) if label.fract() == 0.0 && label.abs() < MOST_OF_A_FLOAT => {
            return Ok(label as i64);
        }
        Ok(label) if label.fract() == 0.0 => "is out of range",
        _ => "is no whole number",
    };
    let text = format!("the label {} {problem}; labels are whole numbers", value.repr()?);
    Err(pyo3::exceptions::PyValueError::new_err(text))
}
