//! Arrays of NumPy as fields.

use super::format::unfit;
use super::number::Number;
use super::{FieldValue, Flat};
use crate::error::{DataError, Reason};

use crate::numpy::{Array, Item, MAGIC};

mod item;
pub mod npz;

/// Returns bytes that begin like a `.npy` or `.npz` file as this file, and other values unchanged.
pub fn file(value: FieldValue<'_>) -> FieldValue<'_> {
    match value {
        FieldValue::Bytes(bytes) if bytes.starts_with(MAGIC) => FieldValue::Npy(bytes),
        FieldValue::Bytes(bytes) if npz::is_archive(bytes) => FieldValue::Npz(bytes),
        value => value,
    }
}

/// Array of numbers in a `.npy` file, which it borrows.
#[derive(Debug)]
pub struct Numbers<'a> {
    item: Item,
    elements: &'a [u8],
    /// Number of elements along each axis, slowest first.
    pub shape: Vec<usize>,
}

impl<'a> Numbers<'a> {
    /// Parses a file.
    ///
    /// # Errors
    /// [`Reason::Corrupt`] if the file is no valid `.npy`, or [`Reason::Field`] if its elements are
    /// not numbers.
    pub fn parse(file: &'a [u8]) -> Result<Self, DataError> {
        let (Array { item, shape, .. }, elements) = Array::parse(file).map_err(|error| {
            DataError::new(Reason::Corrupt, format!("at byte {}: {}", error.offset, error.problem))
        })?;
        if !item.is_number() {
            return Err(unfit(format!(
                "the elements of the array have the type {}, but must be booleans, integers of up \
                 to 64 bits, or floats of up to 64 bits; convert it with astype",
                item.words()
            )));
        }
        // A side above `usize::MAX` is possible only beside a side of 0, because the product was
        // checked.
        let side = |&side: &u64| usize::try_from(side).unwrap_or(usize::MAX);
        Ok(Self { item, elements, shape: shape.iter().map(side).collect() })
    }

    /// Name of the elements' type in NumPy, such as `<f4`.
    pub fn item(&self) -> String {
        self.item.words()
    }

    /// The elements, if each is an integer from 0 to 255 in one byte.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        ((self.item.kind, self.item.bytes) == (b'u', 1)).then_some(self.elements)
    }

    /// Whether the elements are floats.
    pub fn has_floats(&self) -> bool {
        self.item.kind == b'f'
    }

    /// Whether each element has one byte.
    pub fn has_bytes(&self) -> bool {
        self.item.bytes == 1
    }

    /// Passes each element to `take` as an integer.
    ///
    /// # Errors
    /// The first element that is no integer, or that `take` refuses, as text.
    pub fn integers(&self, mut take: impl FnMut(i128) -> bool) -> Result<(), String> {
        for at in 0..self.len() {
            match self.number(at) {
                Number::Integer(number) if take(number) => {}
                Number::Integer(number) => return Err(number.to_string()),
                Number::Float(number) => return Err(number.to_string()),
            }
        }
        Ok(())
    }

    /// The only element, if it is an integer, as text.
    pub fn only_integer(&self) -> Option<String> {
        let is_only = self.len() == 1;
        match is_only.then(|| self.number(0))? {
            Number::Integer(number) => Some(number.to_string()),
            Number::Float(_) => None,
        }
    }

    /// Passes the array to `put` as a [`FieldValue::Tensor`].
    ///
    /// # Errors
    /// Errors of `put`. [`Reason::Field`] if an integer does not fit an `i64`.
    pub fn pass(
        &self,
        put: impl FnOnce(FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let shape = &self.shape[..];
        if let Some(bytes) = self.bytes() {
            return put(FieldValue::Tensor(Flat::Bytes(bytes), shape));
        }
        self.item.pass_list("", self.elements, |value| {
            put(match value {
                FieldValue::Integers(values) => FieldValue::Tensor(Flat::Integers(values), shape),
                FieldValue::Floats(values) => FieldValue::Tensor(Flat::Floats(values), shape),
                FieldValue::Doubles(values) => FieldValue::Tensor(Flat::Doubles(values), shape),
                value => value,
            })
        })
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.elements.len() / self.item.bytes as usize
    }

    /// Element number `at`.
    pub(super) fn number(&self, at: usize) -> Number {
        let bytes = self.item.bytes as usize;
        self.item.number(&self.elements[bytes * at..][..bytes])
    }
}
