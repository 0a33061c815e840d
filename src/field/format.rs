//! Formats of cells, which are the parts of a column that belong to one sample.

use serde::{Deserialize, Serialize};

use super::{CellKind, FieldPath};
use crate::error::{DataError, Reason};
use crate::tensor::ElementType;

/// Size of the length of a text in the cell of several texts: a `u32` in native byte order.
pub const TEXT_LEN_BYTES: usize = size_of::<u32>();

/// Format of the cells of a column, and the conversion of a field's value to it.
#[derive(Clone, Debug, PartialEq)]
pub struct CellFormat {
    /// Structure of the values.
    pub kind: CellKind,
    /// Element type. `u8` for texts and bytes.
    pub element: ElementType,
    /// Shape of an array, or of one entry of a list. Empty for a single number.
    pub dims: Vec<usize>,
    /// Maximum number of entries of a list, of bytes of a text, or of bytes of all texts of a
    /// sample.
    pub max_len: usize,
    /// Maximum number of texts or lists of a sample. 0 unless the kind is `Texts` or `Lists`.
    pub max_texts: usize,
    /// Choice of a text in a column of the kind `Text`, if the field has several. `None`: several
    /// texts are an error.
    pub pick: Option<Pick>,
    /// Handling of longer values.
    pub too_long: TooLong,
    /// The field, with a path to the column's value if the field contains JSON.
    pub field: FieldPath,
}

/// Handling of values that are longer than `max_len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TooLong {
    /// The sample fails, and `loader.on_error` decides what happens next.
    #[default]
    Error,
    /// The value is cut after `max_len` entries. A text is cut between two characters. Such samples
    /// are counted.
    Truncate,
    /// The sample is replaced by another one, even if `loader.on_error` is not `skip`. Such samples
    /// are counted.
    Skip,
}

/// Choice of one of several texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Pick {
    /// The first text.
    First,
    /// A random text, drawn by the seed, the epoch, the sample, its repeat and the name of the
    /// column.
    Random,
}

/// What a cell needs besides its value.
#[derive(Clone, Copy, Debug)]
pub struct SampleContext {
    /// Random bits for [`Pick::Random`].
    pub draw: u64,
    /// Maximum size of an array in an `.npz` archive, in bytes.
    pub limit: u64,
}

/// Result of writing a value into a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of entries of a list, of bytes of a text, or of texts. 1 for an array.
    pub len: usize,
    /// Whether the value was cut.
    pub truncated: bool,
}

impl CellFormat {
    /// Number of numbers in one entry.
    pub fn entry_len(&self) -> usize {
        self.dims.iter().fold(1, |len, &dim| len.saturating_mul(dim))
    }

    /// Size of one entry in bytes.
    pub fn entry_bytes(&self) -> usize {
        self.entry_len().saturating_mul(self.element.bytes())
    }

    /// Size of a cell in bytes. In a cell of several texts, the lengths of the texts follow their
    /// bytes.
    pub fn cell_bytes(&self) -> usize {
        let entries = if self.kind.is_ragged() { self.max_len } else { 1 };
        let lens = self.max_texts.saturating_mul(TEXT_LEN_BYTES);
        self.entry_bytes().saturating_mul(entries).saturating_add(lens)
    }

    /// Text for the values that the column takes, such as `a list of f32 of shape [4]`.
    pub fn wanted(&self) -> String {
        let numbers = match self.dims.is_empty() {
            true => self.element.to_string(),
            false => format!("{} of shape {:?}", self.element, self.dims),
        };
        match self.kind {
            CellKind::Array => numbers,
            CellKind::List => format!("a list of {numbers}"),
            CellKind::Text if self.pick.is_some() => "a text or a list of texts".into(),
            CellKind::Text => "a text".into(),
            CellKind::Bytes => "bytes".into(),
            CellKind::Texts => "a list of texts".into(),
            CellKind::Lists => format!("lists of {numbers}"),
        }
    }
}

/// Error for a value that does not fit its column.
pub(super) fn unfit(problem: impl Into<String>) -> DataError {
    DataError::new(Reason::Field, problem)
}
