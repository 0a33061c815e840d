//! Sources with thousands of files, in a process that may open only a few. The limit applies to the
//! whole process, so a shell sets it for each test.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use crate::in_own_process;
use feedwater::internals::source::Configured;
use feedwater::source::custom::HostPage;
use feedwater::source::settings::{NpySettings, TfRecordSettings, WebDatasetSettings};
use feedwater::source::{Npy, Source, TfRecord, WebDataset};
use feedwater::storage::Storage;

const FILES: u64 = 3_000;
const THREADS: u64 = 8;

/// Runs the named test in a new process that may open 256 files. Returns true in that process.
fn with_few_descriptors(test: &str) -> bool {
    in_own_process(test, "ulimit -n 256")
}

/// Returns the bytes of sample `number`. All samples are different.
fn sample(number: u64) -> Vec<u8> {
    (0..48).map(|at| (number.wrapping_mul(31) + at * at) as u8 ^ (number >> 8) as u8).collect()
}

/// Reads every sample on several threads. No file is read twice in a row.
fn read_all(source: &dyn Source, expected: impl Fn(u64) -> Vec<u8> + Sync) {
    assert_eq!(source.len(), FILES);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let expected = &expected;
            scope.spawn(move || {
                let mut page = HostPage::default();
                for step in 0..FILES {
                    let index = (step * 1_009 + thread * 377) % FILES;
                    source.read(index, &mut page, 1 << 20).unwrap();
                    assert_eq!(page.bytes(), expected(index), "sample {index}");
                }
            });
        }
    });
}

fn files(root: &Path, ending: &str, bytes: impl Fn(u64) -> Vec<u8>) -> Vec<PathBuf> {
    let path = |number| root.join(format!("{number:05}{ending}"));
    (0..FILES)
        .map(|number| {
            fs::write(path(number), bytes(number)).unwrap();
            path(number)
        })
        .collect()
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Encodes a protocol buffer field whose content has fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

/// Encodes a TFRecord file with one record, whose only feature is `image/encoded`.
fn record_file(image: &[u8]) -> Vec<u8> {
    let feature = field(1, &field(1, image));
    let entry = [field(1, b"image/encoded"), field(2, &feature)].concat();
    let data = field(1, &field(1, &entry));
    let len = (data.len() as u64).to_le_bytes();
    [&len, &masked(&len)[..], &data, &masked(&data)].concat()
}

/// Encodes a `.npy` file with one grey image of 8x6 pixels.
fn npy_file(pixels: &[u8]) -> Vec<u8> {
    let head = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 6, 8), }";
    let head = format!("{head:<117}\n");
    [b"\x93NUMPY\x01\0", &(head.len() as u16).to_le_bytes()[..], head.as_bytes(), pixels].concat()
}

fn tar_file(name: &str, image: &[u8]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut head = tar::Header::new_gnu();
    head.set_size(image.len() as u64);
    archive.append_data(&mut head, name, image).unwrap();
    archive.into_inner().unwrap()
}

#[test]
fn record_files() {
    if !with_few_descriptors("open_files::record_files") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let paths = files(root.path(), ".tfrecord", |number| record_file(&sample(number)));
    let settings = TfRecordSettings { label: String::new(), ..Default::default() };
    let source = TfRecord::open(&paths, &settings).unwrap();
    read_all(&source, sample);
    // Other code may use all remaining descriptors. Then the pool of open files closes some of its
    // own. If that is not enough, the error explains it.
    let mut taken = Vec::new();
    let error = loop {
        match Storage::default().open(&paths[0]) {
            Ok(file) => taken.push(file),
            Err(error) => break error,
        }
    };
    assert!(taken.len() > 200 && error.to_string().contains("ulimit -n"), "{error}");
    taken.truncate(taken.len() - 2 * THREADS as usize);
    read_all(&source, sample);
    // Now the pool of open files may use all remaining descriptors.
    drop(taken);
    // A file may change while the pool has closed it. Its sample is then an error, as if the file
    // had changed while it was open.
    for (path, change) in paths.iter().zip(["cut", "other"]) {
        match change {
            "cut" => fs::File::options().write(true).open(path).unwrap().set_len(20).unwrap(),
            _ => {
                let file = fs::File::options().write(true).open(path).unwrap();
                file.write_all_at(b"XX", 40).unwrap();
                file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            }
        }
    }
    for index in [0, 1] {
        assert!(source.read(index, &mut HostPage::default(), 1 << 20).is_err(), "{index}");
    }
}

#[test]
fn archives() {
    if !with_few_descriptors("open_files::archives") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    files(root.path(), ".tar", |number| tar_file(&format!("{number:05}.jpg"), &sample(number)));
    let paths = [root.path().to_path_buf()];
    let settings = WebDatasetSettings { label: String::new(), ..Default::default() };
    read_all(&WebDataset::open(&paths, &settings).unwrap(), sample);
}

#[test]
fn mapped_files() {
    if !with_few_descriptors("open_files::mapped_files") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let paths = files(root.path(), ".npy", |number| npy_file(&sample(number)));
    let source = Npy::open(&paths, &NpySettings::default()).unwrap();
    read_all(&source, |number| [b"P5\n8 6\n255\n", &sample(number)[..]].concat());
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let test = "open_files::the_soft_limit_is_raised_to_the_hard_one";
    if in_own_process(test, "ulimit -Sn 100 && ulimit -Hn 200") {
        assert_eq!(feedwater::internals::storage::raise_open_files_limit().unwrap(), 200);
        let files: Vec<_> = (0..150).map(|_| fs::File::open("/dev/null")).collect();
        assert!(files.iter().all(Result::is_ok));
        assert_eq!(
            feedwater::internals::storage::raise_open_files_limit().unwrap(),
            200,
            "the limit stays"
        );
    }
}
