//! The handle, and which window of a picture it decodes.

use std::ptr;
use std::sync::Arc;

use nvjpeg_sys as sys;
use nvjpeg_sys::nvjpegStatus_t as Status;

use super::allocator::{Allocators, Memory};
use super::{DecodeFault, Library, Version, check, check_decode};
use crate::error::{Error, Result};
use crate::geometry::{Roi, Size};
use crate::gpu::Device;
use crate::tensor::CHANNELS;

/// Pixels that are decoded around a window where nvJPEG's outermost pixels are wrong; it is wrong by one.
const MARGIN: u32 = 2;

/// nvJPEG on one device: entropy decoding on the CPU, the rest on the GPU, chroma interpolated as libjpeg does.
///
/// Everything that is made with it holds it; it holds the pools.
#[derive(Debug)]
pub struct Jpeg {
    pub(super) library: Library,
    pub(super) handle: sys::nvjpegHandle_t,
    pub(super) decoder: sys::nvjpegJpegDecoder_t,
    // Boxed, because nvJPEG keeps pointers to it.
    pub(super) allocators: Box<Allocators>,
    pub(super) device: Arc<Device>,
}

// SAFETY: nvjpegHandle_t and nvjpegJpegDecoder_t may be used from several threads at a time (nvJPEG documentation,
// "Thread Safety"); the allocators lock.
unsafe impl Send for Jpeg {}
// SAFETY: as above.
unsafe impl Sync for Jpeg {}

/// Which part of a picture a destination holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// What was asked for.
    pub wanted: Roi,
    /// What is decoded: the destination's first pixel is its first pixel.
    pub decoded: Roi,
}

impl Window {
    /// Bytes between the starts of two rows.
    pub fn pitch_bytes(&self) -> usize {
        CHANNELS * self.decoded.width as usize
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> usize {
        self.pitch_bytes() * self.decoded.height as usize
    }
}

impl Jpeg {
    /// Opens nvJPEG on a device, with its memory.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where nvJPEG is not installed, [`Error::Device`] where it refuses the device.
    pub fn open(device: &Arc<Device>, memory: &Memory) -> Result<Arc<Self>> {
        let library = Library::open(Some(device.driver_version() / 1000))?;
        let calls = library.calls;
        let allocators = Box::new(Allocators::new(device, memory));
        let (mut for_device, mut for_pinned) = (allocators.for_device(), allocators.for_pinned());
        let mut handle = ptr::null_mut();
        device.bind()?;
        // SAFETY: the allocators are copied; what they point to is boxed and dropped after the handle.
        let status = unsafe {
            (calls.nvjpegCreateExV2)(
                sys::nvjpegBackend_t::NVJPEG_BACKEND_HYBRID,
                &mut for_device,
                &mut for_pinned,
                sys::NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION,
                &mut handle,
            )
        };
        check("nvjpegCreateExV2", status)?;
        // From here on `drop` destroys what there is.
        let mut jpeg =
            Self { library, handle, decoder: ptr::null_mut(), allocators, device: device.clone() };
        // SAFETY: the handle is alive; writes one handle.
        let status = unsafe {
            (calls.nvjpegDecoderCreate)(
                handle,
                sys::nvjpegBackend_t::NVJPEG_BACKEND_HYBRID,
                &mut jpeg.decoder,
            )
        };
        check("nvjpegDecoderCreate", status)?;
        Ok(Arc::new(jpeg))
    }

    /// The library.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Which part of a picture of this size is decoded where `wanted` is asked for. Before
    /// [`Version::EXACT_WINDOWS`] nvJPEG gets the outermost pixels of a window wrong where chroma is interpolated, so
    /// a margin is decoded around it.
    pub fn window(&self, picture: Size, wanted: Roi) -> Window {
        Window { wanted, decoded: with_margin(self.margin(), picture, wanted) }
    }

    /// Pixels of the margin on each side: 0 or 2. A destination for a window needs room for
    /// `(width + 2 * margin) * (height + 2 * margin) * 3` bytes.
    pub fn margin(&self) -> u32 {
        if self.library.version() < Version::EXACT_WINDOWS { MARGIN } else { 0 }
    }

    /// A status that no file can cause; an allocator's failure as what it is.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<()> {
        check(call, status).map_err(|error| self.refusal(status).unwrap_or(error))
    }

    /// A status of a phase; an allocator's failure as what it is.
    pub(super) fn check_decode(
        &self,
        call: &'static str,
        status: Status,
    ) -> Result<(), DecodeFault> {
        check_decode(call, status)
            .map_err(|fault| self.refusal(status).map_or(fault, DecodeFault::Fatal))
    }

    fn refusal(&self, status: Status) -> Option<Error> {
        let refused = status == Status::NVJPEG_STATUS_ALLOCATOR_FAILURE;
        if refused { self.allocators.refusal() } else { None }
    }
}

impl Drop for Jpeg {
    fn drop(&mut self) {
        let calls = &self.library.calls;
        if self.device.bind().is_err() {
            return;
        }
        // SAFETY: created once, destroyed once, in the order opposite to creation; all page decoders are gone, for
        // each holds an `Arc` of `self`. This is not process exit, where destroying is known to crash: nothing of this
        // crate is dropped then.
        unsafe {
            if !self.decoder.is_null() {
                (calls.nvjpegDecoderDestroy)(self.decoder);
            }
            (calls.nvjpegDestroy)(self.handle);
        }
    }
}

fn with_margin(margin: u32, picture: Size, wanted: Roi) -> Roi {
    let x = wanted.x.saturating_sub(margin);
    let y = wanted.y.saturating_sub(margin);
    let right = wanted.right().saturating_add(margin).min(picture.width);
    let bottom = wanted.bottom().saturating_add(margin).min(picture.height);
    Roi::new(x, y, right - x, bottom - y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_clipped_to_the_picture() {
        let picture = Size::new(100, 50);
        assert_eq!(with_margin(2, picture, Roi::new(10, 10, 20, 20)), Roi::new(8, 8, 24, 24));
        assert_eq!(with_margin(2, picture, Roi::new(0, 1, 100, 48)), Roi::new(0, 0, 100, 50));
        assert_eq!(with_margin(0, picture, Roi::new(3, 4, 5, 6)), Roi::new(3, 4, 5, 6));
    }
}
