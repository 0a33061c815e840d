//! Finds texts and bytes of different lengths in the bytes of a page. Each function returns `None`
//! if the bytes are truncated or inconsistent.

use super::super::encoding::each_delta;

/// Number in the index of a page, little-endian.
type Number = [u8; 4];

/// Parses PLAIN: a length of four bytes before each value. Stores the positions of `count` values
/// in the page, and the position that a further value would have. `from` is the offset of `bytes`
/// in the page.
pub fn plain(bytes: &[u8], from: u32, count: usize, positions: &mut [Number]) -> Option<()> {
    let mut at = 0_usize;
    let position = |at: usize| (from + at as u32 + 4).to_le_bytes();
    for place in positions.get_mut(..count)? {
        let len = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        *place = position(at);
        at = at.checked_add(4 + len as usize).filter(|at| *at <= bytes.len())?;
    }
    *positions.get_mut(count)? = position(at);
    Some(())
}

/// Parses DELTA_LENGTH_BYTE_ARRAY: the lengths of all values, then their bytes. Stores positions
/// like [`plain`].
pub fn lengths(bytes: &[u8], from: u32, count: usize, positions: &mut [Number]) -> Option<()> {
    let mut places = positions.get_mut(..=count)?.iter_mut();
    // Positions after the lengths, which are not known yet. A sum that is too large stays so.
    let mut end = 0_u32;
    places.next()?.copy_from_slice(&end.to_le_bytes());
    let add = |len: i64| {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        end = end.saturating_add(len);
        places.next().into_iter().for_each(|place| *place = end.to_le_bytes());
    };
    let (found, taken) = each_delta(bytes, count, add)?;
    if found != count || end as usize > bytes.len() - taken {
        return None;
    }
    for place in positions.get_mut(..=count)? {
        *place = (u32::from_le_bytes(*place) + from + taken as u32).to_le_bytes();
    }
    Some(())
}

/// Size of all values in the encoding DELTA_BYTE_ARRAY, in bytes. At most `count` values are read.
pub fn shared_bytes(bytes: &[u8], count: usize) -> Option<u64> {
    let mut sum = 0_u64;
    let mut add = |len: i64| sum = sum.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
    let (_, taken) = each_delta(bytes, count, &mut add)?;
    each_delta(bytes.get(taken..)?, count, &mut add)?;
    Some(sum)
}

/// Decodes DELTA_BYTE_ARRAY: the number of bytes that each value shares with the value before, the
/// lengths of the other bytes, and these bytes. Stores the values in `texts`, and their ends.
pub fn shared(bytes: &[u8], count: usize, ends: &mut [Number], texts: &mut [u8]) -> Option<()> {
    let ends = ends.get_mut(..count)?;
    // `ends` has the numbers of shared bytes at first.
    let mut places = ends.iter_mut();
    let store = |len: i64| {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        places.next().into_iter().for_each(|place| *place = len.to_le_bytes());
    };
    let (prefixes, taken) = each_delta(bytes, count, store)?;
    let bytes = bytes.get(taken..)?;
    let (suffixes, taken) = each_delta(bytes, count, |_| {})?;
    if prefixes != count || suffixes != count {
        return None;
    }
    let mut suffix = bytes.get(taken..)?;
    let (mut places, mut is_right) = (ends.iter_mut(), true);
    let (mut start, mut end) = (0_usize, 0_usize);
    let mut append = |len: i64| -> Option<()> {
        let place = places.next()?;
        let shared = u32::from_le_bytes(*place) as usize;
        let (new, rest) = suffix.split_at_checked(usize::try_from(len).ok()?)?;
        if shared > end - start || shared + new.len() > texts.len() - end {
            return None;
        }
        texts.copy_within(start..start + shared, end);
        start = end;
        end += shared;
        texts[end..end + new.len()].copy_from_slice(new);
        end += new.len();
        suffix = rest;
        *place = u32::try_from(end).ok()?.to_le_bytes();
        Some(())
    };
    each_delta(bytes, count, |len| is_right = is_right && append(len).is_some())?;
    is_right.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes small numbers as DELTA_BINARY_PACKED, with 8 bits for each delta.
    fn packed(numbers: &[u8]) -> Vec<u8> {
        let mut bytes = vec![128, 1, 4, numbers.len() as u8, 2 * numbers[0]];
        for block in numbers.windows(2).collect::<Vec<_>>().chunks(128) {
            // The least delta is -64.
            bytes.extend([127, 8, 8, 8, 8]);
            let deltas = block.iter().map(|pair| pair[1].wrapping_sub(pair[0]).wrapping_add(64));
            let mut deltas: Vec<u8> = deltas.collect();
            // Only the parts of a block that have values are stored.
            deltas.resize(deltas.len().next_multiple_of(32), 0);
            bytes.extend(deltas);
        }
        bytes
    }

    #[test]
    fn shared_bytes_are_repeated() {
        let texts = ["axis", "axle", "babble", "babyhood", "", "b", "babyhood"];
        let (prefixes, suffixes) =
            ([0, 2, 0, 3, 0, 0, 1], ["axis", "le", "babble", "yhood", "", "b", "abyhood"]);
        let lens = suffixes.map(|it| it.len() as u8);
        let bytes = [packed(&prefixes), packed(&lens), suffixes.concat().into_bytes()].concat();
        let all = texts.concat();
        assert_eq!(shared_bytes(&bytes, 7), Some(all.len() as u64));
        let mut ends = [[0; 4]; 7];
        let mut found = vec![0; all.len()];
        shared(&bytes, 7, &mut ends, &mut found).unwrap();
        assert_eq!(String::from_utf8(found.clone()).unwrap(), all);
        let mut end = 0;
        for (text, place) in texts.iter().zip(ends) {
            end += text.len();
            assert_eq!(u32::from_le_bytes(place) as usize, end);
        }
        for len in 0..bytes.len() {
            assert_eq!(shared(&bytes[..len], 7, &mut ends, &mut found), None, "{len}");
        }
        let short = all.len() - 1;
        assert_eq!(shared(&bytes, 7, &mut ends, &mut found[..short]), None);
        let wrong = [packed(&[1, 2]), packed(&[4, 2]), b"axisle".to_vec()].concat();
        assert_eq!(shared(&wrong, 2, &mut ends, &mut found), None, "the first shares nothing");
    }

    #[test]
    fn positions_of_texts_are_checked() {
        let mut positions = [[0; 4]; 4];
        let plain_bytes = [&[2, 0, 0, 0][..], b"ab", &[0; 4], &[1, 0, 0, 0], b"c"].concat();
        plain(&plain_bytes, 5, 3, &mut positions).unwrap();
        assert_eq!(positions.map(u32::from_le_bytes), [9, 15, 19, 24]);
        let bytes = [packed(&[2, 0, 1]), b"abc".to_vec()].concat();
        lengths(&bytes, 5, 3, &mut positions).unwrap();
        let first = 5 + bytes.len() as u32 - 3;
        assert_eq!(positions.map(u32::from_le_bytes), [0, 2, 2, 3].map(|it| first + it));
        for len in 0..bytes.len() {
            assert_eq!(lengths(&bytes[..len], 0, 3, &mut positions), None, "{len}");
            assert!(
                len >= plain_bytes.len()
                    || plain(&plain_bytes[..len], 0, 3, &mut positions).is_none()
            );
        }
        assert_eq!(lengths(&bytes, 0, 2, &mut positions), None);
    }
}
