//! Columns from what LMDB and RecordIO store beside an image.

use std::fs;
use std::path::PathBuf;

use super::reading::{golden, names, value, values, values_up_to};
use super::{F32, batches, builder, with_field};
use feedwater::ElementType;
use feedwater::error::{Error, Reason};
use feedwater::plan::{ColumnSettings, DefaultValue};
use feedwater::source::custom::Hints;
use feedwater::source::settings::{LmdbSettings, LmdbValues, RecordIoLabel, RecordIoSettings};
use feedwater::source::{Lmdb, RecordIo, Source};
use tempfile::TempDir;

fn file(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(name);
    fs::write(&path, bytes).unwrap();
    (root, path)
}

fn lmdb(bytes: &[u8], settings: LmdbSettings) -> (TempDir, Lmdb) {
    let (root, path) = file("data.mdb", bytes);
    let source = Lmdb::open(&[path], &settings).unwrap_or_else(|error| panic!("{error}"));
    (root, source)
}

fn recordio(bytes: &[u8], label: RecordIoLabel) -> (TempDir, RecordIo) {
    let (root, path) = file("a.rec", bytes);
    let source = RecordIo::open(&[path], &RecordIoSettings { label });
    (root, source.unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn the_key_and_the_numbers_of_a_datum_are_fields() {
    let train = LmdbSettings { database: "train".into(), ..Default::default() };
    for (name, settings) in
        [("datum", LmdbSettings::default()), ("named", train.clone()), ("named-1.0", train)]
    {
        let (_root, source) = lmdb(&golden(&format!("lmdb/{name}.mdb")), settings);
        let bytes = source.memory_bytes();
        assert_eq!(names(&source), ["key", "channels", "height", "width", "label"], "{name}");
        assert_eq!(source.memory_bytes() - bytes, 8 * source.len());
        for (index, label) in [7, 0, -3, 1000, 12].into_iter().enumerate() {
            let ending = if index == 4 { "png" } else { "jpg" };
            let expected = [
                format!("key: Text(\"{index:08}_{index}.{ending}\")"),
                "height: Integer(16)".into(),
                format!("label: Integer({label})"),
            ];
            let wanted = ["label", "key", "height", "float_data"];
            assert_eq!(values(&source, index as u64, &wanted).unwrap(), expected, "{name}");
        }
    }
    let (_root, source) = lmdb(&golden("lmdb/raw.mdb"), LmdbSettings::default());
    let wanted = ["key", "channels", "width", "label"];
    let expected =
        ["key: Text(\"1\")", "channels: Integer(1)", "width: Integer(4)", "label: Integer(4)"];
    assert_eq!(values(&source, 1, &wanted).unwrap(), expected);
}

/// Keys are in another order than their images in the file, and one image has its own pages.
#[test]
fn images_without_a_datum_have_a_key() {
    for name in ["lmdb/image/data.mdb", "lmdb/image-1.0.mdb"] {
        let settings = || LmdbSettings { keys: "image-*".into(), ..Default::default() };
        let (_root, source) = lmdb(&golden(name), settings());
        assert_eq!(names(&source), ["key"], "{name}");
        for index in 0..12 {
            let key = value(&source, index, "key");
            assert_eq!(key, Some(format!("Text(\"image-{index:04}\")")), "{name}");
        }
        let found = batches(
            builder(source, vec![ColumnSettings::text("key")])
                .configure(|it| it.loader.on_error = feedwater::plan::OnError::Drop),
        );
        let found = found.unwrap();
        assert!(!found.is_empty());
        for batch in &found {
            for (place, index) in batch.indices().enumerate() {
                let key = format!("image-{index:04}");
                assert_eq!(batch.column("key").unwrap().text(place), Some(&*key));
            }
        }
    }
}

/// Bytes of an environment with one Datum, whose data are replaced by floats of the same length.
fn with_floats(floats: &[u8]) -> Vec<u8> {
    let mut bytes = golden("lmdb/datum.mdb");
    let jpeg = golden("records/2.jpg");
    let at = bytes.windows(jpeg.len()).position(|it| it == jpeg).unwrap();
    // Image, then field 6 within the old data: a short image remains.
    let keep = jpeg.len() - floats.len();
    let head = at - 3;
    assert_eq!(bytes[head], 0x22);
    bytes[head + 1] = keep as u8 & 0x7f | 0x80;
    bytes[head + 2] = (keep >> 7) as u8;
    bytes[at + keep..at + jpeg.len()].copy_from_slice(floats);
    bytes
}

#[test]
fn floats_of_a_datum_are_a_field() {
    let packed = [&[0x32, 12][..], &[0.5f32, -2.0, 1e30].map(f32::to_le_bytes).concat()].concat();
    let single: Vec<u8> = [0.5f32, -2.0, 1e30]
        .iter()
        .flat_map(|it| [&[0x35][..], &it.to_le_bytes()].concat())
        .collect();
    let settings = || LmdbSettings { values: LmdbValues::Datum, ..Default::default() };
    for floats in [packed, single] {
        let (_root, source) = lmdb(&with_floats(&floats), settings());
        assert_eq!(value(&source, 2, "float_data").unwrap(), "Floats([0.5, -2.0, 1e30])");
        assert_eq!(value(&source, 1, "float_data"), None);
        assert_eq!(value(&source, 2, "label").unwrap(), "Integer(-3)");
        let error = values_up_to(&source, 2, &["float_data"], 11).unwrap_err();
        assert_eq!(error.reason, Reason::Oversized, "{error}");
        assert!(error.problem.contains("12 bytes; limits.max_field_bytes is 11"), "{error}");
        assert_eq!(values_up_to(&source, 2, &["float_data", "key"], 14).unwrap().len(), 2);
    }
    let (_root, source) = lmdb(&with_floats(&[0x32, 5, 0, 0, 0, 0, 0]), settings());
    let error = values(&source, 2, &["float_data"]).unwrap_err();
    assert_eq!(error.reason, Reason::Corrupt, "{error}");
    assert_eq!(value(&source, 2, "width").unwrap(), "Integer(16)");
}

#[test]
fn a_changed_environment_is_an_error() {
    let (root, source) = lmdb(&golden("lmdb/datum.mdb"), LmdbSettings::default());
    assert_eq!(value(&source, 1, "label").unwrap(), "Integer(0)");
    let bytes = golden("lmdb/raw.mdb");
    fs::write(root.path().join("data.mdb"), [&bytes[..], &[0; 4096]].concat()).unwrap();
    let error = values(&source, 1, &["label"]).unwrap_err();
    assert!(matches!(error.reason, Reason::Corrupt | Reason::Unreadable), "{error}");
}

const MAGIC: [u8; 4] = [0x0a, 0x23, 0xd7, 0xce];

/// Encodes a part of a record.
pub fn part(sort: u32, data: &[u8]) -> Vec<u8> {
    let mut part = [&MAGIC[..], &(sort << 29 | data.len() as u32).to_le_bytes(), data].concat();
    part.resize(part.len().next_multiple_of(4), 0);
    part
}

/// Contents of a record with these labels.
pub fn contents(labels: &[f32], id: u64, image: &[u8]) -> Vec<u8> {
    let (flag, one) = match labels {
        [one] => (0, *one),
        _ => (labels.len() as u32, 0.0),
    };
    let list = if flag == 0 { &[][..] } else { labels };
    let list: Vec<u8> = list.iter().flat_map(|label| label.to_le_bytes()).collect();
    let header = [&flag.to_le_bytes()[..], &one.to_le_bytes(), &id.to_le_bytes(), &[0; 8]].concat();
    [&header[..], &list, image].concat()
}

#[test]
fn labels_and_ids_written_by_mxnet_are_fields() {
    let (_root, source) = recordio(&golden("recordio/train.rec"), RecordIoLabel::One);
    assert_eq!(names(&source), ["label", "id"]);
    for (index, label) in [7.0f32, 0.0, -3.0, 1000.0].into_iter().enumerate() {
        let expected = [format!("label: Floats([{label:?}])"), format!("id: Integer({index})")];
        assert_eq!(values(&source, index as u64, &["id", "label"]).unwrap(), expected);
    }
    let (_root, source) = recordio(&golden("recordio/arrays.rec"), RecordIoLabel::First);
    assert_eq!(value(&source, 0, "label").unwrap(), "Floats([5.0])");
    assert_eq!(value(&source, 1, "label").unwrap(), "Floats([6.0, 2.5, 9.0])");
    let (_root, source) = recordio(&golden("recordio/parts.rec"), RecordIoLabel::One);
    for index in 0..5 {
        let expected = [format!("label: Floats([{index}.0])"), format!("id: Integer({index})")];
        assert_eq!(values(&source, index, &["label", "id"]).unwrap(), expected);
    }
    // Records have all fields, so a wrong name is an error also with a default.
    let column = ColumnSettings {
        default: Some(DefaultValue::Integer(0)),
        ..with_field("Id", ColumnSettings::array("id", ElementType::I64, &[]))
    };
    match builder(source, vec![column]).build() {
        Err(Error::Config(error)) => assert!(error.problem.contains("did you mean id?"), "{error}"),
        other => panic!("{:?}", other.err()),
    }
}

/// Records without an image, as InsightFace writes them, and label lists that the magic number
/// splits.
#[test]
fn lists_of_labels_are_found_behind_records_without_an_image() {
    let image = golden("records/0.jpg");
    let magic = f32::from_le_bytes(MAGIC);
    let split = contents(&[1.5, magic, 3.5], 8, &image);
    let at = split.windows(4).position(|it| it == MAGIC).unwrap();
    let bytes = [
        part(0, &contents(&[9.0, 9.0], 1, b"")),
        part(0, &contents(&[], 2, b"")),
        part(0, &contents(&[0.5, 1.5], 3, &image)),
        part(0, &contents(&[8.0], 4, b"")),
        [part(1, &split[..at]), part(3, &split[at + 4..])].concat(),
        part(0, &contents(&[2.5], u64::MAX, &image)),
    ]
    .concat();
    let (_root, source) = recordio(&bytes, RecordIoLabel::None);
    assert_eq!(source.len(), 3);
    let expected = [
        ("Floats([0.5, 1.5])".to_string(), 3),
        (format!("Floats([1.5, {magic:?}, 3.5])"), 8),
        ("Floats([2.5])".into(), u64::MAX),
    ];
    for (index, (labels, id)) in expected.into_iter().enumerate() {
        assert_eq!(value(&source, index as u64, "label").unwrap(), labels);
        assert_eq!(value(&source, index as u64, "id").unwrap(), format!("Integer({id})"));
    }
    let error = values_up_to(&source, 1, &["label"], 11).unwrap_err();
    assert_eq!(error.reason, Reason::Oversized);
    let column = ColumnSettings::list("label", F32, &[]);
    let column = ColumnSettings { name: "labels".into(), field: Some("label".into()), ..column };
    let found = batches(builder(source, vec![column])).unwrap();
    let labels = found[0].column("labels").unwrap();
    assert_eq!(labels.sample::<f32>(1), Some(&[1.5, magic, 3.5][..]));
}

/// The bytes before an image are compared with the table, so a label of another file is not read.
#[test]
fn a_label_that_changed_is_an_error() {
    let image = golden("records/0.jpg");
    let (root, source) = recordio(&part(0, &contents(&[3.0], 0, &image)), RecordIoLabel::One);
    assert_eq!(value(&source, 0, "label").unwrap(), "Floats([3.0])");
    let path = root.path().join("a.rec");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, part(0, &contents(&[4.0], 0, &image))).unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    let error = values(&source, 0, &["label"]).unwrap_err();
    assert!(error.problem.contains("was changed"), "{error}");
}
