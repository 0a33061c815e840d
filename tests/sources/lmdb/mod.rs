//! Tests what the documentation of `Lmdb` promises, on environments written by py-lmdb
//! (tests/golden/lmdb_environments.py) and on invalid pages built here.

mod hostile;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::words::has_words;
use crate::common::{self, config_error, position};
use crate::read;

use feedwater::error::{Error, Reason};
use feedwater::internals::config::Pipeline;
use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use feedwater::source::custom::{Hints, Notes};
use feedwater::source::settings::{LmdbSettings, LmdbValues, SourceSettings};
use feedwater::source::{ExclusionReason, Lmdb, Source};
use tempfile::TempDir;

const LABELS: [i64; 5] = [7, 0, -3, 1000, 12];

fn golden(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)).unwrap()
}

/// Writes the bytes to a file in a new temporary folder.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data.mdb");
    fs::write(&path, bytes).unwrap();
    (root, path)
}

/// Returns settings for environments with plain images. Only the values of keys `image-*` are
/// samples.
fn images() -> LmdbSettings {
    LmdbSettings { keys: "image-*".into(), ..Default::default() }
}

fn open(bytes: &[u8], settings: &LmdbSettings) -> Result<(TempDir, Lmdb), Error> {
    let (root, path) = file(bytes);
    let source = Lmdb::open(&[path], settings)?;
    Ok((root, source))
}

/// Checks that opening a file with these bytes is an error at byte `byte`, whose message contains
/// `values`.
#[track_caller]
fn refused(bytes: &[u8], settings: &LmdbSettings, byte: u64, values: &[&str]) {
    common::refused_at(open(bytes, settings), "source.lmdb", byte, values);
}

fn samples(source: &Lmdb) -> Vec<(Vec<u8>, i64)> {
    (0..source.len()).map(|index| (read(source, index).unwrap(), source.label(index))).collect()
}

/// Returns the samples that the environments with plain images must have.
fn expected_images() -> Vec<(Vec<u8>, i64)> {
    let image = |number: usize| match number {
        5 => golden("decode/png-gray-alpha-16.png"),
        _ => golden(&format!("records/{}.jpg", number % 4)),
    };
    (0..12).map(|number| (image(number), -1)).collect()
}

/// Returns the samples that the environments with Datum messages must have.
fn datums() -> Vec<(Vec<u8>, i64)> {
    let mut images: Vec<_> = (0..4).map(|it| golden(&format!("records/{it}.jpg"))).collect();
    images.push(golden("decode/png-gray-alpha-16.png"));
    images.into_iter().zip(LABELS).collect()
}

/// Writes the pages of an LMDB environment.
struct Pages {
    size: usize,
    /// Size of a page's header in bytes: 16 for LMDB 0.9, 24 for LMDB 1.0.
    header: usize,
    bytes: Vec<u8>,
    nodes: u64,
}

impl Pages {
    fn new(size: usize, header: usize) -> Self {
        Self { size, header, bytes: vec![0; 2 * size], nodes: 0 }
    }

    fn count(&self) -> u64 {
        (self.bytes.len() / self.size) as u64
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Adds a page with these flags and nodes. Returns its number.
    fn page(&mut self, flags: u16, nodes: &[Vec<u8>]) -> u64 {
        let number = self.count();
        self.add(number, flags);
        let (at, base) = (number as usize * self.size, if self.header == 24 { 24 } else { 0 });
        let mut end = self.size;
        for (place, node) in nodes.iter().enumerate() {
            end -= node.len().next_multiple_of(2);
            self.put(at + end, node);
            self.put(at + self.header + 2 * place, &((end - base) as u16).to_le_bytes());
        }
        let lower = (self.header + 2 * nodes.len() - base) as u16;
        self.put(at + self.header - 4, &lower.to_le_bytes());
        self.put(at + self.header - 2, &((end - base) as u16).to_le_bytes());
        number
    }

    fn add(&mut self, number: u64, flags: u16) {
        let at = self.bytes.len();
        self.bytes.resize(at + self.size, 0);
        self.put(at, &number.to_le_bytes());
        self.put(at + self.header - 6, &flags.to_le_bytes());
    }

    fn leaf(&mut self, nodes: &[Vec<u8>]) -> u64 {
        self.nodes += nodes.len() as u64;
        self.page(2, nodes)
    }

    fn branch(&mut self, children: &[u64]) -> u64 {
        let node = |child: &u64| [&child.to_le_bytes()[..6], &[0, 0]].concat();
        self.page(1, &children.iter().map(node).collect::<Vec<_>>())
    }

    fn value(&self, key: &[u8], value: &[u8]) -> Vec<u8> {
        self.node(key, value.len() as u32, 0, value)
    }

    fn node(&self, key: &[u8], size: u32, flags: u16, data: &[u8]) -> Vec<u8> {
        let mut node =
            [&size.to_le_bytes()[..], &flags.to_le_bytes(), &(key.len() as u16).to_le_bytes(), key]
                .concat();
        if self.header == 24 && key.len() % 2 == 1 {
            node.push(0);
        }
        node.extend_from_slice(data);
        node
    }

    /// Returns the whole file. `root` is the number of the tree's root page. The tree's number of
    /// entries equals the number of leaf nodes.
    fn file(&self, root: u64) -> Vec<u8> {
        let mut file = Self { bytes: self.bytes.clone(), ..*self };
        for page in 0..2 {
            let at = page * self.size;
            file.put(at, &(page as u64).to_le_bytes());
            file.put(at + self.header - 6, &8u16.to_le_bytes());
            let meta = at + self.header;
            file.put(meta, &0xbeef_c0de_u32.to_le_bytes());
            file.put(meta + 4, &(if self.header == 24 { 3u32 } else { 1 }).to_le_bytes());
            file.put(meta + 24, &(self.size as u32).to_le_bytes());
            file.put(meta + 72 + 32, &self.nodes.to_le_bytes());
            file.put(meta + 72 + 40, &root.to_le_bytes());
            file.put(meta + 120, &(self.count() - 1).to_le_bytes());
            file.put(meta + 128, &(page as u64).to_le_bytes());
        }
        file.bytes
    }
}

#[test]
fn images_written_by_py_lmdb_are_read_in_key_order() {
    for name in ["lmdb/image/data.mdb", "lmdb/image-1.0.mdb"] {
        let (root, source) = open(&golden(name), &images()).unwrap();
        assert_eq!(samples(&source), expected_images(), "{name}");
        let path = root.path().join("data.mdb");
        assert_eq!(source.location(2), format!("{}[2]", path.display()));
        let described = source.describe();
        assert!(has_words(&described, &[path.to_str().unwrap(), "12"]), "{described}");
        assert_eq!(source.largest_bytes(), Some(6331));
    }
}

#[test]
fn datums_written_by_protobuf_are_read_with_their_labels() {
    let (_root, source) = open(&golden("lmdb/datum.mdb"), &LmdbSettings::default()).unwrap();
    assert_eq!(samples(&source), datums());
    for name in ["lmdb/named.mdb", "lmdb/named-1.0.mdb"] {
        let database = |name: &str| LmdbSettings { database: name.into(), ..Default::default() };
        let (_root, source) = open(&golden(name), &database("train")).unwrap();
        assert_eq!(samples(&source), datums(), "{name}");
        let (_root, source) = open(&golden(name), &database("val")).unwrap();
        assert_eq!(samples(&source), datums()[..2], "{name}");
        // The message must contain the key of the setting and its possible values.
        let values = ["source.database", "train", "val", "\"test\""];
        refused(&golden(name), &database("test"), 0, &values);
        refused(&golden(name), &database(""), 0, &values[..3]);
    }
    let settings = LmdbSettings { database: "train".into(), ..Default::default() };
    refused(&golden("lmdb/datum.mdb"), &settings, 0, &["\"train\"", "source.database"]);
}

#[test]
fn datums_of_pixels_become_pnm_with_red_first() {
    let (_root, source) = open(&golden("lmdb/raw.mdb"), &LmdbSettings::default()).unwrap();
    let pixels = |it: u8| [200 + it, 100 + it, it];
    let colour = [b"P6\n4 2\n255\n", &(0..8).flat_map(pixels).collect::<Vec<_>>()[..]].concat();
    let gray = [b"P5\n4 2\n255\n", &(0..8).collect::<Vec<_>>()[..]].concat();
    assert_eq!(samples(&source), [(colour.clone(), 3), (gray, 4)]);
    assert_eq!(source.largest_bytes(), Some(colour.len() as u64));
    assert_eq!(Header::parse(&colour).unwrap().size, Size::new(4, 2));
}

/// One plane of the image is larger than the conversion buffer, and the Datum is on overflow pages.
#[test]
fn large_datums_of_pixels_are_converted_in_pieces() {
    let (width, height) = (301, 177);
    let plane = |channel: usize| {
        (0..width * height).map(move |it| (it / 7 * (channel + 3) + channel) as u8)
    };
    let data: Vec<u8> = (0..3).flat_map(plane).collect();
    let varint =
        |number: usize| [number as u8 | 0x80, (number >> 7) as u8 | 0x80, (number >> 14) as u8];
    let datum = |channels: u8| {
        let head = [
            &[8, channels, 16][..],
            &varint(height),
            &[24],
            &varint(width),
            &[34],
            &varint(data.len()),
        ];
        [&head.concat()[..], &data].concat()
    };
    let environment = |value: &[u8]| {
        let mut pages = Pages::new(4096, 16);
        let root = pages.leaf(&[pages.node(b"a", value.len() as u32, 1, &3u64.to_le_bytes())]);
        pages.page(4, &[]);
        pages.bytes.truncate(3 * 4096 + 16);
        pages.bytes.extend_from_slice(value);
        pages.bytes.resize(pages.bytes.len().next_multiple_of(4096), 0);
        pages.file(root)
    };
    let (_root, source) = open(&environment(&datum(3)), &LmdbSettings::default()).unwrap();
    let [blue, green, red] = [0, 1, 2].map(|channel| plane(channel).collect::<Vec<_>>());
    let pixels = (0..width * height).flat_map(|it| [red[it], green[it], blue[it]]);
    let expected: Vec<u8> = b"P6\n301 177\n255\n".iter().copied().chain(pixels).collect();
    assert_eq!(samples(&source), [(expected, 0)]);

    // The error is at the value, after the header of the first overflow page. The message must
    // contain the bytes of the data, the number of planes, their size, and the bytes that they
    // need.
    let values = ["\"a\"", "159831", "1", "301x177", "53277"];
    refused(&environment(&datum(1)), &LmdbSettings::default(), 3 * 4096 + 16, &values);
    // The message must contain the number of planes, and what is supported.
    let values = ["\"a\"", "2", "301x177", "1", "3", "32767x32767"];
    refused(&environment(&datum(2)), &LmdbSettings::default(), 3 * 4096 + 16, &values);
}

#[test]
fn a_path_is_a_file_a_directory_or_a_pattern() {
    let (root, path) = file(&golden("lmdb/datum.mdb"));
    fs::write(root.path().join("lock.mdb"), b"not read").unwrap();
    for path in [root.path().to_path_buf(), path, root.path().join("d*.mdb")] {
        let source = Lmdb::open(&[path], &LmdbSettings::default()).unwrap();
        assert_eq!(source.len(), 5);
    }
    // The file is a lock file of an environment. The error must name the data file beside it.
    let lock = [&0xbeef_c0de_u32.to_le_bytes()[..], &[0; 8188]].concat();
    refused(&lock, &images(), 0, &["data.mdb"]);
}

#[test]
fn the_settings_select_the_keys_and_the_type_of_values() {
    let bytes = golden("lmdb/image/data.mdb");
    let count = |keys: &str, skip: &[&str]| {
        let skip_keys = skip.iter().map(|it| it.to_string()).collect();
        let settings = LmdbSettings { keys: keys.into(), skip_keys, ..Default::default() };
        let (_root, source) = open(&bytes, &settings).unwrap();
        let excluded: u64 = source.excluded().iter().map(|it| it.count).sum();
        assert!(source.excluded().iter().all(|it| it.why == ExclusionReason::OtherKey));
        assert_eq!(source.len() + excluded, 12 + 12 + 2);
        source.len()
    };
    assert_eq!(count("*", &[]), 12 + 12 + 2);
    assert_eq!(count("*", &["__*__"]), 12 + 12 + 1);
    assert_eq!(count("*", &["label-*", "__*", "num-samples"]), 12);
    assert_eq!(count("image-000?", &["*-0005"]), 9);
    let nothing = LmdbSettings { keys: "photo-*".into(), ..Default::default() };
    // The message must contain the file and the number of excluded keys.
    let excluded = ["1", "data.mdb", "26", "source.keys", "source.skip_keys"];
    common::refused(open(&bytes, &nothing), "source.lmdb", &excluded);

    // These keys select labels, so the samples are not images and cannot be decoded.
    let all = LmdbSettings { keys: "label-*".into(), ..Default::default() };
    let (_root, source) = open(&bytes, &all).unwrap();
    let fault = Header::parse(&read(&source, 0).unwrap()).unwrap_err();
    assert_eq!(fault.reason, Reason::Unsupported);

    let with = |values| LmdbSettings { values, ..images() };
    let error = config_error(open(&bytes, &with(LmdbValues::Datum)));
    assert!(error.key.starts_with("source.lmdb: ") && position(&error) > 0, "{error}");
    let values = ["\"image-0000\"", "Datum", "source.values", "\"image\"", "source.skip_keys"];
    assert!(has_words(&error.problem, &values), "{error}");
    assert_eq!(samples(&open(&bytes, &with(LmdbValues::Image)).unwrap().1), expected_images());
    let settings = LmdbSettings { values: LmdbValues::Image, ..Default::default() };
    let (_root, source) = open(&golden("lmdb/datum.mdb"), &settings).unwrap();
    assert!(read(&source, 0).unwrap().starts_with(&[8, 3, 16, 16, 24, 16, 34]));
}

#[test]
fn unsupported_environments_are_errors_with_advice() {
    let error = config_error(open(&golden("lmdb/float.mdb"), &LmdbSettings::default()));
    assert!(error.key.starts_with("source.lmdb: ") && position(&error) > 0, "{error}");
    assert!(has_words(&error.problem, &["Datum", "float_data", "convert_imageset"]), "{error}");
    let many = LmdbSettings { database: "many".into(), ..Default::default() };
    refused(&golden("lmdb/dupsort.mdb"), &many, 0, &["DUPSORT", "source.database"]);
    let empty = open(&golden("lmdb/empty.mdb"), &images());
    common::refused(empty, "source.lmdb", &["1", "data.mdb"]);

    let magic = 0xbeef_c0de_u32;
    for (patches, byte, values) in [
        (&[(16, &magic.to_be_bytes()[..])][..], 0, &["big-endian"][..]),
        (&[(12, &magic.to_le_bytes()), (16, &[1, 0, 0, 0])], 0, &["32-bit"]),
        // The message must contain the version and the supported versions.
        (&[(20, &[2])], 0, &["2", "1", "3"]),
        (&[(16, &[0])], 0, &["LMDB"]),
        (&[(16 + 29, &[0x20])], 0, &["encrypted"]),
        // The message must contain the page sizes.
        (&[(16 + 24, &[1])], 0, &["4097"]),
        (&[(4096 + 16 + 25, &[0x20])], 4096, &["8192", "4096"]),
        (&[(4096 + 16, &[0])], 4096, &["meta"]),
        // The message must contain the number of the expected page, and the number that was found.
        (&[(4096, &[7])], 4096, &["1", "7"]),
    ] {
        let mut bytes = golden("lmdb/image/data.mdb");
        for (at, patch) in patches {
            bytes[*at..at + patch.len()].copy_from_slice(patch);
        }
        refused(&bytes, &images(), byte, values);
    }
}

#[test]
fn the_newest_transaction_is_read() {
    // The writer's first transaction created the tree. In the state before that transaction, the
    // environment is empty.
    let mut bytes = golden("lmdb/datum.mdb");
    let transaction = |bytes: &[u8], page: usize| bytes[4096 * page + 16 + 128];
    assert_eq!((transaction(&bytes, 0), transaction(&bytes, 1)), (0, 1));
    assert_eq!(open(&bytes, &LmdbSettings::default()).unwrap().1.len(), 5);
    bytes[16 + 128] = 2;
    let empty = open(&bytes, &LmdbSettings::default());
    common::refused(empty, "source.lmdb", &["1", "data.mdb"]);
}

#[test]
fn a_changed_environment_is_an_error_and_is_indexed_again() {
    let (_root, path) = file(&golden("lmdb/datum.mdb"));
    let source = Lmdb::open(std::slice::from_ref(&path), &LmdbSettings::default()).unwrap();
    assert!(read(&source, 0).is_ok());
    let changed = File::options().write(true).open(&path).unwrap();
    changed.write_all_at(&[9], 4096 + 16 + 128).unwrap();
    let later = changed.metadata().unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
    changed.set_modified(later).unwrap();
    assert_eq!(read(&source, 0), Err(Reason::Unreadable));
    let source = Lmdb::open(&[path], &LmdbSettings::default()).unwrap();
    assert_eq!(samples(&source), datums());
}

#[test]
fn the_key_in_a_pipeline_file_is_lmdb() {
    let text = "[source]\nlmdb = \"a\"\ndatabase = \"train\"\nvalues = \"datum\"\nkeys = \"image-*\"\nskip_keys = []\n";
    let settings = LmdbSettings {
        database: "train".into(),
        values: LmdbValues::Datum,
        keys: "image-*".into(),
        skip_keys: Vec::new(),
    };
    let pipeline = Pipeline::from_toml(text, "base").unwrap();
    assert_eq!(pipeline.source, SourceSettings::new::<Lmdb>(vec!["base/a".into()], settings));
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), "").unwrap();
    assert_eq!(again.source, pipeline.source);
}
