//! Allocator callbacks for nvJPEG. They allocate from nvJPEG's row (its reserved part) of each
//! memory pool and never from the driver.
//!
//! nvJPEG frees in stream order, like `cudaFreeAsync`, but a pool may reuse freed bytes at once. So
//! freed bytes return to the pool only when the events that were recorded after their last use are
//! reached. Only two operations wait for these events: `drop`, and an allocation that finds its row
//! full ([`Allocators::waits`]). nvJPEG frees a buffer only when the buffer grows or is destroyed,
//! never in the steady state.
//!
//! nvJPEG's function that destroys a buffer has no stream parameter. nvJPEG may then pass the
//! stream of the last image to the `free` callback. That stream may no longer exist, and the driver
//! must never be called with a destroyed stream. So an event is recorded in the passed stream only
//! while a call of nvJPEG with that stream is in progress. Otherwise, an event is recorded in each
//! stream of the calls in progress. The event that each decoder records after its calls is used
//! too.
//!
//! Nothing waits for the whole context: a framework's queue may be long, and `cuCtxSynchronize`
//! fails while one of the context's streams is captured. If the end of the work cannot be observed,
//! the bytes are never reused ([`Pool::withheld_bytes`]).

use std::cell::UnsafeCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use cudarc::driver::{result, sys as cuda};
use nvjpeg_sys as sys;

use crate::error::{Error, Result};
use crate::gpu::driver;
use crate::gpu::pool::{
    Buffer, DevicePool, OnDevice, Pinned, PinnedBuffer, PinnedPool, Pool, PoolMemory,
};
use crate::gpu::{Device, Event, Stream};

/// Pools from which nvJPEG's buffers are allocated.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Device memory.
    pub device: DevicePool,
    /// Page-locked memory.
    pub pinned: PinnedPool,
    /// Name of nvJPEG's row (its reserved part) in both memory pools.
    pub row: String,
}

/// Allocators to which an nvJPEG handle and its buffers point. Must outlive the handle and the
/// buffers.
#[derive(Debug)]
pub(super) struct Allocators {
    device: Source<OnDevice>,
    pinned: Source<Pinned>,
    /// Structure that is passed to nvJPEG. nvJPEG's documentation does not say whether nvJPEG
    /// copies the structure or keeps the pointer.
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
    /// Events of the decoders. Each decoder records its event after each of its calls.
    events: Vec<Weak<Event>>,
    /// Whether a stream contains work without an event after it. The end of this work cannot be
    /// observed.
    unmarked: bool,
}

/// A call of nvJPEG that is in progress with a stream. Dropping this value marks the end of the
/// call.
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
    /// Returns events. When all of them are reached, no work uses the memory that nvJPEG now frees
    /// with the stream `stream`.
    fn ends(&self, gpu: &Arc<Device>, stream: usize) -> Result<Vec<Arc<Event>>> {
        let _entered = gpu.enter()?;
        // The lock is held until the end of this function. Meanwhile no call can end, and no stream
        // in the list can be destroyed.
        let known = self.known();
        if known.unmarked {
            let problem = "work of a failed call cannot be observed".into();
            return Err(Error::Internal { problem });
        }
        if known.streams.contains(&stream) {
            return Ok(vec![mark(gpu, stream)?]);
        }
        let marks = known.streams.iter().map(|&stream| mark(gpu, stream));
        let decoders = known.events.iter().filter_map(Weak::upgrade).map(Ok);
        marks.chain(decoders).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates an event and records it in the stream of a call in progress. The context must be bound.
fn mark(gpu: &Arc<Device>, stream: usize) -> Result<Arc<Event>> {
    let event = Event::new(gpu)?;
    // SAFETY: the event is alive, and the call borrows its stream.
    let recorded = unsafe { result::event::record(event.raw().cast(), stream as cuda::CUstream) };
    driver("cuEventRecord", recorded)?;
    Ok(Arc::new(event))
}

#[derive(Debug)]
struct Source<M: PoolMemory> {
    gpu: Arc<Device>,
    pool: Pool<M>,
    row: String,
    live: Mutex<HashMap<u64, Buffer<M>>>,
    /// Buffers that nvJPEG freed and that the device may still use, oldest first.
    freed: Mutex<VecDeque<Freed<M>>>,
    /// Number of freed buffers for which allocations waited.
    waits: AtomicU64,
    /// Error of each thread's last failed allocation. Several threads decode at the same time.
    refused: Mutex<HashMap<ThreadId, Error>>,
    work: Arc<Work>,
}

#[derive(Debug)]
struct Freed<M: PoolMemory> {
    buffer: Buffer<M>,
    /// Events after the buffer's last uses. An event that was reached is removed, because its
    /// decoder will record it again after later work.
    ends: Vec<Arc<Event>>,
}

impl<M: PoolMemory> Freed<M> {
    fn is_unused(&mut self) -> Result<bool> {
        while let Some(end) = self.ends.last() {
            if !end.query()? {
                return Ok(false);
            }
            self.ends.pop();
        }
        Ok(true)
    }

    fn wait_and_give_back(self) {
        if self.ends.iter().try_for_each(|end| end.synchronize()).is_err() {
            self.buffer.withhold();
        }
    }
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

    /// Returns the allocator for device memory. Valid as long as `self` is alive and does not move.
    pub fn for_device(&self) -> *mut sys::nvjpegDevAllocatorV2_t {
        self.for_device.get()
    }

    /// Returns the allocator for page-locked memory. Valid as long as `self` is alive and does not
    /// move.
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

    /// Registers that a call failed and that waiting for the call's stream failed too. No memory is
    /// reused afterwards.
    pub fn lose_track(&self) {
        self.work.known().unmarked = true;
    }

    /// Returns the number of freed buffers for which nvJPEG's allocations waited because nvJPEG's
    /// row of the pool was full.
    pub fn waits(&self) -> u64 {
        self.device.waits.load(Ordering::Relaxed) + self.pinned.waits.load(Ordering::Relaxed)
    }

    /// Allocates page-locked memory from the row (the part of the pool) that is reserved for
    /// nvJPEG.
    pub fn pinned_buffer(&self, bytes: usize) -> Result<PinnedBuffer> {
        self.pinned.pool.buffer(&self.pinned.row, bytes)
    }

    /// Whether these bytes lie in the pool of page-locked memory.
    pub fn is_pinned(&self, bytes: &[u8]) -> bool {
        self.pinned.pool.holds(bytes)
    }

    /// Returns the error of this thread's last failed allocation, and forgets it.
    pub fn refusal(&self) -> Option<Error> {
        let of = thread::current().id();
        let take = |refused: &Mutex<HashMap<ThreadId, Error>>| {
            refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&of)
        };
        let (device, pinned) = (take(&self.device.refused), take(&self.pinned.refused));
        device.or(pinned)
    }
}

impl<M: PoolMemory> Source<M> {
    fn new(gpu: &Arc<Device>, pool: &Pool<M>, row: &str, work: &Arc<Work>) -> Self {
        Self {
            work: work.clone(),
            gpu: gpu.clone(),
            pool: pool.clone(),
            row: row.to_owned(),
            live: Mutex::default(),
            freed: Mutex::default(),
            waits: AtomicU64::new(0),
            refused: Mutex::default(),
        }
    }

    fn pointer(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.reclaim();
        let buffer = match self.pool.buffer(&self.row, bytes) {
            Err(Error::Budget { .. }) => self.wait_for(bytes)?,
            other => other?,
        };
        let address = buffer.address();
        self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(address, buffer);
        Ok(address)
    }

    /// Waits for freed buffers, oldest first, until a buffer of `bytes` bytes fits into nvJPEG's
    /// row. The list of freed buffers stays locked, because another thread would otherwise find the
    /// list empty and fail. Meanwhile all of nvJPEG's allocations and frees wait.
    fn wait_for(&self, bytes: usize) -> Result<Buffer<M>> {
        let mut all = self.freed();
        loop {
            match self.pool.buffer(&self.row, bytes) {
                Err(error @ Error::Budget { .. }) => {
                    let Some(mut freed) = all.pop_front() else { return Err(error) };
                    match self.gpu.beside_captures(|| freed.is_unused()) {
                        Ok(true) => {}
                        Ok(false) => {
                            self.waits.fetch_add(1, Ordering::Relaxed);
                            self.gpu.beside_captures(|| freed.wait_and_give_back());
                        }
                        Err(_) => freed.buffer.withhold(),
                    }
                }
                other => return other,
            }
        }
    }

    fn free(&self, address: u64, stream: sys::cudaStream_t) {
        // The buffer moves from the list of live buffers to the list of freed buffers. The second
        // list stays locked meanwhile. So an allocation in another thread that finds nvJPEG's row
        // full waits for the lock, and then finds this buffer in the list.
        let mut all = self.freed();
        let buffer = self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        let Some(buffer) = buffer else { return };
        match self.gpu.beside_captures(|| self.work.ends(&self.gpu, stream as usize)) {
            Ok(ends) => all.push_back(Freed { buffer, ends }),
            Err(_) => buffer.withhold(),
        }
        drop(all);
        self.reclaim();
    }

    /// Returns freed buffers that the device no longer uses to the pool.
    fn reclaim(&self) {
        let mut all = self.freed();
        for _ in 0..all.len() {
            let Some(mut freed) = all.pop_front() else { return };
            match self.gpu.beside_captures(|| freed.is_unused()) {
                Ok(true) => {}
                Ok(false) => all.push_back(freed),
                Err(_) => freed.buffer.withhold(),
            }
        }
    }

    fn freed(&self) -> MutexGuard<'_, VecDeque<Freed<M>>> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: PoolMemory> Drop for Source<M> {
    fn drop(&mut self) {
        for freed in std::mem::take(&mut *self.freed()) {
            self.gpu.beside_captures(|| freed.wait_and_give_back());
        }
    }
}

/// nvJPEG's `malloc` callback. Returns 0 on success.
unsafe extern "C" fn allocate<M: PoolMemory>(
    source: *mut c_void,
    address: *mut *mut c_void,
    bytes: usize,
    _: sys::cudaStream_t,
) -> c_int {
    let work = || {
        // SAFETY: this is the pointer from `Source::pointer`. The source outlives nvJPEG's handle.
        let source = unsafe { &*source.cast::<Source<M>>() };
        match source.allocate(bytes) {
            Ok(given) => {
                // SAFETY: nvJPEG passes the address of a pointer variable.
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
    // A panic must not unwind into nvJPEG's frames.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(1)
}

/// nvJPEG's `free` callback. Returns 0 on success.
unsafe extern "C" fn free<M: PoolMemory>(
    source: *mut c_void,
    address: *mut c_void,
    _: usize,
    stream: sys::cudaStream_t,
) -> c_int {
    let work = || {
        // SAFETY: this is the pointer from `Source::pointer`. The source outlives nvJPEG's handle.
        let source = unsafe { &*source.cast::<Source<M>>() };
        source.free(address as u64, stream);
        0
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(1)
}
