//! Corrupt and malicious files: each gives pixels or a specific error, and the next valid image is
//! decoded correctly.

#[allow(dead_code, reason = "not every test needs every recipe")]
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{some_of, words::has_words};
use crate::jpeg::{Recipe, Scans};
use feedwater::error::{DataError, Reason};
use feedwater::internals::decode::{Decoders, Rows};
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;
use proptest::prelude::*;

/// Limit on the number of pixels of an image in these tests.
const MAX_PIXELS: u64 = 1 << 14;

fn golden() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/decode");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension != "rgb"));
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// A decoder that is tested with corrupt files, together with a valid image. After every failure,
/// the decoder must still reproduce the valid image's pixels.
struct Patient {
    decoder: Decoders,
    good: Vec<u8>,
    pixels: Vec<u8>,
}

impl Patient {
    fn new() -> Self {
        let good = Recipe::new(33, 21, &[(2, 2), (1, 1), (1, 1)]).make();
        let pixels = decode(&mut Decoders::new(), &good, 1).unwrap();
        Self { decoder: Decoders::new(), good, pixels }
    }

    fn try_decode(&mut self, bytes: &[u8]) -> Result<Vec<u8>, DataError> {
        let result = decode(&mut self.decoder, bytes, 1);
        if result.is_err() {
            let again = decode(&mut self.decoder, &self.good, 1).unwrap();
            assert!(again == self.pixels, "the valid image differs after a failed one");
        }
        if let Err(fault) = &result {
            assert!(!fault.problem.is_empty());
        }
        result
    }
}

fn decode(decoder: &mut Decoders, bytes: &[u8], reduction: u32) -> Result<Vec<u8>, DataError> {
    let header = Header::parse(bytes)?;
    if header.size.pixels() > MAX_PIXELS {
        return Err(DataError::new(Reason::Oversized, "over the limit of this test"));
    }
    let window = header.size.reduced(reduction).window();
    let mut pixels = Vec::new();
    decoder.decode(bytes, &header, window, reduction, &mut |rows| {
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    })?;
    Ok(pixels)
}

#[test]
fn a_file_truncated_anywhere_is_reported_as_truncated() {
    let mut patient = Patient::new();
    for (number, (path, bytes)) in golden().into_iter().enumerate() {
        let whole = patient.try_decode(&bytes).unwrap();
        for length in some_of(0..bytes.len(), number) {
            match patient.try_decode(&bytes[..length]) {
                Err(fault) if length == 0 => assert_eq!(fault.reason, Reason::Empty),
                Err(fault) => {
                    assert_eq!(
                        fault.reason,
                        Reason::Truncated,
                        "{length} bytes of {}: {fault}",
                        path.display()
                    );
                }
                // Some formats have bytes after the last row, which may be missing. In a text PNM,
                // truncation within the last number leaves a shorter number, which is valid.
                Ok(pixels) => {
                    let name = path.file_name().unwrap().to_str().unwrap();
                    let text = name.starts_with("pnm-") && name.contains("-text");
                    let may_lack = [".png", ".bmp", ".gif", ".tif"];
                    let may_lack = may_lack.iter().any(|ending| name.ends_with(ending));
                    assert!(text || may_lack, "{length} bytes of {name}");
                    let sure = whole.len() - if text { 3 } else { 0 };
                    assert!(pixels[..sure] == whole[..sure], "{length} bytes of {name}");
                }
            }
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_gives_pixels_or_an_error() {
    let mut patient = Patient::new();
    for (number, (_, bytes)) in golden().into_iter().enumerate() {
        for at in some_of(0..bytes.len(), number) {
            let mut bytes = bytes.clone();
            bytes[at] ^= [0x01, 0x80, 0xFF][at / 3 % 3];
            let _ = patient.try_decode(&bytes);
        }
    }
}

#[test]
fn every_coding_process_survives_flipped_bytes() {
    let mut patient = Patient::new();
    for scans in [Scans::Interleaved, Scans::Separate, Scans::Progressive] {
        let bytes =
            Recipe { scans, restart: 2, ..Recipe::new(33, 21, &[(2, 2), (2, 1), (1, 2)]) }.make();
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            let _ = patient.try_decode(&bytes);
        }
    }
}

#[test]
fn damage_in_a_scan_is_reported() {
    let mut patient = Patient::new();
    let file = Recipe::new(120, 90, &[(2, 2), (1, 1), (1, 1)]).make();
    // The file has an early end-of-image marker, after which libjpeg would fill the remaining rows
    // with grey.
    let early = [&file[..file.len() * 3 / 4], &[0xFF, 0xD9]].concat();
    let fault = patient.try_decode(&early).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    // libjpeg's message.
    assert!(fault.problem.contains("premature end of data segment"), "{fault}");
    // The file has restart markers out of order.
    let mut file = Recipe { restart: 4, ..Recipe::new(120, 90, &[(1, 1)]) }.make();
    let marker = file.windows(2).position(|pair| pair == [0xFF, 0xD2]).unwrap();
    file[marker + 1] = 0xD5;
    assert_eq!(patient.try_decode(&file).unwrap_err().reason, Reason::Corrupt);
}

#[test]
fn damage_below_the_window_is_not_detected() {
    let file = Recipe::new(120, 90, &[(2, 2), (1, 1), (1, 1)]).make();
    let early = [&file[..file.len() * 3 / 4], &[0xFF, 0xD9]].concat();
    let header = Header::parse(&early).unwrap();
    let mut decoder = Decoders::new();
    let mut rows = 0;
    decoder
        .decode(&early, &header, Roi::new(0, 0, 120, 30), 1, &mut |it| rows += it.count)
        .unwrap();
    assert_eq!(rows, 30);
}

#[test]
fn tables_of_one_file_are_not_used_for_the_next() {
    let mut patient = Patient::new();
    let file = patient.good.clone();
    // libjpeg's message.
    for (marker, words) in [(0xDB, "Quantization table"), (0xC4, "")] {
        let at = file.windows(2).position(|pair| pair == [0xFF, marker]).unwrap();
        let length = usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        let lacking = [&file[..at], &file[at + 2 + length..]].concat();
        let fresh = decode(&mut Decoders::new(), &lacking, 1);
        patient.try_decode(&file).unwrap();
        let later = patient.try_decode(&lacking);
        assert_eq!(later, fresh, "the outcome must not depend on earlier images");
        assert!(later.unwrap_err().problem.contains(words));
    }
}

#[test]
fn files_that_libjpeg_does_not_decode_are_unsupported() {
    let mut patient = Patient::new();
    let file = patient.good.clone();
    let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    for (offset, value, word) in [(4, 12, "12"), (1, 0xC3, "lossless"), (1, 0xC5, "hierarchical")] {
        let mut file = file.clone();
        file[frame + offset] = value;
        let fault = patient.try_decode(&file).unwrap_err();
        assert_eq!(fault.reason, Reason::Unsupported);
        assert!(has_words(&fault.problem, &[word]), "{fault}");
    }
    let two = Recipe::new(20, 20, &[(1, 1); 2]).make();
    let fault = patient.try_decode(&two).unwrap_err();
    assert_eq!(fault.reason, Reason::Unsupported);
    assert!(has_words(&fault.problem, &["components"]), "{fault}");
}

#[test]
fn harmless_oddities_pass() {
    let mut patient = Patient::new();
    let good = patient.good.clone();
    let scan = good.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap();
    // The file has stray bytes between segments, fill bytes, and garbage after its end.
    let odd = [&good[..scan], &[0, 1, 2, 0xFF, 0xFF], &good[scan..], &[7; 100]].concat();
    assert_eq!(patient.try_decode(&odd).unwrap(), patient.pixels);
}

#[test]
fn endless_scans_are_errors() {
    let recipe = Recipe { scans: Scans::Repeated(400), ..Recipe::new(16, 16, &[(1, 1)]) };
    let mut patient = Patient::new();
    assert!(patient.try_decode(&recipe.make()).is_ok());
    let fault =
        patient.try_decode(&Recipe { scans: Scans::Repeated(600), ..recipe }.make()).unwrap_err();
    assert_eq!(fault.reason, Reason::Unsupported);
    assert!(fault.problem.contains("scans"), "{fault}");
}

#[test]
fn a_claim_of_a_huge_size_allocates_nothing_for_it() {
    let mut file = Recipe::new(16, 16, &[(1, 1), (1, 1), (1, 1)]).make();
    let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    file[frame + 5..frame + 9].copy_from_slice(&[0xFF, 0xDC, 0xFF, 0xDC]);
    let header = Header::parse(&file).unwrap();
    assert_eq!(header.size.pixels(), 65500 * 65500);
    let mut decoder = Decoders::new();
    let fault =
        decoder.decode(&file, &header, Roi::new(0, 0, 65500, 1), 1, &mut |_| ()).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    // The decoder may allocate its tables, and eight rows of three components (the smallest MCUs
    // have 8x8 pixels).
    assert!(decoder.capacity_bytes() <= 30 * 65500, "{}", decoder.capacity_bytes());
    // Now the file claims sizes beyond libjpeg's own limit.
    file[frame + 5..frame + 9].copy_from_slice(&[0xFF; 4]);
    let header = Header::parse(&file).unwrap();
    let fault = decoder.decode(&file, &header, Roi::new(0, 0, 1, 1), 1, &mut |_| ()).unwrap_err();
    assert_eq!(fault.reason, Reason::Unsupported);
}

#[test]
fn a_panic_of_the_caller_passes_through() {
    let mut patient = Patient::new();
    let header = Header::parse(&patient.good).unwrap();
    let good = patient.good.clone();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let sink = &mut |_: Rows<'_>| std::panic::resume_unwind(Box::new("mine"));
        patient.decoder.decode(&good, &header, header.size.window(), 1, sink)
    }));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"mine"));
    assert_eq!(patient.try_decode(&good).unwrap(), patient.pixels);
}

proptest! {
    #[test]
    fn mutated_files_give_pixels_or_an_error(
        index in 0usize..1000,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        reduction in prop::sample::select(vec![1u32, 2, 4, 8]),
    ) {
        let files = golden();
        let mut bytes = files[index % files.len()].1.clone();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let reduces = Header::parse(&bytes).is_ok_and(|header| header.format.reductions().contains(&reduction));
        let _ = decode(&mut Decoders::new(), &bytes, if reduces { reduction } else { 1 });
    }
}

/// A second frame header after the last row is an error, whether it is complete or cut off by the
/// end of the file.
#[test]
fn a_second_frame_header_behind_the_last_row_is_corrupt() {
    for sampling in [&[(1u8, 1u8)][..], &[(1, 1); 3], &[(2, 2), (1, 1), (1, 1)]] {
        for restart in [0, 2] {
            let file = Recipe { restart, ..Recipe::new(40, 30, sampling) }.make();
            let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
            let length = 2 + usize::from(u16::from_be_bytes([file[frame + 2], file[frame + 3]]));
            for len in 2..=length {
                let (rows, end) = file.split_at(file.len() - 2);
                let twice = [rows, &file[frame..frame + len], end].concat();
                for strict in [true, false] {
                    let error = decode(&mut Decoders::new().strict(strict), &twice, 1).unwrap_err();
                    assert_eq!(
                        error.reason,
                        Reason::Corrupt,
                        "{len} bytes of {sampling:?}: {error}"
                    );
                }
            }
        }
    }
}
