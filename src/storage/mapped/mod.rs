//! Files of the machine that are mapped once, and copied out of from then on.
//!
//! The kernel's copy of a warm `pread` goes page by page; one out of a mapping does not, and takes a third less time
//! (`benches/results/mapped-2026-11-21.md`). Two things are bad about mappings, and dealt with:
//!
//! * What is not in memory comes in by page faults: pieces of the kernel's choice, while the thread stands still. So now
//!   and then, and always after one that was not in memory, a read is a `preadv2` that does not wait (`RWF_NOWAIT`). If it
//!   gives everything, more of the reads after it are copies out of the mapping, up to [`LONGEST`] for a look; if not, the
//!   rest comes by `pread`, and the next read is a look.
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

use std::cell::Cell;
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

/// Most copies for a look.
const LONGEST: u32 = 63;

/// How many of the reads are copies. It changes only where a look finds something new, so that threads that read side by side
/// do not take each other's memory away.
#[derive(Debug, Default)]
struct Trust {
    /// Of so many and one reads, taken at random, all but one.
    copies: AtomicU32,
}

impl File {
    /// Maps the file, or gives it back where it cannot be mapped: it is empty, its file system does not say what is in
    /// memory (those of networks do not), there is no room, or there are too many mappings.
    pub fn new(file: local::File) -> Result<Self, local::File> {
        match file.with(|it| Ok(Mapping::new(it))).ok().flatten() {
            Some(map) => Ok(Self { file, map, trust: Trust::default() }),
            None => Err(file),
        }
    }

    pub fn stamp(&self) -> io::Result<Stamp> {
        self.file.stamp()
    }

    /// The most that the page tables of the mapping take, 8 bytes for a page of 4 KiB, and what the file takes.
    pub fn memory_bytes(&self) -> u64 {
        self.map.len() as u64 / 512 + self.file.memory_bytes()
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.map.has(offset, buffer.len()) {
            // It may have grown.
            return self.file.read_at(buffer, offset);
        }
        if self.trust.allows(read_number()) && self.map.copy(offset, buffer) {
            return Ok(buffer.len());
        }
        let resident = self.file.with(|file| read_resident(file, buffer, offset));
        let count = resident.unwrap_or(0);
        self.trust.learn(count == buffer.len());
        let rest = self.file.read_at(&mut buffer[count..], offset + count as u64)?;
        Ok(count + rest)
    }
}

impl Trust {
    /// Whether this read, of all that there are by this thread, is a copy.
    fn allows(&self, read: u32) -> bool {
        // Any multiplier of many ones and zeros: files that are read by turns must not always have the same turn.
        let lot = u64::from(read.wrapping_mul(0x9E37_79B1));
        let of = u64::from(self.copies.load(Ordering::Relaxed)) + 1;
        (lot * of) >> 32 != 0
    }

    /// A look found everything in memory, or not.
    fn learn(&self, resident: bool) {
        let before = self.copies.load(Ordering::Relaxed);
        let now = if resident { (2 * before + 1).min(LONGEST) } else { 0 };
        if now != before {
            self.copies.store(now, Ordering::Relaxed);
        }
    }
}

/// A number for every read of this thread.
fn read_number() -> u32 {
    thread_local! {
        static READS: Cell<u32> = const { Cell::new(0) };
    }
    let number = READS.get();
    READS.set(number.wrapping_add(1));
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_while_all_is_in_memory_and_are_at_every_read_when_not() {
        let trust = Trust::default();
        let looks = || (0..64_000).filter(|&read| !trust.allows(read)).count() as f64;
        assert_eq!(looks(), 64_000.0, "nothing is known yet");
        for of in [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0] {
            trust.learn(true);
            let share = looks() / 64_000.0 * of;
            assert!((0.98..1.02).contains(&share), "one in {of}: {share}");
        }
        trust.learn(false);
        assert_eq!(looks(), 64_000.0);
    }

    #[test]
    fn files_that_are_read_by_turns_are_all_looked_at() {
        let trust = Trust::default();
        (0..8).for_each(|_| trust.learn(true));
        for files in [2, 3, 64, 128] {
            for file in 0..files {
                let mut reads = (0..2_000).map(|turn| turn * files + file);
                assert!(reads.any(|read| !trust.allows(read)), "file {file} of {files}");
            }
        }
    }
}
