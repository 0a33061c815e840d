//! The header of a PNG: the size in IHDR, the orientation in eXIf or XMP.

use super::exif::Metadata;
use super::{Format, Header, be32, corrupt, truncated};
use crate::error::Fault;
use crate::geometry::Size;

/// Largest side that the format allows.
const MAX_SIDE: u32 = i32::MAX as u32;

pub(super) fn parse(bytes: &[u8]) -> Result<Header, Fault> {
    let (Some(length), Some(width), Some(height)) =
        (be32(bytes, 8), be32(bytes, 16), be32(bytes, 20))
    else {
        return Err(truncated("its IHDR chunk"));
    };
    if length != 13 || &bytes[12..16] != b"IHDR" {
        return Err(corrupt("the first chunk is not a 13-byte IHDR"));
    }
    if bytes.len() < 33 {
        return Err(truncated("its IHDR chunk"));
    }
    let size = Size::new(width, height);
    if width == 0 || height == 0 || width > MAX_SIDE || height > MAX_SIDE {
        return Err(corrupt(format!(
            "the IHDR chunk says {size}, the format allows 1 to {MAX_SIDE}"
        )));
    }
    let mut metadata = Metadata::default();
    for (kind, data) in (Chunks { rest: &bytes[33..] }) {
        match kind {
            b"eXIf" => metadata.add_exif(data),
            b"iTXt" if data.starts_with(b"XML:com.adobe.xmp\0") => metadata.add_xmp(data),
            _ => {}
        }
    }
    Ok(Header { format: Format::Png, size, orientation: metadata.orientation(), jpeg: None })
}

/// The chunks that are whole; also those after the pixels, since Pillow honours an eXIf there.
struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = be32(self.rest, 0)? as usize;
        let kind = self.rest.get(4..8)?.try_into().ok()?;
        let data = self.rest.get(8..8usize.checked_add(length)?)?;
        self.rest = self.rest.get(12 + length..).unwrap_or_default();
        Some((kind, data))
    }
}
