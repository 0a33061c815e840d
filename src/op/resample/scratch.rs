//! Upper bounds on the memory of a resampler.

use super::fast::stride;
use super::params::TableBounds;
use super::row_ring::ROWS_AT_ONCE;
use crate::tensor::CHANNELS;

/// Bytes of each buffer of a resampler, by index: 0 the ring of rows; 1 to 5 the other buffers of
/// the passes (`Passes::most_bytes`); 6 the table; 7 one output row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScratchBytes(pub [u64; 8]);

impl ScratchBytes {
    /// Maximum for tables within the bounds `table`, wanted windows of at most `columns` columns
    /// and input rows of at most `side` pixels. The maximum is taken over all instruction sets, so
    /// that plans do not depend on the CPU. Sizes that fit no memory give `u64::MAX`.
    pub fn most(table: TableBounds, columns: u32, side: u32) -> Self {
        // Beyond these limits, the products below could overflow.
        let TableBounds { entries, taps, .. } = table;
        if entries.max(taps[0]).max(taps[1]) > 1 << 32 || columns.max(side) > 1 << 24 {
            return Self([u64::MAX; 8]);
        }
        #[cfg(target_arch = "x86_64")]
        let passes = {
            let avx2 = super::avx2::Passes::most_bytes(table, columns, side);
            let vnni = super::vnni::Passes::most_bytes(table, columns, side);
            std::array::from_fn(|buffer| avx2[buffer].max(vnni[buffer]))
        };
        #[cfg(not(target_arch = "x86_64"))]
        let (passes, _) = ([0; 6], side);
        let ring = (table.taps[1] + ROWS_AT_ONCE - 1) * stride(columns as usize);
        let [their_ring, b, c, d, e, f] = passes;
        let (entries, line) = (table.entries * size_of::<i32>(), CHANNELS * columns as usize);
        Self([ring.max(their_ring), b, c, d, e, f, entries, line].map(|it| it as u64))
    }

    /// Returns, for each buffer, the larger of both values.
    pub fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|buffer| self.0[buffer].max(other.0[buffer])))
    }
}
