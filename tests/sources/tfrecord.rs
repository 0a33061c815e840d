//! Tests what the documentation of `TfRecord` and its submodules promises, on files written by
//! TensorFlow (tests/golden/records.py) and on invalid records built here.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::common::words::has_words;
use crate::common::{self, config_error, position};
use crate::{folder, golden_record as golden, read};

use feedwater::error::{Error, Reason};
use feedwater::source::custom::{Hints, HostPage};
use feedwater::source::settings::TfRecordSettings;
use feedwater::source::{Source, TfRecord};
use feedwater::storage::{Storage, StorageSettings};
use proptest::prelude::*;
use tempfile::TempDir;

const LABELS: [i64; 4] = [7, 0, -3, 1 << 40];

/// Creates a temporary folder with the two files that TensorFlow wrote.
fn written_by_tensorflow() -> TempDir {
    let names = ["train-00000-of-00002", "train-00001-of-00002"];
    let files = names.map(golden);
    folder(&[(names[0], &files[0]), (names[1], &files[1])])
}

fn open(path: impl Into<PathBuf>) -> Result<TfRecord, Error> {
    TfRecord::open(&[path.into()], &TfRecordSettings::default())
}

/// Checks that the result is an error in a file, whose message contains `values`.
#[track_caller]
fn refused(result: Result<TfRecord, Error>, values: &[&str]) {
    let error = config_error(result);
    assert!(error.key.starts_with("source.tfrecord: "), "{error}");
    position(&error);
    assert!(has_words(&error.problem, values), "{values:?}: {error}");
}

/// Returns the paths of the hidden files in a folder, which are indices.
fn hidden(root: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_hidden = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with('.');
    entries.filter(is_hidden).collect()
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Encodes a TFRecord with correct checksums.
fn record(data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u64).to_le_bytes();
    [&len, &masked(&len)[..], data, &masked(data)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Encodes a length-delimited field of a protocol buffer.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// Encodes an entry of an Example's feature map.
fn feature(name: &str, value: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, value)].concat())
}

fn image(bytes: &[u8]) -> Vec<u8> {
    feature("image/encoded", &field(1, &field(1, bytes)))
}

/// Encodes a label as a list of integers that are not packed.
fn label(values: &[i64]) -> Vec<u8> {
    let values: Vec<u8> =
        values.iter().flat_map(|value| [varint(1 << 3), varint(*value as u64)].concat()).collect();
    feature("image/class/label", &field(3, &values))
}

/// Encodes a label as a list of floats. They are packed if `packed` is true.
fn float_label(values: &[f32], packed: bool) -> Vec<u8> {
    let bytes = |value: &f32| value.to_le_bytes().to_vec();
    let list = match packed {
        true => field(1, &values.iter().flat_map(bytes).collect::<Vec<u8>>()),
        false => values.iter().flat_map(|it| [varint(1 << 3 | 5), bytes(it)].concat()).collect(),
    };
    feature("image/class/label", &field(2, &list))
}

#[test]
fn an_integral_float_is_a_label() {
    let with = |values: &[f32], packed| {
        let data = field(1, &[image(b"image"), float_label(values, packed)].concat());
        let root = folder(&[("a", &record(&data))]);
        open(root.path())
    };
    let read = |values: &[f32], packed| with(values, packed).unwrap().label(0);
    for packed in [true, false] {
        assert_eq!((read(&[11.0], packed), read(&[-3.0], packed)), (11, -3));
        for (values, shown) in [(&[1.5][..], "1.5"), (&[f32::NAN], "NaN"), (&[3e9], "3000000000")] {
            refused(with(values, packed), &[shown]);
        }
        for values in [&[][..], &[1.0, 2.0]] {
            refused(with(values, packed), &[&values.len().to_string()]);
        }
    }
}

#[test]
fn files_written_by_tensorflow_are_read_sample_by_sample() {
    let root = written_by_tensorflow();
    let source = open(root.path()).unwrap();
    assert_eq!(source.len(), 4);
    for index in 0..4 {
        assert_eq!(source.label(index), LABELS[index as usize]);
        assert_eq!(read(&source, index).unwrap(), golden(&format!("{index}.jpg")));
    }
    let first = root.path().join("train-00000-of-00002");
    assert_eq!(source.location(2), format!("{}[2]", first.display()));
    assert!(source.location(3).ends_with("train-00001-of-00002[0]"));
    // The description must contain a file, the number of other files, and the number of samples.
    let described = source.describe();
    assert!(has_words(&described, &[first.to_str().unwrap(), "1", "4"]), "{described}");
    assert_eq!(source.largest_bytes(), Some(golden("3.jpg").len() as u64));
    assert!((4 * 24..1700).contains(&source.memory_bytes()), "{}", source.memory_bytes());
    let mut page = HostPage::default();
    let fault = source.read(3, &mut page, 700).unwrap_err();
    assert_eq!(fault.reason, Reason::Oversized);
    assert!(has_words(&fault.problem, &["734", "limits.max_file_bytes", "700"]), "{fault}");
}

#[test]
fn a_path_is_a_file_a_directory_or_a_pattern_and_a_list_preserves_its_order() {
    let root = written_by_tensorflow();
    let at = |name: &str| root.path().join(name);
    let labels = |paths: &[PathBuf]| {
        let source = TfRecord::open(paths, &TfRecordSettings::default()).unwrap();
        (0..source.len()).map(|index| source.label(index)).collect::<Vec<_>>()
    };
    assert_eq!(labels(&[at("")]), LABELS);
    assert_eq!(labels(&[at("train-*-of-0000?")]), LABELS);
    assert_eq!(labels(&[at("*1-of*"), at("train-00000-of-00002")]), [1 << 40, 7, 0, -3]);
    let none = at("val-*");
    common::refused(open(&none), "source.tfrecord", &[none.to_str().unwrap()]);
    assert!(matches!(open(at("val")), Err(Error::Io { path, .. }) if path == at("val")));
    let none = TfRecord::open(&[], &TfRecordSettings::default());
    common::refused(none, "source.tfrecord", &[]);
    // The message must contain the number of files, and the path of the first file.
    let empty = folder(&[("a", b"")]);
    let first = empty.path().join("a");
    common::refused(open(empty.path()), "source.tfrecord", &["1", first.to_str().unwrap()]);
}

#[test]
fn many_threads_read_more_files_than_can_be_open() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..300u32 {
        let example = field(1, &[image(&number.to_le_bytes()), label(&[number.into()])].concat());
        fs::write(root.path().join(format!("{number:03}")), record(&example)).unwrap();
    }
    let source = open(root.path()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for index in 0..300 {
                    assert_eq!(source.label(index), index as i64);
                    assert_eq!(read(&source, index).unwrap(), (index as u32).to_le_bytes());
                }
            });
        }
    });
}

#[test]
fn records_larger_than_the_window_are_read_and_verified() {
    let large: Vec<u8> = (0..5_000_000u32).map(|it| (it * 7 / 8) as u8).collect();
    let example = field(1, &[image(&large), label(&[5])].concat());
    let small = field(1, &[label(&[6]), image(b"small")].concat());
    let mut bytes = [record(&small), record(&example), record(&small)].concat();
    let root = folder(&[("a", &bytes)]);
    let source = open(root.path()).unwrap();
    assert_eq!(read(&source, 1).unwrap(), large);
    assert_eq!((read(&source, 2).unwrap(), source.label(2)), (b"small".to_vec(), 6));
    bytes[4_000_000] ^= 1;
    let source = open(folder(&[("a", &bytes)]).path()).unwrap();
    assert_eq!([0, 1, 2].map(|index| source.label(index)), [6, -1, 6]);
}

#[test]
fn the_index_is_stored_beside_the_file_and_reused_for_the_same_file() {
    let root = written_by_tensorflow();
    drop(open(root.path()).unwrap());
    let indices = hidden(&root);
    assert_eq!(indices.len(), 2);
    // Sets a time that a new index would not have, to see whether the index was written again.
    for index in &indices {
        let file = File::options().write(true).open(index).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    assert_eq!(open(root.path()).unwrap().len(), 4);
    let time = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    assert!(indices.iter().all(|index| time(index) == SystemTime::UNIX_EPOCH));
    let path = root.path().join("train-00000-of-00002");
    let file = File::options().write(true).open(&path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"x", 3).unwrap();
    file.set_modified(time).unwrap();
    let error = config_error(open(root.path()));
    assert!(error.key.contains("train-00000-of-00002"), "{error}");
    assert_eq!(position(&error), 0, "{error}");
}

#[test]
fn other_settings_have_another_index() {
    let root = written_by_tensorflow();
    assert_eq!(open(root.path()).unwrap().label(0), 7);
    let settings = TfRecordSettings { label: "image/height".into(), ..Default::default() };
    let source = TfRecord::open(&[root.path().into()], &settings).unwrap();
    assert_eq!((source.label(0), source.label(3)), (16, 16));
    assert_eq!(open(root.path()).unwrap().label(0), 7);
    assert_eq!(hidden(&root).len(), 4);
}

#[test]
fn an_index_with_any_byte_changed_or_missing_is_rebuilt() {
    let root = folder(&[("a", &golden("train-00000-of-00002"))]);
    drop(open(root.path()).unwrap());
    let index = hidden(&root).pop().unwrap();
    let whole = fs::read(&index).unwrap();
    for position in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[position] ^= 0x10;
        for bytes in [&damaged[..], &whole[..position]] {
            fs::write(&index, bytes).unwrap();
            let source = open(root.path()).unwrap();
            assert_eq!([0, 1, 2].map(|index| source.label(index)), LABELS[..3]);
            assert_eq!(fs::read(&index).unwrap(), whole, "byte {position}");
        }
    }
}

#[test]
fn an_index_that_cannot_be_beside_the_file_is_in_the_cache() {
    let root = folder(&[("a", &golden("train-00000-of-00002"))]);
    drop(open(root.path()).unwrap());
    let index = hidden(&root).pop().unwrap();
    fs::remove_file(&index).unwrap();
    fs::create_dir_all(index.join("in the way")).unwrap();
    let cache = tempfile::tempdir().unwrap();
    let settings = StorageSettings::default();
    let storage = Storage::with_cache_directory(&settings, cache.path().join("cache")).unwrap();
    for _ in 0..2 {
        let paths = [root.path().into()];
        let source = TfRecord::open_with(&paths, &TfRecordSettings::default(), &storage);
        assert_eq!(source.unwrap().len(), 3);
        assert_eq!(fs::read_dir(cache.path().join("cache")).unwrap().count(), 1);
    }
    assert_eq!(hidden(&root), [index], "there must be only the index, and no temporary file");
}

#[test]
fn concurrent_opens_of_the_same_files_agree() {
    let root = written_by_tensorflow();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(open(root.path()).unwrap().label(3), LABELS[3]);
                    hidden(&root).iter().for_each(|index| drop(fs::remove_file(index)));
                }
            });
        }
    });
    let left = hidden(&root);
    assert!(left.iter().all(|path| path.extension().unwrap() == "feedwater1"), "{left:?}");
}

#[test]
fn a_file_changed_or_truncated_after_opening_is_an_error() {
    let root = folder(&[("a", &golden("train-00000-of-00002"))]);
    let path = root.path().join("a");
    let file = File::options().write(true).open(&path).unwrap();
    let past = SystemTime::now() - Duration::from_secs(100);
    file.set_modified(past).unwrap();
    let source = open(&path).unwrap();
    assert!(read(&source, 2).is_ok());
    file.write_all_at(b"x", 300).unwrap();
    assert_eq!(read(&source, 2), Err(Reason::Unreadable));
    file.set_modified(past).unwrap();
    assert!(read(&source, 2).is_ok());
    assert_eq!(read(&source, 0), Err(Reason::Corrupt));
    file.set_len(2000).unwrap();
    assert_eq!(read(&source, 2), Err(Reason::Truncated));
    assert_eq!(read(&source, 0), Err(Reason::Unreadable));
}

#[test]
fn other_files_are_errors_with_advice() {
    let root = folder(&[("text", b"not a record at all")]);
    let text = open(root.path().join("text"));
    common::refused_at(text, "source.tfrecord", 0, &["TFRecord"]);
}

#[test]
fn a_missing_feature_is_an_error_that_lists_the_existing_ones() {
    let root = written_by_tensorflow();
    let with = |image: &str, label: &str| {
        let settings = TfRecordSettings { image: image.into(), label: label.into() };
        TfRecord::open(&[root.path().into()], &settings)
    };
    // The message must contain the feature, the key of the setting, and its possible values.
    let values = ["\"image\"", "source.image", "image/class/synset", "image/encoded"];
    refused(with("image", "image/class/label"), &values);
    let values = ["\"label\"", "source.label", "\"\"", "image/class/label"];
    refused(with("image/encoded", "label"), &values);
    assert_eq!(with("image/encoded", "").unwrap().label(0), -1);
    // The message must contain the feature, the number of its values, and the supported types.
    let values = ["\"image/object/bbox/label\"", "3", "int64", "float"];
    refused(with("image/encoded", "image/object/bbox/label"), &values);
    refused(with("image/height", ""), &["\"image/height\"", "0", "bytes"]);
}

#[test]
fn every_valid_protocol_buffer_encoding_is_read() {
    let unknown =
        [field(9, b"?"), varint(10 << 3), varint(u64::MAX), vec![11 << 3 | 5, 0, 0, 0, 0]];
    let unknown = [unknown.concat(), vec![12 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let value_first =
        field(1, &[field(2, &field(1, &field(1, b"image"))), field(1, b"image/encoded")].concat());
    let example = [
        unknown.clone(),
        field(1, &[unknown.clone(), image(b"replaced"), value_first].concat()),
        field(1, &[label(&[-5]), unknown].concat()),
    ]
    .concat();
    let source = open(folder(&[("a", &record(&example))]).path()).unwrap();
    assert_eq!((read(&source, 0).unwrap(), source.label(0)), (b"image".to_vec(), -5));
}

#[test]
fn a_truncated_file_is_an_error_at_any_length() {
    let whole = golden("train-00000-of-00002");
    let root = tempfile::tempdir().unwrap();
    let mut opened = Vec::new();
    for len in 0..whole.len() {
        let path = root.path().join(len.to_string());
        fs::write(&path, &whole[..len]).unwrap();
        match open(&path) {
            Ok(source) => opened.push(source.len()),
            Err(error) => assert!(error.to_string().starts_with("source.tfrecord: "), "{error}"),
        }
    }
    // A file that is truncated between two records appears complete.
    assert_eq!(opened, [1, 2]);
}

#[test]
fn a_flipped_byte_is_an_error_of_the_file_or_sample_and_never_another_image() {
    let whole = golden("train-00000-of-00002");
    let root = tempfile::tempdir().unwrap();
    let (mut errors, mut faults) = (0, 0);
    for position in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[position] ^= 1 << (position % 8);
        let path = root.path().join(position.to_string());
        fs::write(&path, &damaged).unwrap();
        let Ok(source) = open(&path) else {
            errors += 1;
            continue;
        };
        assert_eq!(source.len(), 3);
        for index in 0..3 {
            match read(&source, index) {
                Ok(bytes) => {
                    assert_eq!(bytes, golden(&format!("{index}.jpg")), "byte {position}");
                    assert_eq!(source.label(index), LABELS[index as usize]);
                }
                Err(reason) => {
                    assert_eq!((reason, source.label(index)), (Reason::Corrupt, -1));
                    faults += 1;
                }
            }
        }
    }
    // The first twelve bytes of each of the three records are checked when the file is opened.
    // Every other byte belongs to one sample.
    assert_eq!((errors, faults), (36, whole.len() - 36));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The records contain lengths that overflow, invalid wire types and endless numbers. All
    /// checksums are correct.
    #[test]
    fn any_record_gives_a_source_or_an_error(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..12),
                any::<u64>().prop_map(|len| [varint(1 << 3 | 2), varint(len)].concat()),
                prop::collection::vec(any::<u8>(), 0..9).prop_map(|bytes| field(1, &bytes)),
                Just(image(b"image")),
                any::<i64>().prop_map(|value| label(&[value])),
            ],
            0..6,
        ),
        inside in any::<bool>(),
    ) {
        let data = pieces.concat();
        let data = if inside { field(1, &data) } else { data };
        let root = folder(&[("a", &record(&data))]);
        match open(root.path()) {
            Ok(source) => prop_assert!(read(&source, 0).is_ok()),
            other => {
                let error = config_error(other);
                prop_assert!(error.key.contains("/a"), "{}", error);
                position(&error);
            }
        }
    }
}
