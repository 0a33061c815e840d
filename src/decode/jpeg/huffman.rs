//! Huffman codes, and the tables of DC coefficients.

use std::iter::repeat_n;
use std::ops::Range;

use super::bits::{Bits, Clean};

/// Bits of an index.
pub const INDEX_BITS: u32 = 10;
/// Indexes of a table.
pub const INDEXES: usize = 1 << INDEX_BITS;
/// Lengths of codes, and 0.
const LENS: usize = 17;

/// A code as in the file: the number of codes of each length, and their symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    counts: [u8; 16],
    symbols: [u8; 256],
}

/// Finds a code among the next bits by its length (T.81, annex C, and figure F.16).
#[derive(Clone, Debug)]
pub struct Codes {
    code: Code,
    /// For each length the first number of 16 bits that is no code of at most this length.
    limits: [u32; LENS],
    /// What is added to the bits of a code for the place of its symbol.
    offsets: [i32; LENS],
}

/// The same, with a table of the codes that lie in an index.
#[derive(Clone, Debug)]
pub struct Symbols {
    codes: Codes,
    /// Length and symbol (shifted by eight) for each index whose code lies in it, else 0.
    by_index: [u16; INDEXES],
}

/// Table for DC coefficients.
#[derive(Clone, Debug)]
pub struct DcTable {
    /// For each index whose code lies in it: the bits of code and number, and those of the number shifted by eight; else 0.
    by_index: [u16; INDEXES],
    codes: Codes,
}

/// Index of the next bits.
#[inline(always)]
pub fn index(buffer: u64) -> usize {
    (buffer >> (64 - INDEX_BITS)) as usize
}

/// Number at the top of `bits`, whose lower half is negative (T.81, F.12). `others` is 63 minus its size.
#[inline(always)]
pub fn number(bits: u64, others: u32) -> i32 {
    let mask = !((bits as i64) >> 63) as u64;
    let magnitude = ((bits ^ mask) >> 1) >> (others & 63);
    (magnitude ^ mask).wrapping_sub(mask) as i32
}

impl Code {
    /// A code of no symbols.
    pub const EMPTY: Self = Self { counts: [0; 16], symbols: [0; 256] };

    /// Reads it from the content of a DHT segment, and returns the rest. `None` if it is no prefix code.
    pub fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (counts, rest) = bytes.split_first_chunk::<16>()?;
        let len = counts.iter().map(|count| usize::from(*count)).sum::<usize>();
        let (given, rest) = rest.split_at_checked(len)?;
        let mut symbols = [0; 256];
        symbols.get_mut(..len)?.copy_from_slice(given);
        let mut code = 0;
        for (count, len) in counts.iter().zip(1..) {
            code += u32::from(*count);
            // No code has ones only, but there may be no code yet.
            if code > 0 && code >= 1 << len {
                return None;
            }
            code <<= 1;
        }
        Some((Self { counts: *counts, symbols }, rest))
    }

    /// Length and symbol of each code that lies in an index of `bits` bits, with the indexes that begin with it, in ascending
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

    /// Whether all its symbols can be those of DC coefficients of 8-bit samples.
    pub fn is_dc(&self) -> bool {
        // Those that are not used are 0.
        self.symbols.iter().fold(0, |most, symbol| most.max(*symbol)) <= 11
    }

    /// Most bits of a coefficient, if its symbols are those of AC coefficients.
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

    /// Length of the next code and its symbol. Codes that are longer than an index are found sooner. Not inlined, because it is rare
    /// and would take registers of loops that look up most codes.
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

    /// Takes one symbol of AC coefficients. `None` if no code begins here. The buffer is full before.
    #[inline(always)]
    pub fn take(&self, bits: &mut Bits) -> Option<Step> {
        let (len, symbol) = self.next(bits.buffer)?;
        let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        let value = number(bits.buffer << len, 63 - size);
        bits.take((len + size).into());
        Some(match (zeros, size) {
            (15, 0) => Step::Zeros,
            (_, 0) => Step::End,
            _ => Step::Coefficient(zeros, value),
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

    /// Length of the next code and its symbol.
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

    /// Makes it the table of another code.
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

    /// Takes the next code with its number, and leaves 29 bits or more. `None` if no code begins here.
    #[inline(always)]
    pub fn take(&self, bits: &mut Bits, clean: &Clean) -> Option<Difference> {
        // The look-up does not wait for the new bits.
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

/// Difference of two DC coefficients, as it is coded.
#[derive(Clone, Copy)]
pub struct Difference {
    buffer: u64,
    /// Bits of code and number, and of the number.
    all: u32,
    size: u32,
}

impl Difference {
    #[inline(always)]
    pub fn value(self) -> i32 {
        number(self.buffer << (self.all - self.size), 63 - self.size)
    }
}

/// Run of zeros and the coefficient after it, or the end of a block.
pub enum Step {
    /// So many zeros, and a coefficient.
    Coefficient(usize, i32),
    /// Sixteen zeros.
    Zeros,
    End,
}
