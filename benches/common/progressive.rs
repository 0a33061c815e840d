//! Converts JPEGs to progressive ones with the same coefficients and libjpeg's default scan script,
//! like `jpegtran -progressive`.

#![allow(unsafe_code, reason = "libjpeg's interface")]

use std::ffi::{c_int, c_ulong};
use std::mem;
use std::ptr;
use std::slice;

use mozjpeg_sys as sys;

/// Returns the file as a progressive JPEG. The file must be intact, because libjpeg ends the
/// process on an error.
pub fn progressive(bytes: &[u8]) -> Vec<u8> {
    // SAFETY: libjpeg's structures consist of integers, pointers and `Option`s of functions, for
    // which zeros are valid. libjpeg initializes them, and they are not moved until they are
    // destroyed. The memory of the new file is copied before it is freed.
    unsafe {
        let (mut from_errors, mut to_errors) = (mem::zeroed(), mem::zeroed());
        let mut from: sys::jpeg_decompress_struct = mem::zeroed();
        from.common.err = sys::jpeg_std_error(&mut from_errors);
        sys::jpeg_create_decompress(&raw mut from);
        sys::jpeg_mem_src(&mut from, bytes.as_ptr(), bytes.len() as c_ulong);
        sys::jpeg_read_header(&mut from, 1);
        let coefficients = sys::jpeg_read_coefficients(&mut from);

        let mut to: sys::jpeg_compress_struct = mem::zeroed();
        to.common.err = sys::jpeg_std_error(&mut to_errors);
        sys::jpeg_create_compress(&raw mut to);
        let (mut file, mut len) = (ptr::null_mut(), 0);
        sys::jpeg_mem_dest(&mut to, &mut file, &mut len);
        let usual = sys::JINT_COMPRESS_PROFILE_VALUE::JCP_FASTEST as c_int;
        let profile = sys::J_INT_PARAM::JINT_COMPRESS_PROFILE;
        sys::jpeg_c_set_int_param(&mut to, profile, usual);
        sys::jpeg_copy_critical_parameters(&from, &mut to);
        sys::jpeg_simple_progression(&mut to);
        sys::jpeg_write_coefficients(&mut to, coefficients);
        sys::jpeg_finish_compress(&mut to);
        let made = slice::from_raw_parts(file, len as usize).to_vec();
        sys::jpeg_destroy_compress(&mut to);
        sys::jpeg_destroy_decompress(&mut from);
        libc::free(file.cast());
        made
    }
}
