//! Tests what the documentation of `Parquet` promises, on files written by pyarrow and Hugging
//! Face's datasets (tests/golden/parquet.py).

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::thread;
use std::time::Duration;

use crate::common::words::has_words;
use crate::common::{self, config_error, position, some_of};
use crate::read;

use feedwater::error::{Error, Reason};
use feedwater::internals::source::Configured;
use feedwater::source::custom::{Hints, HostPage};
use feedwater::source::settings::{LabelSort, ParquetSettings};
use feedwater::source::{Parquet, Source};
use feedwater::storage::{Storage, StorageSettings};
use proptest::prelude::*;
use tempfile::TempDir;

const ROWS: u64 = 20;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn file(name: &str) -> PathBuf {
    golden().join("parquet").join(format!("{name}.parquet"))
}

/// Returns the image that the golden files have in a row.
fn image(row: u64) -> Vec<u8> {
    let jpeg = golden().join(format!("records/{}.jpg", row % 7 % 4));
    [fs::read(jpeg).unwrap(), format!("#{}", row % 7).into_bytes()].concat()
}

fn settings(image: &str, label: &str) -> ParquetSettings {
    ParquetSettings { image: image.into(), label: label.into(), ..Default::default() }
}

fn open(path: impl Into<PathBuf>) -> Result<Parquet, Error> {
    Parquet::open(&[path.into()], &ParquetSettings::default())
}

/// Checks that opening the file is an error with this key, whose message contains `values`.
#[track_caller]
fn refused(path: &Path, settings: &ParquetSettings, key: &str, values: &[&str]) {
    common::refused(Parquet::open(&[path.into()], settings), key, values);
}

/// Checks that opening the file is an error in this file at byte `byte`.
#[track_caller]
fn refused_at(path: &Path, byte: usize) {
    let error = config_error(open(path));
    let start = format!("source.parquet: {}", path.display());
    assert!(error.key.starts_with(&start), "{error}");
    assert_eq!(position(&error), byte as u64, "{error}");
}

fn labels(source: &Parquet) -> Vec<i64> {
    (0..source.len()).map(|index| source.label(index)).collect()
}

/// Creates a temporary folder with one file.
fn folder(bytes: &[u8]) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.parquet");
    fs::write(&path, bytes).unwrap();
    (root, path)
}

type IsThere = fn(u64) -> bool;

/// Names of all golden files whose column `image` has images, each with a function that tells
/// whether a row has an image.
const ALL: [(&str, IsThere); 9] = [
    ("snappy", |_| true),
    ("snappy-fallback", |_| true),
    ("zstd-v2", |_| true),
    ("none", |_| true),
    ("none-dictionary", |row| row % 5 != 3),
    ("gzip-v2-nulls", |row| row % 5 != 3 && row < 18),
    ("brotli-nulls", |row| row % 5 != 3 && row < 18),
    ("lz4-delta", |_| true),
    ("none-delta-v2", |row| row % 5 != 3),
];

#[test]
fn files_written_by_pyarrow_are_read_sample_by_sample_in_any_order() {
    for (name, there) in ALL {
        let source = open(file(name)).unwrap();
        assert_eq!(source.len(), ROWS, "{name}");
        // Reads the rows first in order, while no page is indexed, then in another order.
        for index in (0..ROWS).chain((0..5 * ROWS).map(|it| it * 13 % ROWS)) {
            let expected = if there(index) { Ok(image(index)) } else { Err(Reason::Empty) };
            assert_eq!(read(&source, index), expected, "{name} {index}");
        }
        let label = |row: i64| match name {
            "none-delta-v2" => (-1i64).pow(row as u32) * row.pow(11),
            _ => row % 3 - 1,
        };
        assert_eq!(labels(&source), (0..ROWS as i64).map(label).collect::<Vec<_>>(), "{name}");
        assert_eq!(source.largest_bytes(), (0..7).map(|it| image(it).len() as u64).max());
        assert!(source.classes().is_empty());
    }
}

#[test]
fn files_written_by_hugging_face_are_read_with_class_names() {
    let files = ["train-00000-of-00002", "train-00001-of-00002"].map(file);
    let source = Parquet::open(&files, &ParquetSettings::default()).unwrap();
    for index in 0..ROWS {
        assert_eq!(read(&source, index).unwrap(), image(index));
        assert_eq!(source.label(index), index as i64 % 3);
    }
    assert_eq!(source.classes(), ["cat", "dog", "eel"]);
    assert_eq!(source.len(), ROWS);
    assert_eq!(source.location(9), format!("{}[9]", files[0].display()));
    assert_eq!(source.location(12), format!("{}[2]", files[1].display()));
    // The description must contain a file, the number of other files, and the number of samples.
    let described = source.describe();
    assert!(has_words(&described, &[files[0].to_str().unwrap(), "1", "20"]), "{described}");
    let mut page = HostPage::default();
    let fault = source.read(3, &mut page, 700).unwrap_err();
    assert_eq!(fault.reason, Reason::Oversized);
    assert!(has_words(&fault.problem, &["736", "limits.max_file_bytes", "700"]), "{fault}");
    let other = [files[0].clone(), file("snappy")];
    let both = [&other[0], &other[1]].map(|path| path.to_str().unwrap());
    common::refused(Parquet::open(&other, &ParquetSettings::default()), "source.parquet", &both);
}

#[test]
fn a_byte_column_needs_no_struct_and_text_labels_are_in_byte_order() {
    let source = Parquet::open(&[file("texts")], &settings("pixels", "kind")).unwrap();
    assert_eq!(source.classes(), ["cat", "dog", "eel"]);
    let expected: Vec<i64> =
        (0..ROWS).map(|row| if row == 4 { -1 } else { [2, 0, 1][row as usize % 3] }).collect();
    assert_eq!(labels(&source), expected);
    (0..ROWS).for_each(|row| assert_eq!(read(&source, row).unwrap(), image(row)));
    let other = [file("texts"), file("texts")];
    let both = Parquet::open(&other, &settings("pixels", "kind")).unwrap();
    assert_eq!(labels(&both), expected.repeat(2));
    let dotted = Parquet::open(&[file("int32")], &settings("image.bytes", "label")).unwrap();
    assert_eq!((dotted.label(3), dotted.label(4), dotted.label(5)), (3, -1, 5));
    assert_eq!(read(&dotted, 5).unwrap(), image(5));
    let none = Parquet::open(&[file("int32")], &settings("image", "")).unwrap();
    assert_eq!(labels(&none), [-1; ROWS as usize]);
}

#[test]
fn integers_of_any_type_are_labels() {
    let of = |column: &str, settings: &ParquetSettings| {
        let settings = ParquetSettings { label: column.into(), ..settings.clone() };
        Parquet::open(&[file("labels")], &settings)
    };
    let auto = ParquetSettings::default();
    let null = |row: u64, label: i64| if row == 4 { -1 } else { label };
    let numbers = |label: &dyn Fn(u64) -> i64| (0..ROWS).map(label).collect::<Vec<_>>();
    for (column, expected) in [
        ("u64", numbers(&|row| null(row, row as i64))),
        ("u32", numbers(&|row| i64::from(u32::MAX) - row as i64)),
        ("f64", numbers(&|row| null(row, row as i64 % 12))),
        ("f32", numbers(&|row| row as i64 % 12)),
        ("digits", numbers(&|row| null(row, row as i64 % 12))),
        ("digits-float", numbers(&|row| row as i64 % 12)),
    ] {
        let source = of(column, &auto).unwrap();
        assert_eq!(labels(&source), expected, "{column}");
        assert_eq!(source.classes(), [""; 0], "{column}");
    }
    let names = ParquetSettings { labels: LabelSort::Text, ..auto.clone() };
    let source = of("digits", &names).unwrap();
    let classes: Vec<String> = (0..12).map(|class: u64| class.to_string()).collect();
    assert_eq!(source.classes(), classes, "numbers must be in numeric order");
    assert_eq!(labels(&source), numbers(&|row| null(row, row as i64 % 12)));
    let mixed = of("digits-and-names", &names).unwrap();
    assert_eq!(mixed.classes().last().unwrap(), "cat");

    let integers = ParquetSettings { labels: LabelSort::Integer, ..auto.clone() };
    for (column, settings, key, value) in [
        ("u64-large", &auto, "source.parquet", "18446744073709551615"),
        ("f64-fraction", &auto, "source.parquet", "1.5"),
        ("digits-fraction", &auto, "source.parquet", "1.5"),
        ("digits-and-names", &auto, "source.parquet", "\"cat\""),
        ("digits-and-names", &integers, "source.parquet", "\"cat\""),
        ("u64", &names, "source.labels", "u64"),
    ] {
        let error = config_error(of(column, settings));
        assert!(error.key.starts_with(key), "{column}: {error}");
        assert!(error.to_string().contains("labels.parquet"), "{column}: {error}");
        // The message must contain the number of the row and its label.
        assert!(has_words(&error.problem, &[value]), "{column}: {error}");
        let has_row = has_words(&error.problem, &["11"]);
        assert!(has_row || key == "source.labels", "{column}: {error}");
    }
}

#[test]
fn booleans_are_labels() {
    for name in ["bools", "bools-v2"] {
        for (column, null) in [("is_cat", false), ("is_null", true)] {
            let source = Parquet::open(&[file(name)], &settings("image", column)).unwrap();
            let label = |row: u64| match row % 7 == 3 && null {
                true => -1,
                false => i64::from(row.is_multiple_of(3) || row > 12),
            };
            assert_eq!(
                labels(&source),
                (0..ROWS).map(label).collect::<Vec<_>>(),
                "{name} {column}"
            );
        }
    }
}

#[test]
fn a_row_without_image_bytes_is_read_from_the_named_file() {
    let (root, path) = folder(&fs::read(file("paths")).unwrap());
    let source = open(&path).unwrap();
    let mut page = HostPage::default();
    let fault = source.read(0, &mut page, 100).unwrap_err();
    let named = root.path().join("0.jpg");
    assert_eq!(fault.reason, Reason::Unreadable);
    assert!(has_words(&fault.problem, &[named.to_str().unwrap()]), "{fault}");
    assert_eq!(fault.source.unwrap().kind(), ErrorKind::NotFound);
    fs::write(&named, b"image").unwrap();
    assert_eq!(read(&source, 0).unwrap(), b"image");
    let fault = source.read(1, &mut page, 100).unwrap_err();
    assert_eq!(fault.reason, Reason::Empty);
    assert!(has_words(&fault.problem, &["null"]), "{fault}");
    assert_eq!(read(&source, 2).unwrap(), image(2));
    assert_eq!(read(&source, 3), Err(Reason::Empty));
    assert_eq!(labels(&source), [5, 6, 7, 8]);
}

/// Returns the golden file `paths` with one change: its first row names the file `name`, which has
/// ten letters. The dictionary has two names of five letters each. So the second name becomes
/// empty, but the row with that name has an image.
fn with_path(name: &str) -> Vec<u8> {
    let mut bytes = fs::read(file("paths")).unwrap();
    let names = [&5u32.to_le_bytes()[..], b"0.jpg", &5u32.to_le_bytes(), b"2.jpg"].concat();
    let at = bytes.windows(names.len()).position(|it| it == names).unwrap();
    let new = [&10u32.to_le_bytes()[..], name.as_bytes(), &0u32.to_le_bytes()].concat();
    bytes[at..at + names.len()].copy_from_slice(&new);
    bytes
}

/// A Parquet file may come from other people. By default, its paths may name only files below its
/// folder.
#[test]
fn paths_stay_below_the_folder_unless_the_settings_allow_more() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("set/a.parquet");
    fs::create_dir_all(root.path().join("set/x")).unwrap();
    fs::write(root.path().join("bbb.jpg"), "outside").unwrap();
    let first = |name: &str, settings: StorageSettings| {
        fs::write(&path, with_path(name)).unwrap();
        let storage = Storage::new(&settings).unwrap();
        let paths = slice::from_ref(&path);
        let source = Parquet::open_with(paths, &ParquetSettings::default(), &storage).unwrap();
        let mut page = HostPage::default();
        source.read(0, &mut page, 100).map(|()| page.bytes().to_vec())
    };
    for (name, setting) in [
        ("../bbb.jpg", "allow_folders"),
        ("/other.jpg", "allow_folders = [\"/\"]"),
        ("http://a/b", "allow_urls = [\"a\"]"),
        ("s3://bu/ab", "allow_urls = [\"s3://bu\"]"),
    ] {
        let fault = first(name, StorageSettings::default()).unwrap_err();
        assert_eq!(fault.reason, Reason::Unreadable, "{fault}");
        assert!(fault.problem.contains(name) && fault.problem.contains(setting), "{fault}");
    }
    let allow_folders = vec![root.path().to_path_buf()];
    let allowed = StorageSettings { allow_folders, ..Default::default() };
    assert_eq!(first("../bbb.jpg", allowed).unwrap(), b"outside");
    for name in ["././cc.jpg", "x/../c.jpg"] {
        fs::write(root.path().join("set").join(name), "inside").unwrap();
        assert_eq!(first(name, StorageSettings::default()).unwrap(), b"inside");
    }
}

#[test]
fn large_uncompressed_images_are_read_without_other_bytes() {
    for name in ["large", "large-v2"] {
        let whole = fs::read(file(name)).unwrap();
        let (_root, path) = folder(&whole);
        let source = open(&path).unwrap();
        let read_all = |order: [u64; 6]| {
            for index in order {
                let long = || [image(index), vec![b'.'; 5000 - image(index).len()]].concat();
                let expected = if index == 3 { Err(Reason::Empty) } else { Ok(long()) };
                assert_eq!(read(&source, index), expected, "{name} {index}");
            }
        };
        read_all([4, 1, 0, 5, 2, 3]);
        read_all([0, 1, 2, 3, 4, 5]);
        assert_eq!(source.largest_bytes(), Some(5000));
        // The pages have 25 kB, so this bound shows that the source does not keep them in memory.
        assert!(source.memory_bytes() < 15_000, "{}", source.memory_bytes());
        for position in (0..whole.len()).step_by(if name == "large" { 41 } else { 97 }) {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x80 >> (position % 8);
            survive(&damaged);
        }
    }
}

#[test]
fn a_path_is_a_file_a_directory_or_a_pattern() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::copy(file("train-00000-of-00002"), at("b.parquet")).unwrap();
    fs::copy(file("train-00001-of-00002"), at("c.parquet")).unwrap();
    fs::write(at("a.txt"), "no Parquet").unwrap();
    fs::write(at(".hidden.parquet"), "no Parquet").unwrap();
    let first = |path: PathBuf| open(path).map(|source| (source.len(), source.location(0)));
    assert_eq!(first(at("")).unwrap(), (20, format!("{}[0]", at("b.parquet").display())));
    assert_eq!(first(at("c*.parquet")).unwrap(), (10, format!("{}[0]", at("c.parquet").display())));
    let none = at("d*");
    let settings = ParquetSettings::default();
    refused(&none, &settings, "source.parquet", &[none.to_str().unwrap()]);
    assert!(matches!(open(at("d")), Err(Error::Io { path, .. }) if path == at("d")));
}

#[test]
fn a_missing_or_unsuitable_column_is_an_error_that_lists_the_columns() {
    // The message must contain the file, the column that is missing or unsuitable, and the existing
    // columns.
    let [texts, snappy, several] = ["texts", "snappy", "several"].map(file);
    let [in_texts, in_snappy, in_several] =
        [&texts, &snappy, &several].map(|path| path.to_str().unwrap());
    let values = [in_texts, "\"image\"", "pixels"];
    refused(&texts, &ParquetSettings::default(), "source.image", &values);
    let values = [in_snappy, "\"class\"", "\"\"", "image.path", "label"];
    refused(&snappy, &settings("image", "class"), "source.label", &values);
    let values = [in_snappy, "\"label\"", "image.bytes"];
    refused(&snappy, &settings("label", ""), "source.image", &values);
    // The message must not suggest columns that would be refused too. These are texts as images,
    // bytes as labels, and lists.
    let problem = |path: &PathBuf, image: &str, label: &str| {
        let settings = settings(image, label);
        let problem = config_error(Parquet::open(std::slice::from_ref(path), &settings)).problem;
        problem.rsplit_once(": ").unwrap().1.to_string()
    };
    assert_eq!(problem(&texts, "none", ""), "pixels");
    assert_eq!(problem(&texts, "pixels", "none"), "kind");
    assert_eq!(problem(&snappy, "none", "label"), "image.bytes");
    assert_eq!(problem(&snappy, "image", "none"), "image.path, label");
    assert!(!problem(&several, "none", "label").contains("list"));
    let values = [in_several, "\"image.list.element\""];
    refused(&several, &settings("image.list.element", "label"), "source.image", &values);
    let error = config_error(Parquet::open(&[texts], &settings("pixels", "pixels")));
    assert!(error.key.starts_with("source.parquet: ") && position(&error) > 0, "{error}");
    assert!(has_words(&error.problem, &["source.label", "\"\""]), "{error}");
    let mixed = [file("snappy"), file("paths")];
    assert_eq!(Parquet::open(&mixed, &ParquetSettings::default()).unwrap().len(), 24);
}

#[test]
fn page_memory_stays_below_the_limit_and_is_shared_by_threads() {
    let (root, first) = folder(&fs::read(file("snappy-fallback")).unwrap());
    for (number, (name, _)) in ALL.iter().filter(|(_, there)| (0..ROWS).all(there)).enumerate() {
        fs::copy(file(name), root.path().join(format!("{number}.parquet"))).unwrap();
    }
    // This limit suffices for one compressed page.
    let tight = ParquetSettings { cache_bytes: 16384, ..Default::default() };
    let source = Parquet::open(&[root.path().into()], &tight).unwrap();
    let files = fs::read_dir(root.path()).unwrap().count() as u64;
    assert_eq!(source.len(), files * ROWS);
    thread::scope(|scope| {
        for start in 0..8 {
            let source = &source;
            scope.spawn(move || {
                for step in 0..source.len() {
                    let index = (start * 17 + step * 7) % source.len();
                    assert_eq!(read(source, index).unwrap(), image(index % ROWS));
                }
            });
        }
    });
    assert!((16384..100_000).contains(&source.memory_bytes()), "{}", source.memory_bytes());
    let none = ParquetSettings { cache_bytes: 1000, ..Default::default() };
    let error = config_error(Parquet::open(&[first], &none));
    assert!(has_words(&error.problem, &["source.cache_bytes", "1000"]), "{error}");
}

#[test]
fn an_invalid_or_truncated_file_is_an_error_with_the_byte() {
    let whole = fs::read(file("none")).unwrap();
    for len in (0..whole.len()).step_by(7).chain(whole.len() - 20..whole.len()) {
        let (_root, path) = folder(&whole[..len]);
        refused_at(&path, len.saturating_sub(8));
    }
    // Replaces the magic number by that of an encrypted file.
    let mut encrypted = whole.clone();
    let end = encrypted.len();
    encrypted[end - 4..].copy_from_slice(b"PARE");
    let (_root, path) = folder(&encrypted);
    refused_at(&path, end - 4);
}

#[test]
fn a_file_changed_or_truncated_after_opening_is_an_error() {
    for name in ["none", "zstd-v2"] {
        let whole = fs::read(file(name)).unwrap();
        let (_root, path) = folder(&whole);
        let source = open(&path).unwrap();
        let handle = File::options().write(true).open(&path).unwrap();
        let time = handle.metadata().unwrap().modified().unwrap();
        handle.set_modified(time + Duration::from_secs(1)).unwrap();
        let mut page = HostPage::default();
        let fault = source.read(0, &mut page, 1 << 20).unwrap_err();
        assert_eq!(fault.reason, Reason::Unreadable, "{fault}");
        handle.set_len(1000).unwrap();
        assert_eq!(read(&source, ROWS - 1), Err(Reason::Truncated));
    }
}

#[test]
fn samples_of_a_page_with_a_wrong_checksum_are_unreadable() {
    for name in ["none", "snappy-fallback"] {
        let (_root, path) = folder(&fs::read(file(name)).unwrap());
        let source = open(&path).unwrap();
        let handle = File::options().write(true).open(&path).unwrap();
        let time = handle.metadata().unwrap().modified().unwrap();
        // Changes a byte of the first image, and restores the file's time.
        handle.write_all_at(b"x", 300).unwrap();
        handle.set_modified(time).unwrap();
        assert_eq!(read(&source, 0), Err(Reason::Corrupt));
        assert_eq!(read(&source, ROWS - 1).unwrap(), image(ROWS - 1));
    }
}

/// Opens a damaged file and reads all its samples. Reading must not panic, hang or allocate much
/// memory.
fn survive(bytes: &[u8]) {
    let (_root, path) = folder(bytes);
    let settings = ParquetSettings { cache_bytes: 1 << 20, ..Default::default() };
    let Ok(source) = Parquet::open(&[path], &settings) else { return };
    assert!(source.len() <= bytes.len() as u64);
    let mut page = HostPage::default();
    for index in (0..source.len()).chain([0]) {
        let _ = source.read(index, &mut page, 1 << 20);
    }
    assert!(source.memory_bytes() < 2 << 20);
    source.largest_bytes();
}

/// Flips one bit in some bytes of each file. The position of the bit varies.
#[test]
fn any_damage_is_an_error() {
    let names = ALL.iter().map(|(name, _)| *name).chain(["paths", "int32", "train-00000-of-00002"]);
    for name in names {
        let whole = fs::read(file(name)).unwrap();
        let step = if name == "zstd-v2" { 1 } else { 17 };
        for position in some_of((0..whole.len()).step_by(step), step) {
            let mut damaged = whole.clone();
            damaged[position] ^= 1 << (position % 8);
            survive(&damaged);
        }
    }
}

proptest! {
    #[test]
    fn any_damage_of_metadata_is_an_error(
        which in 0..ALL.len(),
        edits in prop::collection::vec((0..2000usize, any::<u8>()), 1..6),
    ) {
        let mut bytes = fs::read(file(ALL[which].0)).unwrap();
        let end = bytes.len();
        for (back, value) in edits {
            bytes[end - 1 - back.min(end - 1)] = value;
        }
        survive(&bytes);
    }
}
