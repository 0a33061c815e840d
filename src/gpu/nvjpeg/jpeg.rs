//! Handle of one nvJPEG backend, and the window of an image that the backend decodes.

use std::ptr;
use std::sync::Arc;

use nvjpeg_sys as sys;
use nvjpeg_sys::nvjpegStatus_t as Status;

use super::allocator::{Allocators, Memory};
use super::status::{DecodeError, check, check_decode};
use super::{Backend, Library, MARGIN, Version, windows};
use crate::error::{Error, Result};
use crate::geometry::{Roi, Size};
use crate::gpu::{Device, Stream};

/// One nvJPEG backend on one device, with chroma interpolated as in libjpeg.
///
/// Every object that is created from a `Jpeg` holds an `Arc` of it. The `Jpeg` holds the memory
/// pools.
#[derive(Debug)]
pub struct Jpeg {
    pub(super) library: Library,
    pub(super) handle: sys::nvjpegHandle_t,
    /// Decoder of single images. Null for [`Backend::Hardware`], whose single-image decoder does
    /// not support windows and has crashed when it received one.
    pub(super) decoder: sys::nvjpegJpegDecoder_t,
    // Boxed, because nvJPEG stores pointers to the allocators.
    pub(super) allocators: Box<Allocators>,
    pub(super) device: Arc<Device>,
    backend: Backend,
    engines: Option<Engines>,
    /// Whether windows are passed to nvJPEG. Otherwise whole images are decoded.
    windows: bool,
}

/// The JPEG engines of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    /// Number of engines.
    pub engines: u32,
    /// Number of images that one engine decodes at the same time.
    pub cores_per_engine: u32,
}

// SAFETY: several threads may use nvjpegHandle_t and nvjpegJpegDecoder_t at the same time (nvJPEG
// documentation, "Thread Safety"). The allocators use locks.
unsafe impl Send for Jpeg {}
// SAFETY: several threads may use nvJPEG's handle and decoder at the same time, and the allocators
// use locks.
unsafe impl Sync for Jpeg {}

/// Part of an image that is decoded into a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Requested window.
    pub wanted: Roi,
    /// Decoded window. Its first pixel is the destination's first pixel.
    pub decoded: Roi,
}

impl Window {
    /// Returns the distance between the starts of two rows, in bytes.
    pub fn pitch_bytes(&self) -> usize {
        self.decoded.pitch_bytes() as usize
    }

    /// Returns the size of all rows, in bytes.
    pub fn bytes(&self) -> usize {
        self.decoded.pitched_bytes()
    }
}

impl Engines {
    /// Returns the number of images that the engines decode at the same time, at least 1.
    pub fn lanes(&self) -> usize {
        (self.engines * self.cores_per_engine).max(1) as usize
    }
}

impl Jpeg {
    /// Opens a backend on a device, with its memory. Windows are passed to the engines only if a
    /// [check](super::set_checking_program) has found that the engines decode them correctly. If
    /// there is no result yet, this call runs the check, which may take half a minute.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nvJPEG is not installed or the device has no JPEG engines.
    /// [`Error::Device`] if nvJPEG rejects the device.
    pub fn open(device: &Arc<Device>, backend: Backend, memory: &Memory) -> Result<Arc<Self>> {
        let library = Library::open(device.runtime(), Some(device.driver_version() / 1000))?;
        let windows = backend != Backend::Hardware || windows::work(device, &library);
        Self::open_with(device, library, backend, memory, windows)
    }

    /// Opens a backend. `windows` sets whether windows are passed to nvJPEG.
    pub(super) fn open_with(
        device: &Arc<Device>,
        library: Library,
        backend: Backend,
        memory: &Memory,
        windows: bool,
    ) -> Result<Arc<Self>> {
        let allocators = Allocators::new(device, memory);
        let _entered = device.enter()?;
        device.keep_context();
        // The allocators are boxed and dropped after the handle, so nvJPEG's pointers to them stay
        // valid.
        let handle = create(&library, backend, Some(&*allocators))
            .map_err(|error| allocators.refusal().unwrap_or(error))?;
        // From here on, `drop` destroys all objects that exist.
        let mut jpeg = Self {
            library,
            handle,
            decoder: ptr::null_mut(),
            allocators,
            device: device.clone(),
            backend,
            engines: None,
            windows,
        };
        if backend == Backend::Hardware {
            jpeg.engines = Some(find_engines(&library, handle)?);
            return Ok(Arc::new(jpeg));
        }
        let decoder = create_decoder(&library, handle, backend);
        jpeg.decoder = decoder.map_err(|error| jpeg.allocators.refusal().unwrap_or(error))?;
        Ok(Arc::new(jpeg))
    }

    /// Backend of this handle.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the engines of [`Backend::Hardware`], or `None` for the other backends.
    pub fn engines(&self) -> Option<Engines> {
        self.engines
    }

    /// Whether windows are passed to nvJPEG. Otherwise whole images are decoded.
    pub fn decodes_windows(&self) -> bool {
        self.windows
    }

    /// Returns the number of freed buffers for which nvJPEG's allocations waited because nvJPEG's
    /// row of the pool was full.
    pub fn memory_waits(&self) -> u64 {
        self.allocators.waits()
    }

    /// Returns the nvJPEG library.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Returns the part of an image of size `image` that is decoded for the window `wanted`. Before
    /// [`Version::EXACT_WINDOWS`], nvJPEG computes the outermost pixels of a window wrongly if
    /// chroma is interpolated, so a margin around the window is decoded too. Returns the whole
    /// image if the engines are not known to decode windows.
    pub fn window(&self, image: Size, wanted: Roi) -> Window {
        let decoded = match self.windows {
            true => with_margin(self.margin(), image, wanted),
            false => image.window(),
        };
        Window { wanted, decoded }
    }

    /// Like [`window`](Self::window), for a decoder that reduces both sides of the image by
    /// `reduction`. `wanted` is in pixels of the reduced image, whose sides are `ceil(side /
    /// reduction)`.
    ///
    /// nvJPEG's documentation does not define a window combined with a scale factor. So with a
    /// reduction above 1, the whole reduced image is decoded, whatever the window. The destination
    /// must be large enough for the whole reduced image.
    pub fn reduced_window(&self, image: Size, reduction: u32, wanted: Roi) -> Window {
        if reduction <= 1 {
            return self.window(image, wanted);
        }
        Window { wanted, decoded: image.reduced(reduction).window() }
    }

    /// Returns the width of the margin on each side in pixels: 0 or 2. [`Window::bytes`] includes
    /// the margin.
    pub fn margin(&self) -> u32 {
        if self.library.version() < Version::EXACT_WINDOWS { MARGIN } else { 0 }
    }

    /// Converts the status of a call that does not depend on a file. If one of our allocator
    /// callbacks failed, returns the callback's error instead.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<()> {
        check(call, status).map_err(|error| self.refusal(status).unwrap_or(error))
    }

    /// Converts the status of a decoding phase. If one of our allocator callbacks failed, returns
    /// the callback's error instead.
    pub(super) fn check_decode(
        &self,
        call: &'static str,
        status: Status,
    ) -> Result<(), DecodeError> {
        check_decode(call, status)
            .map_err(|error| self.refusal(status).map_or(error, DecodeError::Fatal))
    }

    /// Waits until the stream is empty and returns the error of a call. Some of the call's work may
    /// be in the stream, and nothing may be freed before that work has ended. If the device is
    /// lost, returns the error of the lost device instead.
    pub(super) fn behind(&self, error: DecodeError, stream: &Stream) -> DecodeError {
        let Err(lost) = stream.synchronize() else { return error };
        self.allocators.lose_track();
        match error {
            DecodeError::Sample(_) | DecodeError::Failed(..) => DecodeError::Fatal(lost),
            DecodeError::Fatal(_) => error,
        }
    }

    /// Returns the error of this thread's failed allocation, if that allocation may have caused the
    /// status. nvJPEG does not document which status it returns after a failed allocation. A status
    /// that concerns the file is never attributed to an allocation.
    fn refusal(&self, status: Status) -> Option<Error> {
        use Status as S;
        match status {
            S::NVJPEG_STATUS_BAD_JPEG
            | S::NVJPEG_STATUS_INCOMPLETE_BITSTREAM
            | S::NVJPEG_STATUS_JPEG_NOT_SUPPORTED
            | S::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED => None,
            _ => self.allocators.refusal(),
        }
    }
}

impl Drop for Jpeg {
    fn drop(&mut self) {
        let calls = &self.library.calls;
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: each object was created once and is destroyed once, in reverse order. All
        // decoders hold an `Arc` of `self`, so no decoder exists. Destroying nvJPEG's objects at
        // process exit is known to crash, but values of this crate are not dropped then.
        unsafe {
            if !self.decoder.is_null() {
                (calls.nvjpegDecoderDestroy)(self.decoder);
            }
            (calls.nvjpegDestroy)(self.handle);
        }
    }
}

/// Checks whether a backend is available on this device. Destroys all objects that the check
/// creates.
pub(super) fn probe(library: &Library, device: &Arc<Device>, backend: Backend) -> Result<()> {
    let _entered = device.enter()?;
    device.keep_context();
    let handle = create(library, backend, None)?;
    let found = match backend {
        Backend::Hardware => find_engines(library, handle).map(|_| ()),
        Backend::GpuHybrid | Backend::Hybrid => {
            create_decoder(library, handle, backend).and_then(|decoder| {
                // SAFETY: the decoder was just created, and nothing was created from it.
                let status = unsafe { (library.calls.nvjpegDecoderDestroy)(decoder) };
                check("nvjpegDecoderDestroy", status)
            })
        }
    };
    // SAFETY: the handle was just created, and everything created from it is destroyed.
    let status = unsafe { (library.calls.nvjpegDestroy)(handle) };
    found.and(check("nvjpegDestroy", status))
}

/// Creates a handle on the bound device. Without `allocators`, nvJPEG uses its own.
fn create(
    library: &Library,
    backend: Backend,
    allocators: Option<&Allocators>,
) -> Result<sys::nvjpegHandle_t> {
    let mut handle = ptr::null_mut();
    let flags = sys::NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION;
    // The backend of a handle applies to batches (nvJPEG's documentation). Each decoder of single
    // images has its own backend. NVIDIA's programs create such decoders from a handle with the
    // default backend.
    let of_handle = match backend {
        Backend::Hardware => sys::nvjpegBackend_t::NVJPEG_BACKEND_HARDWARE,
        Backend::GpuHybrid | Backend::Hybrid => sys::nvjpegBackend_t::NVJPEG_BACKEND_DEFAULT,
    };
    let (call, status) = match allocators {
        Some(allocators) => {
            let (device, pinned) = (allocators.for_device(), allocators.for_pinned());
            // SAFETY: the allocators outlive the handle. The call writes one handle.
            let status = unsafe {
                (library.calls.nvjpegCreateExV2)(of_handle, device, pinned, flags, &mut handle)
            };
            ("nvjpegCreateExV2", status)
        }
        None => {
            let (device, pinned) = (ptr::null_mut(), ptr::null_mut());
            // At least in the versions 12.4 to 13.3, `nvjpegCreateExV2` returns "invalid parameter"
            // if the allocators are null. So `nvjpegCreateEx` is called.
            // SAFETY: the call writes one handle.
            let status = unsafe {
                (library.calls.nvjpegCreateEx)(of_handle, device, pinned, flags, &mut handle)
            };
            ("nvjpegCreateEx", status)
        }
    };
    match status {
        Status::NVJPEG_STATUS_ARCH_MISMATCH if backend == Backend::Hardware => Err(no_engines()),
        _ => check(call, status).map(|()| handle),
    }
}

/// Creates a decoder of single images. The handle's device must be bound.
fn create_decoder(
    library: &Library,
    handle: sys::nvjpegHandle_t,
    backend: Backend,
) -> Result<sys::nvjpegJpegDecoder_t> {
    let mut decoder = ptr::null_mut();
    // SAFETY: the handle is alive. The call writes one handle.
    let status =
        unsafe { (library.calls.nvjpegDecoderCreate)(handle, backend.raw(), &mut decoder) };
    check("nvjpegDecoderCreate", status).map(|()| decoder)
}

/// Returns the engines of a handle of [`Backend::Hardware`].
fn find_engines(library: &Library, handle: sys::nvjpegHandle_t) -> Result<Engines> {
    let (mut engines, mut cores_per_engine) = (0, 0);
    // SAFETY: the handle is alive. The call writes two numbers.
    let status = unsafe {
        (library.calls.nvjpegGetHardwareDecoderInfo)(handle, &mut engines, &mut cores_per_engine)
    };
    check("nvjpegGetHardwareDecoderInfo", status)?;
    match engines {
        0 => Err(no_engines()),
        _ => Ok(Engines { engines, cores_per_engine }),
    }
}

fn no_engines() -> Error {
    Error::unavailable(
        "a JPEG engine",
        "nvJPEG finds no JPEG engines on this GPU. A100, A30, Ada, Hopper, Blackwell and Thor \
         have them, but MIG can hide them. In a container they need the driver capability `video` \
         (libnvcuvid.so.1). The routes nvjpeg-gpu, nvjpeg-hybrid and cpu need no engines",
    )
}

fn with_margin(margin: u32, image: Size, wanted: Roi) -> Roi {
    let x = wanted.x.saturating_sub(margin);
    let y = wanted.y.saturating_sub(margin);
    let right = wanted.right().saturating_add(margin).min(image.width);
    let bottom = wanted.bottom().saturating_add(margin).min(image.height);
    Roi::new(x, y, right - x, bottom - y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_clipped_to_the_image() {
        let image = Size::new(100, 50);
        assert_eq!(with_margin(2, image, Roi::new(10, 10, 20, 20)), Roi::new(8, 8, 24, 24));
        assert_eq!(with_margin(2, image, Roi::new(0, 1, 100, 48)), Roi::new(0, 0, 100, 50));
        assert_eq!(with_margin(0, image, Roi::new(3, 4, 5, 6)), Roi::new(3, 4, 5, 6));
    }
}
