//! The decoder of the simulated nvJPEG as a shared library, for processes other than tests. The
//! environment variable `SIM_NVJPEG_DECODER` has its path.

#![allow(unsafe_code, reason = "C calls it")]

mod libjpeg;

/// Decodes with libjpeg-turbo.
///
/// # Safety
/// `bytes` must point to `count` bytes, and `rgb` to three bytes for each pixel of the window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_decode(
    bytes: *const u8,
    count: usize,
    window: &libjpeg::Window,
    rgb: *mut u8,
) -> i32 {
    // SAFETY: passes on this function's arguments.
    unsafe { libjpeg::call(libjpeg::libjpeg, bytes, count, window, rgb) }
}
