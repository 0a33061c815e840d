//! Writes a sample's tensor row by row. If all batches of the ring together are larger than the
//! caches, rows are written past the caches, with non-temporal stores. The reason is that a
//! consumer would rarely find these rows in the caches.
//!
//! An ordinary store first reads the cache line that it changes, and evicts data that the decoder
//! needs.

use std::ops::Range;

use bytemuck::Pod;

/// Longest row that is written past the caches, in bytes. Longer rows are written with ordinary
/// stores.
const MOST_ROW: usize = 8 << 10;
/// Size of a cache line in bytes.
#[cfg(target_arch = "x86_64")]
const CACHED: usize = 64;

/// Memory in which a row is computed before it is written past the caches.
#[repr(align(64))]
pub struct LineBuffer([u8; MOST_ROW]);

impl LineBuffer {
    /// A buffer of zeros.
    pub fn new() -> Box<Self> {
        Box::new(Self([0; MOST_ROW]))
    }
}

/// Access to a sample's tensor while it is written. Other threads may read the tensor only after
/// the writer was dropped.
pub struct TensorWriter<'a> {
    tensor: &'a mut [u8],
    /// Buffer for rows that are written past the caches. `None` for ordinary stores.
    line: Option<&'a mut LineBuffer>,
}

impl<'a> TensorWriter<'a> {
    /// Creates a writer for a tensor that is aligned for its elements.
    pub fn new(tensor: &'a mut [u8], line: Option<&'a mut LineBuffer>) -> Self {
        Self { tensor, line }
    }

    /// Number of elements of the tensor.
    pub fn elements<E: Pod>(&self) -> usize {
        self.tensor.len() / size_of::<E>()
    }

    /// Writes a range of elements of the tensor. `make` must write all of them and must not read
    /// them, because their old values are unspecified.
    #[inline(always)]
    pub fn put<E: Pod>(&mut self, elements: Range<usize>, make: impl FnOnce(&mut [E])) {
        let [from, to] = [elements.start, elements.end].map(|at| at * size_of::<E>());
        let tensor = &mut self.tensor[from..to];
        match &mut self.line {
            Some(buffer) if tensor.len() <= MOST_ROW => {
                let line = &mut buffer.0[..to - from];
                make(bytemuck::cast_slice_mut(line));
                copy_past_caches(line, tensor);
            }
            _ => make(bytemuck::cast_slice_mut(tensor)),
        }
    }
}

impl Drop for TensorWriter<'_> {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.line.is_some() {
            // SAFETY: every x86-64 CPU has SSE, and the instruction only waits until stores are
            // visible.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
    }
}

/// Copies bytes to a tensor past the caches. The tensor may be read only after its writer was
/// dropped.
fn copy_past_caches(from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};

        let head = to.as_ptr().align_offset(CACHED).min(to.len());
        let ((from_head, from), (to_head, to)) = (from.split_at(head), to.split_at_mut(head));
        to_head.copy_from_slice(from_head);
        let (from_lines, from_tail) = from.as_chunks::<CACHED>();
        let (to_lines, to_tail) = to.as_chunks_mut::<CACHED>();
        for (from, to) in from_lines.iter().zip(to_lines) {
            let vectors = from.as_chunks::<16>().0.iter().zip(to.as_chunks_mut::<16>().0);
            for (from, to) in vectors {
                // SAFETY: both chunks have 16 bytes, and `to` is aligned to 16, as its line is to 64.
                // The tensor is borrowed until the writer is dropped, which waits until the stores
                // are visible. `Pass` leaks no writer and writes no element twice.
                unsafe {
                    _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.as_ptr().cast()));
                }
            }
        }
        to_tail.copy_from_slice(from_tail);
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests rows and tensors whose lengths and alignments differ from those of cache lines.
    #[test]
    fn lines_past_the_caches_equal_ordinary_ones() {
        let mut buffer = LineBuffer::new();
        for elements in (0..40).chain([100, 511, MOST_ROW / 4, MOST_ROW / 4 + 1]) {
            for begin in 0..17 {
                let mut memory =
                    [vec![7u32; begin + 3 * elements + 17], vec![7; begin + 3 * elements + 17]];
                for (at, memory) in memory.iter_mut().enumerate() {
                    let tensor =
                        &mut bytemuck::cast_slice_mut(memory)[4 * begin..][..12 * elements];
                    let mut writer = TensorWriter::new(tensor, (at > 0).then_some(&mut *buffer));
                    assert_eq!(writer.elements::<u32>(), 3 * elements);
                    for line in [2, 0, 1] {
                        let range = line * elements..(line + 1) * elements;
                        writer.put::<u32>(range.clone(), |line| {
                            line.iter_mut().zip(range).for_each(|(it, at)| *it = 1000 + at as u32);
                        });
                    }
                }
                let [ordinary, past] = memory;
                assert!(ordinary == past, "{elements} elements after {begin}");
            }
        }
    }
}
