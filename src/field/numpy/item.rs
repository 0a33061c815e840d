//! Conversion of elements of NumPy arrays to values of fields.

use crate::error::{DataError, Reason, reserve};
use crate::field::FieldValue;
use crate::field::number::Number;
pub use crate::numpy::Item;

impl Item {
    /// Size of an element in the value of a field, in bytes.
    #[cfg(any(feature = "beton", feature = "npy"))]
    pub fn value_bytes(self) -> u64 {
        match (self.kind, self.bytes) {
            (b'f', 2 | 4) => size_of::<f32>() as u64,
            _ => size_of::<i64>() as u64,
        }
    }

    /// Passes one number to `put`. Panics unless `stored` has the size of a number.
    #[cfg_attr(not(feature = "npy"), allow(dead_code, reason = "only `npy` needs it"))]
    pub fn pass_one(
        self,
        stored: &[u8],
        put: impl FnOnce(FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        match (self.kind, self.bytes) {
            (b'f', 8) => put(FieldValue::Float(self.double(stored))),
            (b'f', _) => put(FieldValue::Float(self.float(stored).into())),
            _ => put(FieldValue::Integer(self.integer(stored))),
        }
    }

    /// Passes the numbers of the field `name` to `put` as a flat list. Panics unless each has the
    /// size of a number.
    ///
    /// # Errors
    /// [`Reason::Field`] if an integer does not fit an `i64`.
    pub fn pass_list(
        self,
        name: &str,
        stored: &[u8],
        put: impl FnOnce(FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let elements = stored.chunks_exact(self.bytes as usize);
        match (self.kind, self.bytes) {
            (b'f', 8) => {
                let mut values = Vec::new();
                reserve::reserve(&mut values, elements.len())?;
                values.extend(elements.map(|it| self.double(it)));
                put(FieldValue::Doubles(&values))
            }
            (b'f', _) => {
                let mut values = Vec::new();
                reserve::reserve(&mut values, elements.len())?;
                values.extend(elements.map(|it| self.float(it)));
                put(FieldValue::Floats(&values))
            }
            _ => {
                let mut values = Vec::new();
                reserve::reserve(&mut values, elements.len())?;
                for (place, element) in elements.enumerate() {
                    let value = self.integer(element);
                    values.push(i64::try_from(value).map_err(|_| {
                        let problem = format!(
                            "the field {name:?} has the number {value} at place {place}, but \
                             arrays may have numbers below 2^63"
                        );
                        DataError::new(Reason::Field, problem)
                    })?);
                }
                put(FieldValue::Integers(&values))
            }
        }
    }

    /// The number `stored`. Panics unless it has the size of a number.
    pub(in crate::field) fn number(self, stored: &[u8]) -> Number {
        match (self.kind, self.bytes) {
            (b'f', 8) => Number::Float(self.double(stored)),
            (b'f', _) => Number::Float(self.float(stored).into()),
            _ => Number::Integer(self.integer(stored)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(descr: &str, stored: &[u8]) -> Result<String, Reason> {
        let item = Item::parse(descr.as_bytes()).unwrap();
        assert!(item.is_number(), "{descr}");
        let mut found = String::new();
        let passed = item.pass_list("a", stored, |value| {
            found = format!("{value:?}");
            Ok(())
        });
        passed.map(|()| found).map_err(|error| error.reason)
    }

    fn one(descr: &str, stored: &[u8]) -> String {
        let mut found = String::new();
        let item = Item::parse(descr.as_bytes()).unwrap();
        item.pass_one(stored, |value| {
            found = format!("{value:?}");
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn numbers_of_every_type_and_byte_order_are_exact() {
        assert_eq!(list("|b1", &[0, 1, 255]).unwrap(), "Integers([0, 1, 1])");
        assert_eq!(list("|i1", &[1, 255, 128]).unwrap(), "Integers([1, -1, -128])");
        assert_eq!(list("|u1", &[1, 255]).unwrap(), "Integers([1, 255])");
        assert_eq!(list("<i2", &[1, 128]).unwrap(), "Integers([-32767])");
        assert_eq!(list(">i2", &[128, 1]).unwrap(), "Integers([-32767])");
        assert_eq!(list(">u4", &[255, 0, 0, 1]).unwrap(), "Integers([4278190081])");
        let least = i64::MIN;
        assert_eq!(list("<i8", &least.to_le_bytes()).unwrap(), format!("Integers([{least}])"));
        assert_eq!(list(">f2", &[0x3c, 0, 0xfc, 0]).unwrap(), "Floats([1.0, -inf])");
        assert_eq!(list("<f4", &0.1f32.to_le_bytes()).unwrap(), "Floats([0.1])");
        assert_eq!(list(">f8", &0.1f64.to_be_bytes()).unwrap(), "Doubles([0.1])");
        assert_eq!(list("<f8", &[]).unwrap(), "Doubles([])");
        assert_eq!(list("<u8", &u64::MAX.to_le_bytes()), Err(Reason::Field));
        assert_eq!(one("<u8", &u64::MAX.to_le_bytes()), format!("Integer({})", u64::MAX));
        assert_eq!(one("<f4", &0.5f32.to_le_bytes()), "Float(0.5)");
        assert_eq!(one(">f8", &0.1f64.to_be_bytes()), "Float(0.1)");
        for descr in ["<c8", "<U4", "|S1", "<M8", "|V8", "<f1", "<i3", "<f16", "<i0"] {
            assert!(!Item::parse(descr.as_bytes()).unwrap().is_number(), "{descr}");
        }
    }
}
