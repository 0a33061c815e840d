//! Look-up tables of AC coefficients. One look-up returns all symbols that fit completely into the
//! index bits, with their coefficients.
//!
//! Most files define their own Huffman codes, so building a table must be fast. One pass over the
//! code builds all entries. An index consists of the bits of its first symbol and the remaining
//! bits, which form a shorter index. So its entry combines the first symbol with the entry of that
//! shorter index.

use std::ops::Range;

use bytemuck::{Pod, Zeroable, cast};

use super::bits::Bits;
use super::huffman::{Code, Codes, INDEX_BITS, INDEXES, index};

/// Maximum number of coefficients in the *pattern* of an entry. The pattern has all coefficients of
/// the entry except the last one, which is stored separately.
pub const PATTERN: usize = 8;
/// Maximum number of bits that one entry takes. After one refill, the bit buffer has enough bits
/// for two entries and for the index of a third.
const MOST_BITS: u32 = (56 - INDEX_BITS) / 2;

/// Value that is added to the advance (number of coefficients) of an entry that ends its block.
pub const END: usize = 128;
/// Advance (number of coefficients) that marks an entry without a symbol, for example because the
/// code is longer than the index.
pub const LONG_CODE: usize = 192;

/// Number of bits that an entry takes (low byte) and number of coefficients by which it advances
/// (high byte).
pub type Take = u16;

const fn take(bits: u32, advance: usize) -> Take {
    bits as u16 | (advance as u16) << 8
}

/// Number of bits and advance of an entry without a symbol.
const NOTHING: Take = take(0, LONG_CODE);

/// Returns the number of bits that an entry takes.
pub fn bits_of(take: Take) -> u64 {
    u64::from(take) & 63
}

/// Returns the number of coefficients by which an entry advances, plus [`END`] if it ends the
/// block.
#[inline(always)]
pub fn advance_of(take: Take) -> usize {
    usize::from(take >> 8)
}

/// Last coefficient of an entry. The fields are bytes, because loading bytes is cheaper than
/// shifting them out of one number: most CPUs execute only two shifts per cycle.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Last {
    /// Number to add to the value if the value's first bit is 0 (T.81, F.12).
    offset: i32,
    /// Position of the value's first bit among the bits of the entry.
    begin: u8,
    /// 64 minus the number of bits of the value.
    behind: u8,
    /// Position of the coefficient, counted from the block's first coefficient that is not decoded
    /// yet.
    place: u8,
    unused: u8,
}

impl Last {
    /// Creates the value for an entry without a coefficient. For it, [`Last::of`] reads the value 0
    /// from a zero bit of `index`.
    const fn none(index: usize) -> Self {
        // The value 0 is read from one zero bit of the index. Every code that fits into the index
        // has a zero bit.
        let zero = (!(index as u64) << (64 - INDEX_BITS)).leading_zeros();
        Self { offset: 0, begin: zero as u8 & 63, behind: 63, place: 0, unused: 0 }
    }

    /// Returns the position and the value of the coefficient. The position is counted from the
    /// block's first coefficient that is not decoded yet. If the entry has no coefficient, the
    /// value is 0.
    #[inline(always)]
    pub fn of(&self, buffer: u64) -> (usize, i16) {
        let number = buffer << (self.begin & 63);
        let is_positive = (number as i64 >> 63) as i32;
        let bits = (number >> (self.behind & 63)) as i32;
        (self.place.into(), bits.wrapping_add(self.offset & !is_positive) as i16)
    }
}

/// Coefficients that one entry decodes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Action {
    /// All coefficients except the last, one per byte, with the first in the lowest byte. Their
    /// values lie completely in the index bits.
    pattern: u64,
    pub last: Last,
}

impl Action {
    /// Returns all coefficients except the last.
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

/// Entries of all indexes. `A` is [`Last`] or [`Action`].
#[derive(Clone, Debug)]
pub struct Entries<A> {
    /// Number of bits and advance of each entry. They are stored apart from `actions`, because each
    /// look-up depends on these numbers of the previous entry. Without the actions, they fit into
    /// the L1 cache.
    takes: [Take; INDEXES],
    actions: [A; INDEXES],
}

/// Index and take (number of bits, advance) of the next entry. The next entry is looked up before
/// other work, because the following look-up depends on it.
#[derive(Clone, Copy)]
pub struct Ahead {
    index: usize,
    take: Take,
}

impl<A: Copy + From<Last>> Entries<A> {
    /// Creates entries without symbols.
    pub fn new() -> Self {
        Self { takes: [NOTHING; INDEXES], actions: [Last::none(0).into(); INDEXES] }
    }

    /// Rebuilds the entries for a Huffman code. Each entry gets one symbol. Symbols that `wanted`
    /// rejects get no entry.
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

    /// Looks up the next entry. The buffer must hold at least [`INDEX_BITS`] valid bits.
    #[inline(always)]
    pub fn ahead(&self, buffer: u64) -> Ahead {
        let index = index(buffer);
        Ahead { index, take: self.takes[index] }
    }

    /// Returns the take (number of bits, advance) of the next entry, for callers that do not need
    /// coefficients.
    #[inline(always)]
    pub fn next(&self, buffer: u64) -> Take {
        self.takes[index(buffer)]
    }

    /// Takes the bits of the entry that `ahead` holds from the buffer, and looks up the next entry.
    /// Each look-up depends on the result of the previous one, so the chain of look-ups limits the
    /// speed. The look-up therefore precedes all other work: CPUs execute earlier instructions
    /// first. Returns the take and the action of the entry, and the bit buffer in which the entry
    /// begins.
    #[inline(always)]
    pub fn take(&self, ahead: &mut Ahead, bits: &mut Bits) -> (Take, &A, u64) {
        let (Ahead { index, take }, buffer) = (*ahead, bits.buffer);
        bits.take(take.into());
        *ahead = self.ahead(bits.buffer);
        (take, &self.actions[index], buffer)
    }
}

/// A symbol whose code fits into an index: length of the code in bits, number of zeros before the
/// coefficient, and number of bits of the coefficient's value.
#[derive(Clone, Copy)]
struct Symbol {
    len: u32,
    zeros: usize,
    size: u32,
}

impl Symbol {
    /// Returns `None` if the symbol takes more than `MOST_BITS` bits.
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

    /// Returns the symbol's coefficient, for an index that begins with the symbol's code.
    fn last(self, index: usize) -> Last {
        let Self { len, zeros, size } = self;
        if size == 0 {
            return Last::none(index);
        }
        let (begin, behind, offset) = (len as u8, 64 - size as u8, 1 - (1 << size));
        Last { offset, begin, behind, place: zeros as u8, unused: 0 }
    }
}

/// Table that decodes AC coefficients with one Huffman code.
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

    /// Rebuilds the table for another code. A simple table has one symbol per entry. It is built so
    /// fast that it is worth its time even for one small image.
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

/// Maximum number of index bits that remain after a first symbol, which takes at least two bits.
const MOST_REST: u32 = INDEX_BITS - 2;

/// Table entry for one value of the index bits.
#[derive(Clone, Copy)]
struct Entry {
    take: Take,
    action: Action,
}

/// Entries for indexes of 1 to [`MOST_REST`] bits. The entry of an index is stored at the index
/// with a leading 1 bit.
struct Drafts {
    takes: [Take; 2 << MOST_REST],
    actions: [Action; 2 << MOST_REST],
}

impl Drafts {
    fn new(code: &Code) -> Self {
        let takes = [NOTHING; 2 << MOST_REST];
        let mut drafts = Self { takes, actions: [Action::zeroed(); 2 << MOST_REST] };
        // A draft is the entry for the index bits that remain after a first symbol. The shortest
        // symbol leaves the most bits, so no draft is needed for more bits than that.
        let used = code.indexes(INDEX_BITS).filter_map(|(len, _, symbol)| {
            let size = u32::from(symbol & 15);
            (size > 0).then_some(len + size)
        });
        let most_rest = INDEX_BITS.saturating_sub(used.min().unwrap_or(INDEX_BITS));
        for bits in 1..=most_rest {
            for (len, indexes, symbol) in code.indexes(bits) {
                // Together with the symbols before it, a longer symbol would take more bits than an
                // entry may take.
                let most = MOST_BITS - (INDEX_BITS - bits);
                let symbol = Symbol::new(len, symbol).filter(|it| it.len + it.size <= most);
                // A run of sixteen zeros is not appended to other symbols, because it has no last
                // coefficient.
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

    /// Builds the entries of a table.
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

    /// Calls `put` with the entry of each index of `bits` bits that begins with `symbol`.
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
    /// Returns the entry that decodes one symbol of `used` bits, and then the symbols of the entry
    /// `rest`. The symbol's `coefficient` moves into the pattern. The code has no branches, because
    /// CPUs could not predict such branches.
    #[inline(always)]
    fn before(self, rest: Self, coefficient: u64, used: u32) -> Self {
        let zeros = u32::from(self.action.last.place);
        let (last, [pattern, rest_last]): (u64, [u64; 2]) =
            (cast(self.action.last), cast(rest.action));
        // `outside` selects coefficients of `rest` that would not fit into the pattern after this
        // symbol's coefficient.
        let outside = !0 << (56 - 8 * zeros);
        let follows = (rest.take != NOTHING) & (pattern & outside == 0);
        let has_coefficient = follows & (advance_of(rest.take) != END);
        let later = Last { begin: used as u8, place: zeros as u8 + 1, ..Last::zeroed() };
        let later: u64 = cast(later);
        // No byte of `rest_last + later` exceeds 255, so no byte carries into the next one.
        let both = coefficient | pattern << (8 * zeros) << 8;
        let moved_last = rest_last.wrapping_add(later);
        let mask = if has_coefficient { !0 } else { 0 };
        let action = [both & mask, last ^ (last ^ moved_last) & mask];
        let more = if follows { rest.take } else { 0 };
        Self { take: self.take + more, action: cast(action) }
    }
}
