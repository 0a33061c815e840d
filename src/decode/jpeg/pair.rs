//! Entropy decoding of two rows at once, because a look-up must wait for the one before it in its row, but not for those of the
//! other.

use super::bits::Bits;
use super::blocks::{BLOCK, Blocks, Coding, Lane, Target, Widening, decode_rest};
use super::huffman::{AcTable, Ahead, END, LONG_CODE, Step, UNKNOWN, index};

/// Where a lane is.
#[derive(Clone, Copy)]
struct Place {
    bits: Bits,
    at: usize,
    /// Number of coefficients decoded, and END more after the end of the block.
    count: usize,
    /// Table of the block, and its next entry.
    table: usize,
    ahead: Ahead,
}

impl Coding<'_> {
    /// Decodes blocks of two lanes, which both have some, until one of them has all. `None` at damage.
    #[inline(always)]
    pub fn decode_pair<W: Widening>(&mut self, [first, second]: &mut [Lane<'_>; 2]) -> Option<()> {
        let mut one = self.resume(first)?;
        let mut two = self.resume(second)?;
        'blocks: while one.at < first.end && two.at < second.end {
            let tables = [one.table, two.table].map(|table| &self.ac_tables[table & 3]);
            let blocks = [block(first.blocks, one.at)?, block(second.blocks, two.at)?];
            let clean = [first.input.clean(), second.input.clean()];
            let (indexes, advances) = 'entries: {
                macro_rules! both {
                    (refill: $refill:literal) => {
                        // First what the next look-ups wait for: a CPU prefers what comes first.
                        if $refill && !(one.bits.refill(clean[0]) && two.bits.refill(clean[1])) {
                            return None;
                        }
                        let indexes = [one.ahead.index, two.ahead.index];
                        let buffers = [one.bits.buffer, two.bits.buffer];
                        one.bits.take(one.ahead.bits);
                        two.bits.take(two.ahead.bits);
                        one.ahead = tables[0].entries.ahead(one.bits.buffer);
                        two.ahead = tables[1].entries.ahead(two.bits.buffer);
                        let [first, second] = indexes;
                        let advances = [
                            store::<W>(one.count, tables[0], first, buffers[0], blocks[0]),
                            store::<W>(two.count, tables[1], second, buffers[1], blocks[1]),
                        ];
                        one.count += advances[0];
                        two.count += advances[1];
                        if one.count | two.count >= BLOCK {
                            break 'entries (indexes, advances);
                        }
                    };
                }
                // They take at most 44 bits of each, so that enough for an index are left.
                both!(refill: true);
                both!(refill: false);
                continue 'blocks;
            };
            if one.count >= BLOCK {
                one = self.turn(one, indexes[0], advances[0], first)?;
            }
            if two.count >= BLOCK {
                two = self.turn(two, indexes[1], advances[1], second)?;
            }
            if advances.contains(&UNKNOWN) {
                // The other lane may have looked up what is known now.
                (one, two) = (self.with_ahead(one), self.with_ahead(two));
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
        let (bits, clean) = lane.input.parts();
        if !bits.refill(clean) {
            return None;
        }
        let mut place = Place { bits: *bits, at, count, table: 0, ahead: Ahead::NONE };
        if count == 0 {
            return self.begin(place, lane);
        }
        let component = usize::from(*self.components.get(at)?);
        place.table = self.ac[component];
        Some(self.with_ahead(place))
    }

    /// Looks up the next entry.
    #[inline(always)]
    fn with_ahead(&self, place: Place) -> Place {
        Place { ahead: self.ac_tables[place.table & 3].entries.ahead(place.bits.buffer), ..place }
    }

    /// Decodes the DC coefficient of a block, if there is another one.
    #[inline(always)]
    fn begin(&mut self, mut place: Place, lane: &mut Lane<'_>) -> Option<Place> {
        place.count = 0;
        if place.at == lane.end {
            return Some(place);
        }
        let component = usize::from(*self.components.get(place.at)?);
        let dc = &self.dc_tables[self.dc[component] & 3];
        let difference = dc.take(&mut place.bits, lane.input.clean())?;
        let place = self.with_ahead(Place { count: 1, table: self.ac[component], ..place });
        let prediction = &mut lane.predictions[component];
        *prediction = prediction.wrapping_add(difference.value());
        block(lane.blocks, place.at)?[0] = *prediction as i16;
        Some(place)
    }

    /// Ends a block and begins the next one, or goes on after an entry that is none.
    #[inline(always)]
    fn turn(
        &mut self,
        mut place: Place,
        index: usize,
        advance: usize,
        lane: &mut Lane<'_>,
    ) -> Option<Place> {
        let len = if advance < LONG_CODE {
            match place.count {
                BLOCK => BLOCK as u8,
                END..LONG_CODE => (place.count - END) as u8,
                _ => {
                    let len;
                    (place, len) = self.rest(place, index, advance, lane)?;
                    len
                }
            }
        } else {
            place.count -= advance;
            let len;
            (place, len) = self.symbol(place, advance, lane)?;
            match len {
                Some(len) => len,
                None => return Some(self.with_ahead(place)),
            }
        };
        *lane.blocks.lens.get_mut(place.at)? = len;
        place.at += 1;
        self.begin(place, lane)
    }

    /// Decodes the rest of a block that ends within the last entry.
    #[cold]
    #[inline(never)]
    fn rest(
        &self,
        mut place: Place,
        index: usize,
        advance: usize,
        lane: &mut Lane<'_>,
    ) -> Option<(Place, u8)> {
        let table = &self.ac_tables[place.table & 3];
        let (block, clean) = (block(lane.blocks, place.at)?, lane.input.clean());
        place.bits.give_back(table.entries.bits(index), clean);
        let (bits, len) = decode_rest(place.bits, clean, table, block, place.count - advance)?;
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
        let block = block(lane.blocks, place.at)?;
        // The entry has no bit that is 0.
        block[place.count & 63] = 0;
        match table.take(&mut place.bits)? {
            Step::Coefficient(zeros, value) => {
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
fn block(blocks: &mut Blocks, at: usize) -> Option<&mut Target> {
    blocks.coefficients.get_mut(BLOCK * at..)?.first_chunk_mut()
}

/// Stores the coefficients of an entry and returns by how many the block advances.
#[inline(always)]
fn store<W: Widening>(
    count: usize,
    table: &AcTable,
    index: usize,
    buffer: u64,
    block: &mut Target,
) -> usize {
    let control = table.entries.control(index);
    let (place, value) = control.last(buffer);
    if let Some(next) = block[count & 63..].first_chunk_mut() {
        W::widen(&table.patterns[index], next);
    }
    block[(count & 63) + place] = value;
    control.advance()
}
