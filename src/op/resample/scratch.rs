//! Upper bounds on the memory of a resampler.

use super::fast::{Path, stride};
use super::params::TableBounds;
use super::ring::ROWS_AT_ONCE;
use crate::tensor::CHANNELS;

/// Bytes of a resampler's buffers, which are reused: those of the passes, the table, the row of an output, and the ring of
/// a path without one of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScratchBytes(pub [u64; 9]);

impl ScratchBytes {
    /// Maximum for tables within `table`, wanted windows of at most `columns` columns and rows of at most `side` pixels, on
    /// the fastest path of this CPU, which takes the coefficients of every filter.
    pub fn most(table: TableBounds, columns: u32, side: u32) -> Self {
        #[cfg(target_arch = "x86_64")]
        let passes = match Path::here() {
            Path::Portable => [0; 6],
            Path::Avx2 => super::avx2::Passes::most_bytes(table, columns, side),
            Path::AvxVnni | Path::Avx512 => super::vnni::Passes::most_bytes(table, columns, side),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let (passes, _) = ([0; 6], side);
        let has_ring = passes[0] > 0;
        let ring = (table.taps[1] + ROWS_AT_ONCE - 1) * stride(columns as usize);
        let [a, b, c, d, e, f] = passes;
        let line = CHANNELS * columns as usize;
        let ring = if has_ring { 0 } else { ring };
        Self([a, b, c, d, e, f, table.entries * size_of::<i32>(), line, ring].map(|it| it as u64))
    }

    /// Maximum of each buffer.
    pub fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|buffer| self.0[buffer].max(other.0[buffer])))
    }
}
