//! Entropy decoding of blocks, either to coefficients or only to find where the next block begins.

use std::ops::Range;

use super::ac_table::{AcTable, Ahead, END, LONG_CODE, PATTERN, Take, advance_of, bits_of};
use super::bits::{Bits, Clean, Input};
use super::huffman::{AcSymbol, Codes, DcTable};
use crate::decode::row_index::RowStart;

/// Maximum number of blocks that are decoded together.
pub const MOST_BLOCKS: usize = 12;
/// Number of coefficients of a block.
pub const BLOCK: usize = 64;
/// Maximum number of bytes of coded data of blocks that are decoded together.
pub const MOST_BYTES: usize = MOST_BLOCKS * (27 + 63 * 31) / 8 + 16;

/// A block and the memory after it. An array of this length needs no bounds check for a
/// coefficient's position, which is one byte.
type Target = [i16; TARGET];
const TARGET: usize = BLOCK + 256;

/// Blocks that are decoded together.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Coefficients in zigzag order. One entry of the AC table decodes several coefficients, so it
    /// may write beyond the end of its block, into the next block.
    pub coefficients: [i16; (MOST_BLOCKS - 1) * BLOCK + TARGET],
    /// Number of leading coefficients of each block that may be nonzero.
    pub lens: [u8; MOST_BLOCKS],
}

impl Blocks {
    pub const EMPTY: Self =
        Self { coefficients: [0; (MOST_BLOCKS - 1) * BLOCK + TARGET], lens: [0; MOST_BLOCKS] };

    /// Sets the coefficients of the first `blocks` blocks to zero, and also the memory after these
    /// blocks, into which an entry of the AC table may have written.
    pub fn clear(&mut self, blocks: usize) {
        self.coefficients[..(blocks - 1) * BLOCK + TARGET].fill(0);
        self.lens = [0; MOST_BLOCKS];
    }
}

/// Widening of 8-bit coefficients to 16 bits, implemented for each instruction set.
pub trait Widening {
    /// Stores the coefficients of a pattern as 16-bit numbers.
    fn widen(pattern: &[i8; PATTERN], to: &mut [i16; PATTERN]);
}

/// Widens one coefficient at a time. Compilers do not turn this loop into vector instructions.
pub struct OneByOne;

impl Widening for OneByOne {
    #[inline(always)]
    fn widen(pattern: &[i8; PATTERN], to: &mut [i16; PATTERN]) {
        for (to, value) in to.iter_mut().zip(pattern) {
            *to = (*value).into();
        }
    }
}

/// Coding of the blocks of several MCUs (minimum coded units).
#[derive(Debug)]
pub struct Coding<'a> {
    /// One entry per block, for all MCUs that fit into [`Blocks`] at the same time.
    pub blocks: [BlockCoding<'a>; MOST_BLOCKS],
    /// Number of blocks per MCU.
    pub unit: usize,
}

/// Component and Huffman tables of a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockCoding<'a> {
    pub component: usize,
    pub dc: &'a DcTable,
    pub ac: &'a AcTable,
}

/// Reader of MCUs (minimum coded units), with the blocks that are decoded together.
#[derive(Debug)]
pub struct Reader<'a> {
    pub input: Input<'a>,
    /// DC coefficient of the most recently decoded block of each component.
    pub predictions: [i32; 3],
    pub blocks: &'a mut Blocks,
}

impl Reader<'_> {
    /// Returns the position at which the next row begins.
    pub fn start(&self) -> RowStart {
        RowStart { position: self.input.position(), predictions: self.predictions }
    }

    /// Whether the data read so far is plausible. Returns false if the data ended too early or a DC
    /// coefficient is out of range. libjpeg then decodes the image.
    pub fn is_sane(&self) -> bool {
        let is_small = |prediction: &i32| prediction.unsigned_abs() < 1 << 30;
        self.predictions.iter().all(is_small) && self.input.is_inside()
    }
}

impl Coding<'_> {
    /// Decodes blocks into zeroed coefficients. Returns `None` for corrupt data.
    #[inline(always)]
    pub fn decode<W: Widening>(&self, blocks: Range<usize>, reader: &mut Reader<'_>) -> Option<()> {
        let Blocks { coefficients, lens } = &mut *reader.blocks;
        let (held, clean) = reader.input.parts();
        let mut bits = *held;
        if !bits.refill(clean) {
            return None;
        }
        let mut predictions = reader.predictions;
        for at in blocks {
            let BlockCoding { component, dc, ac } = *self.blocks.get(at)?;
            let block = coefficients.get_mut(BLOCK * at..)?.first_chunk_mut()?;
            let difference = dc.take(&mut bits, clean)?;
            let ahead = ac.entries.ahead(bits.buffer);
            let prediction = predictions.get_mut(component)?;
            *prediction = prediction.wrapping_add(difference.value());
            block[0] = *prediction as i16;
            (bits, *lens.get_mut(at)?) = decode_ac::<W>(bits, clean, ac, block, ahead)?;
        }
        (*held, reader.predictions) = (bits, predictions);
        Some(())
    }

    /// Skips MCUs without storing coefficients. Returns `None` for corrupt data.
    #[inline(always)]
    pub fn parse(&self, units: usize, reader: &mut Reader<'_>) -> Option<()> {
        let (held, clean) = reader.input.parts();
        let mut bits = *held;
        if !bits.refill(clean) {
            return None;
        }
        let mut predictions = reader.predictions;
        for BlockCoding { component, dc, ac } in self.blocks.get(..units * self.unit)? {
            let difference = dc.take(&mut bits, clean)?;
            let next = ac.entries.next(bits.buffer);
            let prediction = predictions.get_mut(*component)?;
            *prediction = prediction.wrapping_add(difference.value());
            bits = parse_ac(bits, clean, ac, next)?;
        }
        (*held, reader.predictions) = (bits, predictions);
        Some(())
    }
}

/// Decodes the AC coefficients of a block. Returns the number of leading coefficients that may be
/// nonzero.
#[inline(always)]
fn decode_ac<W: Widening>(
    mut bits: Bits,
    clean: &Clean,
    table: &AcTable,
    block: &mut Target,
    mut ahead: Ahead,
) -> Option<(Bits, u8)> {
    // Number of coefficients decoded so far, with DC and zeros. The end of the block adds `END`.
    let mut count = 1;
    loop {
        let take = 'entries: loop {
            macro_rules! entry {
                (refill: $refill:literal) => {
                    if $refill && !bits.refill(clean) {
                        return None;
                    }
                    let (take, action, buffer) = table.entries.take(&mut ahead, &mut bits);
                    let (place, value) = action.last.of(buffer);
                    W::widen(&action.pattern(), block[count & 63..].first_chunk_mut()?);
                    block[(count & 63) + place] = value;
                    count += advance_of(take);
                    if count >= BLOCK {
                        break 'entries take;
                    }
                };
            }
            // The buffer has 56 bits. Two entries take at most 46 of them, so 10 bits remain, which
            // are enough for the next index.
            entry!(refill: true);
            entry!(refill: false);
        };
        let advance = advance_of(take);
        if advance < LONG_CODE {
            return match count {
                BLOCK => Some((bits, BLOCK as u8)),
                END..LONG_CODE => Some((bits, (count - END) as u8)),
                _ => {
                    bits.give_back(bits_of(take), clean);
                    decode_rest(bits, clean, &table.codes, block, count - advance)
                }
            };
        }
        count -= advance;
        if !bits.refill(clean) {
            return None;
        }
        // The entry that marks a long code may have written a nonzero number here.
        block[count & 63] = 0;
        match table.codes.take(&mut bits)? {
            AcSymbol::Coefficient(zeros, value) => {
                *block[..BLOCK].get_mut(count + zeros)? = value as i16;
                count += zeros + 1;
            }
            AcSymbol::Zeros => count += 16,
            AcSymbol::End => return Some((bits, count as u8)),
        }
        if count >= BLOCK {
            return (count == BLOCK).then_some((bits, BLOCK as u8));
        }
        ahead = table.entries.ahead(bits.buffer);
    }
}

/// Decodes the rest of a block symbol by symbol. The caller needs this function if the block ends
/// in the middle of an entry of the AC table. The caller has put the bits of that entry back.
#[cold]
#[inline(never)]
fn decode_rest(
    mut bits: Bits,
    clean: &Clean,
    codes: &Codes,
    block: &mut Target,
    mut count: usize,
) -> Option<(Bits, u8)> {
    block[count..2 * BLOCK].fill(0);
    while count < BLOCK {
        if !bits.refill(clean) {
            return None;
        }
        match codes.take(&mut bits)? {
            AcSymbol::Coefficient(zeros, value) => {
                *block[..BLOCK].get_mut(count + zeros)? = value as i16;
                count += zeros + 1;
            }
            AcSymbol::Zeros => count += 16,
            AcSymbol::End => return Some((bits, count as u8)),
        }
    }
    (count == BLOCK).then_some((bits, BLOCK as u8))
}

/// Skips the AC coefficients of a block without storing them.
#[inline(always)]
fn parse_ac(mut bits: Bits, clean: &Clean, table: &AcTable, mut next: Take) -> Option<Bits> {
    let mut count = 1;
    loop {
        let take = 'entries: loop {
            macro_rules! entry {
                (refill: $refill:literal) => {
                    if $refill && !bits.refill(clean) {
                        return None;
                    }
                    let take = next;
                    bits.take(take.into());
                    next = table.entries.next(bits.buffer);
                    count += advance_of(take);
                    if count >= BLOCK {
                        break 'entries take;
                    }
                };
            }
            // The buffer has 56 bits. Two entries take at most 46 of them, so 10 bits remain, which
            // are enough for the next index.
            entry!(refill: true);
            entry!(refill: false);
        };
        let advance = advance_of(take);
        if advance < LONG_CODE {
            return match count {
                BLOCK | END..LONG_CODE => Some(bits),
                _ => parse_rest(bits, clean, &table.codes, count - advance, take),
            };
        }
        count -= advance;
        if !bits.refill(clean) {
            return None;
        }
        match table.codes.take(&mut bits)? {
            AcSymbol::Coefficient(zeros, _) => count += zeros + 1,
            AcSymbol::Zeros => count += 16,
            AcSymbol::End => return Some(bits),
        }
        if count >= BLOCK {
            return (count == BLOCK).then_some(bits);
        }
        next = table.entries.next(bits.buffer);
    }
}

/// Skips the rest of a block symbol by symbol. The block ends in the middle of the entry `take`,
/// whose bits are read again.
#[cold]
#[inline(never)]
fn parse_rest(
    mut bits: Bits,
    clean: &Clean,
    codes: &Codes,
    mut count: usize,
    take: Take,
) -> Option<Bits> {
    bits.give_back(bits_of(take), clean);
    while count < BLOCK {
        if !bits.refill(clean) {
            return None;
        }
        match codes.take(&mut bits)? {
            AcSymbol::Coefficient(zeros, _) => count += zeros + 1,
            AcSymbol::Zeros => count += 16,
            AcSymbol::End => return Some(bits),
        }
    }
    (count == BLOCK).then_some(bits)
}
