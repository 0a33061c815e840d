//! Orientation in EXIF and XMP data, read as Pillow 12 reads it.
//!
//! Only the first directory (IFD0) is read, each entry once. No offset to another directory is followed, so a
//! directory that points at itself cannot cause a loop.

use crate::geometry::Orientation;

const ORIENTATION: u16 = 0x0112;

/// Orientation in the metadata of one image. The EXIF tag takes precedence over XMP.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Metadata {
    exif: Option<u16>,
    xmp: Option<u16>,
}

impl Metadata {
    /// Adds a block of EXIF data, with or without the prefix `Exif\0\0`. The first block with the tag counts.
    pub(super) fn add_exif(&mut self, data: &[u8]) {
        let tiff = data.strip_prefix(b"Exif\0\0").unwrap_or(data);
        self.exif = self.exif.or_else(|| tiff_orientation(tiff));
    }

    /// Adds a packet of XMP text.
    pub(super) fn add_xmp(&mut self, text: &[u8]) {
        self.xmp = self.xmp.or_else(|| xmp_orientation(text));
    }

    /// Resulting orientation.
    pub(super) fn orientation(self) -> Orientation {
        self.exif.or(self.xmp).map_or(Orientation::UPRIGHT, Orientation::from_exif)
    }
}

/// Value of the orientation tag in IFD0; 0 if it exists but is not an integer from 1 to 8.
///
/// As in Pillow any integer type is accepted, of several values the first counts, and of several such tags the last.
fn tiff_orientation(tiff: &[u8]) -> Option<u16> {
    let little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    // The integer of `len` bytes at a position.
    let integer = |at: usize, len: usize| -> Option<u32> {
        let bytes = tiff.get(at..at.checked_add(len)?)?.iter();
        let append = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
        Some(if little { bytes.rev().fold(0, append) } else { bytes.fold(0, append) })
    };
    let directory = integer(4, 4)? as usize;
    let entries = integer(directory, 2)? as usize;
    let mut found = None;
    for index in 0..entries {
        let at = directory + 2 + 12 * index;
        let (Some(tag), Some(kind)) = (integer(at, 2), integer(at + 2, 2)) else { break };
        let (Some(count), Some(offset)) = (integer(at + 4, 4), integer(at + 8, 4)) else { break };
        // TIFF 6.0, "Image File Directory"; the flag says whether the type is an integer.
        let (bytes, is_integer) = match kind {
            1 | 2 | 7 => (1, false),
            6 => (1, true),
            3 | 8 => (2, true),
            4 | 9 | 13 => (4, true),
            11 => (4, false),
            5 | 10 | 12 => (8, false),
            _ => continue,
        };
        if tag != u32::from(ORIENTATION) || count == 0 {
            continue;
        }
        let size = bytes as u64 * u64::from(count);
        let start = if size > 4 { offset as usize } else { at + 8 };
        // Pillow stops reading at values beyond the data.
        if start as u64 + size > tiff.len() as u64 {
            break;
        }
        let value = integer(start, bytes).filter(|value| is_integer && *value <= 8);
        found = Some(value.unwrap_or(0) as u16);
    }
    found
}

/// Digit after the first `tiff:Orientation="` or `tiff:Orientation>` that is followed by one.
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
