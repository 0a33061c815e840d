//! JPEG files of a given size, for measuring the memory that decoding needs.

use crate::geometry::Size;

/// Creates a color JPEG of this size without subsampling (ITU-T T.81), baseline or progressive. The
/// file is as close to `bytes` bytes as possible, and larger only if an image of this size cannot
/// be that small. The file contains the JPEG comment `feedwater trial`.
pub fn trial_file(size: Size, bytes: usize, progressive: bool) -> Vec<u8> {
    let blocks = size.width.div_ceil(8) as usize * size.height.div_ceil(8) as usize;
    let mut file = vec![0xFF, 0xD8];
    let frame = if progressive { 0xC2 } else { 0xC0 };
    let [rows, columns] = [size.height, size.width].map(|side| (side as u16).to_be_bytes());
    segment(&mut file, 0xFE, b"feedwater trial");
    segment(&mut file, 0xDB, &[&[0u8][..], &[1; 64]].concat());
    let components = [1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0];
    segment(&mut file, frame, &[&[8][..], &rows, &columns, &[3], &components].concat());
    for (class, table) in [(0x00, &DC), (0x10, &AC)] {
        segment(&mut file, 0xC4, &[&[class][..], &table.lengths, table.symbols].concat());
    }
    let room = bytes.saturating_sub(file.len() + MARKERS_BYTES) as u64 * 8;
    let least = 3 * blocks as u64 * u64::from(DC_BITS + EOB_BITS);
    let each = 3 * blocks as u64 * u64::from(VALUE_BITS);
    let values = (room.saturating_sub(least) / each.max(1)).min(63) as u32;
    let mut scan = |components: &[u8], first: u8, last: u8, dc: bool, values: Option<u32>| {
        let list = components.iter().flat_map(|&it| [it, 0x00]);
        let head = [components.len() as u8].into_iter().chain(list).chain([first, last, 0]);
        segment(&mut file, 0xDA, &head.collect::<Vec<_>>());
        let bits = u32::from(dc) * DC_BITS
            + values.map_or(0, |it| it * VALUE_BITS + if it < 63 { EOB_BITS } else { 0 });
        // All bits of a block are 0, except those of its last symbol.
        let ends = values.is_some_and(|it| it < 63);
        put(&mut file, components.len() * blocks, bits, ends);
    };
    if progressive {
        scan(&[1, 2, 3], 0, 0, true, None);
        (1..=3).for_each(|component| scan(&[component], 1, 63, false, Some(values)));
    } else {
        scan(&[1, 2, 3], 0, 63, true, Some(values));
    }
    file.extend([0xFF, 0xD9]);
    file
}

/// Huffman table: number of codes of each length, and their symbols.
struct Table {
    lengths: [u8; 16],
    symbols: &'static [u8],
}

/// Huffman table for DC coefficients. Its only symbol is the difference 0, with the code 0.
const DC: Table =
    Table { lengths: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], symbols: &[0] };
/// Huffman table for AC coefficients. The code 0000000 is a coefficient with one value bit and no
/// zeros before it. The code 0000001 ends a block.
const AC: Table =
    Table { lengths: [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0], symbols: &[0x01, 0x00] };

const DC_BITS: u32 = 1;
const EOB_BITS: u32 = 7;
/// Number of bits of a coefficient: its code and one value bit. The value bit 0 means -1.
const VALUE_BITS: u32 = 8;

/// Maximum total size in bytes of the scan headers, the end-of-image marker and the last byte of
/// each scan.
const MARKERS_BYTES: usize = 64;

fn segment(file: &mut Vec<u8>, marker: u8, content: &[u8]) {
    file.extend([0xFF, marker]);
    file.extend((content.len() as u16 + 2).to_be_bytes());
    file.extend(content);
}

/// Writes `count` groups of `bits` zeros. With `ends_in_one`, the last bit of each group is one. No
/// written byte is 0xFF.
fn put(file: &mut Vec<u8>, count: usize, bits: u32, ends_in_one: bool) {
    let (begin, bits) = (file.len(), bits as usize);
    file.resize(begin + (count * bits).div_ceil(8), 0);
    let mut set = |bit: usize| file[begin + bit / 8] |= 0x80 >> (bit % 8);
    if ends_in_one {
        (1..=count).for_each(|block| set(block * bits - 1));
    }
    // The rest of the last byte is filled with ones.
    (count * bits..(count * bits).next_multiple_of(8)).for_each(set);
}
