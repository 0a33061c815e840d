//! Metadata of a file: its `Stamp` (length and version) and its `Identity`.

use std::fs;
use std::io;
use std::path::Path;

use super::{Identity, Stamp};

pub fn stamp(file: &fs::File) -> io::Result<Stamp> {
    // `fstat` is called directly because this function runs after every read. `fs::File::metadata`
    // queries more and takes a third longer.
    Ok(stamp_of(&rustix::fs::fstat(file)?))
}

#[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between architectures")]
fn stamp_of(facts: &rustix::fs::Stat) -> Stamp {
    let version = [facts.st_mtime as u64, facts.st_mtime_nsec as u64];
    Stamp { len: facts.st_size as u64, version }
}

/// Returns the `Stamp` and the `Identity` of the file at a path, as text. The file is not opened.
pub fn version(path: &Path) -> io::Result<String> {
    let facts = rustix::fs::stat(path)?;
    Ok(format!("{}, {}", stamp_of(&facts), identity_of(&facts)))
}

pub fn identity(file: &fs::File) -> io::Result<Identity> {
    Ok(identity_of(&rustix::fs::fstat(file)?))
}

#[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between architectures")]
fn identity_of(facts: &rustix::fs::Stat) -> Identity {
    Identity {
        inode: facts.st_ino as u64,
        changed: [facts.st_ctime as u64, facts.st_ctime_nsec as u64],
    }
}
