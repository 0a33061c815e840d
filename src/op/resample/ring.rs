//! Rows between the horizontal and the vertical pass.

/// So many rows go through the horizontal pass together, which reads the coefficients once for all of them;
/// an output row is ready at most so many rows, less one, after its last tap.
pub(super) const ROWS_AT_ONCE: usize = 4;

/// Rows after the horizontal pass.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    rows: &'a [u8],
    stride: usize,
    len: usize,
}

impl<'a> Ring<'a> {
    /// Rows of `stride` bytes, of which the newest `len` are there.
    pub fn new(rows: &'a [u8], stride: usize, len: usize) -> Self {
        Self { rows, stride, len }
    }

    /// Row `y` of the input, which must still be there, with its padding.
    pub fn row(&self, y: u32) -> &'a [u8] {
        &self.rows[self.start(y)..][..self.stride]
    }

    /// Where row `y` begins among [`bytes`](Self::bytes).
    pub fn start(&self, y: u32) -> usize {
        self.stride * (y as usize % self.len)
    }

    /// All rows, which are whole vectors long.
    #[cfg(target_arch = "x86_64")]
    pub fn bytes(&self) -> &'a [u8] {
        self.rows
    }
}
