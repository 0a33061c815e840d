//! Reader of Thrift's compact protocol (`doc/specs/thrift-compact-protocol.md`), which encodes
//! Parquet metadata. Unknown fields are skipped. A list of a damaged file may announce too many
//! elements, so no memory is allocated for the announced number. Every element of a list takes at
//! least one byte, so reading fails at the end of the bytes.

/// Deepest nesting of structs and lists.
const DEPTH: u32 = 32;

/// Malformed metadata, with the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub at: usize,
    /// Whether the bytes end too early, so that reading more bytes may help.
    pub cut: bool,
}

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Boolean. The type of a field contains the value, so a boolean field takes no further bytes.
    Bool(bool),
    Byte,
    /// Integer of 16, 32 or 64 bits, which all have the same encoding.
    Integer,
    Double,
    Binary,
    /// List or set.
    List,
    Map,
    Struct,
    Uuid,
}

/// Reader over bytes of metadata.
pub struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Thrift<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Number of bytes read so far.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Reads a struct. `field` is called with the ID and type of each field. It must read the
    /// field, or return `false` to skip it.
    pub fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, i64, Kind) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        let mut id = 0;
        loop {
            let at = self.at;
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            id = match head >> 4 {
                0 => self.integer()?,
                more => id + i64::from(more),
            };
            if !(0..=i64::from(i16::MAX)).contains(&id) {
                return Err(Malformed { at, cut: false });
            }
            let kind = kind(head & 15).ok_or(Malformed { at, cut: false })?;
            if !field(self, id, kind)? {
                self.skip(kind, 0)?;
            }
        }
    }

    /// Reads the header of a list. Returns the type and the number of elements, which may exceed
    /// the number that the bytes contain.
    pub fn list(&mut self) -> Result<(Kind, u64), Malformed> {
        let at = self.at;
        let head = self.byte()?;
        let kind = kind(head & 15).ok_or(Malformed { at, cut: false })?;
        let len = match head >> 4 {
            15 => self.varint()?,
            len => len.into(),
        };
        Ok((kind, len))
    }

    pub fn integer(&mut self) -> Result<i64, Malformed> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let taken = taken.ok_or(Malformed { at: self.at, cut: true })?;
        self.at += taken.len();
        Ok(taken)
    }

    /// Skips a value of type `kind`.
    pub fn skip(&mut self, kind: Kind, depth: u32) -> Result<(), Malformed> {
        if depth == DEPTH {
            return Err(Malformed { at: self.at, cut: false });
        }
        match kind {
            Kind::Bool(_) => Ok(()),
            Kind::Byte => self.byte().map(drop),
            Kind::Integer => self.varint().map(drop),
            Kind::Double => self.pass(8),
            Kind::Uuid => self.pass(16),
            Kind::Binary => self.binary().map(drop),
            Kind::Struct => self.skip_struct(depth),
            Kind::List => {
                let (kind, len) = self.list()?;
                (0..len).try_for_each(|_| self.skip_element(kind, depth + 1))
            }
            Kind::Map => {
                let len = self.varint()?;
                if len == 0 {
                    return Ok(());
                }
                let at = self.at;
                let kinds = self.byte()?;
                let bad = Malformed { at, cut: false };
                let (key, value) = (kind_of(kinds >> 4, bad)?, kind_of(kinds & 15, bad)?);
                (0..len).try_for_each(|_| {
                    self.skip_element(key, depth + 1)?;
                    self.skip_element(value, depth + 1)
                })
            }
        }
    }

    fn skip_struct(&mut self, depth: u32) -> Result<(), Malformed> {
        self.fields(|this, _, kind| this.skip(kind, depth + 1).map(|()| true))
    }

    /// Skips an element of a list. Unlike in a field, a boolean takes one byte.
    fn skip_element(&mut self, kind: Kind, depth: u32) -> Result<(), Malformed> {
        match kind {
            Kind::Bool(_) => self.byte().map(drop),
            kind => self.skip(kind, depth),
        }
    }

    fn pass(&mut self, count: usize) -> Result<(), Malformed> {
        if self.bytes.len() - self.at < count {
            return Err(Malformed { at: self.at, cut: true });
        }
        self.at += count;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(Malformed { at: self.at, cut: true })?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        varint(self.bytes, &mut self.at)
    }
}

/// Reads a variable-length integer: seven bits per byte, lowest bits first.
pub fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    let start = *at;
    let mut value = 0;
    for place in 0..10 {
        let byte = *bytes.get(*at).ok_or(Malformed { at: start, cut: true })?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed { at: start, cut: false })
}

fn kind_of(number: u8, bad: Malformed) -> Result<Kind, Malformed> {
    kind(number).ok_or(bad)
}

fn kind(number: u8) -> Option<Kind> {
    Some(match number {
        1 => Kind::Bool(true),
        2 => Kind::Bool(false),
        3 => Kind::Byte,
        4..=6 => Kind::Integer,
        7 => Kind::Double,
        8 => Kind::Binary,
        9 | 10 => Kind::List,
        11 => Kind::Map,
        12 => Kind::Struct,
        13 => Kind::Uuid,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_skipped() {
        // Field 1: true, 2: list of 2 bytes, 3: map of one integer to a binary, 4: struct, 20:
        // integer -3.
        let bytes = [
            0x11, 0x19, 0x23, 7, 8, 0x1b, 1, 0x58, 4, 2, b'a', b'b', 0x1c, 0x13, 9, 0, 5, 40, 5, 0,
            99,
        ];
        let mut thrift = Thrift::new(&bytes);
        let mut found = Vec::new();
        thrift
            .fields(|thrift, id, kind| {
                found.push((id, kind));
                Ok(id == 20 && thrift.integer()? == -3)
            })
            .unwrap();
        assert_eq!(thrift.at(), bytes.len() - 1);
        let kinds = [Kind::Bool(true), Kind::List, Kind::Map, Kind::Struct, Kind::Integer];
        assert_eq!(found, [1, 2, 3, 4, 20].into_iter().zip(kinds).collect::<Vec<_>>());
        for len in 0..bytes.len() - 1 {
            let cut = Thrift::new(&bytes[..len]).fields(|_, _, _| Ok(false));
            assert!(cut.unwrap_err().cut, "{len}");
        }
    }

    #[test]
    fn malicious_nesting_and_counts_are_bounded() {
        // Invalid metadata: lists nested in lists, structs nested in structs, and a list that
        // announces 2^63 structs but contains ten.
        for bytes in [&[0x19; 100_000][..], &[0x1c; 100_000]] {
            let bad = Thrift::new(bytes).fields(|_, _, _| Ok(false)).unwrap_err();
            assert!(!bad.cut && bad.at < 100);
        }
        let head = [0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        let bad = Thrift::new(&[&head[..], &[0; 10]].concat()).fields(|_, _, _| Ok(false));
        assert_eq!(bad, Err(Malformed { at: 21, cut: true }));
    }
}
