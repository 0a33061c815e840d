//! Decodes every window of small images with feedwater's JPEG decoder. The pixels equal those of
//! the same part of libjpeg-turbo's whole image.

use std::time::Instant;

use crate::common::some_of;
use feedwater::internals::decode::{Decoders, JpegBy, JpegDecoder};
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;
use feedwater_tools::synth::optimized;

use crate::decoders::{GRAY, S411, S420, S422, S440, S444};
use crate::jpeg::Recipe;

const SIDE: u32 = 64;
/// Sampling factors of a gray JPEG. They mean the same image as `GRAY`, but libjpeg-turbo reads two
/// rows of blocks together.
const GRAY_2X2: &[(u8, u8)] = &[(2, 2)];

/// A range of columns or rows: the first one, and the one after the last one.
type Range = (u32, u32);

/// Returns every range of columns (or rows) of an image that has `SIDE` columns (or rows).
fn all() -> impl Iterator<Item = Range> + Clone {
    (0..SIDE).flat_map(|from| (from + 1..=SIDE).map(move |to| (from, to)))
}

/// Some ranges, which begin and end at, before and after edges of blocks and MCUs.
const SOME: [Range; 6] = [(0, SIDE), (0, 1), (7, 17), (15, 49), (33, 34), (63, SIDE)];

/// Compares these windows for one image of each chroma subsampling. Returns the number of windows.
fn compare(instructions: &[&str], windows: impl Iterator<Item = (Range, Range)> + Clone) -> u64 {
    let mut count = 0;
    let all = [(GRAY, 0), (S444, 7), (S422, 3), (S440, 0), (S411, 2), (S420, 5), (S420, 0)];
    for (number, (sampling, restart)) in all.into_iter().enumerate() {
        let bytes = Recipe { restart, ..Recipe::new(SIDE as u16, SIDE as u16, sampling) }.make();
        // Two of three files have optimal tables, like nearly all photographs.
        let bytes = if number % 3 == 0 { bytes } else { optimized(&bytes).unwrap() };
        let header = Header::parse(&bytes).unwrap();
        let mut whole = Vec::new();
        Decoders::new()
            .jpeg(JpegDecoder::Libjpeg)
            .decode(&bytes, &header, header.size.window(), 1, &mut |rows| {
                rows.iter().for_each(|(_, row)| whole.extend_from_slice(row));
            })
            .unwrap();
        for name in instructions {
            let mut ours = Decoders::new().with_jpeg_instructions(name).unwrap();
            for ((left, right), (top, bottom)) in windows.clone() {
                let window = Roi::new(left, top, right - left, bottom - top);
                let mut next = top;
                let result = ours.decode(&bytes, &header, window, 1, &mut |rows| {
                    for (y, row) in rows.iter() {
                        assert_eq!(y, next, "{name} {window} {sampling:?}");
                        let expected = &whole[3 * (SIDE * y) as usize..][..3 * SIDE as usize];
                        let expected = &expected[3 * left as usize..3 * right as usize];
                        assert_eq!(row, expected, "row {y}, {name} {window} {sampling:?}");
                        next += 1;
                    }
                });
                result.unwrap();
                assert_eq!(next, bottom, "{name} {window} {sampling:?}");
                let by = ours.jpeg_by();
                assert_eq!(by, Some(JpegBy::Feedwater), "{name} {window} {sampling:?}");
                count += 1;
            }
        }
    }
    count
}

/// Tests ranges of columns, each with some ranges of rows, and ranges of rows, each with some
/// ranges of columns.
#[test]
fn ranges_of_columns_and_of_rows_have_the_same_pixels() {
    let some: Vec<Range> = some_of(all(), 0).collect();
    let columns = some.iter().flat_map(|&columns| SOME.map(|rows| (columns, rows)));
    let rows = some.iter().flat_map(|&rows| SOME.map(|columns| (columns, rows)));
    let instructions = Decoders::jpeg_instructions();
    // The loader uses the widest instruction set, so this one is tested with all these windows.
    let widest = &instructions[instructions.len() - 1..];
    compare(widest, columns.chain(rows));
    // The other instruction sets differ only in the width of their vectors, so fewer windows
    // suffice.
    let [first, .., last] = SOME;
    let columns = some.iter().flat_map(|&columns| [first, last].map(|rows| (columns, rows)));
    compare(&instructions[..instructions.len() - 1], columns);
}

/// In tolerant mode, a file may lack its end-of-image marker. libjpeg-turbo reads ahead, so it
/// fails if the file ends too soon after the rows of the window. feedwater's decoder must give the
/// same pixels or the same error.
#[test]
fn windows_of_files_that_end_early_have_the_same_fault() {
    let mut outcomes = [0; 3];
    let all = [(GRAY, 0), (GRAY_2X2, 0), (S444, 0), (S422, 3), (S440, 2), (S411, 0), (S420, 0)];
    for (sampling, restart) in all {
        let bytes = Recipe { restart, ..Recipe::new(40, 45, sampling) }.make();
        let scan = bytes.windows(2).position(|it| it == [0xff, 0xda]).unwrap();
        for len in scan + 20..bytes.len() {
            let bytes = &bytes[..len];
            let Ok(header) = Header::parse_as(bytes, false) else { continue };
            for bottom in (1..=45).rev().step_by(if len % 4 == 0 { 4 } else { 11 }) {
                let window = Roi::new(3, bottom / 2, 30, bottom.div_ceil(2));
                let [ours, theirs] = [JpegDecoder::Auto, JpegDecoder::Libjpeg].map(|jpeg| {
                    let mut decoder = Decoders::new().strict(false).jpeg(jpeg);
                    let mut pixels = Vec::new();
                    let result = decoder.decode(bytes, &header, window, 1, &mut |rows| {
                        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
                    });
                    let result = result.map(|()| pixels).map_err(|error| error.to_string());
                    ((result, decoder.tolerated()), decoder.jpeg_by())
                });
                let faults = [&ours, &theirs].map(|it| it.0.0.as_ref().err());
                assert!(ours.0 == theirs.0, "{sampling:?} {len} {window} {faults:?}");
                let is_ours = ours.1 == Some(JpegBy::Feedwater);
                outcomes[if is_ours { 2 } else { usize::from(ours.0.0.is_ok()) }] += 1;
            }
        }
    }
    // All three outcomes occur often: errors, images decoded only by libjpeg-turbo, and images
    // decoded by feedwater's decoder.
    assert!(outcomes.iter().all(|count| *count > 50), "{outcomes:?}");
}

/// Tests all windows with each instruction set, which are 30.3 million windows per set. `cargo test --release
/// -p feedwater-tests --test images windows -- --ignored --nocapture` takes two to fifteen minutes
/// per set.
#[test]
#[ignore = "takes half an hour"]
fn all_windows_have_the_same_pixels() {
    // Starts with the widest instruction set, because the loader uses this one.
    for name in Decoders::jpeg_instructions().into_iter().rev() {
        let begin = Instant::now();
        let windows = all().flat_map(|rows| all().map(move |columns| (columns, rows)));
        let count = compare(&[name], windows);
        println!("{name}: {count} windows in {:.0} s", begin.elapsed().as_secs_f64());
    }
}
