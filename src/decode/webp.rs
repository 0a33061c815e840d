//! WebP through the `image-webp` crate, which equals libwebp (and so Pillow) bit for bit, lossy and lossless.
//!
//! Of an animation the first frame counts. The crate decodes whole pictures only; rows outside the window are
//! dropped.

use std::io::{Cursor, ErrorKind};

use image_webp::{DecodingError, WebPDecoder};

use super::{RowSink, grown, size_changed};
use crate::error::{Fault, Reason};
use crate::geometry::{Roi, Size};
use crate::tensor::CHANNELS;

/// Decodes a window, see `HostDecoder::decode`.
pub(super) fn decode(
    scratch: &mut Vec<u8>,
    line: &mut Vec<u8>,
    bytes: &[u8],
    size: Size,
    window: Roi,
    row: &mut RowSink<'_>,
) -> Result<(), Fault> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(fault)?;
    let (width, height) = decoder.dimensions();
    if Size::new(width, height) != size {
        return Err(size_changed(size, Size::new(width, height)));
    }
    let channels = if decoder.has_alpha() { 4 } else { CHANNELS };
    let stride = channels * width as usize;
    let pixels = grown(scratch, stride * height as usize);
    decoder.read_image(pixels).map_err(fault)?;
    let line = grown(line, CHANNELS * window.width as usize);
    for y in window.y..window.bottom() {
        let stored = &pixels[stride * y as usize + channels * window.x as usize..];
        for (stored, out) in stored.chunks_exact(channels).zip(line.chunks_exact_mut(CHANNELS)) {
            out.copy_from_slice(&stored[..CHANNELS]);
        }
        row(y, line);
    }
    Ok(())
}

fn fault(error: DecodingError) -> Fault {
    let reason = match &error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Reason::Truncated
        }
        DecodingError::ImageTooLarge | DecodingError::MemoryLimitExceeded => Reason::Oversized,
        _ => Reason::Corrupt,
    };
    Fault::new(reason, format!("the WebP cannot be decoded: {error}"))
}
