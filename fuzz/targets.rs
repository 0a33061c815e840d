//! Fuzz targets: all code that reads bytes from untrusted files. In every test run, `tests/fuzz.rs`
//! mutates the seeds of each target for a short time. `any.rs` runs libFuzzer on a target without a
//! time limit.
//!
//! To add a target, add one line to [`TARGETS`].

use std::fs;
use std::path::{Path, PathBuf};

use feedwater::internals::config::Pipeline;
use feedwater::source::settings::{
    BetonSettings, FileListSettings, ListFormat, LmdbSettings, RecordIoLabel, RecordIoSettings,
};
use feedwater::source::{
    Beton, Coco, FileList, Lmdb, Npy, Parquet, RecordIo, TfRecord, WebDataset,
};

use images::{both, decode, floats, header, hostile_index, values};
use sources::{joined, npy_field, npz_arrays, opened, source, tar, tfrecord};

#[path = "targets/images.rs"]
mod images;
#[path = "targets/sources.rs"]
mod sources;

/// Fuzz target: its name, its seed files, and the function that processes the bytes. The returned
/// text describes the outcome. An outcome that has not occurred before shows that the input reached
/// new code.
pub struct Target(pub &'static str, pub Seeds, pub fn(&[u8]) -> String);

/// Folders below `tests/golden/`, each with the file name ending of its seeds.
pub type Seeds = &'static [(&'static str, &'static str)];

pub const TARGETS: &[Target] = &[
    Target("header", &[("decode", ".jpg"), ("decode", ".png"), ("decode", ".webp")], header),
    Target("jpeg", &[("decode", ".jpg"), ("tolerated", ".jpg"), ("refused", ".jpg")], decode),
    Target(
        "jpeg-decoders",
        &[("decode", ".jpg"), ("tolerated", ".jpg"), ("refused", ".jpg"), ("encoders", ".jpg")],
        both,
    ),
    Target("row-index", &[("decode", ".jpg"), ("encoders", ".jpg")], hostile_index),
    Target("png", &[("decode", ".png"), ("tolerated", ".png"), ("refused", ".png")], decode),
    Target("webp", &[("decode", ".webp"), ("refused", ".webp")], decode),
    Target("pnm", &[("decode", ".ppm"), ("decode", ".pgm"), ("decode", ".pbm")], decode),
    Target("mask", &[("decode", ".png"), ("decode", ".pgm"), ("tolerated", ".png")], values),
    Target("floats", &[("decode", ".png"), ("decode", ".pgm"), ("decode", ".tif")], floats),
    Target("bmp", &[("decode", ".bmp")], decode),
    Target("gif", &[("decode", ".gif")], decode),
    Target("tiff", &[("decode", ".tif")], decode),
    Target("npy", &[("npy", ".npy")], |it| source::<Npy>(it, &Default::default())),
    Target("npy-field", &[("npy", ".npy")], npy_field),
    Target("npz", &[], npz_arrays),
    Target("beton", &[("beton", ".beton")], |it| source::<Beton>(it, &Default::default())),
    Target("beton-fields", &[("beton", ".beton")], |it| source::<Beton>(it, &image_and_label())),
    Target("tfrecord", &[("records", "-of-00002")], |it| {
        source::<TfRecord>(it, &Default::default())
    }),
    Target("tfrecord-repaired", &[("records", "-of-00002")], |it| {
        source::<TfRecord>(&tfrecord(it), &Default::default())
    }),
    Target("webdataset", &[("records", ".tar")], |it| {
        source::<WebDataset>(it, &Default::default())
    }),
    Target("webdataset-repaired", &[("records", ".tar")], |it| {
        source::<WebDataset>(&tar(it), &Default::default())
    }),
    Target("lmdb", &[("lmdb", ".mdb"), ("lmdb/image", ".mdb")], |it| {
        source::<Lmdb>(it, &Default::default())
    }),
    Target("lmdb-named", &[("lmdb", ".mdb")], |it| source::<Lmdb>(it, &named())),
    Target("recordio", &[("recordio", ".rec")], |it| source::<RecordIo>(it, &Default::default())),
    Target("recordio-first", &[("recordio", ".rec")], |it| source::<RecordIo>(it, &first())),
    Target("beton-join", &[("beton", ".beton")], joined::<Beton>),
    Target("tfrecord-join", &[("records", "-of-00002")], |it| joined::<TfRecord>(&tfrecord(it))),
    Target("lmdb-join", &[("lmdb", ".mdb"), ("lmdb/image", ".mdb")], joined::<Lmdb>),
    Target("recordio-join", &[("recordio", ".rec")], joined::<RecordIo>),
    Target("npy-join", &[("npy", ".npy")], joined::<Npy>),
    Target("list", &[], |it| opened::<FileList>(it, &Default::default())),
    Target("list-csv", &[], |it| opened::<FileList>(it, &list(ListFormat::Csv))),
    Target("list-jsonl", &[], |it| opened::<FileList>(it, &list(ListFormat::Jsonl))),
    Target("parquet", &[("parquet", ".parquet")], |it| source::<Parquet>(it, &Default::default())),
    Target("coco", &[("coco", ".json")], |it| opened::<Coco>(it, &Default::default())),
    Target("config", &[], config),
];

/// Returns the seed files of a target: its seeds below `tests/golden/`, and earlier findings in
/// `fuzz/corpus/NAME/`.
pub fn seeds(target: &Target) -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = top.parent().expect("the packages `fuzz` and `tests` are in the repository");
    let golden =
        target.1.iter().map(|(folder, ending)| (top.join("tests/golden").join(folder), *ending));
    let found = (top.join("fuzz/corpus").join(target.0), "");
    let mut files = Vec::new();
    for (folder, ending) in golden.chain([found]) {
        // Only `fuzz/corpus/NAME/` may be missing: not every target has earlier findings.
        assert!(ending.is_empty() || folder.is_dir(), "{} is missing", folder.display());
        let entries =
            fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
        files.extend(
            entries.filter(|path| {
                path.is_file() && path.to_str().is_some_and(|it| it.ends_with(ending))
            }),
        );
    }
    files.sort();
    files
}

fn config(bytes: &[u8]) -> String {
    let Ok(text) = str::from_utf8(bytes) else { return "no text".into() };
    match Pipeline::from_toml(text, "") {
        Ok(pipeline) => {
            let written = match pipeline.to_toml() {
                Ok(written) => written,
                Err(error) => return error.to_string(),
            };
            let again = Pipeline::from_toml(&written, "").expect("what was written is read");
            assert_eq!(again.to_toml().expect("it was written before"), written);
            "read".into()
        }
        Err(error) => error.to_string(),
    }
}

fn named() -> LmdbSettings {
    LmdbSettings { database: "train".into(), ..Default::default() }
}

fn list(format: ListFormat) -> FileListSettings {
    FileListSettings { format, ..Default::default() }
}

fn image_and_label() -> BetonSettings {
    BetonSettings { image: Some("image".into()), label: Some("label".into()) }
}

fn first() -> RecordIoSettings {
    RecordIoSettings { label: RecordIoLabel::First }
}
