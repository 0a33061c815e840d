//! Columns from fields of archives and records in a bucket.

use super::*;
use crate::servers::Request;
use feedwater::ElementType;
use feedwater::loader::{Batch, LoaderBuilder};
use feedwater::plan::{ColumnSettings, LastBatch, OnError};
use feedwater::source::custom::Fields;
use feedwater::source::settings::{RecordIoLabel, RecordIoSettings};
use feedwater::source::{FieldValue, Joined, RecordIo};
use std::sync::Arc;

/// Writes an archive of these files.
pub fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Files of samples, with the image at another place from sample to sample. Some names have a
/// header of their own, and some keys have no image.
pub fn files(images: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let folder = if number % 4 == 1 { "d".repeat(130) + "/" } else { String::new() };
        let mut own = vec![
            ("jpg", image.clone()),
            ("txt", format!("caption é {number}").into_bytes()),
            ("cls", number.to_string().into_bytes()),
        ];
        own.rotate_left(number % 3);
        let named = |(ending, bytes)| (format!("{folder}{number:04}.{ending}"), bytes);
        files.extend(own.into_iter().map(named));
        if number % 5 == 3 {
            files.push((format!("without{number}.txt"), b"no image".to_vec()));
        }
    }
    files
}

pub fn small(count: u64) -> Vec<Vec<u8>> {
    common::jpegs(count).into_iter().map(|(image, _)| image).collect()
}

pub fn open(url: &str, storage: &Storage) -> WebDataset {
    WebDataset::open_with(&[url.into()], &WebDatasetSettings::default(), storage).unwrap()
}

fn columns() -> Vec<ColumnSettings> {
    let with_field = |field: &str, column| ColumnSettings { field: Some(field.into()), ..column };
    vec![
        with_field("txt", ColumnSettings::text("caption")),
        with_field("cls", ColumnSettings::array("class", ElementType::I64, &[])),
    ]
}

fn builder(source: Arc<dyn Source>, epochs: u32) -> LoaderBuilder {
    let builder = LoaderBuilder::new(source, common::training()).batch_size(5).seed(3);
    let builder = builder.device(DeviceChoice::Cpu).last_batch(LastBatch::Partial);
    builder.epochs(Some(epochs)).configure(|it| it.columns = columns())
}

/// The pixels and the captions of all batches. Checks the captions and the labels.
fn batches(builder: LoaderBuilder) -> Vec<(Vec<u8>, Vec<String>)> {
    let content = |batch: Batch| {
        let column = batch.column("caption").unwrap();
        let text = |place| column.text(place).unwrap().to_string();
        let texts: Vec<String> = (0..batch.len()).map(text).collect();
        let expected = batch.labels().iter().map(|label| format!("caption é {label}"));
        assert_eq!(texts, expected.collect::<Vec<_>>());
        (batch.to_host().unwrap(), texts)
    };
    let mut loader = builder.build().unwrap();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(loader.epoch().map(|batch| content(batch.unwrap())));
        if all.len() == before {
            return all;
        }
    }
}

/// The requests for bytes since the last call.
pub fn gets(path: &str) -> Vec<Request> {
    let log = BUCKETS.log(path);
    BUCKETS.forget(path);
    log.into_iter().filter(|request| request.method == "GET").collect()
}

pub fn bytes_of(requests: &[Request]) -> usize {
    requests.iter().map(|it| it.range.clone().unwrap().len()).sum()
}

/// The value of a text field of a sample, or the error.
fn text(source: &dyn Fields, index: u64, name: &str) -> Result<String, (Reason, String)> {
    let mut found = "none".to_string();
    let limit = 1 << 20;
    let read = source.read_fields(index, &[name], &mut Vec::new(), limit, &mut |_, value| {
        let FieldValue::Text(text) = value else { panic!("{value:?}") };
        found = text.into();
        Ok(())
    });
    read.map(|()| found).map_err(|error| (error.reason, error.problem))
}

#[test]
fn a_sample_with_its_fields_takes_one_request() {
    const COUNT: usize = 40;
    let (server, _guard) = buckets();
    let archive = tar(&files(&small(COUNT as u64)));
    server.put("/whole/a.tar", &archive[..]);
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("a.tar");
    fs::write(&local, &archive).unwrap();
    for shuffle in [false, true] {
        let local = open(local.to_str().unwrap(), &USUAL);
        let expected = batches(builder(Arc::new(local), 2).shuffle(shuffle));
        assert_eq!(expected.iter().map(|(_, texts)| texts.len()).sum::<usize>(), 2 * COUNT);
        for workers in [1, 3] {
            let source = || Arc::new(open("s3://whole/a.tar", &USUAL));
            let builder = |source| builder(source, 2).shuffle(shuffle).num_workers(workers);
            let source_without = source();
            gets("/whole/");
            let without = builder(source_without).configure(|it| it.columns.clear());
            let images = without.build().unwrap().into_batches().count();
            assert_eq!(images, expected.len());
            let without = gets("/whole/").len();
            let source = source();
            gets("/whole/");
            assert!(batches(builder(source)) == expected, "{workers} workers");
            let with = gets("/whole/");
            // When the loader is built, the fields of each sample are listed once. The first sample
            // of a worker may not be prefetched, so its fields take a request.
            let more = with.len() - without - COUNT;
            assert!((1..=workers).contains(&more), "{more} more, {workers} workers");
        }
    }
}

/// The second epoch needs only the fields. The images are larger than what is read over.
#[test]
fn only_the_fields_of_cached_images_are_requested() {
    const COUNT: usize = 12;
    let (server, _guard) = buckets();
    let images: Vec<_> = (0..COUNT as u64).map(|seed| common::png(seed, 420, 400)).collect();
    assert!(images.iter().all(|image| image.len() > 300_000));
    let mut all = files(&images);
    all.iter_mut().for_each(|(name, _)| *name = name.replace("jpg", "png"));
    server.put("/kept/a.tar", tar(&all));
    let source = Arc::new(open("s3://kept/a.tar", &USUAL));
    let builder =
        |source| builder(source, 2).num_workers(1).configure(|it| it.cache.encoded = Some(1 << 26));
    gets("/kept/");
    let found = batches(builder(source.clone()));
    assert_eq!(found.iter().map(|(_, texts)| texts.len()).sum::<usize>(), 2 * COUNT);
    let images: usize = images.iter().map(Vec::len).sum();
    let fetched = bytes_of(&gets("/kept/"));
    // The plan inspects images, and the first epoch reads them once.
    assert!(fetched < 2 * images + images / 2, "{fetched} of {images} bytes");
}

/// With one worker, every sample is cached before the next epoch needs it.
#[test]
fn cached_samples_and_their_fields_are_not_requested() {
    const COUNT: usize = 30;
    let (server, _guard) = buckets();
    server.put("/again/a.tar", tar(&files(&small(COUNT as u64))));
    for (encoded, decoded) in [(Some(1 << 26), None), (None, Some(1 << 26))] {
        let requests = |epochs| {
            let source = Arc::new(open("s3://again/a.tar", &USUAL));
            gets("/again/");
            let builder = builder(source, epochs).num_workers(1).prefetch(1).configure(|it| {
                it.cache.encoded = encoded;
                it.cache.decoded = decoded;
                it.storage.connections = 1;
            });
            assert_eq!(batches(builder).len() as u32, 6 * epochs);
            gets("/again/").len()
        };
        // The first sample may not be prefetched, so its fields may take a request more.
        let [one, five] = [1, 5].map(requests);
        assert!(five <= one + 1, "{one} and {five} requests, {encoded:?}, {decoded:?}");
    }
}

/// With more than 4 MiB beside the image, only the headers and the wanted files are read.
#[test]
fn large_files_that_are_not_wanted_are_not_read() {
    let (server, _guard) = buckets();
    let images = small(3);
    let mut all = files(&images);
    for number in 0..3 {
        let at = all.iter().rposition(|(name, _)| name.contains(&format!("000{number}."))).unwrap();
        let name = all[at].0.split('.').next().unwrap().to_string() + ".bin";
        all.insert(at, (name, vec![1; 5 << 20]));
    }
    server.put("/large/a.tar", tar(&all));
    let source = Arc::new(open("s3://large/a.tar", &USUAL));
    gets("/large/");
    for index in 0..3 {
        assert_eq!(text(&*source, index, "txt"), Ok(format!("caption é {index}")));
        let mut requests = gets("/large/");
        // The scan requested blocks that it did not need any more.
        let is_block =
            |it: &std::ops::Range<usize>| it.start.is_multiple_of(1 << 20) && it.len() == 1 << 20;
        requests.retain(|it| !it.range.as_ref().is_some_and(is_block));
        assert!(requests.len() <= 4 && bytes_of(&requests) < 300_000, "{requests:?}");
    }
    assert_eq!(batches(builder(source, 1)).len(), 1);
}

#[test]
fn the_footprint_includes_prefetched_fields() {
    let (server, _guard) = buckets();
    let mut all = files(&small(3));
    all.insert(1, ("0000.bin".into(), vec![1; 2_000_000]));
    server.put("/counted/a.tar", tar(&all));
    let source = Arc::new(open("s3://counted/a.tar", &USUAL));
    let row = |builder: LoaderBuilder| {
        builder.plan().unwrap().footprint.row("read ahead").unwrap().each_bytes
    };
    let with = row(builder(source.clone(), 1));
    assert!((2_000_000..2_010_000).contains(&with), "{with}");
    let without = row(builder(source.clone(), 1).configure(|it| it.columns.clear()));
    assert_eq!(without, source.largest_bytes().unwrap());
}

#[test]
fn a_failed_request_fails_its_sample_only() {
    let (server, _guard) = buckets();
    server.put("/failed/a.tar", tar(&files(&small(6))));
    let source = open("s3://failed/a.tar", &USUAL);
    let caption = |index| text(&source, index, "txt");
    for (fault, expected) in
        [(Fault::Status(403), Reason::Unreadable), (Fault::Cut(100), Reason::Field)]
    {
        server.fail("/failed/a.tar", [fault]);
        match caption(2) {
            // A response that is cut is requested again.
            Ok(text) => assert_eq!((text, expected), ("caption é 2".into(), Reason::Field)),
            Err((reason, problem)) => {
                assert_eq!(reason, expected);
                assert!(problem.contains("403"), "{problem}");
            }
        }
        assert_eq!(caption(3), Ok("caption é 3".into()));
    }
    // An object that changes is never mixed with the one that was opened.
    let mut changed = tar(&files(&small(6)));
    changed[600] ^= 1;
    // The loader has its own source, because its prefetched samples are still the old ones.
    let own = Arc::new(open("s3://failed/a.tar", &USUAL));
    let mut loader = builder(own, 1).on_error(OnError::Drop).build().unwrap();
    server.put("/failed/a.tar", changed);
    let (reason, problem) = text(&source, 1, "txt").unwrap_err();
    assert_eq!(reason, Reason::Unreadable);
    assert!(problem.contains("changed"), "{problem}");
    for batch in loader.epoch() {
        let batch = batch.unwrap();
        let column = batch.column("caption").unwrap();
        for (place, label) in batch.labels().iter().enumerate() {
            assert_eq!(column.text(place), Some(&*format!("caption é {label}")));
        }
    }
}

#[test]
fn a_dropped_loader_does_not_wait_for_fields() {
    let (server, _guard) = buckets();
    server.put("/waiting/a.tar", tar(&files(&small(60))));
    let storage = storage(&StorageSettings { timeout: 600, connections: 4, ..settings() });
    let source = Arc::new(open("s3://waiting/a.tar", &storage));
    let builder = builder(source, 100).num_workers(2).configure(|it| it.columns.truncate(1));
    let mut loader = builder.build().unwrap();
    drop(loader.epoch().next().unwrap().unwrap());
    server.fail("/waiting/a.tar", [Fault::Hang; 1000]);
    std::thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    drop(loader);
    assert!(begin.elapsed() < Duration::from_secs(300), "{:?}", begin.elapsed());
    server.put("/waiting/a.tar", [0]);
}

/// In sample order, an epoch fetches a compressed archive once, although the archive is larger than
/// the cache of decompressed blocks (64 MiB).
#[test]
fn a_compressed_archive_larger_than_the_block_cache_is_fetched_once_per_epoch() {
    let (server, _guard) = buckets();
    let mut all = files(&small(24));
    for number in 0..24 {
        let at = all.iter().rposition(|(name, _)| name.contains(&format!("{number:04}."))).unwrap();
        let name = all[at].0.split('.').next().unwrap().to_string() + ".bin";
        let noise = some_noise(3_500_000, number);
        all.insert(at, (name, noise));
    }
    let plain = tar(&all);
    assert!(plain.len() > 80 << 20);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &plain).unwrap();
    let packed = encoder.finish().unwrap();
    server.put("/packed/a.tar.gz", &packed[..]);
    let len = packed.len();
    let fetched = |epochs| {
        let source = Arc::new(open("s3://packed/a.tar.gz", &USUAL));
        gets("/packed/");
        // With several workers, the blocks that are evicted depend on the time.
        let found = batches(builder(source, epochs).num_workers(1).shuffle(false));
        let found: usize = found.iter().map(|(_, texts)| texts.len()).sum();
        assert_eq!(found, 24 * epochs as usize);
        bytes_of(&gets("/packed/"))
    };
    // Building the loader reads the archive once more, because it lists the fields.
    let [one, two] = [fetched(1), fetched(2)];
    assert!(one <= 2 * len + len / 5, "{one} of {len}");
    assert!(two > one, "the cache holds the whole archive");
    assert!(two - one <= len + len / 10, "{one} and {two} of {len}");
}

/// Noise of four bits per byte, which gzip halves.
fn some_noise(len: usize, seed: u32) -> Vec<u8> {
    let mut bits = seed;
    let mut next = || {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bits.to_be_bytes()[0] & 0xf0
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn features_of_records_are_fields() {
    let (server, _guard) = buckets();
    for name in ["train-00000-of-00002", "gzip.tfrecord", "zlib.tfrecord"] {
        server.put(&format!("/features/{name}"), golden(name));
        for _ in 0..2 {
            let url = format!("s3://features/{name}");
            let source =
                TfRecord::open_with(&[url.into()], &TfRecordSettings::default(), &USUAL).unwrap();
            for index in (0..source.len()).rev() {
                gets("/features/");
                assert_eq!(text(&source, index, "image/filename"), Ok(format!("{index}.jpg")));
                let requests = gets("/features/").len();
                assert!(requests <= 1, "{name}: {requests}");
            }
        }
    }
}

/// The label of a record is beside its image. Other formats have their fields elsewhere.
#[test]
fn labels_of_records_are_fields() {
    let (server, _guard) = buckets();
    let image = &small(1)[0];
    let mut file = Vec::new();
    for number in 0..3u64 {
        let head = [&2u32.to_le_bytes()[..], &0f32.to_le_bytes(), &number.to_le_bytes(), &[0; 8]];
        let labels = [number as f32, 0.5].map(f32::to_le_bytes);
        let record = [&head.concat(), labels.as_flattened(), image].concat();
        file.extend(
            [&0xced7_230a_u32.to_le_bytes()[..], &(record.len() as u32).to_le_bytes()].concat(),
        );
        file.extend(&record);
        file.resize(file.len().next_multiple_of(4), 0);
    }
    server.put("/labels/a.rec", file);
    let settings = RecordIoSettings { label: RecordIoLabel::First };
    let source = RecordIo::open_with(&["s3://labels/a.rec".into()], &settings, &USUAL).unwrap();
    for index in 0..3 {
        gets("/labels/");
        let mut found = String::new();
        let put = &mut |_, value: FieldValue<'_>| {
            found = format!("{value:?}");
            Ok(())
        };
        source.read_fields(index, &["label"], &mut Vec::new(), 99, put).unwrap();
        assert_eq!(found, format!("Floats([{index}.0, 0.5])"));
        assert_eq!(gets("/labels/").len(), 1);
    }
}

/// The images are in a local archive, and their captions in an archive in a bucket.
#[test]
fn the_fields_of_a_joined_archive_are_prefetched() {
    const COUNT: usize = 20;
    let (server, _guard) = buckets();
    let all = files(&small(COUNT as u64));
    let of = |ending: &[&str]| {
        let is_wanted = |(name, _): &&(String, _)| ending.iter().any(|it| name.ends_with(it));
        tar(&all.iter().filter(is_wanted).cloned().collect::<Vec<_>>())
    };
    server.put("/joined/a.tar", of(&["txt"]));
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("a.tar");
    fs::write(&local, of(&["jpg", "cls"])).unwrap();
    let first = Arc::new(open(local.to_str().unwrap(), &USUAL));
    let settings =
        WebDatasetSettings { image: "*".into(), label: String::new(), ..Default::default() };
    let second = WebDataset::open_with(&["s3://joined/a.tar".into()], &settings, &USUAL).unwrap();
    let joined = Joined::new(first, Arc::new(second), &Default::default()).unwrap();
    let loader = builder(Arc::new(joined), 1).num_workers(2);
    gets("/joined/");
    let loader = loader.build().unwrap();
    let report = loader.read_ahead().expect("the fields are prefetched");
    assert!(report.most > 1);
    let found: usize = loader.into_batches().map(|batch| batch.unwrap().len()).sum();
    assert_eq!((found, gets("/joined/").len()), (COUNT, COUNT));
}
