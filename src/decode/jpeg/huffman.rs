//! Huffman tables. A look-up of eleven bits gives all symbols that lie whole in them, with their coefficients.

use super::bits::Bits;

/// Bits of an index.
pub const INDEX_BITS: u32 = 10;
/// Entries of a table.
pub const ENTRIES: usize = 1 << INDEX_BITS;
/// Lengths of codes that are longer than an index, and that of an index.
const LONG: usize = 17 - INDEX_BITS as usize;
/// Coefficients of a pattern.
pub const PATTERN: usize = 8;
/// Maximum number of bits that an entry takes, so that three need one refill.
pub const MOST_BITS: u32 = 18;
/// Maximum number of bits that an entry for parsing takes, so that two need one refill.
const MOST_PARSED_BITS: u32 = 28;

/// Added to the advance of an entry that ends its block.
pub const END: usize = 128;
/// Advance of an entry without a symbol whose code lies in the index.
pub const LONG_CODE: usize = 192;
/// Advance of an entry that was not made yet.
pub const UNKNOWN: usize = 224;

/// What an entry does besides storing its pattern. From the lowest bit: the bits that it takes (6); where the number of its
/// last coefficient begins in them (6); 63 minus the bits of that number (6); the place of that coefficient (6); the
/// coefficients by which the block advances (8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control(u32);

impl Control {
    pub fn new(bits: u32, advance: usize) -> Self {
        Self(bits | 63 << 12 | (advance as u32) << 24)
    }

    /// With a last coefficient of `size` bits behind the first `begin` ones.
    pub fn with_last(self, [begin, size]: [u32; 2], place: usize) -> Self {
        Self(self.0 & !(63 << 12) | begin << 6 | (63 - size) << 12 | (place as u32) << 18)
    }

    /// The bits that it takes, in the lowest six bits.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0.into()
    }

    #[inline(always)]
    pub fn advance(self) -> usize {
        (self.0 >> 24) as usize
    }

    /// Place and value of the last coefficient. Without one, zero at the place where the next would be.
    #[inline(always)]
    pub fn last(self, buffer: u64) -> (usize, i16) {
        let place = (self.0 >> 18 & 63) as usize;
        (place, number(buffer << (self.0 >> 6 & 63), self.0 >> 12 & 63) as i16)
    }
}

/// A code as in the file: the number of codes of each length, and their symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    counts: [u8; 16],
    symbols: [u8; 256],
}

/// Codes by their first bits (T.81, annex C).
#[derive(Clone, Debug)]
pub struct Symbols {
    code: Code,
    /// Length and symbol (shifted by eight) for each index whose code lies in it, else 0.
    pub by_index: [u16; ENTRIES],
    /// First number of 16 bits that is no code of at most this length; lengths above that of an index.
    limits: [u32; LONG],
    /// What is added to the first bits for the place of a symbol.
    offsets: [i32; LONG],
}

/// Table for DC coefficients.
#[derive(Clone, Debug)]
pub struct DcTable {
    /// For each index whose code lies in it: the bits of code and number, and those of the number shifted by eight; else 0.
    by_index: [u16; ENTRIES],
    symbols: Symbols,
}

/// Table for AC coefficients. Entries are made when they are looked up first, so a table that only one small image
/// uses costs little.
#[derive(Clone, Debug)]
pub struct AcTable {
    pub controls: [Control; ENTRIES],
    /// Coefficients whose numbers lie in the index.
    pub patterns: [[i8; PATTERN]; ENTRIES],
    /// Bits, and advance shifted by eight, where coefficients are not wanted.
    pub parsing: [u16; ENTRIES],
    symbols: Symbols,
    /// Whether each entry has only one symbol.
    is_simple: bool,
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

    /// Whether all its symbols can be those of DC coefficients of 8-bit samples.
    pub fn is_dc(&self) -> bool {
        // Those that are not used are 0.
        self.symbols.iter().all(|symbol| *symbol <= 11)
    }

    /// Most bits of a coefficient, if its symbols are those of AC coefficients.
    pub fn most_bits(&self) -> u32 {
        self.symbols.iter().map(|symbol| u32::from(symbol & 15)).max().unwrap_or(0)
    }
}

impl Symbols {
    pub fn new(code: &Code) -> Self {
        let mut by_index = [0; ENTRIES];
        let (mut limits, mut offsets) = ([0; LONG], [0; LONG]);
        let (mut next, mut place) = (0u32, 0i32);
        for (len, count) in (1..=16u32).zip(code.counts) {
            if len > INDEX_BITS {
                let at = (len - INDEX_BITS) as usize;
                limits[at] = (next + u32::from(count)) << (16 - len);
                offsets[at] = place - next as i32;
            }
            for _ in 0..count {
                if len <= INDEX_BITS {
                    let spare = INDEX_BITS - len;
                    let entry = len as u16 | u16::from(code.symbols[place as usize]) << 8;
                    by_index[(next << spare) as usize..][..1 << spare].fill(entry);
                }
                (next, place) = (next + 1, place + 1);
            }
            next <<= 1;
        }
        Self { code: code.clone(), by_index, limits, offsets }
    }

    /// Length of the next code and its symbol.
    #[inline(always)]
    pub fn next(&self, buffer: u64) -> Option<(u32, u8)> {
        match self.by_index[index(buffer)] {
            0 => self.long(buffer),
            entry => Some((u32::from(entry & 255), (entry >> 8) as u8)),
        }
    }

    #[inline]
    fn long(&self, buffer: u64) -> Option<(u32, u8)> {
        let bits = (buffer >> 48) as u32;
        let at = (1..LONG).find(|&at| bits < self.limits[at])?;
        let len = INDEX_BITS + at as u32;
        let place = (bits >> (16 - len)) as i32 + self.offsets[at];
        Some((len, *self.code.symbols.get(place as usize)?))
    }
}

impl DcTable {
    pub fn new(code: &Code) -> Self {
        let symbols = Symbols::new(code);
        // The number's size is added to the length.
        let by_index = symbols.by_index.map(|entry| entry + (entry >> 8));
        Self { by_index, symbols }
    }

    pub fn code(&self) -> &Code {
        &self.symbols.code
    }

    /// Takes the next difference. `None` if no code begins here.
    #[inline(always)]
    pub fn take(&self, bits: &mut Bits) -> Option<i32> {
        let (all, size) = match self.by_index[index(bits.buffer)] {
            0 => {
                let (len, size) = self.symbols.long(bits.buffer)?;
                (len + u32::from(size), size)
            }
            entry => (u32::from(entry & 255), (entry >> 8) as u8),
        };
        let size = u32::from(size);
        let difference = number(bits.buffer << (all - size), 63 - size);
        bits.take(all.into());
        Some(difference)
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

impl AcTable {
    pub fn new(code: &Code) -> Self {
        Self {
            controls: [Control::new(0, UNKNOWN); ENTRIES],
            patterns: [[0; PATTERN]; ENTRIES],
            parsing: [(UNKNOWN as u16) << 8; ENTRIES],
            symbols: Symbols::new(code),
            is_simple: false,
        }
    }

    pub fn code(&self) -> &Code {
        &self.symbols.code
    }

    pub fn is_simple(&self) -> bool {
        self.is_simple
    }

    /// Makes it a table of another code, whose entries are made when they are looked up first.
    pub fn renew(&mut self, code: &Code) {
        self.is_simple = false;
        self.controls.fill(Control::new(0, UNKNOWN));
        self.parsing.fill((UNKNOWN as u16) << 8);
        self.symbols = Symbols::new(code);
    }

    /// Makes it a table of another code, whose entries have one symbol each: so little work that it pays for one small image.
    pub fn renew_simple(&mut self, code: &Code) {
        self.is_simple = true;
        self.symbols = Symbols::new(code);
        self.patterns.fill([0; PATTERN]);
        let mut at = 0;
        while at < ENTRIES {
            let entry = self.symbols.by_index[at];
            let (len, symbol) = (u32::from(entry & 255), usize::from(entry >> 8));
            let (zeros, size) = (symbol >> 4, symbol as u32 & 15);
            let bits = len + size;
            let advance = match (zeros, size) {
                _ if len == 0 || bits > MOST_BITS => LONG_CODE,
                (15, _) | (_, 1..) => zeros + 1,
                _ => END,
            };
            let bits = if advance == LONG_CODE { 0 } else { bits };
            let control = Control::new(bits, advance);
            let of_number = advance < END && size > 0;
            let control = if of_number { control.with_last([len, size], zeros) } else { control };
            let count = if len == 0 { 1 } else { 1 << (INDEX_BITS - len) };
            self.controls[at..][..count].fill(control);
            self.parsing[at..][..count].fill(bits as u16 | (advance as u16) << 8);
            at += count;
        }
    }

    /// Takes one symbol. `None` if no code begins here. The buffer is full before.
    #[inline(always)]
    pub fn take(&self, bits: &mut Bits) -> Option<Step> {
        let (len, symbol) = self.symbols.next(bits.buffer)?;
        let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        let value = number(bits.buffer << len, 63 - size);
        bits.take((len + size).into());
        Some(match (zeros, size) {
            (15, 0) => Step::Zeros,
            (_, 0) => Step::End,
            _ => Step::Coefficient(zeros, value),
        })
    }

    /// Makes the entry of an index: all symbols that lie whole in it, and one whose number may lie behind it.
    #[cold]
    #[inline(never)]
    pub fn make_entry(&mut self, index: usize) {
        let mut pattern = [0; PATTERN];
        let (mut bits, mut advance) = (0, 0);
        let mut last = None;
        while let Some((len, symbol)) = self.symbol_at(index, bits) {
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            let (begin, place) = (bits + len, advance + zeros);
            if size == 0 {
                // Sixteen zeros come alone: there is no place for a last coefficient.
                if zeros < 15 {
                    (bits, advance) = (begin, advance + END);
                } else if advance == 0 {
                    (bits, advance) = (begin, 16);
                }
                break;
            }
            if begin + size > MOST_BITS {
                break;
            }
            (bits, advance) = (begin + size, place + 1);
            last = Some(([begin, size], place));
            if place >= PATTERN || size > 7 || bits > INDEX_BITS {
                break;
            }
            let number = number((index as u64) << (64 - INDEX_BITS + begin), 63 - size);
            pattern[place] = number as i8;
        }
        let control = Control::new(bits, if bits == 0 { LONG_CODE } else { advance });
        self.patterns[index] = pattern;
        self.controls[index] =
            last.map_or(control, |(number, place)| control.with_last(number, place));
    }

    /// Makes the entry of an index for parsing.
    #[cold]
    #[inline(never)]
    pub fn make_parsing(&mut self, index: usize) {
        let (mut bits, mut advance) = (0, 0);
        while let Some((len, symbol)) = self.symbol_at(index, bits) {
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if bits + len + size > MOST_PARSED_BITS || advance + zeros + 1 > 64 {
                break;
            }
            bits += len + size;
            if size == 0 && zeros < 15 {
                advance += END;
                break;
            }
            advance += zeros + 1;
        }
        let advance = if bits == 0 { LONG_CODE } else { advance };
        self.parsing[index] = bits as u16 | (advance as u16) << 8;
    }

    /// Length and symbol of the code behind the first `used` bits of an index, if it lies whole in it.
    fn symbol_at(&self, index: usize, used: u32) -> Option<(u32, u8)> {
        let rest = INDEX_BITS.checked_sub(used).filter(|rest| *rest > 0)?;
        let entry = self.symbols.by_index[index << used & (ENTRIES - 1)];
        let len = u32::from(entry & 255);
        (len > 0 && len <= rest).then_some((len, (entry >> 8) as u8))
    }
}
