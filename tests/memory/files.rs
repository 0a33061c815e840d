//! Images whose decoding needs more memory than the size of their files suggests.

#![allow(dead_code, reason = "the test and the benchmark each use a part")]

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Encodes an 8-bit RGB PNG that has one colour.
pub fn png(width: u32, height: u32, interlaced: bool) -> Vec<u8> {
    let rows = |width: u32, height: u32| match (width, height) {
        (0, _) | (_, 0) => 0,
        _ => u64::from(height) * (1 + 3 * u64::from(width)),
    };
    // First column, first row, and the steps in x and y of each pass of Adam7, the interlacing of
    // PNG.
    const PASSES: [[u32; 4]; 7] = [
        [0, 0, 8, 8],
        [4, 0, 8, 8],
        [0, 4, 4, 8],
        [2, 0, 4, 4],
        [0, 2, 2, 4],
        [1, 0, 2, 2],
        [0, 1, 1, 2],
    ];
    let bytes = match interlaced {
        false => rows(width, height),
        true => PASSES
            .iter()
            .map(|[x, y, right, down]| {
                let count =
                    |side: u32, first: u32, step: u32| side.saturating_sub(first).div_ceil(step);
                rows(count(width, *x, *right), count(height, *y, *down))
            })
            .sum(),
    };
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    let zeros = vec![0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(zeros.len() as u64);
        packed.write_all(&zeros[..now as usize]).unwrap();
        left -= now;
    }
    let mut file = png_head(width, height, interlaced);
    chunk(&mut file, b"IDAT", &packed.finish().unwrap());
    chunk(&mut file, b"IEND", &[]);
    file
}

/// Returns a PNG that ends after its header.
pub fn png_head(width: u32, height: u32, interlaced: bool) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, interlaced.into()]);
    chunk(&mut file, b"IHDR", &header);
    file
}

/// Returns a lossless WebP that ends after its header: 34 bytes.
pub fn webp_head(width: u32, height: u32) -> Vec<u8> {
    let mut data = lossless_head(width, height);
    data.resize(14, 0);
    riff(&[(b"VP8L", &data)])
}

/// Encodes a black lossless WebP. Each block of 4x4 pixels has its own group of Huffman codes.
/// There may be up to 65,536 groups.
pub fn webp_groups(width: u32, height: u32, cache_bits: u32) -> Vec<u8> {
    let data = [lossless_head(width, height), groups(width, height, cache_bits)].concat();
    riff(&[(b"VP8L", &data)])
}

/// Encodes a lossy WebP whose alpha channel is encoded like [`webp_groups`]. `lossy` is a WebP file
/// that has only the chunk `VP8 `.
pub fn webp_alpha_groups(lossy: &[u8], cache_bits: u32) -> Vec<u8> {
    let pixels = &lossy[20..];
    let side = |at: usize| u32::from(u16::from_le_bytes([pixels[at], pixels[at + 1]]) & 0x3FFF);
    let (width, height) = (side(6), side(8));
    let canvas =
        [&[0x10, 0, 0, 0][..], &(width - 1).to_le_bytes()[..3], &(height - 1).to_le_bytes()[..3]];
    // Header byte of the alpha channel: lossless compression, unfiltered.
    let alpha = [vec![1], groups(width, height, cache_bits)].concat();
    riff(&[(b"VP8X", &canvas.concat()), (b"ALPH", &alpha), (b"VP8 ", pixels)])
}

fn lossless_head(width: u32, height: u32) -> Vec<u8> {
    let bits = (width - 1) | (height - 1) << 14;
    [&[0x2F][..], &bits.to_le_bytes()].concat()
}

fn riff(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
    let mut body = b"WEBP".to_vec();
    for (kind, data) in chunks {
        body.extend(*kind);
        body.extend((data.len() as u32).to_le_bytes());
        body.extend(*data);
        body.resize(body.len().next_multiple_of(2), 0);
    }
    [b"RIFF", &(body.len() as u32).to_le_bytes()[..], &body].concat()
}

/// Encodes the data after the header of a lossless WebP: no transforms, an entropy image whose
/// pixels are all different, and five Huffman codes with one symbol for each group.
fn groups(width: u32, height: u32, cache_bits: u32) -> Vec<u8> {
    let mut bits = Bits::default();
    // The stream has no transform. It has a colour cache if `cache_bits` is not 0, and an entropy
    // image with one pixel for 4x4 pixels.
    bits.put(0, 1);
    if cache_bits == 0 {
        bits.put(0, 1);
    } else {
        bits.put(1 | cache_bits << 1, 5);
    }
    bits.put(1, 4);
    // The entropy image has no colour cache. Its codes for green and red have 256 symbols of 8 bits
    // each. The code lengths are themselves coded with two symbols of one bit: "length 8" and "11
    // to 138 zeros". Only the code for green needs zeros.
    bits.put(0, 1);
    for zeros in [24, 0] {
        bits.put(0, 1);
        bits.put(12 - 4, 4);
        for place in 0..12 {
            bits.put(u32::from(place == 1 || place == 11), 3);
        }
        bits.put(0, 1);
        for _ in 0..256 {
            bits.put(0, 1);
        }
        if zeros > 0 {
            bits.put(1 | (zeros - 11) << 1, 8);
        }
    }
    // The codes for blue, alpha and distance have only the symbol 0. A code with a single symbol
    // takes no bits.
    const ONLY_ZERO: (u32, u32) = (1, 4);
    for _ in 0..3 {
        bits.put(ONLY_ZERO.0, ONLY_ZERO.1);
    }
    let count = width.div_ceil(4) * height.div_ceil(4);
    assert!(count <= 1 << 16);
    for group in 0..count {
        bits.put(u32::from((group as u8).reverse_bits()), 8);
        bits.put(u32::from(((group >> 8) as u8).reverse_bits()), 8);
    }
    for _ in 0..5 * count {
        bits.put(ONLY_ZERO.0, ONLY_ZERO.1);
    }
    // The pixels take no bits, because each code has only one symbol.
    bits.bytes
}

/// A bit writer. The lowest bit of a byte is written first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    fn put(&mut self, value: u32, count: u32) {
        for bit in 0..count {
            if self.len.is_multiple_of(8) {
                self.bytes.push(0);
            }
            self.bytes[self.len / 8] |= ((value >> bit & 1) as u8) << (self.len % 8);
            self.len += 1;
        }
    }
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let sum = crc32fast::hash(&file[start..]);
    file.extend(sum.to_be_bytes());
}
