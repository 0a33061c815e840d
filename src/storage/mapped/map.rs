//! Memory mapping from which bytes are copied, and a read that does not wait for the disk.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use super::bus::{self, Registration};

/// Read-only mapping of a whole file. References to its bytes are never created, because other
/// processes may change the bytes.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    watch: Registration,
}

// SAFETY: the mapping belongs to the process, not to a thread. Only `copy` reads it. No code writes
// it.
unsafe impl Send for Mapping {}
// SAFETY: the mapping belongs to the process, not to a thread. Only `copy` reads it. No code writes
// it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file. Returns `None` if it cannot be mapped, or if mapping has no advantage.
    pub fn new(file: &fs::File) -> Option<Self> {
        let len = usize::try_from(file.metadata().ok()?.len()).ok().filter(|&len| len > 0)?;
        // The read may succeed, or fail with `WouldBlock` because the byte is not in the page
        // cache. Any other error means that the file system does not report what is in the page
        // cache.
        match read_resident(file, &mut [0], 0) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return None,
            _ => {}
        }
        let flags = libc::MAP_SHARED;
        // SAFETY: the kernel chooses the address of the new mapping, so no other memory is
        // replaced.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, flags, file.as_raw_fd(), 0)
        };
        let start = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED)?;
        match Registration::new(start.addr().get(), len) {
            Some(watch) => Some(Self { start, len, watch }),
            None => {
                // SAFETY: this mapping was just created, and no other code has its address.
                unsafe { libc::munmap(start.as_ptr().cast(), len) };
                None
            }
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file contained all these bytes when it was mapped.
    pub fn has(&self, offset: u64, count: usize) -> bool {
        offset.checked_add(count as u64).is_some_and(|end| end <= self.len as u64)
    }

    /// Copies bytes from `offset` on into the buffer. The mapping must [have](Self::has) them.
    /// Returns false if they no longer exist. The contents of the buffer are then unspecified.
    pub fn copy(&self, offset: u64, buffer: &mut [u8]) -> bool {
        assert!(self.has(offset, buffer.len()), "the copied bytes must be in the mapping");
        if self.watch.is_lost() || !bus_errors_reach_this_thread() {
            return false;
        }
        // Other processes may write to the file during the copy. In this case the old or the new
        // bytes are copied. If the bytes no longer exist, the handler in `bus` maps zeros in their
        // place. SAFETY: the assertion ensures that all bytes lie in the mapping, which lives as
        // long as `self`. Any byte values are valid. The buffer does not overlap the mapping,
        // because no references to the mapping exist.
        unsafe {
            let from = self.start.as_ptr().add(offset as usize);
            copy_ahead(from, buffer);
        }
        // Zeros are mapped after the watch is marked. A thread that has read zeros therefore sees
        // the mark.
        fence(Ordering::Acquire);
        !self.watch.is_lost()
    }
}

/// Number of bytes that are copied at a time.
const PIECE: usize = 2048;
/// Prefetch distance, in bytes.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 8192;

/// Fills the buffer from `from` with software prefetch. Hardware does not prefetch across borders
/// of 4 KiB pages. For an image that is not in the CPU's caches, software prefetch saves an eighth
/// of the time.
///
/// # Safety
///
/// `from` must be readable for the buffer's length, and the buffer must not overlap that range.
unsafe fn copy_ahead(from: *const u8, buffer: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    let len = buffer.len();
    for (number, piece) in buffer.chunks_mut(PIECE).enumerate() {
        let at = number * PIECE;
        #[cfg(target_arch = "x86_64")]
        for line in (at + AHEAD..len.min(at + AHEAD + PIECE)).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the line begins within the readable range. A prefetch is a hint that never
            // faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.add(line).cast()) };
        }
        // SAFETY: the caller guarantees the range. The piece has the same offset in the buffer.
        unsafe { ptr::copy_nonoverlapping(from.add(at), piece.as_mut_ptr(), piece.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watch.end();
        // SAFETY: `new` created this mapping. No thread is copying from it, because `drop` has the
        // only access to `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Reads the bytes that are in memory, without waiting for the rest. Returns the number of bytes
/// read.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if the first byte is not in memory. Other errors if the file
/// system does not report what is in memory, or if the read fails.
pub fn read_resident(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the only part is the buffer, which is valid and exclusively borrowed during the call.
    let count = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset, libc::RWF_NOWAIT) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Whether this thread receives SIGBUS, as threads do by default. If a thread blocks SIGBUS, a
/// fault ends the process. The result is determined once per thread.
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
