//! Local files that are mapped once and then read by copying out of the mapping.
//!
//! The kernel's copy of a warm `pread` goes page by page. A copy out of a mapping does not, and takes a third less
//! time (`benches/results/mapped-2026-11-21.md`). Mappings have two problems, which are handled as follows:
//!
//! * Bytes that are not in memory arrive by page faults, in pieces of the kernel's choice, while the thread is
//!   blocked. So periodically, and always after a read that was not in memory, a read is a non-blocking `preadv2`
//!   (`RWF_NOWAIT`), called a probe. If it returns everything, more of the following reads are copies out of the
//!   mapping, up to [`LONGEST`] per probe. If not, `pread` reads the rest, and the next read is a probe. A file that
//!   is not in memory is thus read like an unmapped one.
//! * If the bytes under a mapping no longer exist, because the file was truncated or its disk fails, touching them
//!   raises SIGBUS, which normally ends the process. Here the handler in `bus.rs` catches it: the mapping is
//!   abandoned, and this read and all later ones use `pread`. The reader gets the result of `pread`: fewer bytes, or
//!   the disk's error.
//!
//! A copy returns the file's bytes, as `pread` does, with one exception: if a file is truncated within a page while
//! mapped, the rest of that page reads as zeros instead of nothing. The file's stamp has then changed.
//!
//! Pages that were copied from count as resident memory of the process (`RssFile`) as long as the system keeps them.
//! They belong to the page cache and are reclaimed when memory is needed. The page tables, [`File::memory_bytes`],
//! remain.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Identity, Stamp, local};
use map::{Mapping, read_resident};

mod bus;
mod map;

/// Mapped file.
#[derive(Debug)]
pub struct File {
    file: local::File,
    map: Mapping,
    trust: Trust,
}

/// Maximum number of copies per probe.
const LONGEST: u32 = 63;

/// Share of reads that are copies. It changes only when a probe finds something new, so that concurrent readers do not
/// contend for its cache line.
#[derive(Debug, Default)]
struct Trust {
    /// One in `copies + 1` reads, chosen at random, is a probe.
    copies: AtomicU32,
}

impl File {
    /// Maps the file. Returns it unmapped if it cannot be mapped: it is empty, its file system does not report what is
    /// in memory (network file systems do not), there is no space, or there are too many mappings.
    pub fn new(file: local::File) -> Result<Self, local::File> {
        match file.with(|it| Ok(Mapping::new(it))).ok().flatten() {
            Some(map) => Ok(Self { file, map, trust: Trust::default() }),
            None => Err(file),
        }
    }

    pub fn identity(&self) -> io::Result<Identity> {
        self.file.identity()
    }

    pub fn stamp(&self) -> io::Result<Stamp> {
        self.file.stamp()
    }

    /// Maximum size of the mapping's page tables (8 bytes per 4 KiB page) plus the file's memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.map.len() as u64 / 512 + self.file.memory_bytes()
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.map.has(offset, buffer.len()) {
            // The file may have grown.
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
    /// Whether this read, identified by its number in this thread, is a copy.
    fn allows(&self, read: u32) -> bool {
        // A multiplier with many ones and zeros: files that are read in turns must not always get the same numbers.
        let lot = u64::from(read.wrapping_mul(0x9E37_79B1));
        let of = u64::from(self.copies.load(Ordering::Relaxed)) + 1;
        (lot * of) >> 32 != 0
    }

    /// Records whether a probe found everything in memory.
    fn learn(&self, resident: bool) {
        let before = self.copies.load(Ordering::Relaxed);
        let now = if resident { (2 * before + 1).min(LONGEST) } else { 0 };
        if now != before {
            self.copies.store(now, Ordering::Relaxed);
        }
    }
}

/// Sequence number of this thread's reads.
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
    fn probes_become_rare_while_all_is_in_memory_and_happen_at_every_read_when_not() {
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
    fn files_that_are_read_in_turns_are_all_probed() {
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
