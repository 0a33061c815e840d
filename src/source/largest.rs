//! Selects the largest samples from a table of sizes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Returns up to `most` samples with the most pixels, largest first, as pairs of index and pixel
/// count. Among equal sizes, lower indices are preferred. Samples with 0 pixels have an unknown
/// size and are skipped.
pub fn largest(samples: impl Iterator<Item = (u64, u64)>, most: usize) -> Vec<(u64, u64)> {
    let mut kept = BinaryHeap::with_capacity(most + 1);
    for (index, pixels) in samples {
        let entry = Reverse((pixels, Reverse(index)));
        // Most samples are smaller than the smallest kept sample, so one comparison rejects them.
        let smaller = kept.len() == most && kept.peek().is_none_or(|smallest| *smallest < entry);
        if pixels > 0 && !smaller {
            kept.push(entry);
            if kept.len() > most {
                kept.pop();
            }
        }
    }
    // The heap stores `Reverse` values, so ascending order of its entries is descending order of
    // size.
    let sorted = kept.into_sorted_vec();
    sorted.into_iter().map(|Reverse((pixels, Reverse(index)))| (index, pixels)).collect()
}

/// Compresses a pixel count below 2^32 to 16 bits: its highest 11 bits and their shift. The order
/// is preserved.
#[cfg_attr(not(feature = "all-sources"), allow(dead_code, reason = "only some sources need it"))]
pub fn in_16_bits(pixels: u64) -> u16 {
    let bits = u64::BITS - pixels.leading_zeros();
    let shift = bits.saturating_sub(MANTISSA);
    ((shift as u16) << MANTISSA) | (pixels >> shift) as u16
}

/// Decompresses the result of [`in_16_bits`]. The value is at most 0.1 % below the original.
#[cfg_attr(not(feature = "all-sources"), allow(dead_code, reason = "only some sources need it"))]
pub fn from_16_bits(short: u16) -> u64 {
    u64::from(short & ((1 << MANTISSA) - 1)) << (short >> MANTISSA)
}

#[cfg_attr(not(feature = "all-sources"), allow(dead_code, reason = "only some sources need it"))]
const MANTISSA: u32 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_ties_go_to_the_lower_index() {
        let pixels = [5, 0, 9, 5, 7, 9, 1];
        let samples = || (0..).zip(pixels);
        assert_eq!(largest(samples(), 3), [(2, 9), (5, 9), (4, 7)]);
        assert_eq!(largest(samples(), 5), [(2, 9), (5, 9), (4, 7), (0, 5), (3, 5)]);
        assert_eq!(largest(samples(), 4), [(2, 9), (5, 9), (4, 7), (0, 5)]);
        assert_eq!(largest(samples(), 50).len(), 6, "0 pixels means unknown");
        assert_eq!(largest(samples(), 0), []);
    }

    #[test]
    fn sixteen_bits_preserve_order_within_a_thousandth() {
        let mut last = 0;
        let sides = (0..=65535u64).step_by(7).chain([65535]);
        for pixels in sides.map(|side| side * side) {
            let short = in_16_bits(pixels);
            assert!(short >= last, "{pixels}");
            last = short;
            let back = from_16_bits(short);
            assert!(back <= pixels && pixels - back <= pixels / 1000, "{pixels} {back}");
        }
        assert_eq!([0, 1, 2047].map(|it| from_16_bits(in_16_bits(it))), [0, 1, 2047]);
    }
}
