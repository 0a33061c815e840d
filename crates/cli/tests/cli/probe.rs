//! Tests of `probe::run` and `source::detect` as documented, and of the output of the command
//! `probe`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{jpeg, png, progressive};
use crate::words::{has_words, row};
use feedwater::internals::header::Header;
use feedwater::plan::{Limits, Route};
use feedwater::source::{self, Memory, Source};
use feedwater::storage::Storage;
use feedwater::{Error, PixelFormat};
use feedwater_tools::probe::{self, Report, Settings};
use serde_json::Value;
use tempfile::TempDir;

fn settings() -> Settings {
    Settings {
        samples: 0,
        threads: 3,
        decode: false,
        limits: Limits::default(),
        strict: true,
        pixels: PixelFormat::U8x3,
    }
}

fn look(source: &dyn Source) -> Report {
    probe::run(source, &settings(), |_| {})
}

fn counts<'a>(counts: &[(&'a str, u64)]) -> BTreeMap<&'a str, u64> {
    counts.iter().copied().collect()
}

/// Returns a source with three valid images of different formats, a truncated image, an empty file,
/// and a file that is not an image.
fn mixed() -> Memory {
    let cut = jpeg(4, 64, 48)[..200].to_vec();
    let samples =
        [jpeg(1, 300, 200), progressive(2, 64, 48), png(3, 20, 10), cut, vec![], b"text".to_vec()];
    Memory::new(samples.into_iter().zip([0, 0, 1, 1, 1, -1]).collect()).unwrap()
}

#[test]
fn everything_is_counted_once_with_any_number_of_threads() {
    let source = mixed();
    let report = look(&source);
    for threads in [1, 2, 16] {
        assert_eq!(probe::run(&source, &Settings { threads, ..settings() }, |_| {}), report);
    }
    assert_eq!((report.samples, report.seen, report.usable()), (6, 6, 3));
    assert_eq!(report.formats, counts(&[("JPEG", 2), ("PNG", 1)]));
    assert_eq!(report.samplings.values().sum::<u64>(), 2);
    assert_eq!((report.progressive, report.turned), (1, 0));
    assert_eq!((report.smallest, report.largest), (Some([20, 10]), Some([300, 200])));
    assert_eq!(report.pixels, 300 * 200 + 64 * 48 + 200);
    let sizes: Vec<u64> = report.sizes.iter().map(|it| it.images).collect();
    assert_eq!(sizes, [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(report.routes, counts(&[("nvjpeg-hardware", 1), ("nvjpeg-hybrid", 1), ("cpu", 1)]));
    let header = Header::parse(&png(3, 20, 10)).unwrap();
    let why = Route::NvjpegHybrid.takes(&header, 1).unwrap_err();
    assert_eq!(report.cpu_because, counts(&[(why, 1)]));
    assert_eq!(report.labels, BTreeMap::from([(-1, 1), (0, 2), (1, 3)]));
    assert_eq!(report.errors, counts(&[("truncated", 1), ("empty", 1), ("unsupported", 1)]));
    let examples: Vec<_> = report.examples.iter().map(|it| (it.index, it.reason)).collect();
    assert_eq!(examples, [(3, "truncated"), (4, "empty"), (5, "unsupported")]);
}

#[test]
fn fewer_samples_are_evenly_spaced_and_labels_cover_all() {
    let source = mixed();
    let report = probe::run(&source, &Settings { samples: 3, ..settings() }, |_| {});
    assert_eq!((report.samples, report.seen), (6, 3));
    assert_eq!(report.formats, counts(&[("JPEG", 1), ("PNG", 1)]));
    assert_eq!(report.errors, counts(&[("empty", 1)]));
    assert_eq!(report.labels.values().sum::<u64>(), 6);
}

#[test]
fn samples_beyond_the_limits_are_unusable() {
    let limits = Limits { max_pixels: 59_999, ..Limits::default() };
    let report = probe::run(&mixed(), &Settings { limits, ..settings() }, |_| {});
    assert_eq!(report.errors["oversized"], 1);
    assert_eq!(report.largest, Some([64, 48]));
}

#[test]
fn damage_within_the_coded_data_is_found_by_decoding() {
    let mut bytes = png(3, 200, 100);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    let source = Memory::new(vec![(bytes, 0)]).unwrap();
    assert_eq!(look(&source).usable(), 1);
    let decoded = probe::run(&source, &Settings { decode: true, ..settings() }, |_| {});
    assert_eq!((decoded.usable(), decoded.errors), (0, counts(&[("corrupt", 1)])));
}

#[test]
fn only_the_first_of_many_labels_are_counted_individually() {
    let source = Memory::new((0..10_050).map(|label| (Vec::new(), label)).collect()).unwrap();
    let report = look(&source);
    assert_eq!((report.labels.len(), report.other_labels), (probe::MOST_LABELS, 50));
    assert_eq!(report.examples.len(), 20);
    assert!(report.examples.iter().map(|it| it.index).eq(0..20));
}

fn golden(name: &str) -> PathBuf {
    crate::repository().join("tests/golden/records").join(name)
}

fn folder(files: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for name in files {
        fs::copy(golden(name), root.path().join(name)).unwrap();
    }
    root
}

fn key(path: &Path) -> &'static str {
    source::detect(path, &Storage::default()).unwrap().key()
}

#[test]
fn a_file_is_detected_by_its_first_bytes_or_its_name() {
    let root = folder(&["train-000000.tar", "train-00000-of-00002"]);
    assert_eq!(key(&root.path().join("train-000000.tar")), "webdataset");
    assert_eq!(key(&root.path().join("train-00000-of-00002")), "tfrecord");
    fs::write(root.path().join("list.txt"), "a.jpg 1\n").unwrap();
    assert_eq!(key(&root.path().join("list.txt")), "list");
    fs::write(root.path().join("other"), "text").unwrap();
    let other = root.path().join("other");
    let error = source::detect(&other, &Storage::default()).unwrap_err();
    let Error::Config(error) = error else { panic!("{error}") };
    assert_eq!(error.key, "source", "{error}");
    assert!(error.problem.contains(other.to_str().unwrap()), "{error}");
    assert!(has_words(&error.problem, feedwater::internals::source::KEYS), "{error}");
    let path = root.path().join("missing");
    let missing = source::detect(&path, &Storage::default()).unwrap_err();
    assert!(matches!(&missing, Error::Io { path: it, .. } if *it == path), "{missing}");
}

#[test]
fn every_format_is_detected() {
    let golden = crate::repository().join("tests/golden");
    for (path, expected) in [
        ("beton/jpg.beton", "beton"),
        ("coco/instances.json", "coco"),
        ("lmdb/datum.mdb", "lmdb"),
        ("lmdb/image", "lmdb"),
        ("npy/rgb-1.npy", "npy"),
        ("recordio/train.rec", "recordio"),
        ("parquet/snappy.parquet", "parquet"),
        ("records/gnu.tar", "webdataset"),
        ("records/train.tar.gz", "webdataset"),
        ("records/train-00000-of-00002", "tfrecord"),
    ] {
        assert_eq!(key(&golden.join(path)), expected, "{path}");
    }
    let root = folder(&[]);
    for name in ["a.csv", "a.tsv", "a.jsonl", "a.txt"] {
        fs::write(root.path().join(name), "").unwrap();
        assert_eq!(key(&root.path().join(name)), "list", "{name}");
    }
}

#[test]
fn a_folder_is_detected_by_its_own_files_else_as_a_directory_of_images() {
    assert_eq!(key(folder(&["train-000000.tar", "train-000001.tar"]).path()), "webdataset");
    assert_eq!(key(folder(&["train-00000-of-00002"]).path()), "tfrecord");
    assert_eq!(key(folder(&["0.jpg", "1.jpg"]).path()), "directory");
    let classes = folder(&[]);
    fs::create_dir(classes.path().join("a")).unwrap();
    // If there are class folders, a list beside them is not detected as the source.
    fs::write(classes.path().join("list.txt"), "a/0.jpg 1\n").unwrap();
    assert_eq!(key(classes.path()), "directory");
}

fn feedwater(arguments: &[&str]) -> (bool, String, String) {
    let program = env!("CARGO_BIN_EXE_feedwater");
    let output = Command::new(program).arg("probe").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_prints_the_contents_as_text_and_as_json() {
    let root = folder(&["0.jpg", "1.jpg", "2.jpg"]);
    fs::write(root.path().join("3.jpg"), b"\xff\xd8").unwrap();
    let path = root.path().to_str().unwrap();
    let (done, text, _) = feedwater(&[path]);
    assert!(done);
    for (label, values) in [
        ("samples ", &["4"][..]),
        ("formats ", &["JPEG", "3", "100.0"]),
        ("labels ", &["none"]),
        ("routes ", &["nvjpeg-hardware", "3", "100.0"]),
        ("unusable ", &["truncated", "1", "25.0"]),
    ] {
        assert!(has_words(row(&text, label), values), "{label}: {text}");
    }
    for part in ["directory = ", "3.jpg: truncated: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, text, _) = feedwater(&[path, "--json", "--samples", "2"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["report"]["samples"], &json["report"]["seen"]), (&4.into(), &2.into()));
    assert_eq!(json["source"]["directory"], path);
}

/// The printed settings are for a pipeline file. So their extensions must be those of formats that
/// can be decoded.
#[test]
fn the_printed_extensions_are_those_of_decodable_formats() {
    let root = tempfile::tempdir().unwrap();
    let files = [
        ("bmp", "bmp-rgb.bmp"),
        ("gif", "gif-interlaced-0.gif"),
        ("jpeg", "jpeg-422.jpg"),
        ("jpg", "jpeg-420.jpg"),
        ("pgm", "pnm-gray.pgm"),
        ("png", "png-rgb.png"),
        ("ppm", "pnm-rgb.ppm"),
        ("tif", "tiff-rgb.tif"),
        ("tiff", "tiff-packbits-gray.tif"),
        ("webp", "webp-lossy.webp"),
    ];
    let folder = root.path().join("data");
    fs::create_dir(&folder).unwrap();
    for (extension, file) in files {
        let file = crate::repository().join("tests/golden/decode").join(file);
        fs::copy(file, folder.join(format!("image.{extension}"))).unwrap();
    }
    let inspected = |path: &Path| -> Value {
        let (done, text, words) = feedwater(&[path.to_str().unwrap(), "--decode", "--json"]);
        assert!(done, "{words}");
        serde_json::from_str(&text).unwrap()
    };
    let json = inspected(&folder);
    let printed = json["source"]["extensions"].as_array().unwrap();
    for extension in printed {
        let is_here = files.iter().any(|(name, _)| extension == name);
        assert!(is_here, "no image with the extension {extension}");
    }
    let report = &json["report"];
    assert_eq!(
        (&report["samples"], &report["seen"]),
        (&printed.len().into(), &printed.len().into())
    );
    assert_eq!(report["errors"], serde_json::json!({}), "{report}");
    let formats =
        serde_json::json!({ "BMP": 1, "JPEG": 2, "PNG": 1, "PNM": 2, "TIFF": 2, "WebP": 1 });
    assert_eq!(report["formats"], formats);
    // The default extensions are torchvision's, which do not include GIF. So the GIF is excluded,
    // although it can be decoded.
    assert_eq!(report["excluded"][0]["kind"], ".gif", "{report}");
    let file = root.path().join("more.toml");
    fs::write(&file, "[source]\ndirectory = \"data\"\nextensions = [\"bmp\", \"gif\", \"tif\"]\n")
        .unwrap();
    let report = &inspected(&file)["report"];
    assert_eq!(report["formats"], serde_json::json!({ "BMP": 1, "GIF": 1, "TIFF": 1 }));
    assert_eq!(report["errors"], serde_json::json!({}), "{report}");
}

#[test]
fn the_command_prints_classes_skipped_files_and_warnings() {
    let root = tempfile::tempdir().unwrap();
    for name in ["train/cat/0.jpg", "train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"] {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, jpeg(1, 20, 10)).unwrap();
    }
    fs::write(root.path().join("train/cat/readme.txt"), "text").unwrap();
    let above = root.path().to_str().unwrap();
    let (done, text, words) = feedwater(&[above]);
    assert!(done && words.starts_with("warning: "), "{words}");
    assert!(has_words(&words, &["train", "3", "val", "1"]), "{words}");
    assert!(has_words(row(&text, "excluded "), &["1", ".txt", "readme.txt"]), "{text}");
    let (_, text, words) = feedwater(&[root.path().join("train").to_str().unwrap()]);
    assert_eq!(words, "");
    let table: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["0", "2", "cat"], ["1", "1", "dog"]] {
        assert!(table.contains(&row.to_vec()), "{text}");
    }
    let (_, text, _) = feedwater(&[above, "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["report"]["excluded"][0]["why"], "other_extension");
    assert_eq!(json["warnings"].as_array().unwrap().len(), 1);
}

/// Each printed column is valid in a pipeline file, and holds a value of its field.
#[test]
fn the_command_prints_fields_with_examples_and_columns() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.jpg"), jpeg(1, 20, 10)).unwrap();
    let rows = "path,label,caption,score,tags,meta,all,empty\n\
                a.jpg,0,,,,,,\n\
                a.jpg,1,\"a cat\u{1b}[31m\",0.5,\"[1, 2]\",\"{\"\"b\"\": 3}\",\"[\"\"a\"\"]\",\n";
    let list = root.path().join("a.csv");
    fs::write(&list, rows).unwrap();
    let (done, text, _) = feedwater(&[list.to_str().unwrap()]);
    assert!(done && !text.contains('\u{1b}'), "{text}");
    let line = |name: &str| {
        let mut lines = text.lines().filter(|line| line[10.min(line.len())..].starts_with(name));
        lines.next().unwrap_or_else(|| panic!("{name}: {text}"))
    };
    assert!(line("path: ").starts_with("fields    "), "{text}");
    assert!(line("empty: ").ends_with("not in the first samples"), "{text}");
    assert!(line("meta: ").contains("choose a member, such as :b"), "{text}");
    for name in ["path", "label", "caption", "score", "tags", "all"] {
        let column = line(&format!("{name}: ")).split_once("[[column]] ").unwrap().1;
        let column = column.replace(", ", "\n");
        let file = format!(
            "[source]\nlist = {list:?}\n[loader]\nbatch_size = 1\n\
             on_error = \"skip\"\n[[column]]\n{column}\n\
             [[chain]]\nop = \"resize\"\nwidth = 8\nheight = 8\n"
        );
        let pipeline = feedwater::Pipeline::from_toml(&file, "");
        let mut loader = pipeline.unwrap().builder().unwrap().epochs(Some(1)).build().unwrap();
        let batch = loader.epoch().next().unwrap().unwrap();
        let name = if name == "label" { "source_label" } else { name };
        assert!(batch.column(name).unwrap().len_bytes() > 0, "{file}");
    }
    let (_, text, _) = feedwater(&[list.to_str().unwrap(), "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["fields"][3]["example"], "0.5");
    assert_eq!(json["fields"][3]["column"], "name = \"score\", dtype = \"f32\"");
}

#[test]
fn the_command_prints_joined_fields_and_samples_without_a_partner() {
    let root = tempfile::tempdir().unwrap();
    for name in ["a.jpg", "b.jpg"] {
        fs::write(root.path().join(name), jpeg(1, 20, 10)).unwrap();
    }
    fs::write(root.path().join("t.csv"), "id,caption\nb,of b\n").unwrap();
    let file = root.path().join("pipeline.toml");
    let text = "[source]\ndirectory = \".\"\n[source.join]\nlist = \"t.csv\"\nother_key = \"id\"\n\
                prefix = \"t.\"\nmissing = \"drop\"\n\
                [[chain]]\nop = \"resize\"\nwidth = 8\nheight = 8\n";
    fs::write(&file, text).unwrap();
    let (done, text, _) = feedwater(&[file.to_str().unwrap()]);
    assert!(done && text.contains("t.caption: \"of b\""), "{text}");
    let mut excluded = text.lines().filter(|line| line.starts_with("excluded "));
    let words = ["1", "a.jpg", "source.join.missing"];
    assert!(excluded.any(|line| has_words(line, &words)), "{text}");
}

#[test]
fn the_command_prints_only_some_of_many_classes() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.jpg"), jpeg(1, 20, 10)).unwrap();
    let rows: String = (0..1000).map(|class| format!("a.jpg,class {class:04}\n")).collect();
    fs::write(root.path().join("a.csv"), format!("path,label\n{rows}")).unwrap();
    let (done, text, _) = feedwater(&[root.path().join("a.csv").to_str().unwrap()]);
    assert!(done && text.contains("class 0019") && !text.contains("class 0020"), "{text}");
    assert!(text.lines().any(|line| has_words(line, &["980"])), "{text}");
}

#[test]
fn the_command_reads_settings_from_a_pipeline_file() {
    let root = folder(&["train-000000.tar"]);
    let file = root.path().join("set.toml");
    let text =
        "[source]\nwebdataset = \"train-000000.tar\"\nlabel = \"json\"\nlabel_key = \"label\"\n";
    fs::write(&file, text).unwrap();
    let (done, text, _) = feedwater(&[file.to_str().unwrap(), "--json"]);
    assert!(done);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["report"]["labels"], serde_json::json!({ "-2": 1, "1": 1, "8": 1 }));
    let (done, _, words) = feedwater(&[root.path().join("none").to_str().unwrap()]);
    assert!(!done && words.contains("none"), "{words}");
}
