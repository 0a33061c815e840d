//! Files that ask for more memory than their bytes suggest.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// A PNG of one colour, 8 bits of red, green and blue; interlaced where that is asked for.
pub fn png(width: u32, height: u32, interlaced: bool) -> Vec<u8> {
    let rows = |width: u32, height: u32| match (width, height) {
        (0, _) | (_, 0) => 0,
        _ => u64::from(height) * (1 + 3 * u64::from(width)),
    };
    // First column and row, and steps, of each pass of Adam7.
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

/// A PNG that has nothing but its header.
pub fn png_head(width: u32, height: u32, interlaced: bool) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, interlaced.into()]);
    chunk(&mut file, b"IHDR", &header);
    file
}

/// A lossless WebP that has nothing but its header: 34 bytes.
pub fn webp_head(width: u32, height: u32) -> Vec<u8> {
    let bits = (width - 1) | (height - 1) << 14;
    let mut data = vec![0x2F];
    data.extend(bits.to_le_bytes());
    data.resize(14, 0);
    let mut file = b"RIFF".to_vec();
    file.extend((4 + 8 + data.len() as u32).to_le_bytes());
    file.extend(b"WEBPVP8L");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let sum = crc32fast::hash(&file[start..]);
    file.extend(sum.to_be_bytes());
}
