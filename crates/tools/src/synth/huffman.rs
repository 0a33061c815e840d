//! Decodes the Huffman codes of a JPEG, and computes the optimal code for given symbol counts.

use super::segments::Table;

/// Number of bits that index the look-up table of short codes. Longer codes are decoded without the
/// table.
const LOOK_UP_BITS: u32 = 9;

/// Decodes the symbols of one Huffman table.
pub struct SymbolDecoder {
    /// Look-up table. For each prefix of [`LOOK_UP_BITS`] bits, the length and the symbol of the
    /// code with which the prefix starts. 0 if this code is longer than the prefix.
    short: Vec<u16>,
    /// For each code length, the first value after the codes of this length, left-aligned in 16
    /// bits. Longer codes begin at this value.
    ends: [u32; 17],
    /// For each code length, the index in `symbols` of the first code of this length, minus the
    /// value of this code.
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

impl SymbolDecoder {
    pub fn new(table: &Table) -> Result<Self, String> {
        let mut it = Self {
            short: vec![0; 1 << LOOK_UP_BITS],
            ends: [0; 17],
            offsets: [0; 17],
            symbols: table.symbols.clone(),
        };
        let (mut code, mut place) = (0u32, 0usize);
        for (len, &count) in (1u32..).zip(&table.counts) {
            it.offsets[len as usize] = place as i32 - code as i32;
            for _ in 0..count {
                if code >> len != 0 {
                    return Err("a Huffman table has more codes than fit".into());
                }
                if len <= LOOK_UP_BITS {
                    let shift = LOOK_UP_BITS - len;
                    let entry = (len as u16) << 8 | u16::from(it.symbols[place]);
                    let first = (code << shift) as usize;
                    it.short[first..first + (1 << shift)].fill(entry);
                }
                (code, place) = (code + 1, place + 1);
            }
            it.ends[len as usize] = code << (16 - len);
            code <<= 1;
        }
        Ok(it)
    }

    /// Returns the length and the symbol of the code at the start of `bits`, which has 16 bits.
    /// Returns `None` if no code matches.
    pub fn decode(&self, bits: u32) -> Option<(u32, u8)> {
        let entry = self.short[(bits >> (16 - LOOK_UP_BITS)) as usize];
        if entry != 0 {
            return Some((u32::from(entry >> 8), entry as u8));
        }
        let len = (LOOK_UP_BITS as usize + 1..=16).find(|&len| bits < self.ends[len])?;
        let place = (bits >> (16 - len)) as i32 + self.offsets[len];
        Some((len as u32, *self.symbols.get(usize::try_from(place).ok()?)?))
    }
}

/// Returns the optimal Huffman code with at most 16 bits per symbol: the number of codes of each
/// length, and the symbols. The algorithm is that of `jpeg_gen_optimal_table` in libjpeg (T.81,
/// K.2). It adds a reserved symbol, which gets the code of ones only, because JPEG allows no real
/// symbol to have this code.
pub fn optimal(counts: &[u64; 256]) -> ([u8; 16], Vec<u8>) {
    const RESERVED: usize = 256;
    let mut weights: Vec<u64> = counts.iter().copied().chain([1]).collect();
    let mut lens = [0usize; RESERVED + 1];
    // The symbols of each subtree form a linked list. For each symbol, the next symbol in its list.
    let mut next = [None; RESERVED + 1];
    let mut live: Vec<usize> = (0..=RESERVED).filter(|&symbol| weights[symbol] > 0).collect();
    while live.len() > 1 {
        // Takes the symbol with the least weight. Of symbols with equal weights, takes the largest
        // one, as libjpeg does.
        let take_least = |live: &mut Vec<usize>, weights: &[u64]| {
            let least = |&(_, &a): &(usize, &usize)| (weights[a], RESERVED - a);
            let (place, _) = live.iter().enumerate().min_by_key(least)?;
            Some(live.remove(place))
        };
        let pair = (take_least(&mut live, &weights), take_least(&mut live, &weights));
        let (Some(first), Some(second)) = pair else { break };
        weights[first] += weights[second];
        live.push(first);
        let mut end = first;
        loop {
            lens[end] += 1;
            let Some(after) = next[end] else { break };
            end = after;
        }
        next[end] = Some(second);
        let mut link = Some(second);
        while let Some(symbol) = link {
            lens[symbol] += 1;
            link = next[symbol];
        }
    }
    (lengths(&lens), in_order(&lens[..RESERVED]))
}

/// Returns the number of codes of each length from 1 to 16 bits. Codes of more than 16 bits are
/// moved up in the tree, and the code of the reserved symbol is removed (T.81, figure K.3).
fn lengths(lens: &[usize]) -> [u8; 16] {
    let mut bits = vec![0u32; lens.len() + 1];
    lens.iter().filter(|&&len| len > 0).for_each(|&len| bits[len] += 1);
    for len in (17..bits.len()).rev() {
        while bits[len] > 0 {
            let parent = (1..len - 1).rev().find(|&it| bits[it] > 0).unwrap_or(1);
            bits[len] -= 2;
            bits[len - 1] += 1;
            bits[parent + 1] += 2;
            bits[parent] -= 1;
        }
    }
    if let Some(longest) = (1..=16).rev().find(|&len| bits[len] > 0) {
        bits[longest] -= 1;
    }
    // There are at most 256 codes, and at most 255 of them have the same length, so `u8` suffices.
    std::array::from_fn(|at| bits[at + 1] as u8)
}

/// Returns the symbols sorted by code length, and symbols of equal length by value. The lengths are
/// those before the limit of 16 bits was applied.
fn in_order(lens: &[usize]) -> Vec<u8> {
    let mut symbols: Vec<u8> = (0..=255).filter(|&it| lens[usize::from(it)] > 0).collect();
    symbols.sort_by_key(|&it| lens[usize::from(it)]);
    symbols
}

/// Returns the code of each symbol as length and bits. The length is 0 if the symbol has no code.
pub fn codes(table: &Table) -> [(u8, u16); 256] {
    let mut codes = [(0, 0); 256];
    let (mut code, mut symbols) = (0u16, table.symbols.iter());
    for (len, &count) in (1..).zip(&table.counts) {
        for &symbol in symbols.by_ref().take(count.into()) {
            codes[usize::from(symbol)] = (len, code);
            code = code.wrapping_add(1);
        }
        code = code.wrapping_shl(1);
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(u8, u64)]) -> ([u8; 16], Vec<u8>) {
        let mut counts = [0; 256];
        pairs.iter().for_each(|&(symbol, count)| counts[usize::from(symbol)] = count);
        optimal(&counts)
    }

    #[test]
    fn one_symbol_has_a_code_of_one_bit() {
        let (counts, symbols) = of(&[(7, 1000)]);
        assert_eq!((counts[0], counts[1..].iter().sum::<u8>()), (1, 0));
        assert_eq!(symbols, [7]);
    }

    #[test]
    fn frequent_symbols_have_short_codes() {
        let (counts, symbols) = of(&[(1, 5), (2, 100), (3, 20), (0, 5)]);
        // The code of symbol 2 has one bit, and that of symbol 3 has two bits. The symbols 0, 1 and
        // the reserved one get longer codes.
        assert_eq!(symbols[..2], [2, 3]);
        assert_eq!(counts[..5], [1, 1, 1, 1, 0]);
    }

    /// Fibonacci numbers as weights result in the deepest possible tree, which has 45 levels in
    /// this test.
    #[test]
    fn codes_have_at_most_16_bits_and_none_has_ones_only() {
        let mut weights = [0u64; 256];
        let (mut a, mut b) = (1, 1);
        for weight in &mut weights[..45] {
            *weight = a;
            (a, b) = (b, a + b);
        }
        for weights in [weights, [1; 256], std::array::from_fn(|at| 1 << (at % 40))] {
            let (counts, symbols) = optimal(&weights);
            let present = weights.iter().filter(|&&it| it > 0).count();
            assert_eq!(counts.iter().map(|&it| usize::from(it)).sum::<usize>(), present);
            assert_eq!(symbols.len(), present);
            let used: f64 = (1..).zip(&counts).map(|(len, &n)| f64::from(n) / 2f64.powi(len)).sum();
            assert!(used < 1.0, "{used}");
            let table = Table { is_ac: true, number: 0, counts, symbols };
            let decoder = SymbolDecoder::new(&table).unwrap();
            for (symbol, (len, code)) in codes(&table).into_iter().enumerate() {
                let bits = u32::from(code) << (16 - u32::from(len).min(16));
                let expected = (len > 0).then_some((u32::from(len), symbol as u8));
                if len > 0 {
                    assert_eq!(decoder.decode(bits), expected);
                    assert_ne!(u32::from(code), (1 << len) - 1);
                }
            }
            assert_eq!(decoder.decode(0xffff), None);
        }
    }
}
