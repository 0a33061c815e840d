//! Decoding to images of 8 bits with one, three or four channels ([`PixelFormat`]), and composition
//! of transparent images with a background.

use super::{Decoders, RowLayout, RowSink, Rows};
use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::header::Header;
use crate::image::PixelFormat;
use crate::tensor::CHANNELS;

/// Red, green, blue and alpha of a pixel.
type Rgba = [u8; CHANNELS + 1];

impl Decoders {
    /// Sets the colour over which transparent images are composed (setting `decode.background`), as
    /// Pillow's `Image.alpha_composite` does. `None`, the default, drops alpha.
    pub fn background(self, background: Option<[u8; CHANNELS]>) -> Self {
        Self { background, ..self }
    }

    /// Like [`decode`](Self::decode), with the rows of an image of 8 bits and one or three
    /// channels. Rows of `u8` have three equal channels: Pillow's `convert("L")`. A background is
    /// applied first. Rows of `indices` have three equal channels too. Damage is an error for them,
    /// whatever [`strict`](Self::strict) is.
    pub fn decode_format(
        &mut self,
        format: PixelFormat,
        bytes: &[u8],
        header: &Header,
        (window, reduction): (Roi, u32),
        sink: &mut RowSink<'_>,
    ) -> Result<(), DataError> {
        if format == PixelFormat::Indices {
            return self.decode_indices(bytes, header, (window, reduction), sink);
        }
        let background = self.background.filter(|_| self.has_alpha(header));
        let is_gray = format == PixelFormat::U8;
        let layout = match (background, is_gray) {
            (None, false) => {
                return self.decode_as(RowLayout::Rgb, bytes, header, window, reduction, sink);
            }
            (None, true) => RowLayout::Rgb,
            (Some(_), _) => RowLayout::Rgba,
        };
        let mut line = std::mem::take(&mut self.buffers.line);
        reserve::renew(&mut line, CHANNELS * window.width as usize)?;
        let decoded = self.decode_as(layout, bytes, header, window, reduction, &mut |rows| {
            for (y, row) in rows.iter() {
                match background {
                    Some(background) => compose(row, background, &mut line),
                    None => line.copy_from_slice(row),
                }
                if is_gray {
                    to_gray(&mut line);
                }
                sink(Rows { first: y, count: 1, pitch: line.len(), data: &line, chroma: &[] });
            }
        });
        self.buffers.line = line;
        decoded
    }

    /// Like [`decode`](Self::decode), with the rows of Pillow's `convert("RGBA")`. The sink also
    /// receives the layout of the rows: [`RowLayout::Rgb`] if no pixel is transparent.
    pub fn decode_with_alpha(
        &mut self,
        bytes: &[u8],
        header: &Header,
        (window, reduction): (Roi, u32),
        sink: &mut dyn FnMut(RowLayout, Rows<'_>),
    ) -> Result<(), DataError> {
        let layout = if self.has_alpha(header) { RowLayout::Rgba } else { RowLayout::Rgb };
        self.decode_as(layout, bytes, header, window, reduction, &mut |rows| sink(layout, rows))
    }

    /// Whether the image may have transparent pixels.
    fn has_alpha(&self, header: &Header) -> bool {
        self.layouts(header).contains(&RowLayout::Rgba)
    }
}

/// Composes a row over a colour: Pillow's `Image.alpha_composite` (`AlphaComposite.c`) for an
/// opaque background. There, coefficients have 7 fraction bits.
fn compose(row: &[u8], background: [u8; CHANNELS], out: &mut [u8]) {
    let pixels = row.as_chunks::<{ CHANNELS + 1 }>().0;
    for (pixel, out) in pixels.iter().zip(out.as_chunks_mut::<CHANNELS>().0) {
        *out = composed(*pixel, background);
    }
}

fn composed([red, green, blue, alpha]: Rgba, background: [u8; CHANNELS]) -> [u8; CHANNELS] {
    const FRACTION_BITS: u32 = 7;
    let alpha = u32::from(alpha);
    let mut out = background;
    for (out, value) in out.iter_mut().zip([red, green, blue]) {
        let sum = u32::from(value) * alpha + u32::from(*out) * (255 - alpha);
        let sum = (sum + 0x80) << FRACTION_BITS;
        *out = (((sum >> 8) + sum) >> (8 + FRACTION_BITS)) as u8;
    }
    out
}

/// Replaces red, green and blue by Pillow's `convert("L")`, with 16 fraction bits.
fn to_gray(row: &mut [u8]) {
    for pixel in row.as_chunks_mut::<CHANNELS>().0 {
        let [red, green, blue] = pixel.map(u32::from);
        *pixel = [((red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16) as u8; CHANNELS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula of Pillow, with its names.
    fn pillow([r, g, b, a]: Rgba, background: [u8; CHANNELS]) -> [u8; CHANNELS] {
        if a == 0 {
            return background;
        }
        let a = u32::from(a);
        let blend = 255 * (255 - a);
        let outa255 = a * 255 + blend;
        let coef1 = a * 255 * 255 * (1 << 7) / outa255;
        let coef2 = 255 * (1 << 7) - coef1;
        std::array::from_fn(|at| {
            let tmp = u32::from([r, g, b][at]) * coef1 + u32::from(background[at]) * coef2;
            let tmp = tmp + (0x80 << 7);
            (((tmp >> 8) + tmp) >> 8 >> 7) as u8
        })
    }

    #[test]
    fn composition_equals_the_formula_of_pillow_for_all_values() {
        for alpha in 0..=255 {
            for value in 0..=255 {
                for under in [0, 1, 2, 77, 127, 128, 200, 254, 255] {
                    let (pixel, under) = ([value, 255 - value, 3, alpha], [under, 255, value]);
                    assert_eq!(composed(pixel, under), pillow(pixel, under), "{pixel:?} {under:?}");
                }
            }
        }
    }

    #[test]
    fn equal_channels_stay_the_same_gray() {
        for value in 0..=255 {
            let mut row = [value; CHANNELS];
            to_gray(&mut row);
            assert_eq!(row, [value; CHANNELS]);
        }
    }
}
