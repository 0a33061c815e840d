//! Device memory of files that stay on the device (`cache.device`).

use std::ops::Range;

use crate::gpu::DeviceBuffer;

/// Alignment of the coded data of a file, in bytes.
const ALIGN_BYTES: usize = 16;

/// Device memory in which parts are taken one after another. Only parts of files that could not be
/// kept are given back.
pub(super) struct FileMemory {
    pub buffer: DeviceBuffer,
    /// End of the taken parts.
    end: usize,
    /// Parts before the end that were given back.
    free: Vec<Range<usize>>,
}

impl FileMemory {
    pub fn new(buffer: DeviceBuffer) -> Self {
        Self { buffer, end: 0, free: Vec::new() }
    }

    /// Takes a part for `len` bytes. `None` if there is no space.
    pub fn take(&mut self, len: usize) -> Option<Range<usize>> {
        let len = len.checked_next_multiple_of(ALIGN_BYTES)?;
        if let Some(at) = self.free.iter().position(|part| part.len() >= len) {
            let part = &mut self.free[at];
            let taken = part.start..part.start + len;
            part.start = taken.end;
            if part.start == part.end {
                self.free.swap_remove(at);
            }
            return Some(taken);
        }
        let taken = self.end..self.end.checked_add(len)?;
        (taken.end <= self.buffer.len()).then(|| {
            self.end = taken.end;
            taken
        })
    }

    /// Makes a part available again. No work that uses it may be running.
    pub fn give_back(&mut self, part: Range<usize>) {
        if part.end == self.end {
            self.end = part.start;
        } else {
            self.free.push(part);
        }
    }
}
