//! Decoding to images of 16 bits and of floats ([`PixelFormat`]).
//!
//! | file | `u16`, `u16x3`, `u16x4` | `f32`, `f32x3`, `f32x4` |
//! |---|---|---|
//! | PNG of 16 bits | samples | samples |
//! | PNG of up to 8 bits | error | samples |
//! | binary PNM with a maximum above 255 | samples, scaled to 0 to 65535 | samples |
//! | binary PNM with a maximum up to 255 | error | samples |
//! | TIFF of 16 bits, in gray or RGB | samples | samples |
//! | TIFF of 8 bits, in gray or RGB | error | samples |
//! | PFM, TIFF of floats, and `.npy` of floats | error | numbers |
//! | `.npy` of integers of 16 to 64 bits | numbers from 0 to 65535 | numbers up to 2^24 |
//! | `.npy` of 8 bits | error | numbers |
//!
//! Files in gray have three equal channels in formats of several channels. Files in RGB are errors
//! in `u16` and `f32`. Alpha channels are dropped, except in `u16x4` and `f32x4`. There, the alpha
//! of a file without an alpha channel is the maximum of its integers, or 1 for floats. A PNG's tRNS
//! chunk makes the pixels of one colour transparent, whose samples are compared with all their
//! bits. Damage that image decoders tolerate is an error here, because a wrong number is not
//! visible.

use std::cell::RefCell;

use super::npy::number as number_of_array;
use super::png::{PngSamples, packed_sample, read_png};
#[cfg(feature = "tiff")]
use super::tiff::{number, read_rows};
use super::{Decoders, size_changed, unsupported};
use crate::error::DataError;
use crate::geometry::Roi;
use crate::header::{
    Format, Header, PfmLayout, PnmCoding, PnmLayout, npy_layout, pfm_layout, png_layout, pnm_layout,
};
#[cfg(feature = "tiff")]
use crate::header::{TIFF_FLOAT_BITS, TiffColors, tiff_layout};
use crate::image::PixelFormat;
use crate::tensor::CHANNELS;

/// Pixels of a part of a row.
#[derive(Clone, Copy, Debug)]
pub struct FloatPart<'a> {
    /// Column of the first pixel.
    pub x: u32,
    /// Row.
    pub y: u32,
    /// The pixels.
    pub pixels: &'a [[f32; CHANNELS]],
    /// Alpha of the pixels. Empty if the format has no alpha channel.
    pub alpha: &'a [f32],
}

impl FloatPart<'_> {
    /// Maximum number of pixels of a part.
    const MOST: usize = 256;
}

/// Receives the parts of the rows of a window.
pub type FloatSink<'a> = dyn FnMut(FloatPart<'_>) + 'a;

impl Decoders {
    /// Decodes the pixels of `window` to 16 bits or floats, and passes them to `sink`. Damage is an
    /// error, whatever [`strict`](Self::strict) is. The other rules are those of
    /// [`decode`](Self::decode).
    pub fn decode_floats(
        &mut self,
        bytes: &[u8],
        header: &Header,
        format: PixelFormat,
        window: Roi,
        sink: &mut FloatSink<'_>,
    ) -> Result<(), DataError> {
        super::check(header, window, 1)?;
        (self.tolerated, self.jpeg_by) = (None, None);
        if window.is_empty() {
            return Ok(());
        }
        decode(bytes, header, format, window, (&mut self.buffers.scratch, sink))
    }
}

/// Decodes the pixels of `window` to floats. `scratch` is memory for an interlaced PNG.
///
/// # Errors
/// `Unsupported` for files that do not have this format. `Corrupt` and `Truncated` for damaged
/// files.
fn decode(
    bytes: &[u8],
    header: &Header,
    format: PixelFormat,
    window: Roi,
    (scratch, sink): (&mut Vec<u8>, &mut FloatSink<'_>),
) -> Result<(), DataError> {
    match header.format {
        Format::Png => png(bytes, header, format, window, (scratch, sink)),
        Format::Pnm => pnm(bytes, header, format, window, sink),
        Format::Pfm => pfm(bytes, header, format, window, sink),
        Format::Npy => npy(bytes, header, format, window, sink),
        #[cfg(feature = "tiff")]
        Format::Tiff => tiff(bytes, header, format, window, (scratch, sink)),
        other => {
            let also = if format.is_as_stored() { ", PFM" } else { "" };
            let problem = format!(
                "the file is a {}, but {} pixels are read from PNG, TIFF, .npy{also} and binary PNM only; u8x3 \
                 reads all formats",
                other.name(),
                format.name()
            );
            Err(unsupported(problem))
        }
    }
}

/// Checks that a file with this number of channels, without alpha, and of bits per sample has the
/// format.
fn check(format: PixelFormat, channels: usize, bits: usize) -> Result<(), DataError> {
    let name = format.name();
    if channels > format.channels() {
        let problem = format!(
            "the file has {channels} channels, but {name} pixels have one; use {name}x3 for such \
             files, or save it as a gray image"
        );
        return Err(unsupported(problem));
    }
    if bits != 16 && format.is_16_bit() {
        let problem = format!(
            "the file has {bits} bits per sample, but {name} pixels are read from files with 16 \
             bits only; use {}, which takes numbers as stored, or u8x3",
            floats(format, channels)
        );
        return Err(unsupported(problem));
    }
    Ok(())
}

/// Name of the format of floats for a file with this number of channels, without alpha.
fn floats(format: PixelFormat, channels: usize) -> &'static str {
    match channels {
        _ if format.has_alpha() => "f32x4",
        3 => "f32x3",
        _ => "f32",
    }
}

/// Samples of the pixels in a row of a file.
struct Samples<F, A> {
    /// Number of channels, with or without alpha. A file with one channel has three equal channels.
    channels: usize,
    /// Returns a channel of the pixel in a column.
    sample: F,
    /// Returns the alpha of the pixel in a column, which has this colour.
    alpha: A,
}

/// Passes the window's pixels of row `y` to the sink, with alpha if the format has it.
fn put_row(
    (window, y, format): (Roi, u32, PixelFormat),
    sink: &mut FloatSink<'_>,
    Samples { channels, sample, alpha }: Samples<
        impl Fn(usize, usize) -> f32,
        impl Fn(usize, [f32; CHANNELS]) -> f32,
    >,
) {
    let mut part = [[0.0; CHANNELS]; FloatPart::MOST];
    let mut alphas = [0.0; FloatPart::MOST];
    let mut x = window.x;
    while x < window.right() {
        let len = FloatPart::MOST.min((window.right() - x) as usize);
        let pixels = &mut part[..len];
        for (column, pixel) in (x as usize..).zip(pixels.iter_mut()) {
            *pixel = match channels {
                1 | 2 => [sample(column, 0); CHANNELS],
                _ => [0, 1, 2].map(|channel| sample(column, channel)),
            };
        }
        let alphas = &mut alphas[..if format.has_alpha() { len } else { 0 }];
        for ((column, pixel), out) in (x as usize..).zip(&*pixels).zip(alphas.iter_mut()) {
            *out = alpha(column, *pixel);
        }
        sink(FloatPart { x, y, pixels, alpha: alphas });
        x += len as u32;
    }
}

/// Maximum of an integer of this number of bits.
fn most(bits: usize) -> f32 {
    ((1u32 << bits) - 1) as f32
}

fn png(
    bytes: &[u8],
    header: &Header,
    format: PixelFormat,
    window: Roi,
    (scratch, sink): (&mut Vec<u8>, &mut FloatSink<'_>),
) -> Result<(), DataError> {
    let mut transparent: &[u8] = &[];
    if format.has_alpha() {
        let layout = png_layout(bytes)?;
        layout.check_transparency()?;
        transparent = layout.transparency;
    }
    let check = |samples: PngSamples| check(format, samples.channels(), samples.bits);
    let row = |samples: PngSamples, y, row: &[u8]| {
        if y < window.y {
            return;
        }
        let (channels, bits) = (samples.per_pixel, samples.bits);
        let sample = |x, channel| png_sample(row, samples, samples.per_pixel * x + channel);
        let is_transparent = |pixel: [f32; CHANNELS]| {
            let colour = transparent.as_chunks().0.iter().take(channels);
            let mut colour = colour.map(|word| f32::from(u16::from_be_bytes(*word))).zip(pixel);
            transparent.len() >= 2 * channels && colour.all(|(sample, of_pixel)| sample == of_pixel)
        };
        let alpha = |x, pixel| match channels {
            2 | 4 => sample(x, channels - 1),
            _ if is_transparent(pixel) => 0.0,
            _ => most(bits),
        };
        put_row((window, y, format), sink, Samples { channels, sample, alpha });
    };
    read_png(bytes, header.size, window.bottom(), scratch, check, row)
}

/// Sample number `place` of a row of a PNG.
fn png_sample(row: &[u8], PngSamples { bits, .. }: PngSamples, place: usize) -> f32 {
    match bits {
        16 => u16::from_be_bytes([row[2 * place], row[2 * place + 1]]).into(),
        8 => row[place].into(),
        _ => packed_sample(row, bits, place).into(),
    }
}

fn pnm(
    bytes: &[u8],
    header: &Header,
    format: PixelFormat,
    window: Roi,
    sink: &mut FloatSink<'_>,
) -> Result<(), DataError> {
    let PnmLayout { size, channels, coding, white, start } = pnm_layout(bytes)?;
    if size != header.size {
        return Err(size_changed(header.size, size));
    }
    let bits = match coding {
        PnmCoding::Bytes => 8,
        PnmCoding::Words => 16,
        _ => {
            let problem = "the file is a bitmap (P1, P4) or a PNM of text (P2, P3); save it as \
                           binary PGM (P5) or PPM (P6)";
            return Err(unsupported(problem));
        }
    };
    check(format, channels, bits)?;
    let samples = &bytes[start..];
    let (one, white) = (f64::from(format.scale()), f64::from(white));
    let value = |value: u16| match format.is_16_bit() {
        // As in Pillow, samples are scaled, and values above the maximum become the maximum.
        true => (f64::from(value) / white * one).round_ties_even().min(one) as f32,
        false => value.into(),
    };
    for y in window.y..window.bottom() {
        let row = channels * size.width as usize * y as usize;
        let sample = |x: usize, channel: usize| {
            let place = row + channels * x + channel;
            value(match bits {
                8 => samples[place].into(),
                _ => u16::from_be_bytes([samples[2 * place], samples[2 * place + 1]]),
            })
        };
        let alpha = |_, _| if format.is_16_bit() { format.scale() } else { white as f32 };
        put_row((window, y, format), sink, Samples { channels, sample, alpha });
    }
    Ok(())
}

#[cfg(feature = "tiff")]
fn tiff(
    bytes: &[u8],
    header: &Header,
    format: PixelFormat,
    window: Roi,
    (scratch, sink): (&mut Vec<u8>, &mut FloatSink<'_>),
) -> Result<(), DataError> {
    let layout = tiff_layout(bytes)?;
    let channels = match layout.colors {
        TiffColors::Gray { inverted: false } if layout.bits >= 8 => 1,
        TiffColors::Rgb => 3,
        _ => {
            let name = format.name();
            let problem = format!(
                "{name} pixels are read only from RGB TIFFs, and from gray TIFFs of at least 8 \
                 bits in which 0 is black"
            );
            return Err(unsupported(problem));
        }
    };
    if layout.bits == TIFF_FLOAT_BITS && format.is_16_bit() {
        return Err(has_floats("TIFF", channels, format));
    }
    let bits = layout.bits as usize;
    check(format, channels, bits)?;
    let rows = window.y..window.bottom();
    read_rows(bytes, &layout, header.size, rows, scratch, &mut |y, row| {
        let sample = |x, channel| number(&layout, row, x, channel);
        let alpha = |x, _| match layout.alpha {
            Some(channel) => sample(x, channel),
            None if layout.bits == TIFF_FLOAT_BITS => 1.0,
            None => most(bits),
        };
        put_row((window, y, format), sink, Samples { channels, sample, alpha });
    })
}

fn npy(
    bytes: &[u8],
    header: &Header,
    format: PixelFormat,
    window: Roi,
    sink: &mut FloatSink<'_>,
) -> Result<(), DataError> {
    let layout = npy_layout(bytes)?;
    if layout.size != header.size {
        return Err(size_changed(header.size, layout.size));
    }
    let channels = if layout.channels == 1 { 1 } else { CHANNELS };
    if layout.item.kind == b'f' && format.is_16_bit() {
        return Err(has_floats(".npy array", channels, format));
    }
    // Wider integers may have numbers of 16 bits.
    check(format, channels, if layout.item.bytes == 1 { 8 } else { 16 })?;
    let samples = &bytes[layout.start..];
    for y in window.y..window.bottom() {
        let problem = RefCell::new(None);
        let sample = |x, channel| {
            let number = number_of_array(&layout, samples, (x, y as usize, channel), format);
            number.unwrap_or_else(|text| {
                problem.borrow_mut().get_or_insert(text);
                f32::NAN
            })
        };
        let alpha = |x, _| match layout.channels {
            4 => sample(x, 3),
            _ if layout.item.kind == b'f' => 1.0,
            // Wider integers have numbers of 16 bits.
            _ => most(if layout.item.bytes == 1 { 8 } else { 16 }),
        };
        put_row((window, y, format), sink, Samples { channels: layout.channels, sample, alpha });
        if let Some(problem) = problem.take() {
            return Err(unsupported(format!("the array {problem}")));
        }
    }
    Ok(())
}

/// Error for a file of floats if the pixels have 16 bits.
fn has_floats(name: &str, channels: usize, format: PixelFormat) -> DataError {
    let other = floats(format, channels);
    let format = format.name();
    unsupported(format!(
        "the file is a {name} with floats, but the pixels are {format}; use {other}"
    ))
}

fn pfm(
    bytes: &[u8],
    header: &Header,
    format: PixelFormat,
    window: Roi,
    sink: &mut FloatSink<'_>,
) -> Result<(), DataError> {
    let PfmLayout { size, channels, is_little_endian, start } = pfm_layout(bytes)?;
    if size != header.size {
        return Err(size_changed(header.size, size));
    }
    if format.is_16_bit() {
        return Err(has_floats("PFM", channels, format));
    }
    check(format, channels, 32)?;
    let (values, _) = bytes[start..].as_chunks();
    for y in window.y..window.bottom() {
        // Rows are stored from the bottom.
        let row = channels * size.width as usize * (size.height - 1 - y) as usize;
        let sample = |x: usize, channel: usize| {
            let value = values[row + channels * x + channel];
            if is_little_endian { f32::from_le_bytes(value) } else { f32::from_be_bytes(value) }
        };
        put_row((window, y, format), sink, Samples { channels, sample, alpha: |_, _| 1.0 });
    }
    Ok(())
}
