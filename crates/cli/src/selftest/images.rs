//! Test files: JPEGs of every kind, odd files and damaged files.

use std::sync::OnceLock;

use feedwater::error::Reason;
use feedwater::internals::geometry::Size;
use feedwater::internals::header::PnmHead;
use feedwater_tools::synth;
use image_webp::{ColorType as WebpColor, WebPEncoder};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// A kind of JPEG to test.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    /// Name of the kind, used in the names of checks.
    pub name: &'static str,
    pub sampling: SamplingFactor,
    pub gray: bool,
    pub progressive: bool,
    /// Number of MCUs (minimum coded units) between restart markers. 0 for no restart markers.
    pub restart: u16,
}

/// Kinds of JPEGs to test: every chroma subsampling, and the other properties that determine the
/// decode route.
pub const SORTS: [Sort; 7] = [
    sampled("sampling=4:4:4", SamplingFactor::F_1_1),
    sampled("sampling=4:2:2", SamplingFactor::F_2_1),
    sampled("sampling=4:2:0", SamplingFactor::F_2_2),
    sampled("sampling=4:4:0", SamplingFactor::F_1_2),
    Sort { gray: true, ..sampled("sampling=gray", SamplingFactor::F_1_1) },
    Sort { progressive: true, ..sampled("progressive", SamplingFactor::F_2_2) },
    Sort { restart: 5, ..sampled("restart-markers", SamplingFactor::F_2_2) },
];

const fn sampled(name: &'static str, sampling: SamplingFactor) -> Sort {
    Sort { name, sampling, gray: false, progressive: false, restart: 0 }
}

/// Encodes an image of this kind.
pub fn jpeg(index: u64, size: Size, sort: Sort) -> Result<Vec<u8>, String> {
    encode(index, size, sort, if sort.gray { ColorType::Luma } else { ColorType::Rgb }, &[])
}

/// An unusual file that is valid.
pub struct Odd {
    pub name: &'static str,
    pub bytes: Vec<u8>,
}

/// Returns all odd files. They are encoded only once.
pub fn odd() -> Result<&'static [Odd], String> {
    static MADE: OnceLock<Result<Vec<Odd>, String>> = OnceLock::new();
    MADE.get_or_init(make_odd).as_deref().map_err(Clone::clone)
}

fn make_odd() -> Result<Vec<Odd>, String> {
    const SIZE: Size = Size::new(75, 53);
    let usual = sampled("", SamplingFactor::F_2_2);
    let mut all = Vec::new();
    let mut add = |name, bytes| all.push(Odd { name, bytes });
    for (orientation, name) in (1..=8).zip([
        "orientation 1",
        "orientation 2",
        "orientation 3",
        "orientation 4",
        "orientation 5",
        "orientation 6",
        "orientation 7",
        "orientation 8",
    ]) {
        add(name, encode(5, SIZE, usual, ColorType::Rgb, &[orientation])?);
    }
    add("CMYK", encode(6, SIZE, usual, ColorType::Cmyk, &[])?);
    add("YCCK", encode(7, SIZE, usual, ColorType::CmykAsYcck, &[])?);
    add("progressive", jpeg(8, SIZE, Sort { progressive: true, ..usual })?);
    add("4:1:1", jpeg(9, SIZE, sampled("", SamplingFactor::F_4_1))?);
    for (name, width, height) in [
        ("1x1", 1, 1),
        ("15x17", 15, 17),
        ("16x16", 16, 16),
        ("1 column", 1, 900),
        ("1 row", 900, 1),
        ("a wide strip", 1600, 18),
        ("a high strip", 18, 1600),
    ] {
        add(name, jpeg(10, Size::new(width, height), usual)?);
    }
    let mut trailing = jpeg(11, SIZE, usual)?;
    trailing.extend(b"\xff\xd8\xff and what else lies behind an image".repeat(9));
    add("trailing garbage", trailing);
    // This file has no Huffman tables, like a frame of motion JPEG. Decoders then use the tables of
    // the standard, with which the encoder has encoded it.
    let mut without = jpeg(14, SIZE, usual)?;
    for at in 0..find(&without, 0xda) {
        if without[at..at + 2] == [0xff, 0xc4] {
            without[at + 1] = 0xfe;
        }
    }
    add("no Huffman tables", without);
    add("PNG", png(12, SIZE)?);
    add("WebP", webp(13, SIZE)?);
    add("PPM", pnm(PnmHead::rgb(SIZE), synth::image(4, 15, SIZE.width, SIZE.height)));
    let wide = Size::new(3 * SIZE.width, SIZE.height);
    add("PGM", pnm(PnmHead::gray(wide), synth::image(4, 16, SIZE.width, SIZE.height)));
    Ok(all)
}

/// A file that cannot be decoded.
pub struct Damaged {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    pub reason: Reason,
}

/// Returns the damaged files, each with its expected error. They are encoded only once.
pub fn damaged() -> Result<&'static [Damaged], String> {
    static MADE: OnceLock<Result<Vec<Damaged>, String>> = OnceLock::new();
    MADE.get_or_init(make_damaged).as_deref().map_err(Clone::clone)
}

fn make_damaged() -> Result<Vec<Damaged>, String> {
    const SIZE: Size = Size::new(96, 80);
    let good = |index: u64| jpeg(20 + index, SIZE, sampled("", SamplingFactor::F_2_2));
    let cut = |index, keep: fn(&[u8]) -> usize| {
        let mut bytes = good(index)?;
        bytes.truncate(keep(&bytes));
        Ok::<_, String>(bytes)
    };
    let changed = |index, change: fn(&mut Vec<u8>)| {
        let mut bytes = good(index)?;
        change(&mut bytes);
        Ok::<_, String>(bytes)
    };
    let mut all = Vec::new();
    let mut add = |name, bytes, reason| all.push(Damaged { name, bytes, reason });
    add("empty", Vec::new(), Reason::Empty);
    add("text", b"plain text instead of an image".to_vec(), Reason::Unsupported);
    add("a start and nothing else", cut(0, |_| 2)?, Reason::Truncated);
    add("ends in the header", cut(1, |it| find(it, 0xc0) + 7)?, Reason::Truncated);
    add("ends before the scan", cut(2, |it| find(it, 0xda))?, Reason::Truncated);
    add("ends in the scan's first row", cut(3, |it| find(it, 0xda) + 40)?, Reason::Truncated);
    add("ends in the middle", cut(4, |it| it.len() / 2)?, Reason::Truncated);
    add("ends a few bytes early", cut(5, |it| it.len() - 12)?, Reason::Truncated);
    let no_frame = changed(6, |it| {
        let at = find(it, 0xc0);
        it[at + 1] = 0xfe;
    });
    add("no frame", no_frame?, Reason::Corrupt);
    let wrong_length = changed(7, |it| {
        let at = find(it, 0xdb);
        it[at + 2..at + 4].copy_from_slice(&[0, 9]);
    });
    add("a wrong length", wrong_length?, Reason::Corrupt);
    let stray = changed(9, |it| {
        let at = find(it, 0xda) + 200;
        it[at..at + 2].copy_from_slice(&[0xff, 0xc0]);
    });
    add("a header in the scan", stray?, Reason::Corrupt);
    let no_pixels = changed(10, |it| {
        let at = find(it, 0xc0);
        it[at + 7..at + 9].copy_from_slice(&[0, 0]);
    });
    add("no columns", no_pixels?, Reason::Corrupt);
    Ok(all)
}

fn encode(
    index: u64,
    size: Size,
    sort: Sort,
    color: ColorType,
    orientation: &[u8],
) -> Result<Vec<u8>, String> {
    let rgb = synth::image(4, index, size.width, size.height);
    let pixels: Vec<u8> = match color {
        ColorType::Luma => rgb.chunks_exact(3).map(|pixel| pixel[1]).collect(),
        ColorType::Rgb => rgb,
        _ => rgb.chunks_exact(3).flat_map(|it| [it[0], it[1], it[2], 230]).collect(),
    };
    let mut jpeg = Vec::new();
    let mut encoder = Encoder::new(&mut jpeg, 90);
    encoder.set_sampling_factor(sort.sampling);
    encoder.set_progressive(sort.progressive);
    encoder.set_restart_interval(sort.restart);
    if let &[orientation] = orientation {
        // A little-endian TIFF directory with a single entry: the tag 0x112 (orientation), of type
        // SHORT.
        let mut exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
        encoder.add_exif_metadata(&exif).map_err(|error| error.to_string())?;
    }
    encoder
        .encode(&pixels, size.width as u16, size.height as u16, color)
        .map_err(|error| error.to_string())?;
    Ok(jpeg)
}

fn png(index: u64, size: Size) -> Result<Vec<u8>, String> {
    let rgb = synth::image(4, index, size.width, size.height);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&rgb));
    written.map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn webp(index: u64, size: Size) -> Result<Vec<u8>, String> {
    let rgb = synth::image(4, index, size.width, size.height);
    let mut bytes = Vec::new();
    WebPEncoder::new(&mut bytes)
        .encode(&rgb, size.width, size.height, WebpColor::Rgb8)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn pnm(head: PnmHead, pixels: Vec<u8>) -> Vec<u8> {
    [head.bytes(), &pixels].concat()
}

/// Returns the position of a marker. If the file has no such marker, returns the position of its
/// last two bytes.
fn find(jpeg: &[u8], marker: u8) -> usize {
    jpeg.windows(2).position(|pair| pair == [0xff, marker]).unwrap_or(jpeg.len() - 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedwater::internals::header::{Header, Sampling};

    #[test]
    fn every_kind_of_jpeg_matches_its_name() {
        for sort in SORTS {
            let header = Header::parse(&jpeg(1, Size::new(75, 53), sort).unwrap()).unwrap();
            let jpeg = header.jpeg.unwrap();
            let sampling = match sort.name.strip_prefix("sampling=") {
                Some("4:4:4") => Sampling::S444,
                Some("4:2:2") => Sampling::S422,
                Some("4:4:0") => Sampling::S440,
                Some("gray") => Sampling::Gray,
                _ => Sampling::S420,
            };
            assert_eq!(jpeg.sampling(), sampling, "{}", sort.name);
            assert_eq!(jpeg.is_progressive(), sort.name == "progressive");
            assert_eq!(jpeg.restart_interval > 0, sort.name == "restart-markers");
        }
    }

    #[test]
    fn all_files_differ() {
        let mut files: Vec<_> = odd().unwrap().iter().map(|it| it.bytes.clone()).collect();
        files.extend(damaged().unwrap().iter().map(|it| it.bytes.clone()));
        let count = files.len();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), count);
    }
}
