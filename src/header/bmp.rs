//! BMP headers of Windows (from version 3 on) and OS/2, with the variants that Pillow reads.

use super::{Format, Header, corrupt, le32, truncated};
use crate::error::{DataError, Reason};
use crate::geometry::{Orientation, Size};

/// Size of the file header in bytes. The image header follows the file header, and begins with its
/// own size.
const FILE_HEAD: usize = 14;
/// Size of OS/2's first image header, with 16-bit width and height and three-byte colors.
const CORE: u32 = 12;
/// Sizes in bytes of the supported image headers, except OS/2's first one.
const SIZES: [u32; 6] = [40, 52, 56, 64, 108, 124];
const MAX_SIDE: u32 = i32::MAX as u32;
const MAX_COLORS: u32 = 256;

/// Position and coding of a BMP's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BmpLayout<'a> {
    pub size: Size,
    pub coding: BmpCoding,
    /// Colors for indices as blue, green, red, with `color_bytes` bytes each.
    pub palette: &'a [u8],
    pub color_bytes: usize,
    /// Whether the last row is stored first.
    pub bottom_up: bool,
    /// Offset of the pixels in the file. The offset may lie beyond the end of the file.
    pub start: usize,
}

/// Coding of a BMP's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BmpCoding {
    /// Palette indices with this number of bits.
    Indices(u32),
    /// Run-length coded palette indices of 8 or 4 bits.
    Runs { four_bits: bool },
    /// 16-bit words with 5 bits per channel, or with 6 bits for green.
    Words { six_green: bool },
    /// Pixels of `bytes` bytes. `rgb` are the positions of red, green and blue in these bytes, and
    /// `alpha` is that of alpha.
    Bytes { bytes: usize, rgb: [usize; 3], alpha: Option<usize> },
}

impl BmpCoding {
    /// Number of bits per pixel.
    pub fn bits(self) -> u32 {
        match self {
            Self::Indices(bits) => bits,
            Self::Runs { .. } => 8,
            Self::Words { .. } => 16,
            Self::Bytes { bytes, .. } => 8 * bytes as u32,
        }
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, DataError> {
    let size = layout(bytes)?.size;
    Ok(Header { format: Format::Bmp, size, orientation: Orientation::UPRIGHT, jpeg: None })
}

/// Parses the header for the decoder.
pub(crate) fn layout(bytes: &[u8]) -> Result<BmpLayout<'_>, DataError> {
    let cut = || truncated("its header");
    let offset = le32(bytes, 10).ok_or_else(cut)?;
    let head_len = le32(bytes, FILE_HEAD).ok_or_else(cut)?;
    if head_len != CORE && !SIZES.contains(&head_len) {
        return Err(unsupported(format!(
            "a header of {head_len} bytes, a length that feedwater does not support"
        )));
    }
    let end = FILE_HEAD + head_len as usize;
    let head = bytes.get(FILE_HEAD..end).ok_or_else(cut)?;
    let half = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let word = |at: usize| half(at) | half(at + 2) << 16;
    let is_core = head_len == CORE;
    let (width, height, bits, compression, colors) = match is_core {
        true => (half(4), half(6), half(10), 0, 0),
        false => (word(4), word(8), half(14), word(16), word(32)),
    };
    // As in Pillow, the height is negative if its highest byte is ff.
    let bottom_up = is_core || head[11] != 0xFF;
    let height = if bottom_up { height } else { height.wrapping_neg() };
    let size = Size::new(width, height);
    if width == 0 || height == 0 || width > MAX_SIDE || height > MAX_SIDE {
        return Err(corrupt(format!(
            "the header gives the size {size}; width and height must be from 1 to {MAX_SIDE}"
        )));
    }
    let mut palette_at = end;
    let coding = match (compression, bits) {
        (0, 1 | 4 | 8) => BmpCoding::Indices(bits),
        (0, 16) => BmpCoding::Words { six_green: false },
        (0, 24 | 32) => BmpCoding::Bytes { bytes: bits as usize / 8, rgb: [2, 1, 0], alpha: None },
        (1, 8) | (2, 4) => BmpCoding::Runs { four_bits: bits == 4 },
        (3, 16 | 24 | 32) => {
            // A 40-byte header is followed by the color masks. Headers of version 2 and 3 contain
            // the color masks at the same position, and headers of version 3 also the alpha mask.
            let at = FILE_HEAD + 40;
            let mask = |number: usize| le32(bytes, at + 4 * number).ok_or_else(cut);
            let alpha = if head_len >= 56 { mask(3)? } else { 0 };
            if head_len == 40 {
                palette_at += 12;
            }
            bit_fields(bits, [mask(0)?, mask(1)?, mask(2)?, alpha])?
        }
        (0..=3, _) => {
            return Err(unsupported(format!(
                "the combination of {bits} bits per pixel and compression {compression}, which \
                 feedwater does not support"
            )));
        }
        _ => return Err(unsupported(format!("compression {compression}"))),
    };
    let color_bytes = if is_core { 3 } else { 4 };
    let colors = if colors == 0 && bits <= 8 { 1 << bits } else { colors };
    let (mut palette, mut start) = (&[][..], offset as usize);
    let mut after = palette_at;
    if bits <= 8 {
        if colors > MAX_COLORS {
            return Err(corrupt(format!(
                "the palette has {colors} colors; at most {MAX_COLORS} are allowed"
            )));
        }
        after += color_bytes * colors as usize;
        palette = bytes.get(palette_at..after).ok_or_else(|| truncated("its colors"))?;
        // If the offset in the file lies inside the palette, the pixels begin after the palette.
        if start == end {
            start += color_bytes * colors as usize;
        }
    }
    if start == 0 {
        start = after;
    }
    Ok(BmpLayout { size, coding, palette, color_bytes, bottom_up, start })
}

/// Returns the coding for channel masks. Only the masks that Pillow supports are accepted.
fn bit_fields(bits: u32, masks: [u32; 4]) -> Result<BmpCoding, DataError> {
    let (rgb, alpha) = match (bits, masks) {
        (16, [0xF800, 0x07E0, 0x001F, _]) => return Ok(BmpCoding::Words { six_green: true }),
        (16, [0x7C00, 0x03E0, 0x001F, _]) => return Ok(BmpCoding::Words { six_green: false }),
        (24, [0xFF_0000, 0xFF00, 0xFF, _]) => ([2, 1, 0], None),
        (32, [0xFF_0000, 0xFF00, 0xFF, 0]) => ([2, 1, 0], None),
        (32, [0xFF_0000, 0xFF00, 0xFF, 0xFF00_0000] | [0, 0, 0, 0]) => ([2, 1, 0], Some(3)),
        (32, [0xFF00_0000, 0xFF_0000, 0xFF00, 0]) => ([3, 2, 1], None),
        (32, [0xFF00_0000, 0xFF_0000, 0xFF00, 0xFF]) => ([3, 2, 1], Some(0)),
        (32, [0xFF00_0000, 0xFF00, 0xFF, 0]) => ([3, 1, 0], None),
        (32, [0xFF00_0000, 0xFF00, 0xFF, 0xFF_0000]) => ([3, 1, 0], Some(2)),
        (32, [0xFF, 0xFF00, 0xFF_0000, 0xFF00_0000]) => ([0, 1, 2], Some(3)),
        _ => {
            let [r, g, b, a] = masks;
            return Err(unsupported(format!(
                "the color masks {r:#x}, {g:#x}, {b:#x} and {a:#x} for {bits} bits per pixel, \
                 which feedwater does not support"
            )));
        }
    };
    Ok(BmpCoding::Bytes { bytes: bits as usize / 8, rgb, alpha })
}

fn unsupported(what: String) -> DataError {
    DataError::new(Reason::Unsupported, format!("a BMP with {what}"))
}
