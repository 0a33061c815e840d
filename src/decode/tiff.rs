//! TIFF decoder. It unpacks a row of strips or tiles into a band of rows, and converts the band to
//! RGB row by row.

use std::ops::Range;

use flate2::{Decompress, FlushDecompress};
use weezl::{BitOrder, decode::Decoder};

use super::rows::{RowGroups, first, grown, most_rows, with_alpha};
use super::{
    Buffers, DecodeMemory, EncodedImage, HostDecoder, LIBRARY_BYTES, RowLayout, RowSink,
    size_changed,
};
use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::Size;
use crate::header::{
    Format, Header, TIFF_FLOAT_BITS, TiffColors, TiffLayout, TiffPacking, TiffPredictor,
    tiff_layout,
};
use crate::tensor::CHANNELS;

/// Maximum size of a pixel in bytes.
const MOST_PIXEL_BYTES: u64 = 8;

/// TIFF decoder.
#[derive(Debug, Default)]
pub(super) struct Tiff;

impl HostDecoder for Tiff {
    fn name(&self) -> &'static str {
        "tiff"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Tiff
    }

    fn memory(&self, header: &Header, head: &[u8], _: u64) -> DecodeMemory {
        let scratch = match tiff_layout(head) {
            Ok(layout) => band_bytes(&layout).saturating_add(tile_bytes(&layout)),
            // The directory is usually at the end of the file, so `head` may lack it. The result is
            // then an upper bound.
            Err(_) => header.size.pixels().saturating_mul(MOST_PIXEL_BYTES),
        };
        let row = CHANNELS as u64 * u64::from(header.size.width);
        let rows = row * most_rows(header.size.height);
        DecodeMemory { rows, scratch, library: LIBRARY_BYTES }
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        match image.layout {
            RowLayout::Rgba => decode::<4>(image, buffers, sink),
            _ => decode::<CHANNELS>(image, buffers, sink),
        }
        .map(|()| None)
    }

    fn layouts(&self, _: &Header) -> &'static [RowLayout] {
        &[RowLayout::Rgb, RowLayout::Rgba]
    }
}

/// Returns the size of one row of strips or tiles, in bytes.
fn band_bytes(layout: &TiffLayout) -> u64 {
    chunk_bytes(layout).saturating_mul(layout.across() as u64)
}

/// Returns the size of one tile in bytes, or 0 for strips. A tile is unpacked first and then copied
/// into the band.
fn tile_bytes(layout: &TiffLayout) -> u64 {
    if layout.tiled { chunk_bytes(layout) } else { 0 }
}

fn chunk_bytes(layout: &TiffLayout) -> u64 {
    (layout.row_bytes() as u64).saturating_mul(layout.chunk.height.into())
}

/// Decodes to rows with the first `N` of red, green, blue and alpha.
fn decode<const N: usize>(
    image: &EncodedImage<'_>,
    Buffers { scratch, rows, clipped, .. }: &mut Buffers,
    sink: &mut RowSink<'_>,
) -> Result<(), DataError> {
    let EncodedImage { bytes, header, window, layout: of_rows, .. } = *image;
    let layout = tiff_layout(bytes)?;
    if layout.bits == TIFF_FLOAT_BITS {
        let problem = "the file is a TIFF with floats; set pixels to f32 (decode.pixels, or pixels \
                       of the view)";
        return Err(DataError::new(Reason::Unsupported, problem));
    }
    let palette = layout.palette(bytes);
    let is_clipped = layout.bits == 16 && matches!(layout.colors, TiffColors::Gray { .. });
    let mut groups = RowGroups::new(rows, (window, of_rows), sink)?;
    read_rows(bytes, &layout, header.size, window.y..window.bottom(), scratch, &mut |_, row| {
        if is_clipped {
            let columns = window.x as usize..window.right() as usize;
            *clipped |= columns.into_iter().any(|x| number(&layout, row, x, 0) > 255.0);
        }
        let out = groups.row().as_chunks_mut::<N>().0;
        for (x, pixel) in (window.x as usize..).zip(out) {
            let alpha = if N == 4 { alpha(&layout, row, x) } else { u8::MAX };
            *pixel = first(with_alpha(color(&layout, &palette, row, x), alpha));
        }
        groups.push();
    })
}

/// Passes the unpacked samples of these rows to `sink`. Each row spans all tiles across the image.
/// `size` is the size in the header.
pub(super) fn read_rows(
    bytes: &[u8],
    layout: &TiffLayout,
    size: Size,
    rows: Range<u32>,
    scratch: &mut Vec<u8>,
    sink: &mut dyn FnMut(u32, &[u8]),
) -> Result<(), DataError> {
    if layout.size != size {
        return Err(size_changed(size, layout.size));
    }
    layout.check(bytes)?;
    let [band, tile] = [band_bytes(layout), tile_bytes(layout)];
    let whole = usize::try_from(band.saturating_add(tile)).unwrap_or(usize::MAX);
    let (band, tile) = grown(scratch, whole)?.split_at_mut(band as usize);
    let pitch = layout.row_bytes() * layout.across();
    let mut loaded = None;
    for y in rows {
        let (row_of_chunks, row) = (y / layout.chunk.height, y % layout.chunk.height);
        if loaded != Some(row_of_chunks) {
            load(layout, bytes, row_of_chunks as usize, band, tile)?;
            loaded = Some(row_of_chunks);
        }
        sink(y, &band[pitch * row as usize..][..pitch]);
    }
    Ok(())
}

/// Sample number `number` of the pixel in column `x` of a row from [`read_rows`], for 8, 16 or 32
/// bits.
pub(super) fn number(layout: &TiffLayout, row: &[u8], x: usize, number: usize) -> f32 {
    let (tile, x) = (x / layout.chunk.width as usize, x % layout.chunk.width as usize);
    let row = &row[layout.row_bytes() * tile..];
    let at = layout.samples * x + number;
    match layout.bits {
        8 => row[at].into(),
        16 => word(layout.little, [row[2 * at], row[2 * at + 1]]).into(),
        _ if layout.predictor == TiffPredictor::Floats => {
            // The row has the highest bytes of all samples first.
            let samples = layout.samples * layout.chunk.width as usize;
            f32::from_be_bytes([0, 1, 2, 3].map(|byte| row[samples * byte + at]))
        }
        _ => f32::from_bits(long(layout.little, [0, 1, 2, 3].map(|byte| row[4 * at + byte]))),
    }
}

/// Unpacks one row of strips or tiles into `band`.
fn load(
    layout: &TiffLayout,
    file: &[u8],
    row_of_chunks: usize,
    band: &mut [u8],
    tile: &mut [u8],
) -> Result<(), DataError> {
    let (across, row_bytes) = (layout.across(), layout.row_bytes());
    let len = row_bytes * layout.chunk_rows(row_of_chunks);
    for column in 0..across {
        let stored = layout.chunk(file, across * row_of_chunks + column)?;
        let out = if layout.tiled { &mut tile[..len] } else { &mut band[..len] };
        unpack(layout.packing, stored, out)?;
        if layout.predictor != TiffPredictor::None {
            out.chunks_exact_mut(row_bytes).for_each(|row| add_up(layout, row));
        }
        if layout.tiled {
            for (row, stored) in tile[..len].chunks_exact(row_bytes).enumerate() {
                let at = row_bytes * (across * row + column);
                band[at..at + row_bytes].copy_from_slice(stored);
            }
        }
    }
    Ok(())
}

fn unpack(packing: TiffPacking, stored: &[u8], out: &mut [u8]) -> Result<(), DataError> {
    let done = match packing {
        TiffPacking::None => {
            let len = stored.len().min(out.len());
            out[..len].copy_from_slice(&stored[..len]);
            len
        }
        TiffPacking::PackBits => unpack_bits(stored, out),
        TiffPacking::Deflate => {
            let mut inflater = Decompress::new(true);
            let result = inflater.decompress(stored, out, FlushDecompress::Finish);
            result.map_err(|error| damaged(&error.to_string()))?;
            inflater.total_out() as usize
        }
        // The first code must be 256. Files of a version of LZW with another order of bits, and
        // damaged ones, begin otherwise.
        TiffPacking::Lzw if !matches!(stored, [0x80, 0..=0x7F, ..]) => {
            return Err(damaged("LZW data without a clear code at its beginning"));
        }
        TiffPacking::Lzw => {
            let mut decoder = Decoder::with_tiff_size_switch(BitOrder::Msb, 8);
            let (mut rest, mut done) = (stored, 0);
            loop {
                let result = decoder.decode_bytes(rest, &mut out[done..]);
                rest = &rest[result.consumed_in..];
                done += result.consumed_out;
                let is_stuck = result.consumed_in == 0 && result.consumed_out == 0;
                match result.status {
                    Err(error) => return Err(damaged(&error.to_string())),
                    Ok(weezl::LzwStatus::Ok) if !is_stuck && done < out.len() => {}
                    Ok(_) => break done,
                }
            }
        }
    };
    if done < out.len() {
        let problem =
            format!("a strip or tile decompresses to {done} bytes instead of {}", out.len());
        return Err(DataError::new(Reason::Truncated, problem));
    }
    Ok(())
}

/// Unpacks PackBits. Returns the number of unpacked bytes.
fn unpack_bits(mut stored: &[u8], out: &mut [u8]) -> usize {
    let mut done = 0;
    while let Some((&head, rest)) = stored.split_first() {
        let left = out.len() - done;
        let head = head as i8;
        let (used, len) = match head {
            -128 => (0, 0),
            0.. => {
                let len = (head as usize + 1).min(rest.len());
                let copied = len.min(left);
                out[done..done + copied].copy_from_slice(&rest[..copied]);
                (len, copied)
            }
            _ => {
                let Some(&value) = rest.first() else { break };
                let len = (1 - isize::from(head)) as usize;
                out[done..done + len.min(left)].fill(value);
                (1, len.min(left))
            }
        };
        done += len;
        stored = &rest[used..];
    }
    done
}

/// Adds to each sample, or byte of a float, that of the pixel on its left.
fn add_up(layout: &TiffLayout, row: &mut [u8]) {
    match layout.bits {
        8 => add_up_bytes(layout, row),
        _ if layout.predictor == TiffPredictor::Floats => add_up_bytes(layout, row),
        16 => {
            let words = row.as_chunks_mut::<2>().0;
            for at in layout.samples..words.len() {
                let sum = word(layout.little, words[at])
                    .wrapping_add(word(layout.little, words[at - layout.samples]));
                words[at] = if layout.little { sum.to_le_bytes() } else { sum.to_be_bytes() };
            }
        }
        _ => {
            let words = row.as_chunks_mut::<4>().0;
            for at in layout.samples..words.len() {
                let sum = long(layout.little, words[at])
                    .wrapping_add(long(layout.little, words[at - layout.samples]));
                words[at] = if layout.little { sum.to_le_bytes() } else { sum.to_be_bytes() };
            }
        }
    }
}

fn add_up_bytes(layout: &TiffLayout, row: &mut [u8]) {
    for at in layout.samples..row.len() {
        row[at] = row[at].wrapping_add(row[at - layout.samples]);
    }
}

fn word(little: bool, bytes: [u8; 2]) -> u16 {
    if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
}

fn long(little: bool, bytes: [u8; 4]) -> u32 {
    if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
}

/// Returns the alpha of a pixel in a row of the band: 255 without an alpha channel. Of 16 bits, the
/// high byte is used.
fn alpha(layout: &TiffLayout, row: &[u8], x: usize) -> u8 {
    let Some(number) = layout.alpha else { return u8::MAX };
    let (tile, x) = (x / layout.chunk.width as usize, x % layout.chunk.width as usize);
    let (row, at) = (&row[layout.row_bytes() * tile..], layout.samples * x + number);
    if layout.bits == 16 { row[2 * at + usize::from(layout.little)] } else { row[at] }
}

/// Returns the palette index of the pixel in column `x` of a row from [`read_rows`].
pub(super) fn index(layout: &TiffLayout, row: &[u8], x: usize) -> u8 {
    let (tile, x) = (x / layout.chunk.width as usize, x % layout.chunk.width as usize);
    let row = &row[layout.row_bytes() * tile..];
    match layout.bits {
        8 => row[layout.samples * x],
        _ => small(layout, row, x),
    }
}

/// Sample of fewer than 8 bits of the pixel in column `x` of a row of a strip or tile.
fn small(layout: &TiffLayout, row: &[u8], x: usize) -> u8 {
    let at = x * layout.bits as usize;
    row[at / 8] << (at % 8) >> (8 - layout.bits)
}

/// Returns the color of a pixel in a row of the band, by Pillow's formulas.
fn color(layout: &TiffLayout, palette: &[[u8; 3]; 256], row: &[u8], x: usize) -> [u8; CHANNELS] {
    let (tile, x) = (x / layout.chunk.width as usize, x % layout.chunk.width as usize);
    let row = &row[layout.row_bytes() * tile..];
    let samples = layout.samples;
    // Only the high byte of a 16-bit sample is used.
    let sample = |number: usize| match layout.bits {
        16 => row[2 * (samples * x + number) + usize::from(layout.little)],
        _ => row[samples * x + number],
    };
    match layout.colors {
        TiffColors::Gray { .. } | TiffColors::Indices if layout.bits < 8 => {
            let value = small(layout, row, x);
            match layout.colors {
                TiffColors::Gray { inverted } => {
                    let value = value * (255 / ((1u16 << layout.bits) - 1) as u8);
                    [if inverted { 255 - value } else { value }; CHANNELS]
                }
                _ => palette[usize::from(value)],
            }
        }
        // The value is clipped instead of scaled, as in Pillow's conversion of mode `I;16`.
        TiffColors::Gray { .. } if layout.bits == 16 => {
            let value = word(layout.little, [row[2 * x], row[2 * x + 1]]);
            [value.min(255) as u8; CHANNELS]
        }
        TiffColors::Gray { inverted } => {
            [if inverted { 255 - sample(0) } else { sample(0) }; CHANNELS]
        }
        TiffColors::Indices => palette[usize::from(sample(0))],
        TiffColors::Rgb => [0, 1, 2].map(sample),
        TiffColors::Multiplied => match sample(3) {
            0 => [0; CHANNELS],
            255 => [0, 1, 2].map(sample),
            alpha => [0, 1, 2].map(|at| {
                let divided = u32::from(sample(at)) * 255 / u32::from(alpha);
                divided.min(255) as u8
            }),
        },
        TiffColors::Inks => {
            let light = 255 - sample(3);
            [0, 1, 2].map(|at| light - scaled(sample(at), light))
        }
    }
}

/// Returns `a * b / 255`, rounded.
fn scaled(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    (((product >> 8) + product) >> 8) as u8
}

fn damaged(error: &str) -> DataError {
    DataError::new(Reason::Corrupt, format!("a strip or tile is damaged: {error}"))
}
