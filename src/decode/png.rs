//! PNG through the `png` crate, with Pillow's reading of the samples.
//!
//! | stored | becomes |
//! |---|---|
//! | gray of 1, 2, 4 bits | spread over 0 to 255 |
//! | gray of 16 bits | clipped to 255 (Pillow's `I;16` to `RGB`), so nearly white; kept for equality's sake |
//! | gray with alpha, RGB, RGBA of 16 bits | the high byte |
//! | palette | its colours; an index without a colour is `Corrupt` (Pillow: a gray ramp) |
//! | alpha and tRNS | dropped |

use std::io::{Cursor, ErrorKind};

use png::{BitDepth, ColorType, Decoder, DecodingError, Info, Limits};

use super::{RowSink, grown, size_changed};
use crate::error::{Fault, Reason};
use crate::geometry::{Roi, Size};
use crate::tensor::CHANNELS;

/// Bytes that the crate may take beside the rows: palette and other small chunks.
const SLACK_BYTES: usize = 1 << 16;

/// Decodes a window, see `HostDecoder::decode`.
pub(super) fn decode(
    scratch: &mut Vec<u8>,
    line: &mut Vec<u8>,
    bytes: &[u8],
    size: Size,
    window: Roi,
    row: &mut RowSink<'_>,
) -> Result<(), Fault> {
    let row_bytes = 8 * size.width as usize;
    let limits = Limits { bytes: 4 * row_bytes + SLACK_BYTES };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(fault)?;
    let found = Size::new(reader.info().width, reader.info().height);
    if found != size {
        return Err(size_changed(size, found));
    }
    let samples = Samples::new(reader.info())?;
    let line = grown(line, CHANNELS * window.width as usize);
    if reader.info().interlaced {
        let len =
            reader.output_buffer_size().ok_or_else(|| fault(DecodingError::LimitsExceeded))?;
        let scratch = grown(scratch, len);
        let stride = reader.next_frame(scratch).map_err(fault)?.line_size;
        for y in window.y..window.bottom() {
            samples.to_rgb(&scratch[stride * y as usize..][..stride], window, line)?;
            row(y, line);
        }
        // The whole picture was decoded to get here, so its checksums are looked at whatever the window.
        return reader.finish().map_err(fault);
    }
    for y in 0..window.bottom() {
        let stored = reader.next_row().map_err(fault)?;
        let stored = stored
            .ok_or_else(|| Fault::new(Reason::Truncated, "the PNG ends before its rows do"))?;
        if y >= window.y {
            samples.to_rgb(stored.data(), window, line)?;
            row(y, line);
        }
    }
    if window.bottom() == size.height {
        // The checksum of the last rows comes after them.
        reader.finish().map_err(fault)?;
    }
    Ok(())
}

/// How to read the samples of a row.
struct Samples {
    color: ColorType,
    bits: usize,
    palette: Vec<u8>,
}

impl Samples {
    fn new(info: &Info<'_>) -> Result<Self, Fault> {
        let palette = info.palette.as_deref().unwrap_or_default().to_vec();
        if info.color_type == ColorType::Indexed && palette.is_empty() {
            return Err(Fault::new(Reason::Corrupt, "a PNG of indices without a palette"));
        }
        let bits = match info.bit_depth {
            BitDepth::One => 1,
            BitDepth::Two => 2,
            BitDepth::Four => 4,
            BitDepth::Eight => 8,
            BitDepth::Sixteen => 16,
        };
        Ok(Self { color: info.color_type, bits, palette })
    }

    /// The window's pixels of one row as RGB.
    fn to_rgb(&self, stored: &[u8], window: Roi, line: &mut [u8]) -> Result<(), Fault> {
        if (self.color, self.bits) == (ColorType::Rgb, 8) {
            line.copy_from_slice(&stored[CHANNELS * window.x as usize..][..line.len()]);
            return Ok(());
        }
        let channels = self.color.samples();
        let bytes = self.bits / 8;
        for (x, out) in (window.x as usize..).zip(line.chunks_exact_mut(CHANNELS)) {
            // The high byte of the pixel's channel; samples under a byte are gray or indices, first one highest.
            let high = |channel: usize| stored[bytes * (channels * x + channel)];
            let small = || {
                let shift = 8 - self.bits - self.bits * x % 8;
                stored[self.bits * x / 8] >> shift & ((1u16 << self.bits) - 1) as u8
            };
            let pixel = match (self.color, self.bits) {
                (ColorType::Grayscale, 16) => {
                    let value = u16::from_be_bytes([stored[2 * x], stored[2 * x + 1]]);
                    [value.min(255) as u8; CHANNELS]
                }
                (ColorType::Grayscale, 1 | 2 | 4) => {
                    [small() * (255 / ((1u16 << self.bits) - 1) as u8); CHANNELS]
                }
                (ColorType::Grayscale | ColorType::GrayscaleAlpha, _) => [high(0); CHANNELS],
                (ColorType::Rgb | ColorType::Rgba, _) => [high(0), high(1), high(2)],
                (ColorType::Indexed, _) => self.color_of(small())?,
            };
            out.copy_from_slice(&pixel);
        }
        Ok(())
    }

    fn color_of(&self, index: u8) -> Result<[u8; CHANNELS], Fault> {
        let color = self.palette.chunks_exact(CHANNELS).nth(index.into());
        let color = color.and_then(|color| color.try_into().ok());
        color.ok_or_else(|| {
            let colors = self.palette.len() / CHANNELS;
            Fault::new(
                Reason::Corrupt,
                format!("a pixel has color {index} of a palette of {colors}"),
            )
        })
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
