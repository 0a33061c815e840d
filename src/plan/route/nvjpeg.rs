//! Common parts of the nvJPEG routes: files that no backend supports, and buffer sizes.

use crate::header::{ColorSpace, FrameKind, Header, JpegHeader, Sampling};

/// Maximum side of an image for any nvJPEG route, in pixels.
pub const MAX_SIDE: u32 = 16_384;

/// Minimum side of an image for entropy decoding on the GPU, in pixels: the side of the largest MCU
/// with 4:2:0 chroma.
const MIN_SIDE: u32 = 16;

/// Bytes per pixel of a whole image for 16-bit coefficients of three components without
/// subsampling.
pub const COEFFICIENT_BYTES: usize = 6;

/// Bytes per pixel of a whole image for planes of three components without subsampling.
pub const PLANE_BYTES: usize = 3;

/// Device bytes per decode state for tables, marker segments, and padding to whole blocks and rows.
/// These estimates of nvJPEG's buffers have not been confirmed on a GPU.
pub const DEVICE_SLACK_BYTES: usize = 1 << 20;
/// Page-locked bytes per decode state for tables, marker segments and padding. Like the device
/// bytes, they are an unconfirmed estimate.
pub const PINNED_SLACK_BYTES: usize = 1 << 19;

/// Checks the requirements that all nvJPEG backends have in common, for sides up to `max_side`
/// pixels.
pub fn check(header: &Header, max_side: u32) -> Result<&JpegHeader, &'static str> {
    let Some(jpeg) = &header.jpeg else { return Err("not a JPEG") };
    for (refused, why) in [
        (matches!(jpeg.frame, FrameKind::Lossless), "lossless"),
        (matches!(jpeg.frame, FrameKind::Hierarchical), "hierarchical"),
        (jpeg.arithmetic, "arithmetic coding"),
        (jpeg.precision != 8, "not 8 bits per sample"),
        (!jpeg.is_progressive() && !jpeg.is_interleaved(), "several sequential scans"),
    ] {
        if refused {
            return Err(why);
        }
    }
    match jpeg.color_space() {
        ColorSpace::Gray | ColorSpace::YCbCr => {}
        ColorSpace::Rgb => return Err("RGB without a colour transform"),
        ColorSpace::Cmyk | ColorSpace::Ycck => return Err("four inks"),
        ColorSpace::Unknown => return Err("two components"),
    }
    if sides(header).iter().any(|&side| side > max_side) {
        return Err("too wide or too high");
    }
    if jpeg.sampling() == Sampling::Other {
        return Err("an unusual sampling");
    }
    Ok(jpeg)
}

/// Checks the additional requirements of entropy decoding on the GPU.
pub fn check_entropy_decoding_on_gpu(
    header: &Header,
    max_side: u32,
) -> Result<&JpegHeader, &'static str> {
    let jpeg = check(header, max_side)?;
    if jpeg.is_progressive() {
        return Err("progressive");
    }
    if sides(header).iter().any(|&side| side < MIN_SIDE) {
        return Err("smaller than one MCU");
    }
    if !has_usual_factors(jpeg) {
        return Err("unusual sampling factors");
    }
    Ok(jpeg)
}

/// Device bytes for the coefficients and planes of an image.
pub const fn decoded_bytes(pixels: usize) -> usize {
    (COEFFICIENT_BYTES + PLANE_BYTES) * pixels + DEVICE_SLACK_BYTES
}

fn sides(header: &Header) -> [u32; 2] {
    [header.size.width, header.size.height]
}

/// Whether the chroma components, or the only component, have sampling factors of 1.
fn has_usual_factors(jpeg: &JpegHeader) -> bool {
    jpeg.components().last().is_some_and(|last| (last.h, last.v) == (1, 1))
}
