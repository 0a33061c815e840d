//! nvJPEG's statuses as errors of ours.

use nvjpeg_sys::nvjpegStatus_t as Status;

use crate::error::{DataError, Error, Reason, Result};
use crate::gpu::Stream;

/// Why an image was not decoded.
#[derive(Clone, Debug)]
pub enum DecodeError {
    /// The file's fault, or nvJPEG's view of it; of a batch, the fault of one of its files, which one is unknown.
    Sample(DataError),
    /// nvJPEG failed at the image, or at one of the batch's, without a word about the file; the device goes on, so the
    /// image can be made in another way.
    Failed(&'static str, Error),
    /// The machine's or the plan's fault, whatever the file.
    Fatal(Error),
}

impl DecodeError {
    /// Why an image goes another way, or the error that ends everything.
    pub fn refusal(self) -> Result<&'static str> {
        match self {
            DecodeError::Sample(fault) => Ok(match fault.reason {
                Reason::Truncated => "nvJPEG refused it: incomplete",
                Reason::Corrupt => "nvJPEG refused it: corrupt",
                _ => "nvJPEG refused it: not supported",
            }),
            DecodeError::Failed(why, _) => Ok(why),
            DecodeError::Fatal(Error::Budget { .. }) => Ok(NO_ROOM),
            DecodeError::Fatal(error) => Err(error),
        }
    }

    /// The same when the stream is empty: some of the image may be in it, and nothing is given back before that is over.
    /// A device that is lost comes out there, and then that is what went wrong.
    pub(super) fn behind(self, stream: &Stream) -> Self {
        match (stream.synchronize(), self) {
            (Err(lost), DecodeError::Sample(_) | DecodeError::Failed(..)) => {
                DecodeError::Fatal(lost)
            }
            (_, fault) => fault,
        }
    }
}

const NO_ROOM: &str = "nvJPEG's memory has no room for it";

impl From<Error> for DecodeError {
    fn from(error: Error) -> Self {
        DecodeError::Fatal(error)
    }
}

/// A status that no file can cause as our error.
pub(super) fn check(call: &'static str, status: Status) -> Result<()> {
    match status {
        Status::NVJPEG_STATUS_SUCCESS => Ok(()),
        _ => Err(Error::Device { call, problem: words(status) }),
    }
}

/// A status of a phase of decoding: the statuses by which nvJPEG judges a file are the file's fault. Those that it has for
/// everything else (nvImageCodec saw "internal error" for a window within its image) fail one image, and not the
/// run: where the device itself is lost, the next call of the driver says so.
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
                // nvJPEG's own threads may have asked, and then who was refused is not known.
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
