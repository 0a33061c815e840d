//! Memory that belongs to single lanes.

use crate::memory::Bitmap;

/// Private memory of the lanes of a warp: local memory or parameter space.
#[derive(Debug)]
pub(crate) struct LaneMemory {
    /// Number of bytes per lane.
    pub size: u64,
    data: Vec<u8>,
    written: Bitmap,
}

impl LaneMemory {
    pub fn new(size: u64, fill: u64) -> Self {
        let bytes = size * 32;
        Self { size, data: vec![fill as u8; bytes as usize], written: Bitmap::new(bytes) }
    }

    /// Grows the memory to `size` bytes per lane.
    pub fn grow(&mut self, size: u64, fill: u64) {
        if size <= self.size {
            return;
        }
        let mut larger = Self::new(size, fill);
        for lane in 0..32 {
            larger.copy(lane, 0, self, 0, self.size);
        }
        *self = larger;
    }

    /// Marks bytes as unwritten, for the variables of a newly entered frame.
    pub fn forget(&mut self, lanes: u32, start: u64, end: u64) {
        for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
            self.written.set(lane * self.size + start, end - start, false);
        }
    }

    /// Reads bytes into `into`. Returns whether all these bytes were written before. The access
    /// must be in bounds.
    #[inline]
    pub fn read(&self, lane: usize, offset: u64, into: &mut [u8]) -> bool {
        let at = lane * self.size as usize + offset as usize;
        into.copy_from_slice(&self.data[at..at + into.len()]);
        self.written.has(at as u64, into.len() as u64)
    }

    #[inline]
    pub fn write(&mut self, lane: usize, offset: u64, from: &[u8]) {
        let at = lane * self.size as usize + offset as usize;
        self.data[at..at + from.len()].copy_from_slice(from);
        self.written.set(at as u64, from.len() as u64, true);
    }

    /// Copies bytes, and the information whether they were written.
    pub fn copy(&mut self, lane: usize, offset: u64, from: &Self, start: u64, bytes: u64) {
        for byte in 0..bytes {
            let mut value = [0];
            let written = from.read(lane, start + byte, &mut value);
            self.write(lane, offset + byte, &value);
            self.written.set(lane as u64 * self.size + offset + byte, 1, written);
        }
    }
}
