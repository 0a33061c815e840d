//! Integer encodings of Parquet (`Encodings.md` of parquet-format). Each decoder returns at most
//! the expected number of values. It returns `None` if the bytes are truncated or inconsistent.

use super::thrift::varint;

/// Decodes `count` values of `width` bits in the hybrid of runs and bit-packed groups. Levels and
/// dictionary indices use this encoding.
pub fn hybrid(bytes: &[u8], width: u32, count: usize) -> Option<Vec<u32>> {
    let mut values = Vec::new();
    let mut runs = Runs::new(bytes, width, count)?;
    while runs.left > 0 {
        match runs.next()? {
            Run::Same(value, len) => values.resize(values.len() + len, value),
            Run::Packed(bits, len) => {
                values.extend((0..len).map(|place| bits.get(place) as u32));
            }
        }
    }
    Some(values)
}

/// Decodes the same encoding as [`hybrid`]. Calls `put` with every value in sequence.
pub fn each(bytes: &[u8], width: u32, count: usize, mut put: impl FnMut(u32)) -> Option<()> {
    let mut runs = Runs::new(bytes, width, count)?;
    while runs.left > 0 {
        match runs.next()? {
            Run::Same(value, len) => (0..len).for_each(|_| put(value)),
            Run::Packed(bits, len) => (0..len).for_each(|place| put(bits.get(place) as u32)),
        }
    }
    Some(())
}

/// Decodes at most `count` values of DELTA_BINARY_PACKED. Also returns the number of bytes
/// consumed.
pub fn delta(bytes: &[u8], count: usize) -> Option<(Vec<i64>, usize)> {
    let mut values = Vec::new();
    let (_, taken) = each_delta(bytes, count, |value| values.push(value))?;
    Some((values, taken))
}

/// Decodes the same encoding as [`delta`]. Calls `put` with every value in sequence. Returns the
/// number of values and the number of bytes consumed.
pub fn each_delta(bytes: &[u8], count: usize, mut put: impl FnMut(i64)) -> Option<(usize, usize)> {
    let mut at = 0;
    let number = |at: &mut usize| varint(bytes, at).ok();
    let block = number(&mut at)?;
    let parts = number(&mut at)?;
    let total = number(&mut at)?;
    let first = signed(number(&mut at)?);
    let per_part = block.checked_div(parts)?;
    if total > count as u64 || per_part == 0 || !per_part.is_multiple_of(8) || per_part > 1 << 20 {
        return None;
    }
    let mut left = total;
    if left > 0 {
        put(first);
        left -= 1;
    }
    let mut last = first;
    while left > 0 {
        let least = signed(number(&mut at)?);
        let widths = bytes.get(at..at.checked_add(usize::try_from(parts).ok()?)?)?;
        at += widths.len();
        for &width in widths {
            if left == 0 {
                break;
            }
            if width > 64 {
                return None;
            }
            let size = (per_part / 8) as usize * usize::from(width);
            let bits = Bits { bytes: bytes.get(at..at.checked_add(size)?)?, width: width.into() };
            at += size;
            let taken = per_part.min(left);
            for place in 0..taken as usize {
                last = last.wrapping_add(least).wrapping_add(bits.get(place) as i64);
                put(last);
            }
            left -= taken;
        }
    }
    Some((total as usize, at))
}

/// Values in the hybrid of runs and bit-packed groups.
struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
    at: usize,
    /// Number of values that are not decoded yet.
    left: usize,
}

/// Values that are stored together, with their number.
enum Run<'a> {
    Same(u32, usize),
    Packed(Bits<'a>, usize),
}

impl<'a> Runs<'a> {
    fn new(bytes: &'a [u8], width: u32, count: usize) -> Option<Self> {
        (width <= 32).then_some(Self { bytes, width, at: 0, left: count })
    }

    /// Returns the next run. `left` must not be 0.
    fn next(&mut self) -> Option<Run<'a>> {
        let Self { bytes, width, at, left } = self;
        let (bytes, width) = (*bytes, *width);
        let head = varint(bytes, at).ok()?;
        if head & 1 == 0 {
            let size = width.div_ceil(8) as usize;
            let mut value = [0; 4];
            value[..size].copy_from_slice(bytes.get(*at..*at + size)?);
            *at += size;
            let len = (head >> 1).min(*left as u64) as usize;
            *left -= len;
            return Some(Run::Same(u32::from_le_bytes(value), len));
        }
        let whole = (head >> 1).checked_mul(8)?;
        let taken = whole.min(*left as u64);
        let bits = Bits { bytes: &bytes[*at..], width };
        if (bits.bytes.len() as u64 * 8) < taken * u64::from(width) {
            return None;
        }
        *left -= taken as usize;
        *at = at.checked_add(usize::try_from((head >> 1).checked_mul(width.into())?).ok()?)?;
        if *left > 0 && *at > bytes.len() {
            return None;
        }
        Some(Run::Packed(bits, taken as usize))
    }
}

/// Bit-packed values of `width` bits each, lowest bit first.
struct Bits<'a> {
    bytes: &'a [u8],
    width: u32,
}

impl Bits<'_> {
    fn get(&self, place: usize) -> u64 {
        if self.width == 0 {
            return 0;
        }
        let bit = place as u64 * u64::from(self.width);
        let (start, shift) = ((bit / 8) as usize, bit % 8);
        let mut word = [0; 16];
        let end = self.bytes.len().min(start + 9);
        word[..end - start].copy_from_slice(&self.bytes[start..end]);
        let mask = u64::MAX >> (64 - self.width);
        (u128::from_le_bytes(word) >> shift) as u64 & mask
    }
}

fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are from the examples in `Encodings.md`.
    #[test]
    fn runs_and_groups_are_decoded_in_sequence() {
        let packed = [0b1000_1000, 0b1100_0110, 0b1111_1010];
        let bytes = [&[3][..], &packed, &[10, 6]].concat();
        let expected = [0, 1, 2, 3, 4, 5, 6, 7, 6, 6, 6, 6, 6];
        assert_eq!(hybrid(&bytes, 3, 13).unwrap(), expected);
        assert_eq!(hybrid(&bytes, 3, 9).unwrap(), expected[..9]);
        assert_eq!(hybrid(&bytes, 3, 14), None);
        assert_eq!(hybrid(&bytes[..3], 3, 8), None);
        assert_eq!(hybrid(&[10], 0, 5).unwrap(), [0; 5]);
        assert_eq!(hybrid(&[4, 1, 2, 3, 4], 32, 2).unwrap(), [0x0403_0201; 2]);
    }

    #[test]
    fn oversized_runs_are_cut_at_the_expected_count() {
        let endless = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        for width in 0..=40 {
            for head in [0xfe, 0xff] {
                let bytes = [&[head][..], &endless[1..], &[7; 40]].concat();
                if let Some(values) = hybrid(&bytes, width, 50) {
                    assert!(values.len() == 50 && width <= 32, "{width} {head}");
                }
            }
        }
        assert_eq!(hybrid(&[0; 100], 8, 3), None);
    }

    #[test]
    fn deltas_are_added_up() {
        // The second example of `Encodings.md`: 7, 5, 3, 1, 2, 3, 4, 5. Its deltas are -2, -2, -2,
        // 1, 1, 1, 1, which are stored as 0, 0, 0, 3, 3, 3, 3 above the minimum -2.
        let packed = [0b1100_0000, 0b0011_1111, 0, 0, 0, 0, 0, 0];
        let head = [128, 1, 4, 8, 14, 3, 2, 0, 0, 0];
        let bytes = [&head[..], &packed, b"rest"].concat();
        let (values, taken) = delta(&bytes, 8).unwrap();
        assert_eq!((values, taken), (vec![7, 5, 3, 1, 2, 3, 4, 5], 18));
        assert_eq!(delta(&bytes, 7), None);
        for len in 0..18 {
            assert_eq!(delta(&bytes[..len], 8), None, "{len}");
        }
        // Each case replaces one byte by an invalid value: a width of 65 bits, no miniblocks, a
        // block without values.
        for (place, value) in [(6, 65), (2, 0), (0, 0)] {
            let mut bad = [&bytes[..], &[0; 600]].concat();
            bad[place] = value;
            assert_eq!(delta(&bad, 8), None, "{place}");
        }
    }
}
