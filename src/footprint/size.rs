//! Numbers of bytes as users write them.

use std::fmt;

use serde::de::{self, Deserializer, Unexpected, Visitor};

/// Reads a number of bytes: an integer, or a text such as `"512 MiB"`.
pub fn byte_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(ByteSize)
}

/// The same, where none is a number too.
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
        parse_bytes(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// The number of bytes of a text: digits, and `B`, `KiB`, `MiB` or `GiB`.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn bytes_may_have_a_unit() {
        assert_eq!(parse_bytes("512 MiB"), Some(512 << 20));
        assert_eq!(parse_bytes("7"), Some(7));
        assert_eq!(parse_bytes("1.5 GiB"), None);
        assert_eq!(parse_bytes("99999999999999 GiB"), None);
    }
}
