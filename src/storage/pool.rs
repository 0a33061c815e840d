//! Descriptors of files that stay open for many reads: a bounded pool for the whole process.
//!
//! A source of a thousand shards must work where a process may have 256 descriptors. So a file keeps its path and borrows a
//! descriptor: at most half of those that the process may have, and at most [`MOST`], belong to the pool. Where there is no
//! more room, a file that was not read lately is closed (the clock algorithm, which needs no lock for a read), and opened
//! again when it is read next. It must then be the file that it was: one of another length or time of change is an error.
//! Where descriptors run out all the same, because others in the process hold them, the pool gives up its own.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Stamp;
use super::local::stamp;

/// Most descriptors of the pool, and fewest.
const MOST: usize = 16 << 10;
const LEAST: usize = 8;
/// Soft limit that [`raise_open_files_limit`] asks for at most: four times what the pool can use.
const ASKED: u64 = 64 << 10;
/// Descriptors that the pool gives up at once where there are none left.
const GIVEN_UP: usize = 16;

/// A regular file whose descriptor comes from the pool.
#[derive(Debug)]
pub struct Pooled {
    path: PathBuf,
    /// That of the file when it was opened first.
    stamp: Stamp,
    slot: Arc<Slot>,
}

/// Where a file has its descriptor while it has one.
#[derive(Debug, Default)]
struct Slot {
    file: RwLock<Option<fs::File>>,
    /// Whether it was read since the clock's hand came by.
    used: AtomicBool,
}

/// The slots that have a descriptor, in the order in which the clock's hand passes them.
static OPEN: Mutex<VecDeque<Weak<Slot>>> = Mutex::new(VecDeque::new());

/// How many files the pool has closed so far.
static CLOSED: AtomicU64 = AtomicU64::new(0);

impl Pooled {
    /// Takes an open file into the pool.
    pub fn new(path: &Path, file: fs::File) -> io::Result<Self> {
        // The working directory may change before it is opened again.
        let (path, stamp) = (std::path::absolute(path)?, stamp(&file)?);
        let slot = Arc::new(Slot::default());
        *slot.file.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        take_in(&slot, limit());
        Ok(Self { path, stamp, slot })
    }

    /// Does the work with the file, which is opened where it was closed.
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
        work(held.as_ref().expect("it was opened, and nobody else can close it"))
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        (self.path.capacity() + size_of::<Slot>()) as u64
    }

    fn open_again(&self) -> io::Result<fs::File> {
        let file = open(&self.path)?;
        if stamp(&file)? != self.stamp {
            let problem = "the file was changed after it was opened; open the source again";
            return Err(io::Error::other(problem));
        }
        Ok(file)
    }
}

/// Opens a file to read it; where there are no descriptors left, with one of the pool's.
///
/// # Errors
///
/// Those of the system; the one for too many open files says which limit to raise.
pub fn open(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    with_descriptors(|| {
        // Without waiting: a pipe without a writer would hold up the thread for ever.
        fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
    })
}

/// Does what needs a descriptor, once more as long as the pool gives some up.
pub fn with_descriptors<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        let closed = CLOSED.load(Ordering::Acquire);
        match work() {
            Err(error) if is_exhausted(&error) => {
                // Another thread may have emptied the pool in the meantime: then there are descriptors again.
                if !give_up() && CLOSED.load(Ordering::Acquire) == closed {
                    return Err(explained(error));
                }
            }
            done => return done,
        }
    }
}

/// Raises the soft limit of open files of this process to the hard limit, but not above 65,536, and gives the soft limit that
/// then holds. The command line does this when it starts; in a program of yours the choice is yours, since code that uses `select`
/// fails with descriptors above 1,023, and processes that are started later inherit the limit. Without it sources of any number
/// of files work too: descriptors are then closed and opened again more often.
///
/// # Errors
///
/// What the system says where it refuses.
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

/// An error of the system, which says what to do where it is that there are too many open files.
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

/// Descriptors that the pool may have now.
fn limit() -> usize {
    let half = getrlimit(Resource::Nofile).current.map_or(MOST, |it| (it / 2) as usize);
    half.clamp(LEAST, MOST)
}

/// Puts a slot that has got a descriptor into the pool, and takes others out so that there are no more than `limit`.
fn take_in(slot: &Arc<Slot>, limit: usize) {
    let mut open = lock();
    while open.len() >= limit && close_one(&mut open) {}
    open.push_back(Arc::downgrade(slot));
}

/// Closes some files that were not read lately; false where there are none.
fn give_up() -> bool {
    let mut open = lock();
    (0..GIVEN_UP).filter(|_| close_one(&mut open)).count() > 0
}

/// Closes one file, the next that was not read since the last time round and is not being read now.
fn close_one(open: &mut VecDeque<Weak<Slot>>) -> bool {
    // Twice round: the first round may only take the marks away.
    for _ in 0..2 * open.len() {
        let Some(next) = open.pop_front() else { break };
        // A source that is gone has closed its files itself.
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

    /// On a queue of its own: other tests of the process use the pool too.
    fn of(files: &[&Pooled]) -> VecDeque<Weak<Slot>> {
        files.iter().map(|it| Arc::downgrade(&it.slot)).collect()
    }

    #[test]
    fn the_file_that_was_not_read_lately_is_closed_and_opened_again_when_it_is_read() {
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
        // One that is being read stays open, also where there is no other.
        let mut open = of(&[b]);
        assert!(b.with(|_| Ok(!close_one(&mut open))).unwrap());
        assert!(is_open(b) && close_one(&mut open) && !is_open(b) && !close_one(&mut open));
        // A file that took its place is not read in its stead.
        fs::write(root.path().join("b"), "other").unwrap();
        assert!(first(b).unwrap_err().to_string().contains("changed after it was opened"));
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
