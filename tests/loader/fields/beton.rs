//! Columns from FFCV's fields.

use std::fs;

use super::reading::{golden, names, value, values, values_up_to};
use super::{F32, I64, batches, builder, with_field};
use crate::common::config_error;
use feedwater::error::Reason;
use feedwater::plan::{ColumnSettings, DefaultValue};
use feedwater::source::Beton;
use feedwater::source::settings::BetonSettings;
use tempfile::TempDir;

/// Number of bytes of a descriptor in a `.beton` file, and of the header before the first.
const DESCRIPTOR: usize = 1 + 16 + 1024;
const HEAD: usize = 24;
/// Offset of the first sample in `fields.beton`, and of the values in a sample.
const ROW: usize = HEAD + 8 * DESCRIPTOR;
const ID: usize = 0;
const BOX: usize = 40;
const ABOUT: usize = 48;
const IMAGE: usize = 64;
/// Offset of the arguments of the field `box`.
const BOX_ARGUMENTS: usize = HEAD + 3 * DESCRIPTOR + 17;

fn beton(bytes: &[u8], label: &str) -> (TempDir, Beton) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.beton");
    fs::write(&path, bytes).unwrap();
    let settings = BetonSettings { image: Some("image".into()), label: Some(label.into()) };
    let source = Beton::open(&[path], &settings).unwrap_or_else(|error| panic!("{error}"));
    (root, source)
}

/// The file that FFCV wrote, with these bytes in place of others.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = golden("beton/fields.beton");
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn fields_written_by_ffcv_are_read() {
    let (_root, source) = beton(&golden("beton/fields.beton"), "label");
    let all = ["id", "a name longer th", "box", "about", "label", "epoch"];
    assert_eq!(names(&source), all);
    for (index, label) in [7, 0, -3, 1i64 << 40].into_iter().enumerate() {
        let json = format!("{{\"number\": {index}}}");
        let expected = [
            format!("id: Text(\"id {index}\")"),
            format!("a name longer th: Float({index}.0)"),
            format!("box: Floats([{index}.0, {index}.0, {index}.0, {index}.0])"),
            format!("about: Json({:?})", json.as_bytes()),
            format!("label: Integer({label})"),
            format!("epoch: Integer({})", 100 + index),
        ];
        assert_eq!(values(&source, index as u64, &all).unwrap(), expected);
    }
    let columns = vec![
        ColumnSettings::text("id"),
        ColumnSettings::array("box", F32, &[2, 2]),
        with_field("about:number", ColumnSettings::array("number", I64, &[])),
    ];
    let found = batches(builder(source, columns)).unwrap();
    let column = |name| found[0].column(name).unwrap();
    assert_eq!(column("number").as_slice::<i64>().unwrap(), [0, 1, 2, 3]);
    assert_eq!(column("box").sample::<f32>(2), Some(&[2.0; 4][..]));
    assert_eq!(column("id").text(3), Some("id 3"));

    // All samples have all fields, so a wrong name is an error also with a default.
    let (_root, source) = beton(&golden("beton/fields.beton"), "label");
    let column = ColumnSettings {
        default: Some(DefaultValue::Integer(0)),
        ..ColumnSettings::array("epochs", I64, &[])
    };
    assert!(config_error(builder(source, vec![column]).build()).problem.contains("epoch"));
}

#[test]
fn wrong_positions_and_types_in_a_beton_file_are_errors_of_the_sample() {
    let number = |value: u64| value.to_le_bytes();
    let text = |text: &str| text.as_bytes().to_vec();
    let shape = |axes: &[u64]| axes.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>();
    let cases: [(&str, usize, Vec<u8>, Reason, &str); 14] = [
        ("id", ROW + ID, number(0).into(), Reason::Corrupt, "\"id\" has 4 bytes at byte 0"),
        ("id", ROW + ID, number(u64::MAX).into(), Reason::Corrupt, "at byte 18446744073709551615"),
        ("id", ROW + ID + 8, number(10_000).into(), Reason::Corrupt, "\"id\" has 10000 bytes"),
        ("id", ROW + ID + 8, number(1 << 40).into(), Reason::Corrupt, "end of a page"),
        ("box", ROW + BOX, number(8).into(), Reason::Corrupt, "\"box\" has 16 bytes at byte 8"),
        ("about", ROW + ABOUT, number(1 << 60).into(), Reason::Corrupt, "\"about\""),
        ("box", BOX_ARGUMENTS, shape(&[1 << 16]), Reason::Corrupt, "\"box\" has 262144 bytes"),
        ("box", BOX_ARGUMENTS, shape(&[1 << 40]), Reason::Oversized, "max_field_bytes"),
        ("box", BOX_ARGUMENTS, shape(&[1 << 40, 1 << 40]), Reason::Corrupt, "out of range"),
        ("box", BOX_ARGUMENTS, shape(&[0]), Reason::Unsupported, "no axis"),
        ("box", BOX_ARGUMENTS + 256, number(u64::MAX).into(), Reason::Unsupported, "elements"),
        ("box", BOX_ARGUMENTS + 264, text("[[\"\", \"<c4\"]]"), Reason::Unsupported, "elements"),
        ("box", BOX_ARGUMENTS + 264, text("[[\"\", \"<f3\"]]"), Reason::Unsupported, "elements"),
        ("box", BOX_ARGUMENTS + 264, text("{[\"\", \"<f4\"]]"), Reason::Unsupported, "elements"),
    ];
    for (name, at, bytes, reason, words) in cases {
        let (_root, source) = beton(&changed(at, &bytes), "label");
        let error = values(&source, 0, &[name]).unwrap_err();
        assert_eq!(error.reason, reason, "{name} {at}: {error}");
        assert!(error.problem.contains(words), "{name} {at}: {error}");
        assert_eq!(value(&source, 0, "epoch").unwrap(), "Integer(100)");
        assert_eq!(value(&source, 3, "id").unwrap(), "Text(\"id 3\")");
    }
    // An empty field is a missing value.
    let (_root, source) = beton(&changed(ROW + ID + 8, &number(0)), "label");
    assert_eq!(value(&source, 0, "id").unwrap(), "Text(\"\")");
    // Bytes that are not a text.
    let id = golden("beton/fields.beton").windows(4).position(|it| it == b"id 1").unwrap();
    let (_root, source) = beton(&changed(id, b"\xff"), "label");
    assert_eq!(value(&source, 1, "id").unwrap(), "Bytes([255, 100, 32, 49])");
    // Two fields with the same name.
    let epoch = HEAD + 7 * DESCRIPTOR + 1;
    let (_root, source) = beton(&changed(epoch, b"label"), "");
    let error = values(&source, 0, &["label"]).unwrap_err();
    assert!(error.problem.contains("several fields \"label\""), "{error}");
    let error = values_up_to(&source, 0, &["box"], 15).unwrap_err();
    assert_eq!(error.reason, Reason::Oversized);
}

#[test]
fn a_beton_file_that_changed_is_an_error() {
    let (root, source) = beton(&golden("beton/fields.beton"), "label");
    let path = root.path().join("a.beton");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    // A file of the same length and time, whose first image has another position.
    fs::write(&path, changed(ROW + IMAGE + 5, &[1])).unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    let error = values(&source, 0, &["epoch"]).unwrap_err();
    assert!(error.problem.contains("was changed"), "{error}");
    fs::write(&path, b"short").unwrap();
    assert!(values(&source, 1, &["epoch"]).is_err());
}
