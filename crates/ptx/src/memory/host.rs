//! Access to host memory by address. Except for the C interface, this is the only unsafe code of
//! the crate.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::ptr;

/// Range of host memory that a kernel accesses. Every access is checked against the range's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostRange {
    address: u64,
    bytes: u64,
}

impl HostRange {
    /// # Safety
    /// As long as the range is used, all its bytes must be readable. If anything writes to the
    /// range, all its bytes must also be writable. No other thread may access these bytes.
    pub unsafe fn new(address: u64, bytes: u64) -> Self {
        assert!(
            address.checked_add(bytes).is_some(),
            "the end of a memory range must be a valid address"
        );
        Self { address, bytes }
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads `N` bytes.
    #[inline]
    pub fn get<const N: usize>(&self, offset: u64) -> [u8; N] {
        self.check(offset, N);
        // SAFETY: the bytes are inside the range, which the caller of `new` keeps readable. An
        // array of bytes needs no alignment.
        unsafe { ptr::read((self.address + offset) as *const [u8; N]) }
    }

    /// Writes `N` bytes.
    #[inline]
    pub fn put<const N: usize>(&self, offset: u64, value: [u8; N]) {
        self.check(offset, N);
        // SAFETY: the bytes are inside the range, as in `get`. The caller writes only to writable
        // ranges.
        unsafe { ptr::write((self.address + offset) as *mut [u8; N], value) }
    }

    /// Reads as many bytes as `into` has.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: the bytes are inside the range. `into` is borrowed mutably, so it does not
        // overlap the range.
        unsafe {
            ptr::copy((self.address + offset) as *const u8, into.as_mut_ptr(), into.len());
        }
    }

    /// Writes all of `from`.
    pub fn write(&self, offset: u64, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: the bytes are inside the range, and the caller writes only to writable ranges.
        unsafe {
            ptr::copy(from.as_ptr(), (self.address + offset) as *mut u8, from.len());
        }
    }

    #[inline]
    fn check(&self, offset: u64, bytes: usize) {
        let fits = offset.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes);
        assert!(fits, "an access must lie inside of its memory range");
    }
}

/// Allocated memory, filled with zeros.
#[derive(Debug)]
pub(crate) struct HostBuffer {
    range: HostRange,
    layout: Layout,
}

impl HostBuffer {
    /// Allocates `bytes` bytes, at least one. `align` must be a power of two.
    pub fn new(bytes: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), align).expect("a size that exists");
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        if start.is_null() {
            alloc::handle_alloc_error(layout);
        }
        // SAFETY: the memory belongs to this buffer until the buffer is dropped.
        let range = unsafe { HostRange::new(start as u64, bytes as u64) };
        Self { range, layout }
    }

    pub fn address(&self) -> u64 {
        self.range.address
    }

    /// Returns the buffer's range, which must not be used after the buffer is dropped.
    pub fn range(&self) -> HostRange {
        self.range
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout.
        unsafe { alloc::dealloc(self.range.address as *mut u8, self.layout) }
    }
}

impl super::Memory {
    /// Adds a range of host memory that belongs to the caller, such as an allocation of a simulated
    /// driver. Kernels access the range at its host address.
    ///
    /// # Errors
    /// [`Error::Overlap`](crate::Error::Overlap) if the range overlaps another one.
    ///
    /// # Safety
    /// Until the range is removed, the `bytes` bytes from `address` on must stay allocated and
    /// readable, and writable if `access` is [`ReadWrite`](super::Access::ReadWrite). While a
    /// method of this memory or a launch with it runs, no other thread may access these bytes.
    pub unsafe fn map(
        &mut self,
        name: &str,
        address: u64,
        bytes: u64,
        access: super::Access,
        contents: super::Contents,
    ) -> crate::Result<()> {
        // SAFETY: the caller guarantees that the bytes stay allocated and accessible until the
        // range is removed.
        let host = unsafe { HostRange::new(address, bytes) };
        self.insert(super::Range::new(name, host, None, access, contents))
    }
}
