//! Fields: named parts of a sample besides its image and its label, such as a caption or a score,
//! and their conversion to the cells of columns.

pub use format::{CellFormat, Pick, SampleContext, TEXT_LEN_BYTES, TooLong, Written};
pub(crate) use json::{Target as JsonTarget, read as read_json};
pub use path::{FieldPath, Step};
pub use value::DefaultValue;
pub use writer::quoted;

mod convert;
mod format;
mod json;
mod number;
pub(crate) mod numpy;
mod path;
mod value;
mod writer;

/// Named part of a sample, as its source stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, unique in its source.
    pub name: String,
    /// Type of the values.
    pub kind: FieldKind,
}

/// Type of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldKind {
    /// Numbers.
    Number,
    /// Flat lists of numbers.
    List,
    /// Texts. A text may contain a number or JSON.
    Text,
    /// Bytes.
    Bytes,
    /// JSON values.
    Json,
}

/// Value of a field of one sample, as a source passes it to a column.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FieldValue<'a> {
    /// An integer.
    Integer(i128),
    /// A float.
    Float(f64),
    /// A text. In a column of numbers it must contain a number, a boolean, or JSON that begins with
    /// `[`. An empty text is a missing value.
    Text(&'a str),
    /// Bytes. In a column of numbers, a mask or an image, bytes that begin like a `.npy` or `.npz`
    /// file are that file.
    Bytes(&'a [u8]),
    /// A file in NumPy's format `.npy` with an array of numbers. A column of numbers takes the
    /// array, whose shape must be as for [`Tensor`](Self::Tensor). Masks and images of fields may
    /// be arrays too. A column of bytes takes the file. An empty file is a missing value.
    Npy(&'a [u8]),
    /// An array of numbers in memory, stored like a file `.npy`. A column of bytes does not take
    /// it. Other columns take it like [`Npy`](Self::Npy).
    Array(&'a [u8]),
    /// An archive in NumPy's format `.npz`. A column of numbers, a mask or an image takes the array
    /// that the path of the column names, or the only array. A column of bytes takes the archive.
    /// An empty file is a missing value.
    Npz(&'a [u8]),
    /// The text of a JSON value, which may be null for a missing value.
    Json(&'a [u8]),
    /// The member with this name of a JSON object, given the text of the object.
    JsonMember(&'a [u8], &'a str),
    /// A flat list of integers. It fills the shape of an array, or of the entries of a list, in
    /// row-major order.
    Integers(&'a [i64]),
    /// A flat list of floats of 32 bits.
    Floats(&'a [f32]),
    /// A flat list of floats of 64 bits.
    Doubles(&'a [f64]),
    /// Numbers of this shape, in row-major order. It must be the shape of the array, or the number
    /// of entries of the list with the shape of an entry.
    Tensor(Flat<'a>, &'a [usize]),
    /// Any number of entries of this shape, such as the boxes of objects, in row-major order. An
    /// entry of the column must have this shape, or be as many numbers in a row.
    Entries(Flat<'a>, &'a [usize]),
}

impl<'a> FieldValue<'a> {
    /// A text if the bytes are UTF-8, and otherwise bytes.
    pub(crate) fn of_bytes(bytes: &'a [u8]) -> Self {
        str::from_utf8(bytes).map_or(FieldValue::Bytes(bytes), FieldValue::Text)
    }

    /// Size of the value in bytes, as the source passes it. A number has 8 bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            FieldValue::Integer(_) | FieldValue::Float(_) => 8,
            FieldValue::Text(text) => text.len(),
            FieldValue::Bytes(bytes)
            | FieldValue::Npy(bytes)
            | FieldValue::Array(bytes)
            | FieldValue::Npz(bytes)
            | FieldValue::Json(bytes)
            | FieldValue::JsonMember(bytes, _) => bytes.len(),
            FieldValue::Integers(list) => size_of_val(*list),
            FieldValue::Floats(list) => size_of_val(*list),
            FieldValue::Doubles(list) => size_of_val(*list),
            FieldValue::Tensor(numbers, _) | FieldValue::Entries(numbers, _) => match numbers {
                Flat::Bytes(list) => list.len(),
                Flat::Integers(list) => size_of_val(*list),
                Flat::Floats(list) => size_of_val(*list),
                Flat::Doubles(list) => size_of_val(*list),
            },
        }
    }
}

/// Numbers of a tensor, or of entries.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Flat<'a> {
    /// Integers of 8 bits.
    Bytes(&'a [u8]),
    /// Integers of 64 bits.
    Integers(&'a [i64]),
    /// Floats of 32 bits.
    Floats(&'a [f32]),
    /// Floats of 64 bits.
    Doubles(&'a [f64]),
}

/// Structure of the values of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CellKind {
    /// Numbers of a fixed shape. An empty shape is a single number.
    #[default]
    Array,
    /// Any number of entries per sample. Each entry is a number, or numbers of a fixed shape.
    List,
    /// Text in UTF-8.
    Text,
    /// Bytes.
    Bytes,
    /// Any number of texts per sample, in UTF-8.
    Texts,
    /// Any number of lists of numbers per sample.
    Lists,
}

impl CellKind {
    /// Whether samples have values of different lengths.
    pub const fn is_ragged(self) -> bool {
        !matches!(self, CellKind::Array)
    }

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            CellKind::Array => "array",
            CellKind::List => "list",
            CellKind::Text => "text",
            CellKind::Bytes => "bytes",
            CellKind::Texts => "texts",
            CellKind::Lists => "lists",
        }
    }
}
