//! Interpretation of the samples of a PNG, as in Pillow.

use png::{BitDepth, ColorType, Info};

use crate::decode::RowLayout;
use crate::decode::rows::{first, with_alpha};
use crate::error::{DataError, Reason};
use crate::geometry::Roi;
use crate::header::PngLayout;
use crate::tensor::CHANNELS;

/// Maximum number of colors of a palette.
const MAX_COLORS: usize = 256;

/// Interpretation of the samples of a row.
pub(super) struct Samples<'a> {
    color: ColorType,
    bits: usize,
    palette: &'a [u8],
    /// Content of the tRNS chunk.
    transparency: &'a [u8],
    layout: RowLayout,
    /// Whether an index beyond the palette is an error.
    strict: bool,
    /// Whether there was an index beyond the palette.
    pub beyond_palette: bool,
    /// Whether a gray value of 16 bits was clipped to 255.
    pub clipped: bool,
}

impl<'a> Samples<'a> {
    pub fn new(
        info: &Info<'_>,
        chunks: &PngLayout<'a>,
        layout: RowLayout,
        strict: bool,
    ) -> Result<Self, DataError> {
        let &PngLayout { palette, transparency, .. } = chunks;
        if strict && info.color_type == ColorType::Indexed && palette.is_empty() {
            return Err(DataError::new(Reason::Corrupt, "a PNG of indices without a palette"));
        }
        if layout == RowLayout::Rgba {
            chunks.check_transparency()?;
        }
        let is_indexed = info.color_type == ColorType::Indexed;
        if layout == RowLayout::Rgba && is_indexed && transparency.len() > MAX_COLORS {
            let problem = format!(
                "the tRNS chunk of the PNG has {} alphas for a palette of at most {MAX_COLORS} \
                 colors; save the image again, or decode it without alpha",
                transparency.len()
            );
            return Err(DataError::new(Reason::Corrupt, problem));
        }
        let bits = match info.bit_depth {
            BitDepth::One => 1,
            BitDepth::Two => 2,
            BitDepth::Four => 4,
            BitDepth::Eight => 8,
            BitDepth::Sixteen => 16,
        };
        let (color, beyond_palette, clipped) = (info.color_type, false, false);
        Ok(Self { color, bits, palette, transparency, layout, strict, beyond_palette, clipped })
    }

    /// Converts the window's pixels of one row to RGB or RGBA.
    pub fn convert_row(
        &mut self,
        stored: &[u8],
        window: Roi,
        line: &mut [u8],
    ) -> Result<(), DataError> {
        match self.layout {
            RowLayout::Rgba => self.convert::<4>(stored, window, line),
            _ if (self.color, self.bits) == (ColorType::Rgb, 8) => {
                line.copy_from_slice(&stored[CHANNELS * window.x as usize..][..line.len()]);
                Ok(())
            }
            _ => self.convert::<CHANNELS>(stored, window, line),
        }
    }

    /// Fills a row that the file lacks. In Pillow, samples of missing pixels are zero.
    pub fn fill_missing(&mut self, line: &mut [u8]) -> Result<(), DataError> {
        let rgb = match self.color {
            ColorType::Indexed => self.color_of(0)?,
            _ => [0; CHANNELS],
        };
        let has_alpha = matches!(self.color, ColorType::GrayscaleAlpha | ColorType::Rgba);
        let alpha = if has_alpha { 0 } else { self.transparency_of(rgb, 0) };
        match self.layout {
            RowLayout::Rgba => line.as_chunks_mut().0.fill(with_alpha(rgb, alpha)),
            _ => line.as_chunks_mut().0.fill(rgb),
        }
        Ok(())
    }

    /// Converts to the first `N` of red, green, blue and alpha.
    fn convert<const N: usize>(
        &mut self,
        stored: &[u8],
        window: Roi,
        line: &mut [u8],
    ) -> Result<(), DataError> {
        let Self { color, bits, .. } = *self;
        let channels = color.samples();
        let bytes = bits / 8;
        for (x, out) in (window.x as usize..).zip(line.as_chunks_mut::<N>().0) {
            // Returns the high byte of one channel of the pixel.
            let high = |channel: usize| stored[bytes * (channels * x + channel)];
            // Returns a sample of less than a byte: gray or an index.
            let small = || packed_sample(stored, bits, x);
            let mut index = 0;
            let rgb = match (color, bits) {
                (ColorType::Grayscale, 16) => {
                    let value = u16::from_be_bytes([stored[2 * x], stored[2 * x + 1]]);
                    self.clipped |= value > 255;
                    [value.min(255) as u8; CHANNELS]
                }
                (ColorType::Grayscale, 1 | 2 | 4) => {
                    [small() * (255 / ((1u16 << bits) - 1) as u8); CHANNELS]
                }
                (ColorType::Grayscale | ColorType::GrayscaleAlpha, _) => [high(0); CHANNELS],
                (ColorType::Rgb | ColorType::Rgba, _) => [high(0), high(1), high(2)],
                (ColorType::Indexed, _) => {
                    index = small();
                    self.color_of(index)?
                }
            };
            let alpha = match color {
                _ if N == CHANNELS => u8::MAX,
                ColorType::GrayscaleAlpha => high(1),
                ColorType::Rgba => high(3),
                _ => self.transparency_of(rgb, index),
            };
            *out = first(with_alpha(rgb, alpha));
        }
        Ok(())
    }

    /// Alpha of a pixel of an image without an alpha channel. As in Pillow, the low bytes of the
    /// tRNS chunk are compared with the decoded bytes, also for samples of 2, 4 and 16 bits.
    fn transparency_of(&self, rgb: [u8; CHANNELS], index: u8) -> u8 {
        let low = |channel: usize| self.transparency.get(2 * channel + 1).copied();
        let is_transparent = match self.color {
            ColorType::Indexed => {
                return self.transparency.get(usize::from(index)).copied().unwrap_or(u8::MAX);
            }
            ColorType::Grayscale if self.bits == 1 => {
                let white = self.transparency.iter().take(2).any(|byte| *byte != 0);
                self.transparency.len() >= 2 && rgb[0] == if white { u8::MAX } else { 0 }
            }
            ColorType::Grayscale => low(0) == Some(rgb[0]),
            _ => (0..CHANNELS).all(|channel| low(channel) == Some(rgb[channel])),
        };
        if is_transparent { 0 } else { u8::MAX }
    }

    fn color_of(&mut self, index: u8) -> Result<[u8; CHANNELS], DataError> {
        let colors = self.palette.as_chunks::<CHANNELS>().0;
        match colors.get(usize::from(index)) {
            Some(color) => Ok(*color),
            None if self.strict => {
                let colors = colors.len();
                let problem =
                    format!("a pixel has color {index}, but the palette has {colors} colors");
                Err(DataError::new(Reason::Corrupt, problem))
            }
            None => {
                self.beyond_palette = true;
                Ok([0; CHANNELS])
            }
        }
    }
}

/// Sample number `index` of a row of samples of 1, 2, 4 or 8 bits. The first sample of a byte is in
/// its highest bits.
pub(in crate::decode) fn packed_sample(row: &[u8], bits: usize, index: usize) -> u8 {
    let shift = 8 - bits - bits * index % 8;
    row[bits * index / 8] >> shift & ((1u16 << bits) - 1) as u8
}
