//! Tests of tables for codes that no encoder would choose. The result is compared with
//! symbol-by-symbol decoding. The tests call no C code.

use super::super::ac_table::AcTable;
use super::super::bits::{Clean, HELD, Input, PADDING};
use super::super::blocks::{BLOCK, BlockCoding, Blocks, Coding, MOST_BLOCKS, Reader};
use super::super::huffman::{AcSymbol, Code, DcTable};
use super::*;

/// Linear congruential generator (Knuth, MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns a random code. `shape` controls how soon codes become long.
fn code(random: &mut Random, shape: u64) -> Code {
    let mut counts = [0u8; 16];
    let mut symbols = Vec::new();
    // Number of unused codes of the next length. The code that consists only of ones must stay
    // unused.
    let mut free = 1u64;
    for count in &mut counts {
        free = (2 * free).min(1 << 10);
        let most = (free - 1).min(250 - symbols.len() as u64);
        let chosen = random.below(shape).min(random.below(most + 1));
        *count = chosen as u8;
        free -= chosen;
        for _ in 0..chosen {
            let symbol = match random.below(8) {
                0 => 0x00,
                1 => 0xf0,
                // Small values after few zeros have short symbols, so several of them fit into an
                // index.
                2..6 => (random.below(3) << 4 | (1 + random.below(3))) as u8,
                _ => (random.below(16) << 4 | random.below(16)) as u8,
            };
            symbols.push(symbol);
        }
    }
    let content = [&counts[..], &symbols].concat();
    let (code, rest) = Code::read(&content).expect("it is a prefix code");
    assert!(rest.is_empty());
    code
}

/// Decodes the AC coefficients of a block symbol by symbol.
fn one_by_one(table: &AcTable, input: &mut Input<'_>) -> Option<[i16; BLOCK]> {
    let mut block = [0; BLOCK];
    let mut count = 1;
    let (bits, clean) = input.parts();
    while count < BLOCK {
        bits.refill(clean).then_some(())?;
        match table.codes.take(bits)? {
            AcSymbol::Coefficient(zeros, value) => {
                *block.get_mut(count + zeros)? = value as i16;
                count += zeros + 1;
            }
            AcSymbol::Zeros => count += 16,
            AcSymbol::End => return Some(block),
        }
    }
    (count == BLOCK).then_some(block)
}

#[test]
fn blocks_of_any_code_are_those_of_its_symbols_one_by_one() {
    let mut random = Random(1);
    // The DC code has one symbol of one bit, for differences of zero.
    let mut counts = [0; 17];
    counts[0] = 1;
    let dc = DcTable::new(&Code::read(&counts).expect("it is a prefix code").0);
    let (codes, scans) = if cfg!(miri) { (4, 4) } else { (400, 60) };
    let mut intact = 0;
    for number in 0..codes {
        let code = code(&mut random, [2, 3, 5, 9, 40][number % 5]);
        let mut table = AcTable::new(&code);
        for is_simple in [true, false] {
            table.renew(&code, is_simple);
            for _ in 0..scans {
                let mut scan = [(); 300].map(|()| random.below(255) as u8);
                scan[0] &= 0x7f;
                let mut clean: Box<Clean> = vec![0; HELD + PADDING].try_into().expect("the length");
                let mut input = Input::new(&scan, &mut clean);
                input.bits.take(1);
                let expected =
                    one_by_one(&table, &mut input).map(|block| (block, input.position()));
                intact += usize::from(expected.is_some());
                let coding = BlockCoding { component: 0, dc: &dc, ac: &table };
                let coding = Coding { blocks: [coding; MOST_BLOCKS], unit: 1 };
                for (name, kernels) in Kernels::all() {
                    let mut clean = clean.clone();
                    let mut blocks = Box::new(Blocks::EMPTY);
                    let input = Input::new(&scan, &mut clean);
                    let mut reader = Reader { input, predictions: [0; 3], blocks: &mut blocks };
                    let decoded = kernels.decode(&coding, 0..1, &mut reader);
                    let position = reader.input.position();
                    let block = *reader.blocks.coefficients.first_chunk().expect("as above");
                    let found = decoded.map(|()| (block, position));
                    assert_eq!(found, expected, "{name} {code:?} {scan:?}");
                    let input = Input::new(&scan, &mut clean);
                    let mut reader = Reader { input, predictions: [0; 3], blocks: &mut blocks };
                    let parsed = kernels.parse(&coding, 1, &mut reader);
                    let found = parsed.map(|()| reader.input.position());
                    assert_eq!(found, expected.map(|(_, position)| position), "{name} {code:?}");
                }
            }
        }
    }
    assert!(
        intact > codes,
        "only {intact} blocks are intact, but the test needs more than {codes}"
    );
}
