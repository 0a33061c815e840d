//! nvJPEG: decoding a window of a JPEG file into device memory.
//!
//! One [`Jpeg`] per device holds the handle and the memory; one [`PageDecoder`] per page holds everything that
//! one picture needs between its two phases. Both are made at start: making a state is slow (nvJPEG takes a
//! lock for it) and a state per picture is known to leak.
//!
//! ```text
//! PageDecoder::host     CPU thread   parse, entropy decoding into page-locked memory
//! PageDecoder::device   stream       copy, inverse transform, colour: RGB bytes into the destination
//! ```
//!
//! nvJPEG's own buffers come out of two rows of the pools, as large as the caller says and taken at start; a
//! picture that needs more than is left in the row fails with [`Error::Budget`], and nothing else is ever taken.

use std::fmt;

use nvjpeg_sys as sys;
use nvjpeg_sys::nvjpegStatus_t as Status;

use super::library::{self, Found, Name};
use crate::error::{Error, Fault, Reason, Result};

pub use allocator::Memory;
pub use jpeg::{Jpeg, Window};
pub use page::PageDecoder;

mod allocator;
mod jpeg;
mod page;

/// The library, its version and the functions that are used.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    found: &'static Found,
    version: Version,
    calls: Calls,
}

/// nvJPEG's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Equal to CUDA's.
    pub major: u32,
    /// Counts its releases.
    pub minor: u32,
    /// Counts its corrections.
    pub patch: u32,
}

impl Version {
    /// Decodes the outermost pixels of a window with interpolated chroma correctly from this one on (release
    /// notes of CUDA 13.3).
    pub const EXACT_WINDOWS: Version = Version { major: 13, minor: 2, patch: 0 };

    /// Malformed files neither crash nor hang it from this one on (release notes of CUDA 13.4 update 1).
    pub const HARDENED: Version = Version { major: 13, minor: 2, patch: 3 };
}

impl Library {
    /// Finds nvJPEG; `cuda_major` is the driver's CUDA version. Works without a GPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it is not installed or lacks a function.
    pub fn open(cuda_major: Option<u32>) -> Result<Self> {
        let found = library::open(Name::NvJpeg, cuda_major)?;
        let calls = Calls::find(found)?;
        let property = |property| {
            let mut value = 0;
            // SAFETY: writes one integer, and needs neither handle nor device.
            check("nvjpegGetProperty", unsafe { (calls.nvjpegGetProperty)(property, &mut value) })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let version = Version {
            major: property(sys::libraryPropertyType_t::MAJOR_VERSION)?,
            minor: property(sys::libraryPropertyType_t::MINOR_VERSION)?,
            patch: property(sys::libraryPropertyType_t::PATCH_LEVEL)?,
        };
        Ok(Self { found, version, calls })
    }

    /// Path or name by which it was opened.
    pub fn path(&self) -> &'static str {
        self.found.path()
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What is known to be wrong with this version, and what to do about it.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.version < Version::HARDENED {
            warnings.push(format!(
                "nvJPEG {} may crash or hang on malformed files; decode files that you do not trust with {} or \
                 later, or with `decode.placement = \"cpu\"`",
                self.version,
                Version::HARDENED
            ));
        }
        warnings
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why a picture was not decoded.
#[derive(Clone, Debug)]
pub enum DecodeFault {
    /// The file's fault: obeys the policy for samples.
    Sample(Fault),
    /// The machine's or the plan's fault: ends the loader.
    Fatal(Error),
}

impl From<Error> for DecodeFault {
    fn from(error: Error) -> Self {
        DecodeFault::Fatal(error)
    }
}

/// A status that no file can cause as our error.
fn check(call: &'static str, status: Status) -> Result<()> {
    match status {
        Status::NVJPEG_STATUS_SUCCESS => Ok(()),
        _ => Err(Error::Device { call, problem: words(status) }),
    }
}

/// A status of a phase of decoding: the statuses by which nvJPEG judges a file are the file's fault.
fn check_decode(call: &'static str, status: Status) -> Result<(), DecodeFault> {
    let reason = match status {
        Status::NVJPEG_STATUS_SUCCESS => return Ok(()),
        Status::NVJPEG_STATUS_BAD_JPEG => Reason::Corrupt,
        Status::NVJPEG_STATUS_INCOMPLETE_BITSTREAM => Reason::Truncated,
        Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED
        | Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED => Reason::Unsupported,
        _ => return Err(DecodeFault::Fatal(Error::Device { call, problem: words(status) })),
    };
    Err(DecodeFault::Sample(Fault::new(reason, format!("{call}: {}", words(status)))))
}

fn words(status: Status) -> String {
    let name = match status {
        Status::NVJPEG_STATUS_NOT_INITIALIZED => "not initialized",
        Status::NVJPEG_STATUS_INVALID_PARAMETER => "invalid parameter",
        Status::NVJPEG_STATUS_BAD_JPEG => "bad JPEG",
        Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED => "JPEG not supported",
        Status::NVJPEG_STATUS_ALLOCATOR_FAILURE => "allocator failure",
        Status::NVJPEG_STATUS_EXECUTION_FAILED => "execution failed",
        Status::NVJPEG_STATUS_ARCH_MISMATCH => "architecture mismatch",
        Status::NVJPEG_STATUS_INTERNAL_ERROR => "internal error",
        Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED => "not supported by this backend",
        Status::NVJPEG_STATUS_INCOMPLETE_BITSTREAM => "incomplete bitstream",
        _ => "unknown status",
    };
    format!("{name} (nvJPEG status {})", status.0)
}

/// Declares the functions that are used, with the types of the bindings, and looks all of them up at once, so
/// that no call can find its function missing.
macro_rules! calls {
    ($($name:ident($($argument:ty),*);)+) => {
        /// nvJPEG's functions, all there.
        #[allow(non_snake_case)]
        #[derive(Clone, Copy, Debug)]
        struct Calls {
            $($name: unsafe extern "C" fn($($argument),*) -> Status,)+
        }

        impl Calls {
            fn find(found: &'static Found) -> Result<Self> {
                // Names that the bindings do not have, or with other types, do not compile.
                #[allow(dead_code)]
                fn types_are_those_of_the_bindings(bindings: sys::NvJpegLib) {
                    $(let _: Option<unsafe extern "C" fn($($argument),*) -> Status> = bindings.$name.ok();)+
                }
                // SAFETY: the types are the bindings', generated from nvjpeg.h.
                unsafe { Ok(Self { $($name: found.function(stringify!($name))?,)+ }) }
            }
        }
    };
}

calls! {
    nvjpegGetProperty(sys::libraryPropertyType_t, *mut std::ffi::c_int);
    nvjpegCreateExV2(
        sys::nvjpegBackend_t,
        *mut sys::nvjpegDevAllocatorV2_t,
        *mut sys::nvjpegPinnedAllocatorV2_t,
        std::ffi::c_uint,
        *mut sys::nvjpegHandle_t
    );
    nvjpegDestroy(sys::nvjpegHandle_t);
    nvjpegDecoderCreate(sys::nvjpegHandle_t, sys::nvjpegBackend_t, *mut sys::nvjpegJpegDecoder_t);
    nvjpegDecoderDestroy(sys::nvjpegJpegDecoder_t);
    nvjpegDecoderStateCreate(sys::nvjpegHandle_t, sys::nvjpegJpegDecoder_t, *mut sys::nvjpegJpegState_t);
    nvjpegJpegStateDestroy(sys::nvjpegJpegState_t);
    nvjpegJpegStreamCreate(sys::nvjpegHandle_t, *mut sys::nvjpegJpegStream_t);
    nvjpegJpegStreamDestroy(sys::nvjpegJpegStream_t);
    nvjpegJpegStreamParse(
        sys::nvjpegHandle_t,
        *const u8,
        usize,
        std::ffi::c_int,
        std::ffi::c_int,
        sys::nvjpegJpegStream_t
    );
    nvjpegJpegStreamGetFrameDimensions(sys::nvjpegJpegStream_t, *mut u32, *mut u32);
    nvjpegBufferPinnedCreateV2(
        sys::nvjpegHandle_t,
        *mut sys::nvjpegPinnedAllocatorV2_t,
        *mut sys::nvjpegBufferPinned_t
    );
    nvjpegBufferPinnedResize(sys::nvjpegBufferPinned_t, usize, sys::cudaStream_t);
    nvjpegBufferPinnedDestroy(sys::nvjpegBufferPinned_t);
    nvjpegBufferDeviceCreateV2(
        sys::nvjpegHandle_t,
        *mut sys::nvjpegDevAllocatorV2_t,
        *mut sys::nvjpegBufferDevice_t
    );
    nvjpegBufferDeviceResize(sys::nvjpegBufferDevice_t, usize, sys::cudaStream_t);
    nvjpegBufferDeviceDestroy(sys::nvjpegBufferDevice_t);
    nvjpegStateAttachPinnedBuffer(sys::nvjpegJpegState_t, sys::nvjpegBufferPinned_t);
    nvjpegStateAttachDeviceBuffer(sys::nvjpegJpegState_t, sys::nvjpegBufferDevice_t);
    nvjpegDecodeParamsCreate(sys::nvjpegHandle_t, *mut sys::nvjpegDecodeParams_t);
    nvjpegDecodeParamsDestroy(sys::nvjpegDecodeParams_t);
    nvjpegDecodeParamsSetOutputFormat(sys::nvjpegDecodeParams_t, sys::nvjpegOutputFormat_t);
    nvjpegDecodeParamsSetROI(
        sys::nvjpegDecodeParams_t,
        std::ffi::c_int,
        std::ffi::c_int,
        std::ffi::c_int,
        std::ffi::c_int
    );
    nvjpegDecodeJpegHost(
        sys::nvjpegHandle_t,
        sys::nvjpegJpegDecoder_t,
        sys::nvjpegJpegState_t,
        sys::nvjpegDecodeParams_t,
        sys::nvjpegJpegStream_t
    );
    nvjpegDecodeJpegTransferToDevice(
        sys::nvjpegHandle_t,
        sys::nvjpegJpegDecoder_t,
        sys::nvjpegJpegState_t,
        sys::nvjpegJpegStream_t,
        sys::cudaStream_t
    );
    nvjpegDecodeJpegDevice(
        sys::nvjpegHandle_t,
        sys::nvjpegJpegDecoder_t,
        sys::nvjpegJpegState_t,
        *mut sys::nvjpegImage_t,
        sys::cudaStream_t
    );
}
