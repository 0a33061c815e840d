//! Access to host memory by address: the only unsafe code of this crate beside its C interface.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::ptr;

/// Range of host memory that a kernel accesses. Every access is checked against its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostRange {
    address: u64,
    bytes: u64,
}

impl HostRange {
    /// # Safety
    /// As long as the range is used, all its bytes must be readable and writable (or only readable, if nothing writes to
    /// it), and no other thread may access them.
    pub unsafe fn new(address: u64, bytes: u64) -> Self {
        assert!(address.checked_add(bytes).is_some(), "a range ends behind the address space");
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
        // SAFETY: checked to be inside of the range, which `new`'s caller keeps readable. An array of bytes has no alignment.
        unsafe { ptr::read((self.address + offset) as *const [u8; N]) }
    }

    /// Writes `N` bytes.
    #[inline]
    pub fn put<const N: usize>(&self, offset: u64, value: [u8; N]) {
        self.check(offset, N);
        // SAFETY: as above; the caller writes only to ranges that are writable.
        unsafe { ptr::write((self.address + offset) as *mut [u8; N], value) }
    }

    /// Reads as many bytes as `into` has.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: as above; `into` is a borrow, so it is elsewhere.
        unsafe {
            ptr::copy((self.address + offset) as *const u8, into.as_mut_ptr(), into.len());
        }
    }

    /// Writes all of `from`.
    pub fn write(&self, offset: u64, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: as above.
        unsafe {
            ptr::copy(from.as_ptr(), (self.address + offset) as *mut u8, from.len());
        }
    }

    #[inline]
    fn check(&self, offset: u64, bytes: usize) {
        let fits = offset.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes);
        assert!(fits, "access outside of its range");
    }
}

/// Allocated memory, filled with zeros.
#[derive(Debug)]
pub(crate) struct HostBuffer {
    range: HostRange,
    layout: Layout,
}

impl HostBuffer {
    /// Allocates at least one byte. `align` must be a power of two.
    pub fn new(bytes: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), align).expect("a size that exists");
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        if start.is_null() {
            alloc::handle_alloc_error(layout);
        }
        // SAFETY: the memory is this buffer's until it is dropped.
        let range = unsafe { HostRange::new(start as u64, bytes as u64) };
        Self { range, layout }
    }

    pub fn address(&self) -> u64 {
        self.range.address
    }

    /// Its range, which must not be used after the buffer is dropped.
    pub fn range(&self) -> HostRange {
        self.range
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { alloc::dealloc(self.range.address as *mut u8, self.layout) }
    }
}

impl super::Memory {
    /// Adds a range of host memory that belongs to the caller, such as an allocation of a simulated driver. Kernels access
    /// it at its own address.
    ///
    /// # Errors
    /// [`Error::Overlap`](crate::Error::Overlap) if it overlaps another range.
    ///
    /// # Safety
    /// Until the range is removed, `bytes` bytes from `address` must stay allocated, readable, and writable if `access` is
    /// [`ReadWrite`](super::Access::ReadWrite). While a method of this memory or a launch with it runs, no other thread may
    /// access them.
    pub unsafe fn map(
        &mut self,
        name: &str,
        address: u64,
        bytes: u64,
        access: super::Access,
        contents: super::Contents,
    ) -> crate::Result<()> {
        // SAFETY: passed on to the caller.
        let host = unsafe { HostRange::new(address, bytes) };
        self.insert(super::Range::new(name, host, None, access, contents))
    }
}
