//! nvJPEG's memory: allocated from two rows of the pools, never from the driver.
//!
//! nvJPEG frees in stream order (like `cudaFreeAsync`), while a pool may reuse freed bytes at once. So freeing waits
//! for the work that may use the bytes. That happens only when a buffer grows or is destroyed, never in the steady
//! state. Destroying a buffer takes no stream, and the stream that nvJPEG then passes may be that of the last image and
//! no longer exist; the driver must never be called with it. So the allocator waits for that stream only during a call
//! that was given it. Otherwise it waits for all streams of calls in progress, and for the event that each decoder
//! records after its calls. It never waits for the whole context: a framework's queue may be long, and
//! `cuCtxSynchronize` fails while one of the context's streams is captured.
//!
//! If waiting fails, the bytes are not used again ([`Pool::withheld_bytes`]).

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use cudarc::driver::{result, sys as cuda};
use nvjpeg_sys as sys;

use crate::error::{Error, Result};
use crate::gpu::driver;
use crate::gpu::pool::{
    Buffer, DeviceBuffer, DevicePool, OnDevice, Pinned, PinnedBuffer, PinnedPool, Place, Pool,
};
use crate::gpu::{Device, Event, Stream};

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
    work: Arc<Work>,
}

/// Work that may use nvJPEG's memory.
#[derive(Debug, Default)]
struct Work(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Addresses of the streams of calls in progress, one entry per call.
    streams: Vec<usize>,
    /// One event per decoder, recorded after its calls.
    events: Vec<Weak<Event>>,
    /// Whether there is work in a stream after which no event was recorded, and whose end was not observed.
    unmarked: bool,
}

/// Call in progress with a stream. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Call<'a> {
    work: &'a Work,
    stream: usize,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let streams = &mut self.work.known().streams;
        if let Some(at) = streams.iter().position(|it| *it == self.stream) {
            streams.swap_remove(at);
        }
    }
}

impl Work {
    /// Blocks until all work is over that may use memory freed with this stream.
    fn wait(&self, gpu: &Device, stream: usize) -> Result<()> {
        let _entered = gpu.enter()?;
        // Locked until the end, so that no call ends and no stream in the list is destroyed.
        let known = self.known();
        if known.unmarked {
            let problem = "work of a failed call cannot be waited for".into();
            return Err(Error::Internal { problem });
        }
        if known.streams.contains(&stream) {
            return synchronize(stream);
        }
        known.streams.iter().try_for_each(|&stream| synchronize(stream))?;
        known.events.iter().filter_map(Weak::upgrade).try_for_each(|event| event.synchronize())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks until the stream of a call in progress is empty. Its context is bound.
fn synchronize(stream: usize) -> Result<()> {
    // SAFETY: the call borrows its stream.
    let waited = unsafe { result::stream::synchronize(stream as cuda::CUstream) };
    driver("cuStreamSynchronize", waited)
}

#[derive(Debug)]
struct Source<M: Place> {
    gpu: Arc<Device>,
    pool: Pool<M>,
    row: String,
    live: Mutex<HashMap<u64, Buffer<M>>>,
    /// Errors by thread, because several threads decode at a time.
    refused: Mutex<HashMap<ThreadId, Error>>,
    work: Arc<Work>,
}

impl Allocators {
    pub fn new(gpu: &Arc<Device>, memory: &Memory) -> Box<Self> {
        let work = Arc::<Work>::default();
        let mut all = Box::new(Self {
            device: Source::new(gpu, &memory.device, &memory.row, &work),
            pinned: Source::new(gpu, &memory.pinned, &memory.row, &work),
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
            work,
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
        self.work.known().streams.push(stream);
        Call { work: &self.work, stream }
    }

    /// Creates the event that a decoder records after its calls.
    pub fn event(&self) -> Result<Arc<Event>> {
        let event = Arc::new(Event::new(&self.device.gpu)?);
        let events = &mut self.work.known().events;
        events.retain(|it| it.strong_count() > 0);
        events.push(Arc::downgrade(&event));
        Ok(event)
    }

    /// Registers that a call failed and its stream could not be waited for. No memory is used again afterwards.
    pub fn lose_track(&self) {
        self.work.known().unmarked = true;
    }

    /// Allocates page-locked memory from nvJPEG's row.
    pub fn pinned_buffer(&self, bytes: usize) -> Result<PinnedBuffer> {
        self.pinned.pool.buffer(&self.pinned.row, bytes)
    }

    /// Allocates device memory from nvJPEG's row.
    pub fn device_buffer(&self, bytes: usize) -> Result<DeviceBuffer> {
        self.device.pool.buffer(&self.device.row, bytes)
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
    fn new(gpu: &Arc<Device>, pool: &Pool<M>, row: &str, work: &Arc<Work>) -> Self {
        Self {
            work: work.clone(),
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

    fn free(&self, address: u64, stream: sys::cudaStream_t) {
        let buffer = self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        let Some(buffer) = buffer else { return };
        let waited = self.gpu.beside_captures(|| self.work.wait(&self.gpu, stream as usize));
        if waited.is_err() {
            buffer.withhold();
        }
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
        source.free(address as u64, stream);
        0
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(1)
}
