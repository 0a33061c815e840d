//! Columns from NumPy's arrays beside the images.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::reading::{names, value, values, values_up_to};
use super::{F32, I64, batches, builder, shared};
use crate::common::config_error;
use feedwater::Pipeline;
use feedwater::error::{DataError, Error, Reason};
use feedwater::internals::source::Configured;
use feedwater::plan::ColumnSettings;
use feedwater::source::settings::NpySettings;
use feedwater::source::{Npy, Source};
use tempfile::TempDir;

/// Encodes a `.npy` file.
pub fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let len = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
}

fn bytes<const N: usize, T>(values: &[T], bytes: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(bytes).collect()
}

/// Writes two files with 3 and 2 images, and the other files.
fn folder(others: &[(&str, Vec<u8>)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let images = |count: usize| npy("|u1", &format!("({count}, 8, 8, 3)"), &vec![7; count * 192]);
    fs::write(root.path().join("x-0.npy"), images(3)).unwrap();
    fs::write(root.path().join("x-1.npy"), images(2)).unwrap();
    for (name, bytes) in others {
        fs::write(root.path().join(name), bytes).unwrap();
    }
    root
}

fn open(root: &Path, fields: &[(&str, &str)]) -> Result<Npy, Error> {
    let fields = fields.iter().map(|(name, path)| (name.to_string(), PathBuf::from(path)));
    let fields: BTreeMap<String, PathBuf> = fields.collect();
    Npy::open(&[root.into()], &NpySettings { fields, ..Default::default() })
}

#[test]
fn arrays_beside_the_images_are_fields() {
    let boxes: Vec<f32> = (0..40).map(|it| it as f32 / 4.0).collect();
    let words = ["a", "é", "", "日本", "last"];
    let unicode: Vec<u8> = words
        .iter()
        .flat_map(|word| {
            let mut characters: Vec<u32> = word.chars().map(u32::from).collect();
            characters.resize(4, 0);
            bytes(&characters, |it| it.to_be_bytes())
        })
        .collect();
    let root = folder(&[
        (
            "score.npy",
            npy("<f8", "(5,)", &bytes(&[0.1, 1.0, -2.0, 1e300, 5.0f64], |it| it.to_le_bytes())),
        ),
        ("boxes.npy", npy(">f4", "(5, 2, 4)", &bytes(&boxes, |it| it.to_be_bytes()))),
        ("id-0.npy", npy("<u8", "(2,)", &bytes(&[u64::MAX, 1], |it| it.to_le_bytes()))),
        ("id-1.npy", npy("<i2", "(3, 1)", &bytes(&[-5i16, 6, 7], |it| it.to_le_bytes()))),
        ("words.npy", npy(">U4", "(5,)", &unicode)),
        ("codes.npy", npy("|S3", "(5,)", b"a\0\0\0\0\0abc\xff\0\0a\0b")),
        ("mask.npy", npy("|b1", "(5, 2)", &[0, 1, 1, 0, 1, 1, 0, 0, 1, 0])),
        ("none.npy", npy("<f4", "(5, 0)", &[])),
    ]);
    let fields = [
        ("score", "score.npy"),
        ("boxes", "boxes.npy"),
        ("id", "id-*.npy"),
        ("words", "words.npy"),
        ("codes", "codes.npy"),
        ("mask", "mask.npy"),
        ("none", "none.npy"),
    ];
    let source = open(root.path(), &fields).unwrap();
    assert_eq!(source.len(), 5, "the files of fields are no images");
    assert_eq!(names(&source), ["boxes", "codes", "id", "mask", "none", "score", "words"]);
    let most = u64::MAX;
    let expected = [
        ("score", ["Float(0.1)", "Float(1.0)", "Float(-2.0)", "Float(1e300)", "Float(5.0)"]),
        (
            "id",
            [
                &format!("Integer({most})"),
                "Integer(1)",
                "Integers([-5])",
                "Integers([6])",
                "Integers([7])",
            ],
        ),
        ("words", ["Text(\"a\")", "Text(\"é\")", "Text(\"\")", "Text(\"日本\")", "Text(\"last\")"]),
        (
            "codes",
            ["Text(\"a\")", "Text(\"\")", "Text(\"abc\")", "Bytes([255])", "Text(\"a\\0b\")"],
        ),
        (
            "mask",
            [
                "Integers([0, 1])",
                "Integers([1, 0])",
                "Integers([1, 1])",
                "Integers([0, 0])",
                "Integers([1, 0])",
            ],
        ),
        ("none", ["Floats([])"; 5]),
    ];
    for (name, expected) in expected {
        let found: Vec<String> = (0..5).map(|it| value(&source, it, name).unwrap()).collect();
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(
        value(&source, 4, "boxes").unwrap(),
        "Floats([8.0, 8.25, 8.5, 8.75, 9.0, 9.25, 9.5, 9.75])"
    );
    assert_eq!(values(&source, 1, &["absent", "id", "id"]).unwrap().len(), 2);
    let error = values_up_to(&source, 1, &["boxes"], 31).unwrap_err();
    assert_eq!(error.reason, Reason::Oversized);
    assert!(error.problem.contains("\"boxes\" has 32 bytes"), "{error}");
    let less = open(root.path(), &fields[1..]).map(|_| ());
    assert!(less.is_err(), "score.npy is not an array of images");

    let columns =
        vec![ColumnSettings::array("boxes", F32, &[2, 4]), ColumnSettings::list("mask", I64, &[])];
    let found = batches(builder(source, columns)).unwrap();
    assert_eq!(found[0].column("mask").unwrap().sample::<i64>(1), Some(&[1, 0][..]));
    assert_eq!(found[1].column("boxes").unwrap().sample::<f32>(0), Some(&boxes[32..40]));
}

#[test]
fn a_pipeline_file_names_the_arrays_of_fields() {
    let ids = |values: &[i64]| bytes(values, |it| it.to_le_bytes());
    let root = folder(&[
        ("y.npy", npy("<i8", "(5,)", &ids(&[4, 3, 2, 1, 0]))),
        ("id.npy", npy("<i8", "(5,)", &ids(&[10, 11, 12, 13, 14]))),
    ]);
    let text = "[source]\nnpy = \"x-*.npy\"\nlabels = \"y.npy\"\nfields = { id = \"id.npy\" }\n\
        [[column]]\nname = \"id\"\ndtype = \"i64\"\n[[chain]]\nop = \"resize\"\nwidth = 8\nheight = 8\n";
    let pipeline = Pipeline::from_toml(text, root.path()).unwrap();
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), Path::new("")).unwrap();
    let columns = again.settings.columns.clone();
    let found = batches(shared(again.open().unwrap(), columns)).unwrap();
    assert_eq!(found[0].labels(), [4, 3, 2, 1]);
    assert_eq!(found[0].column("id").unwrap().as_slice::<i64>().unwrap(), [10, 11, 12, 13]);
}

#[test]
fn wrong_arrays_are_errors_when_the_source_is_opened() {
    let cases = [
        ("<i4", "(4,)", vec![0; 16], "4 values"),
        ("<i4", "(5,)", vec![0; 16], "truncated"),
        ("<i4", "()", vec![0; 4], "no axis"),
        ("<c8", "(5,)", vec![0; 40], "<c8"),
        ("<U1", "(5, 2)", vec![0; 40], "<U1"),
        ("|V4", "(5,)", vec![0; 20], "V4"),
        ("<i4", "(0, 1099511627776, 1099511627776)", vec![], "0 values"),
    ];
    for (descr, shape, data, words) in cases {
        let root = folder(&[("a.npy", npy(descr, shape, &data))]);
        let error = config_error(open(root.path(), &[("caption", "a.npy")]));
        assert!(error.key.starts_with("source.fields.caption"), "{error}");
        assert!(error.problem.contains(words), "{error}");
    }
    let root = folder(&[]);
    assert!(open(root.path(), &[("a", "absent.npy")]).is_err());
}

#[test]
fn wrong_values_and_changed_files_are_errors_of_the_sample() {
    let numbers = bytes(&[1, u64::MAX, 3, 4, 5], |it| it.to_le_bytes());
    let characters = bytes(&[97u32, 0xd800, 98, 99, 100], |it| it.to_le_bytes());
    let root = folder(&[
        ("n.npy", npy("<u8", "(5, 1)", &numbers)),
        ("u.npy", npy("<U1", "(5,)", &characters)),
    ]);
    let source = open(root.path(), &[("n", "n.npy"), ("u", "u.npy")]).unwrap();
    let error = |index, name| -> DataError { values(&source, index, &[name]).unwrap_err() };
    assert_eq!(error(1, "n").reason, Reason::Field);
    assert!(error(1, "n").problem.contains("\"n\" has the number 18446744073709551615 at place 0"));
    assert_eq!(error(1, "u").reason, Reason::Corrupt);
    assert!(error(1, "u").problem.contains("\"u\" has the invalid character 0xd800"));
    assert_eq!(value(&source, 2, "u").unwrap(), "Text(\"b\")");
    fs::write(root.path().join("n.npy"), b"short").unwrap();
    let changed = error(0, "n");
    assert!(matches!(changed.reason, Reason::Truncated | Reason::Unreadable), "{changed}");
    assert!(
        changed.problem.contains("\"n\" in ") && changed.problem.contains("n.npy"),
        "{changed}"
    );
    assert_eq!(value(&source, 0, "u").unwrap(), "Text(\"a\")");
}
