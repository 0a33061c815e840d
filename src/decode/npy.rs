//! Decoding of images in `.npy` files of NumPy.

use super::rows::{RowGroups, first, most_rows};
use super::{
    Buffers, DecodeMemory, EncodedImage, HostDecoder, RowLayout, RowSink, size_changed, unsupported,
};
use crate::error::{DataError, Tolerated};
use crate::header::{Format, Header, NpyLayout, npy_layout};
use crate::image::PixelFormat;
use crate::tensor::CHANNELS;

/// Decoder of arrays of bytes.
#[derive(Debug, Default)]
pub(super) struct Npy;

impl HostDecoder for Npy {
    fn name(&self) -> &'static str {
        "npy"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Npy
    }

    fn memory(&self, header: &Header, _: &[u8], _: u64) -> DecodeMemory {
        let row = CHANNELS as u64 * u64::from(header.size.width);
        DecodeMemory { rows: row * most_rows(header.size.height), ..DecodeMemory::default() }
    }

    fn layouts(&self, _: &Header) -> &'static [RowLayout] {
        &[RowLayout::Rgb, RowLayout::Rgba]
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        match image.layout {
            RowLayout::Rgba => decode::<4>(image, &mut buffers.rows, sink),
            _ => decode::<CHANNELS>(image, &mut buffers.rows, sink),
        }
        .map(|()| None)
    }
}

/// Decodes to rows with the first `N` of red, green, blue and alpha.
fn decode<const N: usize>(
    image: &EncodedImage<'_>,
    rows: &mut Vec<u8>,
    sink: &mut RowSink<'_>,
) -> Result<(), DataError> {
    let EncodedImage { bytes, header, window, layout: of_rows, .. } = *image;
    let layout = npy_layout(bytes)?;
    if layout.size != header.size {
        return Err(size_changed(header.size, layout.size));
    }
    if !layout.has_bytes() {
        let floats = if N == 4 { "f32x4" } else { "f32 or f32x3" };
        let formats = match (layout.item.kind, layout.item.bytes) {
            (b'u', 2) if N == 4 => format!("u16x4 or {floats}"),
            (b'u', 2) => format!("u16, u16x3, {floats}"),
            _ => floats.into(),
        };
        return Err(unsupported(format!(
            "the array has elements of the type {}, but the pixels have 8 bits; set pixels to \
             {formats} (decode.pixels, or pixels of the view), or convert the array with \
             astype(np.uint8)",
            layout.item.words()
        )));
    }
    let samples = &bytes[layout.start..];
    let mut groups = RowGroups::new(rows, (window, of_rows), sink)?;
    for y in window.y as usize..window.bottom() as usize {
        let out = groups.row().as_chunks_mut::<N>().0;
        for (x, pixel) in (window.x as usize..).zip(out) {
            let sample = |channel| samples[layout.place(x, y, channel)];
            *pixel = first(match layout.channels {
                1 => [sample(0), sample(0), sample(0), u8::MAX],
                3 => [sample(0), sample(1), sample(2), u8::MAX],
                _ => [0, 1, 2, 3].map(sample),
            });
        }
        groups.push();
    }
    Ok(())
}

/// Integers up to this number are exact in f32.
const MOST_EXACT: u128 = 1 << 24;

/// The sample of a channel of a pixel as a float. `samples` are the bytes of all samples.
///
/// # Errors
/// The number and the way out, if pixels of this format cannot have the number.
pub(super) fn number(
    layout: &NpyLayout,
    samples: &[u8],
    (x, y, channel): (usize, usize, usize),
    format: PixelFormat,
) -> Result<f32, String> {
    let (item, bytes) = (layout.item, layout.item.bytes as usize);
    let stored = &samples[bytes * layout.place(x, y, channel)..][..bytes];
    let name = format.name();
    match (item.kind, item.bytes) {
        (b'f', 8) => {
            let number = item.double(stored);
            match number.is_finite() && !(number as f32).is_finite() {
                true => Err(format!("has the number {number}, which is too large for f32")),
                false => Ok(number as f32),
            }
        }
        (b'f', _) => Ok(item.float(stored)),
        _ => match item.integer(stored) {
            number if format.is_16_bit() && !(0..=0xffff).contains(&number) => Err(format!(
                "has the number {number}, but {name} pixels are from 0 to 65535; set pixels to {} \
                 (decode.pixels, or pixels of the view)",
                if layout.channels == 1 { "f32" } else { "f32x3" }
            )),
            number if number.unsigned_abs() > MOST_EXACT => Err(format!(
                "has the number {number}, but {name} pixels hold integers up to {MOST_EXACT} \
                 exactly; convert the array to floats"
            )),
            number => Ok(number as f32),
        },
    }
}
