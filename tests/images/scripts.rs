//! Progressive JPEGs with random scan scripts (lists of scans). Each scan has random bits of random
//! coefficients. Restart intervals and Huffman tables vary between scans. The coefficients are
//! those of a [`Recipe`].

use crate::jpeg::{Bits, Recipe, segment, size_of_value};

/// Returns a JPEG with a random scan script. The recipe's `scans` and `restart` are ignored.
pub fn make(recipe: &Recipe, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut out = vec![0xff, 0xd8];
    recipe.frame(&mut out, 0xc2);
    for scan in script(recipe.sampling.len(), &mut random) {
        let restart = [0, 0, 1, 2, 7, 40][random.below(6)];
        segment(&mut out, 0xdd, &(restart as u16).to_be_bytes());
        let tables = Tables::new(recipe, &mut random);
        tables.define(&mut out);
        Encoder { recipe, scan: &scan, tables, run: 0, waiting: Vec::new() }
            .encode(&mut out, restart);
    }
    out.extend([0xff, 0xd9]);
    out
}

/// A scan: its components, its band of coefficients, and the bits of these coefficients that it
/// transmits.
#[derive(Clone, Debug)]
pub struct Scan {
    components: Vec<usize>,
    band: [usize; 2],
    refines: bool,
    low: u8,
}

/// Returns random scans in a valid order. After the last one, all coefficients have full precision.
fn script(component_count: usize, random: &mut Random) -> Vec<Scan> {
    let mut low = vec![[None::<u8>; 64]; component_count];
    let mut scans = Vec::new();
    while low.iter().flatten().any(|low| *low != Some(0)) {
        let component = random.below(component_count);
        let place = if low[component][0].is_none() { 0 } else { random.below(64) };
        let before = low[component][place];
        if before == Some(0) {
            continue;
        }
        let next = before.map_or(random.below(4) as u8, |low| low - 1);
        let mut scan = Scan {
            components: vec![component],
            band: [place; 2],
            refines: before.is_some(),
            low: next,
        };
        if place == 0 {
            let fits = |it: &usize| *it == component || low[*it][0] == before;
            scan.components = (0..component_count).filter(fits).collect();
            scan.components.retain(|it| *it == component || random.below(4) > 0);
        } else {
            let [first, last] = &mut scan.band;
            let is_like = |at: usize| low[component].get(at) == Some(&before);
            // Almost always extends the band of coefficients, because one scan per coefficient
            // would give too many scans.
            while *first > 1 && is_like(*first - 1) && random.below(100) > 0 {
                *first -= 1;
            }
            while is_like(*last + 1) && random.below(100) > 0 {
                *last += 1;
            }
        }
        for &component in &scan.components {
            low[component][scan.band[0]..=scan.band[1]].fill(Some(next));
        }
        scans.push(scan);
    }
    scans
}

/// Huffman tables of a scan. DC coefficients have 4-bit codes, AC coefficients 8-bit codes, and
/// end-of-band runs 12-bit codes.
struct Tables {
    most_bits: u32,
    /// Number under which the file defines each table.
    number: u8,
    /// Offset by which the order of the symbols with 8-bit codes is rotated.
    turn: u32,
}

impl Tables {
    fn new(recipe: &Recipe, random: &mut Random) -> Self {
        let most_bits = recipe.most_bits.into();
        Self { most_bits, number: random.below(4) as u8, turn: random.below(60) as u32 }
    }

    fn define(&self, out: &mut Vec<u8>) {
        let mut dc = vec![0; 17];
        dc[0] = self.number;
        dc[4] = 12;
        dc.extend(0..12);
        segment(out, 0xc4, &dc);
        let mut ac = vec![0; 17];
        ac[0] = 0x10 | self.number;
        (ac[8], ac[12]) = (self.count() as u8, 14);
        let mut symbols = vec![0x00, 0xf0];
        let most_bits = self.most_bits as u8;
        symbols.extend((0..16).flat_map(|run| (1..=most_bits).map(move |size| run << 4 | size)));
        symbols.rotate_right(self.turn as usize);
        ac.extend(symbols);
        ac.extend((1..15).map(|size| size << 4));
        segment(out, 0xc4, &ac);
    }

    fn count(&self) -> u32 {
        2 + 16 * self.most_bits
    }

    /// Writes the code of the AC symbol for `zeros` zeros and a coefficient of `size` bits.
    fn put(&self, bits: &mut Bits<'_>, zeros: u32, size: u32) {
        let place = match (zeros, size) {
            (0, 0) => 0,
            (15, 0) => 1,
            (_, 0) => return bits.put((self.count() << 4) + zeros - 1, 12),
            _ => 2 + self.most_bits * zeros + size - 1,
        };
        bits.put((place + self.turn) % self.count(), 8);
    }
}

/// Encoder of one scan, with the procedures of T.81, G.1.2.
struct Encoder<'a> {
    recipe: &'a Recipe,
    scan: &'a Scan,
    tables: Tables,
    /// Number of ended blocks that are not yet written as an end-of-band run.
    run: u32,
    /// Correction bits of the blocks in `run`. They are written after the run's code.
    waiting: Vec<bool>,
}

impl Encoder<'_> {
    fn encode(&mut self, out: &mut Vec<u8>, restart: u32) {
        let Self { recipe, scan, .. } = *self;
        let [first, last] = scan.band;
        let mut head = vec![scan.components.len() as u8];
        let number = self.tables.number;
        scan.components.iter().for_each(|&c| head.extend([recipe.ids[c], number << 4 | number]));
        let high = if scan.refines { scan.low + 1 } else { 0 };
        head.extend([first as u8, last as u8, high << 4 | scan.low]);
        segment(out, 0xda, &head);
        let [columns, rows] = recipe.units(&scan.components);
        let mut bits = Bits::new(out);
        let mut predictions = [0; 4];
        for unit in 0..columns * rows {
            if restart > 0 && unit > 0 && unit % restart == 0 {
                self.end_blocks(&mut bits);
                bits.restart(unit / restart - 1);
                predictions = [0; 4];
            }
            for &component in &scan.components {
                for [x, y] in recipe.blocks(&scan.components, component, unit, columns) {
                    let block = recipe.block(component, x, y);
                    match (first, scan.refines) {
                        (0, true) => bits.put((block[0] >> scan.low & 1) as u32, 1),
                        (0, false) => {
                            let value = block[0] >> scan.low;
                            let difference = value - predictions[component];
                            predictions[component] = value;
                            let size = size_of_value(difference);
                            bits.put(size, 4);
                            bits.put_value(difference, size);
                        }
                        (_, false) => self.first(&block, &mut bits),
                        (_, true) => self.refine(&block, &mut bits),
                    }
                }
            }
        }
        self.end_blocks(&mut bits);
        bits.flush();
    }

    fn first(&mut self, block: &[i32; 64], bits: &mut Bits<'_>) {
        let [first, last] = self.scan.band;
        let mut zeros = 0;
        for &value in &block[first..=last] {
            let value = value / (1 << self.scan.low);
            if value == 0 {
                zeros += 1;
                continue;
            }
            self.end_blocks(bits);
            while zeros > 15 {
                self.tables.put(bits, 15, 0);
                zeros -= 16;
            }
            let size = size_of_value(value);
            self.tables.put(bits, zeros, size);
            bits.put_value(value, size);
            zeros = 0;
        }
        if zeros > 0 {
            self.end_block(bits);
        }
    }

    fn refine(&mut self, block: &[i32; 64], bits: &mut Bits<'_>) {
        let [first, last] = self.scan.band;
        let band = &block[first..=last];
        let magnitude = |value: &i32| value.unsigned_abs() >> self.scan.low;
        let last_new = band.iter().rposition(|value| magnitude(value) == 1);
        let (mut zeros, mut known) = (0, Vec::new());
        for (at, value) in band.iter().enumerate() {
            let magnitude = magnitude(value);
            match magnitude {
                0 => {
                    zeros += 1;
                    continue;
                }
                _ if zeros > 15 && last_new.is_some_and(|last| at <= last) => {
                    self.end_blocks(bits);
                    while zeros > 15 {
                        self.tables.put(bits, 15, 0);
                        known.drain(..).for_each(|bit| bits.put(u32::from(bit), 1));
                        zeros -= 16;
                    }
                }
                _ => {}
            }
            if magnitude > 1 {
                known.push(magnitude & 1 == 1);
                continue;
            }
            self.end_blocks(bits);
            self.tables.put(bits, zeros, 1);
            bits.put(u32::from(*value > 0), 1);
            known.drain(..).for_each(|bit| bits.put(u32::from(bit), 1));
            zeros = 0;
        }
        if zeros > 0 || !known.is_empty() {
            self.waiting.append(&mut known);
            self.end_block(bits);
        }
    }

    /// Adds one block to the end-of-band run. Writes the run when it has its maximum length.
    fn end_block(&mut self, bits: &mut Bits<'_>) {
        self.run += 1;
        if self.run == 0x7fff {
            self.end_blocks(bits);
        }
    }

    /// Writes the end-of-band run and the correction bits of its blocks.
    fn end_blocks(&mut self, bits: &mut Bits<'_>) {
        if self.run > 0 {
            let size = self.run.ilog2();
            self.tables.put(bits, size, 0);
            bits.put(self.run - (1 << size), size);
            self.waiting.drain(..).for_each(|bit| bits.put(u32::from(bit), 1));
            self.run = 0;
        }
    }
}

/// Small pseudo-random number generator (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}
