//! Tables of AC coefficients. One look-up returns all symbols that lie whole in the index, with their coefficients.
//!
//! Most files have codes of their own, so a table must be made in little time. Its entries are made from the code in one pass: an
//! entry is its first symbol, followed by the entry that a shorter index has for the remaining bits.

use std::ops::Range;

use bytemuck::{Pod, Zeroable, cast};

use super::bits::Bits;
use super::huffman::{Code, Codes, INDEX_BITS, INDEXES, index};

/// Coefficients of a pattern.
pub const PATTERN: usize = 8;
/// Maximum number of bits that an entry takes, so that two need one refill and leave enough for an index.
const MOST_BITS: u32 = (56 - INDEX_BITS) / 2;

/// Added to the advance of an entry that ends its block.
pub const END: usize = 128;
/// Advance of an entry without a symbol whose code lies in the index.
pub const LONG_CODE: usize = 192;

/// Bits that an entry takes, and the coefficients by which the block advances, shifted by eight.
pub type Take = u16;

const fn take(bits: u32, advance: usize) -> Take {
    bits as u16 | (advance as u16) << 8
}

/// Take of an entry without a symbol whose code lies in the index.
const NOTHING: Take = take(0, LONG_CODE);

/// Bits that an entry takes.
pub fn bits_of(take: Take) -> u64 {
    u64::from(take) & 63
}

/// Coefficients by which it advances, with [`END`].
#[inline(always)]
pub fn advance_of(take: Take) -> usize {
    usize::from(take >> 8)
}

/// The last coefficient of an entry. Bytes, because loads are cheaper than the shifts that would take a number apart: most CPUs
/// can do two shifts at a time.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Last {
    /// What is added to the bits of its number if the first one is 0 (T.81, F.12).
    offset: i32,
    /// Where that number begins in the bits of the entry, and 64 minus its bits.
    begin: u8,
    behind: u8,
    place: u8,
    unused: u8,
}

impl Last {
    /// No coefficient: its value is zero in the bits of this index, if a code lies in it.
    const fn none(index: usize) -> Self {
        // The number is a bit of the index that is 0. All codes that lie in it have one.
        let zero = (!(index as u64) << (64 - INDEX_BITS)).leading_zeros();
        Self { offset: 0, begin: zero as u8 & 63, behind: 63, place: 0, unused: 0 }
    }

    /// Place and value of the coefficient. Without one, zero at the place where the next would be.
    #[inline(always)]
    pub fn of(&self, buffer: u64) -> (usize, i16) {
        let number = buffer << (self.begin & 63);
        let is_positive = (number as i64 >> 63) as i32;
        let bits = (number >> (self.behind & 63)) as i32;
        (self.place.into(), bits.wrapping_add(self.offset & !is_positive) as i16)
    }
}

/// All coefficients of an entry.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Action {
    /// Those whose numbers lie in the index but the last one, each a byte, the first one in the lowest.
    pattern: u64,
    pub last: Last,
}

impl Action {
    /// The coefficients but the last one.
    #[inline(always)]
    pub fn pattern(&self) -> [i8; PATTERN] {
        cast(self.pattern.to_le_bytes())
    }
}

impl From<Last> for Action {
    fn from(last: Last) -> Self {
        Self { pattern: 0, last }
    }
}

/// What to do for each index: a [`Last`] or an [`Action`].
#[derive(Clone, Debug)]
pub struct Entries<A> {
    /// Apart from the rest because the next look-up waits for them: they stay in the first cache.
    takes: [Take; INDEXES],
    actions: [A; INDEXES],
}

/// Index of an entry and what it takes, looked up before other work because the next look-up waits for it.
#[derive(Clone, Copy)]
pub struct Ahead {
    index: usize,
    take: Take,
}

impl<A: Copy + From<Last>> Entries<A> {
    /// Entries without symbols.
    pub fn new() -> Self {
        Self { takes: [NOTHING; INDEXES], actions: [Last::none(0).into(); INDEXES] }
    }

    /// Makes those of a code, with one symbol each. Symbols that are not among `wanted` are left out.
    pub fn renew(&mut self, code: &Code, wanted: impl Fn(u8) -> bool) {
        let mut end = 0;
        for (len, indexes, symbol) in code.indexes(INDEX_BITS) {
            end = indexes.end;
            match Symbol::new(len, symbol).filter(|_| wanted(symbol)) {
                Some(symbol) => {
                    let last = symbol.last(indexes.start);
                    self.fill(indexes, symbol.take(), last);
                }
                None => self.fill(indexes, NOTHING, Last::none(0)),
            }
        }
        self.fill(end..INDEXES, NOTHING, Last::none(0));
    }

    fn fill(&mut self, indexes: Range<usize>, take: Take, last: Last) {
        self.takes[indexes.clone()].fill(take);
        self.actions[indexes].fill(last.into());
    }

    /// Looks up the next one. At least as many bits as an index has are valid.
    #[inline(always)]
    pub fn ahead(&self, buffer: u64) -> Ahead {
        let index = index(buffer);
        Ahead { index, take: self.takes[index] }
    }

    /// What the next one takes, where coefficients are not wanted.
    #[inline(always)]
    pub fn next(&self, buffer: u64) -> Take {
        self.takes[index(buffer)]
    }

    /// Takes the bits of an entry, and looks up the next one: before all other work, because the next look-up waits for that
    /// and a CPU prefers what comes first. Returns what the entry takes and does, and the buffer that it begins in.
    #[inline(always)]
    pub fn take(&self, ahead: &mut Ahead, bits: &mut Bits) -> (Take, &A, u64) {
        let (Ahead { index, take }, buffer) = (*ahead, bits.buffer);
        bits.take(take.into());
        *ahead = self.ahead(bits.buffer);
        (take, &self.actions[index], buffer)
    }
}

/// A symbol whose code lies in an index, and its bits.
#[derive(Clone, Copy)]
struct Symbol {
    len: u32,
    zeros: usize,
    size: u32,
}

impl Symbol {
    /// `None` if an entry cannot take so many bits.
    fn new(len: u32, symbol: u8) -> Option<Self> {
        let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        (len + size <= MOST_BITS).then_some(Self { len, zeros, size })
    }

    fn take(self) -> Take {
        match self {
            Self { len, zeros: 0..15, size: 0 } => take(len, END),
            Self { len, zeros, size } => take(len + size, zeros + 1),
        }
    }

    /// Its coefficient, for an index that begins with its code.
    fn last(self, index: usize) -> Last {
        let Self { len, zeros, size } = self;
        if size == 0 {
            return Last::none(index);
        }
        let (begin, behind, offset) = (len as u8, 64 - size as u8, 1 - (1 << size));
        Last { offset, begin, behind, place: zeros as u8, unused: 0 }
    }
}

/// Table of AC coefficients.
#[derive(Clone, Debug)]
pub struct AcTable {
    pub entries: Entries<Action>,
    pub codes: Codes,
    /// Whether each entry has only one symbol.
    is_simple: bool,
}

impl AcTable {
    pub fn new(code: &Code) -> Self {
        let mut table = Self { entries: Entries::new(), codes: Codes::new(code), is_simple: true };
        table.renew(code, true);
        table
    }

    /// Whether each entry has only one symbol.
    pub fn is_simple(&self) -> bool {
        self.is_simple
    }

    /// Makes it the table of another code. A simple one, whose entries have one symbol each, is made in so little time that it
    /// pays for one small image.
    pub fn renew(&mut self, code: &Code, is_simple: bool) {
        self.is_simple = is_simple;
        self.codes = Codes::new(code);
        if is_simple {
            self.entries.renew(code, |_| true);
        } else {
            Drafts::new(code).make(code, &mut self.entries);
        }
    }
}

/// Bits of an index of which some symbols have taken at least two.
const MOST_REST: u32 = INDEX_BITS - 2;

/// Entry of one index.
#[derive(Clone, Copy)]
struct Entry {
    take: Take,
    action: Action,
}

/// Entries of indexes of 1 to [`MOST_REST`] bits. The place of one has a 1 before its bits.
struct Drafts {
    takes: [Take; 2 << MOST_REST],
    actions: [Action; 2 << MOST_REST],
}

impl Drafts {
    fn new(code: &Code) -> Self {
        let takes = [NOTHING; 2 << MOST_REST];
        let mut drafts = Self { takes, actions: [Action::zeroed(); 2 << MOST_REST] };
        // A draft is looked up for the bits behind a symbol: at most the index without the shortest symbol.
        let used = code.indexes(INDEX_BITS).filter_map(|(len, _, symbol)| {
            let size = u32::from(symbol & 15);
            (size > 0).then_some(len + size)
        });
        let most_rest = INDEX_BITS.saturating_sub(used.min().unwrap_or(INDEX_BITS));
        for bits in 1..=most_rest {
            for (len, indexes, symbol) in code.indexes(bits) {
                // Longer numbers would take more bits than an entry may, together with the symbols before.
                let most = MOST_BITS - (INDEX_BITS - bits);
                let symbol = Symbol::new(len, symbol).filter(|it| it.len + it.size <= most);
                // Sixteen zeros stay alone: there is no place for a last coefficient.
                if let Some(symbol) = symbol.filter(|it| it.size > 0 || it.zeros < 15) {
                    drafts.each(bits, indexes, symbol, |drafts, index, entry| {
                        let place = 1 << bits | index;
                        (drafts.takes[place], drafts.actions[place]) = (entry.take, entry.action);
                    });
                }
            }
        }
        drafts
    }

    /// Makes the entries of a table.
    fn make(&mut self, code: &Code, entries: &mut Entries<Action>) {
        let mut end = 0;
        for (len, indexes, symbol) in code.indexes(INDEX_BITS) {
            end = indexes.end;
            match Symbol::new(len, symbol) {
                Some(symbol) => self.each(INDEX_BITS, indexes, symbol, |_, index, entry| {
                    (entries.takes[index], entries.actions[index]) = (entry.take, entry.action);
                }),
                None => entries.fill(indexes, NOTHING, Last::none(0)),
            }
        }
        entries.fill(end..INDEXES, NOTHING, Last::none(0));
    }

    /// Calls `put` with the entry of each index of `bits` bits that begins with a symbol.
    #[inline(always)]
    fn each(
        &mut self,
        bits: u32,
        indexes: Range<usize>,
        symbol: Symbol,
        mut put: impl FnMut(&mut Self, usize, Entry),
    ) {
        let Symbol { len, zeros, size } = symbol;
        let alone = Entry { take: symbol.take(), action: symbol.last(indexes.start).into() };
        let used = len + size;
        if size == 0 || size > 7 || zeros >= PATTERN || used >= bits {
            for index in indexes {
                put(self, index, alone);
            }
            return;
        }
        let rest = bits - used;
        let mut index = indexes.start;
        for number in 0..1i32 << size {
            let value = if number >> (size - 1) == 0 { number + 1 - (1 << size) } else { number };
            let coefficient = u64::from(value as u8) << (8 * zeros);
            for place in 1 << rest..2 << rest {
                let entry = Entry { take: self.takes[place], action: self.actions[place] };
                put(self, index, alone.before(entry, coefficient, used));
                index += 1;
            }
        }
    }
}

impl Entry {
    /// The entry of one symbol that takes `used` bits, with its coefficient as a pattern, before that of the bits after it.
    /// Without branches, which no CPU would predict.
    #[inline(always)]
    fn before(self, rest: Self, coefficient: u64, used: u32) -> Self {
        let zeros = u32::from(self.action.last.place);
        let (last, [pattern, rest_last]): (u64, [u64; 2]) =
            (cast(self.action.last), cast(rest.action));
        // Coefficients for which there would be no place behind this one.
        let outside = !0 << (56 - 8 * zeros);
        let follows = (rest.take != NOTHING) & (pattern & outside == 0);
        let has_coefficient = follows & (advance_of(rest.take) != END);
        let later = Last { begin: used as u8, place: zeros as u8 + 1, ..Last::zeroed() };
        let later: u64 = cast(later);
        // No byte of the sum is more than 255.
        let both = coefficient | pattern << (8 * zeros) << 8;
        let moved_last = rest_last.wrapping_add(later);
        let mask = if has_coefficient { !0 } else { 0 };
        let action = [both & mask, last ^ (last ^ moved_last) & mask];
        let more = if follows { rest.take } else { 0 };
        Self { take: self.take + more, action: cast(action) }
    }
}
