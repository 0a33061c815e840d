//! Limits on the texts, numbers and lists in a COCO file. They bound the memory that a malicious
//! file can use.

use std::fmt;
use std::io::{self, ErrorKind};

use memchr::{memchr, memchr2};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};

use super::loose::Loose;

/// Longest text or number in bytes. The run lengths of the largest mask are shorter.
const MOST_TOKEN_BYTES: usize = 4 << 20;
/// Largest count of numbers in an outline.
pub const MOST_NUMBERS: usize = 1 << 22;

/// Measures the length of the current text or number in a JSON stream.
#[derive(Default)]
pub struct Tokens {
    in_text: bool,
    /// Whether the previous byte was a backslash, which escapes the next byte.
    escaped: bool,
    bytes: usize,
}

impl Tokens {
    /// Scans the next bytes of the stream.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidData`] if a text or number is too long. The JSON parser would buffer it
    /// completely.
    pub fn pass(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some(&first) = bytes.first() {
            let mut passed = 1;
            if self.escaped {
                self.escaped = false;
            } else if self.in_text {
                match memchr2(b'"', b'\\', bytes) {
                    Some(0) if first == b'"' => self.in_text = false,
                    Some(0) => self.escaped = true,
                    end => passed = end.unwrap_or(bytes.len()),
                }
            } else if first == b'"' {
                (self.in_text, self.bytes) = (true, 0);
            } else {
                let end = memchr(b'"', bytes).unwrap_or(bytes.len());
                let is_between = |byte: &u8| b" \t\r\n,:[]{}".contains(byte);
                passed = bytes[..end].iter().position(is_between).unwrap_or(end);
                if let Some(last) = bytes[..end].iter().rposition(is_between) {
                    // Separators end tokens. The tokens between the first and the last separator
                    // lie completely in `bytes`, which is shorter than the limit, so none of them
                    // is too long.
                    self.grow(passed)?;
                    (self.bytes, passed) = (0, 0);
                    bytes = &bytes[last + 1..];
                }
            }
            self.grow(passed)?;
            bytes = &bytes[passed..];
        }
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> io::Result<()> {
        self.bytes += bytes;
        if self.bytes > MOST_TOKEN_BYTES {
            let problem = format!(
                "the file has a string or number of more than {MOST_TOKEN_BYTES} bytes, which is \
                 the maximum"
            );
            return Err(io::Error::new(ErrorKind::InvalidData, problem));
        }
        Ok(())
    }
}

/// Values of a `bbox`: the first four numbers, the total number of values, and the first value that
/// is not a number.
pub struct Corners {
    pub numbers: [f64; 4],
    pub count: usize,
    pub wrong: Option<Loose>,
}

/// List of at most [`MOST_NUMBERS`] numbers.
pub struct List<T>(pub Vec<T>);

/// Message for a list that is too long.
pub fn too_many() -> String {
    format!("an outline has more than {MOST_NUMBERS} numbers, which is the maximum")
}

impl<'de> Deserialize<'de> for Corners {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(CornersVisitor)
    }
}

struct CornersVisitor;

impl<'de> Visitor<'de> for CornersVisitor {
    type Value = Corners;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("four numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Corners, A::Error> {
        let mut corners = Corners { numbers: [0.0; 4], count: 0, wrong: None };
        while corners.count < 4
            && let Some(value) = seq.next_element::<Loose>()?
        {
            match value.float() {
                Some(number) => corners.numbers[corners.count] = number,
                None => _ = corners.wrong.get_or_insert(value),
            }
            corners.count += 1;
        }
        while corners.count >= 4 && seq.next_element::<IgnoredAny>()?.is_some() {
            corners.count += 1;
        }
        Ok(corners)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListVisitor(Vec::new()))
    }
}

struct ListVisitor<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<List<T>, A::Error> {
        while let Some(number) = seq.next_element()? {
            if self.0.len() == MOST_NUMBERS {
                return Err(A::Error::custom(too_many()));
            }
            self.0.push(number);
        }
        Ok(List(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(parts: &[&[u8]]) -> io::Result<usize> {
        let mut tokens = Tokens::default();
        parts.iter().try_for_each(|part| tokens.pass(part))?;
        Ok(tokens.bytes)
    }

    #[test]
    fn only_too_long_texts_and_numbers_are_rejected_however_they_are_split() {
        let long = vec![b'1'; MOST_TOKEN_BYTES];
        let short = vec![b'1'; 100];
        assert!(pass(&[&b"[".repeat(MOST_TOKEN_BYTES * 2)]).is_ok());
        assert!(pass(&[b"[", &[&short[..], b", "].concat().repeat(100_000), b"\"a\""]).is_ok());
        assert!(pass(&[b"{\"a\\", b"\"", &long, b"1\""]).is_err(), "the quote is escaped");
        assert!(pass(&[b"{\"a\\\\\"", b":", &short]).is_ok());
        for (before, after) in
            [(&b"["[..], &b"11]"[..]), (b"[\"", b"1\"]"), (b"[3, \"a\", -", b"1")]
        {
            assert_eq!(pass(&[before, &long, after]).unwrap_err().kind(), ErrorKind::InvalidData);
            assert!(pass(&[before, &short, after, b","]).unwrap() < 110);
        }
    }
}
