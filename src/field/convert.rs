//! Conversion of the values of fields to cells.

use super::format::{CellFormat, Written, unfit};
use super::number::Number;
use super::numpy::Numbers;
use super::writer::{Writer, quoted};
use super::{CellKind, DefaultValue, FieldValue, Flat, Step, json};
use crate::error::DataError;

impl CellFormat {
    /// Writes a value into a cell of [`cell_bytes`](Self::cell_bytes) bytes. Returns `None` if the
    /// value is missing: null, or an empty text in a column of numbers, or a member that a JSON
    /// object does not have.
    ///
    /// # Errors
    /// [`Reason::Field`] if the value has another type or shape than the column, or is out of
    /// range. [`Reason::TooLong`] if it is longer than `max_len` and must not be cut.
    pub fn write(
        &self,
        value: FieldValue<'_>,
        cell: &mut [u8],
    ) -> Result<Option<Written>, DataError> {
        let mut writer = Writer::new(self, cell);
        let is_present = self::value(&mut writer, value, &self.field.steps)?;
        if is_present { writer.finish().map(Some) } else { Ok(None) }
    }

    /// Writes a default value into a cell. A number fills an array.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write).
    pub fn write_default(
        &self,
        value: &DefaultValue,
        cell: &mut [u8],
    ) -> Result<Written, DataError> {
        let mut writer = Writer::new(self, cell);
        default(&mut writer, value)?;
        writer.finish()
    }

    /// Writes the value of a sample that was replaced by zeros: NaN, or an empty list. In a column
    /// of integers, which have no NaN, it writes zeros.
    pub fn write_missing(&self, cell: &mut [u8]) -> Result<Written, DataError> {
        let mut writer = Writer::new(self, cell);
        if self.kind == CellKind::Array {
            writer.fill_missing();
        }
        writer.finish()
    }
}

/// Writes a value. Returns false if it is missing.
fn value(to: &mut Writer<'_>, value: FieldValue<'_>, path: &[Step]) -> Result<bool, DataError> {
    match value {
        FieldValue::Json(text) if text.trim_ascii().is_empty() => Ok(false),
        FieldValue::Json(text) => json::write(text, None, path, to),
        FieldValue::JsonMember(text, name) => json::write(text, Some(name), path, to),
        FieldValue::Text("") | FieldValue::Bytes([]) | FieldValue::Npy([]) => Ok(false),
        FieldValue::Text(text) if !path.is_empty() && text.trim().is_empty() => Ok(false),
        FieldValue::Text(text) if !path.is_empty() => json::write(text.as_bytes(), None, path, to),
        FieldValue::Text(text) => text_or_number(to, text),
        _ if !path.is_empty() => {
            Err(unfit("the field is not JSON, so the column's path leads nowhere"))
        }
        FieldValue::Integer(number) => to.number(Number::Integer(number)).map(|()| true),
        FieldValue::Float(number) => to.number(Number::Float(number)).map(|()| true),
        FieldValue::Bytes(bytes) => to.bytes(bytes).map(|()| true),
        FieldValue::Npy(file) => array(to, file).map(|()| true),
        FieldValue::Integers(list) => {
            to.flat(list.len(), |at| Number::Integer(list[at].into())).map(|()| true)
        }
        FieldValue::Floats(list) => {
            to.flat(list.len(), |at| Number::Float(list[at].into())).map(|()| true)
        }
        FieldValue::Doubles(list) => {
            to.flat(list.len(), |at| Number::Float(list[at])).map(|()| true)
        }
        FieldValue::Tensor(values, shape) => {
            to.tensor(shape, values.len(), |at| values.number(at)).map(|()| true)
        }
        FieldValue::Entries(values, shape) => {
            to.entries(shape, values.len(), |at| values.number(at)).map(|()| true)
        }
    }
}

/// Writes the array of a `.npy` file, or the file itself into a column of bytes.
fn array(to: &mut Writer<'_>, file: &[u8]) -> Result<(), DataError> {
    if matches!(to.format.kind, CellKind::Text | CellKind::Bytes) {
        return to.bytes(file);
    }
    let array = Numbers::parse(file)?;
    to.tensor(&array.shape, array.len(), |at| array.number(at))
}

impl Flat<'_> {
    fn len(self) -> usize {
        match self {
            Flat::Bytes(list) => list.len(),
            Flat::Integers(list) => list.len(),
            Flat::Floats(list) => list.len(),
            Flat::Doubles(list) => list.len(),
        }
    }

    fn number(self, at: usize) -> Number {
        match self {
            Flat::Bytes(list) => Number::Integer(list[at].into()),
            Flat::Integers(list) => Number::Integer(list[at].into()),
            Flat::Floats(list) => Number::Float(list[at].into()),
            Flat::Doubles(list) => Number::Float(list[at]),
        }
    }
}

/// Writes a default value.
fn default(to: &mut Writer<'_>, value: &DefaultValue) -> Result<(), DataError> {
    match value {
        DefaultValue::Bool(value) => to.numbers(Number::Integer((*value).into())),
        DefaultValue::Integer(number) => to.numbers(Number::Integer((*number).into())),
        DefaultValue::Float(number) => to.numbers(Number::Float(*number)),
        DefaultValue::Text(text) => to.text(text),
        DefaultValue::List(values) => {
            to.enter()?;
            values.iter().try_for_each(|value| default(to, value))?;
            to.leave(values.len())
        }
    }
}

/// Writes a text that is not JSON. In a column of numbers, it is a number, or JSON that begins
/// with a bracket.
fn text_or_number(to: &mut Writer<'_>, text: &str) -> Result<bool, DataError> {
    match to.format.kind {
        CellKind::Text | CellKind::Bytes => to.text(text).map(|()| true),
        CellKind::Array | CellKind::List => {
            let text = text.trim();
            if text.is_empty() {
                return Ok(false);
            }
            if text.starts_with('[') {
                return json::write(text.as_bytes(), None, &[], to);
            }
            let number = Number::parse(text).ok_or_else(|| to.mismatch(&quoted(text)))?;
            to.number(number).map(|()| true)
        }
    }
}
