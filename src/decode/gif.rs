//! GIF decoder. It unpacks the color indices of the first frame and looks up their colors. As in
//! Pillow, a transparent pixel has the color of its index, and alpha 0 if alpha is decoded.

use weezl::{BitOrder, LzwStatus, decode::Decoder};

use super::rows::{RowGroups, first, grown, most_rows, with_alpha};
use super::{
    Buffers, DecodeMemory, EncodedImage, HostDecoder, LIBRARY_BYTES, RowLayout, RowSink,
    size_changed,
};
use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::Roi;
use crate::header::{Format, GifLayout, Header, gif_layout};
use crate::tensor::CHANNELS;

/// First row and row step of each pass of an interlaced frame.
const PASSES: [(usize, usize); 4] = [(0, 8), (4, 8), (2, 4), (1, 2)];

/// GIF decoder.
#[derive(Debug, Default)]
pub(super) struct Gif;

impl HostDecoder for Gif {
    fn name(&self) -> &'static str {
        "gif"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Gif
    }

    fn memory(&self, header: &Header, _: &[u8], _: u64) -> DecodeMemory {
        let row = CHANNELS as u64 * u64::from(header.size.width);
        DecodeMemory {
            rows: row * most_rows(header.size.height),
            scratch: header.size.pixels(),
            library: LIBRARY_BYTES,
        }
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

/// Decodes to rows with the first `N` of red, green, blue and alpha.
fn decode<const N: usize>(
    image: &EncodedImage<'_>,
    buffers: &mut Buffers,
    sink: &mut RowSink<'_>,
) -> Result<(), DataError> {
    let EncodedImage { bytes, header, window, layout: rows, .. } = *image;
    let layout = gif_layout(bytes)?;
    let GifLayout { size, frame, transparent, interlaced, .. } = layout;
    if size != header.size {
        return Err(size_changed(header.size, size));
    }
    let [width, height] = [frame.width as usize, frame.height as usize];
    let indices = grown(&mut buffers.scratch, width * height)?;
    unpack(&layout, indices)?;
    let mut colors: [_; 256] = std::array::from_fn(|index| [index as u8; CHANNELS]);
    if !layout.palette.is_empty() {
        colors = [[0; CHANNELS]; 256];
        for (color, stored) in colors.iter_mut().zip(layout.palette.as_chunks().0) {
            *color = *stored;
        }
    }
    let mut colors = colors.map(|color| first::<N>(with_alpha(color, u8::MAX)));
    if let (Some(index), 4) = (transparent, N) {
        colors[usize::from(index)][3] = 0;
    }
    let mut groups = RowGroups::new(&mut buffers.rows, (window, rows), sink)?;
    for y in window.y..window.bottom() {
        let row = groups.row().as_chunks_mut::<N>().0;
        row.fill(colors[usize::from(transparent.unwrap_or(0))]);
        let seen = frame.intersection(Roi::new(window.x, y, window.width, 1));
        if !seen.is_empty() {
            let place = (y - frame.y) as usize;
            let place = if interlaced { coded_row(place, height) } else { place };
            let stored = &indices[width * place + (seen.x - frame.x) as usize..];
            let row = &mut row[(seen.x - window.x) as usize..][..seen.width as usize];
            for (pixel, index) in row.iter_mut().zip(stored) {
                *pixel = colors[usize::from(*index)];
            }
        }
        groups.push();
    }
    Ok(())
}

/// Returns the number of coded rows before a row of an interlaced frame.
fn coded_row(row: usize, height: usize) -> usize {
    let mut before = 0;
    for (first, step) in PASSES {
        if row >= first && (row - first).is_multiple_of(step) {
            return before + (row - first) / step;
        }
        before += height.saturating_sub(first).div_ceil(step);
    }
    before
}

fn unpack(layout: &GifLayout<'_>, mut out: &mut [u8]) -> Result<(), DataError> {
    let mut blocks = layout.blocks;
    let mut decoder = Decoder::new(BitOrder::Lsb, layout.code_bits);
    let ends = || DataError::new(Reason::Truncated, "the LZW codes end before the image does");
    while !out.is_empty() {
        let mut block = blocks.next()?.ok_or_else(ends)?;
        while !block.is_empty() && !out.is_empty() {
            let result = decoder.decode_bytes(block, out);
            block = &block[result.consumed_in..];
            out = &mut out[result.consumed_out..];
            match result.status {
                Ok(LzwStatus::Ok) => {}
                Ok(LzwStatus::NoProgress) => break,
                Ok(LzwStatus::Done) if out.is_empty() => {}
                Ok(LzwStatus::Done) => return Err(ends()),
                Err(error) => {
                    let problem = format!("the LZW codes are corrupt: {error}");
                    return Err(DataError::new(Reason::Corrupt, problem));
                }
            }
        }
    }
    Ok(())
}
