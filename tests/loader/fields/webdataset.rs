//! Columns from the files of a sample in a tar archive.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::{batches, builder, sample_error, with_field};
use crate::common::{jpegs, png};
use feedwater::ElementType;
use feedwater::error::{Error, Reason};
use feedwater::loader::{Batch, DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, Normalize, RandomCrop, View};
use feedwater::plan::{ColumnSettings, DefaultValue, OnError};
use feedwater::source::WebDataset;
use feedwater::source::settings::WebDatasetSettings;

/// Writes an archive of these files.
pub fn tar(path: &Path, files: &[(String, Vec<u8>)]) {
    let mut archive = tar::Builder::new(File::create(path).unwrap());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        // Names of more than 100 bytes have a header of their own.
        archive.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    archive.finish().unwrap();
}

/// Files of samples: images between their other files, in an order that differs from sample to
/// sample, some long names, keys without an image, and files that do not belong to a sample.
fn files(first: usize, count: usize) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("__meta__.json".to_string(), b"{}".to_vec())];
    let images = jpegs((first + count) as u64);
    for (number, (image, _)) in images.into_iter().enumerate().skip(first) {
        let folder = if number % 4 == 1 { "d".repeat(130) + "/" } else { String::new() };
        let key = format!("{folder}{number:04}");
        let boxes: Vec<String> = (0..number % 5).map(|it| format!("{{\"x\": {it}}}")).collect();
        let json =
            format!("{{\"meta\": {{\"score\": {number}.5}}, \"boxes\": [{}]}}", boxes.join(","));
        let mut own = vec![
            ("jpg", image),
            ("txt", format!("caption é {number}").into_bytes()),
            ("JSON", json.into_bytes()),
            ("cls", number.to_string().into_bytes()),
        ];
        if number % 3 == 0 {
            own.push(("seg.txt", format!("seg {number}").into_bytes()));
        }
        let len = own.len();
        own.rotate_left(number % len);
        files.extend(own.into_iter().map(|(ending, bytes)| (format!("{key}.{ending}"), bytes)));
        if number % 4 == 2 {
            files.push((format!("without{number}.txt"), b"no image".to_vec()));
            files.push(("nodot".to_string(), b"no key".to_vec()));
        }
    }
    files
}

pub fn open(paths: &[std::path::PathBuf]) -> WebDataset {
    WebDataset::open(paths, &WebDatasetSettings::default()).unwrap()
}

fn columns() -> Vec<ColumnSettings> {
    let list = ColumnSettings::list("x", ElementType::F32, &[]);
    vec![
        with_field("txt", ColumnSettings::text("caption")),
        with_field("json:meta.score", ColumnSettings::array("score", ElementType::F32, &[])),
        with_field("json:boxes[*].x", list),
        ColumnSettings {
            default: Some(DefaultValue::Text("none".into())),
            ..with_field("seg.txt", ColumnSettings::text("seg"))
        },
        with_field("cls", ColumnSettings::array("class", ElementType::I64, &[])),
    ]
}

#[test]
fn every_file_of_a_sample_is_a_field() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
    tar(&paths[0], &files(0, 13));
    tar(&paths[1], &files(13, 9));
    // Two archives in one file.
    let joined = folder.path().join("c.tar");
    std::fs::write(&joined, paths.each_ref().map(|it| std::fs::read(it).unwrap()).concat())
        .unwrap();
    for paths in [&paths[..], &[joined]] {
        for (workers, shuffle) in [(1, false), (3, true)] {
            let builder = builder(open(paths), columns()).num_workers(workers).shuffle(shuffle);
            assert_eq!(compare(&batches(builder).unwrap()), 22);
        }
    }
}

#[test]
fn missing_and_large_files_fail_their_sample_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let mut samples = files(0, 6);
    samples.retain(|(name, _)| name != "0002.txt");
    samples
        .iter_mut()
        .filter(|(name, _)| name == "0003.txt")
        .for_each(|it| it.1 = vec![b'a'; 5000]);
    tar(&path, &samples);
    let caption = || vec![with_field("txt", ColumnSettings::text("caption"))];
    let source = || open(std::slice::from_ref(&path));
    let (index, reason, problem) = sample_error(builder(source(), caption()));
    assert_eq!((index, reason), (2, Reason::Field));
    assert!(problem.contains("\"txt\" (column \"caption\") is missing"), "{problem}");
    let limited = |policy| {
        let builder = builder(source(), caption()).on_error(policy);
        builder.configure(|it| it.limits.max_field_bytes = 4096)
    };
    let found = batches(limited(OnError::Drop)).unwrap();
    let labels: Vec<i64> = found.iter().flat_map(|batch| batch.labels().to_vec()).collect();
    assert_eq!(labels, [0, 1, 4, 5]);

    match builder(source(), vec![ColumnSettings::text("captoin")]).build() {
        Err(Error::Config(error)) => {
            assert!(error.problem.contains("jpg, txt, json, cls, seg.txt"), "{}", error.problem);
        }
        other => panic!("{:?}", other.err()),
    }
}

/// Shards whose files include one of 200,000 bytes, which compress little, so that an archive has
/// several blocks.
fn large_files(count: usize) -> Vec<(String, Vec<u8>)> {
    let mut all = files(0, count);
    let mut bits = 1u32;
    let mut noise = || {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bits.to_be_bytes()[0]
    };
    // After the first file of each sample.
    for number in (0..count).rev() {
        let key = format!("{number:04}.");
        let at = all.iter().position(|(name, _)| name.contains(&key)).unwrap();
        let name = all[at].0.split('.').next().unwrap().to_string() + ".bin";
        all.insert(at + 1, (name, (0..200_000).map(|_| noise()).collect()));
    }
    all
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    zstd_safe::compress(&mut packed, bytes, 1).unwrap();
    packed
}

/// Compares the columns of all samples with the files. Returns the number of samples.
fn compare(batches: &[Batch]) -> usize {
    let mut compared = 0;
    for batch in batches {
        let column = |name| batch.column(name).unwrap();
        for (place, &label) in batch.labels().iter().enumerate() {
            assert_eq!(column("caption").text(place), Some(&*format!("caption é {label}")));
            let seg = if label % 3 == 0 { format!("seg {label}") } else { "none".into() };
            assert_eq!(column("seg").text(place), Some(&*seg));
            assert_eq!(column("score").sample(place), Some(&[label as f32 + 0.5][..]));
            let x: Vec<f32> = (0..label % 5).map(|it| it as f32).collect();
            assert_eq!(column("x").sample(place), Some(&x[..]));
            assert_eq!(column("class").sample(place), Some(&[label][..]));
            compared += 1;
        }
    }
    compared
}

/// The second time, the positions of the samples are read from the stored table.
#[test]
fn compressed_archives_have_the_same_fields() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.tar");
    tar(&plain, &large_files(13));
    let first = std::fs::read(&plain).unwrap();
    tar(&plain, &files(13, 9));
    let second = std::fs::read(&plain).unwrap();
    let write = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let sets = [
        vec![write("a.tar.gz", gzip(&first)), write("b.tar.gz", gzip(&second))],
        vec![write("a.tar.zst", zstd(&first)), write("b.tar.zst", zstd(&second))],
        vec![write("joined.tar.gz", [gzip(&first), gzip(&second)].concat())],
        vec![write("one.tar.zst", zstd(&[first, second].concat()))],
    ];
    for paths in &sets {
        let mut seen: Vec<Vec<Vec<u8>>> = Vec::new();
        for (workers, shuffle, window) in [
            (1, false, None),
            (3, false, None),
            (1, true, Some(5)),
            (3, true, Some(5)),
            (2, true, None),
        ] {
            let builder = builder(open(paths), columns()).num_workers(workers).shuffle(shuffle);
            let builder = builder.configure(|it| it.loader.shuffle_window = window);
            let found = batches(builder).unwrap();
            assert_eq!(compare(&found), 22, "{paths:?} {workers} {window:?}");
            seen.push(found.iter().map(|it| it.to_host().unwrap()).collect());
        }
        assert!(seen[0] == seen[1] && seen[2] == seen[3], "the number of workers changes nothing");
    }
}

/// The samples before the damage of a compressed archive have their fields, also the last one.
#[test]
fn samples_before_damaged_compression_have_their_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    tar(&path, &large_files(16));
    let whole = std::fs::read(&path).unwrap();
    for (name, packed) in [("a.tar.gz", gzip(&whole)), ("a.tar.zst", zstd(&whole))] {
        let path = folder.path().join(name);
        for part in [60, 75, 90] {
            std::fs::write(&path, &packed[..packed.len() * part / 100]).unwrap();
            let file =
                format!("[source]\nwebdataset = {path:?}\non_bad_shard = \"until_damage\"\n");
            let source = feedwater::Pipeline::from_toml(&file, "").unwrap().open().unwrap();
            let count = source.len();
            assert!((1..16).contains(&count), "{count} samples");
            let found = batches(super::shared(source, columns())).unwrap();
            assert_eq!(compare(&found) as u64, count, "{name} {part}");
        }
    }
}

/// With hard links, the position of an image does not identify its sample, so no sample of such an
/// archive has fields. The image of sample `d` is that of `b`.
#[test]
fn archives_with_hard_links_have_no_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let mut archive = tar::Builder::new(File::create(&path).unwrap());
    let images = jpegs(2);
    for (key, link) in [("a", None), ("b", None), ("c", Some("a")), ("d", Some("b"))] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        match link {
            Some(target) => {
                header.set_entry_type(tar::EntryType::Link);
                archive.append_link(&mut header, format!("{key}.jpg"), format!("{target}.jpg"))
            }
            None => {
                let image = &images[usize::from(key == "b")].0;
                header.set_size(image.len() as u64);
                archive.append_data(&mut header, format!("{key}.jpg"), &image[..])
            }
        }
        .unwrap();
        for ending in ["txt", "cls"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            archive.append_data(&mut header, format!("{key}.{ending}"), &b"1"[..]).unwrap();
        }
    }
    archive.finish().unwrap();
    drop(archive);
    let default = DefaultValue::Text("none".into());
    let column = with_field("txt", ColumnSettings::text("caption"));
    let column = ColumnSettings { default: Some(default), ..column };
    let failing = builder(open(&[path]), vec![column]).on_error(OnError::Drop);
    let mut loader = failing.build().unwrap();
    assert_eq!(loader.epoch().map(|batch| batch.unwrap().len()).sum::<usize>(), 0);
    assert_eq!(loader.stats().errors["unsupported"], 4);
}

/// Images and fields come from the cache, so they belong together.
#[test]
fn cached_samples_of_an_archive_that_changed_stay_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    tar(&path, &files(0, 4));
    let default = DefaultValue::Text("none".into());
    let column = with_field("txt", ColumnSettings::text("caption"));
    let column = ColumnSettings { default: Some(default), ..column };
    for is_cached in [true, false] {
        tar(&path, &files(0, 4));
        let builder = builder(open(std::slice::from_ref(&path)), vec![column.clone()]);
        let builder = builder.epochs(Some(50)).configure(|it| {
            it.cache.decoded = if is_cached { Some(1 << 24) } else { None };
        });
        let mut loader = builder.build().unwrap();
        let first = loader.epoch().next().unwrap().unwrap();
        assert_eq!(first.column("caption").unwrap().text(0), Some("caption é 0"));
        drop(first);
        let len = std::fs::metadata(&path).unwrap().len() as usize;
        std::fs::write(&path, vec![0; len + 512]).unwrap();
        // Without a cache, the batches that were prepared before the change are intact.
        let mut error = None;
        while let Some(batch) = loader.epoch().next() {
            match batch {
                Ok(batch) => {
                    assert_eq!(batch.column("caption").unwrap().text(0), Some("caption é 0"));
                }
                Err(found) => {
                    error = Some(found);
                    break;
                }
            }
        }
        match error {
            None => assert!(is_cached),
            Some(Error::Sample(error)) if !is_cached => {
                assert!(matches!(error.reason, Reason::Corrupt | Reason::Unreadable), "{error}");
            }
            Some(error) => panic!("{error}"),
        }
    }
}

#[test]
fn two_files_of_a_sample_with_the_same_ending_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let mut samples = files(0, 2);
    let key = samples.iter().find(|(name, _)| name.ends_with("0001.txt")).unwrap().0.clone();
    samples.push((key.replace("txt", "TXT"), b"again".to_vec()));
    tar(&path, &samples);
    let column = with_field("txt", ColumnSettings::text("caption"));
    let (index, reason, problem) = sample_error(builder(open(&[path]), vec![column]));
    assert_eq!((index, reason), (1, Reason::Corrupt));
    assert!(problem.contains("several files \"txt\""), "{problem}");
}

/// With `until_damage`, the samples before the damage keep their fields.
#[test]
fn samples_before_damage_have_their_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    tar(&path, &files(0, 8));
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() * 2 / 3]).unwrap();
    let file = format!("[source]\nwebdataset = {path:?}\non_bad_shard = \"until_damage\"\n");
    let pipeline = feedwater::Pipeline::from_toml(&file, "").unwrap();
    let source = pipeline.open().unwrap();
    let column = with_field("txt", ColumnSettings::text("caption"));
    let found = batches(super::shared(source, vec![column])).unwrap();
    let mut compared = 0;
    for batch in &found {
        for (place, label) in batch.labels().iter().enumerate() {
            let text = batch.column("caption").unwrap().text(place);
            assert_eq!(text, Some(&*format!("caption é {label}")));
            compared += 1;
        }
    }
    assert!((1..8).contains(&compared), "{compared} samples");
}

/// The tables of a view of a field are counted once, so no sample needs more than planned.
#[test]
fn a_view_of_a_field_needs_what_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let mut files = Vec::new();
    for number in 0..6 {
        for name in ["png", "sharp.png"] {
            files.push((format!("{number}.{name}"), png(number, 64, 56)));
        }
    }
    tar(&path, &files);
    let chain = || {
        let normalize = Normalize { mean: [0.0; 3], std: [1.0; 3] };
        Chain::new().then(RandomCrop::to(48, 40)).then(normalize)
    };
    let settings = WebDatasetSettings { label: String::new(), ..Default::default() };
    let source = WebDataset::open(&[path], &settings).unwrap();
    let chain = chain().view(View::new("sharp", chain()).field("sharp.png").like("image"));
    let builder = LoaderBuilder::new(Arc::new(source), chain).batch_size(2).epochs(Some(1));
    let mut loader = builder.device(DeviceChoice::Cpu).build().unwrap();
    assert_eq!(loader.epoch().map(|batch| batch.unwrap().len()).sum::<usize>(), 6);
    assert!(loader.warnings().is_empty(), "{:?}", loader.warnings());
}
