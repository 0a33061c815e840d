//! Parsing of sizes in bytes, such as `"512 MiB"`.

use std::fmt;

use serde::de::{self, Deserializer, Unexpected, Visitor};

/// Deserializes a size in bytes: an integer, or a string such as `"512 MiB"` or `"20 GB"`.
pub fn byte_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(ByteSize)
}

/// Deserializes an optional size in bytes, see [`byte_size`].
pub fn some_byte_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    byte_size(deserializer).map(Some)
}

struct ByteSize;

impl Visitor<'_> for ByteSize {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, such as 65536 or \"512 MiB\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        let found: String = text.chars().take(40).collect();
        parse_bytes(text).map_err(|problem| match problem {
            SizeError::NoNumber => E::invalid_value(Unexpected::Str(text), &self),
            SizeError::TooLarge => E::custom(format!(
                "is {found}, but must be at most {MOST_BYTES} bytes (less than 8388608 TiB)"
            )),
            SizeError::Unit(unit) => {
                let units: Vec<_> = UNITS.iter().map(|(name, _)| *name).collect();
                E::custom(format!(
                    "is {found}, but {unit} is not a unit of bytes; choose one of {} (1 GB is 1000 MB, 1 GiB is 1024 MiB)",
                    units.join(", ")
                ))
            }
        })
    }
}

/// Error while parsing a size in bytes.
#[derive(Debug, PartialEq)]
enum SizeError {
    NoNumber,
    Unit(String),
    TooLarge,
}

/// Largest integer that TOML can represent.
const MOST_BYTES: u64 = i64::MAX as u64;

/// Units with their sizes in bytes. Letter case is ignored.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Parses a size in bytes: digits, an optional fraction, and an optional unit. Fractions of a byte
/// are dropped.
fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return Err(SizeError::NoNumber);
    }
    let scale = match unit {
        "" => 1,
        unit => match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            Some((_, bytes)) => *bytes,
            None => return Err(SizeError::Unit(unit.chars().take(20).collect())),
        },
    };
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(scale));
    // Digits after the 18th add less than one byte, because the largest unit has 13 digits.
    let digits = &fraction[..fraction.len().min(18)];
    let fraction: u128 = digits.parse().unwrap_or(0);
    let part = fraction * u128::from(scale) / 10u128.pow(digits.len() as u32);
    let bytes = whole.and_then(|whole| whole.checked_add(part as u64));
    bytes.filter(|bytes| *bytes <= MOST_BYTES).ok_or(SizeError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::{SizeError, parse_bytes};

    #[test]
    fn bytes_may_have_a_unit_and_a_fraction() {
        for (text, bytes) in [
            ("7", 7),
            ("0 B", 0),
            ("512 MiB", 512 << 20),
            ("512MiB", 512 << 20),
            (" 512  mib ", 512 << 20),
            ("5 GiB", 5 << 30),
            ("5 GB", 5_000_000_000),
            ("2 TiB", 2 << 40),
            ("2 TB", 2_000_000_000_000),
            ("3 kB", 3_000),
            ("3 KiB", 3 << 10),
            ("1.5 GiB", 3 << 29),
            ("0.1 MB", 100_000),
            ("0.0001 KiB", 0),
            ("1.99999999999999999999999999 B", 1),
            ("9223372036854775807", i64::MAX as u64),
            ("8388607 TiB", 8_388_607 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_distinguished() {
        let unit = |unit: &str| SizeError::Unit(unit.into());
        for (text, problem) in [
            ("", SizeError::NoNumber),
            ("GiB", SizeError::NoNumber),
            ("-5 GiB", SizeError::NoNumber),
            ("1e9", unit("e9")),
            ("1. GiB", SizeError::NoNumber),
            (".5 GiB", SizeError::NoNumber),
            ("1.2.3 GiB", SizeError::NoNumber),
            ("5 G", unit("G")),
            ("5 Gbit", unit("Gbit")),
            ("1 mile", unit("mile")),
            ("9999999 TiB", SizeError::TooLarge),
            ("8388608 TiB", SizeError::TooLarge),
            ("99999999999999 GiB", SizeError::TooLarge),
            ("99999999999999999999999999", SizeError::TooLarge),
            ("9223372036854775808", SizeError::TooLarge),
            ("18446744073709551615.9 B", SizeError::TooLarge),
        ] {
            assert_eq!(parse_bytes(text), Err(problem), "{text}");
        }
    }
}
