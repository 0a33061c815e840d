//! PNM headers: size, maximum value, and start of the pixels. PNM are Netpbm's formats for bits
//! (`P1`, `P4`), gray (`P2`, `P5`) and RGB (`P3`, `P6`). The first of each pair is text, the second
//! binary.
//!
//! By the specification (netpbm.sourceforge.net/doc/ppm.html), a header consists of magic number,
//! width, height and, except for bits, the maximum value. The numbers are decimal and separated by
//! white space. One byte of white space follows, and then the rows from the top. A `#` begins a
//! comment, which ends with its line and counts as white space. Bytes after the pixels are ignored.

use memchr::memchr2;

use super::{Format, Header, corrupt, truncated};
use crate::error::DataError;
use crate::geometry::{Orientation, Size};

/// Maximum width and height in pixels, as in Netpbm's own programs.
const MAX_SIDE: u32 = i32::MAX as u32;
/// Maximum sample value that the format allows.
const MAX_VALUE: u32 = 65_535;

/// Position and coding of a PNM's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PnmLayout {
    pub size: Size,
    /// Number of channels: 1 for bits and gray, 3 for RGB.
    pub channels: usize,
    pub coding: PnmCoding,
    /// Sample value of white. For bits, white is 0 and 1 is black.
    pub white: u16,
    /// Number of bytes before the first pixel. The rows are contiguous. For binary codings, all
    /// rows are present.
    pub start: usize,
}

/// Coding of a PNM's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PnmCoding {
    /// Eight samples per byte, first sample in the highest bit. Each row begins with a new byte.
    Bits,
    /// One byte per sample.
    Bytes,
    /// Two bytes per sample, high byte first.
    Words,
    /// One `0` or `1` per sample, with or without white space between samples.
    BitText,
    /// Decimal numbers, separated by white space.
    Text,
}

/// PNM header for sources whose files contain raw pixels without a header. It is put before the
/// pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PnmHead {
    bytes: [u8; Self::MOST_BYTES],
    len: usize,
}

impl PnmHead {
    /// Maximum size of a header in bytes, rounded up.
    pub const MOST_BYTES: usize = 32;

    /// Creates a header for `3 * width * height` bytes of interleaved red, green and blue, rows
    /// from the top.
    pub fn rgb(size: Size) -> Self {
        Self::new(b"P6", size)
    }

    /// Creates a header for `width * height` bytes of gray, rows from the top.
    pub fn gray(size: Size) -> Self {
        Self::new(b"P5", size)
    }

    /// Returns the bytes of the header: at least 11, at most [`Self::MOST_BYTES`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn new(magic: &[u8], size: Size) -> Self {
        let mut this = Self { bytes: [0; Self::MOST_BYTES], len: 0 };
        this.push(magic);
        this.push_number(b'\n', size.width);
        this.push_number(b' ', size.height);
        this.push(b"\n255\n");
        this
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn push_number(&mut self, before: u8, number: u32) {
        self.push(&[before]);
        let digits = number.checked_ilog10().unwrap_or(0);
        for place in (0..=digits).rev() {
            self.push(&[b'0' + (number / 10u32.pow(place) % 10) as u8]);
        }
    }
}

/// Whether the bytes begin like a PNM.
pub(super) fn is_pnm(bytes: &[u8]) -> bool {
    matches!(bytes, [b'P', b'1'..=b'6', next, ..] if is_space(*next) || *next == b'#')
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, DataError> {
    let PnmLayout { size, .. } = layout(bytes)?;
    Ok(Header { format: Format::Pnm, size, orientation: Orientation::default(), jpeg: None })
}

/// Parses the header. Errors: `Truncated` if the file is too short for its pixels, `Corrupt` if the
/// header contradicts the format.
pub(crate) fn layout(bytes: &[u8]) -> Result<PnmLayout, DataError> {
    let kind = bytes.get(1).copied().unwrap_or_default();
    let mut text = Text { bytes, at: 2 };
    let size = Size::new(text.number("width")?, text.number("height")?);
    let white = if matches!(kind, b'1' | b'4') { 1 } else { text.number("maximum value")? };
    if size.pixels() == 0 || size.width > MAX_SIDE || size.height > MAX_SIDE {
        return Err(corrupt(format!(
            "the header gives the size {size}; width and height must be from 1 to {MAX_SIDE}"
        )));
    }
    if white == 0 || white > MAX_VALUE {
        return Err(corrupt(format!(
            "the header gives the maximum value {white}; it must be from 1 to {MAX_VALUE}"
        )));
    }
    let channels = if matches!(kind, b'3' | b'6') { 3 } else { 1 };
    let (width, height) = (u64::from(size.width), u64::from(size.height));
    let samples = channels as u64 * size.pixels();
    // Width and height are below 2^31, so only twice the number of samples can exceed 64 bits.
    let (coding, least) = match kind {
        b'1' => (PnmCoding::BitText, samples),
        b'2' | b'3' => (PnmCoding::Text, samples.saturating_mul(2) - 1),
        b'4' => (PnmCoding::Bits, width.div_ceil(8) * height),
        _ if white > 255 => (PnmCoding::Words, samples.saturating_mul(2)),
        _ => (PnmCoding::Bytes, samples),
    };
    let (start, whole) = (text.at, least.saturating_add(text.at as u64));
    if whole > bytes.len() as u64 {
        let problem = format!(
            "the pixel data (an image of {size} pixels needs a file of at least {whole} bytes, \
                 but this file has only {} bytes)",
            bytes.len()
        );
        return Err(truncated(&problem));
    }
    Ok(PnmLayout { size, channels, coding, white: white as u16, start })
}

/// Reader of the characters of a header.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Text<'_> {
    /// Returns the next character. A comment is returned as a line end.
    fn next(&mut self) -> Option<u8> {
        let rest = self.bytes.get(self.at..)?;
        let (byte, count) = match rest.first()? {
            b'#' => (b'\n', memchr2(b'\n', b'\r', rest)? + 1),
            &byte => (byte, 1),
        };
        self.at += count;
        Some(byte)
    }

    /// Reads a number after white space, and the one white-space character that ends it.
    fn number(&mut self, what: &str) -> Result<u32, DataError> {
        let (mut value, mut digits) = (0u32, false);
        loop {
            let at = self.at;
            let byte =
                self.next().ok_or_else(|| truncated(&format!("the {what} in its header")))?;
            match byte {
                b'0'..=b'9' => {
                    let more =
                        value.checked_mul(10).and_then(|it| it.checked_add((byte - b'0').into()));
                    value = more.ok_or_else(|| {
                        corrupt(format!("the {what} in the header, at byte {at}, is too large"))
                    })?;
                    digits = true;
                }
                _ if is_space(byte) && digits => return Ok(value),
                _ if is_space(byte) => {}
                _ => {
                    let problem = format!(
                        "byte {at} of the header is {byte:#04x}, which cannot be part of the \
                         {what}"
                    );
                    return Err(corrupt(problem));
                }
            }
        }
    }
}

/// Whether C's `isspace` is true for a byte.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
