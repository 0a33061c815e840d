//! Local files that are mapped once and then read by copying from the mapping.
//!
//! For cached data, `pread` copies page by page in the kernel. Copying from a mapping takes a third
//! less time (`benches/results/mapped-2026-11-21.md`). Mappings have two problems, which are
//! handled as follows:
//!
//! * Bytes that are not in memory cause page faults. They are read in pieces that the kernel
//!   chooses, while the thread is blocked. Therefore some reads are probes: non-blocking `preadv2`
//!   calls (`RWF_NOWAIT`). If a probe returns all bytes, more of the following reads are copies, up
//!   to [`LONGEST`] per probe. If not, `pread` reads the rest, and the next read is a probe again.
//!   A file that is not in memory is thus read like a file that is not mapped.
//! * If the bytes under a mapping no longer exist, because the file was truncated or its disk
//!   fails, an access raises SIGBUS, which normally ends the process. The handler in `bus.rs`
//!   catches the signal. The mapping is abandoned, and this read and all later ones use `pread`.
//!   The reader gets the result of `pread`: fewer bytes, or the disk's error.
//!
//! A copy returns the bytes of the file as `pread` does, with one exception. If a file is truncated
//! within a page while it is mapped, the rest of this page reads as zeros instead of nothing. The
//! file's length and modification time have then changed, so the reader notices it.
//!
//! Pages from which bytes were copied count as resident memory of the process (`RssFile`) while the
//! system keeps them. They belong to the page cache and are reclaimed when memory is needed. Only
//! the page tables ([`File::memory_bytes`]) remain.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Identity, Stamp, local};
use map::{Mapping, read_resident};

mod bus;
mod map;

/// A file that is mapped into memory.
#[derive(Debug)]
pub struct File {
    file: local::File,
    map: Mapping,
    trust: Trust,
}

/// Largest number of copies per probe.
const LONGEST: u32 = 63;

/// Share of reads that are copies. It only changes when the result of a probe differs from the
/// previous one, so concurrent readers do not contend for its cache line.
#[derive(Debug, Default)]
struct Trust {
    /// One in `copies + 1` reads is a probe. Probes are chosen pseudo-randomly.
    copies: AtomicU32,
}

impl File {
    /// Maps the file. Returns the file unmapped if mapping is not possible: the file is empty, its
    /// file system does not report which bytes are in memory (network file systems do not), address
    /// space is exhausted, or there are too many mappings.
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

    /// Largest size of the mapping's page tables (8 bytes per 4 KiB page) plus the memory of the
    /// file itself, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.map.len() as u64 / 512 + self.file.memory_bytes()
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.map.has(offset, buffer.len()) {
            // The mapping ends before these bytes do. The file may have grown since it was mapped.
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
    /// Whether this read copies from the mapping. If not, it is a probe. `read` is the number of
    /// the read in this thread.
    fn allows(&self, read: u32) -> bool {
        // Multiplying by a number with an irregular bit pattern makes the choice pseudo-random.
        // Without it, a thread that reads several files in turn could probe some of them at every
        // read and others never.
        let lot = u64::from(read.wrapping_mul(0x9E37_79B1));
        let of = u64::from(self.copies.load(Ordering::Relaxed)) + 1;
        (lot * of) >> 32 != 0
    }

    /// Records whether a probe found all bytes in memory.
    fn learn(&self, resident: bool) {
        let before = self.copies.load(Ordering::Relaxed);
        let now = if resident { (2 * before + 1).min(LONGEST) } else { 0 };
        if now != before {
            self.copies.store(now, Ordering::Relaxed);
        }
    }
}

/// Returns the number of this read among the reads of the thread.
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
