//! Tests `Header::verify`: well-formed files pass, every single contradiction is an error, and no
//! file causes a panic.

#[allow(dead_code, reason = "not every test needs every recipe")]
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::common::words::has_words;
use crate::jpeg::{Recipe, Scans};
use feedwater::error::{DataError, Reason};
use feedwater::internals::decode::Decoders;
use feedwater::internals::header::{Header, JpegLayout, Sampling};
use feedwater_tools::synth::{self, Files, Settings, Uniform};
use proptest::prelude::*;

const S420: [(u8, u8); 3] = [(2, 2), (1, 1), (1, 1)];

fn verify(bytes: &[u8]) -> Result<(), DataError> {
    Header::parse(bytes)?.verify(bytes)
}

fn recipe() -> Recipe {
    Recipe::new(40, 30, &S420)
}

/// Returns files that must pass: all golden files, files of this project's encoder, and recipes.
pub fn good() -> &'static [(String, Vec<u8>)] {
    static FILES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(make_good);
    &FILES
}

fn make_good() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/decode");
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "jpg"))
        .map(|path| (path.display().to_string(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    for progressive in [false, true] {
        let uniform = Uniform { width: 90, height: 70, progressive, ..Uniform::default() };
        let settings = Settings { files: Files::Uniform(uniform), ..Settings::uniform(1, 90, 70) };
        let folder = tempfile::tempdir().unwrap();
        synth::write(folder.path(), &settings, |_| ()).unwrap();
        let file = fs::read(folder.path().join(settings.file(0))).unwrap();
        files.push((format!("synth, progressive {progressive}"), file));
    }
    for scans in [Scans::Interleaved, Scans::Separate, Scans::Progressive, Scans::OnlyDc] {
        for restart in [0, 1, 3] {
            for sampling in
                [&S420[..], &[(1, 1)], &[(2, 1)], &[(2, 2), (2, 1), (1, 2)], &[(1, 1); 4]]
            {
                let recipe = Recipe { scans, restart, ..Recipe::new(40, 30, sampling) };
                files.push((format!("{recipe:?}"), recipe.make()));
            }
        }
    }
    files
}

/// Returns the position of the first marker `marker`.
pub fn find(file: &[u8], marker: u8) -> usize {
    file.windows(2).position(|pair| pair == [0xFF, marker]).unwrap()
}

pub fn segment(marker: u8, body: &[u8]) -> Vec<u8> {
    [&[0xFF, marker], &(body.len() as u16 + 2).to_be_bytes() as &[u8], body].concat()
}

/// Inserts bytes at a position.
pub fn insert(file: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    [&file[..at], bytes, &file[at..]].concat()
}

/// Changes one byte. `offset` counts from the marker of its segment.
fn change(file: &[u8], marker: u8, offset: usize, value: u8) -> Vec<u8> {
    let mut file = file.to_vec();
    let at = find(&file, marker) + offset;
    file[at] = value;
    file
}

fn without(file: &[u8], marker: u8) -> Vec<u8> {
    let at = find(file, marker);
    let length = usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    [&file[..at], &file[at + 2 + length..]].concat()
}

/// Checks that `verify` refuses the file `bytes` for this reason, with a message that contains
/// these values. The header is parsed from the unchanged file `good`, so only `verify` can fail.
#[track_caller]
fn refuse(good: &[u8], bytes: &[u8], reason: Reason, values: &[&str]) {
    let error = Header::parse(good).unwrap().verify(bytes).unwrap_err();
    assert_eq!(error.reason, reason, "{error}");
    assert!(has_words(&error.problem, values), "{error}, expected {values:?}");
}

#[track_caller]
fn corrupt(good: &[u8], bytes: &[u8], values: &[&str]) {
    refuse(good, bytes, Reason::Corrupt, values);
}

#[test]
fn well_formed_files_pass() {
    for (name, bytes) in good() {
        verify(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let followed = [&bytes[..], &[0xFF, 0xD8, 0xFF, 7]].concat();
        verify(&followed).unwrap();
    }
}

#[test]
fn a_file_truncated_anywhere_is_reported_as_truncated() {
    for (name, bytes) in good() {
        let header = Header::parse(bytes).unwrap();
        let end = bytes.windows(2).rposition(|pair| pair == [0xFF, 0xD9]).unwrap();
        for length in 2..end + 2 {
            let error = header.verify(&bytes[..length]).unwrap_err();
            assert_eq!(error.reason, Reason::Truncated, "{length} bytes of {name}: {error}");
        }
    }
}

#[test]
fn unknown_formats_are_unsupported() {
    let good = recipe().make();
    for (offset, value) in [(1, 0xC3), (1, 0xC5), (1, 0xC9), (4, 12)] {
        let file = change(&good, 0xC0, offset, value);
        refuse(&file, &file, Reason::Unsupported, &[]);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/decode");
    let file = fs::read(folder.join("png-orientation-6.png")).unwrap();
    refuse(&file, &file, Reason::Unsupported, &["JPEG"]);
}

#[test]
fn markers_have_their_places() {
    let good = recipe().make();
    let (frame, scan) = (find(&good, 0xC0), find(&good, 0xDA));
    corrupt(&good, &insert(&good, scan, &[0xFF, 0xD8]), &["start-of-image"]);
    corrupt(&good, &insert(&good, scan, &[0xFF, 0xD0]), &["restart"]);
    corrupt(&good, &insert(&good, scan, &[0x00]), &[&scan.to_string()]);
    corrupt(&good, &insert(&good, scan, &segment(0xDC, &[0, 30])), &["ff dc"]);
    corrupt(&good, &insert(&good, scan, &segment(0xC3, &good[frame + 4..frame + 19])), &["ff c3"]);
    let second = good[frame..frame + 19].to_vec();
    corrupt(&good, &insert(&good, scan, &second), &["frame"]);
    corrupt(&good, &without(&good, 0xC0), &["frame"]);
    corrupt(&good, &insert(&good, scan, &[0xFF, 0xFE, 0, 1]), &["1"]);
    corrupt(&good, &insert(&good, scan, &[0xFF, 0xD9]), &["end-of-image"]);
    corrupt(&good, b"\0\0", &["start-of-image"]);
    // The bytes 0xFF before a marker are fill bytes, so they are not a marker.
    Header::parse(&good).unwrap().verify(&insert(&good, scan, &[0xFF, 0xFF])).unwrap();
}

#[test]
fn the_frame_must_match_the_parsed_header() {
    let good = recipe().make();
    for (offset, value) in [(5, 1), (8, 41), (10, 9), (11, 0x21)] {
        corrupt(&good, &change(&good, 0xC0, offset, value), &["frame"]);
    }
    corrupt(&good, &change(&good, 0xC0, 1, 0xC1), &["frame"]);
    corrupt(&good, &change(&good, 0xC0, 12, 4), &["4", "0", "3"]);
    let twins = change(&good, 0xC0, 13, 1);
    corrupt(&twins, &twins, &["1"]);
}

#[test]
fn quantisation_tables_are_whole() {
    let good = recipe().make();
    corrupt(&good, &without(&good, 0xDB), &["table", "0"]);
    corrupt(&good, &change(&good, 0xDB, 4, 0x04), &["04"]);
    corrupt(&good, &change(&good, 0xDB, 4, 0x10), &["10"]);
    corrupt(&good, &change(&good, 0xDB, 68, 0), &["0"]);
    corrupt(&good, &insert(&good, 2, &segment(0xDB, &[0; 30])), &["29"]);
    let late = insert(&without(&good, 0xDB), good.len() - 2 - 69, &segment(0xDB, &[8; 65]));
    corrupt(&good, &late, &["table", "0"]);
}

#[test]
fn huffman_tables_are_whole() {
    let good = recipe().make();
    let dc = |counts: &[(usize, u8)], symbols: &[u8]| {
        let mut body = vec![0; 17];
        counts.iter().for_each(|&(length, count)| body[length] = count);
        insert(&good, 2, &segment(0xC4, &[&body, symbols].concat()))
    };
    let accept = |file: &[u8]| Header::parse(&good).unwrap().verify(file).unwrap();
    accept(&dc(&[(1, 1), (2, 1), (3, 1)], &[0, 1, 2]));
    corrupt(&good, &dc(&[(1, 2)], &[0, 1]), &["Huffman"]);
    corrupt(&good, &dc(&[(1, 1), (2, 1), (3, 3)], &[0; 5]), &["Huffman"]);
    corrupt(&good, &dc(&[(16, 255)], &[0; 254]), &["255"]);
    corrupt(&good, &dc(&[(4, 1)], &[12]), &["0c"]);
    corrupt(&good, &insert(&good, 2, &segment(0xC4, &[0; 9])), &["16"]);
    corrupt(&good, &change(&good, 0xC4, 4, 0x20), &["20"]);
    corrupt(&good, &change(&good, 0xC4, 4, 0x02), &["02"]);
    corrupt(&good, &change(&good, 0xC4, 4, 0x01), &["DC", "0"]);
    let ac = |symbol: u8| {
        let mut body = vec![0; 18];
        (body[0], body[4], body[17]) = (0x10, 1, symbol);
        // The inserted table precedes the table that the scan uses. So it is checked, but not used.
        insert(&good, 2, &segment(0xC4, &body))
    };
    accept(&ac(0xF0));
    accept(&ac(0x5A));
    corrupt(&good, &ac(0x5B), &["5b"]);
    corrupt(&good, &ac(0x10), &["10"]);
    // In a progressive scan, the symbol 0x10 is valid, because it ends several blocks.
    let progressive = Recipe { scans: Scans::Progressive, ..recipe() }.make();
    let mut body = vec![0; 18];
    (body[0], body[4], body[17]) = (0x11, 1, 0x10);
    let header = Header::parse(&progressive).unwrap();
    header.verify(&insert(&progressive, 2, &segment(0xC4, &body))).unwrap();
}

#[test]
fn scan_headers_are_legal() {
    let good = recipe().make();
    let scan = |offset, value| change(&good, 0xDA, offset, value);
    corrupt(&good, &scan(4, 5), &["10"]);
    corrupt(&good, &scan(5, 9), &["9"]);
    corrupt(&good, &scan(7, 1), &["1"]);
    corrupt(&good, &scan(6, 0x20), &["DC", "2"]);
    corrupt(&good, &scan(6, 0x01), &["AC", "1"]);
    corrupt(&good, &scan(6, 0xF0), &["DC", "15"]);
    corrupt(&good, &scan(11, 1), &["1", "63"]);
    corrupt(&good, &scan(12, 62), &["0", "62"]);
    corrupt(&good, &scan(13, 0x10), &["63", "1", "0"]);
    let large = Recipe::new(40, 30, &[(4, 2), (2, 1), (1, 1)]).make();
    corrupt(&large, &large, &["11", "MCU"]);
    let separate = Recipe { scans: Scans::Separate, ..recipe() }.make();
    corrupt(&separate, &change(&separate, 0xDA, 5, 2), &["0", "63"]);
}

#[test]
fn progressive_scans_must_be_in_order() {
    let good = Recipe { scans: Scans::Progressive, ..recipe() }.make();
    let scans: Vec<usize> =
        (0..good.len() - 1).filter(|&at| good[at..at + 2] == [0xFF, 0xDA]).collect();
    assert_eq!(scans.len(), 8);
    let changed = |scan: usize, offset: usize, value: u8| {
        let mut file = good.clone();
        file[scans[scan] + offset] = value;
        file
    };
    // The first scan (DC) and the last one (the lowest bit of DC) have three components. Each of
    // the six others has one component.
    corrupt(&good, &changed(0, 12, 5), &["0", "5"]);
    corrupt(&good, &changed(0, 13, 0x0E), &["0", "14"]);
    corrupt(&good, &changed(0, 13, 0x31), &["3", "1"]);
    corrupt(&good, &changed(1, 7, 6), &["6", "5"]);
    corrupt(&good, &changed(1, 8, 64), &["1", "64"]);
    corrupt(&good, &changed(1, 9, 0x10), &["1", "5"]);
    corrupt(&good, &changed(4, 7, 5), &["5", "63"]);
    corrupt(&good, &changed(7, 13, 0x21), &["0"]);
    let early = [&good[..scans[0]], &good[scans[1]..]].concat();
    corrupt(&good, &early, &["AC", "DC"]);
    let repeated = Recipe { scans: Scans::Repeated(3), ..Recipe::new(16, 16, &[(1, 1)]) }.make();
    corrupt(&repeated, &repeated, &["1", "63"]);
}

#[test]
fn restart_markers_come_in_order_and_in_number() {
    let good = Recipe { restart: 1, ..Recipe::new(40, 40, &[(1, 1)]) }.make();
    let place = |number: u8| find(&good, 0xD0 + number);
    let mut file = good.clone();
    file[place(3) + 1] = 0xD5;
    corrupt(&good, &file, &["ff d5", "3"]);
    let lacking = [&good[..place(2)], &good[place(2) + 2..]].concat();
    corrupt(&good, &lacking, &["ff d3", "2"]);
    let end = good.len() - 2;
    corrupt(&good, &insert(&good, end, &[0xFF, 0xD0, 0x55]), &["restart"]);
    let early = [&good[..place(4)], &[0xFF, 0xD9]].concat();
    corrupt(&good, &early, &["ff d9", "4"]);
    corrupt(&good, &change(&good, 0xDD, 5, 2), &["restart"]);
    corrupt(&good, &without(&good, 0xDD), &["25"]);
    corrupt(&good, &insert(&good, 2, &segment(0xDD, &[1])), &["1"]);
}

#[test]
fn coded_data_holds_its_blocks() {
    let good = Recipe { restart: 1, ..Recipe::new(40, 40, &[(1, 1)]) }.make();
    let (first, second) = (find(&good, 0xD0), find(&good, 0xD1));
    let empty = [&good[..first + 2], &good[second..]].concat();
    corrupt(&good, &empty, &["0", "1"]);
    let data = &good[first + 2..second];
    let zeros = data.windows(2).filter(|pair| *pair == [0xFF, 0x00]).count();
    let coded = (data.len() - zeros + 210).to_string();
    corrupt(&good, &insert(&good, second, &[0x11; 210]), &[&coded, "1"]);
    // The frame header claims an image that is too large for the coded data.
    let mut huge = recipe().make();
    let frame = find(&huge, 0xC0);
    huge[frame + 5..frame + 9].fill(0xFF);
    corrupt(&huge, &huge, &["16777216"]);
    // Zeros that follow 0xFF as stuffing do not count as data.
    let stuffed = [&good[..first + 2], &[0xFF, 0x00], &good[second..]].concat();
    corrupt(&good, &stuffed, &["1"]);
}

/// Tests every flip of a single bit in a file. `verify` cannot detect a flip that gives another
/// valid file, for example with another value in a table. The decoder must decode such a file, or
/// return an error about its data.
#[test]
fn files_that_pass_with_a_flipped_bit_decode() {
    for restart in [0, 2] {
        let good = Recipe { restart, ..recipe() }.make();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut file = good.clone();
                file[at] ^= 1 << bit;
                let Ok(header) = Header::parse(&file) else { continue };
                if header.verify(&file).is_err() {
                    continue;
                }
                // The flipped bit belongs to a value of a table. Decoding gives pixels or an error
                // about the coded data.
                let window = header.size.window();
                let result = Decoders::new().decode(&file, &header, window, 1, &mut |_| ());
                let jpeg = header.jpeg.as_ref().unwrap();
                // The flip may give sampling factors that are legal but that libjpeg does not
                // support. No GPU route supports them either.
                if jpeg.sampling() != Sampling::Other
                    && let Err(DataError { reason, problem, .. }) = result
                {
                    assert_eq!(reason, Reason::Corrupt, "byte {at} bit {bit}: {problem}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn mutated_files_never_panic(
        index in 0usize..1000,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        doubled in proptest::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        let files = good();
        let (_, bytes) = &files[index % files.len()];
        let header = Header::parse(bytes).unwrap();
        let mut bytes = bytes.clone();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some((from, to)) = doubled {
            let part = bytes[from.index(bytes.len())..].to_vec();
            let to = to.index(bytes.len());
            bytes = insert(&bytes, to, &part);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let verified = header.verify(&bytes);
        let laid_out = header.layout(&bytes, true, &mut JpegLayout::default());
        prop_assert_eq!(verified.map_err(|it| it.problem), laid_out.map_err(|it| it.problem));
        let _ = verify(&bytes);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), full: bool) {
        let good = recipe().make();
        let header = Header::parse(&good).unwrap();
        let begin = if full { &good[..find(&good, 0xDA)] } else { &good[..2] };
        prop_assert!(header.verify(&[begin, &bytes].concat()).is_err());
    }
}
