//! Files of the machine that are mapped once, and copied out of from then on.
//!
//! The kernel's copy of a warm `pread` goes page by page; one out of a mapping does not, and takes a third less time
//! (`benches/results/mapped-2026-11-21.md`). Two things are bad about mappings, and dealt with:
//!
//! * What is not in memory comes in by page faults: pieces of the kernel's choice, while the thread stands still. So now
//!   and then, and always after one that was not in memory, a read is a `preadv2` that does not wait (`RWF_NOWAIT`). If it
//!   gives everything, up to [`LONGEST`] reads after it are copies out of the mapping; if not, the rest comes by `pread`.
//!   A file that is not in memory is thereby read as one that is not mapped.
//! * Where the bytes under a mapping are gone, since the file was cut or its disk fails, touching them is SIGBUS, which
//!   ends the process. Here it does not (`bus.rs`): the mapping is given up, and the read is done once more by `pread`,
//!   as are all that follow. What a reader gets is what `pread` says: fewer bytes, or the disk's error.
//!
//! A copy has what the file has, as `pread` has. One exception: of a file that is cut within a page while it is mapped,
//! the rest of that page is zeros instead of nothing; the file's stamp has then changed.
//!
//! Pages that were copied from count as resident memory of the process (`RssFile`), as long as the system keeps them: they
//! are the page cache's own and are taken back when memory is needed. The page tables, [`File::memory_bytes`], stay.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Stamp, local};
use map::{Mapping, read_resident};

mod bus;
mod map;

/// A mapped file.
#[derive(Debug)]
pub struct File {
    file: local::File,
    map: Mapping,
    trust: Trust,
}

/// Most copies after a look.
const LONGEST: u32 = 63;

/// How many reads are copies until the next look.
#[derive(Debug, Default)]
struct Trust {
    left: AtomicU32,
    /// How many there were after the last look.
    last: AtomicU32,
}

impl File {
    /// Maps the file, or gives it back where it cannot be mapped: it is empty, its file system does not say what is in
    /// memory (those of networks do not), there is no room, or there are too many mappings.
    pub fn new(file: local::File) -> Result<Self, local::File> {
        match Mapping::new(&file.0) {
            Some(map) => Ok(Self { file, map, trust: Trust::default() }),
            None => Err(file),
        }
    }

    pub fn stamp(&self) -> io::Result<Stamp> {
        self.file.stamp()
    }

    /// The most that the page tables of the mapping take: 8 bytes for a page of 4 KiB.
    pub fn memory_bytes(&self) -> u64 {
        self.map.len() as u64 / 512
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.map.has(offset, buffer.len()) {
            // It may have grown.
            return self.file.read_at(buffer, offset);
        }
        if self.trust.take() && self.map.copy(offset, buffer) {
            return Ok(buffer.len());
        }
        let count = read_resident(&self.file.0, buffer, offset).unwrap_or(0);
        self.trust.learn(count == buffer.len());
        let rest = self.file.read_at(&mut buffer[count..], offset + count as u64)?;
        Ok(count + rest)
    }
}

/// Threads that come between each other's loads and stores change when the next look is, and nothing else.
impl Trust {
    fn take(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// A look found everything in memory, or not.
    fn learn(&self, resident: bool) {
        let last = self.last.load(Ordering::Relaxed);
        let next = if resident { (2 * last + 1).min(LONGEST) } else { 0 };
        self.last.store(next, Ordering::Relaxed);
        self.left.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_while_all_is_in_memory_and_are_at_every_read_when_not() {
        let trust = Trust::default();
        let copies = || std::iter::from_fn(|| trust.take().then_some(())).count();
        assert_eq!(copies(), 0, "nothing is known yet");
        let after_looks = [true; 8].map(|resident| {
            trust.learn(resident);
            copies()
        });
        assert_eq!(after_looks, [1, 3, 7, 15, 31, 63, 63, 63]);
        trust.learn(true);
        trust.learn(false);
        assert_eq!(copies(), 0);
        trust.learn(false);
        assert_eq!(copies(), 0);
        trust.learn(true);
        assert_eq!(copies(), 1);
    }
}
