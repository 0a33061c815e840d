//! Entropy decoding of two rows at once, because a look-up must wait for the one before it in its row, but not for those of the
//! other.

use super::bits::Bits;
use super::blocks::{BLOCK, Blocks, Coding, Lane, Widening, decode_rest};
use super::huffman::{AcTable, Control, END, LONG_CODE, Step, UNKNOWN, index};

/// Where a lane is.
#[derive(Clone, Copy)]
struct Place {
    bits: Bits,
    at: usize,
    /// Number of coefficients decoded, and END more after the end of the block.
    count: usize,
    /// Table of the block.
    table: usize,
}

impl Coding<'_> {
    /// Decodes blocks of two lanes, which both have some, until one of them has all. `None` at damage.
    #[inline(always)]
    pub fn decode_pair<W: Widening>(&mut self, [first, second]: &mut [Lane<'_>; 2]) -> Option<()> {
        let mut one = self.resume(first)?;
        let mut two = self.resume(second)?;
        'blocks: while one.at < first.end && two.at < second.end {
            let tables = [one.table, two.table].map(|table| &self.ac_tables[table & 3]);
            let block_one = block(first.blocks, one.at)?;
            let block_two = block(second.blocks, two.at)?;
            let clean = [first.input.clean(), second.input.clean()];
            if !(one.bits.refill(clean[0]) && two.bits.refill(clean[1])) {
                return None;
            }
            let controls = 'entries: {
                macro_rules! both {
                    () => {
                        let controls = [
                            entry::<W>(&mut one, tables[0], block_one),
                            entry::<W>(&mut two, tables[1], block_two),
                        ];
                        if one.count | two.count >= BLOCK {
                            break 'entries controls;
                        }
                    };
                }
                // They take at most 54 bits of each.
                both!();
                both!();
                both!();
                continue 'blocks;
            };
            if one.count >= BLOCK {
                one = self.turn(one, controls[0], first)?;
            }
            if two.count >= BLOCK {
                two = self.turn(two, controls[1], second)?;
            }
        }
        for (lane, place) in [(first, one), (second, two)] {
            (lane.input.bits, lane.at, lane.count) = (place.bits, place.at, place.count);
        }
        Some(())
    }

    /// Goes on in a block, or begins the next.
    #[inline(always)]
    fn resume(&mut self, lane: &mut Lane<'_>) -> Option<Place> {
        let Lane { at, count, .. } = *lane;
        let place = Place { bits: lane.input.bits, at, count, table: 0 };
        if count == 0 {
            return self.begin(place, lane);
        }
        let component = usize::from(*self.components.get(at)?);
        Some(Place { table: self.ac[component], ..place })
    }

    /// Decodes the DC coefficient of a block, if there is another one.
    #[inline(always)]
    fn begin(&mut self, mut place: Place, lane: &mut Lane<'_>) -> Option<Place> {
        place.count = 0;
        if place.at == lane.end {
            return Some(place);
        }
        let component = usize::from(*self.components.get(place.at)?);
        if !place.bits.refill(lane.input.clean()) {
            return None;
        }
        let prediction = &mut lane.predictions[component];
        let difference = self.dc_tables[self.dc[component] & 3].take(&mut place.bits)?;
        *prediction = prediction.wrapping_add(difference);
        block(lane.blocks, place.at)?[0] = *prediction as i16;
        Some(Place { count: 1, table: self.ac[component], ..place })
    }

    /// Ends a block and begins the next one, or goes on after an entry that is none. `control` is that of the last entry.
    #[inline(always)]
    fn turn(&mut self, mut place: Place, control: Control, lane: &mut Lane<'_>) -> Option<Place> {
        let advance = control.advance();
        let len = if advance < LONG_CODE {
            match place.count {
                BLOCK => BLOCK as u8,
                END..LONG_CODE => (place.count - END) as u8,
                _ => {
                    let len;
                    (place, len) = self.rest(place, control, lane)?;
                    len
                }
            }
        } else {
            place.count -= advance;
            let len;
            (place, len) = self.symbol(place, advance, lane)?;
            match len {
                Some(len) => len,
                None => return Some(place),
            }
        };
        *lane.blocks.lens.get_mut(place.at)? = len;
        place.at += 1;
        self.begin(place, lane)
    }

    /// Decodes the rest of a block that ends within the last entry.
    #[cold]
    #[inline(never)]
    fn rest(&self, place: Place, control: Control, lane: &mut Lane<'_>) -> Option<(Place, u8)> {
        let table = &self.ac_tables[place.table & 3];
        let count = place.count - control.advance();
        let (block, clean) = (block(lane.blocks, place.at)?, lane.input.clean());
        let (bits, len) = decode_rest(place.bits, clean, table, (block, count), control)?;
        Some((Place { bits, ..place }, len))
    }

    /// Decodes a symbol that no entry has, or makes its entry. Returns the length of the block if that is its end.
    #[cold]
    #[inline(never)]
    fn symbol(
        &mut self,
        mut place: Place,
        advance: usize,
        lane: &mut Lane<'_>,
    ) -> Option<(Place, Option<u8>)> {
        let table = &mut self.ac_tables[place.table & 3];
        if advance == UNKNOWN {
            table.make_entry(index(place.bits.buffer));
            return Some((place, None));
        }
        if !place.bits.refill(lane.input.clean()) {
            return None;
        }
        match table.take(&mut place.bits)? {
            Step::Coefficient(zeros, value) => {
                let block = block(lane.blocks, place.at)?;
                *block[..BLOCK].get_mut(place.count + zeros)? = value as i16;
                place.count += zeros + 1;
            }
            Step::Zeros => place.count += 16,
            Step::End => return Some((place, Some(place.count as u8))),
        }
        match place.count {
            ..BLOCK => Some((place, None)),
            BLOCK => Some((place, Some(BLOCK as u8))),
            _ => None,
        }
    }
}

/// A block, and the one behind it, into which entries may be written.
#[inline(always)]
fn block(blocks: &mut Blocks, at: usize) -> Option<&mut [i16; 2 * BLOCK]> {
    blocks.coefficients.get_mut(BLOCK * at..)?.first_chunk_mut()
}

/// Decodes the coefficients of an entry.
#[inline(always)]
fn entry<W: Widening>(place: &mut Place, table: &AcTable, block: &mut [i16; 2 * BLOCK]) -> Control {
    let at = index(place.bits.buffer);
    let control = table.controls[at];
    if let Some(next) = block[place.count & 63..].first_chunk_mut() {
        W::widen(&table.patterns[at], next);
    }
    let (last, value) = control.last(place.bits.buffer);
    block[(place.count + last) & 127] = value;
    place.bits.take(control.bits());
    place.count += control.advance();
    control
}
