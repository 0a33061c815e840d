//! Tests of packed fields: columns of a packed set equal those of its source.

use std::collections::BTreeMap;

use feedwater::internals::field::{CellFormat, FieldPath, SampleContext, TooLong};
use feedwater::internals::source::Configured;
use feedwater::plan::{BoxFormat, CellKind, ColumnSettings, DefaultValue, LastBatch};
use feedwater::source::settings::{
    CocoSettings, DirectorySettings, NpySettings, ParquetSettings, WebDatasetSettings,
};
use feedwater::source::{
    Coco, Concat, Field, FieldKind, FieldValue, FileList, Flat, Npy, Parquet, custom,
};
use feedwater::{ElementType, Storage};
use feedwater_tools::pack::{ChosenFields, FieldChoice, chosen_fields};
use serde_json::json;

use super::*;
use crate::common::{config_error, jpegs};

mod choice;
mod hostile;
mod resume;
mod sources;
mod values;

const F32: ElementType = ElementType::F32;
const I64: ElementType = ElementType::I64;
const U8: ElementType = ElementType::U8;
const FORMATS: [ShardFormat; 2] = [ShardFormat::WebDataset, ShardFormat::TfRecord];

fn column(field: &str, settings: ColumnSettings) -> ColumnSettings {
    ColumnSettings { field: Some(field.into()), ..settings }
}

fn or(default: DefaultValue, settings: ColumnSettings) -> ColumnSettings {
    ColumnSettings { default: Some(default), ..settings }
}

/// Loads a source once, and returns the bits of each sample in all columns, and the number of
/// defaults.
fn rows(
    source: Arc<dyn Source>,
    columns: &[ColumnSettings],
) -> (Vec<Vec<String>>, BTreeMap<String, u64>) {
    let builder = LoaderBuilder::new(source, training()).batch_size(4).device(DeviceChoice::Cpu);
    let builder = builder.epochs(Some(1)).shuffle(false).last_batch(LastBatch::Partial);
    let mut loader = builder.configure(|it| it.columns = columns.into()).build().unwrap();
    let mut rows = Vec::new();
    for batch in &mut loader {
        let batch = batch.unwrap();
        for place in 0..batch.len() {
            let shown = batch.columns().map(|column| {
                let bits = match column.element_type() {
                    ElementType::F32 => {
                        let list = column.sample::<f32>(place).unwrap();
                        format!("{:x?}", list.iter().map(|it| it.to_bits()).collect::<Vec<_>>())
                    }
                    ElementType::I64 => format!("{:?}", column.sample::<i64>(place).unwrap()),
                    _ => format!("{:?}", column.sample::<u8>(place).unwrap()),
                };
                format!("{}: {bits}", column.name())
            });
            rows.push(shown.collect());
        }
    }
    (rows, loader.stats().defaulted)
}

/// Settings that produce few shards, because each shard is synced to disk.
fn large(format: ShardFormat) -> Settings {
    Settings { shard_bytes: 100_000, ..settings(format) }
}

/// Packs a source in both formats. Checks that columns of the packed sets equal those of the
/// source, in a loader and for every conversion of every field.
#[track_caller]
fn round_trip(source: Arc<dyn Source>, columns: &[ColumnSettings]) {
    round_trip_of(source, columns, &FieldChoice::All);
}

/// Like [`round_trip`], for these fields only.
#[track_caller]
fn round_trip_of(source: Arc<dyn Source>, columns: &[ColumnSettings], fields: &FieldChoice) {
    let large = |format| Settings { fields: fields.clone(), ..large(format) };
    let expected = rows(source.clone(), columns);
    assert!(!expected.0.is_empty());
    for format in FORMATS {
        let (root, manifest) = packed(&*source, &large(format));
        let found: Arc<dyn Source> = Arc::from(open(format, root.path()));
        assert_eq!(rows(found.clone(), columns), expected, "{format:?}");
        assert_eq!(verify(root.path(), |_| {}).unwrap(), source.len());
        compare(&*source, &*found, fields, &format!("{format:?}"));
        // Pack the packed set again, in the other format.
        for again in FORMATS {
            let (root, _) = packed(&*found, &Settings { fields: FieldChoice::All, ..large(again) });
            let twice: Arc<dyn Source> = Arc::from(open(again, root.path()));
            assert_eq!(rows(twice.clone(), columns), expected, "{format:?} {again:?}");
            compare(&*source, &*twice, fields, &format!("{format:?} {again:?}"));
        }
        // Packing in pieces gives the same files.
        let pieces = tempfile::tempdir().unwrap();
        let made =
            cluster::in_pieces(&*source, pieces.path(), &large(format), 2, usize::MAX).unwrap();
        assert_eq!(made, manifest);
        assert_eq!(everything(pieces.path()), everything(root.path()));
    }
}

/// Checks every field, sample and conversion: where the source has a value or none, the packed set
/// has the same. Where it has an error, the packed set may have a value.
#[track_caller]
fn compare(source: &dyn Source, packed: &dyn Source, choice: &FieldChoice, what: &str) {
    let image = |name: &str| source.fields().unwrap().may_be_image(name);
    let names: Vec<String> = source.schema().into_iter().map(|it| it.name).collect();
    let names = match choice {
        FieldChoice::Named(names) => names,
        _ => &names,
    };
    for name in names.iter().filter(|name| !name.is_empty() && !image(name)) {
        // A field whose name contains a colon has no paths.
        let steps = if name.contains(':') { &[""][..] } else { &["", ":a", ":[0]", ":[*].x"] };
        let path = |steps: &&str| match *steps {
            "" => FieldPath { name: name.clone(), steps: Vec::new() },
            steps => format!("{name}{steps}").parse().unwrap(),
        };
        let formats: Vec<CellFormat> =
            steps.iter().map(path).flat_map(|it| conversions(&it)).collect();
        for index in 0..source.len() {
            let [was, is] = [source, packed].map(|it| converted(it, index, name, &formats));
            for (format, (was, is)) in formats.iter().zip(was.into_iter().zip(is)) {
                let is_error = was.as_ref().is_some_and(Result::is_err);
                assert!(is_error || was == is, "{what}: {index} {format:?}: {was:?} {is:?}");
            }
        }
    }
}

/// Result of a conversion. `None` if the value is missing.
type Converted = Option<Result<Vec<u8>, Reason>>;

/// Converts a field of a sample to cells.
fn converted(
    source: &dyn Source,
    index: u64,
    name: &str,
    formats: &[CellFormat],
) -> Vec<Converted> {
    let mut found = vec![None; formats.len()];
    let fields = source.fields().expect("the set has fields");
    let context = SampleContext { draw: 0, limit: 1 << 20 };
    let mut buffer = Vec::new();
    let result = fields.read_fields(index, &[name], &mut buffer, 1 << 20, &mut |_, value| {
        for (format, found) in formats.iter().zip(&mut found) {
            let mut cell = vec![0; format.cell_bytes()];
            *found = match format.write(value, &mut cell, context) {
                Ok(None) => None,
                Ok(Some(written)) => {
                    let size = if format.kind.is_ragged() { written.len } else { 1 };
                    Some(Ok(cell[..size * format.entry_bytes()].to_vec()))
                }
                Err(error) => Some(Err(error.reason)),
            };
        }
        Ok(())
    });
    match result {
        Ok(()) => found,
        Err(error) => vec![Some(Err(error.reason)); formats.len()],
    }
}

fn conversions(field: &FieldPath) -> Vec<CellFormat> {
    let of = |kind, element, dims: &[usize]| CellFormat {
        kind,
        element,
        dims: dims.into(),
        max_len: 64,
        max_texts: 0,
        pick: None,
        too_long: TooLong::Error,
        field: field.clone(),
    };
    let mut all = vec![of(CellKind::Text, U8, &[]), of(CellKind::Bytes, U8, &[])];
    let dims: &[&[usize]] = match field.steps.is_empty() {
        true => &[&[], &[2], &[4], &[2, 2]],
        false => &[&[]],
    };
    for element in [F32, I64] {
        for dims in dims {
            all.push(of(CellKind::Array, element, dims));
            all.push(of(CellKind::List, element, dims));
        }
    }
    all
}

/// Folder with the images `0.jpg`, `1.jpg` and so on.
fn folder_of(images: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, (bytes, _)) in jpegs(images).into_iter().enumerate() {
        fs::write(folder.path().join(format!("{number}.jpg")), bytes).unwrap();
    }
    folder
}

fn list(folder: &TempDir, name: &str, lines: &str) -> Arc<dyn Source> {
    let path = folder.path().join(name);
    fs::write(&path, lines).unwrap();
    Arc::new(FileList::open(path).unwrap())
}

/// A gray PNG with numbers up to 40.
fn mask(size: Size) -> Vec<u8> {
    let rows: Vec<u8> = (0..size.width * size.height).map(|it| (it % 41) as u8).collect();
    [format!("P5 {} {} 255\n", size.width, size.height).as_bytes(), &rows].concat()
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let len = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
}

/// Names of the members of all archives in a folder.
fn members(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for (_, bytes) in files(root).iter().filter(|(name, _)| name.ends_with(".tar")) {
        let mut at = 0;
        while bytes[at] != 0 {
            let text = |range: std::ops::Range<usize>| {
                let bytes = &bytes[at..][range];
                let end = bytes.iter().position(|it| *it == 0).unwrap_or(bytes.len());
                String::from_utf8(bytes[..end].to_vec()).unwrap()
            };
            names.push(text(0..100));
            let len = usize::from_str_radix(text(124..135).trim(), 8).unwrap();
            at += 512 + len.next_multiple_of(512);
        }
    }
    names
}

/// Writes an archive in WebDataset's format.
fn archive(path: &Path, members: &[(String, Vec<u8>)]) {
    let mut tar = Vec::new();
    for (name, bytes) in members {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|it| u32::from(*it)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        tar.extend(header);
        tar.extend(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.extend([0; 1024]);
    fs::write(path, tar).unwrap();
}
