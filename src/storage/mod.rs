//! Bytes of files, wherever they lie: positioned reads, listings, and where things that can be made again are kept.
//!
//! A file that is compressed can be opened as the bytes that it holds (`unpacked/`).
//! A path is local, or a URL: it then begins with a scheme and `://`, and its parts are joined as those of a path are.
//! URLs begin with `s3://`, `gs://`, `az://`, `abfss://`, `http://` or `https://`.
//!
//! * Requests go out from threads of their own, as many at once as [`StorageSettings`] say, for the whole process. One
//!   that fails since the connection breaks, the answer is late, cut or garbled, or the server is overloaded (5xx, 408,
//!   429) is sent again after a pause; one that the server refuses is an error at once.
//! * An answer has the bytes that were asked for, of the version that was opened, or it is an error.
//! * Credentials, endpoints and regions come from the environment: the variables that AWS's, Google's and Azure's own
//!   tools read, as `object_store` documents them (`AWS_ENDPOINT_URL`, `GOOGLE_BASE_URL` or `AZURE_STORAGE_ENDPOINT` for a server of
//!   one's own).

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use arrival::{Arrival, telling};
pub(crate) use cache_dir::{directory as cache_directory, override_directory};
pub(crate) use cancel::cancellable;
pub(crate) use opening::{OpeningOf, opening};
pub use pool::raise_open_files_limit;
#[doc(hidden)]
pub use remote::Fetch;
pub use settings::{Redirects, StorageSettings};
pub use stats::{StorageStats, stats, warnings};
pub use watch::{RequestEvent, watch_requests};

mod arrival;
#[cfg(feature = "remote")]
mod cache;
mod cache_dir;
mod cancel;
mod local;
mod mapped;
mod opening;
mod pool;
#[cfg(feature = "remote")]
mod remote;
#[cfg(not(feature = "remote"))]
#[path = "remote_disabled.rs"]
mod remote;
mod settings;
mod stats;
#[doc(hidden)]
pub mod unpacked;
mod watch;

/// An open file. There is no cursor: any number of threads may read at once.
#[derive(Debug)]
#[doc(hidden)]
pub struct File(Place);

#[derive(Debug)]
enum Place {
    Local(local::File),
    Mapped(mapped::File),
    Remote(remote::File),
    Unpacked(unpacked::Unpacked),
}

/// Which bytes a file has: its length, and what changes when they do. A file with the same stamp is not read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Stamp {
    /// Bytes of the file.
    pub len: u64,
    /// The time of change of a local file, in seconds and nanoseconds. Of an object a hash of the server's tag, or of the
    /// time where there is no tag, or 0.
    version: [u64; 2],
}

/// Something in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Entry {
    /// Its name in the folder.
    pub name: OsString,
    /// Whether it is a folder, else it is a file.
    pub folder: bool,
}

impl File {
    /// Opens a regular file. Anything else, a folder or a pipe, is an error at once.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(match is_url(path) {
            true => Place::Remote(remote::File::open(path)?),
            false => Place::Local(local::File::open(path)?),
        }))
    }

    /// Opens a regular file that is held open for many reads. A local one borrows its descriptor from a bounded pool of the
    /// process: it may be closed between two reads, and is then opened again, so that any number of files can be held.
    pub fn open_pooled(path: &Path) -> io::Result<Self> {
        Ok(Self(match is_url(path) {
            true => Place::Remote(remote::File::open(path)?),
            false => Place::Local(local::File::open_pooled(path)?),
        }))
    }

    /// The same file, mapped where it is a local one that can be, [`StorageSettings::map`] is set and there are few enough mappings:
    /// for files that are held open for many reads. Reads give the same bytes and the same errors. A file that is cut
    /// meanwhile is no exception, but for the rest of the page in which it ends, which is zeros until the stamp is asked.
    #[must_use]
    pub fn mapped(self) -> Self {
        Self(match self.0 {
            Place::Local(file) if MAP.load(Ordering::Relaxed) => match mapped::File::new(file) {
                Ok(mapped) => Place::Mapped(mapped),
                Err(file) => Place::Local(file),
            },
            place => place,
        })
    }

    /// Most memory for page tables of the file's mapping, and for its place in the pool of descriptors.
    pub fn memory_bytes(&self) -> u64 {
        match &self.0 {
            Place::Local(file) => file.memory_bytes(),
            Place::Mapped(file) => file.memory_bytes(),
            Place::Remote(_) | Place::Unpacked(_) => 0,
        }
    }

    /// The stamp of the file as it is now; of one that is unpacked, the compressed file's. Of an object, as it was when it was opened: every read is of that version, or
    /// an error that says that it has changed.
    pub fn stamp(&self) -> io::Result<Stamp> {
        match &self.0 {
            Place::Local(file) => file.stamp(),
            Place::Mapped(file) => file.stamp(),
            Place::Remote(file) => Ok(file.stamp()),
            Place::Unpacked(file) => file.stamp(),
        }
    }

    /// Whether it lies behind a URL: it has no descriptor then, and asking for bytes ahead of time pays.
    pub fn is_remote(&self) -> bool {
        matches!(self.0, Place::Remote(_))
    }

    /// Begins to fetch bytes that the file must have; `None` where the file is local.
    pub fn fetch(&self, offset: u64, len: u64) -> Option<io::Result<Fetch>> {
        match &self.0 {
            Place::Local(_) | Place::Mapped(_) | Place::Unpacked(_) => None,
            Place::Remote(file) => Some(file.fetch(offset, len)),
        }
    }

    /// Fills the buffer, as far as the file reaches, from this byte of the file on; gives how many bytes there were.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.0 {
            Place::Local(file) => file.read_at(buffer, offset),
            Place::Mapped(file) => file.read_at(buffer, offset),
            Place::Remote(file) => file.read_at(buffer, offset),
            Place::Unpacked(file) => file.read_at(buffer, offset),
        }
    }

    /// Fills the buffer from this byte of the file on.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] where the file ends before.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(buffer, offset)? {
            count if count == buffer.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Stamp {
    /// The same bytes for the same stamp.
    pub fn to_bytes(self) -> [u8; 24] {
        let Self { len, version: [first, second] } = self;
        bytemuck::cast([len.to_le_bytes(), first.to_le_bytes(), second.to_le_bytes()])
    }
}

impl fmt::Display for Stamp {
    /// Of a local file its length and the time of change in seconds since 1970.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, version: [first, second] } = self;
        write!(f, "{len} bytes, version {first}.{second:09}")
    }
}

/// Whether files are mapped.
static MAP: AtomicBool = AtomicBool::new(true);

/// Files that are opened from now on, in this process, are read with these settings.
///
/// # Errors
///
/// [`crate::Error::Config`] where a value cannot be.
pub fn configure(settings: &StorageSettings) -> crate::Result<()> {
    settings.check()?;
    MAP.store(settings.map, Ordering::Relaxed);
    remote::configure(settings);
    Ok(())
}

/// A whole file, of which there is memory enough.
#[doc(hidden)]
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    if is_url(path) {
        return Ok(fetch(path, None, u64::MAX)?.wait()?.into());
    }
    let file = File::open(path)?;
    let mut bytes = vec![0; file.stamp()?.len as usize];
    let len = file.read_at(&mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// The stamp of a local file, without opening it.
#[doc(hidden)]
pub fn stamp(path: &Path) -> io::Result<Stamp> {
    local::stamp_at(path)
}

/// Begins to fetch a whole object in one request, of this stamp where it is known. One of more than `most` bytes is
/// an error of the kind [`io::ErrorKind::FileTooLarge`] before its body comes, whose text is the number of bytes.
#[doc(hidden)]
pub fn fetch(url: &Path, stamp: Option<Stamp>, most: u64) -> io::Result<Fetch> {
    remote::fetch(url, stamp, most)
}

/// The lengths of files, without opening them. Those behind URLs are asked for all at once.
#[doc(hidden)]
pub fn lens(paths: &[PathBuf]) -> Vec<io::Result<u64>> {
    match_places(paths, local::len, remote::lens)
}

/// The entries of a folder in the byte order of their names. Names that begin with a dot are not seen. Links are
/// followed; one that leads nowhere is a file, and what is neither file nor folder is not seen.
#[doc(hidden)]
pub fn list(folder: &Path) -> io::Result<Vec<Entry>> {
    list_all_kinds(folder).map(|listing| listing.0)
}

/// The same, and the names of what is neither file nor folder: pipes, sockets and devices.
#[doc(hidden)]
pub fn list_all_kinds(folder: &Path) -> io::Result<(Vec<Entry>, Vec<OsString>)> {
    let (mut entries, mut special) = match is_url(folder) {
        true => (remote::list(folder)?, Vec::new()),
        false => local::list(folder)?,
    };
    entries.retain(|entry| !entry.name.as_encoded_bytes().starts_with(b"."));
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    special.sort_unstable();
    Ok((entries, special))
}

/// Every object below a folder behind a URL: its name from there on, and its stamp, in the byte order of names. Names
/// with a part that begins with a dot are not seen, nor are empty objects that stand for folders.
#[doc(hidden)]
pub fn list_all(folder: &Path) -> io::Result<Vec<(String, Stamp)>> {
    let mut found = remote::list_all(folder)?;
    found.retain(|(name, _)| !name.split('/').any(|part| part.starts_with('.')));
    found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let mut folders = HashSet::new();
    for (name, _) in &found {
        // From the innermost on; those around one that is known are known too.
        let mut ends = name.rmatch_indices('/').map(|(end, _)| end);
        while ends.next().is_some_and(|end| folders.insert(name[..end].to_string())) {}
    }
    found.retain(|(name, stamp)| stamp.len > 0 || !folders.contains(name));
    Ok(found)
}

/// Whether there are folders of these names. Behind URLs that is all below which there is something; all are asked for
/// at once.
#[doc(hidden)]
pub fn are_folders(paths: &[PathBuf]) -> Vec<io::Result<bool>> {
    match_places(paths, |path| Ok(path.is_dir()), remote::are_folders)
}

/// Whether there is anything of this name. Nothing behind a URL is asked for.
#[doc(hidden)]
pub fn exists(path: &Path) -> bool {
    !is_url(path) && path.exists()
}

/// Answers for local paths one by one and for URLs all at once, in the order of the paths.
fn match_places<T>(
    paths: &[PathBuf],
    local: impl Fn(&Path) -> io::Result<T>,
    remote: impl Fn(&[&Path]) -> Vec<io::Result<T>>,
) -> Vec<io::Result<T>> {
    let urls: Vec<&Path> = paths.iter().map(PathBuf::as_path).filter(|path| is_url(path)).collect();
    let mut answers = if urls.is_empty() { Vec::new() } else { remote(&urls) }.into_iter();
    let missing = || Err(io::Error::other("no answer came"));
    paths
        .iter()
        .map(|path| match is_url(path) {
            true => answers.next().unwrap_or_else(missing),
            false => local(path),
        })
        .collect()
}

/// The path, if it is a URL or begins at the root, else the path below `base`.
#[doc(hidden)]
pub fn join(base: &Path, path: &Path) -> PathBuf {
    if is_url(path) { path.into() } else { base.join(path) }
}

/// Whether a path is a URL: a scheme (a letter, then letters, digits, `+`, `-` and `.`) and `://`.
#[doc(hidden)]
pub fn is_url(path: &Path) -> bool {
    path.to_str().and_then(|text| text.split_once("://")).is_some_and(|(scheme, _)| {
        scheme.starts_with(|it: char| it.is_ascii_alphabetic())
            && scheme.chars().all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_url_has_a_scheme_and_is_joined_to_nothing() {
        let base = Path::new("base");
        for url in ["s3://bucket/key", "https://host/a", "a+b-1.c://x"] {
            assert!(is_url(Path::new(url)), "{url}");
            assert_eq!(join(base, Path::new(url)), Path::new(url));
        }
        for path in ["a/b", "/a://b", "1a://b", "://b", "a:/b", "a b://c"] {
            assert!(!is_url(Path::new(path)), "{path}");
        }
        assert_eq!(join(base, Path::new("a")), Path::new("base/a"));
        assert_eq!(join(base, Path::new("/a")), Path::new("/a"));
        assert_eq!(Path::new("s3://bucket/a").join("b"), Path::new("s3://bucket/a/b"));
    }

    #[test]
    fn a_folder_is_listed_in_byte_order_without_hidden_names_and_links_are_followed() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b", "B", ".hidden", "a2", "a10"] {
            fs::write(root.path().join(name), name).unwrap();
        }
        fs::create_dir(root.path().join("c")).unwrap();
        std::os::unix::fs::symlink("c", root.path().join("d")).unwrap();
        std::os::unix::fs::symlink("nothing", root.path().join("e")).unwrap();
        let entries = list(root.path()).unwrap();
        let names: Vec<_> =
            entries.iter().map(|it| (it.name.to_str().unwrap(), it.folder)).collect();
        let expected = [("B", 0), ("a10", 0), ("a2", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 0)];
        assert_eq!(names, expected.map(|(name, folder)| (name, folder == 1)));
        assert!(list(&root.path().join("b")).is_err());
    }

    #[test]
    fn a_read_gives_what_the_file_has() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(file.read_at(&mut buffer, 8).unwrap(), 2);
        assert_eq!(&buffer[..2], b"89");
        assert_eq!(file.read_exact_at(&mut buffer, 3).map(|()| buffer).unwrap(), *b"3456");
        let short = file.read_exact_at(&mut buffer, 7).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        let len = lens(std::slice::from_ref(&path)).remove(0).unwrap();
        assert_eq!((read(&path).unwrap(), len), (b"0123456789".to_vec(), 10));
    }

    #[test]
    fn the_stamp_changes_with_the_length_and_with_the_time() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, b"one").unwrap();
        let file = File::open(&path).unwrap();
        let first = file.stamp().unwrap();
        assert_eq!((first, first.len), (File::open(&path).unwrap().stamp().unwrap(), 3));
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(time + std::time::Duration::from_nanos(1))
            .unwrap();
        let second = file.stamp().unwrap();
        fs::write(&path, b"four").unwrap();
        let stamps = [first, second, file.stamp().unwrap()].map(Stamp::to_bytes);
        assert!(stamps[0] != stamps[1] && stamps[1] != stamps[2] && stamps[0] != stamps[2]);
    }

    /// Opening a pipe to read it would wait for a writer.
    #[test]
    fn what_is_no_regular_file_is_an_error_at_once() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for path in [&pipe, root.path()] {
            let error = File::open(path).unwrap_err();
            let words = if path == root.path() { "a folder" } else { "a pipe" };
            assert_eq!(error.to_string(), format!("not a regular file but {words}"));
        }
        let socket = root.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(File::open(&socket).unwrap_err().to_string(), "not a regular file but a socket");
        let device = File::open(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(device.to_string(), "not a regular file but a device");
        let (entries, special) = list_all_kinds(root.path()).unwrap();
        assert_eq!((entries.len(), special), (0, vec!["pipe".into(), "socket".into()]));
    }
}
