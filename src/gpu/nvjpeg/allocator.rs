//! nvJPEG's memory: taken from two rows of the pools, never from the driver.
//!
//! nvJPEG frees in stream order (as `cudaFreeAsync` does), while a pool hands bytes that were given back to the
//! next taker at once. So freeing waits for the stream. That happens only where a buffer grows or is
//! destroyed: never in the steady state.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{result, sys as cuda};
use nvjpeg_sys as sys;

use crate::error::{Error, Result};
use crate::gpu::Device;
use crate::gpu::pool::{Buffer, DevicePool, OnDevice, Pinned, PinnedPool, Place, Pool};

/// Where nvJPEG's buffers come from.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Device memory.
    pub device: DevicePool,
    /// Page-locked memory.
    pub pinned: PinnedPool,
    /// The name of its row in both.
    pub row: String,
}

/// The allocators that a handle and its buffers point to; outlives them all.
#[derive(Debug)]
pub(super) struct Allocators {
    device: Source<OnDevice>,
    pinned: Source<Pinned>,
}

#[derive(Debug)]
struct Source<M: Place> {
    gpu: Arc<Device>,
    pool: Pool<M>,
    row: String,
    live: Mutex<HashMap<u64, Buffer<M>>>,
    refused: Mutex<Option<Error>>,
}

impl Allocators {
    pub fn new(gpu: &Arc<Device>, memory: &Memory) -> Self {
        Self {
            device: Source::new(gpu, &memory.device, &memory.row),
            pinned: Source::new(gpu, &memory.pinned, &memory.row),
        }
    }

    /// For device memory; valid as long as `self` is alive and does not move.
    pub fn for_device(&self) -> sys::nvjpegDevAllocatorV2_t {
        sys::nvjpegDevAllocatorV2_t {
            dev_malloc: Some(allocate::<OnDevice>),
            dev_free: Some(free::<OnDevice>),
            dev_ctx: self.device.pointer(),
        }
    }

    /// For page-locked memory; valid as long as `self` is alive and does not move.
    pub fn for_pinned(&self) -> sys::nvjpegPinnedAllocatorV2_t {
        sys::nvjpegPinnedAllocatorV2_t {
            pinned_malloc: Some(allocate::<Pinned>),
            pinned_free: Some(free::<Pinned>),
            pinned_ctx: self.pinned.pointer(),
        }
    }

    /// Whether these bytes lie in the pool of page-locked memory.
    pub fn is_pinned(&self, bytes: &[u8]) -> bool {
        self.pinned.pool.holds(bytes)
    }

    /// Why the last allocation was refused, once.
    pub fn refusal(&self) -> Option<Error> {
        let take = |slot: &Mutex<Option<Error>>| {
            slot.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        take(&self.device.refused).or_else(|| take(&self.pinned.refused))
    }
}

impl<M: Place> Source<M> {
    fn new(gpu: &Arc<Device>, pool: &Pool<M>, row: &str) -> Self {
        Self {
            gpu: gpu.clone(),
            pool: pool.clone(),
            row: row.to_owned(),
            live: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    fn pointer(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        let buffer = self.pool.buffer(&self.row, bytes)?;
        let address = buffer.address();
        self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(address, buffer);
        Ok(address)
    }

    fn free(&self, address: u64, stream: sys::cudaStream_t) -> Result<()> {
        let buffer = self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        if buffer.is_some() {
            self.gpu.bind()?;
            // SAFETY: nvJPEG passes a stream that it was given, or null for the default stream. Where waiting fails
            // the device is lost, and no work of it reads the memory any more.
            let _ = unsafe { result::stream::synchronize(stream.cast::<cuda::CUstream_st>()) };
        }
        drop(buffer);
        Ok(())
    }
}

/// nvJPEG's `malloc`: 0 where it worked.
unsafe extern "C" fn allocate<M: Place>(
    source: *mut c_void,
    address: *mut *mut c_void,
    bytes: usize,
    _: sys::cudaStream_t,
) -> c_int {
    let work = || {
        // SAFETY: the pointer that `Source::pointer` gave, to a source that outlives nvJPEG's handle.
        let source = unsafe { &*source.cast::<Source<M>>() };
        match source.allocate(bytes) {
            Ok(given) => {
                // SAFETY: nvJPEG passes a place for one pointer.
                unsafe { *address = given as *mut c_void };
                0
            }
            Err(error) => {
                *source.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                1
            }
        }
    };
    // Unwinding must not reach nvJPEG's frames.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(1)
}

/// nvJPEG's `free`: 0 where it worked.
unsafe extern "C" fn free<M: Place>(
    source: *mut c_void,
    address: *mut c_void,
    _: usize,
    stream: sys::cudaStream_t,
) -> c_int {
    let work = || {
        // SAFETY: as in `allocate`.
        let source = unsafe { &*source.cast::<Source<M>>() };
        c_int::from(source.free(address as u64, stream).is_err())
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(1)
}
