//! The decoder of the simulated nvJPEG as a shared library, for processes other than tests. The
//! environment variable `SIM_NVJPEG_DECODER` has its path.

#![allow(unsafe_code, reason = "C calls it")]

mod libjpeg;

/// Decodes with libjpeg-turbo. The arguments are those of `Decode` in mod.rs.
///
/// # Safety
/// `bytes` must point to `count` bytes, and `rgb` to three bytes for each pixel of the window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_decode(
    bytes: *const u8,
    count: usize,
    reduction: i32,
    x: i32,
    y: i32,
    width: i32,
    height: i32,
    rgb: *mut u8,
) -> i32 {
    // SAFETY: passes on this function's arguments.
    unsafe { libjpeg::libjpeg(bytes, count, reduction, x, y, width, height, rgb) }
}
