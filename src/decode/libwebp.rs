//! WebP through libwebp, as Pillow does it: every `unsafe` that touches it.
//!
//! An image is the first frame on a black canvas, without alpha: what Pillow's `Image.open(file).convert("RGB")` gives
//! of an animation too, whose background color it ignores. libwebp decodes the frame down to the last row of the window
//! and stores the window only. Its memory comes from `malloc`; where that fails, the sample fails.
#![allow(unsafe_code)]

use std::ffi::c_int;

use libwebp_sys as sys;
use sys::{VP8StatusCode, WEBP_CSP_MODE, WebPDecoderConfig, WebPRGBABuffer};

use super::{RowSink, grown, size_changed};
use crate::error::{DataError, Reason};
use crate::geometry::{Roi, Size};
use crate::header::{WebpLayout, webp_layout};
use crate::tensor::CHANNELS;

/// Columns and rows decoded around a window: at the edge of a crop the upsampling of chroma lacks its neighbours. Crops
/// begin at even columns and rows, where a chroma sample does.
const MARGIN: u32 = 2;

/// Decodes a window, see `HostDecoder::decode`.
pub(super) fn decode(
    scratch: &mut Vec<u8>,
    line: &mut Vec<u8>,
    bytes: &[u8],
    size: Size,
    window: Roi,
    row: &mut RowSink<'_>,
) -> Result<(), DataError> {
    let WebpLayout { size: found, frame, chunks } = webp_layout(bytes)?;
    if found != size {
        return Err(size_changed(size, found));
    }
    let seen = window.intersection(frame);
    let crop = crop(seen, frame);
    let stride = CHANNELS * crop.width as usize;
    let pixels = grown(scratch, stride * crop.height as usize)?;
    if !seen.is_empty() {
        decode_crop(chunks, crop, pixels)?;
    }
    let line = grown(line, CHANNELS * window.width as usize)?;
    line.fill(0);
    let bytes_of = |columns: u32| CHANNELS * columns as usize;
    let place = bytes_of(seen.x.saturating_sub(window.x))..;
    for y in window.y..window.bottom() {
        if (seen.y..seen.bottom()).contains(&y) {
            let stored = &pixels[stride * (y - frame.y - crop.y) as usize..];
            let stored = &stored[bytes_of(seen.x - frame.x - crop.x)..][..bytes_of(seen.width)];
            line[place.clone()][..stored.len()].copy_from_slice(stored);
        } else {
            line.fill(0);
        }
        row(y, line);
    }
    Ok(())
}

/// The part of a frame to ask libwebp for, so that the pixels that are `seen` are those of a whole decode.
fn crop(seen: Roi, frame: Roi) -> Roi {
    if seen.is_empty() {
        return Roi::default();
    }
    let start = |at: u32| at.saturating_sub(MARGIN) & !1;
    let (x, y) = (start(seen.x - frame.x), start(seen.y - frame.y));
    let right = (seen.right() - frame.x + MARGIN).min(frame.width);
    let bottom = (seen.bottom() - frame.y + MARGIN).min(frame.height);
    Roi::new(x, y, right - x, bottom - y)
}

/// Decodes a part of a frame into `pixels`, three bytes each, rows without gaps.
fn decode_crop(chunks: &[u8], crop: Roi, pixels: &mut [u8]) -> Result<(), DataError> {
    let Ok(mut config) = WebPDecoderConfig::new() else {
        return Err(DataError::new(
            Reason::Unsupported,
            "libwebp has another version than its header",
        ));
    };
    // Sides have at most 14 bits.
    let [left, top, width, height] =
        [crop.x, crop.y, crop.width, crop.height].map(|it| it as c_int);
    config.options.use_cropping = 1;
    config.options.crop_left = left;
    config.options.crop_top = top;
    config.options.crop_width = width;
    config.options.crop_height = height;
    config.output.colorspace = WEBP_CSP_MODE::MODE_RGB;
    config.output.is_external_memory = 1;
    let stride = CHANNELS as c_int * width;
    let buffer = WebPRGBABuffer { rgba: pixels.as_mut_ptr(), stride, size: pixels.len() };
    config.output.u.RGBA = buffer;
    // SAFETY: `chunks` and `pixels` outlive the call. libwebp reads the former, and writes into the latter after it has
    // checked that `height` rows of `stride` bytes fit into its size. It leaves external memory to its owner and keeps
    // nothing that would have to be freed.
    let status = unsafe { sys::WebPDecode(chunks.as_ptr(), chunks.len(), &mut config) };
    let (reason, problem) = match status {
        VP8StatusCode::VP8_STATUS_OK => return Ok(()),
        VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY => (Reason::OutOfMemory, "memory is exhausted"),
        VP8StatusCode::VP8_STATUS_SUSPENDED | VP8StatusCode::VP8_STATUS_NOT_ENOUGH_DATA => {
            (Reason::Truncated, "the file ends before the image does")
        }
        VP8StatusCode::VP8_STATUS_UNSUPPORTED_FEATURE => {
            (Reason::Unsupported, "libwebp does not know a feature of it")
        }
        _ => (Reason::Corrupt, "the coded data are damaged"),
    };
    Err(DataError::new(reason, format!("the WebP cannot be decoded: {problem}")))
}
