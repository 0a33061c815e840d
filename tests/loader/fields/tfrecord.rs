//! Columns from the features of TFRecord files.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::reading::{golden, names, value, values, values_up_to};
use super::{F32, I64, batches, builder, with_field};
use crate::common::jpegs;
use feedwater::error::{Error, Reason};
use feedwater::plan::{ColumnSettings, DefaultValue, OnError};
use feedwater::source::custom::Hints;
use feedwater::source::settings::TfRecordSettings;
use feedwater::source::{Source, TfRecord};
use flate2::{Compression, write::GzEncoder};
use tempfile::TempDir;

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Encodes a TFRecord.
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

fn feature(name: &str, value: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, value)].concat())
}

pub fn bytes(name: &str, values: &[&[u8]]) -> Vec<u8> {
    let list: Vec<u8> = values.iter().flat_map(|value| field(1, value)).collect();
    feature(name, &field(1, &list))
}

pub fn integers(name: &str, values: &[i64]) -> Vec<u8> {
    let packed: Vec<u8> = values.iter().flat_map(|&value| varint(value as u64)).collect();
    feature(name, &field(3, &field(1, &packed)))
}

fn floats(name: &str, values: &[f32]) -> Vec<u8> {
    let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    feature(name, &field(2, &field(1, &packed)))
}

/// Encodes an Example of these features.
pub fn example(features: &[Vec<u8>]) -> Vec<u8> {
    record(&field(1, &features.concat()))
}

/// Image and label of an Example.
fn sample(number: usize) -> Vec<Vec<u8>> {
    let (image, _) = jpegs(number as u64 + 1).pop().unwrap();
    vec![bytes("image/encoded", &[&image]), integers("image/class/label", &[number as i64])]
}

fn open(path: impl Into<PathBuf>) -> Result<TfRecord, Error> {
    TfRecord::open(&[path.into()], &TfRecordSettings::default())
}

fn opened(bytes: &[u8]) -> (TempDir, TfRecord) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    fs::write(&path, bytes).unwrap();
    let source = open(&path).unwrap_or_else(|error| panic!("{error}"));
    (folder, source)
}

/// Opens a file with one sample that has these features in addition to image and label.
fn one(features: &[Vec<u8>]) -> (TempDir, TfRecord) {
    opened(&example(&[features, &sample(0)].concat()))
}

/// Changes bytes of a file, but not its length and its modification time.
fn overwrite(path: &Path, at: usize, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
    file.set_modified(time).unwrap();
}

fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).position(|it| it == wanted).unwrap()
}

#[test]
fn features_written_by_tensorflow_are_fields() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["train-00000-of-00002", "train-00001-of-00002"] {
        fs::write(folder.path().join(name), golden(&format!("records/{name}"))).unwrap();
    }
    let source = open(folder.path()).unwrap();
    let listed = [
        "image/class/label",
        "image/class/synset",
        "image/encoded",
        "image/filename",
        "image/height",
        "image/object/bbox/label",
        "image/object/bbox/xmin",
    ];
    assert_eq!(names(&source), listed);
    let before = source.memory_bytes();
    for (index, label) in [7, 0, -3, 1i64 << 40].into_iter().enumerate() {
        let expected = [
            format!("image/class/label: Integers([{label}])"),
            format!("image/class/synset: Text(\"n0144076{index}\")"),
            format!("image/filename: Text(\"{index}.jpg\")"),
            "image/object/bbox/label: Integers([1, 2, 3])".into(),
            "image/object/bbox/xmin: Floats([0.5, 0.25])".into(),
        ];
        let wanted: Vec<&str> = expected.iter().map(|it| it.split(": ").next().unwrap()).collect();
        assert_eq!(values(&source, index as u64, &wanted).unwrap(), expected);
        let image = golden(&format!("records/{index}.jpg"));
        assert_eq!(
            value(&source, index as u64, "image/encoded"),
            Some(format!("Bytes({image:?})"))
        );
        assert_eq!(values(&source, index as u64, &["image/height", "absent"]).unwrap().len(), 1);
    }
    assert_eq!(source.memory_bytes(), before, "the starts of the records of all files are counted");
    let again = open(folder.path()).unwrap();
    assert_eq!(before - again.memory_bytes(), 4 * 8, "8 bytes for each record");
}

#[test]
fn samples_have_their_own_fields_in_any_order() {
    let (folder, packed_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut count = 0;
    for file in 0..3 {
        let mut content = Vec::new();
        for _ in 0..7 + file {
            let boxes: Vec<f32> = (0..4 * (count % 3)).map(|it| it as f32 + 0.5).collect();
            let captions: Vec<String> =
                (0..count % 4).map(|it| format!("é \"{count}\" {it}")).collect();
            let captions: Vec<&[u8]> = captions.iter().map(String::as_bytes).collect();
            let mut features = sample(count);
            features.push(floats("boxes", &boxes));
            features.push(bytes("caption", &[format!("no. {count}").as_bytes()]));
            if count % 4 > 1 {
                features.push(bytes("captions", &captions));
            }
            // More than is verified and read at once.
            if count % 5 == 2 {
                features.push(bytes("depth", &[&vec![7; 100_000]]));
            }
            let len = features.len();
            features.rotate_left(count % len);
            content.extend(example(&features));
            count += 1;
        }
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&content).unwrap();
        fs::write(packed_folder.path().join(format!("{file}.gz")), packed.finish().unwrap())
            .unwrap();
        fs::write(folder.path().join(format!("{file}.tfrecord")), content).unwrap();
    }
    let none = Some(DefaultValue::Text("none".into()));
    let columns = || {
        vec![
            ColumnSettings::text("caption"),
            ColumnSettings::list("boxes", F32, &[4]),
            with_field("image/class/label", ColumnSettings::array("class", I64, &[])),
            ColumnSettings {
                default: none.clone(),
                ..with_field("captions:[1]", ColumnSettings::text("second"))
            },
            with_field("caption", ColumnSettings::text("again")),
        ]
    };
    let runs = [&folder, &packed_folder].map(|it| [(it, 1, false), (it, 3, true)]);
    for (folder, workers, shuffle) in runs.into_iter().flatten() {
        let source = open(folder.path()).unwrap();
        let mut compared = 0;
        for batch in
            batches(builder(source, columns()).num_workers(workers).shuffle(shuffle)).unwrap()
        {
            let column = |name| batch.column(name).unwrap();
            for (place, &label) in batch.labels().iter().enumerate() {
                let caption = format!("no. {label}");
                assert_eq!(column("caption").text(place), Some(&*caption));
                assert_eq!(column("again").text(place), Some(&*caption));
                assert_eq!(column("class").sample(place), Some(&[label][..]));
                let second = format!("é \"{label}\" 1");
                let second = if label % 4 > 1 { &*second } else { "none" };
                assert_eq!(column("second").text(place), Some(second));
                let boxes: Vec<f32> = (0..4 * (label % 3)).map(|it| it as f32 + 0.5).collect();
                assert_eq!(column("boxes").sample(place), Some(&boxes[..]));
                compared += 1;
            }
        }
        assert_eq!(compared, count);
    }
}

#[test]
fn every_encoding_of_a_feature_is_read() {
    let unpacked = |list, values: &[Vec<u8>]| field(list, &values.concat());
    let number = |value: i64| [varint(8), varint(value as u64)].concat();
    let float = |value: f32| [&varint(13)[..], &value.to_le_bytes()].concat();
    let (_folder, source) = one(&[
        feature("unpacked", &unpacked(3, &[number(-1), number(i64::MAX), number(i64::MIN)])),
        feature("floats", &unpacked(2, &[float(0.1), float(f32::NAN)])),
        // A repeated list is continued.
        feature("joined", &[field(3, &field(1, &[1, 2])), field(3, &field(1, &[3]))].concat()),
        // If a feature has several types, the last one is valid.
        feature("types", &[field(3, &field(1, &[1])), field(1, &field(1, b"text"))].concat()),
        bytes("twice", &[b"first"]),
        bytes("twice", &[b"last"]),
        bytes("emptied", &[b"first"]),
        feature("emptied", &[]),
        integers("no integers", &[]),
        floats("no floats", &[]),
        bytes("no bytes", &[]),
        bytes("empty text", &[b""]),
        feature("no list", &[]),
        bytes("raw", &[b"\xff\xfe"]),
        bytes("texts", &["é\n\"".as_bytes(), b"", b"\0"]),
        bytes("__feedwater_classes__", &[b"a", b"b"]),
        feature(&"n".repeat(5000), &[1]),
    ]);
    let found = |name| value(&source, 0, name);
    let limits = format!("Integers([-1, {}, {}])", i64::MAX, i64::MIN);
    for (name, expected) in [
        ("unpacked", Some(&*limits)),
        ("floats", Some("Floats([0.1, NaN])")),
        ("joined", Some("Integers([1, 2, 3])")),
        ("types", Some("Text(\"text\")")),
        ("twice", Some("Text(\"last\")")),
        ("emptied", None),
        ("no integers", Some("Integers([])")),
        ("no floats", Some("Floats([])")),
        ("no bytes", None),
        ("empty text", Some("Text(\"\")")),
        ("no list", None),
        ("raw", Some("Bytes([255, 254])")),
        ("absent", None),
        ("__feedwater_classes__", None),
        ("image/class/label", Some("Integers([0])")),
    ] {
        assert_eq!(found(name).as_deref(), expected, "{name}");
    }
    let json = format!("Json({:?})", "[\"é\\n\\\"\",\"\",\"\\u0000\"]".as_bytes());
    assert_eq!(found("texts"), Some(json));
    assert!(!names(&source).contains(&"__feedwater_classes__".to_string()));
}

#[test]
fn wrong_features_are_errors_of_their_sample() {
    let cases: [(&str, Vec<u8>, Reason, &str); 5] = [
        ("a", bytes("a", &[b"text", b"\xff"]), Reason::Field, "value 1 is not UTF-8 at byte 0"),
        ("a", feature("a", &field(2, &field(1, &[0; 7]))), Reason::Corrupt, "\"a\" is not"),
        ("a", feature("a", &field(3, &field(1, &[0x80]))), Reason::Corrupt, "\"a\" is not"),
        ("a", feature("a", &[0x0a, 200, 1]), Reason::Corrupt, "\"a\" is not"),
        ("a", feature("a", &[0x0c]), Reason::Corrupt, "\"a\" is not"),
    ];
    for (name, wrong, reason, words) in cases {
        let (_folder, source) = one(&[wrong, bytes("b", &[b"intact"])]);
        let error = values(&source, 0, &[name]).unwrap_err();
        assert_eq!(error.reason, reason, "{error}");
        assert!(error.problem.contains(words), "{error}");
        // What is not wanted is not read.
        assert_eq!(value(&source, 0, "b").unwrap(), "Text(\"intact\")");
    }
}

#[test]
fn values_beyond_the_limit_are_not_read() {
    let long = vec![0x80u8; 3000];
    let zeros = vec!["\0"; 900];
    let zeros: Vec<&[u8]> = zeros.iter().map(|it| it.as_bytes()).collect();
    let (_folder, source) = one(&[
        bytes("bytes", &[&long]),
        // 600 bytes in the file.
        integers("integers", &[1; 600]),
        floats("floats", &[1.0; 700]),
        // 2700 bytes in the file, and 8101 bytes as JSON.
        bytes("texts", &zeros),
        bytes("short", &[b"text"]),
    ]);
    for (name, bytes) in [("bytes", 3006), ("integers", 4800), ("floats", 2806), ("texts", 8101)] {
        let most = values_up_to(&source, 0, &[name], bytes);
        assert_eq!(most.unwrap_or_else(|error| panic!("{name}: {error}")).len(), 1);
        let error = values_up_to(&source, 0, &["short", name], bytes - 1).unwrap_err();
        assert_eq!(error.reason, Reason::Oversized, "{error}");
        let expected =
            format!("{name:?} has {bytes} bytes; limits.max_field_bytes is {}", bytes - 1);
        assert!(error.problem.contains(&expected), "{error}");
    }
    assert_eq!(values_up_to(&source, 0, &["short"], 10).unwrap(), ["short: Text(\"text\")"]);
}

/// Damage after the file was indexed is found by the record's checksum, although the image is not
/// read with the fields.
#[test]
fn damage_of_a_small_record_is_found() {
    for caption_first in [false, true] {
        let mut features = sample(0);
        let place = if caption_first { 0 } else { features.len() };
        features.insert(place, bytes("caption", &[b"a caption"]));
        let whole = [example(&features), example(&sample(1))].concat();
        let (folder, source) = opened(&whole);
        assert_eq!(value(&source, 0, "caption").unwrap(), "Text(\"a caption\")");
        let path = folder.path().join("a.tfrecord");
        overwrite(&path, find(&whole, b"a caption"), b"another m");
        let error = values(&source, 0, &["caption"]).unwrap_err();
        assert_eq!(error.reason, Reason::Corrupt, "{error}");
        assert!(error.problem.contains("checksum of the record at byte 0"), "{error}");
        assert_eq!(value(&source, 1, "image/class/label").unwrap(), "Integers([1])");
        // The start of the second record.
        let second = example(&features).len();
        overwrite(&path, second, &[1]);
        let error = values(&source, 1, &["image/class/label"]).unwrap_err();
        assert!(error.problem.contains("was changed"), "{error}");
        fs::write(&path, &whole[1..]).unwrap();
        let error = values(&source, 0, &["caption"]).unwrap_err();
        assert!(matches!(error.reason, Reason::Unreadable | Reason::Corrupt), "{error}");
    }
}

#[test]
fn a_damaged_record_has_no_fields_and_the_others_keep_theirs() {
    let mut records: Vec<Vec<u8>> = (0..5).map(|it| example(&sample(it))).collect();
    let end = records[2].len();
    records[2][end - 5] ^= 1;
    let (folder, source) = opened(&records.concat());
    let error = values(&source, 2, &["image/class/label"]).unwrap_err();
    assert_eq!(error.reason, Reason::Corrupt);
    for index in [0, 1, 3, 4] {
        let label = value(&source, index, "image/class/label");
        assert_eq!(label, Some(format!("Integers([{index}])")));
    }
    let column = || vec![with_field("image/class/label", ColumnSettings::array("class", I64, &[]))];
    let mut loader = builder(source, column()).on_error(OnError::Drop).build().unwrap();
    assert_eq!(loader.epoch().map(|batch| batch.unwrap().len()).sum::<usize>(), 4);

    // With `until_damage`, the samples before the damage have fields.
    let path = folder.path().join("cut.tfrecord");
    let cut = records[..4].concat();
    fs::write(&path, &cut[..cut.len() - 1]).unwrap();
    let file = format!("[source]\ntfrecord = {path:?}\non_bad_shard = \"until_damage\"\n");
    let source = feedwater::Pipeline::from_toml(&file, "").unwrap().open().unwrap();
    assert_eq!(source.len(), 3);
    assert_eq!(value(&*source, 1, "image/class/label").unwrap(), "Integers([1])");
}

/// The golden files are those of TensorFlow. The second time, the stored table is read.
#[test]
fn compressed_files_have_the_same_fields() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gzip.tfrecord", "zlib.tfrecord"] {
        fs::write(folder.path().join(name), golden(&format!("records/{name}"))).unwrap();
        for _ in 0..2 {
            let source = open(folder.path().join(name)).unwrap();
            let count = source.len();
            assert!(count > 0);
            for index in (0..count).rev() {
                let label = source.label(index);
                let file = value(&source, index, "image/filename").unwrap();
                assert_eq!(file, format!("Text(\"{index}.jpg\")"), "{name}");
                let class = value(&source, index, "image/class/label").unwrap();
                assert_eq!(class, format!("Integers([{label}])"), "{name}");
            }
        }
    }
}
