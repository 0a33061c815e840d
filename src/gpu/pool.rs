//! Memory pools: allocated once at start, and divided into the rows of the memory plan.
//!
//! A pool makes one allocation for all rows that the footprint lists. A buffer is a piece of a row,
//! and its size is rounded up to [`ALIGN_BYTES`]. A request that does not fit into its row is an
//! error, because rows never grow. A buffer holds its pool, and the pool holds its device.
//! Everything is therefore freed in the right order, whatever is dropped first. Allocating and
//! freeing a buffer never calls the driver.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{result, sys};

use super::arena::Arena;
use super::{Device, driver};
use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory};

/// Alignment of every buffer in bytes, the same as `cudaMalloc`'s.
pub const ALIGN_BYTES: usize = 256;

/// Pool of device memory.
pub type DevicePool = Pool<OnDevice>;

/// Pool of page-locked host memory. The memory is cached, not write-combined, because the CPU also
/// reads it.
pub type PinnedPool = Pool<Pinned>;

/// Piece of device memory. Dropping a buffer returns its memory to the pool.
///
/// Dropping a buffer does not wait for work that still reads or writes it. The memory stays
/// allocated, but the next buffer may reuse it.
pub type DeviceBuffer = Buffer<OnDevice>;

/// Piece of page-locked memory. Dereferences to a byte slice.
pub type PinnedBuffer = Buffer<Pinned>;

/// Memory of one kind, allocated at once and divided into rows.
pub struct Pool<M: PoolMemory> {
    shared: Arc<Shared<M>>,
}

/// Piece of a pool's memory.
pub struct Buffer<M: PoolMemory> {
    shared: Arc<Shared<M>>,
    row: usize,
    offset: usize,
    len: usize,
    withheld: bool,
}

/// Kind of a pool's memory: [`OnDevice`] or [`Pinned`].
pub trait PoolMemory: Send + Sync + 'static {
    /// Kind of this memory in a footprint.
    const MEMORY: Memory;
    /// Allocates `bytes` from the driver. The device must be bound.
    #[doc(hidden)]
    fn allocate(bytes: usize) -> Result<u64>;
    /// Frees memory that `allocate` returned. The device must be bound.
    ///
    /// # Safety
    /// `address` must come from `allocate` and be freed once.
    #[doc(hidden)]
    unsafe fn free(address: u64);
}

/// [`PoolMemory`] of [`DevicePool`].
#[derive(Debug)]
pub struct OnDevice;

/// [`PoolMemory`] of [`PinnedPool`].
#[derive(Debug)]
pub struct Pinned;

struct Shared<M: PoolMemory> {
    device: Arc<Device>,
    /// Address of the first byte. 0 for an empty pool.
    address: u64,
    bytes: usize,
    rows: Vec<Row>,
    state: Mutex<PoolState>,
    place: std::marker::PhantomData<M>,
}

struct Row {
    name: String,
    start: usize,
}

struct PoolState {
    /// One arena (list of free ranges) per row.
    arenas: Vec<Arena>,
    used: usize,
    peak: usize,
    withheld: usize,
}

impl<M: PoolMemory> Pool<M> {
    /// Allocates the memory for all rows of the footprint that need this kind of memory. Rows with
    /// the same name, such as those of several views, share their memory.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver does not have enough memory.
    pub fn take(device: &Arc<Device>, footprint: &Footprint) -> Result<Self> {
        let mut sizes: Vec<(&str, usize)> = Vec::new();
        for row in footprint.rows.iter().filter(|row| row.memory == M::MEMORY) {
            let too_large = || Error::Budget {
                row: row.name.clone(),
                needed: u64::MAX,
                limit: usize::MAX as u64,
            };
            let bytes = (row.each_bytes.checked_next_multiple_of(ALIGN_BYTES as u64))
                .and_then(|each| each.checked_mul(row.count))
                .and_then(|bytes| usize::try_from(bytes).ok())
                .ok_or_else(too_large)?;
            match sizes.iter_mut().find(|(name, _)| *name == row.name) {
                Some((_, all)) => *all = all.checked_add(bytes).ok_or_else(too_large)?,
                None => sizes.push((&row.name, bytes)),
            }
        }
        let (mut rows, mut arenas, mut start) = (Vec::new(), Vec::new(), 0usize);
        for (name, bytes) in sizes {
            rows.push(Row { name: name.to_string(), start });
            arenas.push(Arena::new(bytes, ALIGN_BYTES));
            start = start.checked_add(bytes).ok_or_else(|| Error::Budget {
                row: name.to_string(),
                needed: u64::MAX,
                limit: usize::MAX as u64,
            })?;
        }
        let _entered = device.enter()?;
        let address = if start > 0 { M::allocate(start)? } else { 0 };
        let state = Mutex::new(PoolState { arenas, used: 0, peak: 0, withheld: 0 });
        let device = device.clone();
        let place = std::marker::PhantomData;
        Ok(Self { shared: Arc::new(Shared { device, address, bytes: start, rows, state, place }) })
    }

    /// Allocates a buffer in a row. The buffer's content is unspecified.
    ///
    /// # Errors
    /// [`Error::Budget`] if the row has no gap of that many bytes, or if there is no such row (its
    /// limit is then 0).
    pub fn buffer(&self, row: &str, bytes: usize) -> Result<Buffer<M>> {
        let missing = || Error::Budget { row: row.into(), needed: bytes as u64, limit: 0 };
        let index = self.shared.rows.iter().position(|it| it.name == row).ok_or_else(missing)?;
        let offset = self.shared.take(index, bytes)?;
        Ok(Buffer { shared: self.shared.clone(), row: index, offset, len: bytes, withheld: false })
    }

    /// Returns the number of bytes allocated from the driver: the sum of all rows, with the size of
    /// each buffer rounded up to [`ALIGN_BYTES`].
    pub fn capacity_bytes(&self) -> u64 {
        self.shared.bytes as u64
    }

    /// Returns the number of bytes that are in buffers now. Each buffer is rounded up to
    /// [`ALIGN_BYTES`].
    pub fn used_bytes(&self) -> u64 {
        self.shared.state().used as u64
    }

    /// Returns the maximum number of bytes that were in buffers at the same time.
    pub fn peak_bytes(&self) -> u64 {
        self.shared.state().peak as u64
    }

    /// Returns the number of bytes of [withheld](Buffer::withhold) buffers. They count as used
    /// until the pool is dropped.
    pub fn withheld_bytes(&self) -> u64 {
        self.shared.state().withheld as u64
    }

    /// Returns the maximum number of bytes of a row that were in buffers at the same time, and the
    /// size of the row.
    pub fn row_bytes(&self, row: &str) -> Option<(u64, u64)> {
        let index = self.shared.rows.iter().position(|it| it.name == row)?;
        let state = self.shared.state();
        Some((state.arenas[index].peak() as u64, state.arenas[index].capacity() as u64))
    }
}

impl Pool<Pinned> {
    /// Whether these bytes lie in this pool's memory. False for an empty slice.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let Range { start, end } = bytes.as_ptr_range();
        let first = self.shared.address;
        !bytes.is_empty() && start as u64 >= first && end as u64 <= first + self.shared.bytes as u64
    }
}

impl<M: PoolMemory> Buffer<M> {
    /// Returns the address of the first byte, a multiple of [`ALIGN_BYTES`]. Host and device share
    /// the address space.
    pub fn address(&self) -> u64 {
        self.shared.address + (self.shared.rows[self.row].start + self.offset) as u64
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device of the pool.
    pub fn device(&self) -> &Arc<Device> {
        &self.shared.device
    }

    /// Drops the buffer without making its memory available again, because the device may still use
    /// the memory. The memory is freed with the pool.
    pub(super) fn withhold(mut self) {
        self.shared.state().withheld += self.len.next_multiple_of(ALIGN_BYTES);
        self.withheld = true;
    }
}

impl Deref for Buffer<Pinned> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: until it is dropped, this buffer alone owns the bytes. They are page-locked and
        // initialised (zeroed at allocation), and the pool outlives the buffer. The device writes
        // them only through `transfer.rs`, which waits before the host can read them.
        unsafe { std::slice::from_raw_parts(self.address() as *const u8, self.len) }
    }
}

impl DerefMut for Buffer<Pinned> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are page-locked and initialised, and the pool outlives the buffer.
        // `&mut self` excludes all other accesses.
        unsafe { std::slice::from_raw_parts_mut(self.address() as *mut u8, self.len) }
    }
}

impl<M: PoolMemory> Drop for Buffer<M> {
    fn drop(&mut self) {
        if !self.withheld {
            self.shared.give(self.row, self.offset, self.len);
        }
    }
}

impl<M: PoolMemory> Shared<M> {
    fn take(&self, row: usize, bytes: usize) -> Result<usize> {
        let mut state = self.state();
        let arena = &mut state.arenas[row];
        let before = arena.used();
        let Some(offset) = arena.take(bytes) else {
            let limit = (arena.capacity() - arena.used()) as u64;
            return Err(Error::Budget {
                row: self.rows[row].name.clone(),
                needed: bytes as u64,
                limit,
            });
        };
        state.used += state.arenas[row].used() - before;
        state.peak = state.peak.max(state.used);
        Ok(offset)
    }

    fn give(&self, row: usize, offset: usize, bytes: usize) {
        let mut state = self.state();
        let before = state.arenas[row].used();
        state.arenas[row].give(offset, bytes);
        state.used -= before - state.arenas[row].used();
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // No foreign code runs while the lock is held, so the state is consistent even after a
        // panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: PoolMemory> Drop for Shared<M> {
    fn drop(&mut self) {
        if self.address != 0
            && let Ok(_entered) = self.device.enter()
        {
            // SAFETY: `Pool::take` got the address from `allocate`. Only this code frees it.
            unsafe { M::free(self.address) };
        }
    }
}

impl PoolMemory for OnDevice {
    const MEMORY: Memory = Memory::Device;

    fn allocate(bytes: usize) -> Result<u64> {
        // SAFETY: a context is bound. The pool owns the address.
        driver("cuMemAlloc", unsafe { result::malloc_sync(bytes) })
    }

    unsafe fn free(address: u64) {
        // SAFETY: the caller guarantees that the address comes from `allocate` and is freed once.
        // The driver waits for work that uses the memory.
        let _ = unsafe { result::free_sync(address) };
    }
}

impl PoolMemory for Pinned {
    const MEMORY: Memory = Memory::Pinned;

    fn allocate(bytes: usize) -> Result<u64> {
        // SAFETY: a context is bound. The pool owns the address.
        let address = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let address = driver("cuMemHostAlloc", address)?;
        // SAFETY: `bytes` bytes were just allocated. They are zeroed, because callers get slices of
        // them.
        unsafe { address.cast::<u8>().write_bytes(0, bytes) };
        Ok(address as u64)
    }

    unsafe fn free(address: u64) {
        // SAFETY: the caller guarantees that the address comes from `allocate` and is freed once.
        // The driver waits for work that uses the memory.
        let _ = unsafe { result::free_host(address as *mut std::ffi::c_void) };
    }
}

impl<M: PoolMemory> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<M: PoolMemory> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, peak) = (self.used_bytes(), self.peak_bytes());
        write!(
            f,
            "Pool {{ {}, {used} of {} bytes used, peak {peak} }}",
            M::MEMORY.name(),
            self.shared.bytes
        )
    }
}

impl<M: PoolMemory> fmt::Debug for Buffer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer {{ {}, {} bytes at {:#x} }}", M::MEMORY.name(), self.len, self.address())
    }
}
