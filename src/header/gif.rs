//! GIF headers: size of the canvas and the first frame, as Pillow reads them.

use super::{Format, Header, corrupt, truncated};
use crate::error::DataError;
use crate::geometry::{Orientation, Roi, Size};

/// Size of the signature with the screen descriptor, in bytes.
const HEAD_BYTES: usize = 13;
/// Size of an image descriptor in bytes.
const FRAME_BYTES: usize = 9;
/// Maximum size of a first LZW code in bits.
const MOST_CODE_BITS: u8 = 8;

/// First frame of a GIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GifLayout<'a> {
    /// Size of the canvas: the size of the screen descriptor, or larger if the frame extends beyond
    /// it.
    pub size: Size,
    /// Part of the canvas that the frame covers. The rest of the canvas has the transparent color,
    /// or color 0.
    pub frame: Roi,
    /// Palette of three bytes per color. If the palette is empty, indices are gray values.
    pub palette: &'a [u8],
    /// Index of the transparent color.
    pub transparent: Option<u8>,
    pub interlaced: bool,
    /// Size of a first LZW code in bits.
    pub code_bits: u8,
    /// Blocks with the codes, and the bytes after them.
    pub blocks: GifBlocks<'a>,
}

/// Iterator over blocks of up to 255 bytes. Each block is stored after its length, and a length of
/// 0 ends the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GifBlocks<'a> {
    rest: &'a [u8],
}

impl<'a> GifBlocks<'a> {
    /// Returns the next block, `None` after the last one, and an error if the file ends earlier.
    pub fn next(&mut self) -> Result<Option<&'a [u8]>, DataError> {
        let (&len, rest) = self.rest.split_first().ok_or_else(|| truncated("its blocks"))?;
        let (block, rest) =
            rest.split_at_checked(len.into()).ok_or_else(|| truncated("a block"))?;
        self.rest = rest;
        Ok((len > 0).then_some(block))
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, DataError> {
    let size = layout(bytes)?.size;
    Ok(Header { format: Format::Gif, size, orientation: Orientation::UPRIGHT, jpeg: None })
}

/// Parses the header for the decoder.
pub(crate) fn layout(bytes: &[u8]) -> Result<GifLayout<'_>, DataError> {
    let cut = || truncated("its header");
    let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(cut)?;
    if !head.starts_with(b"GIF87a") && !head.starts_with(b"GIF89a") {
        return Err(corrupt("the version of the GIF is neither 87a nor 89a"));
    }
    let side = |of: &[u8], at: usize| of.get(at..).and_then(le16).map(u32::from).ok_or_else(cut);
    let (mut size, flags) = (Size::new(side(head, 6)?, side(head, 8)?), head[10]);
    let mut palette = colors(flags, &mut rest)?;
    let mut transparent = None;
    loop {
        let (&kind, after) =
            rest.split_first().ok_or_else(|| truncated("the blocks before its first image"))?;
        rest = after;
        match kind {
            b'!' => {
                let (&label, after) = rest.split_first().ok_or_else(cut)?;
                let mut blocks = GifBlocks { rest: after };
                let first = blocks.next()?;
                if let (0xF9, Some(block)) = (label, first) {
                    let (Some(flags), Some(index)) = (block.first(), block.get(3)) else {
                        return Err(corrupt("a graphic control extension has less than 4 bytes"));
                    };
                    if flags & 1 != 0 {
                        transparent = Some(*index);
                    }
                }
                if first.is_some() {
                    while blocks.next()?.is_some() {}
                }
                rest = blocks.rest;
            }
            b',' => break,
            b';' => return Err(corrupt("a GIF without an image")),
            _ => {}
        }
    }
    let (head, mut rest) = rest.split_at_checked(FRAME_BYTES).ok_or_else(cut)?;
    let frame = Roi::new(side(head, 0)?, side(head, 2)?, side(head, 4)?, side(head, 6)?);
    if frame.is_empty() {
        return Err(corrupt(format!(
            "the first image is empty: its size is {} pixels",
            frame.size()
        )));
    }
    size = Size::new(size.width.max(frame.right()), size.height.max(frame.bottom()));
    if head[8] & 0x80 != 0 {
        palette = colors(head[8], &mut rest)?;
    }
    let (&code_bits, rest) = rest.split_first().ok_or_else(cut)?;
    if !(1..=MOST_CODE_BITS).contains(&code_bits) {
        return Err(corrupt(format!(
            "the LZW codes begin with {code_bits} bits; the number must be from 1 to \
             {MOST_CODE_BITS}"
        )));
    }
    Ok(GifLayout {
        size,
        frame,
        palette,
        transparent,
        interlaced: head[8] & 0x40 != 0,
        code_bits,
        blocks: GifBlocks { rest },
    })
}

/// Reads the color table that the flags announce. Returns no colors if each color is the gray of
/// its index.
fn colors<'a>(flags: u8, rest: &mut &'a [u8]) -> Result<&'a [u8], DataError> {
    if flags & 0x80 == 0 {
        return Ok(&[]);
    }
    let len = 3 << ((flags & 7) + 1);
    let (colors, after) = rest.split_at_checked(len).ok_or_else(|| truncated("its colors"))?;
    *rest = after;
    let is_gray =
        |(index, color): (usize, &[u8; 3])| color.iter().all(|it| usize::from(*it) == index);
    let gray = colors.as_chunks().0.iter().enumerate().all(is_gray);
    Ok(if gray { &[] } else { colors })
}

fn le16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.first_chunk()?))
}
