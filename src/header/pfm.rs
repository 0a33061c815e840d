//! PFM headers: size, byte order, and start of the pixels. A PFM (portable float map) has f32
//! values in gray (`Pf`) or RGB (`PF`).
//!
//! By the specification (netpbm.sourceforge.net/doc/pfm.html), a header has the magic number, width
//! and height, and the scale factor. Rows follow from the bottom. Values are little-endian if the
//! scale factor is negative. This parser accepts any white space between the parts, and CRLF after
//! the last one. It does not use the magnitude of the scale factor, and ignores bytes after the
//! pixels.

use super::pnm::is_space;
use super::{Format, Header, corrupt, truncated};
use crate::error::DataError;
use crate::geometry::{Orientation, Size};

/// Maximum number of characters of a number in a header.
const MOST_CHARACTERS: usize = 64;

/// Position and coding of the pixels of a PFM. All pixels are present.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PfmLayout {
    pub size: Size,
    /// Number of channels: 1 or 3.
    pub channels: usize,
    pub is_little_endian: bool,
    /// Number of bytes before the first pixel.
    pub start: usize,
}

/// Whether the bytes begin like a PFM.
pub(super) fn is_pfm(bytes: &[u8]) -> bool {
    matches!(bytes, [b'P', b'f' | b'F', next, ..] if is_space(*next))
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, DataError> {
    let PfmLayout { size, .. } = layout(bytes)?;
    Ok(Header { format: Format::Pfm, size, orientation: Orientation::default(), jpeg: None })
}

/// Parses the header. Errors: `Truncated` if the file is too short for its pixels, `Corrupt` if the
/// header contradicts the format.
pub(crate) fn layout(bytes: &[u8]) -> Result<PfmLayout, DataError> {
    let channels = if bytes.get(1) == Some(&b'F') { 3 } else { 1 };
    let mut at = 2;
    let mut side = |what| {
        let text = word(bytes, &mut at, what)?;
        let side = text.parse::<u32>().ok().filter(|side| (1..=i32::MAX as u32).contains(side));
        side.ok_or_else(|| {
            corrupt(format!(
                "the header gives the {what} {text:?}; it must be from 1 to 2147483647"
            ))
        })
    };
    let size = Size::new(side("width")?, side("height")?);
    let text = word(bytes, &mut at, "scale factor")?;
    let scale = text.parse::<f64>().ok().filter(|scale| scale.is_finite() && *scale != 0.0);
    let Some(scale) = scale else {
        let problem = format!(
            "the header gives the scale factor {text:?}; it must be a finite number other than 0"
        );
        return Err(corrupt(problem));
    };
    let pixels = size.pixels().saturating_mul((channels * size_of::<f32>()) as u64);
    // Windows programs may end the header with two bytes.
    let has_two_ends = bytes[at - 1] == b'\r' && bytes.get(at) == Some(&b'\n');
    if has_two_ends && pixels.saturating_add(at as u64 + 1) == bytes.len() as u64 {
        at += 1;
    }
    let whole = pixels.saturating_add(at as u64);
    if whole > bytes.len() as u64 {
        let problem = format!(
            "the pixel data (an image of {size} pixels needs a file of at least {whole} bytes, but \
             this file has only {} bytes)",
            bytes.len()
        );
        return Err(truncated(&problem));
    }
    Ok(PfmLayout { size, channels, is_little_endian: scale < 0.0, start: at })
}

/// Reads a word after white space, and the one white-space character that ends it.
fn word<'a>(bytes: &'a [u8], at: &mut usize, what: &str) -> Result<&'a str, DataError> {
    let rest = &bytes[*at..];
    let skipped = rest.iter().take_while(|byte| is_space(**byte)).count();
    let word = &rest[skipped..];
    let Some(len) = word.iter().position(|byte| is_space(*byte)) else {
        return Err(truncated(&format!("the {what} in its header")));
    };
    *at += skipped + len + 1;
    let text = str::from_utf8(&word[..len.min(MOST_CHARACTERS)]).ok();
    text.filter(|_| len <= MOST_CHARACTERS)
        .ok_or_else(|| corrupt(format!("the {what} in the header is not a number")))
}
