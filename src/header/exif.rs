//! The orientation in EXIF and XMP data, read as Pillow 12 reads it.
//!
//! Only the first directory (IFD0) is read and no offset in it is followed except the one that leads to it, so a
//! directory that points at itself cannot make a loop.

use crate::geometry::Orientation;

const ORIENTATION: u16 = 0x0112;
const SHORT: u16 = 3;
const LONG: u16 = 4;

/// The orientation that the metadata of one picture asks for; the tag in EXIF wins over the one in XMP.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Metadata {
    exif: Option<u16>,
    xmp: Option<u16>,
}

impl Metadata {
    /// Takes a block of EXIF data, with or without its `Exif\0\0` in front. The first block with the tag counts.
    pub(super) fn add_exif(&mut self, data: &[u8]) {
        let tiff = data.strip_prefix(b"Exif\0\0").unwrap_or(data);
        self.exif = self.exif.or_else(|| tiff_orientation(tiff));
    }

    /// Takes a packet of XMP text.
    pub(super) fn add_xmp(&mut self, text: &[u8]) {
        self.xmp = self.xmp.or_else(|| xmp_orientation(text));
    }

    /// What both together ask for.
    pub(super) fn orientation(self) -> Orientation {
        self.exif.or(self.xmp).map_or(Orientation::UPRIGHT, Orientation::from_exif)
    }
}

/// The value of the orientation tag: one SHORT or LONG in IFD0. Of two such tags the later one counts.
fn tiff_orientation(tiff: &[u8]) -> Option<u16> {
    let little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let u16_at = |at: usize| -> Option<u16> {
        let pair: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) })
    };
    let u32_at = |at: usize| -> Option<u32> {
        let four: [u8; 4] = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) })
    };
    let directory = u32_at(4)? as usize;
    let entries = u16_at(directory)?;
    let mut found = None;
    for index in 0..usize::from(entries) {
        let Some(entry) = directory.checked_add(2 + 12 * index) else { break };
        let Some(count) = u32_at(entry.saturating_add(4)) else { break };
        if u16_at(entry) != Some(ORIENTATION) || count != 1 {
            continue;
        }
        match u16_at(entry + 2) {
            Some(SHORT) => found = u16_at(entry + 8).or(found),
            Some(LONG) => {
                found = u32_at(entry + 8).map(|v| v.min(u16::MAX.into()) as u16).or(found)
            }
            _ => {}
        }
    }
    found
}

/// The digit after the first `tiff:Orientation="` or `tiff:Orientation>` that is followed by one.
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
