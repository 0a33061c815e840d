//! Whole files: outputs that are complete or absent, and inputs of a bounded size.
//!
//! * [`AtomicFile`] writes beside its target, under a hidden temporary name, and renames at the end. A reader sees the
//!   old file or the new one, never half of one. On an error, a full disk or a drop the old file is untouched.
//! * A symbolic link is followed: the file it leads to is replaced.
//! * A new file has the permissions that the umask leaves; one that is replaced keeps its own.
//! * What is no regular file (a pipe, `/dev/null`) and what is a descriptor of this process (`/dev/stdout`) is written to
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

/// A file that appears under its name whole or not at all. Dropping it without [`commit`](Self::commit) discards it.
#[derive(Debug)]
pub struct AtomicFile {
    out: BufWriter<File>,
    /// `None` where the target is written to directly.
    pending: Option<Pending>,
}

/// A temporary file that is not renamed yet.
#[derive(Debug)]
struct Pending {
    temporary: PathBuf,
    target: PathBuf,
}

/// Temporary files of this process that are not renamed yet.
static PENDING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Symbolic links that are followed one after another, as many as Linux follows.
const MOST_LINKS: usize = 40;

/// Bytes of the target's name that are repeated in the temporary one; names have at most 255 bytes.
const NAME_BYTES: usize = 200;

impl AtomicFile {
    /// Begins a file that will replace what is at `path`.
    ///
    /// # Errors
    ///
    /// Those of the system: the target is a folder or must not be written to, or its folder takes no new file.
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

    /// Waits until the bytes are on the disk, then gives the file its name.
    ///
    /// # Errors
    ///
    /// Those of the system; the old file is then untouched.
    pub fn commit(self) -> io::Result<()> {
        self.end(true)
    }

    /// Gives the file its name without waiting for the disk: for what can be made again, and whose content is checked when
    /// it is read.
    ///
    /// # Errors
    ///
    /// Those of the system; the old file is then untouched.
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
        // Held until the file is registered: whoever discards all of them forgets none.
        let mut registered = lock();
        let (temporary, file) = loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let mut temporary = std::ffi::OsString::from(".");
            temporary.push(name);
            temporary.push(format!(".{}-{number}.part", std::process::id()));
            let temporary = target.with_file_name(temporary);
            match File::options().write(true).create_new(true).open(&temporary) {
                Ok(file) => break (temporary, file),
                // A process of the same number left it, and another one cannot be writing it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let folder = target.parent().unwrap_or(Path::new(""));
                    let problem = format!("no file can be made in {:?}: {error}", folder);
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
            // Some file systems cannot sync a folder; the file itself is safe by now.
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

/// Replaces the file at `path` by these bytes, all of them or none.
///
/// # Errors
///
/// Those of [`AtomicFile::create`] and [`AtomicFile::commit`].
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes.as_ref())?;
    file.commit()
}

/// Removes every temporary file of this process, for a program that ends now: no [`AtomicFile`] begins or ends afterwards,
/// and threads that try wait for ever. Gives up after `patience`, where a file system does not answer.
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

/// A whole regular file of at most `most` bytes.
///
/// # Errors
///
/// Those of the system, that of [`regular`], and [`ErrorKind::FileTooLarge`] where there is more.
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    // Without waiting: a pipe without a writer would hold up the thread for ever.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut bytes = Vec::new();
    regular(path, file)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("has more than {most} bytes, the most that is read");
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// The file that was opened at `path`, or tried to be, where it is a regular file.
///
/// # Errors
///
/// That of opening it; one that says what it is where it is a folder, a pipe, a socket or a device, which may have no end.
pub fn regular(path: &Path, opened: io::Result<File>) -> io::Result<File> {
    // A socket cannot be opened, and the system's words for that are of devices.
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

/// The text of a file of at most `most` bytes.
///
/// # Errors
///
/// Those of [`read`], and [`ErrorKind::InvalidData`] where it is not UTF-8.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("is not UTF-8 at byte {at}"))
    })
}

/// Where a path leads to when its symbolic links are followed, also to what is not there yet.
fn follow(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        // Further links say which file a descriptor is of; it is the descriptor that counts.
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

/// What a descriptor of this process leads to. Standard output and error share their position with what else is printed.
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
    fn the_old_file_stays_until_the_new_one_is_committed() {
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
    fn what_is_dropped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn links_are_followed_also_to_what_is_not_there() {
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
    fn a_file_that_is_replaced_keeps_its_permissions_and_a_new_one_has_the_umasks() {
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
    fn devices_and_pipes_are_written_to_directly() {
        write("/dev/null", "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let error = write("/dev/full", "a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn a_target_that_cannot_be_is_an_error_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(AtomicFile::create(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        let missing = AtomicFile::create(folder.path().join("none/a")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        // As long as names can be.
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
        let device = read("/dev/zero", 1 << 16).unwrap_err().to_string();
        assert_eq!(device, "not a regular file but a device");
        write(&path, b"ab\xff").unwrap();
        assert_eq!(read_text(&path, 5).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
