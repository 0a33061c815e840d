//! Tests of `pack`, `Presizer` and `verify` as documented, and of the output of the command `pack`.

mod changes;
mod cluster;
mod fields;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::common::{self, jpeg, png, training};
use crate::words::{has_words, row};
use feedwater::Error;
use feedwater::error::{DataError, Reason};
use feedwater::internals::geometry::Size;
use feedwater::internals::header::{Format, Header};
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, Resize};
use feedwater::plan;
use feedwater::source::custom::{HostPage, Identity, Page};
use feedwater::source::{Directory, Memory, Source, TfRecord, WebDataset};
use feedwater_tools::pack::{
    Manifest, Presize, Presizer, Settings, ShardFormat, gain, pack, verify,
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use serde_json::Value;
use tempfile::TempDir;

/// Settings that produce several small shards.
fn settings(format: ShardFormat) -> Settings {
    Settings { format, shard_bytes: 6000, threads: 3, ..Settings::default() }
}

fn images() -> Vec<(Vec<u8>, i64)> {
    let labels = [3, -1, 0, i64::MAX, i64::MIN, 7, 7, 2, 1, 0, 5];
    let bytes = (0..).map(|i| match i % 3 {
        0 => png(i, 20 + i as u32, 14),
        _ => jpeg(i, 40 + 8 * i as u32, 60),
    });
    bytes.zip(labels).collect()
}

fn source() -> Memory {
    Memory::new(images()).unwrap()
}

fn packed(source: &dyn Source, settings: &Settings) -> (TempDir, Manifest) {
    let root = tempfile::tempdir().unwrap();
    let manifest = pack(source, root.path(), settings, |_| {}).unwrap();
    (root, manifest)
}

fn open(format: ShardFormat, root: &Path) -> Box<dyn Source> {
    let paths: [PathBuf; 1] = match format {
        ShardFormat::WebDataset => [root.into()],
        ShardFormat::TfRecord => [root.join("*.tfrecord")],
    };
    match format {
        ShardFormat::WebDataset => Box::new(WebDataset::open(&paths, &Default::default()).unwrap()),
        ShardFormat::TfRecord => Box::new(TfRecord::open(&paths, &Default::default()).unwrap()),
    }
}

fn samples(source: &dyn Source) -> Vec<(Vec<u8>, i64)> {
    let read = |index| {
        let mut page = HostPage::default();
        source.read(index, &mut page, 1 << 20).unwrap();
        (page.bytes().to_vec(), source.label(index))
    };
    (0..source.len()).map(read).collect()
}

/// Returns the visible files of a directory with their bytes.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| !name.starts_with('.'))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Creates a folder of images in two classes, and opens it as a source.
fn folder(root: &Path) -> Directory {
    for (number, (bytes, _)) in images().into_iter().enumerate() {
        let class = root.join(format!("class{}", number / 6));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join(format!("{number:02}.jpg")), bytes).unwrap();
    }
    Directory::open(root).unwrap()
}

/// Returns every file of a directory with a checksum, including hidden files. Omits the lock file
/// and the index files that `verify` writes.
fn everything(root: &Path) -> Vec<(String, u32)> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| !name.ends_with(".lock") && !name.ends_with(".feedwater1"))
        .map(|(name, path)| (name, crc32fast::hash(&fs::read(path).unwrap())))
        .collect();
    files.sort();
    files
}

#[test]
fn packed_samples_equal_the_source_in_bytes_and_order() {
    for format in [ShardFormat::WebDataset, ShardFormat::TfRecord] {
        let (root, manifest) = packed(&source(), &settings(format));
        assert_eq!(samples(&*open(format, root.path())), images());
        assert!(manifest.shards.len() > 2 && manifest.complete, "{manifest:?}");
        assert_eq!(manifest.shards.iter().map(|it| it.samples).sum::<u64>(), 11);
        assert_eq!(verify(root.path(), |_| {}).unwrap(), 11);
    }
}

#[test]
fn the_files_depend_only_on_the_source_and_the_settings() {
    for format in [ShardFormat::WebDataset, ShardFormat::TfRecord] {
        let presize = Some(Presize { shorter: 32, quality: 80 });
        let one = Settings { presize, threads: 1, ..settings(format) };
        let (first, manifest) = packed(&source(), &one);
        for threads in [2, 5, 40] {
            let (other, again) = packed(&source(), &Settings { threads, ..one.clone() });
            assert_eq!(files(other.path()), files(first.path()));
            assert_eq!(again, manifest);
        }
        for shard in &manifest.shards[..manifest.shards.len() - 1] {
            assert!(shard.bytes >= 6000, "{shard:?}");
        }
    }
}

/// A source that fails to read from sample `.1` on, like an unplugged disk.
struct Failing<S>(S, u64);

impl<S: Source> Source for Failing<S> {
    common::wraps!(self.0);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        match index < self.1 {
            true => self.0.read(index, page, limit),
            false => Err(DataError::new(Reason::Unreadable, "taken away")),
        }
    }
}

/// A run may be stopped at any sample. After resuming, the files equal those of an uninterrupted
/// run.
#[test]
fn a_stopped_run_resumes_after_the_last_complete_shard() {
    for format in [ShardFormat::WebDataset, ShardFormat::TfRecord] {
        let (whole, manifest) = packed(&source(), &settings(format));
        for stop in 0..11 {
            let root = tempfile::tempdir().unwrap();
            let failing = Failing(source(), stop);
            let error = pack(&failing, root.path(), &settings(format), |_| {}).unwrap_err();
            assert!(matches!(&error, Error::Sample(it) if it.index == stop), "{error}");
            let found = files(root.path());
            assert!(
                files(whole.path()).starts_with(&found),
                "an incomplete shard is visible: {stop}"
            );
            assert!(
                verify(root.path(), |_| {}).is_err(),
                "`verify` accepted an unfinished directory"
            );
            let first = std::cell::Cell::new(None);
            let again = pack(&source(), root.path(), &settings(format), |done| {
                first.set(first.get().or(Some(done)));
            });
            assert_eq!(again.unwrap(), manifest);
            assert_eq!(files(root.path()), files(whole.path()));
            let shards = found.iter().filter(|(name, _)| !name.ends_with(".rows")).count();
            let kept: u64 = manifest.shards[..shards].iter().map(|it| it.samples).sum();
            assert_eq!(first.get(), Some(kept + 1), "existing shards were written again");
        }
    }
}

/// A source whose first read starts another pack into the same directory.
struct Meanwhile<'a>(Memory, &'a Path, Mutex<Option<Error>>);

impl Source for Meanwhile<'_> {
    common::wraps!(self.0);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        if index == 0 {
            let second = pack(&self.0, self.1, &settings(ShardFormat::WebDataset), |_| {});
            *self.2.lock().unwrap() = second.err();
        }
        self.0.read(index, page, limit)
    }
}

#[test]
fn a_second_pack_into_one_directory_fails_and_names_the_first() {
    let root = tempfile::tempdir().unwrap();
    let source = Meanwhile(source(), root.path(), Mutex::new(None));
    pack(&source, root.path(), &settings(ShardFormat::WebDataset), |_| {}).unwrap();
    let second = source.2.into_inner().unwrap().expect("the second pack must be refused");
    let Error::Io { path, problem, .. } = &second else { panic!("{second}") };
    assert_eq!(path, root.path());
    assert!(has_words(problem, &[&std::process::id().to_string()]), "{second}");
    let (whole, _) = packed(&source.0, &settings(ShardFormat::WebDataset));
    assert_eq!(everything(root.path()), everything(whole.path()));
}

/// `pack` may be killed at any time. After resuming, there is no lock and no temporary file, and
/// the files equal those of an uninterrupted run.
#[test]
fn a_killed_pack_leaves_no_lock_and_can_be_resumed() {
    let data = tempfile::tempdir().unwrap();
    for number in 0..24u8 {
        let head = b"P6 512 256 255\n".to_vec();
        let pixels = vec![number; 3 * 512 * 256];
        fs::create_dir_all(data.path().join("data/class")).unwrap();
        let path = data.path().join(format!("data/class/{number:02}.ppm"));
        fs::write(path, [head, pixels].concat()).unwrap();
    }
    let command = |to: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
        command.args(["pack", "data", to, "--shard-mib", "1", "--workers", "1"]);
        command.stdout(std::process::Stdio::null()).current_dir(data.path());
        command
    };
    assert!(command("whole").status().unwrap().success());
    for name in [".train-000000", "train-000000.tar", "train-000002.tar", ".feedwater-pack.json"] {
        let to = data.path().join("killed");
        let mut child = command("killed").spawn().unwrap();
        let begun = || {
            let names = fs::read_dir(&to).into_iter().flatten().map(|it| it.unwrap().file_name());
            names.into_iter().any(|it| it.to_string_lossy().starts_with(name))
        };
        while !begun() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        // Killing fails if the process has already ended, which is no problem.
        let _ = child.kill();
        child.wait().unwrap();
        assert!(command("killed").status().unwrap().success());
        assert_eq!(everything(&to), everything(&data.path().join("whole")));
        fs::remove_dir_all(&to).unwrap();
    }
}

#[test]
fn an_unusable_sample_is_an_error_or_is_skipped_and_counted() {
    let mut images = images();
    images[2].0 = b"text".to_vec();
    images[10].0 = Vec::new();
    let source = Memory::new(images.clone()).unwrap();
    let root = tempfile::tempdir().unwrap();
    let strict = settings(ShardFormat::WebDataset);
    let error = pack(&source, root.path(), &strict, |_| {}).unwrap_err();
    let Error::Sample(error) = error else { panic!("{error}") };
    assert_eq!((error.index, error.reason), (2, Reason::Unsupported));
    let (root, manifest) = packed(&source, &Settings { skip: true, ..strict });
    assert_eq!(manifest.skipped, 2);
    let indices: Vec<u64> = manifest.skipped_first.iter().map(|it| it.index).collect();
    assert_eq!(indices, [2, 10]);
    for index in [10, 2] {
        images.remove(index);
    }
    assert_eq!(samples(&*open(ShardFormat::WebDataset, root.path())), images);
    assert_eq!(verify(root.path(), |_| {}).unwrap(), 9);
}

#[test]
fn verifying_finds_every_changed_byte_of_an_image_or_label_and_missing_shards() {
    for format in [ShardFormat::WebDataset, ShardFormat::TfRecord] {
        let (root, manifest) = packed(&source(), &settings(format));
        let path = root.path().join(&manifest.shards[0].name);
        let whole = fs::read(&path).unwrap();
        let image = images()[0].0.clone();
        let start = whole.windows(image.len()).position(|it| it == image).unwrap();
        for place in [start, start + image.len() / 2, start + image.len() - 1] {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let words = verify(root.path(), |_| {}).unwrap_err().to_string();
            assert!(words.contains("train-000000"), "{words}");
        }
        fs::write(&path, &whole).unwrap();
        assert!(verify(root.path(), |_| {}).is_ok());
        fs::remove_file(&path).unwrap();
        assert!(verify(root.path(), |_| {}).unwrap_err().to_string().contains("train-000000"));
    }
    let empty = tempfile::tempdir().unwrap();
    let error = verify(empty.path(), |_| {}).unwrap_err();
    assert!(
        matches!(&error, Error::Io { path, source: None, .. } if path == empty.path()),
        "{error}"
    );
}

fn presized(bytes: &[u8], shorter: u32) -> Option<Vec<u8>> {
    let header = Header::parse(bytes).unwrap();
    Presizer::new(Presize { shorter, quality: 95 }).make(bytes, &header).unwrap()
}

#[test]
fn small_images_are_unchanged_and_others_become_upright_jpegs_of_the_requested_size() {
    assert_eq!(presized(&jpeg(1, 60, 40), 40), None);
    let header = Header::parse(&presized(&png(1, 90, 61), 40).unwrap()).unwrap();
    // The width 59 is int(40 * 90 / 61), as in Pillow and torchvision.
    assert_eq!((header.format, header.size), (Format::Jpeg, Size::new(59, 40)));
}

/// Returns the JPEG of the image that the operator `resize` outputs.
fn resized(bytes: &[u8], size: Size) -> Vec<u8> {
    let mut settings = plan::Settings::default();
    settings.loader.batch_size = 1;
    settings.output.dtype = DType::U8;
    settings.output.layout = Layout::Nhwc;
    let chain = Chain::new().then(Resize::to(size.width, size.height));
    let source = Arc::new(Memory::new(vec![(bytes.to_vec(), 0)]).unwrap());
    let builder = LoaderBuilder::new(source, chain).settings(settings).device(DeviceChoice::Cpu);
    let pixels = builder.build().unwrap().into_iter().next().unwrap().unwrap().to_host().unwrap();
    let mut jpeg = Vec::new();
    let mut encoder = Encoder::new(&mut jpeg, 95);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.encode(&pixels, size.width as u16, size.height as u16, ColorType::Rgb).unwrap();
    jpeg
}

#[test]
fn downscaling_equals_the_operator_and_rotated_images_become_upright() {
    let upright = jpeg(5, 120, 80);
    assert!(presized(&upright, 40).unwrap() == resized(&upright, Size::new(60, 40)));
    // The same file, with an EXIF orientation that rotates it by 90 degrees.
    let exif =
        b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let turned = [&upright[..2], &exif[..], &upright[2..]].concat();
    let small = presized(&turned, 40).unwrap();
    assert!(Header::parse(&small).unwrap().orientation.is_upright());
    assert!(small == resized(&turned, Size::new(40, 60)));
}

#[test]
fn the_gain_is_measured_on_images_that_would_shrink() {
    let images = (0..6).map(|i| (jpeg(i, 640, 480), 0)).chain([(b"text".to_vec(), 0)]).collect();
    let source = Memory::new(images).unwrap();
    let presize = Some(Presize { shorter: 48, quality: 85 });
    let wanted = Settings { presize, ..Settings::default() };
    let gain = gain(&source, &wanted, &training(), 100).unwrap();
    assert_eq!(gain.images, 6);
    assert!(gain.bytes_after * 10 < gain.bytes_before, "{gain:?}");
    assert!(gain.images_per_second_before > 0.0 && gain.images_per_second_after > 0.0, "{gain:?}");
}

#[test]
fn invalid_settings_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let with = |shorter, quality| Some(Presize { shorter, quality });
    let normal = settings(ShardFormat::WebDataset);
    for (settings, key, values) in [
        (Settings { shard_bytes: 0, ..normal.clone() }, "shard_bytes", &["0", "1"][..]),
        (Settings { name: "a/b".into(), ..normal.clone() }, "name", &["\"a/b\""]),
        (Settings { name: ".a".into(), ..normal.clone() }, "name", &["\".a\""]),
        (Settings { presize: with(0, 90), ..normal.clone() }, "shorter", &["0", "1"]),
        (Settings { presize: with(9, 101), ..normal.clone() }, "quality", &["101", "1", "100"]),
    ] {
        let error = pack(&source(), root.path(), &settings, |_| {}).unwrap_err();
        let Error::Config(error) = error else { panic!("{error}") };
        assert_eq!(error.key, key, "{error}");
        assert!(has_words(&error.problem, values), "{values:?}: {error}");
    }
}

#[test]
fn the_command_packs_verifies_and_prints_the_source_table() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let synth = feedwater_tools::synth::Settings {
        classes: 3,
        ..feedwater_tools::synth::Settings::uniform(12, 96, 64)
    };
    feedwater_tools::synth::write(&data, &synth, |_| {}).unwrap();
    let run = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_feedwater");
        let mut command = Command::new(program);
        let output = command.arg("pack").args(arguments).current_dir(root.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, text, _) = run(&["data", "out", "--shorter", "32", "--format", "tfrecord"]);
    assert_eq!(code, Some(0));
    for (label, values) in
        [("presizing ", &["12"][..]), ("packed ", &["12", "1", "out"]), ("verified ", &["12"])]
    {
        assert!(has_words(row(&text, label), values), "{label}: {text}");
    }
    assert!(text.contains("tfrecord = \"out\""), "{text}");
    let (code, text, _) = run(&["data", "none", "--shorter", "32", "--dry-run", "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["gain"]["images"]), (Some(0), &12.into()));
    assert!(!root.path().join("none").exists());
    let (_, text, _) = run(&["data", "plain", "--json", "--name", "val"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&json["verified"], &json["shards"][0]["name"]),
        (&12.into(), &"val-000000.tar".into())
    );
    // Files that are not samples are reported before packing begins, and also in a dry run.
    fs::write(data.join("readme.txt"), "text").unwrap();
    for arguments in [&["data", "some"][..], &["data", "none", "--shorter", "32", "--dry-run"]] {
        let (code, text, _) = run(arguments);
        let told = text.lines().nth(1).unwrap_or_default();
        assert!(code == Some(0) && told.starts_with("excluded "), "{text}");
        assert!(has_words(told, &["1", "readme.txt"]), "{text}");
        let json = run(&[arguments, &["--overwrite", "--json"]].concat()).1;
        let json: Value = serde_json::from_str(&json).unwrap_or_else(|it| panic!("{it}: {json}"));
        let excluded = &json["excluded"][0];
        let found = (&excluded["why"], &excluded["count"]);
        assert_eq!(found, (&"beside_classes".into(), &1.into()), "{json}");
    }
    fs::remove_file(data.join("readme.txt")).unwrap();
    let (code, _, words) = run(&["data", "plain", "--name", "other"]);
    assert_eq!(code, Some(2), "{words}");
    let difference = ["destination", "name", "\"val\"", "\"other\"", "--overwrite"];
    assert!(has_words(&words, &difference), "{words}");
}

/// The row indexes beside the shards equal those that a loader would build. With them, loaders use
/// row indexes from the first epoch on.
#[test]
fn row_indexes_lie_beside_the_shards() {
    for format in [ShardFormat::WebDataset, ShardFormat::TfRecord] {
        let (root, manifest) = packed(&source(), &settings(format));
        for shard in &manifest.shards {
            assert!(root.path().join(format!("{}.rows", shard.name)).is_file(), "{shard:?}");
        }
        let none = Settings { row_index: false, ..settings(format) };
        let (plain, _) = packed(&source(), &none);
        assert!(files(plain.path()).iter().all(|(name, _)| !name.ends_with(".rows")));
        let loader = |root: &Path, row_index| {
            let builder = LoaderBuilder::new(Arc::from(open(format, root)), training());
            let builder = builder.device(DeviceChoice::Cpu).batch_size(4).epochs(Some(1));
            builder
                .last_batch(plan::LastBatch::Partial)
                .configure(|it| it.cache.row_index = row_index)
                .build()
                .unwrap()
        };
        let batches = |loader: &mut feedwater::Loader| -> Vec<Vec<u8>> {
            loader.into_iter().map(|batch| batch.unwrap().to_host().unwrap()).collect()
        };
        let expected = batches(&mut loader(plain.path(), Some(0)));
        let jpegs = (0..11).filter(|at| at % 3 > 0).count() as u64;
        for row_index in [Some(1 << 20), None] {
            let mut with = loader(root.path(), row_index);
            assert_eq!(batches(&mut with), expected);
            let stats = with.stats().caches;
            assert_eq!((stats[0].cache, stats[0].hits, stats[0].misses), ("row_index", jpegs, 0));
        }
        // Packing again without row indexes deletes the existing files with row indexes.
        let overwrite = Settings { overwrite: true, ..none };
        pack(&source(), root.path(), &overwrite, |_| {}).unwrap();
        assert!(files(root.path()).iter().all(|(name, _)| !name.ends_with(".rows")));
    }
}
