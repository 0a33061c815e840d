//! Huffman tables. A look-up of ten bits gives all symbols that lie whole in them, with their coefficients.

use std::ops::Range;

use super::bits::{Bits, Clean};

/// Bits of an index.
pub const INDEX_BITS: u32 = 10;
/// Entries of a table.
pub const ENTRIES: usize = 1 << INDEX_BITS;
/// Lengths of codes that are longer than an index, and that of an index.
const LONG: usize = 17 - INDEX_BITS as usize;
/// Coefficients of a pattern.
pub const PATTERN: usize = 8;
/// Maximum number of bits that an entry takes, so that two need one refill and leave enough for an index.
pub const MOST_BITS: u32 = (56 - INDEX_BITS) / 2;

/// Added to the advance of an entry that ends its block.
pub const END: usize = 128;
/// Advance of an entry without a symbol whose code lies in the index.
pub const LONG_CODE: usize = 192;
/// Advance of an entry that was not made yet.
pub const UNKNOWN: usize = 224;

/// What an entry does besides taking bits and storing its pattern. Bytes, because loads are cheaper than the shifts that would
/// take a number apart: most CPUs can do two shifts at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Where the number of its last coefficient begins in its bits, and 64 minus the bits of that number.
    begin: u8,
    behind: u8,
    /// Place of that coefficient.
    place: u8,
    /// Coefficients by which the block advances.
    advance: u8,
    /// What is added to the bits of the number if the first one is 0 (T.81, F.12).
    offset: i32,
}

impl Control {
    /// Without a last coefficient, for an index.
    pub fn new(advance: usize, index: usize) -> Self {
        // The number is a bit of the index that is 0. All codes that lie in it have one.
        let zero = (!(index as u64) << (64 - INDEX_BITS)).leading_zeros();
        Self { begin: zero as u8 & 63, behind: 63, place: 0, advance: advance as u8, offset: 0 }
    }

    /// With a last coefficient of `size` bits behind the first `begin` ones.
    pub fn with_last(self, [begin, size]: [u32; 2], place: usize) -> Self {
        let (begin, behind) = (begin as u8, 64 - size as u8);
        Self { begin, behind, place: place as u8, offset: 1 - (1 << size), ..self }
    }

    #[inline(always)]
    pub fn advance(&self) -> usize {
        self.advance.into()
    }

    /// Place and value of the last coefficient. Without one, zero at the place where the next would be.
    #[inline(always)]
    pub fn last(&self, buffer: u64) -> (usize, i16) {
        let number = buffer << (self.begin & 63);
        let is_positive = (number as i64 >> 63) as i32;
        let bits = (number >> (self.behind & 63)) as i32;
        (self.place.into(), bits.wrapping_add(self.offset & !is_positive) as i16)
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

/// What to do for each index.
#[derive(Clone, Debug)]
pub struct Entries {
    /// Bits that each takes, apart from the rest because the next look-up waits for them.
    taken: [u8; ENTRIES],
    controls: [Control; ENTRIES],
}

/// Index of an entry and the bits that it takes, looked up before other work because the next look-up waits for them.
#[derive(Clone, Copy)]
pub struct Ahead {
    pub index: usize,
    pub bits: u64,
}

/// Table for AC coefficients. Entries are made when they are looked up first, so a table that only one small image
/// uses costs little.
#[derive(Clone, Debug)]
pub struct AcTable {
    pub entries: Entries,
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
                let (len, size) = self.symbols.long(buffer)?;
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

impl Entries {
    /// Entries that take nothing.
    pub fn new(advance: usize) -> Self {
        Self { taken: [0; ENTRIES], controls: [Control::new(advance, 0); ENTRIES] }
    }

    /// Sets that of an index.
    fn set(&mut self, index: usize, bits: u32, control: Control) {
        (self.taken[index], self.controls[index]) = (bits as u8, control);
    }

    /// Sets those of one symbol, whose code all these indexes begin with.
    pub fn fill(&mut self, indexes: Range<usize>, (len, symbol): (u32, u8)) {
        let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        let start = indexes.start;
        let is_long = len == 0 || len + size > MOST_BITS;
        let control = match (zeros, size) {
            _ if is_long => Control::new(LONG_CODE, start),
            (0..15, 0) => Control::new(END, start),
            (_, 0) => Control::new(16, start),
            _ => Control::new(zeros + 1, start).with_last([len, size], zeros),
        };
        self.taken[indexes.clone()].fill(if is_long { 0 } else { (len + size) as u8 });
        self.controls[indexes].fill(control);
    }

    /// Looks up the next one. At least as many bits as an index has are valid.
    #[inline(always)]
    pub fn ahead(&self, buffer: u64) -> Ahead {
        let index = index(buffer);
        Ahead { index, bits: self.taken[index].into() }
    }

    /// Takes the bits of an entry, and looks up the next one: before all other work, because the next look-up waits for that
    /// and a CPU prefers what comes first. Returns the entry's index, and the buffer that it begins in.
    #[inline(always)]
    pub fn take(&self, ahead: &mut Ahead, bits: &mut Bits) -> (usize, u64) {
        let (Ahead { index, bits: taken }, buffer) = (*ahead, bits.buffer);
        bits.take(taken);
        *ahead = self.ahead(bits.buffer);
        (index, buffer)
    }

    /// Bits that the entry of an index takes.
    pub fn bits(&self, index: usize) -> u64 {
        self.taken[index].into()
    }

    #[inline(always)]
    pub fn control(&self, index: usize) -> &Control {
        &self.controls[index]
    }
}

impl AcTable {
    pub fn new(code: &Code) -> Self {
        Self {
            entries: Entries::new(UNKNOWN),
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
        self.entries.taken.fill(0);
        self.entries.controls.fill(Control::new(UNKNOWN, 0));
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
            let (len, symbol) = (u32::from(entry & 255), (entry >> 8) as u8);
            let count = if len == 0 { 1 } else { 1 << (INDEX_BITS - len) };
            self.entries.fill(at..at + count, (len, symbol));
            let [bits, advance] = [self.entries.taken[at], self.entries.controls[at].advance];
            self.parsing[at..][..count].fill(u16::from(bits) | u16::from(advance) << 8);
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
        let advance = if bits == 0 { LONG_CODE } else { advance };
        let control = Control::new(advance, index);
        let control = last.map_or(control, |(number, place)| control.with_last(number, place));
        self.patterns[index] = pattern;
        self.entries.set(index, bits, control);
    }

    /// Makes the entry of an index for parsing.
    #[cold]
    #[inline(never)]
    pub fn make_parsing(&mut self, index: usize) {
        let (mut bits, mut advance) = (0, 0);
        while let Some((len, symbol)) = self.symbol_at(index, bits) {
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if bits + len + size > MOST_BITS || advance + zeros + 1 > 64 {
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
