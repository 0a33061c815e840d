//! Functions that write zlib streams and PNG chunks.

/// Type and content of a chunk.
pub type Chunk = ([u8; 4], Vec<u8>);

pub const HEAD: &[u8] = b"\x89PNG\r\n\x1a\n";

/// How the blocks of zlib data are encoded.
#[derive(Clone, Copy)]
pub enum Coding {
    /// Stored blocks.
    Stored,
    /// Blocks with fixed Huffman codes. Their symbols are not byte-aligned.
    Fixed,
}

/// A writer of a deflate stream. The lowest bit of a byte is written first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    used: u32,
}

impl Bits {
    fn push(&mut self, value: u32, count: u32) {
        for bit in (0..count).map(|at| value >> at & 1) {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= (bit as u8) << (self.used % 8);
            self.used += 1;
        }
    }

    /// Appends a symbol of the fixed code for literals and lengths. Codes start with their highest
    /// bit.
    fn symbol(&mut self, symbol: u32) {
        let (code, bits) = match symbol {
            0..144 => (0x30 + symbol, 8),
            144..256 => (0x190 + symbol - 144, 9),
            256..280 => (symbol - 256, 7),
            _ => (0xC0 + symbol - 280, 8),
        };
        self.push(code.reverse_bits() >> (32 - bits), bits);
    }
}

fn adler(data: &[u8]) -> [u8; 4] {
    let (a, b) = data.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (a + b) % 65521)
    });
    (b << 16 | a).to_be_bytes()
}

pub fn zlib(data: &[u8], coding: Coding) -> Vec<u8> {
    let body = match coding {
        Coding::Stored => {
            let length = u16::try_from(data.len()).unwrap();
            [&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), data].concat()
        }
        Coding::Fixed => {
            let mut bits = Bits::default();
            bits.push(0b011, 3);
            data.iter().for_each(|byte| bits.symbol((*byte).into()));
            bits.symbol(256);
            bits.bytes
        }
    };
    [&[0x78, 1][..], &body, &adler(data)].concat()
}

/// Compresses `count` equal letters into as few bytes as possible.
pub fn letters(count: usize) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.push(0b011, 3);
    let matches = (count - 1) / 258;
    for _ in 0..count - 258 * matches {
        bits.symbol(b'a'.into());
    }
    for _ in 0..matches {
        // The symbol 285 is the longest match (258 bytes). Its distance is 1.
        bits.symbol(285);
        bits.push(0, 5);
    }
    bits.symbol(256);
    [&[0x78, 1][..], &bits.bytes, &adler(&vec![b'a'; count])].concat()
}

pub fn stored(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    let crc = crc32fast::hash(&[kind, data].concat()).to_be_bytes();
    [&length[..], kind, data, &crc].concat()
}

pub fn file(chunks: &[Chunk]) -> Vec<u8> {
    let chunks = chunks.iter().flat_map(|(kind, data)| stored(kind, data));
    HEAD.iter().copied().chain(chunks).collect()
}
