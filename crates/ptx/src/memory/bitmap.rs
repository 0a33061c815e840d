//! Bitmap with one bit for each byte of a memory.

/// Set of bytes, given by their offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap(Vec<u64>);

impl Bitmap {
    /// Creates an empty set for a memory of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        // The bitmap has one word more than needed, because a check may read past the end of a
        // word.
        Self(vec![0; bytes.div_ceil(64) as usize + 1])
    }

    /// Whether all of `bytes` (1 to 64) bytes are in the set.
    #[inline]
    pub fn has(&self, offset: u64, bytes: u64) -> bool {
        let (word, bit) = ((offset / 64) as usize, offset % 64);
        let pair = u128::from(self.0[word]) | u128::from(self.0[word + 1]) << 64;
        let mask = u64::MAX >> (64 - bytes);
        (pair >> bit) as u64 & mask == mask
    }

    /// Adds bytes to the set if `value` is true, otherwise removes them.
    #[inline]
    pub fn set(&mut self, offset: u64, bytes: u64, value: bool) {
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let count = (64 - at % 64).min(end - at);
            let mask = u64::MAX >> (64 - count) << (at % 64);
            let word = &mut self.0[(at / 64) as usize];
            *word = if value { *word | mask } else { *word & !mask };
            at += count;
        }
    }
}
