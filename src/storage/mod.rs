//! File access, local or remote: positioned reads, listings, and a directory for data that can be
//! regenerated.
//!
//! A path is local or a URL. A URL begins with a scheme and `://`, and parts are joined to it as to
//! a path. URLs begin with `s3://`, `gs://`, `az://`, `abfss://`, `http://` or `https://`. A
//! compressed file can be opened as its uncompressed bytes (`unpacked/`).
//!
//! * Files are opened through a handle, [`Storage`], which has the settings. Only three things
//!   exist once per process: the pool of descriptors of local files (`pool.rs`), because the system
//!   limits them per process; the SIGBUS handler (`mapped/bus.rs`); and the threads that
//!   communicate with servers.
//! * Separate threads send requests. Each handle sends as many concurrently as [`StorageSettings`]
//!   allow. A request is retried after a pause if the connection breaks, if the answer is late,
//!   truncated or garbled, or if the server is overloaded (5xx, 408, 429). A request that the
//!   server refuses is an error immediately.
//! * If an answer does not contain the requested bytes of the version that was opened, the read
//!   fails.
//! * Credentials, endpoints and regions come from the environment variables that the tools of AWS,
//!   Google and Azure read, as documented by `object_store` (`AWS_ENDPOINT_URL`, `GOOGLE_BASE_URL`
//!   or `AZURE_STORAGE_ENDPOINT` for your own server).

use std::ffi::OsString;
use std::fmt;
use std::io;

use bytes::Bytes;

pub(crate) use arrival::{Arrival, telling};
pub(crate) use cache_dir::directory as cache_directory;
pub(crate) use cancel::cancellable;
pub(crate) use facts::version;
pub(crate) use file_url::written as written_path;
pub use handle::Storage;
pub(crate) use opening::{OpeningOf, fail_opening, opening, opening_apart};
pub(crate) use path::{exists, is_url, join};
pub use remote::Fetch;
pub use settings::{IndexFiles, Redirects, StorageSettings};
pub use stats::StorageStats;
pub use watch::RequestEvent;

mod allowed;
mod arrival;
#[cfg(feature = "remote")]
mod cache;
mod cache_dir;
mod cancel;
pub(crate) mod facts;
#[cfg_attr(not(feature = "remote"), allow(unused_variables, reason = "there are no objects"))]
mod fetched;
mod file_url;
mod handle;
mod local;
mod mapped;
pub(crate) mod opening;
pub(crate) mod path;
pub(crate) mod pool;
#[cfg(feature = "remote")]
mod remote;
#[cfg(not(feature = "remote"))]
#[path = "remote_disabled.rs"]
mod remote;
mod settings;
mod stats;
pub(crate) mod unpacked;
mod watch;

/// An open file. It has no cursor, so any number of threads may read at the same time.
#[derive(Debug)]
pub struct File(Backend);

#[derive(Debug)]
enum Backend {
    Local(local::File),
    Mapped(mapped::File),
    Remote(remote::File),
    Fetched(Box<fetched::Fetched>),
    Unpacked(unpacked::Unpacked),
}

/// Version of a file: its length, and a value that changes with its bytes. A file is not scanned
/// again if its `Stamp` is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Length of the file, in bytes.
    pub len: u64,
    /// Modification time of a local file, in seconds and nanoseconds. For an object, a hash of the
    /// server's tag. Without a tag, a hash of the object's time, or 0.
    version: [u64; 2],
}

/// Values that distinguish local files with the same length and modification time, as reproducible
/// builds write them. Zeros for an object, because its [`Stamp`] contains the server's tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    inode: u64,
    /// Time of the last change of the file's contents, name or permissions, in seconds and
    /// nanoseconds.
    changed: [u64; 2],
}

/// Entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name within the folder.
    pub name: OsString,
    /// Whether the entry is a folder. Otherwise it is a file.
    pub folder: bool,
}

impl File {
    /// Largest memory for the page tables of the file's mapping and for its entry in the descriptor
    /// pool, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        match &self.0 {
            Backend::Local(file) => file.memory_bytes(),
            Backend::Mapped(file) => file.memory_bytes(),
            Backend::Remote(_) | Backend::Fetched(_) | Backend::Unpacked(_) => 0,
        }
    }

    /// Current length and version of the file. For a compressed file, those of the compressed file
    /// itself. For an object, those at the time of opening: reads return this version, or an error
    /// if the object has changed.
    pub fn stamp(&self) -> io::Result<Stamp> {
        match &self.0 {
            Backend::Local(file) => file.stamp(),
            Backend::Mapped(file) => file.stamp(),
            Backend::Remote(file) => Ok(file.stamp()),
            Backend::Fetched(file) => Ok(file.stamp()),
            Backend::Unpacked(file) => file.stamp(),
        }
    }

    /// Current identity of the file. For a compressed file, the identity of the compressed file
    /// itself.
    pub fn identity(&self) -> io::Result<Identity> {
        match &self.0 {
            Backend::Local(file) => file.identity(),
            Backend::Mapped(file) => file.identity(),
            Backend::Remote(_) | Backend::Fetched(_) => Ok(Identity::default()),
            Backend::Unpacked(file) => file.identity(),
        }
    }

    /// Whether the file is at a URL. Such a file has no descriptor, and prefetching it saves time.
    pub fn is_remote(&self) -> bool {
        matches!(self.0, Backend::Remote(_))
    }

    /// Starts to fetch bytes that the file must contain. Returns `None` if the file is local.
    pub fn fetch(&self, offset: u64, len: u64) -> Option<io::Result<Fetch>> {
        match &self.0 {
            Backend::Remote(file) => Some(file.fetch(offset, len)),
            _ => None,
        }
    }

    /// Returns a file at a URL with these bytes in memory: start and contents of ranges that were
    /// fetched from this file. Reads of other bytes send requests. `None` if this file is not at a
    /// URL. [`is_remote`](Self::is_remote) of the result is false, because reads of the bytes in
    /// memory are fast.
    #[cfg_attr(
        not(feature = "remote"),
        allow(unreachable_code, unused_variables, reason = "there are no objects")
    )]
    pub(crate) fn with_fetched(&self, parts: Vec<(u64, Bytes)>) -> Option<Self> {
        match &self.0 {
            Backend::Remote(file) => {
                let fetched = fetched::Fetched::new(file.clone(), parts);
                Some(Self(Backend::Fetched(Box::new(fetched))))
            }
            Backend::Fetched(file) => Some(Self(Backend::Fetched(Box::new(file.with(parts))))),
            _ => None,
        }
    }

    /// Whether the file is at a URL, and some of its bytes may be in memory.
    pub(crate) fn is_fetched(&self) -> bool {
        matches!(self.0, Backend::Fetched(_))
    }

    /// Number of bytes from `offset` on that are in memory, if the byte at `offset` is in memory.
    pub(crate) fn held_bytes(&self, offset: u64) -> Option<u64> {
        match &self.0 {
            Backend::Fetched(file) => file.held(offset).map(|held| held.len() as u64),
            _ => None,
        }
    }

    /// Fills the buffer with bytes from `offset` on, up to the end of the file. Returns the number
    /// of bytes read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.0 {
            Backend::Local(file) => file.read_at(buffer, offset),
            Backend::Mapped(file) => file.read_at(buffer, offset),
            Backend::Remote(file) => file.read_at(buffer, offset),
            Backend::Fetched(file) => file.read_at(buffer, offset),
            Backend::Unpacked(file) => file.read_at(buffer, offset),
        }
    }

    /// Fills the buffer with bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before the buffer is full.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(buffer, offset)? {
            count if count == buffer.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Stamp {
    /// Returns the length and version as bytes. The bytes of two files are equal only if both
    /// values are equal.
    pub fn to_bytes(self) -> [u8; 24] {
        let Self { len, version: [first, second] } = self;
        bytemuck::cast([len.to_le_bytes(), first.to_le_bytes(), second.to_le_bytes()])
    }
}

impl fmt::Display for Stamp {
    /// For a local file, prints its length and modification time in seconds since 1970.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, version: [first, second] } = self;
        write!(f, "{len} bytes, version {first}.{second:09}")
    }
}

impl Identity {
    /// Returns the identity as bytes. The bytes of two files are equal only if their identities are
    /// equal.
    pub fn to_bytes(self) -> [u8; 24] {
        let Self { inode, changed: [first, second] } = self;
        bytemuck::cast([inode.to_le_bytes(), first.to_le_bytes(), second.to_le_bytes()])
    }

    /// Whether the path certainly has another file now: both the inode and the time of last change
    /// differ. One difference is not sufficient: some network file systems renumber files, and a
    /// changed permission changes the time.
    fn is_other(self, other: Self) -> bool {
        self.inode != other.inode && self.changed != other.changed
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inode, changed: [first, second] } = self;
        write!(f, "inode {inode}, changed {first}.{second:09}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io;
    use std::path::Path;

    #[test]
    fn listings_are_in_byte_order_skip_hidden_names_and_follow_links() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b", "B", ".hidden", "a2", "a10"] {
            fs::write(root.path().join(name), name).unwrap();
        }
        fs::create_dir(root.path().join("c")).unwrap();
        std::os::unix::fs::symlink("c", root.path().join("d")).unwrap();
        std::os::unix::fs::symlink("nothing", root.path().join("e")).unwrap();
        let storage = Storage::default();
        let entries = storage.list(root.path()).unwrap();
        let names: Vec<_> =
            entries.iter().map(|it| (it.name.to_str().unwrap(), it.folder)).collect();
        let expected = [("B", 0), ("a10", 0), ("a2", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 0)];
        assert_eq!(names, expected.map(|(name, folder)| (name, folder == 1)));
        assert!(storage.list(&root.path().join("b")).is_err());
    }

    #[test]
    fn a_read_returns_the_bytes_of_the_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, b"0123456789").unwrap();
        let storage = Storage::default();
        let file = storage.open(&path).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(file.read_at(&mut buffer, 8).unwrap(), 2);
        assert_eq!(&buffer[..2], b"89");
        assert_eq!(file.read_exact_at(&mut buffer, 3).map(|()| buffer).unwrap(), *b"3456");
        let short = file.read_exact_at(&mut buffer, 7).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        let len = storage.lens(std::slice::from_ref(&path)).remove(0).unwrap();
        assert_eq!((storage.read(&path).unwrap(), len), (b"0123456789".to_vec(), 10));
    }

    #[test]
    fn the_stamp_changes_with_length_and_modification_time() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, b"one").unwrap();
        let storage = Storage::default();
        let file = storage.open(&path).unwrap();
        let first = file.stamp().unwrap();
        assert_eq!((first, first.len), (storage.open(&path).unwrap().stamp().unwrap(), 3));
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

    /// Opening a pipe must not wait for a writer, which it does by default.
    #[test]
    fn anything_but_a_regular_file_is_an_error_at_once() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let storage = Storage::default();
        let socket = root.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, kind) in [
            (&*pipe, "pipe"),
            (root.path(), "folder"),
            (&socket, "socket"),
            (Path::new("/dev/zero"), "device"),
        ] {
            let error = storage.open(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other, "{error}");
            assert!(error.to_string().contains(kind), "{kind}: {error}");
        }
        let (entries, special) = storage.list_all_kinds(root.path()).unwrap();
        assert_eq!((entries.len(), special), (0, vec!["pipe".into(), "socket".into()]));
    }
}
