//! nvJPEG as a library: its file, version, known problems and functions.

use std::fmt;
use std::path::PathBuf;

use nvjpeg_sys as sys;
use nvjpeg_sys::nvjpegStatus_t as Status;

use super::MARGIN;
use super::status::check;
use crate::error::{Error, Result};
use crate::gpu::Runtime;
use crate::gpu::library::{self, Found};
use crate::gpu::library_name::LibraryName as Name;

/// Open nvJPEG library with its version and functions.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    found: &'static Found,
    version: Version,
    pub(super) calls: Calls,
}

/// nvJPEG's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version, equal to CUDA's.
    pub major: u32,
    /// Release number.
    pub minor: u32,
    /// Patch number.
    pub patch: u32,
}

impl Version {
    /// First version that computes the outermost pixels of a window correctly if chroma is
    /// interpolated (release notes of CUDA 13.3).
    pub const EXACT_WINDOWS: Version = Version { major: 13, minor: 2, patch: 0 };

    /// First version that checks files, so that malformed and truncated files do not cause
    /// undefined behaviour by themselves (release notes of CUDA 13.0). See
    /// [`HARDENED`](Self::HARDENED) for the remaining problems.
    pub const CHECKED: Version = Version { major: 13, minor: 0, patch: 0 };

    /// First version in which malformed files cause neither crashes nor hangs (release notes of
    /// CUDA 13.4 update 1).
    pub const HARDENED: Version = Version { major: 13, minor: 2, patch: 3 };
}

impl Library {
    /// Opens nvJPEG. `cuda_major` is the driver's CUDA version. Works without a GPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::error::Error::Unavailable) if nvJPEG is not installed or lacks
    /// a function.
    pub fn open(runtime: &Runtime, cuda_major: Option<u32>) -> Result<Self> {
        let found = library::open(runtime, Name::NvJpeg, cuda_major)?;
        let calls = Calls::find(found)?;
        let property = |property| {
            let mut value = 0;
            // SAFETY: the function writes one integer. It needs neither a handle nor a device.
            check("nvjpegGetProperty", unsafe { (calls.nvjpegGetProperty)(property, &mut value) })?;
            Ok::<u32, Error>(u32::try_from(value).unwrap_or(0))
        };
        let version = Version {
            major: property(sys::libraryPropertyType_t::MAJOR_VERSION)?,
            minor: property(sys::libraryPropertyType_t::MINOR_VERSION)?,
            patch: property(sys::libraryPropertyType_t::PATCH_LEVEL)?,
        };
        Ok(Self { found, version, calls })
    }

    /// Returns the path or name by which the library was opened.
    pub fn path(&self) -> &'static str {
        self.found.path()
    }

    /// Returns the file from which the library was loaded, if the system reports it.
    pub(super) fn file(&self) -> Option<PathBuf> {
        library::file_at(self.calls.nvjpegGetProperty as usize)
    }

    /// Returns the version of the library.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the known problems of this version, each with a remedy.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let version = self.version;
        let way_out = format!(
            "decode files that you do not trust with {} or later, or with `decode.placement = \"cpu\"`",
            Version::HARDENED
        );
        if version < Version::CHECKED {
            warnings.push(format!(
                "nvJPEG {version} crashes, or reads and writes outside of its memory, on \
                 truncated and malformed files, because versions before {} do not check files; \
                 {way_out}",
                Version::CHECKED
            ));
        } else if version < Version::HARDENED {
            warnings.push(format!(
                "nvJPEG {version} may crash or hang on malformed files, because its parser has \
                 errors that version {} corrects; {way_out}",
                Version::HARDENED
            ));
        }
        if version < Version::EXACT_WINDOWS {
            warnings.push(format!(
                "nvJPEG {version} computes the outermost pixels of a window wrongly if chroma is \
                 interpolated, so feedwater decodes {MARGIN} more pixels on each side of a window \
                 and drops them; version {} or later does not need this",
                Version::EXACT_WINDOWS
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

/// Declares the functions that are used, with the types of the bindings. All functions are looked
/// up when the library is opened, so no later call can find a function missing.
macro_rules! calls {
    ($($name:ident($($argument:ty),*);)+) => {
        /// nvJPEG's functions.
        #[allow(non_snake_case)]
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Calls {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> Status,)+
        }

        impl Calls {
            fn find(found: &'static Found) -> Result<Self> {
                // Names that the bindings lack, or declare with other types, cause a compile error
                // here. The function is generic so that no machine code is generated, which would
                // link nvJPEG.
                #[allow(dead_code, clippy::extra_unused_type_parameters)]
                fn types_are_those_of_the_bindings<T>() {
                    $(let _: unsafe extern "C" fn($($argument),*) -> Status = sys::$name;)+
                }
                // SAFETY: the types are those of the bindings, which are generated from nvjpeg.h.
                unsafe { Ok(Self { $($name: found.function(stringify!($name))?,)+ }) }
            }
        }
    };
}

calls! {
    nvjpegGetProperty(sys::libraryPropertyType_t, *mut std::ffi::c_int);
    nvjpegCreateEx(
        sys::nvjpegBackend_t,
        *mut sys::nvjpegDevAllocator_t,
        *mut sys::nvjpegPinnedAllocator_t,
        std::ffi::c_uint,
        *mut sys::nvjpegHandle_t
    );
    nvjpegCreateExV2(
        sys::nvjpegBackend_t,
        *mut sys::nvjpegDevAllocatorV2_t,
        *mut sys::nvjpegPinnedAllocatorV2_t,
        std::ffi::c_uint,
        *mut sys::nvjpegHandle_t
    );
    nvjpegDestroy(sys::nvjpegHandle_t);
    nvjpegGetHardwareDecoderInfo(
        sys::nvjpegHandle_t,
        *mut std::ffi::c_uint,
        *mut std::ffi::c_uint
    );
    nvjpegJpegStateCreate(sys::nvjpegHandle_t, *mut sys::nvjpegJpegState_t);
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
    nvjpegJpegStreamParseHeader(sys::nvjpegHandle_t, *const u8, usize, sys::nvjpegJpegStream_t);
    nvjpegDecodeBatchedSupportedEx(
        sys::nvjpegHandle_t,
        sys::nvjpegJpegStream_t,
        sys::nvjpegDecodeParams_t,
        *mut std::ffi::c_int
    );
    nvjpegJpegStreamGetFrameDimensions(sys::nvjpegJpegStream_t, *mut u32, *mut u32);
    nvjpegBufferPinnedCreateV2(
        sys::nvjpegHandle_t,
        *mut sys::nvjpegPinnedAllocatorV2_t,
        *mut sys::nvjpegBufferPinned_t
    );
    nvjpegBufferPinnedResize(sys::nvjpegBufferPinned_t, usize, sys::cudaStream_t);
    nvjpegBufferPinnedDestroy(sys::nvjpegBufferPinned_t);
    nvjpegBufferPinnedRetrieve(sys::nvjpegBufferPinned_t, *mut usize, *mut *mut std::ffi::c_void);
    nvjpegBufferDeviceCreateV2(
        sys::nvjpegHandle_t,
        *mut sys::nvjpegDevAllocatorV2_t,
        *mut sys::nvjpegBufferDevice_t
    );
    nvjpegBufferDeviceResize(sys::nvjpegBufferDevice_t, usize, sys::cudaStream_t);
    nvjpegBufferDeviceDestroy(sys::nvjpegBufferDevice_t);
    nvjpegBufferDeviceRetrieve(sys::nvjpegBufferDevice_t, *mut usize, *mut *mut std::ffi::c_void);
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
    nvjpegDecodeParamsSetScaleFactor(sys::nvjpegDecodeParams_t, sys::nvjpegScaleFactor_t);
    nvjpegDecodeBatchedInitialize(
        sys::nvjpegHandle_t,
        sys::nvjpegJpegState_t,
        std::ffi::c_int,
        std::ffi::c_int,
        sys::nvjpegOutputFormat_t
    );
    nvjpegDecodeBatchedPreAllocate(
        sys::nvjpegHandle_t,
        sys::nvjpegJpegState_t,
        std::ffi::c_int,
        std::ffi::c_int,
        std::ffi::c_int,
        sys::nvjpegChromaSubsampling_t,
        sys::nvjpegOutputFormat_t
    );
    nvjpegDecodeBatchedEx(
        sys::nvjpegHandle_t,
        sys::nvjpegJpegState_t,
        *const *const u8,
        *const usize,
        *mut sys::nvjpegImage_t,
        *mut sys::nvjpegDecodeParams_t,
        sys::cudaStream_t
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
