//! PNG through the `png` crate, with Pillow's reading of the samples.
//!
//! | stored | becomes |
//! |---|---|
//! | gray of 1, 2, 4 bits | spread over 0 to 255 |
//! | gray of 16 bits | clipped to 255 (Pillow's `I;16` to `RGB`), so nearly white; kept for equality's sake |
//! | gray with alpha, RGB, RGBA of 16 bits | the high byte |
//! | palette | its colours; an index without one is `Corrupt`, or black where the decode is not strict, as in Pillow |
//! | alpha and tRNS | dropped |

use std::io::{self, BufRead, ErrorKind, Read, Seek, SeekFrom};

use png::{BitDepth, ColorType, DecodeOptions, Decoder, DecodingError, Info, Limits};

use super::{RowSink, grown, size_changed};
use crate::error::{Fault, Reason, Tolerated};
use crate::geometry::{Roi, Size};
use crate::header::{PngEnd, PngLayout, png_layout};
use crate::tensor::CHANNELS;

/// Bytes that the crate may take beside the rows.
const SLACK_BYTES: usize = 1 << 16;

/// The chunk that ends what the crate sees.
const IEND: &[u8] = b"\0\0\0\0IEND\xaeB`\x82";

/// Most bytes that the crate allocates for an image with `width` columns: rows of at most 8 bytes per pixel.
pub(super) fn library_bytes(width: u32) -> usize {
    4 * 8 * width as usize + SLACK_BYTES
}

/// Decodes a window, see `HostDecoder::decode`.
///
/// The crate sees IHDR and IDAT only: what is in other chunks cannot change the pixels, and must not stop it.
pub(super) fn decode(
    scratch: &mut Vec<u8>,
    line: &mut Vec<u8>,
    bytes: &[u8],
    size: Size,
    window: Roi,
    strict: bool,
    row: &mut RowSink<'_>,
) -> Result<Option<Tolerated>, Fault> {
    let layout = png_layout(bytes)?;
    let mut options = DecodeOptions::default();
    // Pillow checks zlib's checksum and not those of the chunks; they are looked at below.
    options.set_ignore_adler32(false);
    options.set_ignore_crc(!strict);
    let mut decoder = Decoder::new_with_options(Chunks::new(&layout), options);
    decoder.set_limits(Limits { bytes: library_bytes(size.width) });
    let mut reader = decoder.read_info().map_err(fault)?;
    let found = Size::new(reader.info().width, reader.info().height);
    if found != size {
        return Err(size_changed(size, found));
    }
    let mut samples = Samples::new(reader.info(), layout.palette, strict)?;
    let line = grown(line, CHANNELS * window.width as usize)?;
    if reader.info().interlaced {
        let len =
            reader.output_buffer_size().ok_or_else(|| fault(DecodingError::LimitsExceeded))?;
        let scratch = grown(scratch, len)?;
        let stride = reader.next_frame(scratch).map_err(fault)?.line_size;
        for y in window.y..window.bottom() {
            samples.convert_row(&scratch[stride * y as usize..][..stride], window, line)?;
            row(y, line);
        }
    } else {
        let row_length = reader.info().raw_row_length() as u64;
        for y in 0..window.bottom() {
            let stored = match reader.next_row() {
                Ok(stored) => stored,
                Err(_) if !strict && ends_behind(&layout, y, row_length) => {
                    return rest_is_black(&mut samples, window, y, line, row);
                }
                Err(error) => return Err(fault(error)),
            };
            let stored = stored
                .ok_or_else(|| Fault::new(Reason::Truncated, "the PNG ends before its rows do"))?;
            if y >= window.y {
                samples.convert_row(stored.data(), window, line)?;
                row(y, line);
            }
        }
    }
    let mut tolerated = samples.beyond_palette.then_some(Tolerated::PngPalette);
    // Where the whole image was decoded to get here, what is behind its rows is looked at whatever the window.
    if reader.info().interlaced || window.bottom() == size.height {
        match reader.finish() {
            Err(DecodingError::IoError(_)) if !strict && !layout.pixels_whole => {}
            result => result.map_err(fault)?,
        }
        tolerated = tolerated.or(ending(&layout, strict)?);
    }
    if !strict && tolerated.is_none() && !layout.checksums_hold() {
        tolerated = Some(Tolerated::PngChecksum);
    }
    Ok(tolerated)
}

/// Whether the data of a PNG that is not interlaced end, as zlib has it, behind so many rows, and at least one.
fn ends_behind(layout: &PngLayout<'_>, rows: u32, row_length: u64) -> bool {
    let expected = row_length * u64::from(rows);
    let mut unpacked = flate2::read::ZlibDecoder::new(layout.data());
    rows > 0 && io::copy(&mut unpacked, &mut io::sink()).is_ok_and(|bytes| bytes == expected)
}

/// Gives the rows from number `from` on, of which there are no samples, as Pillow does.
fn rest_is_black(
    samples: &mut Samples<'_>,
    window: Roi,
    from: u32,
    line: &mut [u8],
    row: &mut RowSink<'_>,
) -> Result<Option<Tolerated>, Fault> {
    let black = if samples.color == ColorType::Indexed { samples.color_of(0)? } else { [0; 3] };
    line.as_chunks_mut().0.fill(black);
    (from.max(window.y)..window.bottom()).for_each(|y| row(y, line));
    Ok(Some(Tolerated::PngRows))
}

/// What is behind the pixels.
fn ending(layout: &PngLayout<'_>, strict: bool) -> Result<Option<Tolerated>, Fault> {
    let problem = match layout.end {
        PngEnd::Whole => return Ok(None),
        PngEnd::Missing if !strict => return Ok(Some(Tolerated::PngEnd)),
        PngEnd::Missing => "the PNG has no IEND chunk",
        PngEnd::Cut => "the PNG ends inside a chunk behind its pixels",
    };
    Err(Fault::new(Reason::Truncated, problem))
}

/// The chunks that the crate sees, one after another.
struct Chunks<'a> {
    parts: [&'a [u8]; 3],
}

impl<'a> Chunks<'a> {
    fn new(layout: &PngLayout<'a>) -> Self {
        let end = if layout.pixels_whole { IEND } else { &[] };
        Self { parts: [layout.head, layout.pixels, end] }
    }
}

impl BufRead for Chunks<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let part = self.parts.iter().find(|part| !part.is_empty());
        Ok(part.copied().unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        if let Some(part) = self.parts.iter_mut().find(|part| !part.is_empty()) {
            *part = &part[count..];
        }
    }
}

impl Read for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

/// The crate asks for this and does without.
impl Seek for Chunks<'_> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// How to read the samples of a row.
struct Samples<'a> {
    color: ColorType,
    bits: usize,
    palette: &'a [u8],
    /// A color beyond the palette is a fault.
    strict: bool,
    /// There was one.
    beyond_palette: bool,
}

impl<'a> Samples<'a> {
    fn new(info: &Info<'_>, palette: &'a [u8], strict: bool) -> Result<Self, Fault> {
        if strict && info.color_type == ColorType::Indexed && palette.is_empty() {
            return Err(Fault::new(Reason::Corrupt, "a PNG of indices without a palette"));
        }
        let bits = match info.bit_depth {
            BitDepth::One => 1,
            BitDepth::Two => 2,
            BitDepth::Four => 4,
            BitDepth::Eight => 8,
            BitDepth::Sixteen => 16,
        };
        Ok(Self { color: info.color_type, bits, palette, strict, beyond_palette: false })
    }

    /// The window's pixels of one row as RGB.
    fn convert_row(&mut self, stored: &[u8], window: Roi, line: &mut [u8]) -> Result<(), Fault> {
        if (self.color, self.bits) == (ColorType::Rgb, 8) {
            line.copy_from_slice(&stored[CHANNELS * window.x as usize..][..line.len()]);
            return Ok(());
        }
        let Self { color, bits, .. } = *self;
        let channels = color.samples();
        let bytes = bits / 8;
        for (x, out) in (window.x as usize..).zip(line.chunks_exact_mut(CHANNELS)) {
            // The high byte of the pixel's channel; samples under a byte are gray or indices, first one highest.
            let high = |channel: usize| stored[bytes * (channels * x + channel)];
            let small = || {
                let shift = 8 - bits - bits * x % 8;
                stored[bits * x / 8] >> shift & ((1u16 << bits) - 1) as u8
            };
            let pixel = match (color, bits) {
                (ColorType::Grayscale, 16) => {
                    let value = u16::from_be_bytes([stored[2 * x], stored[2 * x + 1]]);
                    [value.min(255) as u8; CHANNELS]
                }
                (ColorType::Grayscale, 1 | 2 | 4) => {
                    [small() * (255 / ((1u16 << bits) - 1) as u8); CHANNELS]
                }
                (ColorType::Grayscale | ColorType::GrayscaleAlpha, _) => [high(0); CHANNELS],
                (ColorType::Rgb | ColorType::Rgba, _) => [high(0), high(1), high(2)],
                (ColorType::Indexed, _) => self.color_of(small())?,
            };
            out.copy_from_slice(&pixel);
        }
        Ok(())
    }

    fn color_of(&mut self, index: u8) -> Result<[u8; CHANNELS], Fault> {
        let colors = self.palette.as_chunks::<CHANNELS>().0;
        match colors.get(usize::from(index)) {
            Some(color) => Ok(*color),
            None if self.strict => {
                let colors = colors.len();
                let problem = format!("a pixel has color {index} of a palette of {colors}");
                Err(Fault::new(Reason::Corrupt, problem))
            }
            None => {
                self.beyond_palette = true;
                Ok([0; CHANNELS])
            }
        }
    }
}

fn fault(error: DecodingError) -> Fault {
    let reason = match &error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Reason::Truncated
        }
        DecodingError::LimitsExceeded => Reason::Oversized,
        _ => Reason::Corrupt,
    };
    Fault::new(reason, format!("the PNG cannot be decoded: {error}"))
}
