//! PNM: the window's pixels are copied, nothing else is touched.
//!
//! Samples whose largest value is not 255 are stretched to 0 to 255 as Pillow does it: the nearest, halves to the even
//! one; what is above the largest value is 255. Gray becomes three equal channels.

use super::{RowSink, grown, size_changed};
use crate::error::Fault;
use crate::geometry::{Roi, Size};
use crate::header::{PnmLayout, pnm_layout};
use crate::tensor::CHANNELS;

/// Decodes a window, see `HostDecoder::decode`.
pub(super) fn decode(
    line: &mut Vec<u8>,
    bytes: &[u8],
    size: Size,
    window: Roi,
    row: &mut RowSink<'_>,
) -> Result<(), Fault> {
    let PnmLayout { size: found, channels, white, start } = pnm_layout(bytes)?;
    if found != size {
        return Err(size_changed(size, found));
    }
    let stretched = (white != 255).then(|| stretched(white));
    let stride = channels * size.width as usize;
    let (left, width) = (channels * window.x as usize, channels * window.width as usize);
    for y in window.y..window.bottom() {
        let stored = &bytes[start + stride * y as usize + left..][..width];
        if channels == CHANNELS && stretched.is_none() {
            row(y, stored);
            continue;
        }
        let line = grown(line, CHANNELS * window.width as usize);
        let value = |byte: u8| stretched.as_ref().map_or(byte, |table| table[usize::from(byte)]);
        if channels == CHANNELS {
            line.iter_mut().zip(stored).for_each(|(out, &byte)| *out = value(byte));
        } else {
            let pixels = line.chunks_exact_mut(CHANNELS).zip(stored);
            pixels.for_each(|(out, &byte)| out.fill(value(byte)));
        }
        row(y, line);
    }
    Ok(())
}

/// What each byte becomes.
fn stretched(white: u8) -> [u8; 256] {
    std::array::from_fn(|byte| {
        let value = byte as f64 / f64::from(white) * 255.0;
        value.round_ties_even().min(255.0) as u8
    })
}
