//! URLs on servers of other projects: moto (an S3 emulator) and Python's HTTP server.
//! `tests/servers/run.sh` starts them with the files of `tests/golden/records` and runs these
//! tests.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use feedwater::source::custom::{Hints, HostPage, RemoteReads};
use feedwater::source::settings::{TfRecordSettings, WebDatasetSettings};
use feedwater::source::{Directory, FileList, Source, TfRecord, WebDataset};
use feedwater::storage::{Storage, StorageSettings};

const IMAGES: [&str; 4] = ["0.jpg", "1.jpg", "2.jpg", "3.jpg"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/records")
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(folder().join(name)).unwrap()
}

fn server(variable: &str) -> String {
    std::env::var(variable).expect("run these tests with tests/servers/run.sh")
}

/// Returns a handle that stores no indices in the user's cache directory.
fn storage() -> Storage {
    let directory = tempfile::tempdir().unwrap().keep();
    Storage::with_cache_directory(&StorageSettings::default(), directory).unwrap()
}

fn directory(url: &str, storage: &Storage) -> feedwater::Result<Directory> {
    Directory::open_with(url, &Default::default(), storage)
}

fn read(source: &dyn Source, index: u64) -> Vec<u8> {
    let mut page = HostPage::default();
    source.read(index, &mut page, 1 << 30).unwrap();
    page.bytes().to_vec()
}

#[test]
#[ignore = "needs the servers that tests/servers/run.sh starts"]
fn an_s3_emulator_serves_ranges_and_objects_and_reports_missing_ones() {
    server("AWS_ENDPOINT_URL");
    let bytes = golden("train-000000.tar");
    let url = Path::new("s3://feedwater/train-000000.tar");
    let storage = storage();
    let file = storage.open(url).unwrap();
    assert_eq!(file.stamp().unwrap().len, bytes.len() as u64);
    let mut part = vec![0; 700];
    file.read_exact_at(&mut part, 300).unwrap();
    assert_eq!(part, bytes[300..1000]);
    assert_eq!(storage.read(url).unwrap(), bytes);
    let missing = storage.open(Path::new("s3://feedwater/missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    assert!(missing.to_string().contains("404"), "{missing}");
    let missing = Directory::open("s3://no-such-bucket/train").err().unwrap().to_string();
    assert!(missing.contains("404"), "{missing}");
}

#[test]
#[ignore = "needs the servers that tests/servers/run.sh starts"]
fn an_s3_emulator_lists_the_folder() {
    server("AWS_ENDPOINT_URL");
    let local = Directory::open(folder()).unwrap();
    let remote = directory("s3://feedwater", &storage()).unwrap();
    assert_eq!(remote.len(), local.len());
    for index in 0..local.len() {
        assert_eq!(remote.path(index).file_name(), local.path(index).file_name());
        assert_eq!(read(&remote, index), read(&local, index));
        let mut page = HostPage::default();
        remote.expect(index, 1 << 20).unwrap()(&mut page, 1 << 20).unwrap();
        assert_eq!(page.bytes(), read(&local, index));
    }
    assert_eq!(remote.largest_bytes(), local.largest_bytes());
}

#[test]
#[ignore = "needs the servers that tests/servers/run.sh starts"]
fn record_files_in_an_s3_emulator_equal_those_on_disk() {
    server("AWS_ENDPOINT_URL");
    let settings = TfRecordSettings::default();
    let (storage, paths) = (storage(), ["s3://feedwater/train-*-of-00002".into()]);
    let source = TfRecord::open_with(&paths, &settings, &storage).unwrap();
    assert_eq!(source.len(), 4);
    for (index, name) in IMAGES.iter().enumerate() {
        assert_eq!(read(&source, index as u64), golden(name));
    }
    let settings = WebDatasetSettings::default();
    let names = ["train-000000.tar", "train-000001.tar"];
    let local = WebDataset::open(&names.map(|name| folder().join(name)), &settings).unwrap();
    let urls = names.map(|name| PathBuf::from(format!("s3://feedwater/{name}")));
    let remote = WebDataset::open_with(&urls, &settings, &storage).unwrap();
    assert_eq!(remote.len(), local.len());
    for index in 0..local.len() {
        assert_eq!(
            (remote.label(index), read(&remote, index)),
            (local.label(index), read(&local, index))
        );
    }
}

#[test]
#[ignore = "needs the servers that tests/servers/run.sh starts"]
fn objects_from_an_s3_emulator_are_cached_on_disk_and_found_again() {
    server("AWS_ENDPOINT_URL");
    let kept = tempfile::tempdir().unwrap();
    let cache_directory = Some(kept.path().to_path_buf());
    let settings = StorageSettings { cache: 1 << 20, cache_directory, ..Default::default() };
    let storage = Storage::new(&settings).unwrap();
    let source = directory("s3://feedwater", &storage).unwrap();
    let first: Vec<_> = (0..source.len()).map(|index| read(&source, index)).collect();
    let before = storage.stats();
    // A second listing gives the objects the same versions, so their cache entries are found.
    let source = directory("s3://feedwater", &storage).unwrap();
    let second: Vec<_> = (0..source.len()).map(|index| read(&source, index)).collect();
    let hits = storage.stats().cache_hits - before.cache_hits;
    assert!(first == second && hits >= source.len(), "{hits} hits");
}

#[test]
#[ignore = "needs the servers that tests/servers/run.sh starts"]
fn a_plain_http_server_serves_whole_files_and_ranges_are_errors() {
    let root = server("FEEDWATER_HTTP_SERVER");
    let list = tempfile::tempdir().unwrap();
    let lines = IMAGES.map(|name| format!("{root}/{name}\t7\n")).concat();
    fs::write(list.path().join("list.txt"), lines).unwrap();
    let host = root.split('/').nth(2).unwrap().to_string();
    let allowed = StorageSettings { allow_urls: vec![host], ..StorageSettings::default() };
    let allowed = Storage::new(&allowed).unwrap();
    let source =
        FileList::open_with(list.path().join("list.txt"), &Default::default(), &allowed).unwrap();
    for (index, name) in IMAGES.iter().enumerate() {
        assert_eq!(read(&source, index as u64), golden(name));
    }
    let url = PathBuf::from(format!("{root}/train-00000-of-00002"));
    let storage = storage();
    let file = storage.open(&url).unwrap();
    let error = file.read_exact_at(&mut [0; 10], 5).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("range"), "{error}");
    let error = TfRecord::open_with(&[url], &TfRecordSettings::default(), &storage)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("range"), "{error}");
    let error = storage.open(Path::new(&format!("{root}/missing"))).unwrap_err().to_string();
    assert!(error.contains("404"), "{error}");
}
