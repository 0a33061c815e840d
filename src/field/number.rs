//! Conversion of numbers to the element type of a column.

use std::fmt;

use half::{bf16, f16};

use crate::tensor::ElementType;

/// A number of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(i128),
    Float(f64),
}

/// Largest integer up to which every integer is an f64: 2^53.
const MOST_EXACT: u128 = 1 << 53;

impl Number {
    /// Parses a number, without the spaces around it. The booleans that pandas and JSON write are 0
    /// and 1. `None` if the text is not a number, or if it exceeds every f64.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        match text {
            "true" | "True" | "TRUE" => return Some(Number::Integer(1)),
            "false" | "False" | "FALSE" => return Some(Number::Integer(0)),
            _ => {}
        }
        if let Ok(integer) = text.parse() {
            return Some(Number::Integer(integer));
        }
        let float: f64 = text.parse().ok()?;
        // `parse` also returns infinity for a number such as 1e400.
        let is_infinity = text.contains(['i', 'I']);
        (is_infinity || !float.is_infinite()).then_some(Number::Float(float))
    }

    /// Writes the number to `to`, in native byte order. Returns a message if the element type
    /// cannot represent it. Integer columns reject fractions, and floats from 2^53 on, because
    /// parsing may have rounded them. Float columns take no integers beyond 2^53, and a column
    /// of f32 takes only integers that an f32 represents. Other floats are rounded to the nearest.
    pub fn write(self, element: ElementType, to: &mut [u8]) -> Result<(), String> {
        match element {
            ElementType::U8 => to.copy_from_slice(&[self.integer(0, u8::MAX.into())? as u8]),
            ElementType::I64 => {
                let number = self.integer(i64::MIN.into(), i64::MAX.into())?;
                to.copy_from_slice(&(number as i64).to_ne_bytes());
            }
            ElementType::F16 => {
                let value = f16::from_f32(to_odd(self.float()?));
                self.check_rounded(value.is_infinite(), f16::MAX)?;
                to.copy_from_slice(&value.to_ne_bytes());
            }
            ElementType::BF16 => {
                let value = bf16::from_f32(to_odd(self.float()?));
                self.check_rounded(value.is_infinite(), bf16::MAX)?;
                to.copy_from_slice(&value.to_ne_bytes());
            }
            ElementType::F32 => {
                let value = self.float()? as f32;
                self.check_rounded(value.is_infinite(), f32::MAX)?;
                if let Number::Integer(number) = self
                    && value as i128 != number
                {
                    return Err(format!("{number} is an integer that no f32 represents"));
                }
                to.copy_from_slice(&value.to_ne_bytes());
            }
        }
        Ok(())
    }

    fn integer(self, low: i128, high: i128) -> Result<i128, String> {
        let number = match self {
            Number::Integer(number) => number,
            Number::Float(number) if number.fract() != 0.0 || !number.is_finite() => {
                return Err(format!("{number:?} is not a whole number"));
            }
            Number::Float(number) if number.abs() >= MOST_EXACT as f64 => {
                return Err(format!(
                    "{number:e} is written as a float, and is not below 2^53, so it may not be exact"
                ));
            }
            Number::Float(number) => number as i128,
        };
        match (low..=high).contains(&number) {
            true => Ok(number),
            false => Err(format!("{number} is not between {low} and {high}")),
        }
    }

    fn float(self) -> Result<f64, String> {
        match self {
            Number::Integer(number) if number.unsigned_abs() > MOST_EXACT => {
                Err(format!("{number} is beyond 2^53, so a float may not represent it"))
            }
            Number::Integer(number) => Ok(number as f64),
            Number::Float(number) => Ok(number),
        }
    }

    /// Returns an error if the number was finite, but rounding made it infinite.
    fn check_rounded(self, is_infinite: bool, most: impl fmt::Debug) -> Result<(), String> {
        match self {
            Number::Float(number) if is_infinite && number.is_finite() => {
                Err(format!("{number:?} is not between -{most:?} and {most:?}"))
            }
            Number::Integer(number) if is_infinite => {
                Err(format!("{number} is not between -{most:?} and {most:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// Rounds to an f32 with an odd mantissa, unless the f32 is exact. A shorter type that is rounded
/// from the result is then the nearest one. Rounding twice to the nearest would not be (Boldo,
/// Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to
/// odd", IEEE Transactions on Computers 57(4), 2008).
fn to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let bits = nearest.to_bits();
    if !nearest.is_finite() || f64::from(nearest) == number || bits & 1 == 1 {
        return nearest;
    }
    let is_below = f64::from(nearest).abs() < number.abs();
    f32::from_bits(if is_below { bits + 1 } else { bits - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, element: ElementType) -> Result<f64, String> {
        let mut bytes = vec![0; element.bytes()];
        Number::parse(text).ok_or("no number")?.write(element, &mut bytes)?;
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(&bytes);
        Ok(match element {
            ElementType::U8 => wide[0].into(),
            ElementType::I64 => i64::from_ne_bytes(wide) as f64,
            ElementType::F16 => f16::from_ne_bytes([wide[0], wide[1]]).to_f64(),
            ElementType::BF16 => bf16::from_ne_bytes([wide[0], wide[1]]).to_f64(),
            ElementType::F32 => f32::from_ne_bytes([wide[0], wide[1], wide[2], wide[3]]).into(),
        })
    }

    #[test]
    fn numbers_that_an_element_type_represents_are_written() {
        for (text, element, expected) in [
            ("255", ElementType::U8, 255.0),
            (" 3.0 ", ElementType::U8, 3.0),
            ("-9223372036854775808", ElementType::I64, i64::MIN as f64),
            ("1e3", ElementType::I64, 1000.0),
            ("0.5", ElementType::F16, 0.5),
            ("65504", ElementType::F16, 65504.0),
            ("-2", ElementType::BF16, -2.0),
            ("9007199254740992", ElementType::F32, 9007199254740992.0),
            ("9007199254740991.0", ElementType::I64, 9007199254740991.0),
            ("6949.999999999999", ElementType::F16, 6948.0),
            ("-0.12088012695312501", ElementType::F16, -0.12091064453125),
            ("1.0039062500000002", ElementType::BF16, 1.0078125),
            ("65519.999999999", ElementType::F16, 65504.0),
            ("-1e-60", ElementType::F16, -0.0),
            ("16777217", ElementType::BF16, 16777216.0),
            ("3.4028235e38", ElementType::F32, f32::MAX.into()),
            ("65519", ElementType::F16, 65504.0),
            ("True", ElementType::U8, 1.0),
            ("false", ElementType::F32, 0.0),
            ("-Infinity", ElementType::F32, f64::NEG_INFINITY),
            ("inf", ElementType::F32, f64::INFINITY),
        ] {
            assert_eq!(written(text, element), Ok(expected), "{text} as {element}");
        }
        assert!(written("nan", ElementType::F32).unwrap().is_nan());
    }

    #[test]
    fn other_numbers_are_errors() {
        for (text, element) in [
            ("256", ElementType::U8),
            ("-1", ElementType::U8),
            ("0.5", ElementType::I64),
            ("nan", ElementType::I64),
            ("inf", ElementType::U8),
            ("9223372036854775808", ElementType::I64),
            ("9.3e18", ElementType::I64),
            ("1e300", ElementType::I64),
            ("16777217", ElementType::F32),
            ("9007199254740993", ElementType::F16),
            ("9007199254740993.0", ElementType::I64),
            ("1e400", ElementType::F32),
            ("-1e400", ElementType::F32),
            ("tRuE", ElementType::U8),
            ("9007199254740993", ElementType::F32),
            ("1e39", ElementType::F32),
            ("65520", ElementType::F16),
            ("3.4e38", ElementType::F16),
            ("", ElementType::F32),
            ("1,5", ElementType::F32),
            ("0x10", ElementType::I64),
        ] {
            assert!(written(text, element).is_err(), "{text} as {element}");
        }
    }
}
