//! Huffman codes, and look-up tables for DC coefficients.

use std::iter::repeat_n;
use std::ops::Range;

use super::bits::{Bits, Clean};

/// Number of bits of an index. One look-up finds a code that is at most this long.
pub const INDEX_BITS: u32 = 10;
/// Number of entries of a table.
pub const INDEXES: usize = 1 << INDEX_BITS;
/// Number of code lengths, from 0 to 16.
const LENS: usize = 17;

/// Huffman code as stored in the file: the number of codes of each length, and their symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    counts: [u8; 16],
    symbols: [u8; 256],
}

/// Decoder that finds the length of the next code by comparing the next bits with limits (T.81,
/// annex C and figure F.16).
#[derive(Clone, Debug)]
pub struct Codes {
    code: Code,
    /// For each length: the smallest 16-bit number that does not begin with a code of at most this
    /// length.
    limits: [u32; LENS],
    /// For each length: the number to add to a code's bits to get the position of its symbol.
    offsets: [i32; LENS],
}

/// Decoder like [`Codes`], with a look-up table for codes that fit into an index.
#[derive(Clone, Debug)]
pub struct Symbols {
    codes: Codes,
    /// For each index: length of its code, and its symbol shifted left by 8. 0 if no code fits into
    /// the index.
    by_index: [u16; INDEXES],
}

/// Decoder of DC coefficients.
#[derive(Clone, Debug)]
pub struct DcTable {
    /// For each index: number of bits of code and value, and number of bits of the value shifted
    /// left by 8. 0 if no code fits into the index.
    by_index: [u16; INDEXES],
    codes: Codes,
}

/// Returns the table index, which is the next [`INDEX_BITS`] bits.
#[inline(always)]
pub fn index(buffer: u64) -> usize {
    (buffer >> (64 - INDEX_BITS)) as usize
}

/// Decodes the signed number in the highest bits of `bits`. A number with a leading 0 is negative
/// (T.81, F.12). `others` is 63 minus the size of the number in bits.
#[inline(always)]
pub fn number(bits: u64, others: u32) -> i32 {
    let mask = !((bits as i64) >> 63) as u64;
    let magnitude = ((bits ^ mask) >> 1) >> (others & 63);
    (magnitude ^ mask).wrapping_sub(mask) as i32
}

impl Code {
    /// Length of [`bytes`](Self::bytes).
    pub const BYTES: usize = 16 + 256;

    /// Code without symbols.
    pub const EMPTY: Self = Self { counts: [0; 16], symbols: [0; 256] };

    /// Reads a code from a DHT segment. Returns the code and the rest of the segment, or `None` if
    /// the bytes do not contain a prefix code.
    pub fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (counts, rest) = bytes.split_first_chunk::<16>()?;
        let len = counts.iter().map(|count| usize::from(*count)).sum::<usize>();
        let (given, rest) = rest.split_at_checked(len)?;
        let mut symbols = [0; 256];
        symbols.get_mut(..len)?.copy_from_slice(given);
        let mut code = 0;
        for (count, len) in counts.iter().zip(1..) {
            code += u32::from(*count);
            // JPEG does not allow a code that consists of ones only. `code` is 0 until the first
            // length that has codes.
            if code > 0 && code >= 1 << len {
                return None;
            }
            code <<= 1;
        }
        Some((Self { counts: *counts, symbols }, rest))
    }

    /// Returns the code as in a DHT segment, with 256 symbols. Unused symbols are 0.
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (counts, symbols) = bytes.split_at_mut(self.counts.len());
        counts.copy_from_slice(&self.counts);
        symbols.copy_from_slice(&self.symbols);
        bytes
    }

    /// Returns length, indexes and symbol of each code that fits into an index of `bits` bits. The
    /// indexes of a code are all numbers that begin with the code. The ranges are in ascending
    /// order.
    pub fn indexes(&self, bits: u32) -> impl Iterator<Item = (u32, Range<usize>, u8)> {
        let lens = (1..=bits).zip(self.counts).flat_map(|(len, count)| repeat_n(len, count.into()));
        let mut end = 0;
        lens.zip(self.symbols).map(move |(len, symbol)| {
            let start = end;
            end += 1 << (bits - len);
            (len, start..end, symbol)
        })
    }

    /// Whether all symbols are valid for DC coefficients of 8-bit samples.
    pub fn is_dc(&self) -> bool {
        // Symbols that the code does not use are stored as 0, so they do not affect the maximum.
        self.symbols.iter().fold(0, |most, symbol| most.max(*symbol)) <= 11
    }

    /// Returns the maximum size of a coefficient in bits, if the symbols are those of AC
    /// coefficients.
    pub fn most_bits(&self) -> u32 {
        self.symbols.iter().map(|symbol| u32::from(symbol & 15)).max().unwrap_or(0)
    }
}

impl Codes {
    pub fn new(code: &Code) -> Self {
        let (mut limits, mut offsets) = ([0; LENS], [0; LENS]);
        let (mut next, mut place) = (0u32, 0i32);
        for (len, count) in (1..LENS).zip(code.counts) {
            offsets[len] = place - next as i32;
            (next, place) = (next + u32::from(count), place + i32::from(count));
            limits[len] = next << (16 - len);
            next <<= 1;
        }
        Self { code: code.clone(), limits, offsets }
    }

    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Returns length and symbol of the next code. If the code is longer than an index, the search
    /// skips the lengths up to that of an index. The function is not inlined, because it is rarely
    /// called and would take registers from the loops that look up most codes.
    #[cold]
    #[inline(never)]
    pub fn next(&self, buffer: u64) -> Option<(u32, u8)> {
        const LONG: usize = INDEX_BITS as usize + 1;
        let bits = (buffer >> 48) as u32;
        let first = if bits < self.limits[LONG - 1] { 1 } else { LONG };
        let len = (first..LENS).find(|&len| bits < self.limits[len])?;
        let place = (bits >> (16 - len)) as i32 + self.offsets[len];
        Some((len as u32, *self.code.symbols.get(place as usize)?))
    }

    /// Takes one AC symbol with its value. Returns `None` if no code begins here. The buffer must
    /// be full.
    #[inline(always)]
    pub fn take(&self, bits: &mut Bits) -> Option<AcSymbol> {
        let (len, symbol) = self.next(bits.buffer)?;
        let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        let value = number(bits.buffer << len, 63 - size);
        bits.take((len + size).into());
        Some(match (zeros, size) {
            (15, 0) => AcSymbol::Zeros,
            (_, 0) => AcSymbol::End,
            _ => AcSymbol::Coefficient(zeros, value),
        })
    }
}

impl Symbols {
    pub fn new(code: &Code) -> Self {
        let mut symbols = Self { codes: Codes::new(code), by_index: [0; INDEXES] };
        for (len, indexes, symbol) in code.indexes(INDEX_BITS) {
            symbols.by_index[indexes].fill(len as u16 | u16::from(symbol) << 8);
        }
        symbols
    }

    /// Returns length and symbol of the next code.
    #[inline(always)]
    pub fn next(&self, buffer: u64) -> Option<(u32, u8)> {
        match self.by_index[index(buffer)] {
            0 => self.codes.next(buffer),
            entry => Some((u32::from(entry & 255), (entry >> 8) as u8)),
        }
    }
}

impl DcTable {
    pub fn new(code: &Code) -> Self {
        let mut table = Self { by_index: [0; INDEXES], codes: Codes::new(code) };
        table.renew(code);
        table
    }

    /// Rebuilds the table for another code.
    pub fn renew(&mut self, code: &Code) {
        self.codes = Codes::new(code);
        let mut end = 0;
        for (len, indexes, size) in code.indexes(INDEX_BITS) {
            end = indexes.end;
            self.by_index[indexes].fill(len as u16 + u16::from(size) + (u16::from(size) << 8));
        }
        self.by_index[end..].fill(0);
    }

    pub fn code(&self) -> &Code {
        self.codes.code()
    }

    /// Takes the next code with its value, and leaves at least 29 bits in the buffer. Returns
    /// `None` if no code begins here.
    #[inline(always)]
    pub fn take(&self, bits: &mut Bits, clean: &Clean) -> Option<Difference> {
        // The look-up uses the bits from before the refill, so it does not wait for the refill.
        let entry = self.by_index[index(bits.buffer)];
        if !bits.refill(clean) {
            return None;
        }
        let buffer = bits.buffer;
        let (all, size) = match entry {
            0 => {
                let (len, size) = self.codes.next(buffer)?;
                (len + u32::from(size), size)
            }
            entry => (u32::from(entry & 255), (entry >> 8) as u8),
        };
        bits.take(all.into());
        Some(Difference { buffer, all, size: size.into() })
    }
}

/// Difference of two successive DC coefficients, in coded form.
#[derive(Clone, Copy)]
pub struct Difference {
    buffer: u64,
    /// Number of bits of code and value.
    all: u32,
    /// Number of bits of the value.
    size: u32,
}

impl Difference {
    #[inline(always)]
    pub fn value(self) -> i32 {
        number(self.buffer << (self.all - self.size), 63 - self.size)
    }
}

/// Decoded AC symbol.
pub enum AcSymbol {
    /// Number of zeros, and the coefficient after them.
    Coefficient(usize, i32),
    /// Sixteen zeros.
    Zeros,
    End,
}
