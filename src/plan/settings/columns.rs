//! Settings of columns that are made from fields.

use serde::{Deserialize, Serialize};

use super::OnError;
use crate::error::{Error, Result};
use crate::field::{CellFormat, ColumnKind, DefaultValue, FieldPath, TooLong};
use crate::tensor::ElementType;

/// `[[column]]`: a column of batches besides images, labels and soft targets. Its values come from
/// a field of the source ([`Fields`](crate::source::Fields)), and stay in host memory.
///
/// A sample without a value fails, unless there is a `default`. So does a sample whose value has
/// another type or shape than the column, or is out of range.
///
/// ```
/// use feedwater::ElementType;
/// use feedwater::plan::ColumnSettings;
///
/// let columns = [
///     ColumnSettings::text("caption"),
///     ColumnSettings { field: Some("meta:score".into()), ..ColumnSettings::array("score", ElementType::F32, &[]) },
///     ColumnSettings { max_len: Some(50), ..ColumnSettings::list("boxes", ElementType::F32, &[4]) },
/// ];
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSettings {
    /// Name of the column, for [`Batch::column`](crate::loader::Batch::column).
    pub name: String,
    /// Field of the source. A path after a colon leads into a JSON value, such as `meta:score`,
    /// `meta:sizes[0].width` or `meta:boxes[*].x`. Default: `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Structure of the values. Default `array`.
    #[serde(default)]
    pub kind: ColumnKind,
    /// Element type of an array or a list. Default `f32`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ElementType>,
    /// Shape of an array, or of one entry of a list. Default `[]`, a single number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<usize>,
    /// Maximum number of entries of a list, or of bytes of a text. Memory for this many is
    /// allocated for each sample. Default: 256 entries, 4096 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_len: Option<usize>,
    /// Handling of values that are longer than `max_len`. Default `error`.
    #[serde(default)]
    pub too_long: TooLong,
    /// Value for samples without the field, or whose field is null or empty. Default: such a sample
    /// fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultValue>,
}

/// Maximum number of columns.
const MOST_COLUMNS: usize = 64;

/// Maximum size of a column's values of one sample, in bytes.
const MOST_CELL_BYTES: usize = 1 << 28;

/// Maximum number of axes of a sample or an entry. NumPy's arrays have at most 64 axes.
const MOST_AXES: usize = 16;

/// Default of `max_len` for lists.
const LIST_LEN: usize = 256;

/// Default of `max_len` for texts and bytes.
const TEXT_LEN: usize = 4096;

/// Names of the columns that are not made from fields.
const RESERVED: [&str; 3] = ["image", "label", "target"];

impl ColumnSettings {
    /// Column of numbers with the same shape in all samples.
    pub fn array(name: &str, dtype: ElementType, shape: &[usize]) -> Self {
        let shape = shape.to_vec();
        Self { name: name.into(), dtype: Some(dtype), shape, ..Self::default() }
    }

    /// Column of lists, whose entries have this shape.
    pub fn list(name: &str, dtype: ElementType, shape: &[usize]) -> Self {
        Self { kind: ColumnKind::List, ..Self::array(name, dtype, shape) }
    }

    /// Column of texts.
    pub fn text(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Text, ..Self::default() }
    }

    /// Column of bytes.
    pub fn bytes(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Bytes, ..Self::default() }
    }

    /// The field, with a path into its value.
    ///
    /// # Errors
    /// A message if the path is invalid.
    pub(crate) fn field_path(&self) -> Result<FieldPath, String> {
        match &self.field {
            Some(field) => field.parse(),
            // Without `field`, the name of the field is the name of the column. It is no path.
            None => Ok(FieldPath { name: self.name.clone(), steps: Vec::new() }),
        }
    }

    /// Format of the column's cells.
    pub(crate) fn format(&self) -> CellFormat {
        let (element, max_len) = match self.kind {
            ColumnKind::Text | ColumnKind::Bytes => (ElementType::U8, TEXT_LEN),
            ColumnKind::List | ColumnKind::Array => {
                (self.dtype.unwrap_or(ElementType::F32), LIST_LEN)
            }
        };
        CellFormat {
            kind: self.kind,
            element,
            dims: self.shape.clone(),
            max_len: self.max_len.unwrap_or(max_len),
            too_long: self.too_long,
            path: self.field_path().map_or(Vec::new(), |path| path.steps),
        }
    }

    /// Checks all columns.
    pub(super) fn check_all(columns: &[Self], on_error: OnError) -> Result<()> {
        if columns.len() > MOST_COLUMNS {
            let problem =
                format!("has {} entries, and may have at most {MOST_COLUMNS}", columns.len());
            return Err(Error::config("column", problem));
        }
        for (number, column) in columns.iter().enumerate() {
            let wrong = |key: &str, problem: String| {
                Error::config(format!("column[{number}].{key}"), problem)
            };
            if columns[..number].iter().any(|it| it.name == column.name) {
                let problem = format!(
                    "is {:?}, like that of an earlier column; choose another name",
                    column.name
                );
                return Err(wrong("name", problem));
            }
            column.check(on_error).map_err(|(key, problem)| wrong(key, problem))?;
        }
        Ok(())
    }

    /// Checks one column. Returns the key with a message.
    fn check(&self, on_error: OnError) -> Result<(), (&'static str, String)> {
        let Self { name, kind, .. } = self;
        if name.is_empty() {
            return Err(("name", "is empty; name the column".into()));
        }
        if RESERVED.contains(&name.as_str()) {
            let problem = format!(
                "is {name:?}, which is the name of another column of batches; choose another name, and set field = {name:?}"
            );
            return Err(("name", problem));
        }
        self.field_path().map_err(|problem| ("field", problem))?;
        let without = |is_set: bool, key, what: &str| match is_set {
            true => Err((
                key,
                format!(
                    "has no effect on a column of the kind {}, which has {what}; remove it",
                    kind.name()
                ),
            )),
            false => Ok(()),
        };
        match kind {
            ColumnKind::Array => {
                without(self.max_len.is_some(), "max_len", "a fixed shape")?;
                without(self.too_long != TooLong::Error, "too_long", "a fixed shape")?;
            }
            ColumnKind::List => {}
            ColumnKind::Text | ColumnKind::Bytes => {
                without(self.dtype.is_some(), "dtype", "no numbers")?;
                without(!self.shape.is_empty(), "shape", "no numbers")?;
            }
        }
        if let Some(axis) = self.shape.iter().position(|&len| len == 0) {
            return Err((
                "shape",
                format!("is {:?}, but the length of axis {axis} must be at least 1", self.shape),
            ));
        }
        if self.shape.len() > MOST_AXES {
            let problem =
                format!("has {} axes, and may have at most {MOST_AXES}", self.shape.len());
            return Err(("shape", problem));
        }
        if self.max_len == Some(0) {
            return Err(("max_len", "must be at least 1, is 0".into()));
        }
        let format = self.format();
        if format.cell_bytes() > MOST_CELL_BYTES {
            let key = if kind.is_ragged() { "max_len" } else { "shape" };
            return Err((
                key,
                format!(
                    "makes a column of more than {MOST_CELL_BYTES} bytes per sample, which is the maximum"
                ),
            ));
        }
        if let Some(default) = &self.default {
            let mut cell = vec![0; format.cell_bytes()];
            let written = format.write_default(default, &mut cell);
            let written = written.map_err(|error| ("default", error.problem))?;
            if written.truncated {
                return Err(("default", "is longer than max_len".into()));
            }
        }
        let is_integer = matches!(format.element, ElementType::U8 | ElementType::I64);
        if on_error == OnError::Substitute
            && *kind == ColumnKind::Array
            && is_integer
            && self.default.is_none()
        {
            let problem = "is not set, but loader.on_error = \"substitute\" needs a value for samples that fail; set it";
            return Err(("default", problem.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_column_is_an_error_at_its_key() {
        let f32 = ElementType::F32;
        let array = |shape: &[usize]| ColumnSettings::array("a", f32, shape);
        let text = |name| ColumnSettings::text(name);
        let with_default = |value| ColumnSettings { default: Some(value), ..array(&[]) };
        for (key, column) in [
            ("name", text("")),
            ("name", text("image")),
            ("name", text("label")),
            ("field", ColumnSettings { field: Some("a:".into()), ..text("a") }),
            ("field", ColumnSettings { field: Some(String::new()), ..text("a") }),
            ("max_len", ColumnSettings { max_len: Some(4), ..array(&[]) }),
            ("too_long", ColumnSettings { too_long: TooLong::Truncate, ..array(&[]) }),
            ("dtype", ColumnSettings { dtype: Some(f32), ..text("a") }),
            ("shape", ColumnSettings { shape: vec![1], ..text("a") }),
            ("shape", array(&[2, 0])),
            ("shape", array(&[1 << 20, 1 << 20])),
            ("shape", array(&[usize::MAX, 3])),
            ("max_len", ColumnSettings { max_len: Some(0), ..text("a") }),
            ("max_len", ColumnSettings { max_len: Some(usize::MAX), ..text("a") }),
            ("default", with_default(DefaultValue::Text("x".into()))),
            ("default", with_default(DefaultValue::List(vec![]))),
            ("default", with_default(DefaultValue::Float(1e300))),
        ] {
            match ColumnSettings::check_all(std::slice::from_ref(&column), OnError::Stop) {
                Err(Error::Config(error)) => assert_eq!(error.key, format!("column[0].{key}")),
                other => panic!("{column:?}: {other:?}"),
            }
        }
        let twice = [text("a"), array(&[])];
        assert!(ColumnSettings::check_all(&twice, OnError::Stop).is_err());
        let number = ColumnSettings::array("n", ElementType::I64, &[]);
        let numbers = std::slice::from_ref(&number);
        assert!(ColumnSettings::check_all(numbers, OnError::Substitute).is_err());
        assert!(ColumnSettings::check_all(numbers, OnError::Drop).is_ok());
        let good = [text("a"), array(&[3]), with_default(DefaultValue::Float(f64::NAN))];
        assert!(ColumnSettings::check_all(&good[..1], OnError::Substitute).is_ok());
        assert!(ColumnSettings::check_all(&good[1..2], OnError::Substitute).is_ok());
        assert!(ColumnSettings::check_all(&good[2..], OnError::Stop).is_ok());
    }
}
