//! Removes temporary files that killed programs left behind.
//!
//! The writing program locks its temporary file (`flock`). A temporary file that can be locked
//! therefore has no writer. Such a file is removed if it is a regular file, belongs to this user
//! and has a name that [`name`] returns.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::process::geteuid;

/// Parts of a temporary name before and after the random digits.
const MARK: &str = ".feedwater-";
const ENDING: &str = ".part";
const DIGITS: usize = 16;

/// Folders in which this process has already removed leftovers. Listing a folder again could take
/// long.
static DONE: Mutex<BTreeSet<Folder>> = Mutex::new(BTreeSet::new());

/// Device, inode and time of creation. The time is needed because the inode of a removed folder can
/// be reused.
type Folder = ((u32, u32), u64, (i64, u32));

/// Returns the name of a temporary file for the file name `target`.
pub fn name(target: &OsStr, random: u64) -> OsString {
    let mut name = OsString::from(".");
    name.push(target);
    name.push(format!("{MARK}{random:016x}{ENDING}"));
    name
}

/// Removes the leftovers in a folder, once per folder and process. Errors are ignored, because
/// leftovers do no harm.
pub fn remove_once(folder: &OwnedFd) {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let Ok(facts) = rustix::fs::statx(folder, "", AtFlags::EMPTY_PATH, wanted) else { return };
    let device = (facts.stx_dev_major, facts.stx_dev_minor);
    let identity = (device, facts.stx_ino, (facts.stx_btime.tv_sec, facts.stx_btime.tv_nsec));
    if DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(identity) {
        remove(folder);
    }
}

fn remove(folder: &OwnedFd) {
    // The folder is opened again, because a descriptor opened with `O_PATH` cannot list it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listed) = rustix::fs::openat(folder, ".", flags, Mode::empty()) else { return };
    let Ok(entries) = Dir::new(listed) else { return };
    for entry in entries.flatten() {
        if is_name(entry.file_name()) {
            remove_unlocked(folder, entry.file_name());
        }
    }
}

fn remove_unlocked(folder: &OwnedFd, name: &CStr) {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let facts = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_own = |facts: &rustix::fs::Stat| {
        FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
            && facts.st_uid == geteuid().as_raw()
    };
    if !facts.is_ok_and(|facts| is_own(&facts)) {
        return;
    }
    let Ok(file) = rustix::fs::openat(folder, name, flags, Mode::empty()) else { return };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
    }
}

/// Whether `name` has the form that [`name`] returns.
fn is_name(name: &CStr) -> bool {
    let name = name.to_bytes();
    let Some(rest) = name.strip_suffix(ENDING.as_bytes()) else { return false };
    let Some((rest, digits)) = rest.split_last_chunk::<DIGITS>() else { return false };
    rest.starts_with(b".")
        && rest.ends_with(MARK.as_bytes())
        && digits.iter().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::AtomicFile;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_of_killed_programs_are_removed_and_those_of_running_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &OsStr| folder.path().join(name);
        let [left, link] = [1, 2].map(|number| name(OsStr::new("a.tar"), number));
        fs::write(at(&left), "half").unwrap();
        fs::write(at(OsStr::new("precious")), "kept").unwrap();
        symlink("precious", at(&link)).unwrap();
        for other in [".a.part", "a.feedwater-0000000000000001.part", ".a.feedwater-1.part"] {
            fs::write(at(OsStr::new(other)), "kept").unwrap();
        }
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let before = count();
        // Creating the first temporary file in a folder removes leftovers. Then `remove` is called,
        // as another process would do it while `first` is being written. It must not remove the
        // temporary file of `first`, which is locked.
        let first = AtomicFile::create(folder.path().join("b")).unwrap();
        assert!(!at(&left).exists());
        assert_eq!(count(), before);
        let opened = fs::File::open(folder.path()).unwrap();
        remove(&opened.into());
        assert_eq!(count(), before);
        first.commit().unwrap();
        assert!(at(&link).is_symlink() && at(OsStr::new("precious")).exists());
    }
}
