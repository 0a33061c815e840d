//! Reader of the fields of a protocol buffer message. It copies no values.

use std::ops::Range;

use super::{FileError, Window};

/// The fields of a message that have not been read yet.
pub struct Fields<'a> {
    rest: Range<u64>,
    /// Error message for bytes that are not a valid message.
    otherwise: &'a str,
}

/// Value of a field.
pub enum Value {
    Number(u64),
    Bytes(Range<u64>),
    /// Value of 4 or 8 bytes, usually a float.
    Fixed(Range<u64>),
}

impl<'a> Fields<'a> {
    /// Creates a reader for the message in this byte range of the file.
    pub fn of(message: Range<u64>, otherwise: &'a str) -> Self {
        Self { rest: message, otherwise }
    }

    /// Whether all fields have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number and value of the next field, or `None` at the end of the message.
    pub fn next(&mut self, window: &mut Window) -> Result<Option<(u64, Value)>, FileError> {
        if self.is_empty() {
            return Ok(None);
        }
        let start = self.rest.start;
        let tag = self.number(window)?;
        let value = match tag & 7 {
            0 => Value::Number(self.number(window)?),
            1 => Value::Fixed(self.skip(8)?),
            2 => {
                let len = self.number(window)?;
                Value::Bytes(self.skip(len)?)
            }
            5 => Value::Fixed(self.skip(4)?),
            _ => return Err(self.no_message(start)),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// Reads a variable-length integer.
    pub fn number(&mut self, window: &mut Window) -> Result<u64, FileError> {
        let start = self.rest.start;
        let bytes = window.at(start, (self.rest.end - start).min(10))?;
        let mut value = 0;
        for (place, &byte) in bytes.iter().enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.rest.start += place as u64 + 1;
                return Ok(value);
            }
        }
        Err(self.no_message(start))
    }

    fn skip(&mut self, len: u64) -> Result<Range<u64>, FileError> {
        let start = self.rest.start;
        let end = start.checked_add(len).filter(|&end| end <= self.rest.end);
        let end = end.ok_or_else(|| self.no_message(start))?;
        self.rest.start = end;
        Ok(start..end)
    }

    fn no_message(&self, offset: u64) -> FileError {
        FileError::new(offset, self.otherwise)
    }
}
