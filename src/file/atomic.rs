//! Files that replace their target atomically.
//!
//! All steps name files relative to the opened folder and follow no symbolic links. The temporary
//! name is random, and the temporary file is only created if it does not exist (`O_EXCL`).
//! Therefore a manipulated folder cannot direct a write elsewhere. The temporary file is locked
//! (`flock`) while it is written. An unlocked temporary file belongs to a killed program and is
//! removed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::leftover;

/// File that replaces its target atomically on [`commit`](Self::commit). Dropping it before the
/// commit discards it.
#[derive(Debug)]
pub struct AtomicFile {
    out: BufWriter<File>,
    /// Temporary file; `None` if the target is written directly.
    pending: Option<Pending>,
}

/// Temporary file that has not been renamed yet.
#[derive(Debug)]
struct Pending {
    folder: Arc<OwnedFd>,
    temporary: OsString,
    target: OsString,
    /// Key of this file in [`PENDING`].
    number: u64,
}

/// Temporary files of this process that have not been renamed yet.
static PENDING: Mutex<Registered> = Mutex::new(Registered { next: 0, files: BTreeMap::new() });

/// Folders and names of the registered temporary files.
#[derive(Debug)]
struct Registered {
    next: u64,
    files: BTreeMap<u64, (Arc<OwnedFd>, OsString)>,
}

/// Number of bytes of the target's name that the temporary name repeats. File names have at most
/// 255 bytes.
const NAME_BYTES: usize = 200;

/// Permissions of a new file before the umask is applied.
const NEW: Mode = Mode::from_bits_retain(0o666);
/// Permissions of a file that only this user can read and write.
const PRIVATE: Mode = Mode::from_bits_retain(0o600);

impl AtomicFile {
    /// Creates a file that will replace the file at `path`. If `path` is a symbolic link, the link
    /// itself is replaced. A pipe or a device is written directly.
    ///
    /// # Errors
    ///
    /// Returns the errors of the system, for example if the target is a folder or not writable, or
    /// if no file can be created in its folder.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        if let Some(file) = descriptor(path)? {
            return Ok(Self { out: BufWriter::new(file), pending: None });
        }
        let (folder, name) = place(path)?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let old = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
            Ok(file) => {
                let facts = rustix::fs::fstat(&file)?;
                if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
                    return Ok(Self { out: BufWriter::new(file.into()), pending: None });
                }
                Some(Mode::from_raw_mode(facts.st_mode) & Mode::from_bits_retain(0o777))
            }
            Err(Errno::NOENT | Errno::LOOP) => None,
            Err(error) => return Err(error.into()),
        };
        let this = Self::begin(path, folder, name, NEW)?;
        if let Some(mode) = old {
            rustix::fs::fchmod(this.out.get_ref(), mode)?;
        }
        Ok(this)
    }

    /// Creates a file that will replace anything at `path` without opening it. It is meant for
    /// names that this program chooses, in folders that other users or programs may have written
    /// to.
    ///
    /// # Errors
    ///
    /// Returns the errors of the system. If `path` is a folder, the commit fails.
    pub(crate) fn replace(path: impl AsRef<Path>) -> io::Result<Self> {
        let (folder, name) = place(path.as_ref())?;
        Self::begin(path.as_ref(), folder, name, NEW)
    }

    /// Like [`replace`](Self::replace), but only this user can read the file.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`replace`](Self::replace).
    pub(crate) fn replace_private(path: impl AsRef<Path>) -> io::Result<Self> {
        let (folder, name) = place(path.as_ref())?;
        Self::begin(path.as_ref(), folder, name, PRIVATE)
    }

    /// Waits until the bytes are on disk, then renames the temporary file to its target.
    ///
    /// # Errors
    ///
    /// Returns the errors of the system. After an error the old file is unchanged.
    pub fn commit(self) -> io::Result<()> {
        self.end(true)
    }

    /// Renames the temporary file without waiting for the disk. Only suitable for files that can be
    /// recreated and whose contents are verified on reading.
    ///
    /// # Errors
    ///
    /// Returns the errors of the system. After an error the old file is unchanged.
    pub fn commit_unsynced(self) -> io::Result<()> {
        self.end(false)
    }

    /// Renames the temporary file to its target if the target does not exist. An existing target is
    /// kept, which is not an error.
    ///
    /// # Errors
    ///
    /// Returns the errors of the system.
    pub(crate) fn commit_if_absent(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.pending.take().map_or(Ok(()), Pending::link)
    }

    fn begin(path: &Path, folder: OwnedFd, name: &OsStr, mode: Mode) -> io::Result<Self> {
        leftover::remove_once(&folder);
        let (pending, file) = Pending::create(Arc::new(folder), name, mode).map_err(|error| {
            let folder = path.parent().unwrap_or(Path::new(""));
            let problem = format!("cannot create a file in {folder:?}: {error}");
            io::Error::new(error.kind(), problem)
        })?;
        Ok(Self { out: BufWriter::with_capacity(1 << 16, file), pending: Some(pending) })
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
    fn create(folder: Arc<OwnedFd>, name: &OsStr, mode: Mode) -> io::Result<(Self, File)> {
        let part = OsStr::from_bytes(&name.as_bytes()[..name.len().min(NAME_BYTES)]);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The lock is held until the file is registered, so `discard_pending` does not miss it.
        let mut registered = lock();
        loop {
            // `RandomState` takes its keys from the system's random numbers, so the name cannot be
            // guessed.
            let temporary = leftover::name(part, RandomState::new().build_hasher().finish());
            let file = match rustix::fs::openat(&*folder, &temporary, flags, mode) {
                Ok(file) => file,
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            };
            // Another program may have taken this new file for a leftover and have locked or
            // removed it. In this case the loop tries another name. On file systems without locks
            // no leftovers are removed.
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            if locked == Err(Errno::WOULDBLOCK) || rustix::fs::fstat(&file)?.st_nlink == 0 {
                continue;
            }
            let number = registered.next;
            registered.next += 1;
            registered.files.insert(number, (Arc::clone(&folder), temporary.clone()));
            let pending = Self { folder, temporary, target: name.to_owned(), number };
            return Ok((pending, file.into()));
        }
    }

    /// Creates the target as a hard link. Dropping `self` removes the temporary name.
    fn link(self) -> io::Result<()> {
        let (folder, flags) = (&*self.folder, AtFlags::empty());
        match rustix::fs::linkat(folder, &self.temporary, folder, &self.target, flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn rename(self, sync: bool) -> io::Result<()> {
        {
            let mut registered = lock();
            let folder = &*self.folder;
            rustix::fs::renameat(folder, &self.temporary, folder, &self.target)?;
            registered.files.remove(&self.number);
        }
        if sync {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // Syncing the folder makes the new name durable. Errors are ignored, because some file
            // systems cannot sync a folder.
            let _ = rustix::fs::openat(&*self.folder, ".", flags, Mode::empty())
                .and_then(rustix::fs::fsync);
        }
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut registered = lock();
        if registered.files.remove(&self.number).is_some() {
            let _ = rustix::fs::unlinkat(&*self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// Replaces the file at `path` atomically.
///
/// # Errors
///
/// Returns the errors of [`AtomicFile::create`] and [`AtomicFile::commit`].
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes.as_ref())?;
    file.commit()
}

/// Removes all temporary files of this process before it exits. Afterwards threads that create or
/// commit an [`AtomicFile`] block forever. Gives up after `patience` if a file system does not
/// respond.
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

fn discard(registered: MutexGuard<'_, Registered>) {
    for (folder, temporary) in registered.files.values() {
        let _ = rustix::fs::unlinkat(&**folder, temporary, AtFlags::empty());
    }
    std::mem::forget(registered);
}

/// Opens the folder of a path. Returns the folder and the file name.
fn place(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // With `O_PATH`, opening the folder requires no permission to read it.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((rustix::fs::open(folder, flags, Mode::empty())?, name))
}

fn names_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"].iter().any(|it| path == Path::new(it))
        || path.starts_with("/proc/self/fd")
        || path.starts_with("/dev/fd")
}

/// Opens the file descriptor of this process that the path names. Standard output and standard
/// error keep their shared write position.
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

fn lock() -> MutexGuard<'static, Registered> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// Sorted names of the files in a folder.
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
    fn links_are_replaced_and_never_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("target"), "precious").unwrap();
        fs::set_permissions(at("target"), fs::Permissions::from_mode(0o640)).unwrap();
        let creates: [fn(PathBuf) -> io::Result<AtomicFile>; 2] =
            [|path| AtomicFile::create(path), |path| AtomicFile::replace(path)];
        for create in creates {
            for target in ["target", "missing", "loop"] {
                symlink(target, at("loop")).unwrap();
                let mut file = create(at("loop")).unwrap();
                file.write_all(b"new").unwrap();
                file.commit().unwrap();
                assert!(fs::symlink_metadata(at("loop")).unwrap().is_file());
                assert_eq!(fs::read(at("loop")).unwrap(), b"new");
                assert_eq!(fs::read(at("target")).unwrap(), b"precious");
                fs::remove_file(at("loop")).unwrap();
                assert_eq!(names(folder.path()), ["target"]);
            }
        }
    }

    /// `replace` must not open a file or pipe that another program put at the path.
    #[test]
    fn replace_opens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let mut file = AtomicFile::replace(&pipe).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read(&pipe).unwrap(), b"new");
        let mut private = AtomicFile::replace_private(&pipe).unwrap();
        private.write_all(b"secret").unwrap();
        private.commit_unsynced().unwrap();
        assert_eq!(fs::metadata(&pipe).unwrap().permissions().mode() & 0o777, 0o600);
        fs::create_dir(folder.path().join("folder")).unwrap();
        let file = AtomicFile::replace(folder.path().join("folder")).unwrap();
        assert!(file.commit().is_err());
        assert_eq!(names(folder.path()), ["folder", "pipe"]);
    }

    /// Temporary names cannot be guessed, so an attacker cannot create a link under the next name.
    #[test]
    fn temporary_names_are_random() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<_> =
            (0..3).map(|_| AtomicFile::create(folder.path().join("a")).unwrap()).collect();
        let names = names(folder.path());
        let digits = |name: &String| name[name.len() - 21..name.len() - 5].to_owned();
        assert_eq!((names.len(), files.len()), (3, 3));
        assert!(names.iter().all(|it| digits(it).bytes().all(|byte| byte.is_ascii_hexdigit())));
        assert_ne!(digits(&names[0])[..8], digits(&names[1])[..8]);
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
        fs::set_permissions(folder.path().join("new"), fs::Permissions::from_mode(0o600)).unwrap();
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
        // A file name may have at most 255 bytes, so the temporary name must be shortened.
        let long = folder.path().join("a".repeat(255));
        write(&long, "a").unwrap();
        assert_eq!(fs::read(&long).unwrap(), b"a");
        assert_eq!(names(folder.path()).len(), 1);
    }
}
