//! Conversion of the values of fields to cells.

use super::format::{CellFormat, SampleContext, Written, unfit};
use super::number::Number;
use super::numpy::{self, Numbers};
use super::writer::{Writer, quoted};
use super::{CellKind, DefaultValue, FieldValue, Flat, Step, json};
use crate::error::DataError;

impl CellFormat {
    /// Writes a value into a cell of [`cell_bytes`](Self::cell_bytes) bytes. Returns `None` if the
    /// value is missing: null, an empty text, empty bytes, an empty file, a blank text in a column
    /// of numbers, or a member that a JSON object does not have.
    ///
    /// # Errors
    /// [`Reason::Field`] if the value has another type or shape than the column, or is out of
    /// range. [`Reason::TooLong`] if it is longer than `max_len` and must not be cut.
    /// [`Reason::Corrupt`] if an array or an archive is damaged.
    pub fn write(
        &self,
        value: FieldValue<'_>,
        cell: &mut [u8],
        context: SampleContext,
    ) -> Result<Option<Written>, DataError> {
        let mut writer = Writer::new(self, cell);
        let is_present = self::value(&mut writer, value, context)?;
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
fn value(
    to: &mut Writer<'_>,
    value: FieldValue<'_>,
    context: SampleContext,
) -> Result<bool, DataError> {
    let (format, draw) = (to.format, context.draw);
    let path = &format.field.steps[..];
    let value = if takes_arrays(to) { numpy::file(value) } else { value };
    match value {
        FieldValue::Json(text) if text.trim_ascii().is_empty() => Ok(false),
        FieldValue::Json(text) => json(text, None, path, to, draw),
        FieldValue::JsonMember(text, name) => json(text, Some(name), path, to, draw),
        FieldValue::Text("") | FieldValue::Bytes([]) => Ok(false),
        FieldValue::Npy([]) | FieldValue::Npz([]) => Ok(false),
        FieldValue::Text(text) if !path.is_empty() && text.trim().is_empty() => Ok(false),
        FieldValue::Text(text) if !path.is_empty() => json(text.as_bytes(), None, path, to, draw),
        FieldValue::Text(text) => text_or_number(to, text, draw),
        FieldValue::Npz(archive) if takes_arrays(to) => {
            let mut inflated = Vec::new();
            let file = numpy::npz::array(archive, &format.field, context.limit, &mut inflated)?;
            array(to, file).map(|()| true)
        }
        _ if !path.is_empty() => Err(unfit(
            "is not JSON, so the path after the colon leads nowhere; name the field without a path",
        )),
        FieldValue::Integer(number) => to.number(Number::Integer(number)).map(|()| true),
        FieldValue::Float(number) => to.number(Number::Float(number)).map(|()| true),
        FieldValue::Bytes(bytes) if takes_several(to) && json::may_be_texts(bytes) => {
            json(bytes, None, path, to, draw).map_err(text_with_bracket)
        }
        FieldValue::Bytes(bytes) | FieldValue::Npz(bytes) => to.bytes(bytes).map(|()| true),
        FieldValue::Npy(file) if !takes_arrays(to) => to.bytes(file).map(|()| true),
        FieldValue::Npy(file) | FieldValue::Array(file) => array(to, file).map(|()| true),
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

/// Writes the value at the end of a path into JSON. In a column that takes one of several texts,
/// counts the texts first, so that they need not be stored.
fn json(
    text: &[u8],
    member: Option<&str>,
    path: &[Step],
    to: &mut Writer<'_>,
    draw: u64,
) -> Result<bool, DataError> {
    if !to.picks() {
        return json::write(text, member, path, to);
    }
    to.count_texts();
    if !json::write(text, member, path, to)? || !to.take(draw) {
        return Ok(false);
    }
    // A text that is empty is a missing value, also in a list.
    Ok(json::write(text, member, path, to)? && !to.is_empty())
}

/// Writes the array of a `.npy` file.
fn array(to: &mut Writer<'_>, file: &[u8]) -> Result<(), DataError> {
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

/// Whether the column takes the numbers of arrays.
fn takes_arrays(to: &Writer<'_>) -> bool {
    matches!(to.format.kind, CellKind::Array | CellKind::List)
}

/// Whether the column takes several texts, or one of several.
fn takes_several(to: &Writer<'_>) -> bool {
    to.format.kind == CellKind::Texts || to.picks()
}

/// Adds a remedy to the error of a text that begins with a bracket, but is not JSON.
fn text_with_bracket(error: DataError) -> DataError {
    if !error.problem.starts_with("is not JSON") {
        return error;
    }
    let problem = format!(
        "{}; a text that begins with a bracket and a quote is read as a list of texts in JSON, so \
         write such a text as [\"…\"]",
        error.problem
    );
    DataError::new(error.reason, problem)
}

/// Writes a text that is not JSON. In a column of numbers, it is a number, or JSON that begins
/// with a bracket. For a column of several texts, it is one text, or a list of texts in JSON.
fn text_or_number(to: &mut Writer<'_>, text: &str, draw: u64) -> Result<bool, DataError> {
    match to.format.kind {
        CellKind::Text | CellKind::Texts
            if takes_several(to) && json::may_be_texts(text.as_bytes()) =>
        {
            json(text.as_bytes(), None, &[], to, draw).map_err(text_with_bracket)
        }
        CellKind::Text | CellKind::Texts | CellKind::Bytes => to.text(text).map(|()| true),
        CellKind::Array | CellKind::List | CellKind::Lists => {
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
