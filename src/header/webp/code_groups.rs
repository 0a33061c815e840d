//! Memory for the prefix codes of a lossless WebP, computed from the part of its stream before the pixels.
//!
//! A lossless image may have up to 65,536 groups of prefix codes, and a small image (the entropy image) says which
//! block of pixels uses which group. libwebp allocates the tables of all groups, 12 to 20 KB each, before it reads the
//! first, so a file of 300 KB can request a gigabyte. This module parses the stream up to that point without storing
//! pixels, because which bits follow never depends on the values of pixels.
//!
//! Source: the WebP lossless bitstream specification (RFC 9649, section 3), and `dec/vp8l_dec.c` of libwebp 1.5 for what it
//! allocates and refuses.

use super::{CHUNK_HEAD, le24, le32};

/// Bits of the lossless header: a signature byte, two sides of 14 bits, alpha, version.
const HEADER_BITS: u64 = 40;

/// Symbols of the five codes of a group: green with 24 prefixes of lengths, red, blue, alpha, and prefixes of distances.
const ALPHABETS: [usize; 5] = [256 + LENGTHS, 256, 256, 256, 40];
const LENGTHS: usize = 24;
/// Maximum number of bits that address the color cache.
const MAX_CACHE_BITS: u32 = 11;
/// Symbols of the largest alphabet.
const MAX_SYMBOLS: usize = ALPHABETS[0] + (1 << MAX_CACHE_BITS);
/// Bits of the longest code.
const MAX_CODE_BITS: usize = 15;

/// Table entries of a group in libwebp, by the bits of the color cache (`kTableSize`), and bytes of an entry.
const TABLE_ENTRIES: [u64; 12] =
    [2954, 2956, 2958, 2962, 2970, 2986, 3018, 3082, 3212, 3468, 3980, 5004];
const ENTRY_BYTES: u64 = 4;
/// Bytes of libwebp's `HTreeGroup`: five pointers, four numbers, 64 packed entries of 8 bytes.
const GROUP_BYTES: u64 = 5 * 8 + 4 * 4 + 64 * 8;
/// Number of groups up to which libwebp allocates for the largest index. Beyond, it counts the groups in use with a
/// map of four bytes per index.
const COUNTED_FROM: u64 = 1000;
const MAP_BYTES: u64 = 4 << 16;

/// Size of the tables that libwebp allocates for a frame with these chunks, in bytes. `None` if the bytes end or are
/// invalid before that is known; libwebp then fails before it allocates them.
pub fn bytes(chunks: &[u8]) -> Option<u64> {
    let (kind, data, rest) = chunk(chunks)?;
    match kind {
        b"VP8 " => Some(0),
        b"VP8L" => {
            // libwebp reads beyond the chunk's end, if there is more data.
            let data = &chunks[CHUNK_HEAD..];
            let sides = le32(data, 1)?;
            let (width, height) = ((sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1);
            let mut stream = Stream { bytes: data, at: HEADER_BITS };
            stream.table_bytes(width, height)
        }
        b"ALPH" => {
            // The lowest two bits of the first byte say how alpha is compressed; its sides are those of the image.
            let (&head, data) = data.split_first()?;
            if head & 3 != 1 {
                return Some(0);
            }
            let (_, lossy, _) = chunk(rest)?;
            let side = |at: usize| Some(le24([*lossy.get(at)?, *lossy.get(at + 1)?, 0]) & 0x3FFF);
            Stream { bytes: data, at: 0 }.table_bytes(side(6)?, side(8)?)
        }
        _ => None,
    }
}

/// First chunk, as far as it is present: its kind, its data, and what follows it.
fn chunk(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (kind, length) = (bytes.first_chunk()?, le32(bytes, 4)? as usize);
    let data = &bytes[CHUNK_HEAD..];
    let (data, rest) = data.split_at(length.min(data.len()));
    // Chunks are padded to an even length.
    Some((kind, data, rest.get(length % 2..).unwrap_or_default()))
}

/// Bit reader, least significant bit first.
struct Stream<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl Stream<'_> {
    /// Reads the part of an image before its pixels. Returns the size of its code tables in bytes.
    fn table_bytes(&mut self, width: u32, height: u32) -> Option<u64> {
        let mut width = width;
        let mut seen = [false; 4];
        while self.bits(1)? == 1 {
            let kind = self.bits(2)? as usize;
            if std::mem::replace(&mut seen[kind], true) {
                return None;
            }
            match kind {
                // Prediction and colors: an image with one pixel per block.
                0 | 1 => {
                    let bits = self.bits(3)? + 2;
                    self.skip_image(blocks(width, bits), blocks(height, bits), |_| ())?;
                }
                // Green is subtracted: no parameters.
                2 => {}
                // A palette, whose indices are packed into pixels if there are few.
                _ => {
                    let colors = self.bits(8)? + 1;
                    self.skip_image(colors, 1, |_| ())?;
                    width = blocks(width, [3, 2, 1, 0][bucket(colors)]);
                }
            }
        }
        let cache_bits = self.cache_bits()?;
        let mut groups = 1;
        if self.bits(1)? == 1 {
            let bits = self.bits(3)? + 2;
            let mut used = vec![0u64; (1 << 16) / 64];
            let mut largest = 0;
            self.skip_image(blocks(width, bits), blocks(height, bits), |group| {
                used[usize::from(group) / 64] |= 1 << (group % 64);
                largest = largest.max(group);
            })?;
            groups = u64::from(largest) + 1;
            if groups > COUNTED_FROM {
                groups = used.iter().map(|it| u64::from(it.count_ones())).sum();
            }
        }
        let map = if groups > COUNTED_FROM { MAP_BYTES } else { 0 };
        let entries = TABLE_ENTRIES[cache_bits as usize];
        Some(groups * (entries * ENTRY_BYTES + GROUP_BYTES) + map)
    }

    /// Reads an image that has one group of codes, and calls `group` with red and green of every pixel that is not a
    /// copy.
    fn skip_image(&mut self, width: u32, height: u32, mut group: impl FnMut(u16)) -> Option<()> {
        let cache_bits = self.cache_bits()?;
        let mut codes: [Code; 5] = Default::default();
        for (code, symbols) in codes.iter_mut().zip(ALPHABETS) {
            let cached = symbols == ALPHABETS[0] && cache_bits > 0;
            self.read_code(code, symbols + if cached { 1 << cache_bits } else { 0 })?;
        }
        let [green, red, blue, alpha, distance] = &codes;
        let mut left = u64::from(width) * u64::from(height);
        while left > 0 {
            let symbol = self.symbol(green)?;
            let pixels = if symbol < 256 {
                let red = self.symbol(red)?;
                group(red << 8 | symbol);
                self.symbol(blue)?;
                self.symbol(alpha)?;
                1
            } else if usize::from(symbol) < 256 + LENGTHS {
                let length = self.prefixed(symbol - 256)?;
                let prefix = self.symbol(distance)?;
                self.prefixed(prefix)?;
                length
            } else {
                // A color of the cache: one seen before, or zero.
                group(0);
                1
            };
            left = left.checked_sub(pixels)?;
        }
        Some(())
    }

    /// Number of bits of the color cache; 0 without one.
    fn cache_bits(&mut self) -> Option<u32> {
        match self.bits(1)? {
            0 => Some(0),
            _ => self.bits(4).filter(|bits| (1..=MAX_CACHE_BITS).contains(bits)),
        }
    }

    /// A length or distance: a prefix says how many bits follow.
    fn prefixed(&mut self, prefix: u16) -> Option<u64> {
        if prefix < 4 {
            return Some(u64::from(prefix) + 1);
        }
        let extra = u32::from(prefix - 2) >> 1;
        let offset = (2 + u64::from(prefix & 1)) << extra;
        Some(offset + u64::from(self.bits(extra)?) + 1)
    }

    /// Reads a prefix code for an alphabet of this size.
    fn read_code(&mut self, code: &mut Code, symbols: usize) -> Option<()> {
        let mut lengths = [0u8; MAX_SYMBOLS];
        let lengths = &mut lengths[..symbols];
        if self.bits(1)? == 1 {
            // One or two symbols of one bit each.
            let two = self.bits(1)? == 1;
            let first_bits = if self.bits(1)? == 0 { 1 } else { 8 };
            let symbols =
                [Some(self.bits(first_bits)?), if two { Some(self.bits(8)?) } else { None }];
            for symbol in symbols.into_iter().flatten() {
                // A symbol beyond the alphabet is ignored.
                if let Some(length) = lengths.get_mut(symbol as usize) {
                    *length = 1;
                }
            }
        } else {
            self.read_lengths(lengths)?;
        }
        code.build(lengths)
    }

    /// Reads the lengths of a code's symbols, which are themselves coded.
    fn read_lengths(&mut self, lengths: &mut [u8]) -> Option<()> {
        const ORDER: [usize; 19] =
            [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let mut of_lengths = [0u8; 19];
        let given = self.bits(4)? as usize + 4;
        for &place in &ORDER[..given] {
            of_lengths[place] = self.bits(3)? as u8;
        }
        let mut code = Code::default();
        code.build(&of_lengths)?;
        let mut left = lengths.len();
        if self.bits(1)? == 1 {
            let bits = 2 + 2 * self.bits(3)?;
            left = 2 + self.bits(bits)? as usize;
            if left > lengths.len() {
                return None;
            }
        }
        let (mut at, mut last) = (0, 8);
        while at < lengths.len() && left > 0 {
            left -= 1;
            let (value, times) = match self.symbol(&code)? {
                16 => (last, 3 + self.bits(2)?),
                17 => (0, 3 + self.bits(3)?),
                18 => (0, 11 + self.bits(7)?),
                length => (length as u8, 1),
            };
            if value != 0 {
                last = value;
            }
            let end = at + times as usize;
            lengths.get_mut(at..end)?.fill(value);
            at = end;
        }
        Some(())
    }

    /// Next symbol of a code. A code with a single symbol uses no bits.
    fn symbol(&mut self, code: &Code) -> Option<u16> {
        if let Some(only) = code.only {
            return Some(only);
        }
        // Canonical codes: codes of one length are consecutive numbers.
        let (mut value, mut first, mut place) = (0u32, 0u32, 0u32);
        for &count in &code.counts[1..] {
            value |= self.bits(1)?;
            let count = u32::from(count);
            if value < first + count {
                return code.symbols.get((place + value - first) as usize).copied();
            }
            place += count;
            first = (first + count) << 1;
            value <<= 1;
        }
        None
    }

    /// The next `count` bits, at most 18.
    fn bits(&mut self, count: u32) -> Option<u32> {
        let end = self.at + u64::from(count);
        if end > 8 * self.bytes.len() as u64 {
            return None;
        }
        let rest = &self.bytes[(self.at / 8) as usize..];
        let mut word = [0; 4];
        let there = rest.len().min(4);
        word[..there].copy_from_slice(&rest[..there]);
        let bits = u32::from_le_bytes(word) >> (self.at % 8);
        self.at = end;
        Some(bits & ((1 << count) - 1))
    }
}

/// A canonical prefix code.
#[derive(Default)]
struct Code {
    /// Number of symbols with a code of each length.
    counts: [u16; MAX_CODE_BITS + 1],
    /// Symbols by length, then by value.
    symbols: Vec<u16>,
    /// Symbol of a code that has only one, of whatever length.
    only: Option<u16>,
}

impl Code {
    /// Builds the code from the lengths of its symbols. `None` if they are not a complete code.
    fn build(&mut self, lengths: &[u8]) -> Option<()> {
        *self = Self::default();
        for &length in lengths {
            self.counts[usize::from(length)] += 1;
        }
        self.counts[0] = 0;
        let mut next = [0u16; MAX_CODE_BITS + 2];
        for length in 1..=MAX_CODE_BITS {
            next[length + 1] = next[length] + self.counts[length];
        }
        let total = next[MAX_CODE_BITS + 1];
        self.symbols = vec![0; usize::from(total)];
        for (symbol, &length) in (0..).zip(lengths) {
            if length > 0 {
                let place = &mut next[usize::from(length)];
                self.symbols[usize::from(*place)] = symbol;
                *place += 1;
            }
        }
        if total == 1 {
            self.only = self.symbols.first().copied();
            return Some(());
        }
        let used: u32 = (1..=MAX_CODE_BITS)
            .map(|length| u32::from(self.counts[length]) << (MAX_CODE_BITS - length))
            .sum();
        (used == 1 << MAX_CODE_BITS).then_some(())
    }
}

/// Number of blocks of `1 << bits` pixels that cover a side.
fn blocks(side: u32, bits: u32) -> u32 {
    (side + (1 << bits) - 1) >> bits
}

/// Class of packing for palette indices: 0 for up to 2 colors, 1 for up to 4, 2 for up to 16, 3 for more.
fn bucket(colors: u32) -> usize {
    [2, 4, 16].iter().filter(|&&most| colors > most).count()
}
