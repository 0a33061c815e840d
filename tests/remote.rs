//! What `storage`, the sources and the loader say of URLs, on a server of the tests' own that fails where it is told to.

mod common;
mod servers;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use feedwater::error::Reason;
use feedwater::gpu::kernel::override_cache_directory;
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::source::{
    Directory, FileList, HostPage, Source, TfRecord, TfRecordSettings, WebDataset,
    WebDatasetSettings,
};
use feedwater::storage::{self, File, StorageSettings};

use servers::{Fault, Server};

/// Enough to be sent again three times, within a second and a half.
fn settings() -> StorageSettings {
    StorageSettings { retries: 3, timeout: 1, ..Default::default() }
}

/// Which settings hold is the process's: who changes them does so alone.
static SETTINGS: RwLock<()> = RwLock::new(());

/// The one server for `s3://`, `gs://` and `az://`, since the environment names it.
#[allow(unsafe_code)]
static BUCKETS: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::start();
    // Several pages for most listings.
    server.names_in_a_page(10);
    let (root, cache) = (server.url(""), tempfile::tempdir().unwrap().keep());
    override_cache_directory(cache);
    storage::configure(&settings()).unwrap();
    let variables = [
        ("AWS_ENDPOINT_URL", root.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("GOOGLE_BASE_URL", &root),
        ("GOOGLE_SKIP_SIGNATURE", "true"),
        ("AZURE_STORAGE_ENDPOINT", &root),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_SKIP_SIGNATURE", "true"),
    ];
    for (name, value) in variables {
        // SAFETY: every test comes here before it does anything else, and nothing else reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    server
});

/// The buckets' server, with the usual settings for as long as the guard lives.
fn buckets() -> (&'static Server, RwLockReadGuard<'static, ()>) {
    let guard = SETTINGS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    (&BUCKETS, guard)
}

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/records");
    fs::read(folder.join(name)).unwrap()
}

fn some_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * at + at / 7) as u8).collect()
}

fn part(url: &str, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    File::open(Path::new(url))?.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn read(source: &dyn Source, index: u64) -> Result<Vec<u8>, (Reason, String)> {
    let mut page = HostPage::default();
    source.read(index, &mut page, 1 << 30).map_err(|fault| (fault.reason, fault.problem))?;
    Ok(page.bytes().to_vec())
}

#[test]
fn a_file_of_any_service_is_read_in_parts_and_whole() {
    let (server, _guard) = buckets();
    let bytes = some_bytes(100_000);
    server.put("/any/a b/file.bin", &bytes[..]);
    let urls = [
        server.url("/any/a%20b/file.bin"),
        "s3://any/a b/file.bin".into(),
        "gs://any/a b/file.bin".into(),
        "az://any/a b/file.bin".into(),
    ];
    for url in urls {
        let file = File::open(Path::new(&url)).unwrap();
        assert_eq!(file.stamp().unwrap().len, 100_000, "{url}");
        let mut buffer = vec![0; 500];
        file.read_exact_at(&mut buffer, 70_000).unwrap();
        assert_eq!(buffer, bytes[70_000..70_500]);
        assert_eq!(file.read_at(&mut buffer, 99_900).unwrap(), 100);
        assert_eq!(buffer[..100], bytes[99_900..]);
        assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
        let kind = file.read_exact_at(&mut buffer, 99_900).unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::UnexpectedEof);
        assert_eq!(storage::read(Path::new(&url)).unwrap(), bytes);
    }
}

#[test]
fn an_empty_file_is_read_without_a_request_for_its_bytes() {
    let (server, _guard) = buckets();
    server.put("/empty/file", []);
    let url = server.url("/empty/file");
    assert!(part(&url, 0, 0).unwrap().is_empty());
    assert_eq!(server.log("/empty/").len(), 1);
    assert!(storage::read(Path::new(&url)).unwrap().is_empty());
}

#[test]
fn a_request_that_fails_by_the_way_is_sent_again() {
    let (server, _guard) = buckets();
    let bytes = some_bytes(50_000);
    let faults = [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(429),
        Fault::Close,
        Fault::Cut(0),
        Fault::Cut(4_000),
        Fault::Hang,
        Fault::Short(1),
        Fault::OtherRange,
        // A second and what so many bytes may take are over.
        Fault::Slow(1_000, Duration::from_millis(100)),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let path = format!("/again/{number}");
        server.put(&path, &bytes[..]);
        let url = server.url(&path);
        let file = File::open(Path::new(&url)).unwrap();
        server.fail(&path, [fault]);
        let mut buffer = vec![0; 40_000];
        file.read_exact_at(&mut buffer, 10_000).unwrap();
        assert_eq!(buffer, bytes[10_000..], "{fault:?}");
        assert_eq!(server.log(&path).len(), 3, "{fault:?}: one for the length, two for the bytes");
    }
    // What is merely slow is not.
    for fault in
        [Fault::Late(Duration::from_millis(300)), Fault::Slow(10_000, Duration::from_millis(20))]
    {
        server.put("/again/slow", &bytes[..]);
        let url = server.url("/again/slow");
        let before = server.log("/again/slow").len();
        server.fail("/again/slow", [fault]);
        assert_eq!(storage::read(Path::new(&url)).unwrap(), bytes);
        assert_eq!(server.log("/again/slow").len(), before + 1, "{fault:?}");
    }
}

#[test]
fn a_request_is_given_up_after_the_last_try() {
    let (server, _guard) = buckets();
    server.put("/down/file", [1]);
    server.fail("/down/file", [Fault::Status(503); 4]);
    let error = storage::read(Path::new(&server.url("/down/file"))).unwrap_err().to_string();
    assert_eq!(error, "the server answers 503 (after 3 retries)");
    assert_eq!(server.log("/down/").len(), 4);
    assert_eq!(storage::read(Path::new(&server.url("/down/file"))).unwrap(), [1]);
}

#[test]
fn nobody_at_the_other_end_is_an_error_after_the_last_try() {
    let _buckets = buckets();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = File::open(Path::new(&format!("http://{address}/file"))).unwrap_err().to_string();
    assert!(error.ends_with("(after 3 retries)"), "{error}");
    assert!(error.to_lowercase().contains("connect"), "{error}");
}

#[test]
fn a_request_that_is_refused_is_an_error_at_once_that_says_what_to_do() {
    let (server, _guard) = buckets();
    for (status, words) in [
        (400, "400"),
        (401, "check the credentials (AWS_ACCESS_KEY_ID"),
        (403, "check the credentials (AWS_ACCESS_KEY_ID"),
        (404, "no such object (404); check the bucket and the key"),
    ] {
        for root in [server.url("/refused"), "s3://refused".into()] {
            server.put("/refused/file", some_bytes(100));
            let file = File::open(Path::new(&format!("{root}/file"))).unwrap();
            let before = server.log("/refused/").len();
            server.fail("/refused/file", [Fault::Status(status)]);
            let error = file.read_exact_at(&mut [0; 10], 5).unwrap_err().to_string();
            assert!(error.contains(words), "{root} {status}: {error}");
            assert_eq!(server.log("/refused/").len(), before + 1, "{status}");
        }
    }
}

#[test]
fn a_file_that_changes_is_an_error_and_never_a_mixture() {
    let (server, _guard) = buckets();
    let path = "/changed/file";
    for url in [server.url(path), "s3://changed/file".into()] {
        server.put(path, some_bytes(1000));
        let file = File::open(Path::new(&url)).unwrap();
        server.put(path, vec![7; 1000]);
        let error = file.read_exact_at(&mut [0; 10], 5).unwrap_err().to_string();
        assert_eq!(error, "changed on the server since it was opened; open the source again");
        assert_eq!(part(&url, 5, 2).unwrap(), [7, 7]);
    }
}

#[test]
fn a_server_that_knows_no_ranges_gives_whole_files_only() {
    let _buckets = buckets();
    let server = Server::start();
    server.whole_files_only();
    server.put("/file", some_bytes(1000));
    let url = server.url("/file");
    assert_eq!(storage::read(Path::new(&url)).unwrap(), some_bytes(1000));
    let error = part(&url, 5, 10).unwrap_err().to_string();
    assert!(error.contains("the server gives only whole files"), "{error}");
    assert_eq!(server.log("/file").len(), 3);
}

#[test]
fn what_is_no_url_of_a_known_kind_is_an_error_with_the_way_out() {
    let _buckets = buckets();
    for (url, words) in [
        ("ftp://host/file", "write s3://, gs://"),
        ("http://host/file?token=1", "without a query"),
        ("s3:///file", "names no bucket"),
    ] {
        let error = File::open(Path::new(url)).unwrap_err().to_string();
        assert!(error.contains(words), "{url}: {error}");
    }
    let error = storage::list(Path::new("http://host/folder")).unwrap_err().to_string();
    assert!(error.contains("cannot be listed; name the files"), "{error}");
}

/// Names of a folder tree in which every rule of a listing matters.
const TREE: [&str; 12] = [
    "beside.txt",
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
fn a_directory_in_a_bucket_is_what_it_is_on_a_disk() {
    let (server, _guard) = buckets();
    let root = tempfile::tempdir().unwrap();
    for (number, name) in TREE.iter().enumerate() {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, [number as u8; 3]).unwrap();
        server.put(&format!("/tree/train/{name}"), [number as u8; 3]);
    }
    // What consoles put there for a folder, and what only begins with the same letters.
    server.put("/tree/train/cat/", []);
    server.put("/tree/train", []);
    server.put("/tree/train-2/x.jpg", [1]);
    let local = Directory::open(root.path()).unwrap();
    for url in ["s3://tree/train", "s3://tree/train/", "gs://tree/train"] {
        let remote = Directory::open(url).unwrap();
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
        assert_eq!(remote.largest_bytes(), 3);
        assert!(
            remote.describe().contains("1 files beside the class folders"),
            "{}",
            remote.describe()
        );
    }
    let names = |path: &Path| {
        let entries = storage::list(path).unwrap();
        entries.into_iter().map(|it| (it.name, it.folder)).collect::<Vec<_>>()
    };
    assert_eq!(names(Path::new("s3://tree/train/cat")), names(&root.path().join("cat")));
    let error = Directory::open("s3://tree/nothing").err().unwrap().to_string();
    assert!(error.contains("no files in s3://tree/nothing"), "{error}");
}

#[test]
fn a_listing_goes_on_where_a_page_fails() {
    let (server, _guard) = buckets();
    for number in 0..35 {
        server.put(&format!("/paged/{number:02}.jpg"), [number]);
    }
    // More often than one request is sent again, and now and then a page comes.
    let page = Fault::Late(Duration::ZERO);
    let broken = [Fault::Status(503), Fault::Cut(10)];
    server.fail("/paged", [broken[0], page, broken[0], broken[1], page, broken[1], Fault::Close]);
    let found = storage::list_all(Path::new("s3://paged")).unwrap();
    let names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
    let expected: Vec<String> = (0..35).map(|number| format!("{number:02}.jpg")).collect();
    assert_eq!(names, expected);
}

#[test]
fn an_object_that_changed_since_the_listing_is_a_sample_that_cannot_be_read() {
    let (server, _guard) = buckets();
    server.put("/relisted/a", [1, 2, 3]);
    let source = Directory::open("s3://relisted").unwrap();
    server.put("/relisted/a", [3, 2, 1]);
    let (reason, problem) = read(&source, 0).unwrap_err();
    assert_eq!(reason, Reason::Unreadable);
    assert!(problem.contains("changed on the server"), "{problem}");
}

#[test]
fn a_list_may_lie_behind_a_url_and_name_others() {
    let (server, _guard) = buckets();
    server.put("/lists/pictures/a b.jpg", [1]);
    server.put("/lists/b.jpg", [2]);
    let other = server.url("/lists/b.jpg");
    server.put("/lists/train.txt", format!("pictures/a b.jpg\t3\n{other}\t4\nmissing.jpg\t5\n"));
    for list in [server.url("/lists/train.txt"), "s3://lists/train.txt".into()] {
        let source = FileList::open(&list).unwrap();
        assert!(source.is_remote());
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
    let source = FileList::open(server.url("/lists/large.txt")).unwrap();
    let fault = source.read(0, &mut page, 99).unwrap_err();
    assert_eq!(fault.to_string(), "oversized: 100 bytes, limits.max_file_bytes is 99");
    // The same where it was asked for before, and the whole of it where more is allowed then.
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
fn record_files_are_walked_once_and_then_read_a_range_for_a_sample() {
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
        let source = TfRecord::open(paths, &settings).unwrap();
        assert_eq!(source.len(), 4);
        server.forget("/records/tf/");
        for index in 0..4 {
            let picture = golden(&format!("{index}.jpg"));
            assert_eq!(read(&source, index).unwrap(), picture);
            let mut page = HostPage::default();
            let expected = source.expect(index, 1 << 20).unwrap();
            expected(&mut page, 1 << 20).unwrap();
            assert_eq!(page.bytes(), picture);
        }
        let ranges = server.log("/records/tf/");
        assert!(
            ranges.len() == 8 && ranges.iter().all(|it| it.method == "GET" && it.range.is_some())
        );
        // The table is in the cache's directory: nothing but the length is asked for again.
        server.forget("/records/tf/");
        TfRecord::open(paths, &settings).unwrap();
        let again = server.log("/records/tf/");
        assert!(again.iter().all(|it| it.method == "HEAD"), "{again:?}");
    }
    let local = tempfile::tempdir().unwrap();
    for name in ["train-000000.tar", "train-000001.tar"] {
        fs::write(local.path().join(name), golden(name)).unwrap();
    }
    let settings = WebDatasetSettings::default();
    let local = WebDataset::open(&[local.path().into()], &settings).unwrap();
    let remote = WebDataset::open(&["s3://records/tar".into()], &settings).unwrap();
    assert_eq!(remote.len(), local.len());
    for index in 0..local.len() {
        assert_eq!(remote.label(index), local.label(index));
        assert_eq!(read(&remote, index).unwrap(), read(&local, index).unwrap());
    }
}

#[test]
fn bits_that_turn_on_the_way_are_found_by_the_record_s_checksum() {
    let (server, _guard) = buckets();
    server.put("/flipped/file", golden("train-00000-of-00002"));
    let paths = [server.url("/flipped/file").into()];
    let source = TfRecord::open(&paths, &TfRecordSettings::default()).unwrap();
    server.fail("/flipped/file", [Fault::Flipped(200), Fault::Flipped(200)]);
    assert_eq!(read(&source, 0).unwrap_err().0, Reason::Corrupt);
    let expected = source.expect(0, 1 << 20).unwrap();
    let fault = expected(&mut HostPage::default(), 1 << 20).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    assert_eq!(read(&source, 0).unwrap(), golden("0.jpg"));
}

/// Pictures in a bucket, and the same on a disk.
fn pictures(bucket: &str, count: u64) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (number, (jpeg, label)) in common::jpegs(count).into_iter().enumerate() {
        let name = format!("{label}/{number:04}.jpg");
        BUCKETS.put(&format!("/{bucket}/{name}"), &jpeg[..]);
        fs::create_dir_all(root.path().join(label.to_string())).unwrap();
        fs::write(root.path().join(name), jpeg).unwrap();
    }
    root
}

fn batches(source: impl Source + 'static, epochs: usize) -> Vec<Vec<u8>> {
    let loader = Loader::builder(source, common::training())
        .batch(5)
        .workers(2)
        .seed(3)
        .shuffle(true)
        // What is given up at the end makes room for what is given up next.
        .epochs(Some(epochs as u32))
        .device(DeviceChoice::Cpu)
        .build()
        .unwrap();
    let mut batches = Vec::new();
    for _ in 0..epochs {
        for batch in &loader {
            batches.push(batch.unwrap().to_host().unwrap());
        }
    }
    batches
}

/// Two workers read one sample at a time: what is more in flight was asked for ahead of them.
#[test]
fn the_loader_keeps_requests_in_flight_and_its_batches_are_those_of_local_files() {
    let _alone = SETTINGS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let local = pictures("ahead", 60);
    let source = || Directory::open("s3://ahead").unwrap();
    let expected = batches(Directory::open(local.path()).unwrap(), 2);
    BUCKETS.latency(Duration::from_millis(30));
    for (connections, fewest) in [(1, 1), (8, 8), (32, 32)] {
        storage::configure(&StorageSettings { connections, ..settings() }).unwrap();
        let source = source();
        BUCKETS.forget("/ahead/");
        assert!(batches(source, 2) == expected);
        let most = BUCKETS.most_in_flight();
        assert!(most >= fewest && most <= connections, "{most} of {connections}");
    }
    BUCKETS.latency(Duration::ZERO);
    storage::configure(&settings()).unwrap();
}

/// Forty milliseconds for each batch of five, from a server that is 30 ms away: four are in flight then.
#[test]
fn a_slow_consumer_has_fewer_samples_fetched_ahead_and_no_byte_depends_on_it() {
    let _alone = SETTINGS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let local = pictures("chosen", 60);
    let storage = StorageSettings { connections: 32, ..settings() };
    storage::configure(&storage).unwrap();
    let build = |source: Directory, tune: bool| {
        let all = feedwater::plan::Settings { storage: storage.clone(), ..Default::default() };
        let builder = Loader::builder(source, common::training()).settings(all).tune(tune);
        let builder = builder.batch(5).workers(2).seed(3).shuffle(true).epochs(Some(8));
        builder.device(DeviceChoice::Cpu).build().unwrap()
    };
    let mut bytes = Vec::new();
    let mut epochs = |loader: &Loader, count: usize, step: Duration| {
        bytes.clear();
        for _ in 0..count {
            for batch in loader {
                bytes.push(batch.unwrap().to_host().unwrap());
                std::thread::sleep(step);
            }
        }
        std::mem::take(&mut bytes)
    };
    let files = build(Directory::open(local.path()).unwrap(), true);
    assert_eq!(files.read_ahead(), None);
    let expected = epochs(&files, 8, Duration::ZERO);

    BUCKETS.latency(Duration::from_millis(30));
    let fixed = build(Directory::open("s3://chosen").unwrap(), false);
    assert!(epochs(&fixed, 2, Duration::ZERO) == expected[..24]);
    let report = fixed.read_ahead().unwrap();
    assert_eq!((report.window, report.most, report.decisions), (64, 64, vec![]));
    assert_eq!(fixed.profile().setup.read_ahead, 64);
    drop(fixed);

    let loader = build(Directory::open("s3://chosen").unwrap(), true);
    assert_eq!(loader.read_ahead().unwrap().window, 64, "generous at first");
    let step = Duration::from_millis(40);
    let first = epochs(&loader, 5, step);
    let report = loader.read_ahead().unwrap();
    // 125 a second, 30 ms, and room for a machine that has other things to do.
    assert!(report.window <= 32 && report.decisions[0].batch <= 50, "{report:#?}");
    assert!(report.decisions.iter().any(|it| it.why.contains("requests take")), "{report:#?}");
    assert_eq!(loader.profile().setup.read_ahead as usize, report.window);
    BUCKETS.forget("/chosen/");
    let last = epochs(&loader, 3, step);
    // Besides those ahead the two that the workers have.
    let report = loader.read_ahead().unwrap();
    let longest = report.decisions.iter().map(|it| it.window).max().unwrap();
    let most = BUCKETS.most_in_flight();
    assert!(most <= longest + 2, "{most} in flight: {report:#?}");
    assert!([first, last].concat() == expected);
    BUCKETS.latency(Duration::ZERO);
    storage::configure(&settings()).unwrap();
}

#[test]
fn a_loader_that_is_dropped_gives_up_what_it_waits_for() {
    let _alone = SETTINGS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    pictures("hanging", 64);
    storage::configure(&StorageSettings { timeout: 30, ..settings() }).unwrap();
    let source = Directory::open("s3://hanging").unwrap();
    for index in (0..64).filter(|index| index % 4 != 0) {
        // All but those that the plan looks at.
        let path = source.path(index).to_str().unwrap().replace("s3:/", "");
        BUCKETS.fail(&path, [Fault::Hang; 8]);
    }
    let builder = Loader::builder(source, common::training()).batch(5).workers(2).shuffle(false);
    let loader = builder.device(DeviceChoice::Cpu).build().unwrap();
    // Until the workers wait for what never comes.
    while BUCKETS.log("/hanging/").iter().filter(|it| it.method == "GET").count() < 16 + 40 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let begin = Instant::now();
    drop(loader);
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    storage::configure(&settings()).unwrap();
}

#[test]
fn the_footprint_has_what_is_fetched_ahead() {
    let (_, _guard) = buckets();
    let local = pictures("footprint", 12);
    let rows = |source: Directory, storage: StorageSettings| {
        let builder = Loader::builder(source, common::training()).device(DeviceChoice::Cpu);
        let settings = feedwater::plan::Settings { storage, ..Default::default() };
        builder.settings(settings).workers(3).plan().unwrap().footprint
    };
    let footprint = rows(Directory::open(local.path()).unwrap(), settings());
    assert!(footprint.row("read ahead").is_none() && footprint.row("connections").is_none());
    let source = || Directory::open("s3://footprint").unwrap();
    let largest = source().largest_bytes();
    let ahead = |storage: StorageSettings| {
        let footprint = rows(source(), storage);
        let row = footprint.row("read ahead").unwrap().clone();
        assert_eq!(row.each_bytes, largest);
        (row.count, footprint.row("connections").unwrap().count)
    };
    assert_eq!(ahead(StorageSettings { connections: 20, ..settings() }), (2 * 20 + 2 * 3, 20));
    let little = StorageSettings { connections: 20, read_ahead: 5 * largest + 1, ..settings() };
    assert_eq!(ahead(little), (5 + 2 * 3, 20));
    assert_eq!(ahead(StorageSettings { read_ahead: 0, ..settings() }).0, 1 + 2 * 3);
}
