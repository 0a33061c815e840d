//! JPEG decoding with libjpeg-turbo, in the copy that mozjpeg-sys builds. All `unsafe` code that
//! calls libjpeg-turbo is here.
//!
//! A decompressor is created per image. libjpeg could reuse one, but a file without quantization or
//! Huffman tables would then silently use those of the previous file. Creation takes about a
//! microsecond.
//!
//! Errors unwind. libjpeg's `error_exit` must not return, so our version of it records the error
//! and starts a panic that prints no message. The panic passes through the C frames, which have
//! unwind tables, and is caught in `decode`. With `panic = "abort"` a corrupt image would end the
//! process, so such a build is refused.
#![allow(unsafe_code)]

#[cfg(panic = "abort")]
compile_error!(
    "feedwater cannot be built with panic = \"abort\": libjpeg reports a damaged JPEG by unwinding, and the whole process would \
     end at the first one. Remove `panic = \"abort\"` from the profile in Cargo.toml of the program (or from RUSTFLAGS), or \
     set `panic = \"unwind\"`."
);

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::slice;

use mozjpeg_sys as sys;
use sys::{jpeg_common_struct, jpeg_decompress_struct};

use super::rows::{group_end, grown, most_rows};
use super::{EncodedImage, MOST_ROWS, RowLayout, RowSink, Rows, size_changed};
use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::{Roi, Size};
use crate::header::JpegLayout;
use crate::tensor::CHANNELS;

pub(super) use decoder::{LibjpegTurbo, NAME};

mod decoder;
mod inks;
mod memory;

/// Number of columns that are decoded and dropped on either side of a window. libjpeg treats the
/// outermost column of a crop as the edge of the image, where the upsampling filter has no
/// neighbour. Only the pixels of that column differ from those of the whole image.
const MARGIN: u32 = 1;

/// Minimum width of a crop. libjpeg uses plain upsampling for components of at most 2 samples per
/// row (at most 8 columns). A crop of this width is wide enough to avoid plain upsampling.
const MIN_WIDTH: u32 = 16;

/// Maximum number of scans of a file.
const MAX_SCANS: c_int = JpegLayout::MOST_SCANS as c_int;

/// Decodes the window of an image, and passes its rows to `sink`.
fn decode(
    image: &EncodedImage<'_>,
    rows: &mut Vec<u8>,
    sink: &mut RowSink<'_>,
) -> Result<Option<Tolerated>, DataError> {
    let mut session = Session::new(image.bytes, image.strict);
    let address = &raw mut session;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `session` stays where it is until it is dropped at the end of this function, and
        // is used only through `address` until the closure has ended.
        unsafe {
            open(address);
            let cinfo = &mut (*address).cinfo;
            read(cinfo, image, rows, sink)?;
            if (*address).cinfo.output_scanline == (*address).cinfo.output_height {
                // As in Pillow, an error after the last row is an error of the image. If the file
                // merely ends there, the image is accepted.
                (*address).finishing = true;
                let ended = sys::jpeg_finish_decompress(&mut (*address).cinfo);
                // Pillow's libjpeg refuses a second frame header as soon as it reads the marker. If
                // the file ends after that marker, this libjpeg stops without an error, so the
                // marker is checked here.
                let at = image.bytes.len() - (*address).source.bytes_in_buffer;
                let marker = image.bytes[..at].last_chunk();
                if ended == 0 && matches!(marker, Some([0xFF, 0xC0..=0xC2 | 0xC9 | 0xCA])) {
                    return Err(DataError::new(Reason::Corrupt, "a second frame header"));
                }
            }
            Ok(())
        }
    }));
    match outcome {
        Ok(result) => result.map(|()| session.warned.then_some(Tolerated::JpegData)),
        Err(payload) => Err(session.error(payload)),
    }
}

/// Whether libjpeg-turbo's SIMD code was built in and this CPU supports it.
pub(super) fn simd() -> bool {
    unsafe extern "C" {
        fn jsimd_can_idct_islow() -> c_int;
    }
    // SAFETY: both of libjpeg-turbo's variants (jsimd.c and jsimd_none.c) define this function. It
    // only detects the CPU's features.
    unsafe { jsimd_can_idct_islow() != 0 }
}

/// Decompressor and the structures that libjpeg points to. Must not move between `open` and its
/// drop.
struct Session {
    cinfo: jpeg_decompress_struct,
    errors: sys::jpeg_error_mgr,
    source: sys::jpeg_source_mgr,
    progress: sys::jpeg_progress_mgr,
    /// Whether a warning about corrupt data is an error.
    strict: bool,
    /// Whether there was a warning about corrupt data.
    warned: bool,
    /// Whether all rows are decoded. From then on, a missing end of the file is not an error.
    finishing: bool,
    error: Option<DataError>,
}

/// Panic payload of `error_exit`. The error itself is in the session.
struct Raised;

impl Session {
    fn new(bytes: &[u8], strict: bool) -> Self {
        Session {
            // SAFETY: zero is valid for every field (integers, pointers, enumerations). libjpeg
            // fills in the structure.
            cinfo: unsafe { mem::zeroed() },
            // SAFETY: zero is valid for every field (integers, pointers, `Option`s of functions).
            // libjpeg fills it in.
            errors: unsafe { mem::zeroed() },
            source: sys::jpeg_source_mgr {
                next_input_byte: bytes.as_ptr(),
                bytes_in_buffer: bytes.len(),
                init_source: Some(ignore),
                fill_input_buffer: Some(out_of_bytes),
                skip_input_data: Some(skip),
                resync_to_restart: Some(sys::jpeg_resync_to_restart),
                term_source: Some(ignore),
            },
            progress: sys::jpeg_progress_mgr {
                progress_monitor: Some(count_scans),
                pass_counter: 0,
                pass_limit: 0,
                completed_passes: 0,
                total_passes: 0,
            },
            strict,
            warned: false,
            finishing: false,
            error: None,
        }
    }

    /// Returns the error that ended the decode. Resumes a panic that `raise` did not start.
    fn error(&mut self, payload: Box<dyn Any + Send>) -> DataError {
        match self.error.take() {
            Some(error) if payload.is::<Raised>() => error,
            _ => resume_unwind(payload),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: `cinfo` is zeroed or was made by jpeg_CreateDecompress. Destroying either is
        // allowed after any error, frees all that libjpeg allocated and cannot fail.
        unsafe { sys::jpeg_destroy_decompress(&mut self.cinfo) }
    }
}

/// Creates the decompressor and connects the session's parts to it.
///
/// # Safety
/// `session` must be valid, and its target must not move until it is dropped.
unsafe fn open(session: *mut Session) {
    // SAFETY: the caller guarantees a valid session. The pointers live as long as the decompressor,
    // which is part of the same session.
    unsafe {
        sys::jpeg_std_error(&mut (*session).errors);
        (*session).errors.error_exit = Some(raise);
        (*session).errors.emit_message = Some(weigh);
        (*session).cinfo.common.err = &raw mut (*session).errors;
        (*session).cinfo.common.client_data = session.cast();
        sys::jpeg_create_decompress(&raw mut (*session).cinfo);
        (*session).cinfo.common.progress = &raw mut (*session).progress;
        (*session).cinfo.src = &raw mut (*session).source;
    }
}

/// Reads the header, applies the crop, skips rows, and passes the rows of the window to the sink.
///
/// # Safety
/// `cinfo` must have been opened with the whole file as its source.
unsafe fn read(
    cinfo: &mut jpeg_decompress_struct,
    image: &EncodedImage<'_>,
    rows: &mut Vec<u8>,
    sink: &mut RowSink<'_>,
) -> Result<(), DataError> {
    let EncodedImage { header, window, reduction, layout, .. } = *image;
    let size = header.size;
    // SAFETY: `cinfo` is open. No reference into it is held over a call.
    unsafe { sys::jpeg_read_header(cinfo, 1) };
    let found = Size::new(cinfo.image_width, cinfo.image_height);
    if found != size {
        return Err(size_changed(size, found));
    }
    let inks = cinfo.num_components == 4;
    let (color_space, samples) = match layout {
        RowLayout::Gray => (sys::JCS_GRAYSCALE, 1),
        _ if inks => (sys::JCS_CMYK, 4),
        _ => (sys::JCS_RGB, CHANNELS),
    };
    cinfo.out_color_space = color_space;
    cinfo.scale_num = 1;
    cinfo.scale_denom = reduction;
    cinfo.dct_method = sys::J_DCT_METHOD::JDCT_ISLOW;
    cinfo.do_fancy_upsampling = 1;
    // SAFETY: `cinfo` is open, and the header has been read.
    unsafe { sys::jpeg_start_decompress(cinfo) };
    let full = Size::new(cinfo.output_width, cinfo.output_height);
    if full != size.reduced(reduction) {
        return Err(size_changed(size.reduced(reduction), full));
    }

    let mut x = 0;
    // SAFETY: decompression has started, so `coef_bits` is null or points to the array that libjpeg
    // documents.
    if !unsafe { smooths(cinfo) } {
        let (left, mut width) = columns(window, full.width);
        x = left;
        // SAFETY: decompression has started and no row has been read. Columns and rows are inside
        // the image. libjpeg moves `x` left to the edge of an MCU.
        unsafe {
            sys::jpeg_crop_scanline(cinfo, &mut x, &mut width);
            sys::jpeg_skip_scanlines(cinfo, window.y);
        }
    }

    let pitch = samples * cinfo.output_width as usize;
    // If libjpeg must not skip rows, the rows above the window are read too.
    let most = most_rows(window.bottom()) as usize;
    let rows = grown(rows, pitch * most)?;
    let left = samples * (window.x - x) as usize;
    let bytes = samples * window.width as usize;
    while cinfo.output_scanline < window.bottom() {
        let first = cinfo.output_scanline;
        let end = if first < window.y { window.y } else { window.bottom() };
        let count = group_end(first, end) - first;
        let group = &mut rows[..pitch * count as usize];
        // SAFETY: the group holds `count` rows of `output_width` pixels with `samples` bytes each.
        // A row in the chosen color space has this size.
        unsafe { read_group(cinfo, group, count)? };
        if first < window.y {
            continue;
        }
        let mut row_bytes = bytes;
        if inks {
            group.chunks_mut(pitch).for_each(|row| inks::to_rgb(&mut row[left..][..bytes]));
            row_bytes = CHANNELS * window.width as usize;
        }
        let data = &group[left..][..pitch * (count as usize - 1) + row_bytes];
        sink(Rows { first, count, pitch, data, chroma: &[] });
    }
    Ok(())
}

/// Reads the next `count` rows (at most [`MOST_ROWS`]) consecutively into `group`.
///
/// # Safety
/// Decompression must have started, and `group` must hold `count` rows.
unsafe fn read_group(
    cinfo: &mut jpeg_decompress_struct,
    group: &mut [u8],
    count: u32,
) -> Result<(), DataError> {
    let mut starts = [ptr::null_mut(); MOST_ROWS as usize];
    let pitch = group.len() / count as usize;
    for (start, row) in starts.iter_mut().zip(group.chunks_exact_mut(pitch)) {
        *start = row.as_mut_ptr();
    }
    let mut done = 0;
    while done < count {
        let left = &mut starts[done as usize..count as usize];
        // SAFETY: the caller guarantees that each pointer points to memory for a row.
        match unsafe { sys::jpeg_read_scanlines(cinfo, left.as_mut_ptr(), count - done) } {
            0 => return Err(DataError::new(Reason::Corrupt, "libjpeg returns no more rows")),
            read => done += read,
        }
    }
    Ok(())
}

/// Returns the columns to request from libjpeg: the window with its margin, at least the minimum
/// width.
fn columns(window: Roi, width: u32) -> (u32, u32) {
    let left = window.x.saturating_sub(MARGIN);
    let right = window.right().saturating_add(MARGIN).max(left + MIN_WIDTH).min(width);
    let left = left.min(right.saturating_sub(MIN_WIDTH));
    (left, right - left)
}

/// Whether libjpeg will smooth over coefficients that are missing in a progressive file. Smoothing
/// reads neighbouring blocks, which a crop does not have, so such files are decoded whole.
///
/// # Safety
/// Decompression must have started.
unsafe fn smooths(cinfo: &jpeg_decompress_struct) -> bool {
    /// Number of coefficients that affect libjpeg's smoothing: the DC coefficient and the 9 AC
    /// coefficients that it estimates.
    const SMOOTHED: usize = 10;
    if cinfo.coef_bits.is_null() {
        return false;
    }
    let components = cinfo.num_components as usize;
    // SAFETY: libjpeg documents `coef_bits` as `int [num_components][64]` when it is not null.
    let bits = unsafe { slice::from_raw_parts(cinfo.coef_bits.cast::<[c_int; 64]>(), components) };
    bits.iter().any(|component| component[..SMOOTHED].iter().any(|&bit| bit != 0))
}

/// `error_exit`: records libjpeg's message and unwinds.
unsafe extern "C-unwind" fn raise(common: &mut jpeg_common_struct) {
    // SAFETY: called by libjpeg with its own decompressor.
    let code = unsafe { (*common.err).msg_code };
    let reason = match code {
        sys::JERR_INPUT_EOF | sys::JERR_INPUT_EMPTY | sys::JWRN_JPEG_EOF => Reason::Truncated,
        sys::JERR_OUT_OF_MEMORY => Reason::OutOfMemory,
        sys::JERR_ARITH_NOTIMPL
        | sys::JERR_BAD_PRECISION
        | sys::JERR_CCIR601_NOTIMPL
        | sys::JERR_COMPONENT_COUNT
        | sys::JERR_CONVERSION_NOTIMPL
        | sys::JERR_FRACT_SAMPLE_NOTIMPL
        | sys::JERR_IMAGE_TOO_BIG
        | sys::JERR_NOTIMPL
        | sys::JERR_NOT_COMPILED
        | sys::JERR_SOF_UNSUPPORTED
        | sys::JERR_WIDTH_OVERFLOW => Reason::Unsupported,
        _ => Reason::Corrupt,
    };
    // SAFETY: called by libjpeg with its own decompressor.
    unsafe {
        let problem = words(common);
        throw(common.client_data, DataError::new(reason, problem))
    }
}

/// `emit_message`: a warning about corrupt data raises an error if the decode is strict. Otherwise
/// the warning is recorded. Harmless warnings and traces are ignored.
unsafe extern "C-unwind" fn weigh(common: &mut jpeg_common_struct, level: c_int) {
    // SAFETY: called by libjpeg with its own decompressor.
    let code = unsafe { (*common.err).msg_code };
    let harmless = matches!(
        code,
        sys::JWRN_ADOBE_XFORM
            | sys::JWRN_EXTRANEOUS_DATA
            | sys::JWRN_JFIF_MAJOR
            | sys::JWRN_NOT_SEQUENTIAL
            | sys::JWRN_TOO_MUCH_DATA
    );
    if level >= 0 || harmless {
        return;
    }
    let session = common.client_data.cast::<Session>();
    // SAFETY: `client_data` is the session. Nothing else refers to these fields during a call into
    // libjpeg.
    if unsafe { (*session).strict } {
        // SAFETY: called by libjpeg with its own decompressor.
        unsafe { raise(common) }
    }
    // SAFETY: `client_data` is the session, as for `strict`.
    unsafe { (*session).warned = true };
}

/// `progress_monitor`: refuses files with more than `MAX_SCANS` scans.
unsafe extern "C-unwind" fn count_scans(common: &mut jpeg_common_struct) {
    let cinfo = ptr::from_mut(common).cast::<jpeg_decompress_struct>();
    // SAFETY: libjpeg calls this with its own decompressor. The first fields of a decompressor are
    // those of `jpeg_common_struct`.
    let scans = unsafe { (*cinfo).input_scan_number };
    if scans > MAX_SCANS {
        let problem = format!("the JPEG has more than {MAX_SCANS} scans, which is the maximum");
        // SAFETY: called by libjpeg with its own decompressor.
        unsafe { throw(common.client_data, DataError::new(Reason::Unsupported, problem)) }
    }
}

/// `fill_input_buffer`: the buffer holds the whole file, so an empty buffer is the end of the file.
unsafe extern "C-unwind" fn out_of_bytes(cinfo: &mut jpeg_decompress_struct) -> c_int {
    // SAFETY: `client_data` is the session. Nothing else refers to this field during a call into
    // libjpeg.
    if unsafe { (*cinfo.common.client_data.cast::<Session>()).finishing } {
        return 0;
    }
    let error = DataError::new(Reason::Truncated, "the file ends before the image does");
    // SAFETY: called by libjpeg with its own decompressor.
    unsafe { throw(cinfo.common.client_data, error) }
}

/// `skip_input_data`: skips `count` bytes.
unsafe extern "C-unwind" fn skip(cinfo: &mut jpeg_decompress_struct, count: c_long) {
    let Ok(count) = usize::try_from(count) else { return };
    // SAFETY: `src` is the session's source. Its pointer and count describe the rest of the file.
    let source = unsafe { &mut *cinfo.src };
    if count > source.bytes_in_buffer {
        source.bytes_in_buffer = 0;
        // SAFETY: called by libjpeg with its own decompressor.
        unsafe { out_of_bytes(cinfo) };
        return;
    }
    // SAFETY: at most `bytes_in_buffer` bytes further, so the result points into the file or to its
    // end.
    source.next_input_byte = unsafe { source.next_input_byte.add(count) };
    source.bytes_in_buffer -= count;
}

/// `init_source` and `term_source`: do nothing.
unsafe extern "C-unwind" fn ignore(_: &mut jpeg_decompress_struct) {}

/// Stores the error in the session and unwinds to `decode`.
///
/// # Safety
/// `client_data` is the session, and the frames up to `decode` are libjpeg's.
unsafe fn throw(client_data: *mut c_void, error: DataError) -> ! {
    // SAFETY: `client_data` is the session. Nothing else refers to this field during a call into
    // libjpeg.
    unsafe { (*client_data.cast::<Session>()).error = Some(error) };
    resume_unwind(Box::new(Raised))
}

/// Returns libjpeg's text of the current message.
///
/// # Safety
/// `common` belongs to an open decompressor.
unsafe fn words(common: &mut jpeg_common_struct) -> String {
    /// JMSG_LENGTH_MAX of jpeglib.h.
    const LENGTH: usize = 200;
    type Declared = unsafe extern "C-unwind" fn(&mut jpeg_common_struct, &[u8; 80]);
    type Real = unsafe extern "C-unwind" fn(&mut jpeg_common_struct, *mut c_char);
    let mut text = [0u8; LENGTH];
    // SAFETY: `err` is the session's error manager.
    let Some(format) = (unsafe { (*common.err).format_message }) else { return String::new() };
    // SAFETY: in jpeglib.h the buffer is a `char *` of JMSG_LENGTH_MAX bytes that is written to;
    // mozjpeg-sys declares it too short and read-only. The calling convention is the same. The text
    // ends in a zero.
    unsafe {
        let format = mem::transmute::<Declared, Real>(format);
        format(common, text.as_mut_ptr().cast());
    }
    CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
}
