//! Pillow's checks of PNG chunks. Pillow refuses the whole image if a chunk that it reads is
//! malformed, even if the chunk does not affect pixels.

use super::inflate::{Inflater, Stream};
use super::text::{self, MAX_TEXT_BYTES};
use super::{be32, check_default_image, corrupt};
use crate::error::DataError;

/// Maximum number of characters in all texts of a file together.
const MAX_TEXT_CHARACTERS: u64 = 64 << 20;
/// zlib's best compression ratio. If a compressed chunk is short enough, its content cannot exceed
/// [`MAX_TEXT_BYTES`], and the chunk need not be unpacked for this check.
const BEST_RATIO: usize = 1032;
/// Maximum number of colors of a palette.
const MAX_COLORS: usize = 256;

/// Checks of chunks, in file order.
pub(super) struct Checks<'a> {
    /// Content of the first IHDR.
    head: &'a [u8],
    pixels_seen: bool,
    /// Sequence number of the last animation chunk.
    sequence: Option<u32>,
    /// Number of frames in acTL.
    frames: Option<u32>,
    /// Whether the default image is one of the frames.
    default_is_frame: bool,
    /// Number of colors of the last palette.
    colors: Option<usize>,
    /// Whether exactly one color is transparent.
    transparent_color: bool,
    /// Whether a tRNS chunk is after the pixels.
    has_late_transparency: bool,
    characters: u64,
}

impl<'a> Checks<'a> {
    pub fn new(head: &'a [u8]) -> Self {
        Self {
            head,
            pixels_seen: false,
            sequence: None,
            frames: None,
            default_is_frame: false,
            colors: None,
            transparent_color: false,
            has_late_transparency: false,
            characters: 0,
        }
    }

    /// Records that the pixels have begun. Pillow checks the chunks after the start of the pixels
    /// less strictly.
    pub fn pixels_begin(&mut self) {
        self.pixels_seen = true;
    }

    /// Runs the checks that need several chunks. The last palette is the image's palette, in which
    /// Pillow searches for a transparent color.
    pub fn together(&self) -> Result<(), DataError> {
        match self.colors {
            _ if !self.is_indexed() => Ok(()),
            Some(colors) if colors > MAX_COLORS => {
                let problem =
                    format!("the PLTE chunk has {colors} colors; at most {MAX_COLORS} are allowed");
                Err(corrupt(problem))
            }
            None if self.transparent_color => {
                Err(corrupt("the tRNS chunk makes a color transparent, but there is no PLTE chunk"))
            }
            _ => Ok(()),
        }
    }

    /// Whether Pillow treats the file as an animation. Pillow then ignores chunks after the first
    /// frame.
    pub fn is_animated(&self) -> bool {
        self.frames.is_some_and(|frames| frames > 1 || !self.default_is_frame)
    }

    pub fn check(&mut self, kind: &[u8; 4], data: &[u8]) -> Result<(), DataError> {
        match kind {
            b"IHDR" => self.header(data),
            b"PLTE" => {
                if !self.pixels_seen {
                    self.colors = Some(data.len() / 3);
                }
                Ok(())
            }
            b"tRNS" => self.transparency(data),
            b"gAMA" => at_least(4, "gAMA", data),
            b"cHRM" if !data.len().is_multiple_of(4) => {
                let problem = format!(
                    "the cHRM chunk has {} bytes; the number must be a multiple of 4",
                    data.len()
                );
                Err(corrupt(problem))
            }
            b"sRGB" => at_least(1, "sRGB", data),
            b"pHYs" => at_least(9, "pHYs", data),
            b"iCCP" => color_profile(data),
            b"tEXt" | b"zTXt" | b"iTXt" => self.text(kind, data),
            b"acTL" => self.animation(data),
            b"fcTL" => self.frame(data),
            b"fdAT" => {
                at_least(4, "fdAT", data)?;
                self.follows(data)
            }
            _ => Ok(()),
        }
    }

    /// Returns bit depth and color type.
    fn samples(&self) -> (u8, u8) {
        (self.head[8], self.head[9])
    }

    fn is_indexed(&self) -> bool {
        self.samples().1 == 3
    }

    /// Checks an IHDR chunk. Pillow uses the last IHDR before the pixels. If two IHDR chunks
    /// differ, it is unknown which one is damaged, so the image is refused.
    fn header(&self, data: &[u8]) -> Result<(), DataError> {
        at_least(13, "IHDR", data)?;
        if data[11] != 0 {
            return Err(corrupt(format!(
                "the IHDR chunk has the filter method {}; it must be 0",
                data[11]
            )));
        }
        if !self.pixels_seen && data != self.head {
            return Err(corrupt("a second IHDR chunk differs from the first"));
        }
        Ok(())
    }

    /// Whether the last tRNS chunk makes exactly one color of the palette transparent.
    pub fn transparent_color(&self) -> bool {
        self.transparent_color
    }

    /// Whether a tRNS chunk is after the pixels.
    pub fn has_late_transparency(&self) -> bool {
        self.has_late_transparency
    }

    fn transparency(&mut self, data: &[u8]) -> Result<(), DataError> {
        self.has_late_transparency |= self.pixels_seen;
        match self.samples() {
            (_, 0) => at_least(2, "tRNS", data),
            (_, 2) => at_least(6, "tRNS", data),
            (_, 3) => {
                // `transparent_color` is true if exactly one color has alpha 0 and all others are
                // opaque. Pillow's regular expression for that allows a trailing line feed.
                let alphas = data.strip_suffix(b"\n").unwrap_or(data);
                self.transparent_color = alphas.iter().filter(|alpha| **alpha != 0xFF).eq(&[0]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn text(&mut self, kind: &[u8; 4], data: &[u8]) -> Result<(), DataError> {
        let characters = match (kind, text::keyword(data)) {
            (b"zTXt", _) | (b"iTXt", _) => match text::packed(kind, data)? {
                text::Packed::Nothing => 0,
                text::Packed::Plain(text) => characters(text),
                text::Packed::Zlib(packed) => unpacked_characters(kind, packed)?,
            },
            (_, keyword) => data.len().saturating_sub(keyword.len() + 1) as u64,
        };
        // A zTXt or tEXt chunk without a keyword does not count toward the limit of characters.
        if kind == b"iTXt" || !text::keyword(data).is_empty() {
            self.characters += characters;
        }
        if self.characters > MAX_TEXT_CHARACTERS {
            let problem = format!(
                "all text chunks together have more than {MAX_TEXT_CHARACTERS} characters, \
                     which is the maximum"
            );
            return Err(corrupt(problem));
        }
        Ok(())
    }

    fn animation(&mut self, data: &[u8]) -> Result<(), DataError> {
        at_least(8, "acTL", data)?;
        // A second acTL chunk makes the file a still image. An acTL chunk after the start of the
        // pixels changes nothing.
        if !self.pixels_seen && self.frames.take().is_none() {
            self.frames = be32(data, 0).filter(|frames| (1..=1 << 31).contains(frames));
        }
        Ok(())
    }

    fn frame(&mut self, data: &[u8]) -> Result<(), DataError> {
        at_least(26, "fcTL", data)?;
        let first = self.sequence.is_none() && be32(data, 0) == Some(0);
        if first {
            self.sequence = Some(0);
        } else {
            self.follows(data)?;
        }
        if !self.pixels_seen {
            self.default_is_frame = true;
            return check_default_image(self.head, data);
        }
        let number = |bytes: &[u8], at: usize| u64::from(be32(bytes, at).unwrap_or_default());
        let beyond = |side: usize, place: usize| {
            number(data, side) + number(data, place) > number(self.head, side - 4)
        };
        if beyond(4, 12) || beyond(8, 16) {
            return Err(corrupt("a frame of the animation is not inside the image"));
        }
        Ok(())
    }

    /// Checks the sequence number at the start of fcTL and fdAT.
    fn follows(&mut self, data: &[u8]) -> Result<(), DataError> {
        let number = be32(data, 0);
        if number.is_none() || number != self.sequence.and_then(|it| it.checked_add(1)) {
            return Err(corrupt("the frames of the animation are out of order"));
        }
        self.sequence = number;
        Ok(())
    }
}

fn at_least(bytes: usize, name: &str, data: &[u8]) -> Result<(), DataError> {
    if data.len() < bytes {
        let problem = format!(
            "the chunk has {} bytes, but a {name} chunk needs at least {bytes}",
            data.len()
        );
        return Err(corrupt(problem));
    }
    Ok(())
}

/// Checks a color profile: a name, a zero byte, the compression method (one byte), and zlib data.
fn color_profile(data: &[u8]) -> Result<(), DataError> {
    // Without a zero byte, Pillow reads the first byte as the method.
    let method = data.iter().position(|byte| *byte == 0).map_or(0, |zero| zero + 1);
    match data.get(method..) {
        None | Some([]) => Err(corrupt("the iCCP chunk ends before its compression method")),
        Some([0, packed @ ..]) if packed.len() > MAX_TEXT_BYTES / BEST_RATIO => {
            unpacked_characters(b"iCCP", packed).map(drop)
        }
        Some([0, ..]) => Ok(()),
        Some([method, ..]) => Err(corrupt(format!(
            "the iCCP chunk has the compression method {method}; it must be 0"
        ))),
    }
}

/// Returns the number of UTF-8 characters. For text that is not UTF-8, returns the number of bytes
/// that could begin a character.
fn characters(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64
}

/// Returns the number of characters of a compressed text. Returns 0 for damaged data, which Pillow
/// ignores.
fn unpacked_characters(kind: &[u8; 4], mut packed: &[u8]) -> Result<u64, DataError> {
    const STEP: usize = 16 << 10;
    let mut inflater = Inflater::new(STEP)?;
    let (mut bytes, mut found) = (0, 0);
    loop {
        let step = inflater.step(packed, STEP, false)?;
        packed = &packed[step.consumed..];
        bytes += step.output.len();
        found += if kind == b"iTXt" { characters(step.output) } else { step.output.len() as u64 };
        if bytes > MAX_TEXT_BYTES {
            let name = kind.escape_ascii();
            let problem = format!(
                "the {name} chunk decompresses to more than {MAX_TEXT_BYTES} bytes, which is the \
                 maximum"
            );
            return Err(corrupt(problem));
        }
        match step.state {
            Stream::Damaged => return Ok(0),
            Stream::Open if step.output.len() == STEP => {}
            _ => return Ok(found),
        }
    }
}
