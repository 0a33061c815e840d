//! Decoder for the simulated nvJPEG. For processes other than tests, the example
//! `simulated-decoder` builds this file as a shared library.

#![allow(unsafe_code, reason = "C calls it")]

use feedwater::internals::decode::Decoders;
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;

/// Decodes with libjpeg-turbo. The arguments are those of the type `Decode` in mod.rs.
///
/// # Safety
/// `bytes` must point to `count` bytes, and `rgb` to three bytes for each pixel of the window.
pub unsafe extern "C" fn libjpeg(
    bytes: *const u8,
    count: usize,
    reduction: i32,
    x: i32,
    y: i32,
    width: i32,
    height: i32,
    rgb: *mut u8,
) -> i32 {
    const BAD_JPEG: i32 = 3;
    // SAFETY: the caller passes a pointer to `count` bytes, and one to memory for the pixels of the
    // window.
    let (bytes, rgb) = unsafe {
        let rgb = std::slice::from_raw_parts_mut(rgb, (3 * width * height) as usize);
        (std::slice::from_raw_parts(bytes, count), rgb)
    };
    let Ok(header) = Header::parse(bytes) else { return BAD_JPEG };
    let window = Roi::new(x as u32, y as u32, width as u32, height as u32);
    let mut rows = rgb.chunks_exact_mut(3 * width as usize);
    let decoded = Decoders::new().decode(bytes, &header, window, reduction as u32, &mut |group| {
        group.iter().for_each(|(_, row)| rows.next().unwrap().copy_from_slice(row));
    });
    if decoded.is_ok() { 0 } else { BAD_JPEG }
}
