//! Types of the elements of arrays.

use half::f16;

/// Size of a character of a text in bytes.
pub const CHARACTER_BYTES: u64 = 4;

/// Type of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// NumPy's letter for the kind of type, such as `u`, `i`, `f`, `b`.
    pub kind: u8,
    /// Size in bytes. NumPy counts the characters of a text (`U`), which have 4 bytes each.
    pub bytes: u64,
    /// Whether the byte order is big-endian. False for single bytes.
    pub big_endian: bool,
}

impl Item {
    /// Formats the type like NumPy, such as `<f4`.
    pub fn words(self) -> String {
        let order = match (self.bytes, self.big_endian) {
            (0 | 1, _) => '|',
            (_, true) => '>',
            _ => '<',
        };
        let size = if self.kind == b'U' { self.bytes / CHARACTER_BYTES } else { self.bytes };
        format!("{order}{}{size}", char::from(self.kind))
    }

    /// Parses NumPy's name of a type, such as `<f4`.
    pub fn parse(descr: &[u8]) -> Option<Self> {
        let (order, rest) = descr.split_first()?;
        let (&kind, digits) = rest.split_first()?;
        let big_endian = match order {
            b'<' | b'|' => false,
            b'>' => true,
            _ => return None,
        };
        let digits = std::str::from_utf8(digits).ok()?;
        let plain = kind.is_ascii_alphabetic() && digits.bytes().all(|it| it.is_ascii_digit());
        let bytes: u64 = digits.parse::<u32>().ok()?.into();
        let bytes = if kind == b'U' { CHARACTER_BYTES * bytes } else { bytes };
        plain.then_some(Self { kind, bytes, big_endian: big_endian && bytes > 1 })
    }

    /// Whether the elements are booleans, integers of up to 64 bits, or floats of 16, 32 or 64
    /// bits.
    pub fn is_number(self) -> bool {
        matches!(
            (self.kind, self.bytes),
            (b'b', 1) | (b'i' | b'u', 1 | 2 | 4 | 8) | (b'f', 2 | 4 | 8)
        )
    }

    /// The integer `stored`. Panics unless it has the size of a number.
    pub fn integer(self, stored: &[u8]) -> i128 {
        let mut bytes = [0; 8];
        let stored = self.little_endian(stored, &mut bytes);
        let bits = i64::from_le_bytes(bytes);
        match (self.kind, stored) {
            (b'b', _) => (bits != 0).into(),
            // The sign bit moves to the highest bit, and back.
            (b'i', len) => (bits << (64 - 8 * len) >> (64 - 8 * len)).into(),
            _ => (bits as u64).into(),
        }
    }

    /// The float `stored` of 16 or 32 bits. Panics unless it has this size.
    pub fn float(self, stored: &[u8]) -> f32 {
        let mut bytes = [0; 4];
        match self.little_endian(stored, &mut bytes) {
            2 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            _ => f32::from_le_bytes(bytes),
        }
    }

    /// The float `stored` of 64 bits. Panics unless it has this size.
    pub fn double(self, stored: &[u8]) -> f64 {
        let mut bytes = [0; 8];
        self.little_endian(stored, &mut bytes);
        f64::from_le_bytes(bytes)
    }

    /// Copies an element to the start of `to`, in little-endian order. Returns its size in bytes.
    fn little_endian(self, stored: &[u8], to: &mut [u8]) -> usize {
        let to = &mut to[..stored.len()];
        to.copy_from_slice(stored);
        if self.big_endian {
            to.reverse();
        }
        to.len()
    }
}
