//! Ring of rows between the horizontal and the vertical pass.

/// Number of rows that go through the horizontal pass together, so that the pass reads its
/// coefficients once for all of them. An output row can therefore be ready up to three rows after
/// its last tap was pushed.
pub(super) const ROWS_AT_ONCE: usize = 4;

/// Rows that the horizontal pass has written.
#[derive(Clone, Copy)]
pub(super) struct RowRing<'a> {
    rows: &'a [u8],
    stride: usize,
    len: usize,
}

impl<'a> RowRing<'a> {
    /// Ring of rows of `stride` bytes that holds the newest `len` rows.
    pub fn new(rows: &'a [u8], stride: usize, len: usize) -> Self {
        Self { rows, stride, len }
    }

    /// Row `y` of the input with its padding. The row must be among the newest `len` rows.
    pub fn row(&self, y: u32) -> &'a [u8] {
        &self.rows[self.start(y)..][..self.stride]
    }

    /// Offset of row `y` in [`bytes`](Self::bytes).
    pub fn start(&self, y: u32) -> usize {
        self.stride * (y as usize % self.len)
    }

    /// Bytes of all rows. Each row is a whole number of vectors long.
    #[cfg(target_arch = "x86_64")]
    pub fn bytes(&self) -> &'a [u8] {
        self.rows
    }
}
