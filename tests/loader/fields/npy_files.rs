//! Columns from `.npy` files: members of archives, and files beside the images.

use std::path::Path;
use std::sync::Arc;

use super::npy::npy;
use super::webdataset::{open, tar};
use super::{F32, I64, batches, builder, sample_error, with_field};
use crate::common::jpeg;
use feedwater::error::Reason;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, Resize, View};
use feedwater::plan::ColumnSettings;
use feedwater::source::WebDataset;
use feedwater::{DType, ElementType, Layout};

/// An archive of images of 80x60 pixels, whose samples have these other files.
pub fn archive(folder: &Path, others: &[Vec<(&str, Vec<u8>)>]) -> WebDataset {
    let path = folder.join("a.tar");
    let mut files = Vec::new();
    for (number, others) in others.iter().enumerate() {
        files.push((format!("{number}.jpg"), jpeg(number as u64, 80, 60)));
        files.push((format!("{number}.cls"), b"1".to_vec()));
        for (name, bytes) in others {
            files.push((format!("{number}.{name}"), bytes.clone()));
        }
    }
    tar(&path, &files);
    open(&[path])
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|it| it.to_le_bytes()).collect()
}

/// Arrays of several shapes and types become columns of numbers, and columns of bytes contain the
/// file.
#[test]
fn members_with_arrays_are_columns() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [0i64, 1, i64::MIN];
    let sample = |number: usize| {
        let embedding: Vec<f32> = (0..6).map(|at| (6 * number + at) as f32 / 8.0).collect();
        let boxes: Vec<f32> = (0..4 * number).map(|at| at as f32).collect();
        vec![
            ("emb.npy", npy("<f4", "(2, 3)", &floats(&embedding))),
            ("boxes.NPY", npy("<f4", &format!("({number}, 4)"), &floats(&boxes))),
            ("id.npy", npy(">i8", "()", &ids[number].to_be_bytes())),
            ("half.npy", npy("<f2", "(1,)", &[0, 0x3c])),
            ("flag.npy", npy("|b1", "(2,)", &[1, 0])),
        ]
    };
    let source = archive(folder.path(), &[sample(0), sample(1), sample(2)]);
    let columns = vec![
        with_field("emb.npy", ColumnSettings::array("emb", F32, &[2, 3])),
        with_field("boxes.npy", ColumnSettings::list("boxes", F32, &[4])),
        with_field("id.npy", ColumnSettings::array("id", I64, &[])),
        with_field("half.npy", ColumnSettings::array("half", F32, &[1])),
        with_field("flag.npy", ColumnSettings::array("flag", ElementType::U8, &[2])),
        with_field("emb.npy", ColumnSettings::bytes("file")),
    ];
    let batch = &batches(builder(source, columns)).unwrap()[0];
    let column = |name| batch.column(name).unwrap();
    for (number, id) in ids.iter().enumerate() {
        let embedding: Vec<f32> = (0..6).map(|at| (6 * number + at) as f32 / 8.0).collect();
        assert_eq!(column("emb").sample(number), Some(&embedding[..]));
        let boxes: Vec<f32> = (0..4 * number).map(|at| at as f32).collect();
        assert_eq!(column("boxes").sample(number), Some(&boxes[..]));
        assert_eq!(column("id").sample(number), Some(&[*id][..]));
        assert_eq!(column("half").sample(number), Some(&[1.0f32][..]));
        assert_eq!(column("flag").sample(number), Some(&[1u8, 0][..]));
        let file: &[u8] = column("file").sample(number).unwrap();
        assert_eq!(file, &sample(number)[0].1[..]);
    }
}

/// A damaged array, another shape or type, and a number out of range are errors of the sample.
#[test]
fn wrong_arrays_fail_their_sample() {
    let array = || with_field("a.npy", ColumnSettings::array("a", I64, &[2]));
    let whole = npy("<i8", "(2,)", &[7; 16]);
    let changed = |from: &str, to: &str| {
        let text = whole.iter().map(|&it| char::from(it)).collect::<String>().replace(from, to);
        text.chars().map(|it| it as u8).collect::<Vec<_>>()
    };
    for (file, reason, words) in [
        (whole[..whole.len() - 1].to_vec(), Reason::Corrupt, "truncated"),
        ([&whole[..], &[0]].concat(), Reason::Corrupt, "1 bytes follow an array"),
        (whole[..9].to_vec(), Reason::Corrupt, "at byte 8"),
        (b"\x93NUM".to_vec(), Reason::Corrupt, "magic number"),
        (b"PK\x03\x04".to_vec(), Reason::Corrupt, ".npz"),
        (changed("(2,)", "(4,)"), Reason::Corrupt, "the shape (4,)"),
        (changed("False", "Fals"), Reason::Corrupt, "neither True nor False"),
        (npy("<i8", "(2, 1)", &[7; 16]), Reason::Field, "an array of shape [2, 1]"),
        (npy("<i8", "()", &[7; 8]), Reason::Field, "an array of shape []"),
        (npy("<c8", "(2,)", &[7; 16]), Reason::Field, "have the type <c8"),
        (npy("|S0", "(2,)", &[]), Reason::Field, "have the type |S0"),
        (npy("<U1", "(2,)", &[7; 8]), Reason::Field, "have the type <U1"),
        (npy("<f4", "(2,)", &floats(&[0.5, 1.0])), Reason::Field, "0.5"),
        (npy("<u8", "(2,)", &[255; 16]), Reason::Field, "18446744073709551615"),
        (npy("<i8", "(0, 9223372036854775807, 8)", &[]), Reason::Field, "an array of shape"),
        (npy("<i8", "(9223372036854775807, 8, 0)", &[]), Reason::Corrupt, "the shape"),
        (Vec::new(), Reason::Field, "is missing"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let good = vec![("a.npy", whole.clone())];
        let source = archive(folder.path(), &[good.clone(), vec![("a.npy", file)], good]);
        let (index, found, problem) = sample_error(builder(source, vec![array()]));
        assert_eq!((index, found), (1, reason), "{problem}");
        assert!(problem.contains("\"a.npy\"") && problem.contains(words), "{words}: {problem}");
    }
}

/// Masks may be arrays of integers, and images of views arrays of bytes. Neither is resized.
#[test]
fn masks_and_images_may_be_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let mask =
        |number: u8| -> Vec<u8> { (0..80 * 60).map(|at| (at % 61) as u8 + number).collect() };
    let pixels = |number: u8| -> Vec<u8> { (0..63).map(|at| 4 * at + number).collect() };
    let sample = |number: u8| {
        let wide = mask(number).into_iter().flat_map(|it| i32::from(it).to_le_bytes());
        vec![
            ("mask.npy", npy("<i4", "(60, 80)", &wide.collect::<Vec<_>>())),
            ("other.npy", npy("|u1", "(3, 7, 3)", &pixels(number))),
        ]
    };
    let source = archive(folder.path(), &[sample(0), sample(1), sample(2)]);
    let chain = Chain::new().then(Resize::to(80, 60)).view(
        View::new("other", Chain::new().then(Resize::to(7, 3))).field("other.npy").dtype(DType::U8),
    );
    let builder = LoaderBuilder::new(Arc::new(source), chain).batch_size(3).epochs(Some(1));
    let builder = builder.device(DeviceChoice::Cpu).configure(|it| {
        it.output.layout = Layout::Nhwc;
        it.columns = vec![with_field("mask.npy", ColumnSettings::mask("mask"))];
    });
    let batch = &batches(builder).unwrap()[0];
    for number in 0..3u8 {
        let found: &[u8] = batch.column("mask").unwrap().sample(number.into()).unwrap();
        assert!(found == mask(number));
        let found: &[u8] = batch.column("other").unwrap().sample(number.into()).unwrap();
        assert_eq!(found, pixels(number));
    }
}
