//! Conversion of nvJPEG's statuses to errors.

use nvjpeg_sys::nvjpegStatus_t as Status;

use crate::error::{DataError, Error, Reason, Result};

/// Reason why an image was not decoded.
#[derive(Clone, Debug)]
pub enum DecodeError {
    /// nvJPEG found the file invalid or unsupported. In a batch, one of the files is invalid or
    /// unsupported, and nvJPEG does not report which one.
    Sample(DataError),
    /// nvJPEG failed for an image, or for one image of a batch, for a reason other than the file.
    /// The device still works, so another route can decode the image.
    Failed(&'static str, Error),
    /// The machine or the plan caused the error. The file did not.
    Fatal(Error),
}

impl DecodeError {
    /// Whether nvJPEG does not support the file.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, DecodeError::Sample(error) if error.reason == Reason::Unsupported)
    }

    /// Whether the memory that is reserved for nvJPEG in a pool was exhausted.
    pub fn is_budget(&self) -> bool {
        matches!(self, DecodeError::Fatal(Error::Budget { .. }) | DecodeError::Failed(NO_ROOM, _))
    }

    /// Returns the reason why another route decodes the image, or the error that ends the run.
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

/// Converts the status of a call that does not depend on a file.
pub(super) fn check(call: &'static str, status: Status) -> Result<()> {
    match status {
        Status::NVJPEG_STATUS_SUCCESS => Ok(()),
        _ => Err(Error::Device { call, problem: words(status) }),
    }
}

/// Converts the status of a decoding phase. Statuses that concern the file become sample errors.
/// All other failures affect one image, not the run. For example, nvImageCodec saw "internal error"
/// for a window inside its image. If the device itself is lost, the next driver call reports the
/// loss.
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
                // One of nvJPEG's own threads may have requested the memory. The allocator's error
                // is recorded for that thread, which is unknown here, so a general text is used.
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
