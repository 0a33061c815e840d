//! Tests what the documentation of `RecordIo` promises, on files written by MXNet
//! (tests/golden/recordio.py) and on invalid records built here.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::common::words::has_words;
use crate::common::{config_error, position, refused_at};
use crate::read;

use feedwater::error::{Error, Reason};
use feedwater::internals::config::Pipeline;
use feedwater::source::custom::{Hints, Notes};
use feedwater::source::settings::{RecordIoLabel, RecordIoSettings, SourceSettings};
use feedwater::source::{ExclusionReason, RecordIo, Source};
use proptest::prelude::*;
use tempfile::TempDir;

const MAGIC: [u8; 4] = [0x0a, 0x23, 0xd7, 0xce];

fn golden(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)).unwrap()
}

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.rec");
    fs::write(&path, bytes).unwrap();
    (root, path)
}

fn with(bytes: &[u8], label: RecordIoLabel) -> Result<(TempDir, RecordIo), Error> {
    let (root, path) = file(bytes);
    let source = RecordIo::open(&[path], &RecordIoSettings { label })?;
    Ok((root, source))
}

fn open(bytes: &[u8]) -> Result<(TempDir, RecordIo), Error> {
    with(bytes, RecordIoLabel::One)
}

/// Checks that opening a file with these bytes is an error at byte `byte`, whose message contains
/// `values`.
#[track_caller]
fn refused(bytes: &[u8], byte: u64, values: &[&str]) {
    refused_at(open(bytes), "source.recordio", byte, values);
}

/// Encodes a record that has one part, with this flag, label and remaining bytes.
fn record(flag: u32, label: f32, rest: &[u8]) -> Vec<u8> {
    let data = [&flag.to_le_bytes()[..], &label.to_le_bytes(), &[0; 16], rest].concat();
    part(0, &data)
}

fn part(sort: u32, data: &[u8]) -> Vec<u8> {
    let mut part = [&MAGIC[..], &(sort << 29 | data.len() as u32).to_le_bytes(), data].concat();
    part.resize(part.len().next_multiple_of(4), 0);
    part
}

#[test]
fn files_written_by_mxnet_are_read_sample_by_sample() {
    let (root, source) = open(&golden("recordio/train.rec")).unwrap();
    assert_eq!(source.len(), 4);
    for (index, label) in [7, 0, -3, 1000].into_iter().enumerate() {
        assert_eq!(source.label(index as u64), label);
        assert_eq!(read(&source, index as u64).unwrap(), golden(&format!("records/{index}.jpg")));
    }
    let path = root.path().join("a.rec");
    assert_eq!(source.location(3), format!("{}[3]", path.display()));
    assert_eq!(source.largest_bytes(), Some(golden("records/3.jpg").len() as u64));
}

#[test]
fn a_record_in_parts_is_one_sample() {
    let (_root, source) = open(&golden("recordio/parts.rec")).unwrap();
    let image = golden("records/2.jpg");
    let padding = vec![0; image.len().next_multiple_of(4) - image.len()];
    let expected = [
        [b"abc", &MAGIC[..], b"not aligned"].concat(),
        [b"in 3", &MAGIC[..], b"parts of", &MAGIC, b"one record"].concat(),
        [MAGIC, MAGIC].concat(),
        [&image[..], &padding, &MAGIC, b"end"].concat(),
        b"whole".to_vec(),
    ];
    assert_eq!(source.len(), 5);
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(&read(&source, index as u64).unwrap(), expected, "{index}");
        assert_eq!(source.label(index as u64), index as i64);
    }
}

/// If four aligned bytes of a record equal the magic number, the writer splits the record there.
/// Such a split may also lie in the image header or the labels.
#[test]
fn parts_that_split_the_image_header_are_joined() {
    let data = [&2u32.to_le_bytes()[..], &[0; 4], &MAGIC, &[0; 4], &MAGIC, &[0; 4]].concat();
    let data = [&data[..], &3f32.to_le_bytes(), &MAGIC, b"image"].concat();
    let split =
        [part(1, &data[..8]), part(2, &data[12..16]), part(2, &data[20..28]), part(3, &data[32..])];
    let bytes = [split.concat(), record(0, 4.0, b"next")].concat();
    let (_root, source) = with(&bytes, RecordIoLabel::First).unwrap();
    assert_eq!([source.label(0), source.label(1)], [3, 4]);
    assert_eq!(read(&source, 0).unwrap(), b"image");
    assert_eq!(read(&source, 1).unwrap(), b"next");
}

#[test]
fn a_path_is_a_file_a_directory_or_a_pattern() {
    let (root, path) = file(&golden("recordio/train.rec"));
    fs::write(root.path().join("a.idx"), golden("recordio/train.idx")).unwrap();
    fs::write(root.path().join("b.rec"), record(0, 9.0, b"last")).unwrap();
    let open = |path: PathBuf| RecordIo::open(&[path], &RecordIoSettings::default()).unwrap();
    assert_eq!(open(path).len(), 4);
    for path in ["", "*.rec"] {
        let source = open(root.path().join(path));
        assert_eq!((source.len(), source.label(4)), (5, 9));
    }
    // Samples are in the order of the records in the file, not in the order of the index file.
    let text = String::from_utf8(golden("recordio/train.idx")).unwrap();
    let offsets: Vec<u64> =
        text.lines().map(|it| it.split_once('\t').unwrap().1.parse().unwrap()).collect();
    assert!(offsets.is_sorted() && offsets.len() == 4);
}

#[test]
fn a_label_is_an_integer_selected_by_the_settings() {
    let arrays = golden("recordio/arrays.rec");
    refused(&arrays, 700, &["3", "source.label", "\"first\"", "\"none\""]);
    let (_root, source) = with(&arrays, RecordIoLabel::First).unwrap();
    assert_eq!([source.label(0), source.label(1)], [5, 6]);
    assert_eq!(read(&source, 1).unwrap(), golden("records/1.jpg"));
    let (_root, source) = with(&arrays, RecordIoLabel::None).unwrap();
    assert_eq!([source.label(0), source.label(1)], [-1, -1]);
    assert_eq!(read(&source, 0).unwrap(), golden("records/0.jpg"));
    for label in [0.5, f32::NAN, f32::INFINITY, 16_777_216.0, -1e30] {
        let values = [&*label.to_string(), "source.label", "\"none\""];
        refused(&record(0, label, b"image"), 0, &values);
        assert_eq!(with(&record(0, label, b"image"), RecordIoLabel::None).unwrap().1.label(0), -1);
    }
    for label in [16_777_215.0, -16_777_215.0, -0.0] {
        assert_eq!(open(&record(0, label, b"image")).unwrap().1.label(0), label as i64);
    }
}

/// While a source is open, its table is not compared with the file again. Instead, the headers
/// before an image are compared when the image is read.
#[test]
fn a_file_that_is_rewritten_while_it_is_read_is_an_error_of_the_sample() {
    let old = [record(0, 1.0, b"the first image"), record(0, 2.0, b"second")].concat();
    let (_root, path) = file(&old);
    let handle = File::options().write(true).open(&path).unwrap();
    let rewrite = |bytes: &[u8]| {
        handle.write_all_at(bytes, 0).unwrap();
        handle.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    rewrite(&old);
    let source = RecordIo::open(&[path], &RecordIoSettings::default()).unwrap();
    // The first new file has a different label. The second one has records of different lengths
    // with the same sum.
    for new in [
        [record(0, 3.0, b"another picture"), record(0, 2.0, b"second")].concat(),
        [record(0, 1.0, b"another"), record(0, 2.0, b"the second image")].concat(),
    ] {
        assert_eq!(new.len(), old.len());
        rewrite(&new);
        assert_eq!(read(&source, 0), Err(Reason::Corrupt));
        rewrite(&old);
        assert_eq!(read(&source, 0).unwrap(), b"the first image");
        assert_eq!(read(&source, 1).unwrap(), b"second");
    }
}

#[test]
fn the_key_in_a_pipeline_file_is_recordio() {
    let text = "[source]\nrecordio = [\"a.rec\", \"b.rec\"]\nlabel = \"first\"\n";
    let settings = RecordIoSettings { label: RecordIoLabel::First };
    let pipeline = Pipeline::from_toml(text, "").unwrap();
    let paths = vec!["a.rec".into(), "b.rec".into()];
    assert_eq!(pipeline.source, SourceSettings::new::<RecordIo>(paths, settings));
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), "").unwrap();
    assert_eq!(again.source, pipeline.source);
}

/// Files of InsightFace begin with a record that has two numbers and no image. They end with more
/// such records, one for each identity.
#[test]
fn records_without_an_image_are_counted() {
    let range =
        |first: f32, end: f32| record(2, 0.0, &[first.to_le_bytes(), end.to_le_bytes()].concat());
    let file =
        [range(3.0, 4.0), record(0, 0.0, b"one"), record(0, 1.0, b"two"), range(1.0, 2.0)].concat();
    let (_root, source) = open(&file).unwrap();
    assert_eq!((source.len(), source.label(1)), (2, 1));
    assert_eq!(read(&source, 0).unwrap(), b"one");
    let [empty] = &source.excluded()[..] else { panic!("{:?}", source.excluded()) };
    assert_eq!((empty.why, empty.count), (ExclusionReason::EmptyRecord, 2));
    assert!(has_words(&empty.example, &["a.rec", "0"]), "{empty:?}");
    // In this file, no record has an image.
    let error = config_error(open(&range(1.0, 2.0)));
    assert!(has_words(&error.problem, &["1 record has no image"]), "{error}");
}

#[test]
fn invalid_records_are_errors_with_the_byte() {
    refused(b"not a record", 0, &["RecordIO"]);
    let good = record(0, 1.0, b"good");
    let after = |bytes: &[u8], byte: u64, values: &[&str]| {
        refused(&[&good[..], bytes].concat(), byte, values);
    };
    after(&[0; 8], 36, &[]);
    for sort in 4..8 {
        after(&part(sort, b""), 36, &[]);
    }
    for sort in [2, 3] {
        after(&part(sort, &[0; 24]), 36, &[]);
    }
    let unfinished = [part(1, &[0; 24]), good.clone()].concat();
    after(&unfinished, 68, &[]);
    // The message must contain the number of bytes of a header, and the end of the file.
    after(&part(1, &[0; 24]), 68, &["8", "68"]);
    after(&[&MAGIC[..], &[255, 255, 255, 31]].concat(), 44, &["536870911"]);
    // The message must contain the length of the record, which is too short for a header.
    after(&part(0, &[0; 23]), 36, &["23", "MXNet"]);
    for flag in [1, u32::MAX] {
        after(&record(flag, 0.0, b"abc"), 36, &["27", "MXNet"]);
    }
}

#[test]
fn a_truncated_file_is_an_error_at_any_length() {
    for name in ["recordio/train.rec", "recordio/parts.rec"] {
        let whole = golden(name);
        let text = String::from_utf8(golden(&name.replace(".rec", ".idx"))).unwrap();
        let starts: Vec<usize> =
            text.lines().map(|it| it.split_once('\t').unwrap().1.parse().unwrap()).collect();
        for len in (1..whole.len()).step_by(3) {
            // If a file is truncated between two records, it appears complete. The padding of the
            // last record may be missing too.
            let next = starts.iter().find(|&&start| start >= len).copied().unwrap_or(whole.len());
            match open(&whole[..len]) {
                Ok((_root, source)) => {
                    assert!(next - len < 4, "{len} bytes of {name}");
                    (0..source.len()).for_each(|index| drop(read(&source, index).unwrap()));
                }
                other => {
                    let error = config_error(other);
                    assert!(error.key.starts_with("source.recordio: "), "{error}");
                    assert!(position(&error) <= whole.len() as u64, "{error}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_parts_give_a_source_or_an_error(
        parts in prop::collection::vec((0u32..5, prop::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..8),
    ) {
        let mut bytes = Vec::new();
        for (sort, data, good) in parts {
            match good {
                true => bytes.extend(record(0, 1.0, &data)),
                false => bytes.extend(part(sort, &data)),
            }
        }
        match with(&bytes, RecordIoLabel::None) {
            Ok((_root, source)) => (0..source.len()).for_each(|index| drop(read(&source, index).unwrap())),
            // The error contains the offset of a byte, unless the file has no samples.
            other => {
                let error = config_error(other);
                if error.key != "source.recordio" {
                    prop_assert!(error.key.starts_with("source.recordio: "), "{}", error);
                    position(&error);
                }
            }
        }
    }
}
