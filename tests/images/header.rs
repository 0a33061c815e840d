//! The header parser: results for valid files, and no panics for any file.

#[allow(dead_code, reason = "not every test needs every recipe")]
use std::fs;
use std::path::Path;

use crate::common::words::has_words;
use crate::jpeg::{Recipe, Scans};
use feedwater::error::Reason;
use feedwater::internals::geometry::{Orientation, Size};
use feedwater::internals::header::{ColorSpace, Format, FrameKind, Header, JpegHeader, Sampling};
use proptest::prelude::*;

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/decode");
    fs::read(folder.join(name)).unwrap()
}

fn jpeg_header(bytes: &[u8]) -> JpegHeader {
    Header::parse(bytes).unwrap().jpeg.unwrap()
}

fn reason(bytes: &[u8]) -> Reason {
    Header::parse(bytes).unwrap_err().reason
}

/// Inserts a segment after the file's start-of-image marker.
fn with_segment(file: &[u8], marker: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16 + 2).to_be_bytes();
    [&file[..2], &[0xFF, marker], &length, body, &file[2..]].concat()
}

fn small() -> Vec<u8> {
    Recipe::new(40, 30, &[(2, 2), (1, 1), (1, 1)]).make()
}

/// Returns little-endian EXIF data with these twelve-byte entries.
fn exif(entries: &[[u8; 12]]) -> Vec<u8> {
    let mut data = b"Exif\0\0II*\0\x08\0\0\0".to_vec();
    data.extend((entries.len() as u16).to_le_bytes());
    data.extend(entries.as_flattened());
    data.extend([8, 0, 0, 0]);
    data
}

const fn entry(kind: u8, count: u8, value: u8) -> [u8; 12] {
    [0x12, 0x01, kind, 0, count, 0, 0, 0, value, 0, 0, 0]
}

#[test]
fn sampling_is_the_ratio_of_luma_to_chroma() {
    let cases: [(&[(u8, u8)], Sampling); 10] = [
        (&[(2, 2)], Sampling::Gray),
        (&[(1, 1), (1, 1), (1, 1)], Sampling::S444),
        (&[(2, 1), (2, 1), (2, 1)], Sampling::S444),
        (&[(2, 1), (1, 1), (1, 1)], Sampling::S422),
        (&[(2, 2), (1, 1), (1, 1)], Sampling::S420),
        (&[(1, 2), (1, 1), (1, 1)], Sampling::S440),
        (&[(4, 1), (1, 1), (1, 1)], Sampling::S411),
        (&[(4, 2), (1, 1), (1, 1)], Sampling::S410),
        (&[(2, 2), (2, 1), (1, 2)], Sampling::Other),
        (&[(1, 1), (1, 1), (1, 1), (1, 1)], Sampling::Other),
    ];
    for (factors, expected) in cases {
        let jpeg = jpeg_header(&Recipe::new(40, 30, factors).make());
        assert_eq!(jpeg.sampling(), expected, "{factors:?}");
        let found: Vec<(u8, u8)> = jpeg.components().iter().map(|c| (c.h, c.v)).collect();
        assert_eq!(found, factors);
    }
}

#[test]
fn the_frame_gives_process_coding_and_precision() {
    let mut file = small();
    let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    for (marker, kind, arithmetic) in [
        (0xC0, FrameKind::Baseline, false),
        (0xC1, FrameKind::Extended, false),
        (0xC2, FrameKind::Progressive, false),
        (0xC3, FrameKind::Lossless, false),
        (0xC6, FrameKind::Hierarchical, false),
        (0xC9, FrameKind::Extended, true),
        (0xCA, FrameKind::Progressive, true),
        (0xCB, FrameKind::Lossless, true),
        (0xCF, FrameKind::Hierarchical, true),
    ] {
        file[frame + 1] = marker;
        let jpeg = jpeg_header(&file);
        assert_eq!((jpeg.frame, jpeg.arithmetic), (kind, arithmetic), "marker {marker:02x}");
        assert_eq!(jpeg.is_progressive(), kind == FrameKind::Progressive);
    }
    file[frame + 4] = 12;
    assert_eq!(jpeg_header(&file).precision, 12);
}

#[test]
fn size_restart_interval_and_profile_are_read() {
    let file = Recipe { restart: 5, ..Recipe::new(40, 30, &[(1, 1)]) }.make();
    let header = Header::parse(&file).unwrap();
    assert_eq!((header.format, header.size), (Format::Jpeg, Size::new(40, 30)));
    assert_eq!(jpeg_header(&file).restart_interval, 5);
    assert!(!jpeg_header(&file).icc);
    assert!(jpeg_header(&with_segment(&file, 0xE2, b"ICC_PROFILE\0\x01\x01")).icc);
}

#[test]
fn the_first_scan_tells_whether_it_has_all_components() {
    for (scans, count) in [(Scans::Interleaved, 3), (Scans::Separate, 1), (Scans::Progressive, 3)] {
        let jpeg = jpeg_header(&Recipe { scans, ..Recipe::new(40, 30, &[(1, 1); 3]) }.make());
        assert_eq!((jpeg.scan_components, jpeg.is_interleaved()), (count, count == 3), "{scans:?}");
    }
}

#[test]
fn the_colour_space_follows_libjpegs_rules() {
    let three = Recipe::new(40, 30, &[(1, 1); 3]);
    let four = Recipe::new(40, 30, &[(1, 1); 4]);
    let space = |recipe: &Recipe| jpeg_header(&recipe.make()).color_space();
    assert_eq!(space(&Recipe::new(40, 30, &[(1, 1)])), ColorSpace::Gray);
    assert_eq!(space(&Recipe::new(40, 30, &[(1, 1); 2])), ColorSpace::Unknown);
    assert_eq!(space(&three), ColorSpace::YCbCr);
    assert_eq!(space(&Recipe { adobe: Some(0), ..three.clone() }), ColorSpace::Rgb);
    assert_eq!(space(&Recipe { adobe: Some(1), ..three.clone() }), ColorSpace::YCbCr);
    assert_eq!(space(&Recipe { ids: *b"RGBx", ..three.clone() }), ColorSpace::Rgb);
    assert_eq!(space(&four), ColorSpace::Cmyk);
    assert_eq!(space(&Recipe { adobe: Some(0), ..four.clone() }), ColorSpace::Cmyk);
    assert_eq!(space(&Recipe { adobe: Some(2), ..four }), ColorSpace::Ycck);
    // A JFIF segment overrides Adobe's colour space.
    let jfif = b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0";
    let file = with_segment(&Recipe { adobe: Some(0), ..three }.make(), 0xE0, jfif);
    assert_eq!(jpeg_header(&file).color_space(), ColorSpace::YCbCr);
}

#[test]
fn pillows_orientation_tags_are_read_in_every_format() {
    for value in 1..=8 {
        let header = Header::parse(&golden(&format!("orientation-{value}.jpg"))).unwrap();
        assert_eq!(header.orientation, Orientation::from_exif(value), "{value}");
        assert_eq!(header.size, Size::new(19, 11), "the size must be that of the stored image");
    }
    let orientation = |name| Header::parse(&golden(name)).unwrap().orientation;
    assert_eq!(orientation("png-orientation-6.png"), Orientation::from_exif(6));
    assert_eq!(orientation("webp-orientation-8.webp"), Orientation::from_exif(8));
}

#[test]
fn an_orientation_is_an_integer_from_1_to_8() {
    let orientation = |entries: &[[u8; 12]]| {
        let file = with_segment(&small(), 0xE1, &exif(entries));
        Header::parse(&file).unwrap().orientation
    };
    assert_eq!(orientation(&[entry(3, 1, 6)]), Orientation::from_exif(6));
    assert_eq!(orientation(&[entry(4, 1, 6)]), Orientation::from_exif(6));
    assert_eq!(orientation(&[entry(8, 1, 6)]), Orientation::from_exif(6));
    assert_eq!(orientation(&[entry(3, 2, 6)]), Orientation::from_exif(6));
    assert_eq!(orientation(&[entry(3, 0, 6)]), Orientation::UPRIGHT);
    assert_eq!(orientation(&[entry(2, 1, 6)]), Orientation::UPRIGHT);
    // Three values of two bytes do not fit into an entry, so the entry stores the offset of these
    // values instead. Offset 200 is beyond the data. At offset 14 is the entry's own count, 3.
    assert_eq!(orientation(&[entry(3, 3, 200)]), Orientation::UPRIGHT);
    assert_eq!(orientation(&[entry(3, 3, 14)]), Orientation::from_exif(3));
    assert_eq!(orientation(&[entry(3, 1, 9)]), Orientation::UPRIGHT);
    assert_eq!(orientation(&[entry(3, 1, 0)]), Orientation::UPRIGHT);
    // If the entry occurs twice, the later one counts, as in Pillow.
    assert_eq!(orientation(&[entry(3, 1, 6), entry(3, 1, 8)]), Orientation::from_exif(8));
}

#[test]
fn big_endian_exif_is_read() {
    let body = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x05\0\0\0\0\0\0";
    let header = Header::parse(&with_segment(&small(), 0xE1, body)).unwrap();
    assert_eq!(header.orientation, Orientation::from_exif(5));
}

#[test]
fn xmp_counts_if_exif_has_no_orientation() {
    let xmp = b"http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation=\"3\"/>";
    let file = with_segment(&small(), 0xE1, xmp);
    assert_eq!(Header::parse(&file).unwrap().orientation, Orientation::from_exif(3));
    let both = with_segment(&file, 0xE1, &exif(&[entry(3, 1, 6)]));
    assert_eq!(Header::parse(&both).unwrap().orientation, Orientation::from_exif(6));
}

#[test]
fn damaged_exif_means_upright() {
    let good = exif(&[entry(3, 1, 6)]);
    let mut far = good.clone();
    far[10..14].copy_from_slice(&u32::MAX.to_le_bytes());
    // The directory claims 65,535 entries, but has only one.
    let mut endless = good.clone();
    endless[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
    assert_eq!(
        Header::parse(&with_segment(&small(), 0xE1, &far)).unwrap().orientation,
        Orientation::UPRIGHT
    );
    // The parser reads the one entry that the directory has.
    assert_eq!(
        Header::parse(&with_segment(&small(), 0xE1, &endless)).unwrap().orientation,
        Orientation::from_exif(6)
    );
    for length in 0..good.len() {
        Header::parse(&with_segment(&small(), 0xE1, &good[..length])).unwrap();
    }
}

#[test]
fn other_formats_are_detected_by_their_content() {
    let problem = |bytes: &[u8]| Header::parse(bytes).unwrap_err().problem;
    for (bytes, name) in [
        (b"MM\0+\0\x08\0\0\0\0\0\0" as &[u8], "BigTIFF"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\0\0\0\x20ftypavif\0\0\0\0", "AVIF"),
        (b"<html>not an image</html>", "look like text"),
        (b"see a.jpg\nand b.jpg", "look like text"),
        (b"photos/a b/1.JPG", "the path of an image; the source list reads images by their paths"),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0", "00 00 00 00"),
        (b"\xFF\xD8\0\0\0\0\0\0\0\0\0\0", "ff d8 00 00"),
    ] {
        assert_eq!(reason(bytes), Reason::Unsupported, "{name}");
        assert!(has_words(&problem(bytes), &[name]), "{}", problem(bytes));
    }
    assert_eq!(reason(b""), Reason::Empty);
}

/// Returns an `ftyp` box with these brands.
fn media(brands: &[&[u8; 4]]) -> Vec<u8> {
    let length = (8 + 4 * brands.len() as u32).to_be_bytes();
    [&length[..], b"ftyp", &brands.iter().flat_map(|it| **it).collect::<Vec<_>>(), &[0; 8]].concat()
}

#[test]
fn heic_and_avif_are_named_with_what_to_do() {
    for (brands, name, program) in [
        (&[b"heic", b"\0\0\0\0", b"mif1"] as &[&[u8; 4]], "HEIC", "heif-convert"),
        (&[b"mif1", b"\0\0\0\0", b"mif1", b"heic"], "HEIC", "heif-convert"),
        (&[b"hevx", b"\0\0\0\0"], "HEIC", "heif-convert"),
        (&[b"avif", b"\0\0\0\0", b"mif1", b"miaf"], "AVIF", "avifdec"),
        (&[b"mif1", b"\0\0\0\0", b"miaf", b"avif"], "AVIF", "avifdec"),
        (&[b"avis", b"\0\0\0\0"], "AVIF", "avifdec"),
        (&[b"msf1", b"heic"], "HEIF", "heif-convert"),
        (&[b"isom", b"\0\0\0\0", b"avc1"], "MP4", "related"),
    ] {
        let file = media(brands);
        assert_eq!(reason(&file), Reason::Unsupported, "{name}");
        let problem = Header::parse(&file).unwrap_err().problem;
        assert!(has_words(&problem, &[name]) && problem.contains(program), "{problem}");
        for length in 0..file.len() {
            assert!(Header::parse(&file[..length]).is_err());
        }
    }
}

#[test]
fn contradictions_are_corrupt() {
    let file = small();
    let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    let changed = |offset: usize, value: u8| {
        let mut file = file.clone();
        file[frame + offset] = value;
        file
    };
    assert_eq!(reason(&Recipe::new(0, 30, &[(1, 1)]).make()), Reason::Corrupt);
    assert_eq!(reason(&Recipe::new(40, 0, &[(1, 1)]).make()), Reason::Corrupt);
    assert_eq!(reason(&changed(9, 200)), Reason::Corrupt, "components");
    assert_eq!(reason(&changed(9, 0)), Reason::Corrupt, "components");
    assert_eq!(reason(&changed(11, 0x05)), Reason::Corrupt, "sampling factors");
    assert_eq!(reason(&with_segment(&file, 0xD8, b"")), Reason::Corrupt, "two starts");
    assert_eq!(reason(&[0xFF, 0xD8, 0xFF, 0xD9]), Reason::Corrupt, "no scan");
    assert_eq!(
        reason(&[&file[..4], &[0, 1], &file[6..]].concat()),
        Reason::Corrupt,
        "segment length 1"
    );
    assert_eq!(
        reason(&[&file[..2], &[0xFF, 0xDE, 0, 2], &file[2..]].concat()),
        Reason::Unsupported
    );
}

/// Pillow fails if a segment that it parses is shorter than the bytes that it reads from the
/// segment, even if the segment does not affect the pixels. feedwater refuses such files too.
#[test]
fn segments_that_pillow_needs_longer_are_corrupt() {
    let file = small();
    let photoshop = b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0\0\0";
    for (marker, body, refused) in [
        (0xE0, b"JFIF\0\x01\x01\0\0" as &[u8], 4..7),
        (0xE0, b"JFIFxxxxxx", 4..7),
        (0xEE, b"Adobe\0\x64\0\0", 5..7),
        (0xE2, b"ICC_PROFILE\0\x01\x01icc", 12..14),
        (0xED, photoshop, 20..21),
    ] {
        for length in 0..=body.len() {
            let parsed = Header::parse(&with_segment(&file, marker, &body[..length]));
            let reason = parsed.err().map(|error| error.reason);
            let expected = refused.contains(&length).then_some(Reason::Corrupt);
            assert_eq!(reason, expected, "{length} bytes of {}", body.escape_ascii());
        }
    }
    // Pillow sorts the parts of an ICC profile. Only the first part after sorting must be long
    // enough.
    let part = |body: &[u8]| with_segment(&file, 0xE2, &[b"ICC_PROFILE\0", body].concat());
    let second = part(&[2]);
    assert_eq!(reason(&second), Reason::Corrupt);
    let both = with_segment(&second, 0xE2, b"ICC_PROFILE\0\x01\x01");
    assert!(Header::parse(&both).is_ok());
}

#[test]
fn a_jpeg_without_an_end_is_truncated() {
    let file = Recipe { scans: Scans::Progressive, ..Recipe::new(40, 30, &[(1, 1); 3]) }.make();
    assert_eq!(reason(&file[..file.len() - 2]), Reason::Truncated);
    // Data after the end marker is ignored.
    let followed = [&file, &[0u8; 5000] as &[u8]].concat();
    assert_eq!(Header::parse(&followed).unwrap(), Header::parse(&file).unwrap());
}

#[test]
fn a_frame_larger_than_its_canvas_is_corrupt() {
    let mut file = golden("webp-orientation-8.webp");
    assert_eq!(&file[12..16], b"VP8X");
    assert!(Header::parse(&file).is_ok());
    file[24] = 7;
    assert_eq!(reason(&file), Reason::Corrupt);
}

/// A TIFF whose tiles have a terapixel is refused before memory is allocated.
#[test]
fn tiles_far_larger_than_their_image_are_refused() {
    let mut tiles = golden("tiff-tiles-16.tif");
    assert!(Header::parse(&tiles).is_ok());
    for tag in [322u16, 323] {
        let entry = [&tag.to_be_bytes()[..], &[0, 3, 0, 0, 0, 1]].concat();
        let at = tiles.windows(8).position(|it| it == entry).unwrap();
        // Changes the type of the tile's side from two to four bytes.
        tiles[at + 3] = 4;
        tiles[at + 8..at + 12].copy_from_slice(&(1u32 << 20).to_be_bytes());
    }
    let error = Header::parse(&tiles).unwrap_err();
    assert_eq!(error.reason, Reason::Unsupported);
    assert!(error.problem.contains("tiles of 1048576x1048576"), "{error}");
}

/// The parser adds the number of extra samples to the number of colour samples. The sum must not
/// overflow.
#[test]
fn a_tiff_of_four_billion_extra_samples_is_refused() {
    let short = |tag: u16, value: u16| (tag, 3u16, 1u32, u32::from(value));
    let extra = (338, 3, u32::MAX, 8);
    let entries =
        [short(256, 4), short(257, 4), short(258, 8), short(262, 2), short(277, 3), extra];
    let mut file = b"II*\0\x08\0\0\0\x06\0".to_vec();
    for (tag, kind, count, value) in entries {
        let places = [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes()];
        file.extend([&places.concat()[..], &value.to_le_bytes()].concat());
    }
    file.extend([0; 64]);
    let error = Header::parse(&file).unwrap_err();
    assert!(error.problem.contains("4294967295 of them extra"), "{error}");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(magic in 0usize..9, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let magics: [&[u8]; 9] = [
            b"", &[0xFF, 0xD8, 0xFF], b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8X", b"P6 ",
            b"BM\0\0\0\0\0\0\0\0\0\0\0\0\x28\0\0\0", b"GIF89a", b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08",
        ];
        let _ = Header::parse(&[magics[magic], &bytes].concat());
    }

    #[test]
    fn random_exif_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), little: bool) {
        let order: &[u8] = if little { b"Exif\0\0II*\0" } else { b"Exif\0\0MM\0*" };
        let file = with_segment(&small(), 0xE1, &[order, &bytes].concat());
        prop_assert!(Header::parse(&file).is_ok());
    }
}
