//! WebP decoding with libwebp, with the same pixels as Pillow. All `unsafe` code that calls libwebp
//! is here.
//!
//! The result is the first frame on a black canvas, without alpha, or on a transparent canvas.
//! Pillow's `Image.open(file).convert("RGB")` returns the same for an animation, because it ignores
//! the background color. libwebp decodes the frame down to the last row of the window and stores
//! only the window. It allocates with `malloc`. A failed allocation is a sample error.
#![allow(unsafe_code)]

use std::ffi::c_int;

use libwebp_sys as sys;
use sys::{VP8StatusCode, WEBP_CSP_MODE, WebPDecoderConfig, WebPRGBABuffer};

use super::rows::{RowGroups, grown, hand_on, most_rows};
use super::{
    Buffers, DecodeMemory, EncodedImage, HostDecoder, LIBRARY_BYTES, RowLayout, RowSink,
    size_changed,
};
use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::Roi;
use crate::header::{Format, Header, WebpLayout, webp_code_bytes, webp_layout};
use crate::tensor::CHANNELS;

/// Number of columns and rows that are decoded around a window, because chroma upsampling lacks
/// neighbours at the edge of a crop. Crops begin at even columns and rows, as chroma samples do.
const MARGIN: u32 = 2;

/// Assumed maximum size of a lossless WebP's code tables, in bytes, if the available bytes do not
/// show it: 1000 groups of 21 KiB.
const CODE_BYTES: u64 = 24 << 20;
/// Assumed maximum size of the code tables, in bytes per byte of the file. For files of less than 3
/// KiB, this limit is lower than `CODE_BYTES`.
const CODE_BYTES_PER_BYTE: u64 = 8 << 10;

/// Decoder that uses libwebp. Accepts every WebP.
#[derive(Debug, Default)]
pub(super) struct Libwebp;

impl HostDecoder for Libwebp {
    fn name(&self) -> &'static str {
        "libwebp"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::WebP
    }

    fn memory(&self, header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
        let (width, height) = (u64::from(header.size.width), u64::from(header.size.height));
        // libwebp allocates whole macroblocks.
        let pixels = width.next_multiple_of(16) * height.next_multiple_of(16);
        let found = Parts::of(head);
        let row = CHANNELS as u64 * width;
        let expected = CODE_BYTES.min(CODE_BYTES_PER_BYTE * file_bytes);
        let chunks = webp_layout(head).ok().map(|it| it.chunks).or(head.get(12..));
        let codes = chunks.and_then(webp_code_bytes).unwrap_or(expected);
        // libwebp needs 4 bytes per pixel for red, green, blue and alpha. One more byte per pixel
        // covers transforms and the code groups of blocks of 4 × 4 pixels.
        let lossless = 5 * pixels + codes;
        // Two bytes per pixel cover luma (1 byte), two chroma planes (1/4 byte each) and data of
        // macroblocks. libwebp also copies the file's partitions.
        let lossy = 2 * pixels + file_bytes;
        let alpha = if found.alpha { lossless + pixels } else { 0 };
        let frame = match (found.lossless, found.lossy) {
            (true, false) => lossless,
            (false, true) => lossy + alpha,
            _ => lossless.max(lossy + alpha),
        };
        DecodeMemory {
            scratch: row * height,
            rows: row * most_rows(header.size.height),
            library: LIBRARY_BYTES + frame + 64 * width,
        }
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        let EncodedImage { bytes, header, window, layout, .. } = *image;
        let WebpLayout { size, frame, chunks } = webp_layout(bytes)?;
        if size != header.size {
            return Err(size_changed(header.size, size));
        }
        let seen = window.intersection(frame);
        let crop = crop(seen, frame);
        let channels = layout.channels();
        let stride = channels * crop.width as usize;
        let pixels = grown(&mut buffers.scratch, stride * crop.height as usize)?;
        if !seen.is_empty() {
            decode_crop(chunks, crop, layout, pixels)?;
        }
        if layout == RowLayout::Rgba && !has_alpha(bytes) {
            pixels.as_chunks_mut::<4>().0.iter_mut().for_each(|pixel| pixel[3] = u8::MAX);
        }
        let bytes_of = |columns: u32| channels * columns as usize;
        let stored = |y: u32| {
            &pixels[stride * (y - frame.y - crop.y) as usize..]
                [bytes_of(seen.x - frame.x - crop.x)..]
        };
        if seen == window {
            hand_on(stored(window.y), (stride, layout), window, sink);
            return Ok(None);
        }
        let mut groups = RowGroups::new(&mut buffers.rows, (window, layout), sink)?;
        for y in window.y..window.bottom() {
            let row = groups.row();
            row.fill(0);
            if layout == RowLayout::Rgba && !has_alpha(bytes) {
                row.as_chunks_mut::<4>().0.fill([0, 0, 0, u8::MAX]);
            }
            if (seen.y..seen.bottom()).contains(&y) {
                let place = bytes_of(seen.x - window.x);
                let len = bytes_of(seen.width);
                row[place..][..len].copy_from_slice(&stored(y)[..len]);
            }
            groups.push();
        }
        Ok(None)
    }

    fn layouts(&self, _: &Header) -> &'static [RowLayout] {
        &[RowLayout::Rgb, RowLayout::Rgba]
    }
}

/// Whether Pillow opens the file as an image with alpha: by the flag of the file's first chunk.
fn has_alpha(bytes: &[u8]) -> bool {
    let (place, flag) = match bytes.get(12..16) {
        Some(b"VP8X") => (20, 0x10),
        Some(b"VP8L") => (24, 0x10),
        _ => return false,
    };
    bytes.get(place).is_some_and(|byte| byte & flag != 0)
}

/// Kinds of data that the first chunks of a WebP announce. If the chunks are incomplete, every kind
/// is assumed.
struct Parts {
    lossless: bool,
    lossy: bool,
    alpha: bool,
}

impl Parts {
    fn of(head: &[u8]) -> Self {
        match head.get(12..16) {
            Some(b"VP8 ") => Self { lossless: false, lossy: true, alpha: false },
            // The alpha flag is the last of 29 bits after the signature. The other 28 bits are
            // width and height.
            Some(b"VP8L") => {
                let alpha = head.get(24).is_none_or(|byte| byte & 0x10 != 0);
                Self { lossless: true, lossy: false, alpha }
            }
            _ => {
                // These are the flags of the VP8X chunk. If the byte is missing, all flags are
                // assumed.
                let flags = head.get(20).copied().unwrap_or(0xFF);
                // The flags are alpha (0x10) and animation (0x02). Frames of an animation may have
                // alpha even if the alpha flag is not set.
                let alpha = flags & (0x10 | 0x02) != 0;
                Self { lossless: true, lossy: true, alpha }
            }
        }
    }
}

/// Returns the part of a frame to request from libwebp. With this part, the pixels in `seen` equal
/// those of a decode of the whole frame.
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

/// Decodes a part of a frame into `pixels`: three or four bytes per pixel, rows without padding.
fn decode_crop(
    chunks: &[u8],
    crop: Roi,
    layout: RowLayout,
    pixels: &mut [u8],
) -> Result<(), DataError> {
    let Ok(mut config) = WebPDecoderConfig::new() else {
        return Err(DataError::new(
            Reason::Unsupported,
            "the version of libwebp differs from that of its header",
        ));
    };
    // Width and height have at most 14 bits, so they fit in a `c_int`.
    let [left, top, width, height] =
        [crop.x, crop.y, crop.width, crop.height].map(|it| it as c_int);
    config.options.use_cropping = 1;
    config.options.crop_left = left;
    config.options.crop_top = top;
    config.options.crop_width = width;
    config.options.crop_height = height;
    config.output.colorspace = match layout {
        RowLayout::Rgba => WEBP_CSP_MODE::MODE_RGBA,
        _ => WEBP_CSP_MODE::MODE_RGB,
    };
    config.output.is_external_memory = 1;
    let stride = layout.channels() as c_int * width;
    let buffer = WebPRGBABuffer { rgba: pixels.as_mut_ptr(), stride, size: pixels.len() };
    config.output.u.RGBA = buffer;
    // SAFETY: `chunks` and `pixels` outlive the call. libwebp reads `chunks`. It writes into
    // `pixels` only after it has checked that `height` rows of `stride` bytes fit into the given
    // size. It does not free external memory and keeps nothing that would have to be freed.
    let status = unsafe { sys::WebPDecode(chunks.as_ptr(), chunks.len(), &mut config) };
    let (reason, problem) = match status {
        VP8StatusCode::VP8_STATUS_OK => return Ok(()),
        VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY => (Reason::OutOfMemory, "memory is exhausted"),
        VP8StatusCode::VP8_STATUS_SUSPENDED | VP8StatusCode::VP8_STATUS_NOT_ENOUGH_DATA => {
            (Reason::Truncated, "the file ends before the image does")
        }
        VP8StatusCode::VP8_STATUS_UNSUPPORTED_FEATURE => {
            (Reason::Unsupported, "libwebp does not support one of its features")
        }
        _ => (Reason::Corrupt, "the coded data is corrupt"),
    };
    Err(DataError::new(reason, format!("the WebP cannot be decoded: {problem}")))
}
