//! feedwater's JPEG decoder gives the same rows as libjpeg-turbo, with every instruction set of
//! this CPU.

use feedwater::error::{DataError, Reason};
use feedwater::internals::decode::{Decoders, JpegBy, JpegDecoder, JpegRefusal, Rows, simd};
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;
use feedwater_tools::synth::optimized;

use crate::jpeg::{Recipe, Scans};

pub const GRAY: &[(u8, u8)] = &[(1, 1)];
pub const S444: &[(u8, u8)] = &[(1, 1), (1, 1), (1, 1)];
pub const S422: &[(u8, u8)] = &[(2, 1), (1, 1), (1, 1)];
pub const S440: &[(u8, u8)] = &[(1, 2), (1, 1), (1, 1)];
pub const S411: &[(u8, u8)] = &[(4, 1), (1, 1), (1, 1)];
pub const S420: &[(u8, u8)] = &[(2, 2), (1, 1), (1, 1)];

/// Sampling factors of all subsamplings that feedwater's decoder supports.
pub const SAMPLINGS: [&[(u8, u8)]; 6] = [GRAY, S444, S422, S440, S411, S420];

/// Whether chroma has half the width of luma.
pub fn is_half(sampling: &[(u8, u8)]) -> bool {
    sampling == S422 || sampling == S420
}

/// Returns the bytes of all rows of the window, and which decoder produced them.
pub fn decoded(
    decoders: &mut Decoders,
    bytes: &[u8],
    window: Roi,
    reduction: u32,
) -> (Result<Vec<u8>, DataError>, Option<JpegBy>) {
    let header = Header::parse_as(bytes, false).unwrap();
    let mut pixels = Vec::new();
    let sink = &mut |rows: Rows<'_>| {
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    };
    let result = decoders.decode(bytes, &header, window, reduction, sink);
    (result.map(|()| pixels), decoders.jpeg_by())
}

/// Whether libjpeg-turbo was built with vector code. Its C code returns other pixels if a sum
/// exceeds 16 bits, which does not happen with intact images.
pub fn is_vector_code() -> bool {
    if !simd() {
        eprintln!("skipped: libjpeg-turbo was built without vector code");
    }
    simd()
}

/// Decodes the window with every instruction set, and compares the pixels with libjpeg-turbo's.
/// Returns which JPEG decoder was used, which is the same one for all instruction sets.
pub fn compare(recipe: &Recipe, bytes: &[u8], window: Roi) -> JpegBy {
    compare_reduced(recipe, bytes, window, 1)
}

/// Like [`compare`], for a window of an image that the decoder reduces.
pub fn compare_reduced(recipe: &Recipe, bytes: &[u8], window: Roi, reduction: u32) -> JpegBy {
    let libjpeg = &mut Decoders::new().jpeg(JpegDecoder::Libjpeg);
    let (expected, by) = decoded(libjpeg, bytes, window, reduction);
    assert_eq!(by, Some(JpegBy::Libjpeg), "{recipe:?}");
    let mut all = None;
    for name in Decoders::jpeg_instructions() {
        let mut ours = Decoders::new().with_jpeg_instructions(name).unwrap();
        // For a small image, the decoder builds larger tables only when it decodes a second time,
        // so both runs are compared.
        for time in 0..2 {
            let (found, by) = decoded(&mut ours, bytes, window, reduction);
            let same = found.as_ref().ok() == expected.as_ref().ok();
            assert!(same, "{name} {window} 1/{reduction} {time} {recipe:?}");
            assert!(all.is_none_or(|all| all == by), "{name} {window} {time} {recipe:?}");
            all = Some(by);
        }
    }
    all.flatten().unwrap()
}

/// Returns recipes of images whose coefficients exceed all normal bounds.
pub fn extreme() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for sampling in SAMPLINGS {
        for (step, most_bits) in [(1, 10), (4, 10), (7, 10), (2, 12), (255, 15)] {
            for (width, height) in [(70, 45), (33, 64), (16, 16), (130, 17)] {
                let seed = recipes.len() as u64 + 1;
                let restart = [0, 1, 5][seed as usize % 3];
                let new = Recipe::new(width, height, sampling);
                recipes.push(Recipe { step, most_bits, restart, seed, ..new });
            }
        }
    }
    recipes
}

/// The coefficients are so large that sums of the inverse transform wrap and saturate. If
/// libjpeg-turbo's code paths disagree about an image, feedwater leaves the image to libjpeg-turbo.
#[test]
fn any_coefficients_have_the_same_pixels() {
    if !is_vector_code() {
        return;
    }
    let (mut refused, mut all) = (0, 0);
    for recipe in extreme() {
        let bytes = recipe.make();
        let (width, height) = (u32::from(recipe.width), u32::from(recipe.height));
        for window in [Roi::new(0, 0, width, height), Roi::new(width / 3, height / 4, 7, 9)] {
            let by = compare(&recipe, &bytes, window);
            refused += u32::from(by == JpegBy::Refused(JpegRefusal::Data));
            all += 1;
        }
    }
    assert!(refused > 0 && refused < all / 2, "{refused} of {all}");
}

/// Tests every width and every height from 1 to 40, each with one length of the other side, and
/// windows in every corner.
#[test]
fn every_size_has_the_same_pixels() {
    for sampling in SAMPLINGS {
        for width in 1..=40 {
            let height = 1 + (width * 7) % 40;
            for (width, height) in [(width, height), (height, width)] {
                let recipe = Recipe { restart: width % 4, ..Recipe::new(width, height, sampling) };
                let bytes = recipe.make();
                // Two of three files have optimal Huffman tables, like nearly all photographs.
                let bytes = if width % 3 == 0 { bytes } else { optimized(&bytes).unwrap() };
                let (width, height) = (u32::from(width), u32::from(height));
                let by = compare(&recipe, &bytes, Roi::new(0, 0, width, height));
                let narrow = is_half(sampling) && width <= 4;
                let expected =
                    if narrow { JpegBy::Refused(JpegRefusal::Sampling) } else { JpegBy::Feedwater };
                assert_eq!(by, expected, "{recipe:?}");
                let (x, y) = (width / 2, height / 2);
                for window in [
                    Roi::new(x, 0, width - x, height - y),
                    Roi::new(0, y, x + 1, height - y),
                    Roi::new(x, y, 1, 1),
                    Roi::new(width - 1, height - 1, 1, 1),
                ] {
                    compare(&recipe, &bytes, window);
                }
            }
        }
    }
}

#[test]
fn other_images_are_left_to_libjpeg_turbo_with_a_reason() {
    let s441: &[(u8, u8)] = &[(1, 4), (1, 1), (1, 1)];
    let large: &[(u8, u8)] = &[(2, 2), (2, 2), (2, 2)];
    let inks: &[(u8, u8)] = &[(1, 1), (1, 1), (1, 1), (1, 1)];
    let new = |sampling| Recipe::new(40, 30, sampling);
    for (recipe, refusal) in [
        (new(s441), JpegRefusal::Sampling),
        (new(large), JpegRefusal::Sampling),
        (new(inks), JpegRefusal::Color),
        (Recipe { adobe: Some(0), ..new(S444) }, JpegRefusal::Color),
        (Recipe { scans: Scans::Separate, ..new(S420) }, JpegRefusal::Scans),
        (Recipe { scans: Scans::OnlyDc, ..new(S420) }, JpegRefusal::Progressive),
        (Recipe { scans: Scans::Repeated(2), ..new(S420) }, JpegRefusal::Progressive),
    ] {
        let bytes = recipe.make();
        let window = Roi::new(0, 0, 40, 30);
        assert_eq!(compare(&recipe, &bytes, window), JpegBy::Refused(refusal), "{recipe:?}");
        let only = &mut Decoders::new().jpeg(JpegDecoder::Feedwater);
        let error = decoded(only, &bytes, window, 1).0.unwrap_err();
        assert_eq!(error.reason, Reason::Unsupported);
        let name = JpegBy::Refused(refusal).name();
        assert!(error.problem.contains(name), "{error}");
    }
}

/// Truncates a file after every byte, and changes each of its bytes. feedwater's decoder and
/// libjpeg-turbo give the same rows or the same error, and tolerate the same damage.
/// Any number of bytes ff may precede a marker (T.81, B.1.1.2).
#[test]
fn fill_bytes_before_markers_are_skipped() {
    for restart in [0, 2] {
        let recipe = Recipe { restart, ..Recipe::new(40, 30, S420) };
        let bytes = recipe.make();
        let is_marker =
            |at: usize| bytes[at] == 0xff && matches!(bytes[at + 1], 0xd0..=0xd7 | 0xd9);
        let scan = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
        let mut filled = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            if at + 1 < bytes.len() && at > scan && is_marker(at) {
                filled.extend([0xff; 3]);
            }
            filled.push(*byte);
        }
        assert_eq!(filled.len(), bytes.len() + 3 * (1 + usize::from(restart)));
        let window = Roi::new(3, 5, 30, 20);
        assert_eq!(compare(&recipe, &filled, window), JpegBy::Feedwater, "{restart}");
    }
}

#[test]
fn damage_is_judged_by_libjpeg_turbo() {
    if !is_vector_code() {
        return;
    }
    let recipe = Recipe { restart: 3, ..Recipe::new(40, 35, S420) };
    let refused = damaged(&recipe.make(), Roi::new(0, 0, 40, 35), 1);
    assert!(refused > 100, "{refused}");
}

/// Compares feedwater's decoder with libjpeg-turbo on damaged versions of a file. Returns how many
/// of them feedwater's decoder refused only after the header.
pub fn damaged(bytes: &[u8], window: Roi, reduction: u32) -> u32 {
    let size = Header::parse(bytes).unwrap().size;
    let mut refused = 0;
    for at in 2..bytes.len() {
        for change in [None, Some(0xff), Some(bytes[at] ^ 0x10), Some(0)] {
            let mut damaged = bytes.to_vec();
            match change {
                Some(byte) => damaged[at] = byte,
                None => damaged.truncate(at),
            }
            let Ok(header) = Header::parse_as(&damaged, false) else { continue };
            if header.size != size {
                continue;
            }
            for strict in [true, false] {
                let run = |jpeg| {
                    let mut decoders = Decoders::new().strict(strict).jpeg(jpeg);
                    let (result, by) = decoded(&mut decoders, &damaged, window, reduction);
                    let result = result.map_err(|error| (error.reason, error.problem));
                    ((result, decoders.tolerated()), by)
                };
                let (ours, by) = run(JpegDecoder::Auto);
                let (theirs, _) = run(JpegDecoder::Libjpeg);
                assert!(ours == theirs, "{at} {change:?} {by:?}: {:?}", (ours.1, theirs.1));
                refused += u32::from(by == Some(JpegBy::Refused(JpegRefusal::Data)));
            }
        }
    }
    refused
}
