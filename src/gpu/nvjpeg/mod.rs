//! JPEG decoding with nvJPEG: three of nvJPEG's backends decode windows of images into device
//! memory.
//!
//! ```text
//! PageDecoder::decode     Host  CPU thread  parse, entropy decoding into page-locked memory
//!  (one image)                stream      copy, inverse transform, colour: RGB rows into the destination
//!                         Cuda  CPU thread  parse
//!                               stream      copy of the bitstream, entropy decoding and all the rest
//! BatchDecoder::decode    Hardware  engines everything, for all images of the batch
//!  (some images)
//! ```
//!
//! One [`Jpeg`] per backend holds nvJPEG's handle and its memory. Decoders hold the objects for one
//! image or one batch. All objects are created at start, because creating a state is slow (nvJPEG
//! takes a lock for it) and one state per image is known to leak. A state whose image failed is
//! destroyed, because it holds pixels of the previous image. Those pixels could appear in a
//! truncated image.
//!
//! nvJPEG's own buffers are allocated from two rows (reserved parts) of the memory pools, one of
//! device memory and one of page-locked memory. The caller sets the rows' sizes, and they are
//! allocated at start. An image that needs more than the free part of a row fails with
//! [`Error::Budget`]. Only [`measure_memory`] and [`check_windows`] allocate other memory, and they
//! free it again.

use std::sync::{Arc, Mutex, PoisonError};

use nvjpeg_sys as sys;

use super::{Device, LibraryName, library};
use crate::error::{Error, Result};

pub use allocator::Memory;
pub use batch::{BatchDecoder, BatchJob, HostIdle};
pub use calls::{Library, Version};
pub use jpeg::{Engines, Jpeg, Window};
pub use page::PageDecoder;
pub use status::DecodeError;
pub use support::Support;
pub use trial::{Bytes, Measured, Trial, measure_memory};
#[doc(hidden)]
pub use trial_file::trial_file;
pub use window_check::check_windows;
pub use windows::{set_checking_program, window_verdict};

mod allocator;
mod batch;
mod calls;
mod jpeg;
mod page;
mod stamps;
mod status;
mod support;
mod trial;
mod trial_file;
mod window_check;
mod windows;

/// Width of the margin, in pixels, that is decoded around a window with versions of nvJPEG that
/// compute the outermost pixels of a window wrongly. The wrong border is one pixel wide.
const MARGIN: u32 = 2;

/// Maximum number of columns or rows of a JPEG file.
const MAX_SIDE: u32 = 65535;

/// nvJPEG backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// `NVJPEG_BACKEND_HARDWARE`: decodes with the GPU's JPEG engines (A100, A30, Ada, Hopper,
    /// Blackwell, Thor). Used by [`BatchDecoder`]. Accepts sequential files of 8 bits with one
    /// scan, 4:4:4, 4:2:2, 4:2:0, 4:4:0 or gray, with sides up to 16000 pixels.
    Hardware,
    /// `NVJPEG_BACKEND_GPU_HYBRID`: decodes with GPU kernels, including entropy decoding. Used by
    /// [`PageDecoder`]. Accepts sequential files with one interleaved scan.
    GpuHybrid,
    /// `NVJPEG_BACKEND_HYBRID`: entropy decoding on the CPU in the calling thread. Used by
    /// [`PageDecoder`]. The only backend that accepts progressive files.
    Hybrid,
}

impl Backend {
    /// All backends.
    pub const ALL: [Backend; 3] = [Backend::Hardware, Backend::GpuHybrid, Backend::Hybrid];

    /// Name of the backend in reports. The decode route that uses it has the same name.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Hardware => "nvjpeg-hardware",
            Backend::GpuHybrid => "nvjpeg-gpu",
            Backend::Hybrid => "nvjpeg-hybrid",
        }
    }

    /// Estimates the device memory and the page-locked memory, in bytes, that this backend needs
    /// for one 4:4:4 image of `pixels` pixels in a file of `encoded` bytes. A decoder for several
    /// images needs this amount for each image.
    ///
    /// **These estimates follow from the data that each backend must hold. No measurement on a GPU
    /// has confirmed them.** Compare with [`Pool::row_bytes`](crate::gpu::Pool::row_bytes) after a
    /// run.
    ///
    /// * `Hybrid` holds 16-bit coefficients of three components in page-locked memory. On the
    ///   device it holds the coefficients again, and the decoded planes.
    /// * `GpuHybrid` holds the bitstream in page-locked memory. On the device it holds the
    ///   bitstream, the positions of the bitstream's parts (the same size again), coefficients and
    ///   planes.
    /// * `Hardware` holds the bitstream in page-locked memory. On the device it holds the bitstream
    ///   and the planes.
    pub const fn buffer_bytes(self, pixels: u64, encoded: u64) -> (u64, u64) {
        // Sides are rounded up to whole MCUs, and rows to a pitch. From 200 x 200 pixels on, this
        // adds at most an eighth.
        let padded = pixels.saturating_add(pixels / 8);
        let planes = padded.saturating_mul(PLANE_BYTES);
        let coefficients = padded.saturating_mul(COEFFICIENT_BYTES);
        let (device, pinned) = match self {
            Backend::Hardware => (planes.saturating_add(encoded), encoded),
            Backend::GpuHybrid => {
                let bitstream = encoded.saturating_mul(2);
                (coefficients.saturating_add(planes).saturating_add(bitstream), encoded)
            }
            Backend::Hybrid => (coefficients.saturating_add(planes), coefficients),
        };
        (device.saturating_add(DEVICE_BYTES_BESIDES), pinned.saturating_add(PINNED_BYTES_BESIDES))
    }

    const fn raw(self) -> sys::nvjpegBackend_t {
        match self {
            Backend::Hardware => sys::nvjpegBackend_t::NVJPEG_BACKEND_HARDWARE,
            Backend::GpuHybrid => sys::nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID,
            Backend::Hybrid => sys::nvjpegBackend_t::NVJPEG_BACKEND_HYBRID,
        }
    }
}

/// Size of the decoded planes in bytes per pixel: three components without subsampling.
const PLANE_BYTES: u64 = 3;
/// Size of the coefficients in bytes per pixel: three 16-bit components without subsampling.
const COEFFICIENT_BYTES: u64 = 6;

/// Device memory per image for tables, headers and rounding, in bytes.
const DEVICE_BYTES_BESIDES: u64 = 512 << 10;
/// Page-locked memory per image for tables, headers and rounding, in bytes.
const PINNED_BYTES_BESIDES: u64 = 128 << 10;

/// Every backend, and the reason if the device does not support it.
pub type Backends = Vec<(Backend, Result<(), String>)>;

/// Does the work of [`known_backends`]. Also returns whether the answers are final. A call that
/// failed, for example because memory was short, may succeed later. A missing engine stays missing.
fn probe_backends(device: &Arc<Device>) -> Result<(Backends, bool)> {
    let library = Library::open(device.runtime(), Some(device.driver_version() / 1000))?;
    let probed = Backend::ALL.map(|backend| (backend, jpeg::probe(&library, device, backend)));
    let is_final = |it: &Result<()>| matches!(it, Ok(()) | Err(Error::Unavailable { .. }));
    let all_final = probed.iter().all(|(_, it)| is_final(it));
    let told = probed.map(|(backend, it)| (backend, it.map_err(|error| error.to_string())));
    Ok((told.into(), all_final))
}

/// Returns for each backend whether this device and its driver support it, or the reason why they
/// do not. Creates and destroys a handle of each backend, with nvJPEG's own allocators. This is
/// slow, and a process may build many loaders, so final answers are cached per process.
///
/// # Errors
/// [`Error::Unavailable`] if nvJPEG is not installed. [`Error::Device`] if the device is lost. A
/// missing engine is not an error.
pub fn known_backends(device: &Arc<Device>) -> Result<Backends> {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let cuda_major = Some(device.driver_version() / 1000);
    let library = library::open(device.runtime(), LibraryName::NvJpeg, cuda_major)?;
    let key = (device.ordinal(), library.path());
    if let Some((_, found)) = known().iter().find(|(it, _)| *it == key) {
        return Ok(found.clone());
    }
    let (found, is_final) = probe_backends(device)?;
    if is_final {
        known().push((key, found.clone()));
    }
    Ok(found)
}

/// Clears this process's caches of [`known_backends`], [`measure_memory`] and [`window_verdict`].
/// For tests that simulate several machines.
#[doc(hidden)]
pub fn forget_backends() {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clear();
    trial::forget();
    windows::forget();
}

/// Final answers of [`known_backends`], by device number and path of nvJPEG.
static KNOWN: Mutex<Vec<((usize, &'static str), Backends)>> = Mutex::new(Vec::new());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_with_the_data_that_each_backend_holds() {
        let (pixels, encoded) = (500 * 375, 120_000);
        let bytes = |backend: Backend| backend.buffer_bytes(pixels, encoded);
        let [hardware, cuda, host] = Backend::ALL.map(bytes);
        // Only the backend with entropy decoding on the CPU holds coefficients in page-locked
        // memory.
        assert!(host.1 > 6 * pixels && hardware.1 < 6 * pixels && cuda.1 < 6 * pixels);
        assert!(hardware.0 > 3 * pixels && hardware.0 < host.0 && host.0 < cuda.0);
        for backend in Backend::ALL {
            assert_eq!(backend.buffer_bytes(u64::MAX, u64::MAX), (u64::MAX, u64::MAX));
            let (device, pinned) = backend.buffer_bytes(0, 0);
            assert!(device > 0 && pinned > 0);
        }
    }
}
