//! nvJPEG's memory: allocated from two rows of the pools, never from the driver.
//!
//! nvJPEG frees in stream order (like `cudaFreeAsync`), while a pool may reuse freed bytes at once. So freeing waits
//! for the stream. That happens only when a buffer grows or is destroyed, never in the steady state. Destroying a
//! buffer takes no stream, and the stream that nvJPEG then passes may be that of the last image and no longer exist;
//! the driver must never be called with it. So the allocator waits for a stream only during a call that was given this
//! stream, and for the whole device otherwise.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use cudarc::driver::{result, sys as cuda};
use nvjpeg_sys as sys;

use crate::error::{Error, Result};
use crate::gpu::pool::{Buffer, DevicePool, OnDevice, Pinned, PinnedPool, Place, Pool};
use crate::gpu::{Device, Stream};

/// Source of nvJPEG's buffers.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Device memory.
    pub device: DevicePool,
    /// Page-locked memory.
    pub pinned: PinnedPool,
    /// Name of its row in both pools.
    pub row: String,
}

/// Allocators that a handle and its buffers point to. Must outlive them.
#[derive(Debug)]
pub(super) struct Allocators {
    device: Source<OnDevice>,
    pinned: Source<Pinned>,
    /// Passed to nvJPEG, whose documentation does not say whether it copies them or keeps the pointers.
    for_device: UnsafeCell<sys::nvjpegDevAllocatorV2_t>,
    for_pinned: UnsafeCell<sys::nvjpegPinnedAllocatorV2_t>,
    under_way: UnderWay,
}

/// Addresses of the streams of calls in progress, one entry per call.
type UnderWay = Arc<Mutex<Vec<usize>>>;

/// Call in progress with a stream. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Call<'a> {
    under_way: &'a UnderWay,
    stream: usize,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut streams = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = streams.iter().position(|it| *it == self.stream) {
            streams.swap_remove(at);
        }
    }
}

#[derive(Debug)]
struct Source<M: Place> {
    gpu: Arc<Device>,
    pool: Pool<M>,
    row: String,
    live: Mutex<HashMap<u64, Buffer<M>>>,
    /// Errors by thread, because several threads decode at a time.
    refused: Mutex<HashMap<ThreadId, Error>>,
    under_way: UnderWay,
}

impl Allocators {
    pub fn new(gpu: &Arc<Device>, memory: &Memory) -> Box<Self> {
        let under_way = UnderWay::default();
        let mut all = Box::new(Self {
            device: Source::new(gpu, &memory.device, &memory.row, &under_way),
            pinned: Source::new(gpu, &memory.pinned, &memory.row, &under_way),
            for_device: UnsafeCell::new(sys::nvjpegDevAllocatorV2_t {
                dev_malloc: Some(allocate::<OnDevice>),
                dev_free: Some(free::<OnDevice>),
                dev_ctx: std::ptr::null_mut(),
            }),
            for_pinned: UnsafeCell::new(sys::nvjpegPinnedAllocatorV2_t {
                pinned_malloc: Some(allocate::<Pinned>),
                pinned_free: Some(free::<Pinned>),
                pinned_ctx: std::ptr::null_mut(),
            }),
            under_way,
        });
        all.for_device.get_mut().dev_ctx = all.device.pointer();
        all.for_pinned.get_mut().pinned_ctx = all.pinned.pointer();
        all
    }

    /// Allocator for device memory. Valid as long as `self` is alive and does not move.
    pub fn for_device(&self) -> *mut sys::nvjpegDevAllocatorV2_t {
        self.for_device.get()
    }

    /// Allocator for page-locked memory. Valid as long as `self` is alive and does not move.
    pub fn for_pinned(&self) -> *mut sys::nvjpegPinnedAllocatorV2_t {
        self.for_pinned.get()
    }

    /// Registers a call of nvJPEG with this stream.
    pub fn call(&self, stream: &Stream) -> Call<'_> {
        let stream = stream.raw() as usize;
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Call { under_way: &self.under_way, stream }
    }

    /// Whether these bytes lie in the pool of page-locked memory.
    pub fn is_pinned(&self, bytes: &[u8]) -> bool {
        self.pinned.pool.holds(bytes)
    }

    /// Why an allocation of this thread was refused. Returned once.
    pub fn refusal(&self) -> Option<Error> {
        let of = thread::current().id();
        let take = |refused: &Mutex<HashMap<ThreadId, Error>>| {
            refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&of)
        };
        let (device, pinned) = (take(&self.device.refused), take(&self.pinned.refused));
        device.or(pinned)
    }
}

impl<M: Place> Source<M> {
    fn new(gpu: &Arc<Device>, pool: &Pool<M>, row: &str, under_way: &UnderWay) -> Self {
        Self {
            under_way: under_way.clone(),
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
            let calls = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            let is_there = calls.contains(&(stream as usize));
            drop(calls);
            // If waiting fails the device is lost, and none of its work reads the memory any more.
            let _ = if is_there {
                let _entered = self.gpu.enter()?;
                // SAFETY: the stream of a call that is under way, which borrows it.
                unsafe { result::stream::synchronize(stream.cast::<cuda::CUstream_st>()) }.is_ok()
            } else {
                self.gpu.synchronize().is_ok()
            };
        }
        drop(buffer);
        Ok(())
    }
}

/// nvJPEG's `malloc`. Returns 0 on success.
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
                let mut refused = source.refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.insert(thread::current().id(), error);
                1
            }
        }
    };
    // Unwinding must not reach nvJPEG's frames.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(1)
}

/// nvJPEG's `free`. Returns 0 on success.
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
