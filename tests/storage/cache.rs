//! Tests what the documentation of the disk cache promises, with files on a test server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use feedwater::storage::{Storage, StorageSettings};
use tempfile::TempDir;

use crate::servers::Server;

struct Setting {
    server: Server,
    directory: TempDir,
    limit: u64,
    storage: Storage,
}

const LEN: usize = 10_000;
/// Size of the header of a cache entry in bytes.
const HEAD: u64 = 24;

fn start(limit: u64) -> Setting {
    let directory = tempfile::tempdir().unwrap();
    let storage = storage(directory.path(), limit);
    Setting { server: Server::start(), directory, limit, storage }
}

/// Returns a new handle on the cache. The new handle has no record of the entries that other
/// handles have used.
fn storage(directory: &Path, limit: u64) -> Storage {
    let cache_directory = Some(directory.to_path_buf());
    Storage::new(&StorageSettings { cache: limit, cache_directory, ..Default::default() }).unwrap()
}

fn content(number: u64) -> Vec<u8> {
    (0..LEN).map(|at| (at as u64 * 31 + number * 7 + at as u64 / 251) as u8).collect()
}

/// Reads a thousand bytes of a file at offset `1000 * part`.
fn read(storage: &Storage, url: &str, part: usize) -> Vec<u8> {
    let mut bytes = vec![0; 1000];
    let file = storage.open(Path::new(url)).unwrap();
    file.read_exact_at(&mut bytes, part as u64 * 1000).unwrap();
    bytes
}

impl Setting {
    fn read(&self, url: &str, part: usize) -> Vec<u8> {
        read(&self.storage, url, part)
    }

    /// Replaces the handle by a new one, as if another process used the cache.
    fn restart(&mut self) {
        self.storage = storage(self.directory.path(), self.limit);
    }

    fn url(&self, path: &str, number: u64) -> String {
        self.server.put(path, content(number));
        self.server.url(path)
    }

    /// Returns how many requests for bytes the server has received since the last call.
    fn fetched(&self) -> usize {
        let fetched = self.server.log("/").iter().filter(|it| it.method == "GET").count();
        self.server.forget("/");
        fetched
    }

    fn folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory.path()).unwrap().map(|it| it.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }

    fn entries(&self) -> Vec<PathBuf> {
        let entries = self.folders().into_iter().flat_map(|it| fs::read_dir(it).unwrap());
        entries.map(|it| it.unwrap().path()).filter(|it| !it.ends_with("used")).collect()
    }

    fn bytes(&self) -> u64 {
        self.entries().iter().map(|path| fs::metadata(path).unwrap().len()).sum()
    }

    fn counted(&self) -> u64 {
        let text = fs::read_to_string(self.directory.path().join("bytes")).unwrap();
        text.trim().parse().unwrap()
    }

    /// Sets the time of last use of every folder to `hours` hours ago, as if another process had
    /// used it.
    fn age(&mut self, hours: u64) {
        for folder in self.folders() {
            let file = fs::File::options().write(true).open(folder.join("used")).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
        }
        self.restart();
    }
}

#[test]
fn fetched_bytes_are_not_fetched_again_even_by_a_later_process() {
    let mut setting = start(1 << 20);
    let url = setting.url("/a/file", 1);
    for _ in 0..3 {
        assert_eq!(setting.read(&url, 2), content(1)[2000..3000]);
    }
    assert_eq!(setting.fetched(), 1);
    let stats = setting.storage.stats();
    assert_eq!((stats.cache_misses, stats.cache_hits), (1, 2));
    setting.restart();
    assert_eq!((setting.read(&url, 2), setting.fetched()), (content(1)[2000..3000].to_vec(), 0));
    assert_eq!((setting.read(&url, 3), setting.fetched()), (content(1)[3000..4000].to_vec(), 1));
    assert_eq!((setting.bytes(), setting.counted()), (2 * (1000 + HEAD), 2 * (1000 + HEAD)));
}

#[test]
fn a_changed_object_has_other_entries() {
    let setting = start(1 << 20);
    let url = setting.url("/a/file", 1);
    setting.read(&url, 0);
    setting.url("/a/file", 2);
    assert_eq!((setting.read(&url, 0), setting.fetched()), (content(2)[..1000].to_vec(), 2));
}

#[test]
fn a_damaged_entry_is_deleted_and_fetched_again() {
    let setting = start(1 << 20);
    let url = setting.url("/a/file", 1);
    setting.read(&url, 0);
    let entry = setting.entries().remove(0);
    let whole = fs::read(&entry).unwrap();
    let mut damaged =
        vec![whole[..whole.len() - 1].to_vec(), Vec::new(), [&whole[..], &[0]].concat()];
    for at in [0, 9, 17, 21, 24, 1023] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        damaged.push(bytes);
    }
    setting.fetched();
    for (number, bytes) in damaged.into_iter().enumerate() {
        fs::write(&entry, bytes).unwrap();
        let before = setting.storage.stats().cache_damaged;
        assert_eq!(setting.read(&url, 0), content(1)[..1000], "{number}");
        assert_eq!(setting.storage.stats().cache_damaged, before + 1, "{number}");
        assert_eq!((setting.fetched(), fs::read(&entry).unwrap()), (1, whole.clone()));
    }
    // Files whose names begin with `new-` are being written by another process, or were left behind
    // by one. They are not entries.
    fs::rename(&entry, entry.with_file_name("new-1-1")).unwrap();
    assert_eq!((setting.read(&url, 0), setting.fetched()), (content(1)[..1000].to_vec(), 1));
}

#[test]
fn a_set_larger_than_the_limit_keeps_its_entries() {
    let limit = 4 * (1000 + HEAD) + 500;
    let setting = start(limit);
    let url = setting.url("/a/file", 1);
    for _ in 0..3 {
        for part in 0..10 {
            assert_eq!(setting.read(&url, part), content(1)[part * 1000..][..1000]);
            assert!(setting.bytes() <= limit);
        }
    }
    // The first round requests all ten parts. Each of the two other rounds requests the six parts
    // that did not fit.
    assert_eq!(setting.fetched(), 10 + 6 + 6);
    assert_eq!((setting.entries().len(), setting.counted()), (4, 4 * (1000 + HEAD)));
}

#[test]
fn the_least_recently_used_folders_are_evicted() {
    let limit = 4 * (1000 + HEAD);
    let mut setting = start(limit);
    let old = [setting.url("/old/1", 1), setting.url("/older/2", 2)];
    for url in &old {
        setting.read(url, 0);
        setting.read(url, 1);
    }
    let new = setting.url("/new/3", 3);
    // An entry that some process used within the last hour is not evicted.
    setting.age(0);
    setting.read(&new, 0);
    assert_eq!(setting.entries().len(), 4);
    setting.age(2);
    let before = setting.folders();
    setting.read(&old[0], 0);
    setting.fetched();
    // This process has just used the folder `old`, so the folder `older` is evicted.
    setting.read(&new, 0);
    setting.read(&new, 0);
    assert_eq!((setting.fetched(), setting.entries().len()), (1, 3));
    assert_eq!((before.len(), before.iter().filter(|it| it.exists()).count()), (3, 2));
    assert_eq!((setting.read(&old[0], 1), setting.fetched()), (content(1)[1000..2000].to_vec(), 0));
    assert_eq!(setting.bytes(), setting.counted());
}

#[test]
fn a_missing_or_wrong_count_is_rebuilt() {
    let limit = 4 * (1000 + HEAD);
    let setting = start(limit);
    let url = setting.url("/a/file", 1);
    setting.read(&url, 0);
    fs::remove_file(setting.directory.path().join("bytes")).unwrap();
    setting.read(&url, 1);
    assert_eq!(setting.counted(), 2 * (1000 + HEAD));
    // A process increases the count before it writes an entry. If the process ends in between, the
    // count is too large. The next process must correct it.
    fs::write(setting.directory.path().join("bytes"), limit.to_string()).unwrap();
    setting.read(&url, 2);
    assert_eq!((setting.counted(), setting.bytes()), (3 * (1000 + HEAD), 3 * (1000 + HEAD)));
}

#[test]
fn without_a_writable_cache_reading_continues_with_one_warning() {
    let setting = start(1 << 20);
    let url = setting.url("/a/file", 1);
    setting.read(&url, 0);
    let folder = setting.folders().remove(0);
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "in the way").unwrap();
    for part in [0, 1, 0, 1] {
        assert_eq!(setting.read(&url, part), content(1)[part * 1000..][..1000]);
    }
    assert_eq!(setting.storage.warnings().len(), 1, "{:?}", setting.storage.warnings());
    // If the folder of the cache cannot be created, the cache is disabled from the start.
    let below = storage(&setting.directory.path().join("bytes/below"), 1 << 20);
    assert_eq!(read(&below, &url, 0), content(1)[..1000]);
    assert_eq!(below.warnings().len(), 1);
    assert_eq!(
        setting.storage.warnings().len(),
        1,
        "the warning of another handle must not appear here"
    );
}

#[test]
fn nothing_is_cached_without_the_setting() {
    let setting = start(0);
    let url = setting.url("/a/file", 1);
    setting.read(&url, 0);
    setting.read(&url, 0);
    assert_eq!((setting.fetched(), setting.folders().len()), (2, 0));
}

const CHILD: &str = "FEEDWATER_TEST_CHILD";

/// This test runs only in child processes, which the next test starts. Each child reads parts in
/// its own order and checks every byte.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = told.split('\n').collect();
    let [root, directory, number] = words[..] else { panic!("{told}") };
    let number: u64 = number.parse().unwrap();
    let storage = storage(Path::new(directory), 30 * (1000 + HEAD));
    for round in 0..300_u64 {
        let mixed = (round * 7919 + number * 104_729).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let (file, part) = (mixed % 6, (mixed / 6 % 10) as usize);
        let bytes = read(&storage, &format!("{root}/{file}/file"), part);
        assert_eq!(bytes, content(file)[part * 1000..][..1000]);
    }
}

#[test]
fn several_processes_share_it() {
    let setting = start(30 * (1000 + HEAD));
    for file in 0..6 {
        setting.url(&format!("/{file}/file"), file);
    }
    let (root, directory) = (setting.server.url(""), setting.directory.path().display());
    let children = (0..4).map(|number| {
        let told = format!("{root}\n{directory}\n{number}");
        let program = std::env::current_exe().unwrap();
        Command::new(program).args(["--exact", "cache::child"]).env(CHILD, told).spawn().unwrap()
    });
    for mut child in children.collect::<Vec<_>>() {
        assert!(child.wait().unwrap().success());
    }
    assert!(setting.bytes() <= 30 * (1000 + HEAD));
    // If two processes fetch the same bytes at the same time, both may count them.
    assert!(setting.counted() >= setting.bytes());
    let names = setting.entries();
    assert!(names.iter().all(|it| !it.file_name().unwrap().to_str().unwrap().starts_with("new-")));
    assert!(names.len() > 20, "{}", names.len());
    assert!(setting.fetched() < 4 * 300, "no entry of another process was used");
}
