//! PNM images. Tests promises of the documentation of `header::pnm` and `decode::pnm` that the
//! tests for all formats do not cover.

use crate::common::{self, words::has_words};
use std::sync::Arc;

use feedwater::error::{DataError, Reason};
use feedwater::internals::decode::{Decoders, memory_bytes};
use feedwater::internals::geometry::{Orientation, Roi, Size};
use feedwater::internals::header::{Format, Header, PnmHead};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::source::Memory;
use proptest::prelude::*;

fn decode(bytes: &[u8]) -> Result<Vec<u8>, DataError> {
    let header = Header::parse(bytes)?;
    let mut pixels = Vec::new();
    Decoders::new().decode(bytes, &header, header.size.window(), 1, &mut |rows| {
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    })?;
    Ok(pixels)
}

fn fault(bytes: &[u8]) -> (Reason, String) {
    let fault = Header::parse(bytes).unwrap_err();
    (fault.reason, fault.problem)
}

#[test]
fn headers_written_by_netpbm_are_parsed() {
    for head in [
        "P6\n3 2\n255\n",
        "P6 3 2 255 ",
        "P6\t3\r2\x0b255\x0c",
        "P6  \n\n 3\r\n  2\n\n255\t",
        "P6\n# made by hand\n3 2\n255\n",
        "P6# a comment is white space\n3#\r2 # \n #\n#\n255\n",
        "P6 3 2 255# the one character behind the largest value\n",
        "P6 003 0000000000000002 0255\n",
    ] {
        let pixels: Vec<u8> = (50..50 + 18).collect();
        let bytes = [head.as_bytes(), &pixels].concat();
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.format, header.size), (Format::Pnm, Size::new(3, 2)), "{head:?}");
        assert_eq!((header.orientation, header.jpeg.is_none()), (Orientation::default(), true));
        // The predicted memory includes up to 16 rows in RGB, because some PNMs must be converted.
        // Here these are two rows of three pixels.
        assert_eq!(memory_bytes(&header, &bytes, bytes.len() as u64).total(), 2 * 3 * 3);
        assert_eq!(decode(&bytes).unwrap(), pixels, "{head:?}");
        // Bytes after the pixels are ignored. If the last byte is missing, the file is truncated.
        let followed = [&bytes, &b"P6 1 1 255 ..."[..]].concat();
        assert_eq!(decode(&followed).unwrap(), pixels);
        assert_eq!(fault(&bytes[..bytes.len() - 1]).0, Reason::Truncated);
    }
    // Exactly one whitespace character follows the maximum value. The next byte is a pixel.
    assert_eq!(decode(b"P5 2 1 255\r\n\n").unwrap(), [10; 6]);
    assert_eq!(decode(b"P5 2 1 255 #\n").unwrap(), [35, 35, 35, 10, 10, 10]);
}

#[test]
fn unsupported_files_are_errors_with_the_reason() {
    for (bytes, reason, values) in [
        ("P6 3 2 65535 12345", Reason::Truncated, &["3x2", "49", "18"][..]),
        ("P6 2147483647 2147483647 65535 1", Reason::Truncated, &["18446744073709551615"]),
        ("P4 9 2 123", Reason::Truncated, &["9x2", "11", "10"]),
        ("P1 3 2 01010", Reason::Truncated, &["3x2", "13", "12"]),
        ("P3 1 1 255 1 2", Reason::Truncated, &["1x1", "16", "14"]),
        ("P6 3 2 65536 ", Reason::Corrupt, &["65536", "65535"]),
        ("P6 3 2 0 ", Reason::Corrupt, &["0", "65535"]),
        ("P6 0 2 255 ", Reason::Corrupt, &["0x2"]),
        ("P6 3 0 255 ", Reason::Corrupt, &["3x0"]),
        ("P6 2147483648 1 255 ", Reason::Corrupt, &["2147483648x1", "1", "2147483647"]),
        ("P6 3 4294967296 255 ", Reason::Corrupt, &["height", "14"]),
        ("P6 3 -2 255 ", Reason::Corrupt, &["5", "0x2d", "height"]),
        ("P6 3 2 2x5 ", Reason::Corrupt, &["8", "0x78"]),
        ("P6 3 2", Reason::Truncated, &["height"]),
        ("P6 3 2 255 # no end of", Reason::Truncated, &["3x2", "29", "22"]),
        ("P6 3 # 2 255", Reason::Truncated, &["height"]),
        ("P6", Reason::Truncated, &["2", "PNM"]),
        ("P", Reason::Truncated, &["1"]),
        ("P63 2 255 ", Reason::Unsupported, &["JPEG", "PNG", "WebP", "PNM"]),
        ("P7\nWIDTH 1\n", Reason::Unsupported, &["PAM", "pamtopnm"]),
    ] {
        let (found, problem) = fault(bytes.as_bytes());
        assert_eq!(found, reason, "{bytes:?}: {problem}");
        assert!(has_words(&problem, values), "{bytes:?}: {problem}");
    }
    // The maximum value is the third number, and it is missing. The message must not name the other
    // two.
    let (found, problem) = fault(b"P6 3 2 255");
    assert_eq!(found, Reason::Truncated);
    assert!(["width", "height"].into_iter().all(|it| !has_words(&problem, &[it])), "{problem}");
}

/// Pixels in text are parsed up to the last row that is needed. A missing or invalid number is an
/// error.
#[test]
fn pixels_in_text_must_be_numbers_within_the_largest_value() {
    assert_eq!(decode(b"P3 1 1 255 1 2 3 and more").unwrap(), [1, 2, 3]);
    assert_eq!(decode(b"P1 2 1 # bits\n01").unwrap(), [255, 255, 255, 0, 0, 0]);
    for (bytes, reason) in [
        (&b"P3 1 1 255 1 2 256"[..], Reason::Corrupt),
        (b"P3 1 1 255 1 -2 3", Reason::Corrupt),
        (b"P3 1 1 255 1 x 33", Reason::Corrupt),
        (b"P3 1 1 255 1 00000000002 3", Reason::Corrupt),
        (b"P1 2 2 0 1 2 0", Reason::Corrupt),
        (b"P3 1 1 255 1 2   ", Reason::Truncated),
        (b"P2 2 1 255 12 # 1", Reason::Truncated),
        (b"P1 2 2 0 1 0 ", Reason::Truncated),
    ] {
        assert_eq!(decode(bytes).unwrap_err().reason, reason, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_claim_of_a_huge_size_allocates_nothing_and_does_not_overflow() {
    let bytes = b"P6 2147483647 2147483647 255 \x01\x02\x03";
    let (reason, problem) = fault(bytes);
    assert_eq!(reason, Reason::Truncated);
    assert!(has_words(&problem, &["13835058042397261856", "32"]), "{problem}");
}

#[test]
fn an_image_that_contradicts_its_header_is_an_error() {
    let (small, large) = (b"P5 2 1 255 ab", b"P5 2 2 255 abcd");
    let header = Header::parse(large).unwrap();
    let window = Roi::new(0, 0, 2, 1);
    let fault = Decoders::new().decode(small, &header, window, 1, &mut |_| ()).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    let fault = Decoders::new().decode(large, &header, window, 2, &mut |_| ()).unwrap_err();
    assert_eq!(fault.reason, Reason::Unsupported);
    assert!(has_words(&fault.problem, &["PNM"]), "{fault}");
    assert_eq!(header.verify(large).unwrap_err().reason, Reason::Unsupported);
}

/// Rows of RGB images are passed on without a copy. So decoding a window of such an image allocates
/// nothing.
#[test]
fn a_window_of_rgb_is_not_even_copied() {
    let size = Size::new(40, 30);
    let bytes = [PnmHead::rgb(size).bytes(), &common::image(1, 40, 30)].concat();
    let header = Header::parse(&bytes).unwrap();
    let mut decoder = Decoders::new();
    let inside = bytes.as_ptr_range();
    let window = Roi::new(7, 5, 20, 10);
    decoder
        .decode(&bytes, &header, window, 1, &mut |rows| {
            let mut each = rows.iter();
            assert!(
                each.all(|(_, row)| inside.contains(&row.as_ptr())),
                "rows must lie in the file"
            );
        })
        .unwrap();
    assert_eq!(decoder.capacity_bytes(), 0);
}

/// A loader gives the same batches for the same pixels stored as PNG and as PNM.
#[test]
fn a_loader_gives_the_same_batches_for_pnm_and_png() {
    let batches = |encode: fn(u64, u32, u32) -> Vec<u8>| {
        let images =
            (0..12).map(|seed| (encode(seed, 40 + seed as u32, 60 - seed as u32), seed as i64));
        let source = Arc::new(Memory::new(images.collect()).unwrap());
        let mut loader = LoaderBuilder::new(source, common::training())
            .batch_size(4)
            .num_workers(2)
            .seed(3)
            .device(DeviceChoice::Cpu)
            .build()
            .unwrap();
        let mut all = Vec::new();
        for batch in &mut loader {
            all.extend_from_slice(batch.unwrap().host().unwrap());
        }
        all
    };
    let pnm = batches(|seed, width, height| {
        let head = PnmHead::rgb(Size::new(width, height));
        [head.bytes(), &common::image(seed, width, height)].concat()
    });
    assert!(!pnm.is_empty() && pnm == batches(common::png));
}

proptest! {
    #[test]
    fn headers_round_trip(width in 1u32..5000, height in 1u32..40, gray: bool) {
        let size = Size::new(width, height);
        let head = if gray { PnmHead::gray(size) } else { PnmHead::rgb(size) };
        let count = if gray { 1 } else { 3 } * size.pixels() as usize;
        let pixels: Vec<u8> = (0..count).map(|it| (it * 7 + it / 251) as u8).collect();
        let bytes = [head.bytes(), &pixels].concat();
        prop_assert_eq!(Header::parse(&bytes).unwrap().size, size);
        let found = decode(&bytes).unwrap();
        let same = found.iter().step_by(if gray { 3 } else { 1 }).eq(&pixels);
        prop_assert!(same);
        prop_assert_eq!(fault(&bytes[..bytes.len() - 1]).0, Reason::Truncated);
    }

    #[test]
    fn a_header_of_any_size_fits(width: u32, height: u32) {
        let head = PnmHead::rgb(Size::new(width, height));
        let expected = format!("P6\n{width} {height}\n255\n");
        prop_assert_eq!(head.bytes(), expected.as_bytes());
        prop_assert!(head.bytes().len() <= PnmHead::MOST_BYTES);
    }

    /// Any header gives an error, or an image that is within the bytes of the file.
    #[test]
    fn arbitrary_headers_never_panic(
        magic in "P[56]",
        text in "([0-9]{0,11}|[ \t\r\n#x-]{0,4}){0,12}",
        pixels in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [magic.as_bytes(), b" ", text.as_bytes(), &pixels].concat();
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert!(header.size.pixels() <= bytes.len() as u64);
            prop_assert_eq!(decode(&bytes).unwrap().len() as u64, 3 * header.size.pixels());
        }
    }
}
