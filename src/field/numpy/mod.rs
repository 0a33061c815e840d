//! Arrays of NumPy: the format `.npy`, and the types of elements.

use super::format::unfit;
use super::{FieldValue, Flat};
use crate::error::{DataError, Reason};

#[cfg(feature = "npy")]
pub use array::{ArrayError, Start, words};
#[cfg(feature = "npy")]
pub use item::CHARACTER_BYTES;
#[cfg(any(feature = "beton", feature = "npy"))]
pub use item::Item;

pub use array::Array;

mod array;
mod item;

/// Array of numbers in a `.npy` file, which it borrows.
#[derive(Debug)]
pub struct Numbers<'a> {
    item: item::Item,
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

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.elements.len() / self.item.bytes as usize
    }

    /// Element number `at`.
    pub(super) fn number(&self, at: usize) -> super::number::Number {
        let bytes = self.item.bytes as usize;
        self.item.number(&self.elements[bytes * at..][..bytes])
    }

    /// Passes the array to `put` as a [`FieldValue::Tensor`].
    ///
    /// # Errors
    /// [`Reason::Field`] if an integer does not fit an `i64`.
    pub fn pass(
        &self,
        put: impl FnOnce(FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let shape = &self.shape[..];
        if (self.item.kind, self.item.bytes) == (b'u', 1) {
            return put(FieldValue::Tensor(Flat::Bytes(self.elements), shape));
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
}
