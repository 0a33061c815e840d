//! Predicts the memory for the prefix codes of a lossless WebP from the part of its stream before
//! the pixels.
//!
//! A lossless image may have up to 65,536 groups of prefix codes. A small image, the entropy image,
//! assigns a group to each block of pixels. libwebp allocates the tables of all groups, 12 to 20 KB
//! each, before it reads the first one. So a file of 300 KB can request a gigabyte. This module
//! parses the stream up to the point where libwebp allocates. It does not store pixels, because the
//! following bits never depend on the values of pixels.
//!
//! Sources: the WebP lossless bitstream specification (RFC 9649, section 3), and `dec/vp8l_dec.c`
//! of libwebp 1.5 for libwebp's allocations and errors.

use super::{CHUNK_HEAD, le24, le32};

/// Number of bits of the lossless header: a signature byte, 14-bit width and height, alpha,
/// version.
const HEADER_BITS: u64 = 40;

/// Number of symbols of the five codes of a group: green with 24 length prefixes, red, blue, alpha,
/// and distance prefixes.
const ALPHABETS: [usize; 5] = [256 + LENGTHS, 256, 256, 256, 40];
/// Number of length prefixes.
const LENGTHS: usize = 24;
/// Maximum number of bits that address the color cache.
const MAX_CACHE_BITS: u32 = 11;
/// Number of symbols of the largest alphabet.
const MAX_SYMBOLS: usize = ALPHABETS[0] + (1 << MAX_CACHE_BITS);
/// Length of the longest code in bits.
const MAX_CODE_BITS: usize = 15;

/// Number of table entries of a group in libwebp, by the number of bits of the color cache
/// (`kTableSize`).
const TABLE_ENTRIES: [u64; 12] =
    [2954, 2956, 2958, 2962, 2970, 2986, 3018, 3082, 3212, 3468, 3980, 5004];
/// Size of a table entry in bytes.
const ENTRY_BYTES: u64 = 4;
/// Size of libwebp's `HTreeGroup` in bytes: five pointers, four numbers, 64 packed entries of 8
/// bytes.
const GROUP_BYTES: u64 = 5 * 8 + 4 * 4 + 64 * 8;
/// Maximum number of groups for which libwebp allocates all groups up to the largest index. For
/// more groups, it allocates only the groups in use.
const COUNTED_FROM: u64 = 1000;
/// Size in bytes of libwebp's map of the groups in use: four bytes per index.
const MAP_BYTES: u64 = 4 << 16;

/// Returns the size of the tables that libwebp allocates for a frame with these chunks, in bytes.
/// Returns `None` if the bytes end or are invalid before the size is known. libwebp then fails
/// before it allocates the tables.
pub fn bytes(chunks: &[u8]) -> Option<u64> {
    let (kind, data, rest) = chunk(chunks)?;
    match kind {
        b"VP8 " => Some(0),
        b"VP8L" => {
            // If more data follows the chunk, libwebp reads beyond the end of the chunk. So `data`
            // is not cut there.
            let data = &chunks[CHUNK_HEAD..];
            let sides = le32(data, 1)?;
            let (width, height) = ((sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1);
            let mut stream = Stream { bytes: data, at: HEADER_BITS };
            stream.table_bytes(width, height)
        }
        b"ALPH" => {
            // The lowest two bits of the first byte are the compression of the alpha image. The
            // alpha image has the width and height of the color image.
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

/// Splits the first chunk off. Returns its kind, its data and the bytes after it. If the file is
/// truncated, the data ends early. Returns `None` if the chunk's header is incomplete.
fn chunk(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (kind, length) = (bytes.first_chunk()?, le32(bytes, 4)? as usize);
    let data = &bytes[CHUNK_HEAD..];
    let (data, rest) = data.split_at(length.min(data.len()));
    // Chunks are padded to an even length.
    Some((kind, data, rest.get(length % 2..).unwrap_or_default()))
}

/// Bit reader, lowest bit first.
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
                // The parameters of a prediction or color transform are stored as an image with one
                // pixel per block.
                0 | 1 => {
                    let bits = self.bits(3)? + 2;
                    self.skip_image(blocks(width, bits), blocks(height, bits), |_| ())?;
                }
                // The subtract-green transform has no parameters.
                2 => {}
                // The transform is a palette. If the palette has few colors, several indices are
                // packed into one pixel.
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

    /// Reads an image that has one group of codes. Calls `group` with red and green of every pixel
    /// that is not copied from earlier pixels. In the entropy image, red and green are the number
    /// of a group.
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
                // The color is read from a cache of recent colors, which is not tracked here. Such
                // a pixel adds no new group: its group was that of an earlier pixel, or is 0.
                group(0);
                1
            };
            left = left.checked_sub(pixels)?;
        }
        Some(())
    }

    /// Returns the number of bits of the color cache, or 0 without a cache.
    fn cache_bits(&mut self) -> Option<u32> {
        match self.bits(1)? {
            0 => Some(0),
            _ => self.bits(4).filter(|bits| (1..=MAX_CACHE_BITS).contains(bits)),
        }
    }

    /// Reads a length or distance. The prefix determines the number of following bits.
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
            // The code has one or two symbols of one bit each.
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

    /// Reads the next symbol of a code. A code with a single symbol uses no bits.
    fn symbol(&mut self, code: &Code) -> Option<u16> {
        if let Some(only) = code.only {
            return Some(only);
        }
        // In canonical codes, the codes of one length are consecutive numbers.
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

    /// Reads the next `count` bits (at most 18).
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

/// Canonical prefix code.
#[derive(Default)]
struct Code {
    /// Number of symbols with a code of each length.
    counts: [u16; MAX_CODE_BITS + 1],
    /// Symbols, sorted by length of their code and then by value.
    symbols: Vec<u16>,
    /// Symbol of a code that has only one symbol, whatever length is stored for the symbol.
    only: Option<u16>,
}

impl Code {
    /// Builds the code from the lengths of its symbols. Returns `None` if the lengths do not form a
    /// complete code.
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

/// Returns the binary logarithm of the number of bits per palette index: 0 for up to 2 colors, 1
/// for up to 4, 2 for up to 16, 3 for more.
fn bucket(colors: u32) -> usize {
    [2, 4, 16].iter().filter(|&&most| colors > most).count()
}
