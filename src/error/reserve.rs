//! Fallible allocations. Collections of the standard library abort the process if an allocation
//! fails.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Zeroable;
use bytes::{Bytes, BytesMut};

use super::{DataError, Reason};

/// Smallest allocation that [`promise`] tests before a library makes it, in bytes. A system that is
/// short of memory refuses large allocations first.
const LEAST_PROBED: u64 = 1 << 20;

/// Smallest buffer whose memory [`free`] returns to the system, in bytes.
const LEAST_RETURNED: usize = 1 << 20;

/// Total size in bytes of all [`Promise`]s that have not been dropped.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// Resizes `buffer` to `len` elements without excess capacity. New elements have their default
/// value.
pub fn resize<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) -> Result<(), DataError> {
    reserve(buffer, len)?;
    buffer.resize(len, T::default());
    Ok(())
}

/// Resizes `buffer` to `len` elements with unspecified values and without excess capacity. If
/// `buffer` must grow, its old memory is freed first.
pub fn renew<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) -> Result<(), DataError> {
    if len > buffer.capacity() {
        free(buffer);
    }
    resize(buffer, len)
}

/// Frees the memory of `buffer`. If it is large, returns its pages to the system first, because an
/// allocator may keep free memory: glibc keeps up to 64 MiB at the end of each thread's heap, and
/// the gaps that a buffer leaves when it grows from sample to sample.
pub fn free<T>(buffer: &mut Vec<T>) {
    buffer.clear();
    if buffer.capacity().saturating_mul(size_of::<T>()) >= LEAST_RETURNED {
        return_pages(buffer.spare_capacity_mut());
    }
    *buffer = Vec::new();
}

/// Returns the whole pages of unused memory to the system. Later reads see zeros.
#[allow(unsafe_code)]
fn return_pages<T>(unused: &mut [MaybeUninit<T>]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // The largest page size of the supported processors.
        const PAGE: usize = 1 << 16;
        let bytes = size_of_val(unused);
        let before = unused.as_ptr().cast::<u8>().align_offset(PAGE).min(bytes);
        let len = (bytes - before) / PAGE * PAGE;
        // SAFETY: the range lies inside `unused`, whose values are not initialized, so its bytes
        // may change. A failure changes nothing.
        unsafe {
            let first = unused.as_mut_ptr().cast::<u8>().add(before);
            libc::madvise(first.cast(), len, libc::MADV_DONTNEED);
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = unused;
}

/// Returns free memory from the allocator to the system. glibc keeps blocks of up to 32 MiB per
/// thread.
#[allow(unsafe_code)]
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` takes a number and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Allocates `len` zeroed elements. The system zeroes large allocations page by page, on first use.
pub fn zeroed<T: Zeroable>(len: usize) -> Result<Vec<T>, DataError> {
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    bytemuck::try_zeroed_vec(len).map_err(|()| refused(bytes))
}

/// Grows the capacity of `buffer` to `len` elements without excess capacity.
pub fn reserve<T>(buffer: &mut Vec<T>, len: usize) -> Result<(), DataError> {
    let more = len.saturating_sub(buffer.len());
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    buffer.try_reserve_exact(more).map_err(|_| refused(bytes))
}

/// Allocates an empty buffer with a capacity of `capacity` bytes, in one allocation.
pub fn buffer(capacity: usize) -> Result<BytesMut, DataError> {
    let mut room = Vec::new();
    reserve(&mut room, capacity)?;
    // The bytes have a single owner, so the conversion copies nothing.
    Ok(BytesMut::from(Bytes::from(room)))
}

/// Memory that a library may allocate while this value is alive.
#[derive(Debug)]
pub struct Promise(u64);

/// Checks that the system can allocate memory that a library is about to allocate. A failed
/// allocation in the library would abort the process. The check adds the promises of other threads,
/// whose memory may not be allocated yet. So no two promises rely on the same memory.
pub fn promise(bytes: u64) -> Result<Promise, DataError> {
    let promise = Promise(bytes);
    let all = PROMISED.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
    if bytes >= LEAST_PROBED {
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        Vec::<u8>::new().try_reserve_exact(all).map_err(|_| refused(bytes))?;
    }
    Ok(promise)
}

impl Drop for Promise {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.0, Ordering::AcqRel);
    }
}

fn refused(bytes: u64) -> DataError {
    DataError::new(Reason::OutOfMemory, format!("cannot allocate {bytes} bytes of memory"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_failed_allocation_is_an_error_and_changes_nothing() {
        let mut buffer = vec![7u32; 3];
        for len in [usize::MAX, usize::MAX / 4, 1 << 60] {
            assert_eq!(resize(&mut buffer, len).unwrap_err().reason, Reason::OutOfMemory);
            assert_eq!(buffer, [7; 3]);
        }
        resize(&mut buffer, 5).unwrap();
        assert_eq!((&buffer[..], buffer.capacity()), (&[7, 7, 7, 0, 0][..], 5));
        resize(&mut buffer, 1).unwrap();
        assert_eq!((&buffer[..], buffer.capacity()), (&[7][..], 5));
    }

    #[test]
    fn zeroed_memory_is_an_error_where_there_is_none() {
        assert_eq!(zeroed::<u64>(3).unwrap(), [0; 3]);
        for len in [usize::MAX, 1 << 60] {
            assert_eq!(zeroed::<u64>(len).unwrap_err().reason, Reason::OutOfMemory);
        }
    }

    #[test]
    fn a_buffer_has_the_requested_capacity() {
        for capacity in [1, 300, 1 << 20] {
            let buffer = buffer(capacity).unwrap();
            assert_eq!((buffer.len(), buffer.capacity()), (0, capacity));
        }
        assert_eq!(buffer(usize::MAX).unwrap_err().reason, Reason::OutOfMemory);
    }

    /// Returning the pages of a buffer must not touch the buffers beside it.
    #[test]
    fn freeing_a_buffer_changes_no_other_buffer() {
        let lens = [1, 4096, LEAST_RETURNED, LEAST_RETURNED + 1, (3 << 20) + 17];
        let mut buffers: Vec<Vec<u8>> = (0..8).flat_map(|_| lens.map(|len| vec![7; len])).collect();
        for freed in buffers.iter_mut().step_by(2) {
            free(freed);
            assert_eq!((freed.len(), freed.capacity()), (0, 0));
        }
        assert!(buffers.iter().flatten().all(|&it| it == 7));
    }

    #[test]
    fn elements_of_a_freed_buffer_are_dropped() {
        let counted = Arc::new(());
        let mut buffer = vec![counted.clone(); LEAST_RETURNED / size_of::<Arc<()>>()];
        free(&mut buffer);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_promise_holds_until_it_is_dropped() {
        let most = isize::MAX as u64;
        assert_eq!(promise(most).unwrap_err().reason, Reason::OutOfMemory);
        assert!(promise(2 << 20).is_ok(), "a refused promise is not counted");
    }
}
