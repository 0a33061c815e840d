//! Entropy decoding of blocks: to coefficients, or only to find where the next one begins.

use super::bits::{Bits, Clean};
use super::huffman::{AcTable, Control, DcTable, END, LONG_CODE, PATTERN, Step, UNKNOWN, index};

/// Most blocks that are decoded together.
pub const MOST_BLOCKS: usize = 12;
/// Coefficients of a block.
pub const BLOCK: usize = 64;
/// Most bytes of coded data that blocks decoded together can have.
pub const MOST_BYTES: usize = MOST_BLOCKS * (27 + 63 * 31) / 8 + 16;

/// Blocks that are decoded together.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Coefficients in the order of the file. An entry may be written over the end of a block, into the next.
    pub coefficients: [i16; MOST_BLOCKS * BLOCK + BLOCK],
    /// How many coefficients of each block may not be zero.
    pub lens: [u8; MOST_BLOCKS],
}

impl Blocks {
    pub const EMPTY: Self =
        Self { coefficients: [0; MOST_BLOCKS * BLOCK + BLOCK], lens: [0; MOST_BLOCKS] };

    /// Makes all coefficients zero.
    pub fn clear(&mut self) {
        *self = Self::EMPTY;
    }
}

/// How the blocks of a unit are coded.
#[derive(Debug)]
pub struct Coding<'a> {
    /// Component of each block of a minimum coded unit.
    pub blocks: &'a [u8],
    /// Table of each component.
    pub dc: [usize; 3],
    pub ac: [usize; 3],
    pub dc_tables: &'a [DcTable; 4],
    pub ac_tables: &'a mut [AcTable; 4],
    /// DC coefficient of the last block of each component.
    pub predictions: &'a mut [i32; 3],
}

impl Coding<'_> {
    /// Decodes units into coefficients that are zero, from this block on. `None` at damage.
    #[inline(always)]
    pub fn decode(
        &mut self,
        units: usize,
        (bits, clean): (&mut Bits, &Clean),
        into: &mut Blocks,
        first: usize,
    ) -> Option<()> {
        let Blocks { coefficients, lens } = into;
        let mut reader = *bits;
        let mut predictions = *self.predictions;
        let mut at = first;
        for _ in 0..units {
            for component in self.blocks {
                let component = usize::from(*component);
                let dc = &self.dc_tables[self.dc[component] & 3];
                let ac = &mut self.ac_tables[self.ac[component] & 3];
                let block = coefficients.get_mut(BLOCK * at..)?.first_chunk_mut()?;
                if !reader.refill(clean) {
                    return None;
                }
                let prediction = &mut predictions[component];
                *prediction = prediction.wrapping_add(dc.take(&mut reader)?);
                block[0] = *prediction as i16;
                let len;
                (reader, len) = decode_ac(reader, clean, ac, block)?;
                *lens.get_mut(at)? = len;
                at += 1;
            }
        }
        (*bits, *self.predictions) = (reader, predictions);
        Some(())
    }

    /// Passes units by. `None` at damage.
    #[inline(always)]
    pub fn parse(&mut self, units: usize, (bits, clean): (&mut Bits, &Clean)) -> Option<()> {
        let mut reader = *bits;
        let mut predictions = *self.predictions;
        for _ in 0..units {
            for component in self.blocks {
                let component = usize::from(*component);
                let dc = &self.dc_tables[self.dc[component] & 3];
                let ac = &mut self.ac_tables[self.ac[component] & 3];
                if !reader.refill(clean) {
                    return None;
                }
                let prediction = &mut predictions[component];
                *prediction = prediction.wrapping_add(dc.take(&mut reader)?);
                reader = parse_ac(reader, clean, ac)?;
            }
        }
        (*bits, *self.predictions) = (reader, predictions);
        Some(())
    }
}

/// Decodes the AC coefficients of a block and returns how many coefficients may not be zero.
#[inline(always)]
fn decode_ac(
    mut bits: Bits,
    clean: &Clean,
    table: &mut AcTable,
    block: &mut [i16; 2 * BLOCK],
) -> Option<(Bits, u8)> {
    // Number of coefficients decoded, and END more after the end of the block.
    let mut count = 1;
    loop {
        let control = 'entries: loop {
            if !bits.refill(clean) {
                return None;
            }
            macro_rules! entry {
                () => {
                    let at = index(bits.buffer);
                    let control = table.controls[at];
                    let next: &mut [i16; PATTERN] = block[count & 63..].first_chunk_mut()?;
                    for (next, value) in next.iter_mut().zip(&table.patterns[at]) {
                        *next = (*value).into();
                    }
                    let (place, value) = control.last(bits.buffer);
                    block[(count + place) & 127] = value;
                    bits.take(control.bits());
                    count += control.advance();
                    if count >= BLOCK {
                        break 'entries control;
                    }
                };
            }
            // They take at most 54 bits.
            entry!();
            entry!();
            entry!();
        };
        let advance = control.advance();
        if advance < LONG_CODE {
            return match count {
                BLOCK => Some((bits, BLOCK as u8)),
                END..LONG_CODE => Some((bits, (count - END) as u8)),
                _ => decode_rest(bits, clean, table, (block, count - advance), control),
            };
        }
        count -= advance;
        if advance == UNKNOWN {
            table.make_entry(index(bits.buffer));
            continue;
        }
        if !bits.refill(clean) {
            return None;
        }
        match table.take(&mut bits)? {
            Step::Coefficient(zeros, value) => {
                *block[..BLOCK].get_mut(count + zeros)? = value as i16;
                count += zeros + 1;
            }
            Step::Zeros => count += 16,
            Step::End => return Some((bits, count as u8)),
        }
        if count >= BLOCK {
            return (count == BLOCK).then_some((bits, BLOCK as u8));
        }
    }
}

/// Decodes the rest of a block symbol by symbol, because it ends between those of the last entry, whose control
/// this is.
#[cold]
#[inline(never)]
fn decode_rest(
    mut bits: Bits,
    clean: &Clean,
    table: &AcTable,
    (block, mut count): (&mut [i16; 2 * BLOCK], usize),
    control: Control,
) -> Option<(Bits, u8)> {
    bits.give_back(control.bits() & 63, clean);
    block[count..].fill(0);
    while count < BLOCK {
        if !bits.refill(clean) {
            return None;
        }
        match table.take(&mut bits)? {
            Step::Coefficient(zeros, value) => {
                *block[..BLOCK].get_mut(count + zeros)? = value as i16;
                count += zeros + 1;
            }
            Step::Zeros => count += 16,
            Step::End => return Some((bits, count as u8)),
        }
    }
    (count == BLOCK).then_some((bits, BLOCK as u8))
}

/// Passes by the AC coefficients of a block.
#[inline(always)]
fn parse_ac(mut bits: Bits, clean: &Clean, table: &mut AcTable) -> Option<Bits> {
    let mut count = 1;
    loop {
        let control = 'entries: loop {
            if !bits.refill(clean) {
                return None;
            }
            macro_rules! entry {
                () => {
                    let control = table.parsing[index(bits.buffer)];
                    bits.take(control.into());
                    count += usize::from(control >> 8);
                    if count >= BLOCK {
                        break 'entries control;
                    }
                };
            }
            // They take at most 56 bits.
            entry!();
            entry!();
        };
        let advance = usize::from(control >> 8);
        if advance < LONG_CODE {
            return match count {
                BLOCK | END..LONG_CODE => Some(bits),
                _ => parse_rest(bits, clean, table, count - advance, control),
            };
        }
        count -= advance;
        if advance == UNKNOWN {
            table.make_parsing(index(bits.buffer));
            continue;
        }
        if !bits.refill(clean) {
            return None;
        }
        match table.take(&mut bits)? {
            Step::Coefficient(zeros, _) => count += zeros + 1,
            Step::Zeros => count += 16,
            Step::End => return Some(bits),
        }
        if count >= BLOCK {
            return (count == BLOCK).then_some(bits);
        }
    }
}

/// Passes by the rest of a block symbol by symbol.
#[cold]
#[inline(never)]
fn parse_rest(
    mut bits: Bits,
    clean: &Clean,
    table: &AcTable,
    mut count: usize,
    control: u16,
) -> Option<Bits> {
    bits.give_back(u64::from(control) & 63, clean);
    while count < BLOCK {
        if !bits.refill(clean) {
            return None;
        }
        match table.take(&mut bits)? {
            Step::Coefficient(zeros, _) => count += zeros + 1,
            Step::Zeros => count += 16,
            Step::End => return Some(bits),
        }
    }
    (count == BLOCK).then_some(bits)
}
