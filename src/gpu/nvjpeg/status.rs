//! Conversion of nvJPEG's statuses to errors.

use nvjpeg_sys::nvjpegStatus_t as Status;

use crate::error::{DataError, Error, Reason, Result};

/// Why an image was not decoded.
#[derive(Clone, Debug)]
pub enum DecodeError {
    /// The file is invalid or unsupported in nvJPEG's view. For a batch, one of its files is, and which one is
    /// unknown.
    Sample(DataError),
    /// nvJPEG failed at the image, or at one of the batch's, without blaming the file. The device still works, so the
    /// image can take another route.
    Failed(&'static str, Error),
    /// The machine or the plan is at fault, whatever the file.
    Fatal(Error),
}

impl DecodeError {
    /// Whether nvJPEG does not support the file.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, DecodeError::Sample(error) if error.reason == Reason::Unsupported)
    }

    /// Whether the memory of the row was not enough.
    pub fn is_budget(&self) -> bool {
        matches!(self, DecodeError::Fatal(Error::Budget { .. }) | DecodeError::Failed(NO_ROOM, _))
    }

    /// Why the image takes another route, or the error that ends the run.
    pub fn refusal(self) -> Result<&'static str> {
        match self {
            DecodeError::Sample(error) => Ok(match error.reason {
                Reason::Truncated => "nvJPEG refused it: incomplete",
                Reason::Corrupt => "nvJPEG refused it: corrupt",
                _ => "nvJPEG refused it: not supported",
            }),
            DecodeError::Failed(why, _) => Ok(why),
            DecodeError::Fatal(Error::Budget { .. }) => Ok(NO_ROOM),
            DecodeError::Fatal(error) => Err(error),
        }
    }
}

const NO_ROOM: &str = "nvJPEG's memory has no room for it";

impl From<Error> for DecodeError {
    fn from(error: Error) -> Self {
        DecodeError::Fatal(error)
    }
}

/// Converts a status that no file can cause.
pub(super) fn check(call: &'static str, status: Status) -> Result<()> {
    match status {
        Status::NVJPEG_STATUS_SUCCESS => Ok(()),
        _ => Err(Error::Device { call, problem: words(status) }),
    }
}

/// Converts a status of a decoding phase. Statuses by which nvJPEG judges a file are errors of the file. All other
/// failures (nvImageCodec saw "internal error" for a window within its image) fail one image, not the run: if the
/// device itself is lost, the next driver call reports it.
pub(super) fn check_decode(call: &'static str, status: Status) -> Result<(), DecodeError> {
    let reason = match status {
        Status::NVJPEG_STATUS_SUCCESS => return Ok(()),
        Status::NVJPEG_STATUS_BAD_JPEG => Reason::Corrupt,
        Status::NVJPEG_STATUS_INCOMPLETE_BITSTREAM => Reason::Truncated,
        Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED
        | Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED => Reason::Unsupported,
        _ => {
            let error = Error::Device { call, problem: words(status) };
            let why = match status {
                Status::NVJPEG_STATUS_INVALID_PARAMETER => "nvJPEG failed at it: invalid parameter",
                Status::NVJPEG_STATUS_EXECUTION_FAILED => "nvJPEG failed at it: execution failed",
                Status::NVJPEG_STATUS_INTERNAL_ERROR => "nvJPEG failed at it: internal error",
                // nvJPEG's own threads may have made the request, so the refused thread is unknown.
                Status::NVJPEG_STATUS_ALLOCATOR_FAILURE => NO_ROOM,
                _ => return Err(DecodeError::Fatal(error)),
            };
            return Err(DecodeError::Failed(why, error));
        }
    };
    Err(DecodeError::Sample(DataError::new(reason, format!("{call}: {}", words(status)))))
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
