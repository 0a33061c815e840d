//! Fallible allocations. Those of Rust's collections abort the process.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};

use super::{DataError, Reason};

/// Smallest need of a library that is checked: a system that is short of memory refuses large allocations first.
const LEAST_PROBED: u64 = 1 << 20;

/// Sum of all promises that are alive, in bytes.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// Makes `buffer` hold `len` elements, without taking more memory than that; new ones have their default value.
pub fn resize<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) -> Result<(), DataError> {
    reserve(buffer, len)?;
    buffer.resize(len, T::default());
    Ok(())
}

/// Makes `buffer` `len` elements long, whose values are unspecified. Where that takes more memory than it has, the old memory is
/// freed first, and no more is taken than that.
pub fn renew<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) -> Result<(), DataError> {
    if len > buffer.capacity() {
        *buffer = Vec::new();
    }
    resize(buffer, len)
}

/// Makes room in `buffer` for `len` elements in all, without taking more memory than that.
pub fn reserve<T>(buffer: &mut Vec<T>, len: usize) -> Result<(), DataError> {
    let more = len.saturating_sub(buffer.len());
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    buffer.try_reserve_exact(more).map_err(|_| refused(bytes))
}

/// An empty buffer with room for so many bytes, in one allocation.
pub fn buffer(capacity: usize) -> Result<BytesMut, DataError> {
    let mut room = Vec::new();
    reserve(&mut room, capacity)?;
    // Nobody else has these bytes, so nothing is copied.
    Ok(BytesMut::from(Bytes::from(room)))
}

/// Memory that a library may allocate while this is alive.
#[derive(Debug)]
pub struct Promise(u64);

/// Checks that the system can allocate what a library is about to, which would abort the process. Promises to other threads
/// count as not yet allocated, so no two of them rely on the same memory.
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
    DataError::new(Reason::OutOfMemory, format!("{bytes} bytes of memory cannot be allocated"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_allocated_is_an_error_and_changes_nothing() {
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
    fn a_buffer_has_the_room_that_was_asked_for() {
        for capacity in [1, 300, 1 << 20] {
            let buffer = buffer(capacity).unwrap();
            assert_eq!((buffer.len(), buffer.capacity()), (0, capacity));
        }
        assert_eq!(buffer(usize::MAX).unwrap_err().reason, Reason::OutOfMemory);
    }

    #[test]
    fn a_promise_holds_until_it_is_dropped() {
        let most = isize::MAX as u64;
        assert_eq!(promise(most).unwrap_err().reason, Reason::OutOfMemory);
        assert!(promise(2 << 20).is_ok(), "a promise that was refused counts no more");
    }
}
