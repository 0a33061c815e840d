//! Global memory of a device, which consists of ranges of host memory.

mod bitmap;
mod host;

use std::fmt;

use crate::error::{Error, Result};
pub(crate) use bitmap::Bitmap;
pub(crate) use host::{HostBuffer, HostRange};

/// Kernel accesses that a range allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A store is a fault.
    ReadOnly,
    /// Loads and stores are allowed.
    ReadWrite,
}

/// Whether a range has been written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// All bytes have a value.
    Written,
    /// No byte has a value yet. A load of a byte before a store to it is a fault.
    Unwritten,
}

/// Global memory of a device: ranges of host memory, and which of their bytes were written.
///
/// The record of written bytes outlives a launch, so a kernel may read bytes that an earlier kernel
/// has written.
#[derive(Default)]
pub struct Memory {
    /// Ranges, sorted by address.
    ranges: Vec<Range>,
}

/// Range of global memory.
pub(crate) struct Range {
    pub name: String,
    pub host: HostRange,
    /// Memory that belongs to the range. `None` if the caller has mapped memory of its own.
    _buffer: Option<HostBuffer>,
    pub access: Access,
    /// Bytes that were written. `None` if all were.
    written: Option<Bitmap>,
}

impl Memory {
    /// Creates memory without ranges.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates a range that is aligned to 256 bytes, and returns its address. The range is freed
    /// with this memory.
    pub fn allocate(&mut self, name: &str, bytes: usize, access: Access) -> u64 {
        let buffer = HostBuffer::new(bytes, 256);
        let host = buffer.range();
        let range = Range::new(name, host, Some(buffer), access, Contents::Unwritten);
        self.insert(range).expect("new memory overlaps nothing");
        host.address()
    }

    /// Allocates a range that contains `data`, and returns its address.
    pub fn allocate_with(&mut self, name: &str, data: &[u8], access: Access) -> u64 {
        let address = self.allocate(name, data.len(), access);
        self.write(address, data)
            .expect("the range was allocated just before, with the length of the data");
        address
    }

    /// Removes the range that starts at an address. Returns whether there was such a range.
    pub fn remove(&mut self, address: u64) -> bool {
        let found = self.ranges.iter().position(|it| it.host.address() == address);
        found.map(|at| self.ranges.remove(at)).is_some()
    }

    /// Reads bytes, like a copy to the host. Returns `None` if they are not all in one range.
    pub fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let (range, offset) = self.find(address, bytes as u64)?;
        let mut data = vec![0; bytes];
        self.ranges[range].host.read(offset, &mut data);
        Some(data)
    }

    /// Writes bytes, like a copy from the host, even to a read-only range. Returns `None` if they
    /// are not all in one range.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Option<()> {
        let (range, offset) = self.find(address, data.len() as u64)?;
        self.ranges[range].host.write(offset, data);
        self.ranges[range].set_written(offset, data.len() as u64);
        Some(())
    }

    /// Marks bytes as written, after a copy that wrote to the host memory directly. Returns `None`
    /// if they are not all in one range.
    pub fn mark_written(&mut self, address: u64, bytes: u64) -> Option<()> {
        let (range, offset) = self.find(address, bytes)?;
        self.ranges[range].set_written(offset, bytes);
        Some(())
    }

    /// Whether all of these bytes were written. Returns `None` if they are not all in one range.
    pub fn is_written(&self, address: u64, bytes: u64) -> Option<bool> {
        let (range, offset) = self.find(address, bytes)?;
        let mut parts = (0..bytes).step_by(64);
        Some(parts.all(|at| self.ranges[range].is_written(offset + at, (bytes - at).min(64))))
    }

    pub(crate) fn insert(&mut self, range: Range) -> Result<()> {
        let at = self.ranges.partition_point(|it| it.host.address() < range.host.address());
        let end = range.host.address() + range.host.bytes();
        let after = self.ranges.get(at).filter(|it| it.host.address() < end);
        let before = at
            .checked_sub(1)
            .map(|at| &self.ranges[at])
            .filter(|it| it.host.address() + it.host.bytes() > range.host.address());
        if let Some(other) = after.or(before) {
            return Err(Error::Overlap(format!("{} overlaps {}", range.name, other.name)));
        }
        self.ranges.insert(at, range);
        Ok(())
    }

    /// Returns the number of the range that contains all the bytes, and the offset of the bytes in
    /// that range.
    #[inline]
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<(usize, u64)> {
        let at = self.ranges.partition_point(|it| it.host.address() <= address).checked_sub(1)?;
        let offset = address - self.ranges[at].host.address();
        let inside = offset.checked_add(bytes)? <= self.ranges[at].host.bytes();
        inside.then_some((at, offset))
    }

    pub(crate) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    pub(crate) fn ranges_mut(&mut self) -> &mut [Range] {
        &mut self.ranges
    }

    /// Describes an address for messages: its offset in the nearest range that begins at or below
    /// it.
    pub(crate) fn describe(&self, address: u64) -> String {
        let at = self.ranges.partition_point(|it| it.host.address() <= address);
        match at.checked_sub(1).map(|at| &self.ranges[at]) {
            Some(it) => {
                let offset = address - it.host.address();
                format!(
                    "this is byte {offset} of the range {}, which has {} bytes",
                    it.name,
                    it.host.bytes()
                )
            }
            None => format!("no allocated range begins at or below address {address:#x}"),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ranges.iter().map(|it| (&it.name, it.host, it.access))).finish()
    }
}

impl Range {
    pub fn new(
        name: &str,
        host: HostRange,
        buffer: Option<HostBuffer>,
        access: Access,
        contents: Contents,
    ) -> Self {
        let written = (contents == Contents::Unwritten).then(|| Bitmap::new(host.bytes()));
        Self { name: name.to_string(), host, _buffer: buffer, access, written }
    }

    /// Whether all of `bytes` (at most 64) bytes were written.
    #[inline]
    pub fn is_written(&self, offset: u64, bytes: u64) -> bool {
        self.written.as_ref().is_none_or(|it| it.has(offset, bytes))
    }

    /// Marks bytes as written.
    #[inline]
    pub fn set_written(&mut self, offset: u64, bytes: u64) {
        if let Some(written) = &mut self.written {
            written.set(offset, bytes, true);
        }
    }

    /// Returns a bitmap of the bytes that have been written, so that they can be restored later.
    pub fn written(&self) -> Option<Bitmap> {
        self.written.clone()
    }

    pub fn restore_written(&mut self, written: Option<Bitmap>) {
        self.written = written;
    }

    /// Fills the bytes that were never written.
    pub fn fill_unwritten(&mut self, mut byte: impl FnMut(u64) -> u8) {
        for offset in 0..self.host.bytes() {
            if !self.is_written(offset, 1) {
                self.host.put(offset, [byte(offset)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_tracked_across_words() {
        let mut memory = Memory::new();
        memory.allocate("a", 200, Access::ReadWrite);
        let range = &mut memory.ranges[0];
        range.set_written(60, 8);
        assert!(range.is_written(60, 8) && range.is_written(62, 4) && range.is_written(64, 4));
        assert!(!range.is_written(59, 8) && !range.is_written(60, 16));
        range.set_written(0, 100);
        range.set_written(101, 99);
        assert!(range.is_written(0, 64) && range.is_written(136, 64));
        assert!(!range.is_written(96, 16) && range.is_written(101, 32));
    }

    #[test]
    fn ranges_are_found_and_must_not_overlap() {
        let mut memory = Memory::new();
        let at = memory.allocate_with("a", &[1, 2, 3, 4], Access::ReadOnly);
        assert_eq!(memory.read(at + 1, 3), Some(vec![2, 3, 4]));
        assert_eq!(memory.read(at + 1, 4), None);
        assert_eq!(memory.find(at - 1, 1), None);
        let host = memory.ranges[0].host;
        let other = Range::new("b", host, None, Access::ReadOnly, Contents::Written);
        assert_eq!(memory.insert(other), Err(Error::Overlap("b overlaps a".into())));
        assert!(memory.remove(at) && !memory.remove(at));
    }
}
