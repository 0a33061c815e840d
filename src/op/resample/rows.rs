//! Rows between the horizontal and the vertical pass: what all paths share.

use crate::error::{Fault, reserve};

/// So many rows go through the horizontal pass together, which reads the coefficients once for all of them;
/// an output row is ready at most so many rows, less one, after its last tap.
pub(super) const ROWS_AT_ONCE: usize = 4;

/// Rows after the horizontal pass.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    /// All rows, which are whole vectors long.
    pub bytes: &'a [u8],
    /// Bytes from a row to the next.
    pub stride: usize,
    /// How many rows there are.
    pub len: usize,
}

impl<'a> Ring<'a> {
    /// Row `y` of the input, which must still be there, with its padding.
    #[inline]
    pub fn row(&self, y: u32) -> &'a [u8] {
        &self.bytes[self.start(y)..][..self.stride]
    }

    /// Where row `y` begins among `bytes`.
    #[inline]
    pub fn start(&self, y: u32) -> usize {
        self.stride * (y as usize % self.len)
    }
}

/// Makes a buffer `len` long, without taking more memory than that; the values are unspecified.
pub(super) fn fit<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) -> Result<(), Fault> {
    reserve::renew(buffer, len)
}
