//! nvJPEG's statuses as errors of ours.

use nvjpeg_sys::nvjpegStatus_t as Status;

use crate::error::{Error, Fault, Reason, Result};

/// Why a picture was not decoded.
#[derive(Clone, Debug)]
pub enum DecodeFault {
    /// The file's fault, or nvJPEG's view of it; of a batch, the fault of one of its files, which one is unknown.
    Sample(Fault),
    /// The machine's or the plan's fault, whatever the file.
    Fatal(Error),
}

impl From<Error> for DecodeFault {
    fn from(error: Error) -> Self {
        DecodeFault::Fatal(error)
    }
}

/// A status that no file can cause as our error.
pub(super) fn check(call: &'static str, status: Status) -> Result<()> {
    match status {
        Status::NVJPEG_STATUS_SUCCESS => Ok(()),
        _ => Err(Error::Device { call, problem: words(status) }),
    }
}

/// A status of a phase of decoding: the statuses by which nvJPEG judges a file are the file's fault.
pub(super) fn check_decode(call: &'static str, status: Status) -> Result<(), DecodeFault> {
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
