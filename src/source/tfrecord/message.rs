//! Reader of a protocol buffer message in memory.

/// Reader of the fields of a message in memory. Copies no values.
#[derive(Clone, Copy)]
pub struct Message<'a>(pub &'a [u8]);

/// Value of a field of a message in memory.
pub enum Item<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed(&'a [u8]),
}

/// Bytes that are not a valid message.
#[derive(Debug)]
pub struct Malformed;

impl<'a> Message<'a> {
    /// Returns the number and value of the next field, or `None` at the end of the message.
    pub fn next(&mut self) -> Result<Option<(u64, Item<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let item = match tag & 7 {
            0 => Item::Number(self.number()?),
            1 => Item::Fixed(self.take(8)?),
            2 => {
                let len = self.number()?;
                Item::Bytes(self.take(len)?)
            }
            5 => Item::Fixed(self.take(4)?),
            _ => return Err(Malformed),
        };
        Ok(Some((tag >> 3, item)))
    }

    /// Reads a variable-length integer.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (place, &byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}
