//! Orientation in EXIF and XMP data, with the behaviour of Pillow 12.
//!
//! Only the first directory (IFD0) is read, and each entry once. Offsets to other directories are
//! not followed, so a directory that points to itself cannot cause a loop.

use crate::geometry::Orientation;

const ORIENTATION: u16 = 0x0112;

/// Number of bytes before the directory.
const HEAD_BYTES: usize = 8;
/// Size of a directory entry in bytes.
const ENTRY_BYTES: usize = 12;
/// Maximum number of EXIF segments that are read: 1 MiB of data. Pillow has no limit.
const MOST_PARTS: usize = 16;

/// Orientation in the metadata of one image. The EXIF tag takes precedence over XMP.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Metadata {
    exif: Option<u16>,
    xmp: Option<u16>,
}

impl Metadata {
    /// Sets the EXIF data, with or without `Exif\0\0` prefixes.
    pub(super) fn set_exif(&mut self, data: &Joined<'_>) {
        self.exif = exif_orientation(data);
    }

    /// Sets the XMP packet. A packet replaces an earlier one, even if it has no orientation.
    pub(super) fn set_xmp(&mut self, text: &[u8]) {
        self.xmp = xmp_orientation(text);
    }

    /// Returns the resulting orientation.
    pub(super) fn orientation(self) -> Orientation {
        self.exif.or(self.xmp).map_or(Orientation::UPRIGHT, Orientation::from_exif)
    }
}

/// Data that is divided among several segments of a JPEG.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Joined<'a> {
    parts: [&'a [u8]; MOST_PARTS],
    count: usize,
    /// Number of bytes that are skipped at the beginning of the joined data.
    skipped: usize,
    len: usize,
}

impl<'a> Joined<'a> {
    /// Adds a segment.
    pub(super) fn push(&mut self, part: &'a [u8]) {
        if let Some(place) = self.parts.get_mut(self.count) {
            *place = part;
            self.count += 1;
            self.len += part.len();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the `N` bytes at a position.
    fn read<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if at.checked_add(N)? > self.len {
            return None;
        }
        let mut at = at + self.skipped;
        let mut bytes = [0; N];
        let mut filled = 0;
        for part in &self.parts[..self.count] {
            if let Some(rest) = part.get(at..) {
                let len = rest.len().min(N - filled);
                bytes[filled..filled + len].copy_from_slice(&rest[..len]);
                filled += len;
            }
            at = at.saturating_sub(part.len());
        }
        Some(bytes)
    }

    /// Removes `prefix` from the beginning. Returns whether the data began with it.
    fn strip<const N: usize>(&mut self, prefix: &[u8; N]) -> bool {
        let is_there = self.read::<N>(0).as_ref() == Some(prefix);
        if is_there {
            self.skipped += N;
            self.len -= N;
        }
        is_there
    }
}

impl<'a> From<&'a [u8]> for Joined<'a> {
    fn from(data: &'a [u8]) -> Self {
        let mut joined = Self::default();
        joined.push(data);
        joined
    }
}

/// Returns the value of the orientation tag in EXIF data, or `None` without the tag. Returns 0 (no
/// rotation) if the tag is not a number from 1 to 8, or if the data does not begin like a TIFF. In
/// both cases, Pillow ignores the orientation in XMP.
fn exif_orientation(data: &Joined<'_>) -> Option<u16> {
    let mut data = *data;
    while data.strip(b"Exif\0\0") {}
    if data.is_empty() {
        return None;
    }
    // Pillow also accepts the magic number 42 in the wrong byte order. It cannot read EXIF data
    // that is a little-endian BigTIFF, and it reads a big-endian BigTIFF like a TIFF.
    let little = match data.read::<HEAD_BYTES>(0) {
        Some([b'I', b'I', b'*', 0, ..] | [b'I', b'I', 0, b'*', ..]) => true,
        Some([b'M', b'M', 0, b'*' | b'+', ..] | [b'M', b'M', b'*', 0, ..]) => false,
        _ => return Some(0),
    };
    directory_orientation(&data, Order { little })
}

/// Returns the orientation tag of the directory. As in Pillow, numbers of all types are accepted.
/// If the tag has several values, the first is used. If there are several such tags, the last is
/// used.
fn directory_orientation(data: &Joined<'_>, order: Order) -> Option<u16> {
    let directory = order.u32(data.read(4)?) as usize;
    let entries = order.u16(data.read(directory)?);
    let mut found = None;
    for index in 0..usize::from(entries) {
        let at = directory + 2 + ENTRY_BYTES * index;
        let Some([t0, t1, k0, k1, c0, c1, c2, c3, value @ ..]) = data.read::<ENTRY_BYTES>(at)
        else {
            break;
        };
        let Some(kind) = Kind::of(order.u16([k0, k1])) else { continue };
        let size = kind.bytes() * u64::from(order.u32([c0, c1, c2, c3]));
        let start = if size > 4 { order.u32(value) as usize } else { at + 8 };
        // Pillow stops reading at a value that lies beyond the data, whatever its tag.
        if start as u64 + size > data.len as u64 {
            break;
        }
        if order.u16([t0, t1]) == ORIENTATION && size > 0 {
            found = Some((kind, start));
        }
    }
    found.map(|(kind, start)| {
        let number = kind.number(data, start, order).unwrap_or(0.0);
        (1..=8).find(|&value| f64::from(value) == number).unwrap_or(0)
    })
}

/// Types of values: those of TIFF 6.0, "Image File Directory", and those of its supplements that
/// Pillow supports.
#[derive(Clone, Copy)]
enum Kind {
    /// Bytes or text, which Pillow does not convert to a number.
    Bytes,
    Unsigned(u8),
    Signed(u8),
    Rational,
    SignedRational,
    Float,
    Double,
}

impl Kind {
    fn of(kind: u16) -> Option<Self> {
        Some(match kind {
            1 | 2 | 7 => Self::Bytes,
            3 => Self::Unsigned(2),
            4 | 13 => Self::Unsigned(4),
            5 => Self::Rational,
            6 => Self::Signed(1),
            8 => Self::Signed(2),
            9 => Self::Signed(4),
            10 => Self::SignedRational,
            11 => Self::Float,
            12 => Self::Double,
            16 => Self::Unsigned(8),
            _ => return None,
        })
    }

    /// Size of a value in bytes.
    fn bytes(self) -> u64 {
        match self {
            Self::Bytes => 1,
            Self::Unsigned(bytes) | Self::Signed(bytes) => bytes.into(),
            Self::Float => 4,
            Self::Rational | Self::SignedRational | Self::Double => 8,
        }
    }

    /// Returns the value at a position, if the type is a number. The result is exact for every
    /// value that is a valid orientation.
    fn number(self, data: &Joined<'_>, at: usize, order: Order) -> Option<f64> {
        let quotient = |signed: bool| {
            let [above, below] = [at, at + 4].map(|at| data.read(at).map(|it| order.u32(it)));
            let number = |it: u32| if signed { f64::from(it as i32) } else { f64::from(it) };
            Some(number(above?) / number(below?))
        };
        Some(match self {
            Self::Bytes => return None,
            Self::Unsigned(2) => order.u16(data.read(at)?).into(),
            Self::Unsigned(4) => order.u32(data.read(at)?).into(),
            Self::Unsigned(_) => order.u64(data.read(at)?) as f64,
            Self::Signed(1) => i8::from_be_bytes(data.read(at)?).into(),
            Self::Signed(2) => (order.u16(data.read(at)?) as i16).into(),
            Self::Signed(_) => (order.u32(data.read(at)?) as i32).into(),
            Self::Rational => quotient(false)?,
            Self::SignedRational => quotient(true)?,
            Self::Float => f32::from_bits(order.u32(data.read(at)?)).into(),
            Self::Double => f64::from_bits(order.u64(data.read(at)?)),
        })
    }
}

/// Byte order of numbers.
#[derive(Clone, Copy)]
struct Order {
    little: bool,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        if self.little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        if self.little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) }
    }
}

/// Returns the digit after the first `tiff:Orientation="` or `tiff:Orientation>` that is followed
/// by a digit.
fn xmp_orientation(text: &[u8]) -> Option<u16> {
    const NAME: &[u8] = b"tiff:Orientation";
    text.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME).find_map(
        |(at, _)| {
            let rest = &text[at + NAME.len()..];
            let rest = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?;
            rest.first().filter(|byte| byte.is_ascii_digit()).map(|byte| u16::from(byte - b'0'))
        },
    )
}
