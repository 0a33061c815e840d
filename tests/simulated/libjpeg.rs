//! The decoder of the simulated nvJPEG that decodes with libjpeg-turbo, and the types of decoders.
//! For processes other than tests, the example `simulated-decoder` builds this file as a shared
//! library.

#![allow(unsafe_code, reason = "C calls it")]

use feedwater::internals::decode::Decoders;
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;

/// A window in an image whose sides are divided by `reduction` (1, 2, 4 or 8). nvjpeg.cpp has the
/// same type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Window {
    pub reduction: u32,
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

/// A function that decodes a window of a file to RGB rows without padding. It returns an nvJPEG
/// status, 0 for success.
pub type Decode = fn(file: &[u8], window: Window, rgb: &mut [u8]) -> i32;

/// Decodes with libjpeg-turbo.
pub fn libjpeg(file: &[u8], window: Window, rgb: &mut [u8]) -> i32 {
    const BAD_JPEG: i32 = 3;
    let Ok(header) = Header::parse(file) else { return BAD_JPEG };
    let Window { reduction, x, y, width, height } = window;
    let window = Roi::new(x, y, width, height);
    let mut rows = rgb.chunks_exact_mut(3 * width as usize);
    let decoded = Decoders::new().decode(file, &header, window, reduction, &mut |group| {
        group.iter().for_each(|(_, row)| rows.next().unwrap().copy_from_slice(row));
    });
    if decoded.is_ok() { 0 } else { BAD_JPEG }
}

/// Calls `decode` with the arguments that C passes.
///
/// # Safety
/// `bytes` must point to `count` bytes, and `rgb` to three bytes for each pixel of the window.
pub unsafe fn call(
    decode: Decode,
    bytes: *const u8,
    count: usize,
    window: &Window,
    rgb: *mut u8,
) -> i32 {
    let pixels = window.width as usize * window.height as usize;
    // SAFETY: the caller passes a pointer to `count` bytes, and one to memory for the pixels of the
    // window.
    let (file, rgb) = unsafe {
        let rgb = std::slice::from_raw_parts_mut(rgb, 3 * pixels);
        (std::slice::from_raw_parts(bytes, count), rgb)
    };
    decode(file, *window, rgb)
}
