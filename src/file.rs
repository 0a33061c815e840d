//! File access: atomic replacement of files, and reads of bounded size.
//!
//! * [`AtomicFile`] writes to a hidden temporary file next to its target, and renames it at the end. Readers see the old file or
//!   the new one, never a partial one. After an error, a full disk or a drop, the old file is unchanged.
//! * A symbolic link is followed: its target is replaced.
//! * A new file has the permissions of the umask; a replaced file keeps its own.
//! * Targets that are not regular files (a pipe, `/dev/null`), and descriptors of this process (`/dev/stdout`), are written
//!   directly.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// File that replaces its target atomically on [`commit`](Self::commit). Dropping it before discards it.
#[derive(Debug)]
pub struct AtomicFile {
    out: BufWriter<File>,
    /// `None` if the target is written directly.
    pending: Option<Pending>,
}

/// Temporary file that has not been renamed yet.
#[derive(Debug)]
struct Pending {
    temporary: PathBuf,
    target: PathBuf,
}

/// Temporary files of this process that have not been renamed yet.
static PENDING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Longest chain of symbolic links to follow, the limit of Linux.
const MOST_LINKS: usize = 40;

/// Bytes of the target's name that are repeated in the temporary name; the limit of names is 255 bytes.
const NAME_BYTES: usize = 200;

impl AtomicFile {
    /// Creates a file that will replace the one at `path`.
    ///
    /// # Errors
    ///
    /// Those of the system: the target is a folder or not writable, or no file can be created in its folder.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let target = follow(path.as_ref());
        if let Some(file) = descriptor(&target)? {
            return Ok(Self { out: BufWriter::new(file), pending: None });
        }
        let old = match File::options().write(true).open(&target) {
            Ok(file) => {
                let metadata = file.metadata()?;
                if !metadata.is_file() {
                    return Ok(Self { out: BufWriter::new(file), pending: None });
                }
                Some(metadata.permissions())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (pending, file) = Pending::create(target, old)?;
        Ok(Self { out: BufWriter::with_capacity(1 << 16, file), pending: Some(pending) })
    }

    /// Waits until the bytes are on disk, then renames the file to its target.
    ///
    /// # Errors
    ///
    /// Those of the system; the old file is then unchanged.
    pub fn commit(self) -> io::Result<()> {
        self.end(true)
    }

    /// Renames the file without waiting for the disk: for files that can be recreated, and whose contents are verified on
    /// reading.
    ///
    /// # Errors
    ///
    /// Those of the system; the old file is then unchanged.
    pub fn commit_unsynced(self) -> io::Result<()> {
        self.end(false)
    }

    fn end(mut self, sync: bool) -> io::Result<()> {
        self.out.flush()?;
        let Some(pending) = self.pending.take() else { return Ok(()) };
        if sync {
            self.out.get_ref().sync_all()?;
        }
        pending.rename(sync)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.out.seek(position)
    }
}

impl Pending {
    fn create(target: PathBuf, old: Option<Permissions>) -> io::Result<(Self, File)> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let name = target.file_name().ok_or(ErrorKind::IsADirectory)?.as_bytes();
        let name = OsStr::from_bytes(&name[..name.len().min(NAME_BYTES)]);
        // Held until the file is registered, so that `discard_pending` misses none.
        let mut registered = lock();
        let (temporary, file) = loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let mut temporary = std::ffi::OsString::from(".");
            temporary.push(name);
            temporary.push(format!(".{}-{number}.part", std::process::id()));
            let temporary = target.with_file_name(temporary);
            match File::options().write(true).create_new(true).open(&temporary) {
                Ok(file) => break (temporary, file),
                // Left by an earlier process with the same ID; no other process can be writing it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let folder = target.parent().unwrap_or(Path::new(""));
                    let problem = format!("cannot create a file in {:?}: {error}", folder);
                    return Err(io::Error::new(error.kind(), problem));
                }
            }
        };
        registered.insert(temporary.clone());
        drop(registered);
        let pending = Self { temporary, target };
        if let Some(permissions) = old {
            file.set_permissions(permissions)?;
        }
        Ok((pending, file))
    }

    fn rename(self, sync: bool) -> io::Result<()> {
        {
            let mut registered = lock();
            fs::rename(&self.temporary, &self.target)?;
            registered.remove(&self.temporary);
        }
        if sync && let Some(folder) = self.target.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            // Some file systems cannot sync a folder; the file itself is already synced.
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut registered = lock();
        if registered.remove(&self.temporary) {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Replaces the file at `path` atomically.
///
/// # Errors
///
/// Those of [`AtomicFile::create`] and [`AtomicFile::commit`].
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes.as_ref())?;
    file.commit()
}

/// Removes all temporary files of this process before it exits. Afterwards no [`AtomicFile`] can be created or committed: threads
/// that try block forever. Gives up after `patience` if a file system does not respond.
pub fn discard_pending(patience: Duration) {
    let until = Instant::now() + patience;
    loop {
        match PENDING.try_lock() {
            Ok(registered) => return discard(registered),
            Err(TryLockError::Poisoned(poisoned)) => return discard(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn discard(registered: MutexGuard<'_, BTreeSet<PathBuf>>) {
    for temporary in registered.iter() {
        let _ = fs::remove_file(temporary);
    }
    std::mem::forget(registered);
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
///
/// Those of the system and of [`regular`], and [`ErrorKind::FileTooLarge`] if the file is larger.
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    // Non-blocking: opening a pipe without a writer would block forever.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut bytes = Vec::new();
    regular(path, file)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("has more than {most} bytes, the limit");
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// Checks that the result of opening `path` is a regular file.
///
/// # Errors
///
/// That of opening it, or one that names the type of a folder, a pipe, a socket or a device, which may have no end.
pub fn regular(path: &Path, opened: io::Result<File>) -> io::Result<File> {
    // Opening a socket fails with an error message about devices.
    let kind = match &opened {
        Ok(file) => file.metadata()?.file_type(),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => fs::metadata(path)?.file_type(),
        Err(_) => return opened,
    };
    let name = match kind {
        _ if kind.is_file() => return opened,
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("not a regular file but {name}")))
}

/// Reads the text of a file of at most `most` bytes.
///
/// # Errors
///
/// Those of [`read`], and [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("is not UTF-8 at byte {at}"))
    })
}

/// Resolves the symbolic links of a path, whose target may not exist.
fn follow(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        // Links of a descriptor lead to its file, but the descriptor itself is the target.
        if names_descriptor(&path) {
            break;
        }
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => break,
        }
    }
    path
}

fn names_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"].iter().any(|it| path == Path::new(it))
        || path.starts_with("/proc/self/fd")
        || path.starts_with("/dev/fd")
}

/// Opens the descriptor of this process that a path names. Standard output and error share their position with other output.
fn descriptor(path: &Path) -> io::Result<Option<File>> {
    if !names_descriptor(path) {
        return Ok(None);
    }
    let owned = match path.file_name().map(OsStr::as_bytes) {
        Some(b"stdout" | b"1") => io::stdout().as_fd().try_clone_to_owned()?,
        Some(b"stderr" | b"2") => io::stderr().as_fd().try_clone_to_owned()?,
        _ => return File::options().append(true).open(path).map(Some),
    };
    Ok(Some(owned.into()))
}

fn lock() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Names in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_old_file_is_unchanged_until_the_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new, and longer").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()).len(), 2);
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new, and longer");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_dropped_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn links_are_followed_even_to_missing_targets() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        symlink("below/target", folder.path().join("first")).unwrap();
        symlink("first", folder.path().join("second")).unwrap();
        for text in ["one", "two"] {
            write(folder.path().join("second"), text).unwrap();
            assert_eq!(fs::read_to_string(below.join("target")).unwrap(), text);
            assert!(fs::symlink_metadata(folder.path().join("second")).unwrap().is_symlink());
        }
        assert_eq!(names(&below), ["target"]);
        symlink("loop", folder.path().join("loop")).unwrap();
        assert!(write(folder.path().join("loop"), "a").is_err());
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions_and_a_new_one_has_those_of_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o7777
        };
        File::create(folder.path().join("plain")).unwrap();
        write(folder.path().join("new"), "a").unwrap();
        assert_eq!(mode("new"), mode("plain"));
        fs::set_permissions(folder.path().join("new"), Permissions::from_mode(0o600)).unwrap();
        write(folder.path().join("new"), "b").unwrap();
        assert_eq!(mode("new"), 0o600);
    }

    #[test]
    fn devices_and_pipes_are_written_directly() {
        write("/dev/null", "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let error = write("/dev/full", "a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn an_invalid_target_is_an_error_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(AtomicFile::create(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        let missing = AtomicFile::create(folder.path().join("none/a")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        // Longest possible name.
        let long = folder.path().join("a".repeat(255));
        write(&long, "a").unwrap();
        assert_eq!(fs::read(&long).unwrap(), b"a");
        assert_eq!(names(folder.path()).len(), 1);
    }

    #[test]
    fn reads_are_bounded_and_of_regular_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let device = read("/dev/zero", 1 << 16).unwrap_err();
        assert_eq!(device.kind(), ErrorKind::Other);
        assert!(device.to_string().contains("device"), "{device}");
        write(&path, b"ab\xff").unwrap();
        assert_eq!(read_text(&path, 5).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
