//! Converts stored values to numbers and texts.

use half::f16;

use super::schema::{Form, Leaf, LeafKind};
use crate::error::{DataError, Reason};

/// Number in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(i128),
    Short(f32),
    Double(f64),
}

/// Nanoseconds of a day.
const DAY: i128 = 86_400_000_000_000;
/// Julian day of 1970-01-01.
const EPOCH: i128 = 2_440_588;

/// Returns a number. `None` if the column has no numbers.
pub fn number(leaf: &Leaf, bytes: &[u8]) -> Option<Number> {
    let integer = |value: i128| Some(Number::Integer(value));
    match (leaf.kind, leaf.form) {
        (LeafKind::Bool, _) => integer((*bytes.first()?).into()),
        (LeafKind::Signed, _) => integer(signed(leaf.form, bytes)?.into()),
        (LeafKind::Unsigned, Form::Int32) => {
            integer(u32::from_le_bytes(*bytes.first_chunk()?).into())
        }
        (LeafKind::Unsigned, _) => integer(u64::from_le_bytes(*bytes.first_chunk()?).into()),
        (LeafKind::Nanoseconds, _) => {
            let (nanoseconds, day) = bytes.split_first_chunk()?;
            let day = i128::from(i32::from_le_bytes(*day.first_chunk()?)) - EPOCH;
            integer(day * DAY + i128::from(i64::from_le_bytes(*nanoseconds)))
        }
        (LeafKind::Float, Form::Float) => {
            Some(Number::Short(f32::from_le_bytes(*bytes.first_chunk()?)))
        }
        (LeafKind::Float, _) => Some(Number::Double(f64::from_le_bytes(*bytes.first_chunk()?))),
        (LeafKind::Half, _) => {
            Some(Number::Short(f16::from_le_bytes(*bytes.first_chunk()?).to_f32()))
        }
        _ => None,
    }
}

fn signed(form: Form, bytes: &[u8]) -> Option<i64> {
    Some(match form {
        Form::Int32 => i32::from_le_bytes(*bytes.first_chunk()?).into(),
        _ => i64::from_le_bytes(*bytes.first_chunk()?),
    })
}

/// Returns the exact text of a decimal number with `scale` digits after the point.
///
/// # Errors
/// [`Reason::Unsupported`] if the number without the point does not fit into 128 bits.
pub fn decimal(form: Form, scale: u32, bytes: &[u8]) -> Result<String, DataError> {
    let unscaled = match form {
        Form::Int32 | Form::Int64 => signed(form, bytes).map(i128::from),
        _ => big_endian(bytes),
    };
    let Some(unscaled) = unscaled else {
        let problem = "the decimal number has more than 128 bits; write it as a float or as a text";
        return Err(DataError::new(Reason::Unsupported, problem));
    };
    let sign = if unscaled < 0 { "-" } else { "" };
    let scale = scale as usize;
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale == 0 { "" } else { "." };
    Ok(format!("{sign}{whole}{point}{fraction}"))
}

/// Returns an integer in two's complement, most significant byte first.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
    let extra = bytes.len().saturating_sub(16);
    let (extra, bytes) = bytes.split_at(extra);
    let mut all = [sign; 16];
    all[16 - bytes.len()..].copy_from_slice(bytes);
    let value = i128::from_be_bytes(all);
    let is_extended = extra.iter().all(|byte| *byte == sign);
    let keeps_sign = extra.is_empty() || (value < 0) == (sign != 0);
    (is_extended && keeps_sign).then_some(value)
}

/// Checks that bytes are a text.
pub fn text(bytes: &[u8]) -> Result<&str, DataError> {
    str::from_utf8(bytes).map_err(|error| {
        let problem = format!("the text is not UTF-8 at byte {}", error.valid_up_to());
        DataError::new(Reason::Field, problem)
    })
}

/// Error for a column whose type is unknown.
pub fn unknown() -> DataError {
    let problem = "its type is not supported; write it as numbers, texts or bytes";
    DataError::new(Reason::Unsupported, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let of = |bytes: &[u8], scale| decimal(Form::Bytes, scale, bytes).unwrap();
        assert_eq!(of(&[], 0), "0");
        assert_eq!(of(&[], 2), "0.00");
        assert_eq!(of(&[5], 3), "0.005");
        assert_eq!(of(&[0xff], 1), "-0.1");
        assert_eq!(of(&[0x00, 0xff], 0), "255");
        assert_eq!(of(&[0xff; 40], 0), "-1");
        assert_eq!(of(&[&[0; 9][..], &[0x7f]].concat(), 1), "12.7");
        assert_eq!(of(&i128::MIN.to_be_bytes(), 38), "-1.70141183460469231731687303715884105728");
        assert_eq!(decimal(Form::Int32, 2, &(-1234_i32).to_le_bytes()).unwrap(), "-12.34");
        assert_eq!(decimal(Form::Int64, 0, &i64::MIN.to_le_bytes()).unwrap(), i64::MIN.to_string());
        for long in
            [[&[0][..], &[0xff; 16]].concat(), [&[0xff][..], &[0; 16]].concat(), vec![1; 17]]
        {
            let error = decimal(Form::Bytes, 0, &long).unwrap_err();
            assert_eq!(error.reason, Reason::Unsupported);
        }
    }
}
