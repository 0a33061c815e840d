//! Joins whose second source has no images, with every type of source.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::image_headers::{contents, part};
use super::join::{captions, config_error, expected, open};
use super::npy::npy;
use super::reading::{golden, names, value, values_up_to};
use super::tfrecord::{bytes, example, integers};
use super::{batches, folder, shared, with_field};
use crate::common::jpegs;
use feedwater::ElementType;
use feedwater::error::Reason;
use feedwater::plan::ColumnSettings;
use feedwater::source::custom::HostPage;
use feedwater::source::settings::{LmdbSettings, MissingPartner};
use feedwater::source::{Lmdb, Source};
use flate2::{Compression, write::GzEncoder};

const TEXTS: [&str; 3] = ["zero", "one, é", "\"two"];

/// Encodes a `.beton` file with an IntField `id` and a BytesField `caption`.
fn beton(rows: &[(i64, &str)]) -> Vec<u8> {
    let descriptor = |kind: u8, name: &str| {
        let mut descriptor = vec![0; 1 + 16 + 1024];
        descriptor[0] = kind;
        descriptor[1..=name.len()].copy_from_slice(name.as_bytes());
        descriptor
    };
    let begin = 24 + 2 * (1 + 16 + 1024) + 24 * rows.len();
    let (mut table, mut data, mut allocations) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (id, caption)) in rows.iter().enumerate() {
        let place = [(begin + data.len()) as u64, caption.len() as u64];
        table.extend(id.to_le_bytes());
        table.extend(place.iter().flat_map(|it| it.to_le_bytes()));
        allocations
            .extend([number as u64, place[0], place[1]].iter().flat_map(|it| it.to_le_bytes()));
        data.extend(caption.as_bytes());
    }
    let head = [&2u16.to_le_bytes()[..], &2u16.to_le_bytes(), &(1u32 << 21).to_le_bytes()].concat();
    let counts = [rows.len() as u64, (begin + data.len()) as u64].map(u64::to_le_bytes).concat();
    [head, counts, descriptor(1, "id"), descriptor(3, "caption"), table, data, allocations].concat()
}

/// Writes second sources of all types for the images `0.jpg`, `1.jpg` and `2.jpg`, in another
/// order.
fn second_sources(root: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).unwrap();
    let order = [2, 0, 1];
    let examples = order.map(|number| {
        example(&[integers("id", &[number as i64]), bytes("caption", &[TEXTS[number].as_bytes()])])
    });
    write("a.tfrecord", &examples.concat());
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&examples.concat()).unwrap();
    write("a.tfrecord.gz", &gz.finish().unwrap());
    let labels = [&[][..], &[1.5], &[2.0, 3.0]];
    let records = order
        .map(|number| part(0, &contents(labels[number], number as u64, TEXTS[number].as_bytes())));
    write("a.rec", &records.concat());
    write("a.beton", &beton(&order.map(|number| (number as i64, TEXTS[number]))));
    let texts: Vec<u8> = order
        .iter()
        .flat_map(|&number| {
            let mut characters: Vec<u32> = TEXTS[number].chars().map(u32::from).collect();
            characters.resize(8, 0);
            characters.into_iter().flat_map(u32::to_le_bytes)
        })
        .collect();
    write("texts.npy", &npy("<U8", "(3,)", &texts));
    write("ids.npy", &npy("|u1", "(3,)", &[2, 0, 1]));
    let texts = TEXTS.map(|text| [text.as_bytes(), &vec![0; 8 - text.len()]].concat()).concat();
    write("by-position.npy", &npy("|S8", "(3,)", &texts));
    for number in order {
        fs::create_dir_all(root.join(format!("texts/{number}"))).unwrap();
        write(&format!("texts/{number}/{number}.txt"), TEXTS[number].as_bytes());
    }
    let entry = |number: usize| {
        let image = format!("{{\"id\": {number}, \"file_name\": \"/elsewhere/{number}.jpg\"}}");
        let caption = format!(
            "{{\"id\": {number}, \"image_id\": {number}, \"caption\": {:?}}}",
            TEXTS[number]
        );
        (image, caption)
    };
    let (images, annotations): (Vec<_>, Vec<_>) = order.into_iter().map(entry).unzip();
    let [images, annotations] = [images, annotations].map(|it| it.join(", "));
    let coco = format!("{{\"images\": [{images}], \"annotations\": [{annotations}]}}");
    write("captions.json", coco.as_bytes());
}

#[test]
fn the_second_source_of_a_join_needs_no_images() {
    let root = tempfile::tempdir().unwrap();
    let others = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("images")).unwrap();
    for (number, (bytes, _)) in jpegs(3).into_iter().enumerate() {
        fs::write(root.path().join(format!("images/{number}.jpg")), bytes).unwrap();
    }
    second_sources(others.path());
    let path = |name: &str| others.path().join(name).display().to_string();
    for (join, field) in [
        (format!("tfrecord = {:?}\nother_key = \"id\"", path("a.tfrecord")), "caption"),
        (format!("tfrecord = {:?}\nother_key = \"id\"", path("a.tfrecord.gz")), "caption"),
        (format!("recordio = {:?}\nother_key = \"id\"", path("a.rec")), "value"),
        (format!("beton = {:?}\nother_key = \"id\"", path("a.beton")), "caption"),
        (
            format!(
                "npy = {:?}\nfields = {{ id = \"ids.npy\" }}\nother_key = \"id\"",
                path("texts.npy")
            ),
            "value",
        ),
        (
            format!(
                "npy = {:?}\nfields = {{ id = \"ids.npy\", text = \"texts.npy\" }}\nother_key = \"id\"",
                path("texts.npy")
            ),
            "text",
        ),
        (format!("npy = {:?}\nother_key = \"__index__\"", path("by-position.npy")), "value"),
        (
            format!("npy = {:?}\nkey = \"__index__\"\nmissing = \"drop\"", path("by-position.npy")),
            "value",
        ),
        (format!("directory = {:?}", path("texts")), "value"),
        (format!("directory = {:?}\nextensions = [\"txt\"]", path("texts")), "value"),
        (format!("coco = {:?}", path("captions.json")), "captions:[0]"),
    ] {
        // The second time, tables of the files are stored.
        for _ in 0..2 {
            let source =
                open(root.path(), &format!("directory = \"images\"\n[source.join]\n{join}"));
            let source = source.unwrap_or_else(|error| panic!("{join}: {error}"));
            assert_eq!(captions(source.clone(), field), expected(TEXTS), "{join}");
            assert!(source.warnings().is_empty(), "{join}: {:?}", source.warnings());
        }
    }
    // As a first source, they still need images.
    for (key, name) in [("tfrecord", "a.tfrecord"), ("beton", "a.beton"), ("npy", "texts.npy")] {
        assert!(open(root.path(), &format!("{key} = {:?}", path(name))).is_err(), "{key}");
    }
}

#[test]
fn values_of_lmdb_that_are_no_images_are_a_field() {
    // The values of an environment with images are overwritten by texts of the same lengths.
    let mut file = golden("lmdb/image/data.mdb");
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("data.mdb"), &file).unwrap();
    let settings = LmdbSettings { keys: "image-*".into(), ..Default::default() };
    let images = Lmdb::open(&[root.path().join("data.mdb")], &settings).unwrap();
    let mut texts = Vec::new();
    for index in 0..images.len() {
        let mut page = HostPage::default();
        images.read(index, &mut page, 1 << 20).unwrap();
        let image = page.bytes();
        // Begins like a Datum. Equal images have equal texts, and the file has old copies of some.
        let text = format!("\"{:x} {}", crc32c::crc32c(image), "é".repeat(image.len()));
        let end = (0..=image.len()).rev().find(|&end| text.is_char_boundary(end)).unwrap();
        let text = [&text[..end], &" ".repeat(image.len() - end)].concat();
        let at = |file: &[u8]| file.windows(image.len()).position(|it| it == image);
        while let Some(at) = at(&file) {
            file[at..at + image.len()].copy_from_slice(text.as_bytes());
        }
        texts.push(text);
    }
    fs::write(root.path().join("data.mdb"), &file).unwrap();
    fs::create_dir(root.path().join("images")).unwrap();
    for index in 0..images.len() {
        let name = format!("images/image-{index:04}.jpg");
        fs::write(root.path().join(name), &jpegs(1)[0].0).unwrap();
    }
    let join = "directory = \"images\"\n[source.join]\nlmdb = \"data.mdb\"\nkeys = \"image-*\"\n\
                other_key = \"key\"";
    let source = open(root.path(), join).unwrap();
    for (index, text) in (0..).zip(&texts) {
        assert_eq!(value(&*source, index, "value"), Some(format!("Text({text:?})")));
    }
    let error = values_up_to(&*source, 2, &["value"], 20).unwrap_err();
    assert_eq!(error.reason, Reason::Oversized);
    for word in ["\"value\"", "data.mdb[2]", "joined from"] {
        assert!(error.problem.contains(word), "{error}");
    }
    // The fields of a Datum are those that it has without a join.
    fs::write(root.path().join("datum.mdb"), golden("lmdb/datum.mdb")).unwrap();
    let first = Lmdb::open(&[root.path().join("datum.mdb")], &LmdbSettings::default()).unwrap();
    let key = |source: &dyn Source| {
        let key = value(source, 0, "key").unwrap();
        key.trim_start_matches("Text(\"").trim_end_matches("\")").to_string()
    };
    let table = format!("path,key\nimages/image-0000.jpg,{}\n", key(&first));
    fs::write(root.path().join("keys.csv"), table).unwrap();
    let joined = "list = \"keys.csv\"\n[source.join]\nlmdb = \"datum.mdb\"\nkey = \"key\"";
    let source = open(root.path(), joined).unwrap();
    let fields = names(&*source);
    assert!(!fields.contains(&"value".into()) && fields.contains(&"width".into()), "{fields:?}");
    assert_eq!(value(&*source, 0, "label"), value(&first, 0, "label"));
    // A Datum of floats has no image.
    fs::write(root.path().join("float.mdb"), golden("lmdb/float.mdb")).unwrap();
    assert!(Lmdb::open(&[root.path().join("float.mdb")], &LmdbSettings::default()).is_err());
    let joined = "directory = \"images\"\n[source.join]\nlmdb = \"float.mdb\"\nother_key = \"key\"";
    let error = config_error(root.path(), joined);
    assert!(error.contains("no sample has the key"), "{error}");
}

#[test]
fn records_in_parts_and_bytes_are_values() {
    let root = folder(3);
    // The second record is split where its contents have an aligned magic number.
    let magic = [0x0a, 0x23, 0xd7, 0xce];
    let text = [b"abcd", &magic[..], b"efgh\xff"].concat();
    let whole = contents(&[], 1, &text);
    let at = whole.windows(4).position(|it| it == magic).unwrap();
    let records = [
        part(0, &contents(&[1.0, 2.0], 0, b"")),
        part(1, &whole[..at]),
        part(3, &whole[at + 4..]),
        part(0, &contents(&[], 2, b"last")),
    ];
    fs::write(root.path().join("a.rec"), records.concat()).unwrap();
    let join = "directory = \".\"\n[source.join]\nrecordio = \"a.rec\"\nother_key = \"id\"";
    let source = open(root.path(), join).unwrap();
    assert_eq!(value(&*source, 0, "value").unwrap(), "Text(\"\")");
    assert_eq!(value(&*source, 1, "value").unwrap(), format!("Bytes({text:?})"));
    assert_eq!(value(&*source, 2, "value").unwrap(), "Text(\"last\")");
    assert_eq!(value(&*source, 0, "label").unwrap(), "Floats([1.0, 2.0])");
    assert!(values_up_to(&*source, 1, &["value"], 12).is_err());
}

#[test]
fn positions_are_keys_and_samples_that_are_left_out_do_not_move_them() {
    let root = folder(5);
    let rows: Vec<u8> = (0..4u8).flat_map(|row| [row, row + 10]).collect();
    fs::write(root.path().join("rows.npy"), npy("|u1", "(4, 2)", &rows)).unwrap();
    fs::write(
        root.path().join("positions.npy"),
        npy("<i8", "(4,)", &[1i64, 0, 4, 9].map(i64::to_le_bytes).concat()),
    )
    .unwrap();
    let text = |join: &str| format!("directory = \".\"\n[source.join]\nnpy = \"rows.npy\"\n{join}");
    let column = || vec![with_field("value", ColumnSettings::array("row", ElementType::U8, &[2]))];
    let rows = |join: &str| {
        let source = open(root.path(), &text(join)).unwrap();
        let found = batches(shared(source, column())).unwrap();
        let of = |batch: &feedwater::loader::Batch| {
            batch.column("row").unwrap().as_slice::<u8>().unwrap().to_vec()
        };
        found.iter().flat_map(of).collect::<Vec<u8>>()
    };
    let drop = "missing = \"drop\"\n";
    assert_eq!(rows(&format!("{drop}key = \"__index__\"")), [0, 10, 1, 11, 2, 12, 3, 13]);
    // Sample 2 and 3 have no partner, so sample 4 of the first source is the third one.
    let by_field =
        "key = \"__index__\"\nother_key = \"position\"\nfields = { position = \"positions.npy\" }";
    assert_eq!(rows(&format!("{drop}{by_field}")), [1, 11, 0, 10, 2, 12]);
    let error = batches(shared(open(root.path(), &text("key = \"__index__\"")).unwrap(), column()));
    let error = error.err().unwrap().to_string();
    for word in ["4.jpg", "rows.npy", "\"4\"", "missing = \"drop\""] {
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(MissingPartner::default(), MissingPartner::Keep);
}

#[test]
fn second_sources_that_do_not_fit_are_errors_with_a_way_out() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("images")).unwrap();
    for number in 0..3 {
        fs::write(root.path().join(format!("images/{number}.jpg")), &jpegs(1)[0].0).unwrap();
    }
    second_sources(root.path());
    fs::write(root.path().join("short.npy"), npy("|u1", "(2,)", &[0, 1])).unwrap();
    fs::write(
        root.path().join("no-fields.beton"),
        [&[2, 0, 0, 0, 0, 0, 32, 0][..], &[9; 8], &24u64.to_le_bytes()].concat(),
    )
    .unwrap();
    fs::create_dir(root.path().join("empty")).unwrap();
    for (join, words) in [
        (
            "tfrecord = \"a.tfrecord\"",
            &["source.join.other_key", "have no own key", "__index__", "id, caption"][..],
        ),
        (
            "npy = \"texts.npy\"\nfields = { id = \"short.npy\" }\nother_key = \"id\"",
            &["source.join.fields.id", "short.npy has 2 values", "3 samples"],
        ),
        (
            "npy = \"texts.npy\"\nfields = { value = \"ids.npy\" }\nother_key = \"value\"",
            &["source.join.fields.value", "another"],
        ),
        ("beton = \"no-fields.beton\"\nother_key = \"id\"", &["no fields"]),
        ("directory = \"empty\"", &["no files"]),
        // Images and captions of the same names.
        ("directory = \".\"", &["same key"]),
    ] {
        let error =
            config_error(root.path(), &format!("directory = \"images\"\n[source.join]\n{join}"));
        for word in words {
            assert!(error.contains(word), "{join}: {error}");
        }
    }
    fs::create_dir(root.path().join("odd")).unwrap();
    fs::write(root.path().join("odd").join(OsStr::from_bytes(b"\xFF.txt")), "a").unwrap();
    let join = "directory = \"images\"\n[source.join]\ndirectory = \"odd\"";
    let error = config_error(root.path(), join);
    assert!(error.contains("source.join.other_key: is the own key"), "{error}");
    assert!(error.contains(".txt is not UTF-8"), "{error}");
    let join = "directory = \"images\"\n[source.join]\ndirectory = \"texts\"";
    let source = open(root.path(), join).unwrap();
    fs::write(root.path().join("texts/1/1.txt"), "x".repeat(100)).unwrap();
    let error = values_up_to(&*source, 1, &["value"], 50).unwrap_err();
    for word in ["\"value\"", "1.txt", "max_field_bytes"] {
        assert!(error.problem.contains(word), "{error}");
    }
}
