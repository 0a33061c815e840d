//! Query whether the JPEG engines can decode a file.

use std::sync::Arc;

use nvjpeg_sys as sys;

use super::batch::{reset_roi, set_reduction};
use super::jpeg::Jpeg;
use super::page::{Handle, new_bitstream, rgb_params, set_roi};
use super::status::check_decode;
use super::{Backend, DecodeError};
use crate::error::{Error, Result};
use crate::geometry::Roi;

/// Queries one file at a time, without decoding it. A query may move between threads.
#[derive(Debug)]
pub struct Support {
    /// Parser state. `None` after a failure, because nvJPEG's parser then accepts no other file.
    bitstream: Option<Handle<sys::nvjpegJpegStream_t>>,
    params: Handle<sys::nvjpegDecodeParams_t>,
    jpeg: Arc<Jpeg>,
}

// SAFETY: nvJPEG's objects may move between threads if only one thread at a time uses them (nvJPEG
// documentation, "Thread Safety"). `&mut self` ensures that.
unsafe impl Send for Support {}

impl Support {
    /// Creates an object that asks nvJPEG which files the engines of `jpeg` can decode.
    ///
    /// # Errors
    /// [`Error::Internal`] for a backend other than [`Backend::Hardware`], and [`Error::Device`] if
    /// nvJPEG fails.
    pub fn new(jpeg: &Arc<Jpeg>) -> Result<Self> {
        if jpeg.backend() != Backend::Hardware {
            let problem = format!(
                "only the backend nvjpeg-hardware can check whether it supports a file, not the \
                 backend {}",
                jpeg.backend().name()
            );
            return Err(Error::Internal { problem });
        }
        let _entered = jpeg.device.enter()?;
        let (bitstream, params) = (Some(new_bitstream(jpeg)?), rgb_params(jpeg)?);
        Ok(Self { bitstream, params, jpeg: jpeg.clone() })
    }

    /// Whether the engines can decode this file, or a window of it, reduced by 1, 2, 4 or 8. `None`
    /// as window means the whole image. Returns `None` if nvJPEG does not answer the query, for
    /// example because it cannot parse the file.
    ///
    /// # Errors
    /// [`Error::Device`] for failures that do not depend on the file.
    pub fn decodes(
        &mut self,
        bytes: &[u8],
        reduction: u32,
        window: Option<Roi>,
    ) -> Result<Option<bool>> {
        let _entered = self.jpeg.device.enter()?;
        let bitstream = match self.bitstream.take() {
            Some(bitstream) => bitstream,
            None => new_bitstream(&self.jpeg)?,
        };
        match window {
            Some(window) => set_roi(&self.params, window)?,
            None => reset_roi(&self.params)?,
        }
        set_reduction(&self.params, reduction)?;
        match self.ask(&bitstream, bytes) {
            Ok(decodes) => {
                self.bitstream = Some(bitstream);
                Ok(Some(decodes))
            }
            Err(DecodeError::Sample(_) | DecodeError::Failed(..)) => Ok(None),
            Err(DecodeError::Fatal(error)) => Err(error),
        }
    }

    fn ask(
        &self,
        bitstream: &Handle<sys::nvjpegJpegStream_t>,
        bytes: &[u8],
    ) -> Result<bool, DecodeError> {
        let (jpeg, calls) = (&*self.jpeg, &self.jpeg.library.calls);
        let (data, len) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the handles are alive. The bytes are borrowed until the query has ended.
        let status =
            unsafe { (calls.nvjpegJpegStreamParseHeader)(jpeg.handle, data, len, bitstream.raw) };
        check_decode("nvjpegJpegStreamParseHeader", status)?;
        // nvJPEG writes 0 if the engines can decode the file, and another number if not.
        let mut refused = -1;
        // SAFETY: the handles and the parameters are alive. The call writes one number.
        let status = unsafe {
            (calls.nvjpegDecodeBatchedSupportedEx)(
                jpeg.handle,
                bitstream.raw,
                self.params.raw,
                &mut refused,
            )
        };
        check_decode("nvjpegDecodeBatchedSupportedEx", status)?;
        Ok(refused == 0)
    }
}
