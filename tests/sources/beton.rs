//! Tests what the documentation of `Beton` promises, on files written by ffcv
//! (tests/golden/beton.py), intact and damaged.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::words::has_words;
use crate::common::{config_error, position, refused_at};
use crate::{folder, read};

use feedwater::error::{Error, Reason};
use feedwater::internals::config::Pipeline;
use feedwater::internals::header::{Format, Header};
use feedwater::source::custom::{Hints, HostPage};
use feedwater::source::settings::BetonSettings;
use feedwater::source::{Beton, Source};
use proptest::prelude::*;

const LABELS: [i64; 6] = [7, 0, -3, 1 << 40, 5, 6];
const FIELD: usize = 1 + 16 + 1024;
/// Number of fields in every golden file except `fields.beton`.
const FIELDS: usize = 2;
/// Offset of the table of samples in every golden file except `fields.beton`.
const TABLE: usize = 24 + FIELDS * FIELD;
/// Number of bytes of a sample in the table. A sample consists of an image, padding and a number.
/// In some files the number comes first.
const ROW: usize = 24;

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/beton");
    fs::read(folder.join(name)).unwrap()
}

fn open(path: impl Into<PathBuf>) -> Result<Beton, Error> {
    Beton::open(&[path.into()], &BetonSettings::default())
}

fn open_with(path: &Path, image: Option<&str>, label: Option<&str>) -> Result<Beton, Error> {
    let settings = BetonSettings { image: image.map(Into::into), label: label.map(Into::into) };
    Beton::open(&[path.into()], &settings)
}

/// Checks that opening a file with these bytes is an error at byte `byte`, whose message contains
/// `values`.
#[track_caller]
fn refused(bytes: &[u8], byte: usize, values: &[&str]) {
    let root = folder(&[("a.beton", bytes)]);
    refused_at(open(root.path()), "source.beton", byte as u64, values);
}

/// Returns image `number` that tests/golden/beton.py wrote, in the form in which `Beton` returns
/// raw images: a PPM file.
fn raw(name: &str, number: u32) -> Vec<u8> {
    let head = format!("P6\n{} {}\n255\n", 16 + 5 * number, 12 + 3 * number);
    [head.as_bytes(), &golden(&format!("{name}.{number}"))].concat()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Returns the file `bytes`, with the bytes from offset `at` on replaced by `number`.
fn with(bytes: &[u8], at: usize, number: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + number.len()].copy_from_slice(number);
    bytes
}

#[test]
fn files_written_by_ffcv_are_read_sample_by_sample() {
    for (name, count, first_jpeg) in [("raw", 5, 5), ("jpg", 5, 0), ("smart", 6, 3)] {
        let file = format!("{name}.beton");
        let root = folder(&[(&file, &golden(&file))]);
        let source = open(root.path()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(source.len(), count);
        let mut largest = 0;
        for number in 0..count as u32 {
            let expected = match number < first_jpeg {
                true => raw(name, number),
                false => golden(&format!("{name}.{number}")),
            };
            let found = read(&source, number.into()).unwrap();
            assert!(found == expected, "{name} {number}");
            assert_eq!(source.label(number.into()), LABELS[number as usize]);
            let header = Header::parse(&found).unwrap();
            let format = if number < first_jpeg { Format::Pnm } else { Format::Jpeg };
            assert_eq!((header.format, header.size.width), (format, 16 + 5 * number));
            largest = largest.max(found.len() as u64);
        }
        let path = root.path().join(&file);
        assert_eq!(source.location(2), format!("{}[2]", path.display()));
        let (described, samples) = (source.describe(), count.to_string());
        assert!(has_words(&described, &[path.to_str().unwrap(), &samples]), "{described}");
        assert_eq!(source.largest_bytes(), Some(largest));
        assert!((24 * count..1000).contains(&source.memory_bytes()), "{}", source.memory_bytes());
        let mut page = HostPage::default();
        let fault = source.read(0, &mut page, 500).unwrap_err();
        assert_eq!(fault.reason, Reason::Oversized);
        let bytes = read(&source, 0).unwrap().len().to_string();
        assert!(has_words(&fault.problem, &[&bytes, "limits.max_file_bytes", "500"]), "{fault}");
    }
}

#[test]
fn a_path_is_a_file_a_directory_or_a_pattern() {
    let [raw, jpg] = ["raw.beton", "jpg.beton"].map(golden);
    let root = folder(&[("b.beton", &raw), ("a.beton", &jpg), ("a.txt", b"no beton")]);
    let labels =
        |source: Beton| (0..source.len()).map(|index| source.label(index)).collect::<Vec<_>>();
    let both = open(root.path()).unwrap();
    assert_eq!(read(&both, 0).unwrap(), golden("jpg.0"));
    assert_eq!(labels(both), [&LABELS[..5], &LABELS[..5]].concat());
    assert_eq!(labels(open(root.path().join("b.*")).unwrap()), LABELS[..5]);
    assert!(matches!(open(root.path().join("c")), Err(Error::Io { .. })));
}

#[test]
fn fields_are_chosen_by_type_or_by_name_if_there_are_several() {
    let root = folder(&[("a.beton", &golden("fields.beton"))]);
    let refused = |image, label, values: &[&str]| {
        refused_at(open_with(root.path(), image, label), "source.beton", 24, values);
    };
    // The message must contain the type of the field, the key of the setting, and the fields that
    // the setting may name.
    refused(None, None, &["RGBImageField", "source.image", "\"thumb\"", "\"image\""]);
    refused(Some("image"), None, &["IntField", "source.label", "\"label\"", "\"epoch\""]);
    // The message must contain the expected type, the name in the setting, and the fields of the
    // file.
    let values =
        ["RGBImageField", "\"label\"", "source.image", "\"a name longer th\"", "FloatField"];
    refused(Some("label"), None, &values);
    refused(Some("image"), Some("id"), &["IntField", "FloatField", "\"id\"", "source.label"]);
    for (label, expected) in
        [("label", [7, 0, -3, 1 << 40]), ("epoch", [100, 101, 102, 103]), ("", [-1; 4])]
    {
        let source = open_with(root.path(), Some("image"), Some(label)).unwrap();
        assert_eq!([0, 1, 2, 3].map(|index| source.label(index)), expected);
        for number in 0..4 {
            assert_eq!(read(&source, number).unwrap(), golden(&format!("fields.{number}")));
        }
    }
    // The thumbnail has a quarter of the image's width and height.
    let source = open_with(root.path(), Some("thumb"), Some("")).unwrap();
    let (whole, part) = (golden("raw.1"), read(&source, 1).unwrap());
    assert!(part.starts_with(b"P6\n6 4\n255\n"));
    let expected: Vec<u8> = (0..15)
        .step_by(4)
        .flat_map(|y| (0..21).step_by(4).map(move |x| 3 * (21 * y + x)))
        .flat_map(|at| whole[at..at + 3].to_vec())
        .collect();
    assert!(part[11..] == expected);
}

/// A file stores only the first 16 bytes of a field's name. So only these are compared.
#[test]
fn names_are_truncated_like_the_writer_does() {
    let name = b"an image of a cat";
    let bytes = with(&golden("raw.beton"), 25, &name[..16]);
    let root = folder(&[("a.beton", &bytes)]);
    assert_eq!(open_with(root.path(), Some("an image of a cat"), None).unwrap().len(), 5);
    assert!(open_with(root.path(), Some("an image"), None).is_err());
}

#[test]
fn a_file_without_labels_has_minus_one_and_one_without_images_is_an_error() {
    let whole = golden("raw.beton");
    // Changes the type of the label's field from a number to an array.
    let root = folder(&[("a.beton", &with(&whole, 24 + FIELD, &[4]))]);
    assert_eq!(open(root.path()).unwrap().label(0), -1);
    refused(&with(&whole, 24, &[3]), 24, &["RGBImageField", "\"image\"", "BytesField"]);
    for kind in [7, 100, 255] {
        let values = ["\"label\"", &kind.to_string()];
        refused(&with(&whole, 24 + FIELD, &[kind]), 24 + FIELD, &values);
    }
}

/// Returns `raw.beton` with its label's field changed to a `FloatField` with these values.
fn with_floats(values: [f64; 5]) -> Vec<u8> {
    let floats = with(&golden("raw.beton"), 24 + FIELD, &[0]);
    (0..5).fold(floats, |bytes, row| {
        // In a row of the table, the field of the image takes 13 bytes. The label after it is
        // aligned to 8 bytes, so it begins at byte 16.
        with(&bytes, TABLE + ROW * row + 16, &values[row].to_le_bytes())
    })
}

#[test]
fn whole_floats_are_labels_and_any_other_float_is_an_error_with_file_sample_and_value() {
    // ffcv itself wrote these labels as floats.
    let root = folder(&[("a.beton", &golden("fields.beton"))]);
    let source = open_with(root.path(), Some("image"), Some("a name longer than 16 bytes"));
    let source = source.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!([0, 1, 2, 3].map(|index| source.label(index)), [0, 1, 2, 3]);

    // Labels with a magnitude up to 2^53 - 1 are exact in f64. The writer may have rounded larger
    // labels, so larger ones are errors.
    let most = ((1u64 << 53) - 1) as f64;
    let root = folder(&[("a.beton", &with_floats([3.0, -0.0, -7.0, most, -most]))]);
    let labels = |source: Beton| [0, 1, 2, 3, 4].map(|index| source.label(index));
    let expected = [3, 0, -7, (1 << 53) - 1, 1 - (1 << 53)];
    // Opens the file twice: the labels come from the file first, then from the index beside it.
    for _ in 0..2 {
        assert_eq!(labels(open(root.path()).unwrap()), expected);
        assert_eq!(labels(open_with(root.path(), None, Some("label")).unwrap()), expected);
    }
    assert_eq!(labels(open_with(root.path(), None, Some("")).unwrap()), [-1; 5]);

    for (value, shown) in
        [(0.5, "0.5"), (f64::NAN, "NaN"), (most + 1.0, "9007199254740992.0"), (1e300, "1e300")]
    {
        // The message must contain the sample, its label, the field, its type, the type to write
        // instead, and the key of the setting.
        let values = ["3", shown, "\"label\"", "FloatField", "IntField", "source.label"];
        let bytes = with_floats([1.0, 2.0, 3.0, value, 4.0]);
        refused(&bytes, TABLE + ROW * 3 + 16, &values);
    }
}

#[test]
fn the_index_is_stored_beside_the_file() {
    let root = folder(&[("a.beton", &golden("smart.beton"))]);
    drop(open(root.path()).unwrap());
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
    let source = open(root.path()).unwrap();
    assert_eq!(read(&source, 1).unwrap(), raw("smart", 1), "raw pixels with the stored table");
    assert_eq!(read(&source, 5).unwrap(), golden("smart.5"));
}

#[test]
fn a_hostile_number_is_an_error_with_its_byte() {
    let whole = golden("raw.beton");
    let table = u64_at(&whole, 16) as usize;
    let pointer = TABLE + 5;
    let changed = |at: usize, number: u64| with(&whole, at, &number.to_le_bytes());
    let most = &u64::MAX.to_string()[..];
    let [early, odd] = [TABLE, table + 1].map(|at| at.to_string());
    for (bytes, byte, values) in [
        // The message must contain the version of the file and the supported version.
        (with(&whole, 0, &[3, 0]), 0, &["3", "2"][..]),
        // The following files have a wrong page size.
        (with(&whole, 4, &[0; 4]), 4, &["0"]),
        (with(&whole, 4, &[1, 2, 0, 0]), 4, &["513"]),
        // Absurd counts.
        (changed(8, 1 << 40), TABLE, &["26388279066624"]),
        (changed(8, u64::MAX), TABLE, &[most]),
        (changed(8, 4), table + 4 * 24, &["4"]),
        (changed(8, 6), TABLE + 5 * ROW, &[]),
        (with(&whole, 2, &[0xff; 2]), 24 + 4 * FIELD, &[]),
        (with(&whole, 2, &[0; 2]), 24, &["RGBImageField"]),
        // The following files have a wrong offset of the allocation table.
        (changed(16, u64::MAX), 16, &[most]),
        (changed(16, TABLE as u64), 16, &[&early]),
        (changed(16, table as u64 + 1), 16, &[&odd]),
        // The following files have wrong allocations. The message must contain the sample, and the
        // number of samples or the number of bytes.
        (changed(16, table as u64 + 24), TABLE, &["0"]),
        (changed(table, 77), table, &["77", "5"]),
        (changed(table + 8, 0), TABLE, &["0"]),
        (changed(table + 16, u64::MAX), table, &["0", most]),
        (changed(table + 16, 575), table, &["0", "575"]),
        (changed(table + 16, 0), TABLE, &["0"]),
        // The following files have wrong images. The message must contain the sample, its size and
        // its mode.
        (changed(pointer, u64::MAX), TABLE, &["0"]),
        (with(&whole, TABLE, &[2]), TABLE, &["0", "16x12", "2"]),
        (with(&whole, TABLE + 1, &[0, 0]), TABLE, &["0", "0x12"]),
        (with(&whole, TABLE + 1, &[17, 0]), table, &["0", "576"]),
    ] {
        refused(&bytes, byte, values);
    }
}

/// The table of samples and the allocation table agree on the position of an image, but the
/// position is not within a page between the tables.
#[test]
fn an_image_must_lie_within_a_page_between_the_tables() {
    let whole = golden("raw.beton");
    let table = u64_at(&whole, 16) as usize;
    let first = u64_at(&whole, TABLE + 5);
    assert_eq!(
        (first, u64_at(&whole, table + 8)),
        (4096, 4096),
        "both must point to the first page"
    );
    let moved = |to: u64| {
        let bytes = with(&whole, TABLE + 5, &to.to_le_bytes());
        with(&bytes, table + 8, &to.to_le_bytes())
    };
    for to in [
        0,
        TABLE as u64 + 5 * 24 - 1,
        8192 - 575,
        table as u64 - 575,
        table as u64,
        u64::MAX,
        u64::MAX - 576,
    ] {
        refused(&moved(to), table, &["0", "576", &to.to_string()]);
    }
    for to in [TABLE as u64 + 5 * 24, 4097, 8192 - 576, 8192, table as u64 - 576] {
        let source = open(folder(&[("a.beton", &moved(to))]).path()).map(|source| source.len());
        assert_eq!(source.ok(), Some(5), "{to}");
    }
}

/// An allocation without bytes has the same pointer as the next one.
#[test]
fn allocations_without_bytes_are_skipped() {
    let whole = golden("jpg.beton");
    let table = u64_at(&whole, 16) as usize;
    let mut empty = whole[table..table + 24].to_vec();
    empty[16..].fill(0);
    let bytes = [&whole[..table], &empty, &whole[table..], &empty].concat();
    let source = open(folder(&[("a.beton", &bytes)]).path().join("a.beton"));
    assert_eq!(
        source.ok().and_then(|source| source.largest_bytes()),
        Some(golden("jpg.4").len() as u64)
    );
    let mut twice = whole[table..table + 24].to_vec();
    assert!(open(folder(&[("a.beton", &[&whole[..], &twice].concat())]).path()).is_ok());
    twice[16] += 1;
    refused(&[&whole[..], &twice].concat(), whole.len(), &["0"]);
}

#[test]
fn a_truncated_file_is_an_error_at_any_length() {
    for name in ["raw.beton", "jpg.beton"] {
        let whole = golden(name);
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.beton");
        let table = u64_at(&whole, 16) as usize;
        // Truncates the file at every length within the tables, and at every thirteenth length
        // elsewhere.
        let everywhere = (0..whole.len()).step_by(13);
        for len in
            (0..64).chain(TABLE - 20..TABLE + 5 * ROW).chain(everywhere).chain(table..whole.len())
        {
            fs::write(&path, &whole[..len]).unwrap();
            let error = config_error(open(&path));
            assert!(error.key.starts_with("source.beton: "), "{len} bytes of {name}: {error}");
            assert!(position(&error) <= whole.len() as u64, "{len} bytes of {name}: {error}");
        }
    }
}

/// Flips one bit of each byte in turn. In the tables, the result is an error, or samples that lie
/// within the file. In the data, pixels change.
#[test]
fn a_flipped_byte_is_an_error_or_a_sample_of_the_file() {
    let whole = golden("smart.beton");
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.beton");
    let table = u64_at(&whole, 16) as usize;
    let arguments =
        |at: &usize| !(41..24 + FIELD).contains(at) && !(24 + FIELD + 17..TABLE).contains(at);
    let (mut errors, mut sound) = (0, 0);
    for position in (0..TABLE + 6 * ROW).filter(arguments).chain(table..whole.len()) {
        let mut damaged = whole.clone();
        damaged[position] ^= 1 << (position % 8);
        fs::write(&path, &damaged).unwrap();
        match open(&path) {
            Ok(source) => {
                for index in 0..source.len() {
                    let bytes = read(&source, index).unwrap();
                    assert!(bytes.len() < 4096);
                    assert!(damaged.windows(300).any(|it| bytes.ends_with(it)), "byte {position}");
                }
                sound += 1;
            }
            Err(error) => {
                assert!(error.to_string().starts_with("source.beton: "), "{error}");
                errors += 1;
            }
        }
    }
    // A changed name, label, padding byte or size of a JPEG may stay undetected.
    assert!(errors > 200 && sound > 60, "{errors} {sound}");
}

#[test]
fn a_pipeline_file_names_fields() {
    let text = b"[source]\nbeton = \"a.beton\"\nimage = \"thumb\"\nlabel = \"epoch\"\n";
    let root = folder(&[("a.beton", &golden("fields.beton")), ("p.toml", text)]);
    let pipeline = Pipeline::from_file(root.path().join("p.toml")).unwrap();
    let source = pipeline.source.open().unwrap();
    assert_eq!((source.len(), source.label(3)), (4, 103));
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), "").unwrap();
    assert_eq!(again.source, pipeline.source);
    let plain = Pipeline::from_toml("[source]\nbeton = \"a\"\n", "").unwrap();
    let again = Pipeline::from_toml(&plain.to_toml().unwrap(), "").unwrap();
    assert_eq!(again.source, plain.source);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// With arbitrary numbers in the header, tables and types, opening is an error, or all samples
    /// lie within the file.
    #[test]
    fn any_tables_give_a_source_or_an_error(
        edits in prop::collection::vec(
            (
                prop_oneof![
                    0usize..25, 0usize..25, Just(24 + FIELD), TABLE..TABLE + 5 * ROW, Just(TABLE + 5),
                    16384usize..16504,
                ],
                prop_oneof![
                    any::<u64>(), 0u64..300, 4000u64..17_000, Just(u64::MAX), Just(1 << 63),
                ],
                1usize..9,
            ),
            1..5,
        ),
        cut in prop::option::weighted(0.2, 0usize..16_504),
    ) {
        let mut bytes = golden("raw.beton");
        for (at, number, count) in edits {
            let end = (at + count).min(bytes.len());
            bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        }
        bytes.truncate(cut.unwrap_or(bytes.len()));
        let root = folder(&[("a.beton", &bytes)]);
        match open(root.path()) {
            Ok(source) => prop_assert!((0..source.len()).all(|index| read(&source, index).is_ok())),
            Err(error) => prop_assert!(error.to_string().starts_with("source.beton: "), "{}", error),
        }
    }
}
