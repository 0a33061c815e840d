//! A mapping that bytes are copied out of, and the read that does not wait.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use super::bus::{self, Watch};

/// A read-only mapping of a whole file. No reference to its bytes is ever made: others may change them.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    watch: Watch,
}

// SAFETY: the mapping belongs to the process and not to a thread; nothing but `copy` reads it, and nothing writes it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `None` where the file cannot be mapped, or nothing would be won by it.
    pub fn new(file: &fs::File) -> Option<Self> {
        let len = usize::try_from(file.metadata().ok()?.len()).ok().filter(|&len| len > 0)?;
        // That nothing is in memory is an answer too: there is an error where nothing is said about it.
        match read_resident(file, &mut [0], 0) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return None,
            _ => {}
        }
        let flags = libc::MAP_SHARED;
        // SAFETY: a new mapping at a place of the kernel's choice takes nothing away from anybody.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, flags, file.as_raw_fd(), 0)
        };
        let start = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED)?;
        match Watch::new(start.addr().get(), len) {
            Some(watch) => Some(Self { start, len, watch }),
            None => {
                // SAFETY: it is the mapping that was just made, and nobody else has its address.
                unsafe { libc::munmap(start.as_ptr().cast(), len) };
                None
            }
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file had all these bytes when it was mapped.
    pub fn has(&self, offset: u64, count: usize) -> bool {
        offset.checked_add(count as u64).is_some_and(|end| end <= self.len as u64)
    }

    /// Fills the buffer from this byte of the file on, which [has](Self::has) them; false where they are gone, whatever
    /// is then in the buffer.
    pub fn copy(&self, offset: u64, buffer: &mut [u8]) -> bool {
        assert!(self.has(offset, buffer.len()), "only bytes of the mapping are copied");
        if self.watch.is_lost() || !bus_errors_reach_this_thread() {
            return false;
        }
        // SAFETY: all of it lies in the mapping, by the assertion, which lives as long as `self`; the buffer is not a
        // part of it, since nobody has a reference to any of it. Others may write to the file meanwhile: the bytes are then
        // the ones before or those after, and any bytes are valid. If they are gone, `bus` puts zeros in their place.
        unsafe {
            let from = self.start.as_ptr().add(offset as usize);
            copy_ahead(from, buffer);
        }
        // What was put in their place was put there after the watch was told.
        fence(Ordering::Acquire);
        !self.watch.is_lost()
    }
}

/// Bytes that are copied at once.
const PIECE: usize = 2048;
/// Distance in bytes from what is copied to what is prefetched.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 8192;

/// Fills the buffer with what is there. Bytes are asked for ahead of time, since a processor does not by itself fetch across the
/// border of a page of 4 KiB: an eighth of the time of an image that is not in its caches.
///
/// # Safety
///
/// There are as many bytes, and the buffer is not a part of them.
unsafe fn copy_ahead(from: *const u8, buffer: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    let len = buffer.len();
    for (number, piece) in buffer.chunks_mut(PIECE).enumerate() {
        let at = number * PIECE;
        #[cfg(target_arch = "x86_64")]
        for line in (at + AHEAD..len.min(at + AHEAD + PIECE)).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the line begins within what is there; a prefetch is a hint that never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.add(line).cast()) };
        }
        // SAFETY: the caller's promise; the piece lies at the same place of the buffer.
        unsafe { ptr::copy_nonoverlapping(from.add(at), piece.as_mut_ptr(), piece.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watch.end();
        // SAFETY: it is the mapping that `new` made, and nobody copies out of it, since nobody else has `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Reads what is in memory and does not wait for the rest: gives how many bytes there were.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] where the first one is not in memory; others where the file system cannot say, or the read
/// fails.
pub fn read_resident(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the one part is the buffer, which is there for the call and nobody else's.
    let count = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset, libc::RWF_NOWAIT) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Whether this thread takes SIGBUS, as threads do unless they were told otherwise: a fault in one that does not ends the
/// process. Asked once for each thread.
fn bus_errors_reach_this_thread() -> bool {
    thread_local! {
        static REACH: Cell<Option<bool>> = const { Cell::new(None) };
    }
    REACH.get().unwrap_or_else(|| {
        let reach = !bus::is_blocked();
        REACH.set(Some(reach));
        reach
    })
}
