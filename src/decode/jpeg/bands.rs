//! Entropy decoding of AC coefficients in progressive scans (T.81, G.1.2.2 and G.1.2.3).

use super::ac_table::{END, Entries, Last, advance_of};
use super::bits::{Bits, Clean};
use super::blocks::BLOCK;
use super::huffman::{Code, Symbols, number};

/// Coefficients of a block in zigzag order.
pub type Block = [i16; BLOCK];

/// Bit mask of the nonzero AC coefficients of a block. The highest bit stands for the block's first
/// coefficient.
pub type Mask = u64;

/// Maximum number of blocks that one call decodes.
pub const MOST_BLOCKS: usize = 16;
/// Maximum number of bytes of coded data of [`MOST_BLOCKS`] blocks.
pub const MOST_BYTES: usize = MOST_BLOCKS * 63 * 31 / 8 + 16;

/// Mask of the first coefficient of a block.
const TOP: Mask = 1 << 63;

/// State of the decoding of an AC scan.
pub struct Bands<'a> {
    pub codes: &'a AcCodes,
    /// Positions of the first and the last coefficient of the band.
    pub band: [usize; 2],
    /// Lowest bit of the coefficients that the scan codes (`Al` in T.81).
    pub low: u32,
    /// Number of following blocks without new coefficients (end-of-band run).
    pub run: usize,
}

/// Huffman table of an AC scan. Every scan may define its own tables, so building one must be fast.
#[derive(Clone, Debug)]
pub struct AcCodes {
    /// Table for first scans of a band. The entry of an index is a coefficient, or the end of one
    /// block. Refining scans do not use this table.
    pub entries: Entries<Last>,
    pub symbols: Symbols,
}

impl AcCodes {
    pub fn new(code: &Code) -> Self {
        Self { entries: Entries::new(), symbols: Symbols::new(code) }
    }

    /// Rebuilds the table for another code of a refining scan.
    pub fn renew(&mut self, code: &Code) {
        self.symbols = Symbols::new(code);
    }

    /// Rebuilds the table for another code of a first scan.
    pub fn renew_first(&mut self, code: &Code) {
        self.renew(code);
        // Runs of sixteen zeros and ends of several blocks are rare, so they get no entries.
        self.entries.renew(code, |symbol| symbol & 15 > 0 || symbol == 0);
    }
}

/// Bit operations for which some CPUs have special instructions.
pub trait Operations {
    /// Returns the set bit of `mask` that has `above` set bits above it, or 0 if there is none.
    fn pick(mask: Mask, above: u32) -> Mask;

    /// Adds one bit of `more` to the magnitude of each coefficient in `mask`. The lowest bit of
    /// `more` belongs to the last coefficient.
    fn add(block: &mut Block, mask: Mask, more: u64, low: u32);
}

/// Implements [`Operations`] without special instructions.
pub struct Plain;

impl Operations for Plain {
    #[inline(always)]
    fn pick(mut mask: Mask, above: u32) -> Mask {
        for _ in 0..above {
            mask &= !(TOP >> (mask.leading_zeros() & 63));
        }
        if mask == 0 { 0 } else { TOP >> (mask.leading_zeros() & 63) }
    }

    #[inline(always)]
    fn add(block: &mut Block, mut mask: Mask, mut more: u64, low: u32) {
        while mask != 0 {
            let coefficient = &mut block[(63 - mask.trailing_zeros()) as usize & 63];
            *coefficient = coefficient.wrapping_add(step(*coefficient, low) & -((more & 1) as i16));
            (more, mask) = (more >> 1, mask & (mask - 1));
        }
    }
}

/// Returns the number to add to a coefficient to increase its magnitude by bit `low`.
#[inline(always)]
pub fn step(coefficient: i16, low: u32) -> i16 {
    let sign = coefficient >> 15;
    ((1 << low) ^ sign) - sign
}

impl Bands<'_> {
    /// Decodes consecutive blocks in a band's first scan. If `blocks` is empty, only the masks are
    /// updated.
    #[inline(always)]
    pub fn first(
        &mut self,
        (bits, clean): (&mut Bits, &Clean),
        masks: &mut [Mask],
        blocks: &mut [Block],
    ) -> Option<()> {
        let mut reader = *bits;
        let mut other = [0; BLOCK];
        let mut at = 0;
        while let Some(mask) = masks.get_mut(at) {
            if self.run > 0 {
                let skipped = self.run.min(masks.len() - at);
                (at, self.run) = (at + skipped, self.run - skipped);
                continue;
            }
            let block = blocks.get_mut(at).unwrap_or(&mut other);
            let found;
            (reader, found, self.run) = self.first_of_block(reader, clean, block)?;
            *mask |= found;
            at += 1;
        }
        *bits = reader;
        Some(())
    }

    /// Decodes consecutive blocks in a refining scan, which adds one bit to the coefficients. If
    /// `blocks` is empty, only the masks are updated.
    #[inline(always)]
    pub fn refine<O: Operations>(
        &mut self,
        (bits, clean): (&mut Bits, &Clean),
        masks: &mut [Mask],
        blocks: &mut [Block],
    ) -> Option<()> {
        let mut reader = *bits;
        let mut other = [0; BLOCK];
        for (at, mask) in masks.iter_mut().enumerate() {
            let block = blocks.get_mut(at).unwrap_or(&mut other);
            reader = self.refine_block::<O>(reader, clean, mask, block)?;
        }
        *bits = reader;
        Some(())
    }

    /// Decodes one block of a first scan. Returns the mask of its nonzero coefficients and the
    /// number of following blocks without new coefficients.
    #[inline(always)]
    fn first_of_block(
        &self,
        mut bits: Bits,
        clean: &Clean,
        block: &mut Block,
    ) -> Option<(Bits, Mask, usize)> {
        let Self { codes, band: [first, last], low, .. } = *self;
        let mut count = first;
        let mut mask = 0;
        loop {
            if !bits.refill(clean) {
                return None;
            }
            let mut ahead = codes.entries.ahead(bits.buffer);
            let (advance, coefficient, buffer) = 'entries: loop {
                macro_rules! entry {
                    (refill: $refill:literal) => {
                        if $refill && !bits.refill(clean) {
                            return None;
                        }
                        let (take, coefficient, buffer) = codes.entries.take(&mut ahead, &mut bits);
                        let next = count + advance_of(take);
                        if next > last {
                            break 'entries (advance_of(take), coefficient, buffer);
                        }
                        let (_, value) = coefficient.of(buffer);
                        block[(next - 1) & 63] = value << low;
                        mask |= TOP >> ((next - 1) & 63);
                        count = next;
                    };
                }
                // The buffer has 56 bits. Two entries take at most 46 of them, so 10 bits remain,
                // which are enough for the next index.
                entry!(refill: false);
                entry!(refill: true);
            };
            if advance == END {
                return Some((bits, mask, 0));
            }
            if advance < END {
                // If the last coefficient lies beyond the end of the band, the data is corrupt.
                if count + advance != last + 1 {
                    return None;
                }
                block[last & 63] = coefficient.of(buffer).1 << low;
                return Some((bits, mask | TOP >> (last & 63), 0));
            }
            if !bits.refill(clean) {
                return None;
            }
            let (len, symbol) = codes.symbols.next(bits.buffer)?;
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            bits.take(len.into());
            match (zeros, size) {
                (15, 0) => count += 16,
                (_, 0) => {
                    let run = run(&mut bits, zeros) - 1;
                    return Some((bits, mask, run));
                }
                _ => {
                    let value = number(bits.buffer, 63 - size) as i16;
                    bits.take(size.into());
                    let place = count + zeros;
                    if place > last {
                        return None;
                    }
                    block[place & 63] = value << low;
                    mask |= TOP >> (place & 63);
                    count = place + 1;
                }
            }
            if count > last {
                return (count == last + 1).then_some((bits, mask, 0));
            }
        }
    }

    #[inline(always)]
    fn refine_block<O: Operations>(
        &mut self,
        mut bits: Bits,
        clean: &Clean,
        mask: &mut Mask,
        block: &mut Block,
    ) -> Option<Bits> {
        let Self { codes, band: [first, last], low, .. } = *self;
        // Mask of the coefficients of the band that are not decoded yet.
        let mut left = (!0 >> first) & (!0 << (63 - last));
        // Mask of the coefficients that an earlier scan made nonzero. This scan adds one bit to
        // each of them, in zigzag order.
        let known = *mask & left;
        let mut more = 0;
        let mut found = 0;
        while self.run == 0 && left != 0 {
            if !bits.refill(clean) {
                return None;
            }
            let (len, symbol) = codes.symbols.next(bits.buffer)?;
            let (zeros, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            bits.take(len.into());
            if size == 0 && zeros < 15 {
                self.run = run(&mut bits, zeros as usize);
                break;
            }
            if size > 1 {
                return None;
            }
            let is_positive = bits.buffer >> 63 != 0;
            bits.take(size.into());
            let place = O::pick(left & !known, zeros);
            if place == 0 {
                return None;
            }
            let passed = left & known & !(place - 1);
            (bits, more) = take_more(bits, clean, more, passed.count_ones())?;
            left &= place - 1;
            if size == 1 {
                found |= place;
                let value = 1 << low;
                block[(place.leading_zeros() & 63) as usize] =
                    if is_positive { value } else { -value };
            }
        }
        if self.run > 0 {
            self.run -= 1;
            let passed = left & known;
            if passed != 0 {
                if !bits.refill(clean) {
                    return None;
                }
                (bits, more) = take_more(bits, clean, more, passed.count_ones())?;
            }
        }
        O::add(block, known, more, low);
        *mask |= found;
        Some(bits)
    }
}

/// Reads the number of blocks whose band ends here, including the current block. `size` is the size
/// of this number in bits, without the implicit leading 1.
#[inline(always)]
fn run(bits: &mut Bits, size: usize) -> usize {
    let more = (bits.buffer >> 1) >> (63 - size);
    bits.take(size as u64);
    (1 << size) + more as usize
}

/// Takes `count` bits (at most 63) from `bits` and appends them to `more`. `bits.buffer` must hold
/// at least 39 bits.
#[inline(always)]
fn take_more(mut bits: Bits, clean: &Clean, mut more: u64, mut count: u32) -> Option<(Bits, u64)> {
    const STEP: u32 = 32;
    while count > STEP {
        more = more << STEP | bits.buffer >> (64 - STEP);
        bits.take(STEP.into());
        count -= STEP;
        if !bits.refill(clean) {
            return None;
        }
    }
    more = more << count | (bits.buffer >> 1) >> (63 - count);
    bits.take(count.into());
    Some((bits, more))
}
