//! The header of a WebP: the size in VP8, VP8L or VP8X, the orientation in EXIF or XMP.

use super::exif::Metadata;
use super::{Format, Header, corrupt, le32, truncated};
use crate::error::Fault;
use crate::geometry::Size;

pub(super) fn parse(bytes: &[u8]) -> Result<Header, Fault> {
    let (Some(riff), Some(kind)) = (le32(bytes, 4), bytes.get(12..16)) else {
        return Err(truncated("its first chunk"));
    };
    let claimed = u64::from(riff) + 8;
    if claimed > bytes.len() as u64 {
        let problem = format!("the picture; it claims {claimed} bytes and has {}", bytes.len());
        return Err(truncated(&problem));
    }
    let data = bytes.get(20..).unwrap_or_default();
    let size = match kind {
        b"VP8 " => lossy_size(data)?,
        b"VP8L" => lossless_size(data)?,
        b"VP8X" => canvas_size(data)?,
        _ => return Err(corrupt("the first chunk is neither VP8, VP8L nor VP8X")),
    };
    if size.width == 0 || size.height == 0 {
        return Err(corrupt(format!("the header says {size}")));
    }
    let mut metadata = Metadata::default();
    if kind == b"VP8X" {
        let mut animated = false;
        for (kind, data) in (Chunks { rest: &bytes[12..] }) {
            match kind {
                b"VP8 " => check_inside(size, lossy_size(data)?)?,
                b"VP8L" => check_inside(size, lossless_size(data)?)?,
                b"ANMF" if !animated => {
                    animated = true;
                    check_first_frame(size, data.get(16..).unwrap_or_default())?;
                }
                b"EXIF" => metadata.add_exif(data),
                b"XMP " => metadata.add_xmp(data),
                _ => {}
            }
        }
    }
    Ok(Header { format: Format::WebP, size, orientation: metadata.orientation(), jpeg: None })
}

/// Refuses pixels that are larger than the canvas, since limits are checked on the canvas.
fn check_inside(canvas: Size, pixels: Size) -> Result<(), Fault> {
    if pixels.width > canvas.width || pixels.height > canvas.height {
        return Err(corrupt(format!("a frame of {pixels} pixels on a canvas of {canvas}")));
    }
    Ok(())
}

fn check_first_frame(canvas: Size, frame: &[u8]) -> Result<(), Fault> {
    for (kind, data) in (Chunks { rest: frame }) {
        match kind {
            b"VP8 " => check_inside(canvas, lossy_size(data)?)?,
            b"VP8L" => check_inside(canvas, lossless_size(data)?)?,
            _ => {}
        }
    }
    Ok(())
}

/// RFC 6386, section 9.1: a key frame's tag, start code and two 14-bit sides.
fn lossy_size(data: &[u8]) -> Result<Size, Fault> {
    let head = data.get(..10).ok_or_else(|| truncated("its VP8 frame header"))?;
    if head[0] & 1 != 0 || head[3..6] != [0x9D, 0x01, 0x2A] {
        return Err(corrupt("the VP8 chunk does not start with a key frame"));
    }
    let side = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]) & 0x3FFF);
    Ok(Size::new(side(6), side(8)))
}

/// WebP lossless bitstream, section 3: a signature byte and two 14-bit sides less one.
fn lossless_size(data: &[u8]) -> Result<Size, Fault> {
    let (Some(signature), Some(bits)) = (data.first(), le32(data, 1)) else {
        return Err(truncated("its VP8L header"));
    };
    if *signature != 0x2F {
        return Err(corrupt("the VP8L chunk does not start with its signature"));
    }
    Ok(Size::new((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
}

/// WebP container, "Extended File Format": flags, then two 24-bit sides less one.
fn canvas_size(data: &[u8]) -> Result<Size, Fault> {
    let head = data.get(..10).ok_or_else(|| truncated("its VP8X chunk"))?;
    let side = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], 0]) + 1;
    Ok(Size::new(side(4), side(7)))
}

/// The chunks that are whole.
struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.rest.get(..4)?.try_into().ok()?;
        let length = le32(self.rest, 4)? as usize;
        let data = self.rest.get(8..8usize.checked_add(length)?)?;
        // Chunks are padded to an even length.
        self.rest = self.rest.get(8 + length + length % 2..).unwrap_or_default();
        Some((kind, data))
    }
}
