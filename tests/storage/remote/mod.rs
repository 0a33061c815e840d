//! Remote storage, sources and loaders, with a test server and failures that tests cause.

mod fields;
mod handles;
mod hostile;
mod loading;
mod requests;
mod side_files;
mod tables;
mod trust;

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use crate::common;
use feedwater::error::{Error, Reason};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::source::custom::{Hints, HostPage, Notes, RemoteReads};
use feedwater::source::settings::{TfRecordSettings, WebDatasetSettings};
use feedwater::source::{Directory, ExclusionReason, FileList, Source, TfRecord, WebDataset};
use feedwater::storage::{Storage, StorageSettings};

use crate::servers::{Fault, Server};

/// Settings with three retries, which take at most 1.5 seconds. The timeout is so long that even a
/// busy machine does not reach it.
fn settings() -> StorageSettings {
    StorageSettings { retries: 3, timeout: 60, ..Default::default() }
}

/// Lock for the latency of the server, which all tests share. A test that changes the latency holds
/// the write lock, so it runs alone.
static LATENCY: RwLock<()> = RwLock::new(());

/// The server for `s3://`, `gs://` and `az://`. There is only one, because its address is in
/// environment variables.
#[allow(unsafe_code)]
static BUCKETS: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::start();
    // With ten names per page, most listings need several pages.
    server.names_in_a_page(10);
    let root = server.url("");
    let variables = [
        ("AWS_ENDPOINT_URL", root.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_SESSION_TOKEN", "session"),
        ("GOOGLE_BASE_URL", &root),
        ("GOOGLE_SKIP_SIGNATURE", "true"),
        ("AZURE_STORAGE_ENDPOINT", &root),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_SKIP_SIGNATURE", "true"),
    ];
    for (name, value) in variables {
        // SAFETY: every test forces `BUCKETS` first, and no other code reads the environment
        // meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    server
});

/// Handle for tests that need no special settings.
static USUAL: LazyLock<Storage> = LazyLock::new(|| storage(&settings()));

/// Returns a handle with these settings. The handle stores no indices in the user's cache
/// directory.
fn storage(settings: &StorageSettings) -> Storage {
    LazyLock::force(&BUCKETS);
    let directory = tempfile::tempdir().unwrap().keep();
    Storage::with_cache_directory(settings, directory).unwrap()
}

/// Returns the server of the buckets, and a guard. While the guard lives, the server answers
/// without delay.
fn buckets() -> (&'static Server, RwLockReadGuard<'static, ()>) {
    let guard = LATENCY.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    (&BUCKETS, guard)
}

fn directory(path: impl AsRef<Path>, storage: &Storage) -> feedwater::Result<Directory> {
    Directory::open_with(path, &Default::default(), storage)
}

fn list(path: impl AsRef<Path>, storage: &Storage) -> feedwater::Result<FileList> {
    FileList::open_with(path, &Default::default(), storage)
}

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/records");
    fs::read(folder.join(name)).unwrap()
}

fn some_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * at + at / 7) as u8).collect()
}

fn part(storage: &Storage, url: &str, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    storage.open(Path::new(url))?.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn read(source: &dyn Source, index: u64) -> Result<Vec<u8>, (Reason, String)> {
    let mut page = HostPage::default();
    source.read(index, &mut page, 1 << 30).map_err(|fault| (fault.reason, fault.problem))?;
    Ok(page.bytes().to_vec())
}

/// Checks the kind of an error, and that its message contains `values`.
#[track_caller]
fn assert_error(error: &std::io::Error, kind: ErrorKind, values: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for value in values {
        assert!(error.to_string().contains(value), "{value}: {error}");
    }
}

/// Whether a message contains this number, and not only as a part of a longer number.
fn has_number(text: &str, number: u32) -> bool {
    text.split(|it: char| !it.is_ascii_digit()).any(|it| it == number.to_string())
}

/// Names of files that together cover every rule for listing a folder.
const TREE: [&str; 13] = [
    "beside.txt",
    "beside.jpg",
    "cat/b.jpg",
    "cat/a.jpg",
    "cat/sub/x.jpg",
    "cat/sub-2/x.jpg",
    "cat/z.jpg",
    "cat/.hidden",
    "dog/1.jpg",
    "dog-2/1.jpg",
    "dog-2/Ü ?#%41.jpg",
    ".git/config",
    "ant/deep/er/1.jpg",
];

#[test]
fn a_directory_in_a_bucket_equals_one_on_disk() {
    let (server, _guard) = buckets();
    let root = tempfile::tempdir().unwrap();
    for (number, name) in TREE.iter().enumerate() {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, [number as u8; 3]).unwrap();
        server.put(&format!("/tree/train/{name}"), [number as u8; 3]);
    }
    // Some consoles create empty objects as placeholders for folders. `train-2` has a common prefix
    // with `train`, but is another folder.
    server.put("/tree/train/cat/", []);
    server.put("/tree/train", []);
    server.put("/tree/train-2/x.jpg", [1]);
    let local = Directory::open(root.path()).unwrap();
    for url in ["s3://tree/train", "s3://tree/train/", "gs://tree/train"] {
        let remote = directory(url, &USUAL).unwrap();
        assert_eq!((remote.len(), remote.classes()), (local.len(), local.classes()), "{url}");
        for index in 0..local.len() {
            let at = |path: PathBuf, root: &Path| path.strip_prefix(root).unwrap().to_path_buf();
            assert_eq!(remote.label(index), local.label(index));
            assert_eq!(
                at(remote.path(index), Path::new(url)),
                at(local.path(index), root.path()),
                "{url} {index}"
            );
            assert_eq!(read(&remote, index).unwrap(), read(&local, index).unwrap());
        }
        assert_eq!(remote.largest_bytes(), Some(3));
        let counts = |source: &Directory| -> Vec<_> {
            source.excluded().into_iter().map(|it| (it.why, it.kind, it.count)).collect()
        };
        assert_eq!(counts(&remote), [(ExclusionReason::BesideClasses, String::new(), 2)]);
        assert_eq!(counts(&remote), counts(&local));
        for warnings in [remote.warnings(), local.warnings()] {
            let [warning] = &warnings[..] else { panic!("{warnings:?}") };
            assert!(warning.starts_with("1 image next to the class folders of "), "{warning}");
            assert!(warning.contains("beside.jpg"), "{warning}");
        }
    }
    let names = |path: &Path| {
        let entries = USUAL.list(path).unwrap();
        entries.into_iter().map(|it| (it.name, it.folder)).collect::<Vec<_>>()
    };
    assert_eq!(names(Path::new("s3://tree/train/cat")), names(&root.path().join("cat")));
    let error = directory("s3://tree/nothing", &USUAL).err().unwrap();
    let Error::Config(error) = error else { panic!("{error}") };
    assert_eq!(error.key, "source.directory");
    assert!(error.problem.contains("s3://tree/nothing"), "{error}");
}

#[test]
fn a_listing_continues_after_failed_pages() {
    let (server, _guard) = buckets();
    for number in 0..35 {
        server.put(&format!("/paged/{number:02}.jpg"), [number]);
    }
    // There are more failures than one request may have retries. But some pages succeed in between,
    // so no single request fails too often.
    let page = Fault::Late(Duration::ZERO);
    let broken = [Fault::Status(503), Fault::Cut(10)];
    server.fail("/paged", [broken[0], page, broken[0], broken[1], page, broken[1], Fault::Close]);
    let found = USUAL.list_all(Path::new("s3://paged")).unwrap();
    let names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
    let expected: Vec<String> = (0..35).map(|number| format!("{number:02}.jpg")).collect();
    assert_eq!(names, expected);
}

#[test]
fn an_object_changed_since_the_listing_is_an_unreadable_sample() {
    let (server, _guard) = buckets();
    server.put("/relisted/a.jpg", [1, 2, 3]);
    let source = directory("s3://relisted", &USUAL).unwrap();
    server.put("/relisted/a.jpg", [3, 2, 1]);
    let (reason, problem) = read(&source, 0).unwrap_err();
    assert_eq!(reason, Reason::Unreadable);
    assert!(problem.contains("changed"), "{problem}");
}

/// Some proxies and small servers answer range requests in chunks without a length, and refuse
/// `HEAD`.
#[test]
fn servers_without_lengths_and_without_head_are_read() {
    let (server, _guard) = buckets();
    let bytes = some_bytes(1000);
    server.put("/odd/a", bytes.clone());
    server.put("/odd/empty", []);
    let url = server.url("/odd/a");
    server.fail("/odd/a", [Fault::Status(405), Fault::Chunked, Fault::Chunked]);
    let file = USUAL.open(Path::new(&url)).unwrap();
    assert_eq!(file.stamp().unwrap().len, 1000);
    let mut read = vec![0; 7];
    file.read_exact_at(&mut read, 990).unwrap();
    assert_eq!(read, bytes[990..997]);
    let asked: Vec<_> = server.log("/odd/a").into_iter().map(|it| (it.method, it.range)).collect();
    assert_eq!(asked[0], ("HEAD".into(), None));
    assert_eq!(asked[1], ("GET".into(), Some(0..1)));
    assert_eq!((asked.len(), &asked[2].1), (3, &Some(990..997)));
    for status in [405, 501] {
        server.fail(
            "/odd/empty",
            [Fault::Status(status), Fault::Other(416, "Content-Range: bytes */0\r\n", "")],
        );
        let file = USUAL.open(Path::new(&server.url("/odd/empty"))).unwrap();
        assert_eq!(file.stamp().unwrap().len, 0);
    }
}

/// Consoles of object stores create empty objects for folders. The name of such an object may be
/// that of an image file.
#[test]
fn folder_markers_named_like_images_are_counted() {
    let (server, _guard) = buckets();
    server.put("/marked/cat/a.jpg", [1]);
    server.put("/marked/cat/b.jpg/", []);
    server.put("/marked/dog/c.png", []);
    server.put("/marked/dog/d.png", [2]);
    let source = directory("s3://marked", &USUAL).unwrap();
    assert_eq!((source.len(), read(&source, 1).unwrap()), (2, vec![2]));
    let [excluded] = &source.excluded()[..] else { panic!("{:?}", source.excluded()) };
    assert_eq!((excluded.why, excluded.count), (ExclusionReason::EmptyObject, 2));
}

/// A list has URLs on two hosts, and one host is unreachable.
#[test]
fn one_unreachable_url_of_a_list_is_an_error_of_its_sample() {
    let (server, _guard) = buckets();
    let image = common::jpeg(1, 40, 30);
    server.put("/mixed/a.jpg", image.clone());
    let gone = "http://127.0.0.1:1/b.jpg";
    server.put("/mixed/train.txt", format!("a.jpg\t1\n{gone}\t2\n"));
    let url = server.url("/mixed/train.txt");
    let settings = StorageSettings {
        allow_urls: vec!["127.0.0.1:1".into()],
        open_timeout: 1,
        retries: 0,
        ..settings()
    };
    let text = format!(
        "[source]\nlist = \"{url}\"\n[loader]\nbatch_size = 1\non_error = \"skip\"\n\
         [[chain]]\nop = \"center_crop\"\nwidth = 8\nheight = 8\n"
    );
    let pipeline = feedwater::Pipeline::from_toml(&text, "").unwrap();
    let source = pipeline.source.open_with(&storage(&settings)).unwrap();
    let read = |index| {
        let mut page = HostPage::default();
        source.read(index, &mut page, 1 << 20).map(|()| page.bytes().to_vec())
    };
    assert_eq!(read(0).unwrap(), image);
    assert_eq!(read(1).unwrap_err().reason, Reason::Unreadable);
    let builder = pipeline.builder_with(&storage(&settings)).unwrap();
    let mut loader =
        builder.device(DeviceChoice::Cpu).num_workers(1).epochs(Some(1)).build().unwrap();
    assert!(loader.into_iter().all(|batch| batch.is_ok()));
    assert!(loader.stats().errors.values().sum::<u64>() > 0);
    // A list is data. Without the setting `allow_urls`, its rows must not select URLs.
    let error = pipeline.source.open_with(&USUAL).err().unwrap().to_string();
    for words in ["entry 2", gone, "allow_urls", "127.0.0.1:1"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    // If no server of the listed files answers, opening the list fails.
    server.put("/mixed/gone.txt", format!("{gone}\t2\n"));
    let text = format!("[source]\nlist = \"{}\"\n", server.url("/mixed/gone.txt"));
    let pipeline = feedwater::Pipeline::from_toml(&text, "").unwrap();
    assert!(pipeline.source.open_with(&storage(&settings)).is_err());
}

/// Requests to buckets are signed and contain the session token. A row of a data file must not
/// cause such a request.
#[test]
fn a_bucket_in_a_row_gets_no_request_unless_the_settings_allow_it() {
    let (server, _guard) = buckets();
    server.put("/of-a-row/a.jpg", [7]);
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("list.txt");
    fs::write(&path, "s3://of-a-row/a.jpg\t1\n").unwrap();
    let error = list(&path, &USUAL).err().unwrap().to_string();
    assert!(error.contains("allow_urls = [\"s3://of-a-row\"]"), "{error}");
    assert_eq!(server.log("/of-a-row"), []);
    let allow_urls = vec!["s3://of-a-row".into()];
    let allowed = storage(&StorageSettings { allow_urls, ..settings() });
    assert_eq!(read(&list(&path, &allowed).unwrap(), 0).unwrap(), [7]);
    // If the settings allow the bucket, the request is sent, and it contains the session token.
    let token = ("x-amz-security-token".to_string(), "session".to_string());
    assert!(server.log("/of-a-row/a.jpg").iter().any(|it| it.head.contains(&token)));
}

#[test]
fn a_list_may_be_remote_and_name_other_urls() {
    let (server, _guard) = buckets();
    let host = server.address.to_string();
    let allowed = storage(&StorageSettings { allow_urls: vec![host], ..settings() });
    server.put("/lists/images/a b.jpg", [1]);
    server.put("/lists/b.jpg", [2]);
    let other = server.url("/lists/b.jpg");
    server.put("/lists/train.txt", format!("images/a b.jpg\t3\n{other}\t4\nmissing.jpg\t5\n"));
    for file in [server.url("/lists/train.txt"), "s3://lists/train.txt".into()] {
        let source = list(&file, &allowed).unwrap();
        assert!(source.remote().is_some());
        let labels: Vec<i64> = (0..source.len()).map(|index| source.label(index)).collect();
        assert_eq!(labels, [3, 4, 5]);
        assert_eq!((read(&source, 0).unwrap(), read(&source, 1).unwrap()), (vec![1], vec![2]));
        let (reason, problem) = read(&source, 2).unwrap_err();
        assert_eq!(reason, Reason::Unreadable);
        assert!(problem.contains("404"), "{problem}");
    }
    let mut page = HostPage::default();
    server.put("/lists/large", vec![0; 100]);
    server.put("/lists/large.txt", "large\n");
    let source = list(server.url("/lists/large.txt"), &USUAL).unwrap();
    let fault = source.read(0, &mut page, 99).unwrap_err();
    assert_eq!(fault.reason, Reason::Oversized);
    for value in ["100", "limits.max_file_bytes", "99"] {
        assert!(fault.problem.contains(value), "{value}: {fault}");
    }
    // A sample may be requested with one size limit and read with another. The result is that of
    // reading with the later limit, which may require a second request for the whole object.
    let mut read_after = |held: u64, limit: u64| {
        let expected = source.expect(0, held).unwrap();
        expected(&mut page, limit).map(|()| page.bytes().len())
    };
    assert_eq!(read_after(99, 99).unwrap_err().reason, Reason::Oversized);
    assert_eq!(read_after(50, 99).unwrap_err().reason, Reason::Oversized);
    assert_eq!(read_after(50, 100).unwrap(), 100);
    assert_eq!(read_after(100, 100).unwrap(), 100);
}

#[test]
fn record_files_are_indexed_once_and_then_read_by_range() {
    let (server, _guard) = buckets();
    let names = ["train-00000-of-00002", "train-00001-of-00002"];
    for name in names {
        server.put(&format!("/records/tf/{name}"), golden(name));
    }
    for name in ["train-000000.tar", "train-000001.tar"] {
        server.put(&format!("/records/tar/{name}"), golden(name));
    }
    let settings = TfRecordSettings::default();
    let listed: Vec<PathBuf> =
        names.map(|name| server.url(&format!("/records/tf/{name}")).into()).into();
    let ways: [&[PathBuf]; 3] =
        [&["s3://records/tf".into()], &["s3://records/tf/train-*-of-00002".into()], &listed];
    for paths in ways {
        let source = TfRecord::open_with(paths, &settings, &USUAL).unwrap();
        assert_eq!(source.len(), 4);
        server.forget("/records/tf/");
        for index in 0..4 {
            let image = golden(&format!("{index}.jpg"));
            assert_eq!(read(&source, index).unwrap(), image);
            let mut page = HostPage::default();
            let expected = source.expect(index, 1 << 20).unwrap();
            expected(&mut page, 1 << 20).unwrap();
            assert_eq!(page.bytes(), image);
        }
        let ranges = server.log("/records/tf/");
        assert!(
            ranges.len() == 8 && ranges.iter().all(|it| it.method == "GET" && it.range.is_some())
        );
        // The index is in the cache directory. So opening the file again requests only its length.
        server.forget("/records/tf/");
        TfRecord::open_with(paths, &settings, &USUAL).unwrap();
        let again = server.log("/records/tf/");
        assert!(again.iter().all(|it| it.method == "HEAD"), "{again:?}");
    }
    let local = tempfile::tempdir().unwrap();
    for name in ["train-000000.tar", "train-000001.tar"] {
        fs::write(local.path().join(name), golden(name)).unwrap();
    }
    let settings = WebDatasetSettings::default();
    let local = WebDataset::open(&[local.path().into()], &settings).unwrap();
    let remote = WebDataset::open_with(&["s3://records/tar".into()], &settings, &USUAL).unwrap();
    let stored = WebDataset::open_with(&["s3://records/tar".into()], &settings, &USUAL).unwrap();
    assert_eq!(remote.len(), local.len());
    for index in 0..local.len() {
        assert_eq!(remote.label(index), local.label(index));
        assert_eq!(read(&remote, index).unwrap(), read(&local, index).unwrap());
        // A table that was stored and read again contains the names of members too.
        let [remote, stored, local] = [&remote, &stored, &local].map(|source| {
            let named = (source as &dyn Source).named_location(index);
            named.rsplit_once(' ').unwrap().1.to_owned()
        });
        assert!(
            local.ends_with(".jpg") && remote == local && stored == local,
            "{remote}, {stored}"
        );
    }
}

#[test]
fn bits_flipped_in_transit_are_detected_by_the_record_checksum() {
    let (server, _guard) = buckets();
    server.put("/flipped/file", golden("train-00000-of-00002"));
    let paths = [server.url("/flipped/file").into()];
    let source = TfRecord::open_with(&paths, &TfRecordSettings::default(), &USUAL).unwrap();
    server.fail("/flipped/file", [Fault::Flipped(200), Fault::Flipped(200)]);
    assert_eq!(read(&source, 0).unwrap_err().0, Reason::Corrupt);
    let expected = source.expect(0, 1 << 20).unwrap();
    let fault = expected(&mut HostPage::default(), 1 << 20).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    assert_eq!(read(&source, 0).unwrap(), golden("0.jpg"));
}
