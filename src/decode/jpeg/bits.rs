//! Bit reader of a scan. It removes byte stuffing piece by piece and reads from a buffer of 64
//! bits.

use memchr::memchr_iter;

/// Maximum number of bytes of coded data, without stuffing, in the buffer [`Clean`].
pub const HELD: usize = 16 << 10;
/// Number of zero bytes after the end of the data. Thanks to these bytes, the last bytes of data
/// are read like all others.
pub const PADDING: usize = 16;

/// Buffer for coded data without stuffing.
pub type Clean = [u8; HELD + PADDING];

/// Maximum number of bytes that are read ahead, including stuffing.
const MOST_AHEAD: usize = 32;

/// Reads the coded data of a scan up to the next marker.
#[derive(Debug)]
pub struct Input<'a> {
    scan: &'a [u8],
    /// Position of the first byte of the scan that is not in `clean` yet, or of the marker after
    /// the data.
    next: usize,
    /// End of the part of the scan that may be copied to `clean`, in bytes.
    limit: usize,
    clean: &'a mut Clean,
    len: usize,
    /// Whether all data before the next marker, or before the end of the file, is in `clean`.
    at_marker: bool,
    pub bits: Bits,
}

/// Next bits, starting with the highest bit of `buffer`. At least 56 bits are valid after a refill
/// (Giesen, "Reading bits in far too many ways", 2018, variant 4).
#[derive(Clone, Copy, Debug, Default)]
pub struct Bits {
    pub buffer: u64,
    /// The lowest six bits are the number of valid bits in the buffer. Higher bits have no meaning.
    count: u64,
    /// Position of the next byte of the coded data without stuffing.
    at: usize,
}

impl Bits {
    /// Fills the bit buffer from `clean`. Returns false if the reader is beyond the end of the data
    /// in `clean`.
    #[inline(always)]
    pub fn refill(&mut self, clean: &Clean) -> bool {
        let Some(bytes) = clean.get(self.at..).and_then(<[u8]>::first_chunk) else { return false };
        self.buffer |= u64::from_be_bytes(*bytes) >> (self.count & 63);
        self.at += (!self.count >> 3 & 7) as usize;
        self.count |= 56;
        true
    }

    /// Takes bits from the bit buffer. The lowest six bits of `bits` are the number of bits to
    /// take.
    #[inline(always)]
    pub fn take(&mut self, bits: u64) {
        self.buffer <<= bits & 63;
        self.count = self.count.wrapping_sub(bits);
    }

    /// Puts the last `bits` taken bits back.
    pub fn give_back(&mut self, bits: u64, clean: &Clean) {
        let position = self.position() - bits;
        *self = Self { buffer: 0, count: 0, at: (position / 8) as usize };
        if self.refill(clean) {
            self.take(position % 8);
        }
    }

    /// Number of bits that were taken since the start of the data in the buffer [`Clean`].
    pub fn position(&self) -> u64 {
        8 * self.at as u64 - (self.count & 63)
    }
}

impl<'a> Input<'a> {
    /// Creates a reader at the start of a scan.
    pub fn new(scan: &'a [u8], clean: &'a mut Clean) -> Self {
        let (bits, limit) = (Bits::default(), scan.len());
        let mut input = Self { scan, next: 0, limit, clean, len: 0, at_marker: false, bits };
        input.begin(0, 0);
        input
    }

    /// Limits the data that is copied to `clean` to the bytes before `end`, plus `MOST_AHEAD` bytes
    /// that are read ahead.
    pub fn limit(&mut self, end: usize) {
        self.limit = end.saturating_add(MOST_AHEAD).min(self.scan.len());
    }

    /// Moves the reader to a bit of a byte of the scan.
    pub fn begin(&mut self, byte: usize, bit: u64) {
        (self.next, self.len, self.at_marker) = (byte, 0, false);
        self.bits = Bits::default();
        self.hold();
        if self.bits.refill(self.clean) {
            self.bits.take(bit);
        }
    }

    /// Returns the bit buffer and the coded data without stuffing. Every read needs both.
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut Bits, &Clean) {
        (&mut self.bits, self.clean)
    }

    /// Returns the position of the next bit in the scan, in bits, including stuffing.
    pub fn position(&self) -> u64 {
        let position = self.bits.position();
        let ahead = &self.clean[self.len.min((position / 8) as usize)..self.len];
        let stuffed = memchr_iter(0xff, ahead).count();
        8 * (self.next - ahead.len() - stuffed) as u64 + position % 8
    }

    /// Ensures that `bytes` more bytes are in `clean`, or all bytes before the next marker if there
    /// are fewer.
    #[inline(always)]
    pub fn ensure(&mut self, bytes: usize) {
        if self.len < self.bits.at + bytes && !self.at_marker {
            self.advance();
        }
    }

    /// Returns the number of bits before the next marker. Returns `None` if the reader is beyond
    /// the marker, or if the data before the marker is not completely in `clean` yet.
    pub fn rest(&self) -> Option<u64> {
        let held = 8 * self.len as u64;
        held.checked_sub(self.bits.position()).filter(|_| self.at_marker)
    }

    /// Whether all taken bits belong to the data. If no marker follows the data, 64 unread bits
    /// must be left: libjpeg fails as soon as it fills its 64-bit buffer beyond the end of the
    /// file.
    pub fn is_inside(&self) -> bool {
        let ahead = if self.at_marker && self.next_marker().is_none() { 64 } else { 0 };
        self.bits.position() + ahead <= 8 * self.len as u64
    }

    /// Returns the marker after the coded data if less than one byte of data is left before the
    /// marker.
    pub fn marker(&mut self) -> Option<u8> {
        self.ensure(HELD);
        self.rest().filter(|rest| *rest < 8)?;
        self.next_marker()
    }

    /// Returns the marker that directly follows the data in `clean`.
    fn next_marker(&self) -> Option<u8> {
        let at = self.marker_at()?;
        self.scan.get(at).copied().filter(|marker| *marker != 0)
    }

    /// Position in the scan of the byte that names the next marker. Any number of fill bytes ff may
    /// precede a marker (T.81, B.1.1.2).
    fn marker_at(&self) -> Option<usize> {
        let fill = self.scan.get(self.next..)?.iter().take_while(|byte| **byte == 0xff).count();
        (fill > 0).then_some(self.next + fill)
    }

    /// Returns the position of the marker in the scan, once the reader has reached the marker.
    pub fn end(&self) -> usize {
        self.next
    }

    /// Continues after the restart marker with this number. Returns `None` if that marker does not
    /// follow.
    pub fn restart(&mut self, number: usize) -> Option<()> {
        let expected = 0xd0 + (number % 8) as u8;
        self.marker().filter(|marker| *marker == expected)?;
        self.begin(self.marker_at()? + 1, 0);
        Some(())
    }

    /// Moves the data that is still needed to the start of `clean` and copies more data after it.
    #[cold]
    fn advance(&mut self) {
        // The bit buffer is filled again from the moved bytes.
        let position = self.bits.position();
        let first = ((position / 8) as usize).min(self.len);
        self.clean.copy_within(first..self.len, 0);
        self.len -= first;
        self.hold();
        let ahead = position - 8 * first as u64;
        self.bits = Bits { at: (ahead / 8) as usize, ..Bits::default() };
        if self.bits.refill(self.clean) {
            self.bits.take(ahead % 8);
        }
    }

    /// Copies data without stuffing until `clean` is full, or up to the next marker.
    fn hold(&mut self) {
        let rest = &self.scan[..self.limit];
        let (mut len, mut next) = (self.len, self.next);
        while len < HELD {
            let most = rest.len().saturating_sub(next).min(HELD - len);
            let from = &rest[rest.len().min(next)..][..most];
            let copied = copy_to_stuffing(from, &mut self.clean[len..][..most]);
            (len, next) = (len + copied, next + copied);
            if copied == most && next < rest.len() {
                continue;
            }
            if rest.get(next..next + 2) == Some(&[0xff, 0]) {
                self.clean[len] = 0xff;
                (len, next) = (len + 1, next + 2);
            } else {
                // The copied data ends at a marker or at the end of the file.
                self.at_marker = true;
                break;
            }
        }
        (self.len, self.next) = (len, next);
        self.clean[len..][..PADDING].fill(0);
    }
}

/// Copies the bytes before the first 0xff to a slice of the same length, and possibly some bytes
/// after it. Returns the number of bytes before the 0xff. One pass is faster than memchr and a copy
/// of each run, because about every 256th byte is 0xff.
fn copy_to_stuffing(from: &[u8], to: &mut [u8]) -> usize {
    const WORDS: usize = 4;
    let (words, last) = from.as_chunks::<8>();
    let (to_words, to_last) = to.as_chunks_mut::<8>();
    let mut copied = 0;
    let (groups, _) = words.as_chunks::<WORDS>();
    for (group, to) in groups.iter().zip(to_words.as_chunks_mut::<WORDS>().0) {
        *to = *group;
        if group.iter().fold(0, |found, word| found | stuffing(*word)) != 0 {
            break;
        }
        copied += WORDS;
    }
    for (word, to) in words[copied..].iter().zip(&mut to_words[copied..]) {
        *to = *word;
        let found = stuffing(*word);
        if found != 0 {
            return 8 * copied + found.trailing_zeros() as usize / 8;
        }
        copied += 1;
    }
    let end = last.iter().position(|byte| *byte == 0xff).unwrap_or(last.len());
    to_last[..end].copy_from_slice(&last[..end]);
    8 * copied + end
}

/// Finds the first byte that is 0xff. The lowest set bit of the result is the highest bit of that
/// byte. Returns 0 if no byte is 0xff (Mycroft, 1987, applied to the inverted bytes).
fn stuffing(bytes: [u8; 8]) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from_le_bytes(bytes);
    (!word).wrapping_sub(LOW) & word & (LOW << 7)
}
