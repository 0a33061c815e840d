//! Bounded pool of descriptors for files that stay open for many reads, shared by the whole process.
//!
//! A source of a thousand shards must work in a process limited to 256 descriptors. So a file stores its path and
//! borrows a descriptor. The pool has at most half of the descriptors that the process may have, and at most [`MOST`].
//! If the pool is full, a file that was not read recently is closed (clock algorithm, which needs no lock for a read)
//! and reopened at its next read. The reopened file must be the same one, with the same length and modification time,
//! otherwise the read fails. If descriptors run out because other code holds them, the pool closes some of its own.

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

/// Maximum and minimum number of descriptors in the pool.
const MOST: usize = 16 << 10;
const LEAST: usize = 8;
/// Maximum soft limit that [`raise_open_files_limit`] requests: four times what the pool can use.
const ASKED: u64 = 64 << 10;
/// Number of descriptors that the pool closes at once if none are left.
const GIVEN_UP: usize = 16;

/// Regular file with a descriptor from the pool.
#[derive(Debug)]
pub struct Pooled {
    path: PathBuf,
    /// Stamp of the file when it was first opened.
    stamp: Stamp,
    identity: Identity,
    slot: Arc<Slot>,
}

/// Holder of a file's descriptor while it is open.
#[derive(Debug, Default)]
struct Slot {
    file: RwLock<Option<fs::File>>,
    /// Whether it was read since the clock hand last passed.
    used: AtomicBool,
}

/// Slots that have a descriptor, in clock order.
static OPEN: Mutex<VecDeque<Weak<Slot>>> = Mutex::new(VecDeque::new());

/// Number of files that the pool has closed so far.
static CLOSED: AtomicU64 = AtomicU64::new(0);

impl Pooled {
    /// Adds an open file to the pool.
    pub fn new(path: &Path, file: fs::File) -> io::Result<Self> {
        // The working directory may change before the file is reopened.
        let path = std::path::absolute(path)?;
        let (stamp, identity) = (stamp(&file)?, identity(&file)?);
        let slot = Arc::new(Slot::default());
        *slot.file.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        take_in(&slot, limit());
        Ok(Self { path, stamp, identity, slot })
    }

    /// Runs `work` with the file, reopening it if it was closed.
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
        work(held.as_ref().expect("the lock keeps the opened file from being closed"))
    }

    /// Memory used, in bytes.
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

/// Opens a file for reading. If no descriptors are left, the pool closes some.
///
/// # Errors
///
/// Errors of the system. For too many open files, the message says which limit to raise.
pub fn open(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    with_descriptors(|| {
        // Non-blocking, because a pipe without a writer would block the thread forever.
        fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
    })
}

/// Runs `work`, which needs a descriptor, and retries as long as the pool can close files.
pub fn with_descriptors<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        let closed = CLOSED.load(Ordering::Acquire);
        match work() {
            Err(error) if is_exhausted(&error) => {
                // If another thread emptied the pool in the meantime, descriptors are available again.
                if !give_up() && CLOSED.load(Ordering::Acquire) == closed {
                    return Err(explained(error));
                }
            }
            done => return done,
        }
    }
}

/// Raises the soft limit of open files of this process to the hard limit, at most 65,536, and returns the resulting
/// soft limit. The command line program does this at startup. In your own program the choice is yours: code that uses
/// `select` fails with descriptors above 1,023, and child processes inherit the limit. Sources of any number of files
/// work without it too, but files are closed and reopened more often.
///
/// # Errors
///
/// The system's error if it refuses.
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

/// Adds advice to a system error about too many open files. Other errors are unchanged.
pub fn explained(error: io::Error) -> io::Error {
    let way_out = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => match getrlimit(Resource::Nofile).current {
            Some(limit) => {
                format!(
                    "this process may have {limit} (ulimit -n); raise that, as with ulimit -n 4096"
                )
            }
            None => "raise ulimit -n".into(),
        },
        Some(Errno::NFILE) => {
            "the whole machine has no more; raise fs.file-max (ulimit -n does not help)".into()
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {way_out}"))
}

fn is_exhausted(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    number == Some(Errno::MFILE) || number == Some(Errno::NFILE)
}

/// Current maximum number of descriptors in the pool.
fn limit() -> usize {
    let half = getrlimit(Resource::Nofile).current.map_or(MOST, |it| (it / 2) as usize);
    half.clamp(LEAST, MOST)
}

/// Adds a slot with a new descriptor to the pool and removes others so that at most `limit` remain.
fn take_in(slot: &Arc<Slot>, limit: usize) {
    let mut open = lock();
    while open.len() >= limit && close_one(&mut open) {}
    open.push_back(Arc::downgrade(slot));
}

/// Closes some files that were not read recently. Returns false if there are none.
fn give_up() -> bool {
    let mut open = lock();
    (0..GIVEN_UP).filter(|_| close_one(&mut open)).count() > 0
}

/// Closes the next file that was not read since the clock hand last passed and is not being read now.
fn close_one(open: &mut VecDeque<Weak<Slot>>) -> bool {
    // Two rounds, because the first may only clear the marks.
    for _ in 0..2 * open.len() {
        let Some(next) = open.pop_front() else { break };
        // A dropped source has closed its files itself.
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

    /// A separate queue, because other tests of the process use the pool too.
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
        // A file that is being read stays open, even if there is no other.
        let mut open = of(&[b]);
        assert!(b.with(|_| Ok(!close_one(&mut open))).unwrap());
        assert!(is_open(b) && close_one(&mut open) && !is_open(b) && !close_one(&mut open));
        // A file that replaced it is not read instead, even with the same length and time.
        let time = fs::metadata(root.path().join("a")).unwrap().modified().unwrap();
        let other = root.path().join("other");
        // The clock of file systems stands still for milliseconds.
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
