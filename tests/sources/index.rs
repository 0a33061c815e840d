//! Stored tables of samples (indices). A table belongs to one version of a file. Tables may be in
//! folders to which other users can write.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use feedwater::error::Reason;
use feedwater::source::custom::HostPage;
use feedwater::source::settings::WebDatasetSettings;
use feedwater::source::{Source, WebDataset};

/// Returns a tar archive with an image and its label. Both are padded to a block of 512 bytes.
fn archive(name: &str, image: &[u8], label: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (extension, bytes) in [("jpg", image), ("cls", label.as_bytes())] {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, format!("{name}.{extension}"), bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

fn open(path: &Path) -> WebDataset {
    WebDataset::open(&[path.into()], &WebDatasetSettings::default()).unwrap()
}

fn read(source: &WebDataset) -> Result<(i64, Vec<u8>), Reason> {
    let mut page = HostPage::default();
    source.read(0, &mut page, 1 << 20).map_err(|error| error.reason)?;
    Ok((source.label(0), page.bytes().to_vec()))
}

fn set_time(path: &Path) {
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
}

fn index_of(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = entries.filter(|path| path.extension().is_some_and(|it| it == "feedwater1"));
    found.next().unwrap()
}

/// Tools for reproducible builds write shards whose times are all 0, and tar pads the lengths. So
/// another shard may have the same length and time.
#[test]
fn a_replaced_shard_of_the_same_length_and_time_is_scanned_again() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.tar");
    fs::write(&path, archive("a", b"one", "1")).unwrap();
    set_time(&path);
    assert_eq!(read(&open(&path)).unwrap(), (1, b"one".to_vec()));
    // Replaces the shard by another file.
    let other = root.path().join("other");
    fs::write(&other, archive("a", b"another", "22")).unwrap();
    set_time(&other);
    let lens = [&path, &other].map(|path| fs::metadata(path).unwrap().len());
    assert_eq!(lens[0], lens[1]);
    fs::rename(&other, &path).unwrap();
    assert_eq!(read(&open(&path)).unwrap(), (22, b"another".to_vec()));
    // Overwrites the shard in place.
    fs::write(&path, archive("b", b"third", "3")).unwrap();
    set_time(&path);
    assert_eq!(read(&open(&path)).unwrap(), (3, b"third".to_vec()));
}

/// While a source is open, its table is not compared with the file again. Instead, the tar header
/// before each sample is compared when the sample is read.
#[test]
fn a_shard_that_is_rewritten_while_it_is_read_is_an_error_of_the_sample() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.tar");
    fs::write(&path, archive("a", b"one", "1")).unwrap();
    set_time(&path);
    let source = open(&path);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&archive("b", b"two", "2"), 0).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(read(&source).unwrap_err(), Reason::Corrupt);
    file.write_all_at(&archive("a", b"one", "1"), 0).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(read(&source).unwrap(), (1, b"one".to_vec()));
}

/// A folder from other people may have a link or a pipe in place of a table or a temporary file.
#[test]
fn opening_a_source_follows_no_link_and_opens_no_pipe() {
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious");
    fs::write(&precious, "of the user").unwrap();
    let path = root.path().join("a.tar");
    fs::write(&path, archive("a", b"one", "1")).unwrap();
    drop(open(&path));
    let index = index_of(root.path());
    let whole = fs::read(&index).unwrap();
    for target in [&precious, &outside.path().join("missing"), &index] {
        fs::remove_file(&index).unwrap();
        symlink(target, &index).unwrap();
        assert_eq!(read(&open(&path)).unwrap(), (1, b"one".to_vec()));
        assert!(fs::symlink_metadata(&index).unwrap().is_file());
        assert_eq!(fs::read(&index).unwrap(), whole);
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "of the user");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    fs::remove_file(&index).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&index).status().unwrap().success());
    drop(open(&path));
    assert_eq!(fs::read(&index).unwrap(), whole);
}

/// The forged tables belong to the present version of the shard, and have correct checksums.
#[test]
fn a_forged_table_gives_an_error_of_the_sample_and_takes_no_memory() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.tar");
    fs::write(&path, archive("a", b"one", "1")).unwrap();
    drop(open(&path));
    let index = index_of(root.path());
    let whole = fs::read(&index).unwrap();
    // Makes the table a sparse file of 3 GiB.
    File::options().write(true).open(&index).unwrap().set_len(3 << 30).unwrap();
    assert_eq!(read(&open(&path)).unwrap(), (1, b"one".to_vec()));
    assert_eq!(fs::read(&index).unwrap(), whole);
    // The table ends with the facts below, and its last entry precedes them. An entry has the
    // fields offset, label, length and note.
    let facts = concat!(
        r#"{"excluded":[],"classes":[],"packed":{},"#,
        r#""fields":[{"name":"jpg","is_list":false},{"name":"cls","is_list":false}],"#,
        r#""hard_links":false,"end":0}"#
    );
    let facts = facts.as_bytes();
    assert!(whole.ends_with(facts));
    for (field, value) in [(0, 0u64), (0, 1024), (0, 100), (20, 0)] {
        let mut forged = whole.clone();
        let entry = forged.len() - facts.len() - 24;
        let bytes = if field == 20 { 4 } else { 8 };
        forged[entry + field..][..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        let sum = crc32c::crc32c(&forged[20..]);
        forged[16..20].copy_from_slice(&sum.to_le_bytes());
        File::create(&index).unwrap().write_all(&forged).unwrap();
        assert_eq!(read(&open(&path)).unwrap_err(), Reason::Corrupt, "{field} {value}");
    }
    // A forged table can contain any labels. If other users could write to a table, it is not used.
    // The shard is scanned again.
    let mut forged = whole.clone();
    let entry = forged.len() - facts.len() - 24;
    forged[entry + 8..][..8].copy_from_slice(&7u64.to_le_bytes());
    let sum = crc32c::crc32c(&forged[20..]);
    forged[16..20].copy_from_slice(&sum.to_le_bytes());
    fs::write(&index, &forged).unwrap();
    assert_eq!(read(&open(&path)).unwrap().0, 7, "the forged table must be valid");
    fs::set_permissions(&index, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(read(&open(&path)).unwrap().0, 1);
    assert_eq!(fs::read(&index).unwrap(), whole);
}

/// Tables are stored in the cache directory or not at all, depending on the setting. A cache
/// directory to which other users can write is not used.
#[test]
fn the_settings_say_where_tables_are_stored() {
    use feedwater::storage::{IndexFiles, Storage, StorageSettings};

    let root = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let path = root.path().join("a.tar");
    fs::write(&path, archive("a", b"one", "1")).unwrap();
    let open = |index_files| {
        let settings = StorageSettings { index_files, ..StorageSettings::default() };
        let storage = Storage::with_cache_directory(&settings, cache.path()).unwrap();
        let paths = [path.clone()];
        let source = WebDataset::open_with(&paths, &WebDatasetSettings::default(), &storage);
        assert_eq!(read(&source.unwrap()).unwrap(), (1, b"one".to_vec()));
        storage.warnings()
    };
    let counts = || [root.path(), cache.path()].map(|it| fs::read_dir(it).unwrap().count());
    open(IndexFiles::None);
    assert_eq!(counts(), [1, 0]);
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let [warning] = &open(IndexFiles::Cache)[..] else { panic!("no warning") };
    assert!(
        warning.contains("777") && warning.contains(cache.path().to_str().unwrap()),
        "{warning}"
    );
    assert_eq!(counts(), [1, 0]);
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(open(IndexFiles::Cache).is_empty());
    assert_eq!(counts(), [1, 1]);
    // A table in the cache directory is used with the setting `Beside` too.
    open(IndexFiles::Beside);
    assert_eq!(counts(), [1, 1]);
    let [stored] = &fs::read_dir(cache.path()).unwrap().collect::<Vec<_>>()[..] else { panic!() };
    fs::remove_file(stored.as_ref().unwrap().path()).unwrap();
    open(IndexFiles::Beside);
    assert_eq!(counts(), [2, 0]);
}
