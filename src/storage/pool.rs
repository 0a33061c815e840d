//! Bounded pool of descriptors for files that stay open for many reads. The whole process shares
//! it.
//!
//! A source with a thousand shards must work in a process that is limited to 256 descriptors.
//! Therefore a file stores its path and borrows a descriptor. The pool uses at most half of the
//! descriptors that the process may have, and at most [`MOST`]. If the pool is full, it closes a
//! file that was not read recently, and reopens it at its next read. Files are chosen by the clock
//! algorithm, which needs no lock for a read. The reopened file must be the same one, with the same
//! length and modification time. Otherwise the read fails. If other code uses up the descriptors,
//! the pool closes some of its own.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::facts::{identity, stamp};
use super::{Identity, Stamp};

/// Largest and smallest limit of the number of descriptors in the pool.
const MOST: usize = 16 << 10;
const LEAST: usize = 8;
/// Largest soft limit that [`raise_open_files_limit`] requests: four times the number that the pool
/// can use.
const ASKED: u64 = 64 << 10;
/// Number of descriptors that the pool closes at once if the process has none left.
const GIVEN_UP: usize = 16;

/// A regular file with a descriptor from the pool.
#[derive(Debug)]
pub struct Pooled {
    path: PathBuf,
    /// Length and modification time of the file when it was first opened.
    stamp: Stamp,
    identity: Identity,
    slot: Arc<Slot>,
}

/// Descriptor of a file while the file is open.
#[derive(Debug, Default)]
struct Slot {
    file: RwLock<Option<fs::File>>,
    /// Whether the file was read since the clock algorithm last visited this slot.
    used: AtomicBool,
}

/// Slots that contain a descriptor, in the order in which the clock algorithm visits them.
static OPEN: Mutex<VecDeque<Weak<Slot>>> = Mutex::new(VecDeque::new());

/// Number of files that the pool has closed so far.
static CLOSED: AtomicU64 = AtomicU64::new(0);

impl Pooled {
    /// Adds an open file to the pool.
    pub fn new(path: &Path, file: fs::File) -> io::Result<Self> {
        // The path is made absolute, because the working directory may change before the file is
        // reopened.
        let path = std::path::absolute(path)?;
        let (stamp, identity) = (stamp(&file)?, identity(&file)?);
        let slot = Arc::new(Slot::default());
        *slot.file.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        take_in(&slot, limit());
        Ok(Self { path, stamp, identity, slot })
    }

    /// Runs `work` with the file. Reopens the file if the pool has closed it.
    pub fn with<T>(&self, work: impl FnOnce(&fs::File) -> io::Result<T>) -> io::Result<T> {
        if !self.slot.used.load(Ordering::Relaxed) {
            self.slot.used.store(true, Ordering::Relaxed);
        }
        if let Some(file) = &*self.slot.file.read().unwrap_or_else(PoisonError::into_inner) {
            return work(file);
        }
        let mut held = self.slot.file.write().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            *held = Some(self.open_again()?);
            take_in(&self.slot, limit());
        }
        work(held.as_ref().expect("while the lock is held, the open file is not closed"))
    }

    /// Allocated memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.path.capacity() + size_of::<Slot>()) as u64
    }

    fn open_again(&self) -> io::Result<fs::File> {
        let file = open(&self.path)?;
        if stamp(&file)? != self.stamp || identity(&file)?.is_other(self.identity) {
            let problem = "the file was changed after it was opened; open the source again";
            return Err(io::Error::other(problem));
        }
        Ok(file)
    }
}

/// Opens a file for reading. If the process has no descriptors left, the pool closes some.
///
/// # Errors
///
/// Returns the errors of the system. If too many files are open, the message names the limit to
/// raise.
pub fn open(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    with_descriptors(|| {
        // `O_NONBLOCK`: otherwise a pipe without a writer would block the thread forever.
        fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
    })
}

/// Runs `work`, which needs a descriptor. If none is left, the pool closes files and `work` is
/// retried.
pub fn with_descriptors<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        let closed = CLOSED.load(Ordering::Acquire);
        match work() {
            Err(error) if is_exhausted(&error) => {
                // If another thread has closed files of the pool since the failure, descriptors are
                // available again, so `work` is retried.
                if !give_up() && CLOSED.load(Ordering::Acquire) == closed {
                    return Err(explained(error));
                }
            }
            done => return done,
        }
    }
}

/// Raises the soft limit of open files of this process to the hard limit, at most 65,536. Returns
/// the resulting soft limit. The command line program calls this at startup. In your own program,
/// decide whether to call it: code that uses `select` fails with descriptors above 1,023, and child
/// processes inherit the limit. Sources of any number of files work without it too, but files are
/// closed and reopened more often.
///
/// # Errors
///
/// Returns the error of the system if it refuses the new limit.
pub fn raise_open_files_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(ASKED).min(ASKED);
    match current {
        Some(current) if current < wanted => {
            setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?;
            Ok(wanted)
        }
        current => Ok(current.unwrap_or(u64::MAX)),
    }
}

/// Adds advice to a system error for too many open files. Other errors are unchanged.
pub fn explained(error: io::Error) -> io::Error {
    let way_out = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => match getrlimit(Resource::Nofile).current {
            Some(limit) => {
                format!(
                    "this process may have {limit} files open (ulimit -n); raise the limit, for \
                     example with ulimit -n 4096"
                )
            }
            None => "raise ulimit -n".into(),
        },
        Some(Errno::NFILE) => {
            "the whole machine has reached its limit of open files; raise fs.file-max (ulimit -n \
             does not help)"
                .into()
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {way_out}"))
}

fn is_exhausted(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    number == Some(Errno::MFILE) || number == Some(Errno::NFILE)
}

/// Current limit of the number of descriptors in the pool.
fn limit() -> usize {
    let half = getrlimit(Resource::Nofile).current.map_or(MOST, |it| (it / 2) as usize);
    half.clamp(LEAST, MOST)
}

/// Adds a slot with a new descriptor to the pool. Closes other files so that at most `limit`
/// remain.
fn take_in(slot: &Arc<Slot>, limit: usize) {
    let mut open = lock();
    while open.len() >= limit && close_one(&mut open) {}
    open.push_back(Arc::downgrade(slot));
}

/// Closes some files that were not read recently. Returns false if there are no such files.
fn give_up() -> bool {
    let mut open = lock();
    (0..GIVEN_UP).filter(|_| close_one(&mut open)).count() > 0
}

/// Closes the next file that was not read since the clock algorithm last visited it, and that is
/// not being read now.
fn close_one(open: &mut VecDeque<Weak<Slot>>) -> bool {
    // Two rounds are needed, because the first round may only clear the flags `used`.
    for _ in 0..2 * open.len() {
        let Some(next) = open.pop_front() else { break };
        // The owner has dropped the file, which closed it, so the pool is smaller now.
        let Some(slot) = next.upgrade() else { return true };
        if !slot.used.swap(false, Ordering::Relaxed) {
            let held = match slot.file.try_write() {
                Ok(held) => Some(held),
                Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut held) = held {
                *held = None;
                CLOSED.fetch_add(1, Ordering::AcqRel);
                return true;
            }
        }
        open.push_back(next);
    }
    false
}

fn lock() -> MutexGuard<'static, VecDeque<Weak<Slot>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn is_open(file: &Pooled) -> bool {
        file.slot.file.read().unwrap().is_some()
    }

    /// Creates a separate queue, because other tests of the process use the pool too.
    fn of(files: &[&Pooled]) -> VecDeque<Weak<Slot>> {
        files.iter().map(|it| Arc::downgrade(&it.slot)).collect()
    }

    #[test]
    fn an_idle_file_is_closed_and_reopened_when_read() {
        let root = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c"].map(|name| {
            let path = root.path().join(name);
            fs::write(&path, name).unwrap();
            Pooled::new(&path, open(&path).unwrap()).unwrap()
        });
        let first = |file: &Pooled| {
            let mut byte = [0];
            file.with(|it| it.read_exact_at(&mut byte, 0)).map(|()| byte[0])
        };
        let [a, b, c] = &files;
        let mut open = of(&[a, b, c]);
        assert_eq!((first(a).unwrap(), first(c).unwrap()), (b'a', b'c'));
        assert!(close_one(&mut open) && open.len() == 2);
        assert_eq!([a, b, c].map(is_open), [true, false, true]);
        assert_eq!(first(b).unwrap(), b'b');
        // A file that is being read stays open, even if it is the only one.
        let mut open = of(&[b]);
        assert!(b.with(|_| Ok(!close_one(&mut open))).unwrap());
        assert!(is_open(b) && close_one(&mut open) && !is_open(b) && !close_one(&mut open));
        // A file that has replaced `a` is not read, even if it has the same length and modification
        // time.
        let time = fs::metadata(root.path().join("a")).unwrap().modified().unwrap();
        let other = root.path().join("other");
        // Writes until the time of last change differs, because file systems update their clock
        // only every few milliseconds.
        while {
            fs::write(&other, "A").unwrap();
            let file = fs::File::options().write(true).open(&other).unwrap();
            file.set_modified(time).unwrap();
            !identity(&file).unwrap().is_other(a.identity)
        } {}
        fs::rename(&other, root.path().join("a")).unwrap();
        let mut open = of(&[a]);
        assert!(close_one(&mut open) || close_one(&mut open));
        assert!(first(a).unwrap_err().to_string().contains("changed"));
        fs::write(root.path().join("b"), "other").unwrap();
        let error = first(b).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Other, "{error}");
        assert!(error.to_string().contains("changed"), "{error}");
    }

    #[test]
    fn an_error_for_too_many_open_files_names_the_limit() {
        for (errno, word) in [(libc::EMFILE, "ulimit -n"), (libc::ENFILE, "fs.file-max")] {
            let error = explained(io::Error::from_raw_os_error(errno)).to_string();
            assert!(error.contains(word), "{error}");
        }
        let other = explained(io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(other.raw_os_error(), Some(libc::ENOENT));
    }
}
