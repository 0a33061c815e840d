//! Huffman tables of AC scans. A scan has a table of its own, so that it must be made quickly.

use super::super::huffman::{
    Code, Control, END, ENTRIES, INDEX_BITS, LONG_CODE, MOST_BITS, Symbols,
};

/// Table of an AC scan.
#[derive(Clone, Debug)]
pub struct AcCodes {
    /// A coefficient, or the end of one block, for each index whose code lies in it; else [`LONG_CODE`]. For first scans.
    pub controls: [Control; ENTRIES],
    pub symbols: Symbols,
}

impl AcCodes {
    pub fn new(code: &Code) -> Self {
        Self { controls: [Control::new(0, LONG_CODE); ENTRIES], symbols: Symbols::new(code) }
    }

    /// Makes it a table of another code for a refining scan.
    pub fn renew(&mut self, code: &Code) {
        self.symbols = Symbols::new(code);
    }

    /// Makes it a table of another code for a first scan.
    pub fn renew_first(&mut self, code: &Code) {
        self.renew(code);
        let mut at = 0;
        while at < ENTRIES {
            let entry = self.symbols.by_index[at];
            let (len, symbol) = (u32::from(entry & 255), usize::from(entry >> 8));
            let (zeros, size) = (symbol >> 4, symbol as u32 & 15);
            let control = match (zeros, size) {
                _ if len == 0 || len + size > MOST_BITS => Control::new(0, LONG_CODE),
                (0, 0) => Control::new(len, END),
                // Sixteen zeros, and ends of many blocks, are rare.
                (_, 0) => Control::new(0, LONG_CODE),
                _ => Control::new(len + size, zeros + 1).with_last([len, size], zeros),
            };
            let count = if len == 0 { 1 } else { 1 << (INDEX_BITS - len) };
            self.controls[at..][..count].fill(control);
            at += count;
        }
    }
}
