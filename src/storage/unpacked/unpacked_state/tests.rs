//! Tests which blocks are cached and decompressed ahead of reads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use miniz_oxide::deflate::compress_to_vec_zlib;
use tempfile::TempDir;

use super::super::{File, Listed, Storage, Turn, Unpacker};
use super::*;

const LIMITS: Limits =
    Limits { blocks: 3 << 20, ahead: 5 << 20, marks: 200_000, decoders: 800_000 };

/// Creates a file of compressed data whose uncompressed length is `len` bytes.
fn file(len: usize) -> (TempDir, PathBuf, Vec<u8>) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    let bytes: Vec<u8> = (0..len as u64).map(|it| (it.wrapping_mul(it) >> 9) as u8).collect();
    std::fs::write(&path, compress_to_vec_zlib(&bytes, 1)).unwrap();
    (root, path, bytes)
}

fn with_handle(limits: Limits) -> (Storage, Arc<Unpacker>) {
    let storage = Storage::default();
    (storage.clone(), Unpacker::new(storage, limits))
}

/// Lists one file several times, as a sequence of files. The first file is kept open, as a source
/// keeps its files open.
fn listed(path: &Path, count: usize, limits: Limits) -> (Arc<Unpacker>, Vec<File>) {
    let (storage, unpacker) = with_handle(limits);
    let open = |number| unpacker.open(storage.open(path).unwrap(), number, Packing::Zlib);
    let files: Vec<File> = (0..count).map(open).collect();
    let held = |number: usize| Some(&files[number]).filter(|_| number == 0);
    let listed = |number| Some(Listed::new(path.into(), Packing::Zlib, held(number)));
    unpacker.list((0..count).map(listed).collect());
    (unpacker, files)
}

fn read(files: &[File], (number, block): Key) -> u8 {
    let mut buffer = [0];
    files[number].read_exact_at(&mut buffer, block * BLOCK).unwrap();
    buffer[0]
}

/// Checks the cached blocks against the counters and the limits. Returns the blocks that were
/// decompressed ahead of reads.
fn counted(unpacker: &Unpacker) -> Vec<Key> {
    let state = unpacker.lock();
    let limits = state.limits;
    let bytes = |ahead: bool| {
        let blocks = state.blocks.values().filter(|it| it.ahead == ahead);
        blocks.map(|it| it.bytes.len()).sum::<usize>()
    };
    let marks: usize = state.marks.values().map(|it| it.bytes()).sum();
    let decoders: usize = state.waiting.iter().map(|it| it.decoder.bytes()).sum();
    assert_eq!(state.block_bytes, bytes(false));
    assert_eq!((state.ahead_bytes, state.mark_bytes), (bytes(true), marks));
    assert!(bytes(false) <= limits.blocks && bytes(true) <= limits.ahead);
    assert!(marks <= limits.marks && decoders <= limits.decoders, "{marks} {decoders}");
    let ahead = state.blocks.iter().filter(|(_, it)| it.ahead).map(|(key, _)| *key);
    let mut ahead: Vec<Key> = ahead.collect();
    ahead.sort_unstable();
    ahead
}

/// Whether a read of this block can do nothing but wait: no block can be decompressed ahead of
/// reads. The result stays true until the block is available.
fn waits(unpacker: &Unpacker, key: Key) -> bool {
    let state = unpacker.lock();
    let helps = state.running.iter().any(|it| it.ahead);
    let has = |number| number == key.0 || unpacker.listed(number).is_some();
    state.sequence.is_front(key) && !helps && state.next_ahead(has).is_none()
}

/// Registers a decoder for a block but does not run it, so a read of the block has to wait. Checks
/// that the reader then decompresses exactly the blocks `expected` ahead of reads.
fn look_ahead(unpacker: &Unpacker, files: &[File], key: Key, expected: &[Key]) {
    let work = unpacker.lock().begin(key, false).unwrap();
    let slow = Turn { unpacker, work };
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(files, key));
        // While the read waits, its thread decompresses other blocks. How many it has decompressed
        // depends on timing, so the blocks are compared only when the thread can do nothing but
        // wait. The time limit only ends a test that fails.
        let begin = Instant::now();
        while !waits(unpacker, key) && begin.elapsed() < Duration::from_secs(300) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(waits(unpacker, key) && !reader.is_finished());
        assert_eq!(counted(unpacker), expected);
        drop(slow);
    });
    assert!(unpacker.lock().running.is_empty());
}

#[test]
fn a_thread_that_would_wait_unpacks_what_comes_next() {
    let (_root, path, bytes) = file(7 << 19);
    let (unpacker, files) = listed(&path, 20, LIMITS);
    for key in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)] {
        assert_eq!(read(&files, key), bytes[(key.1 * BLOCK) as usize]);
    }
    // No read had to wait for another thread, so nothing was decompressed ahead of reads.
    assert_eq!(counted(&unpacker), []);
    look_ahead(&unpacker, &files, (1, 1), &[(2, 0), (2, 1), (2, 2), (2, 3), (3, 0)]);
    // Blocks that reads have reached or skipped no longer count as decompressed ahead of reads.
    for (key, ahead) in [((1, 3), 5), ((2, 0), 4), ((1, 3), 4), ((2, 2), 2), ((3, 1), 0)] {
        assert_eq!(read(&files, key), bytes[(key.1 * BLOCK) as usize]);
        assert_eq!(counted(&unpacker).len(), ahead, "{key:?}");
    }
    look_ahead(&unpacker, &files, (3, 2), &[(4, 0), (4, 1), (4, 2), (4, 3), (5, 0)]);
    // A read of a distant file ends the sequence of reads, so nothing is decompressed ahead of
    // reads.
    read(&files, (15, 0));
    look_ahead(&unpacker, &files, (15, 2), &[]);
    assert!(unpacker.lock().waiting.iter().all(|it| !it.ahead));
}

#[test]
fn what_comes_next_is_unpacked_from_the_next_mark_on() {
    let (_root, path, _) = file(13 << 20);
    let (unpacker, files) = listed(&path, 2, Limits { marks: 1 << 20, ..LIMITS });
    for key in (0..26).map(|it| (it / 13, it as u64 % 13)).chain([(0, 0)]) {
        read(&files, key);
    }
    look_ahead(&unpacker, &files, (0, 1), &[(0, 4), (0, 5), (0, 6), (0, 7), (0, 8)]);
}

#[test]
fn a_file_that_fails_ahead_of_time_is_passed_over() {
    let (_root, path, bytes) = file(3 << 19);
    let (storage, unpacker) = with_handle(LIMITS);
    let open = |number| unpacker.open(storage.open(&path).unwrap(), number, Packing::Zlib);
    let files: Vec<File> = (0..20).map(open).collect();
    let path = |number| if number == 3 { "absent".into() } else { path.clone() };
    // File 3 does not exist, file 4 is declared as Zstandard although it is zlib, and file 5 is not
    // compressed.
    let packing = |number| if number == 4 { Packing::Zstd } else { Packing::Zlib };
    let it = |number| (number != 5).then(|| Listed::new(path(number), packing(number), None));
    unpacker.list((0..20).map(it).collect());
    for key in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)] {
        read(&files, key);
    }
    let expected = [(6, 0), (6, 1), (7, 0), (7, 1), (8, 0), (8, 1)];
    look_ahead(&unpacker, &files, (2, 1), &expected);
    assert_eq!(read(&files, (3, 1)), bytes[BLOCK as usize]);
}

#[test]
fn nothing_is_unpacked_ahead_for_what_there_is_no_room() {
    let (_root, path, _) = file(3 << 19);
    let no_blocks = Limits { ahead: (1 << 20) - 1, ..LIMITS };
    // The running decoder alone uses up the limit for one decoder. With a limit for two, a second
    // decoder decompresses one file after the other.
    let one_decoder = Limits { decoders: 200_000, ..LIMITS };
    let two_decoders = Limits { decoders: 400_000, ..LIMITS };
    let some = [(3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (5, 1)];
    for (limits, expected) in [(no_blocks, &[][..]), (one_decoder, &[]), (two_decoders, &some)] {
        let (unpacker, files) = listed(&path, 20, limits);
        for key in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)] {
            read(&files, key);
        }
        look_ahead(&unpacker, &files, (2, 1), expected);
    }
}

#[test]
fn what_is_kept_of_many_files_stays_within_the_limits() {
    let (_root, path, bytes) = file(1_300_000);
    let (unpacker, files) = listed(&path, 40, LIMITS);
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                while let place = next.fetch_add(1, Ordering::Relaxed)
                    && place < 40 * 13
                {
                    let (number, offset) = ((place / 13) as usize, place % 13 * 100_000);
                    let mut buffer = vec![0; 100_000];
                    files[number].read_exact_at(&mut buffer, offset).unwrap();
                    assert!(buffer == bytes[offset as usize..][..100_000]);
                    counted(&unpacker);
                    assert!(unpacker.lock().running.len() <= 4);
                }
            });
        }
    });
    assert!(unpacker.lock().running.is_empty());
}

#[test]
fn what_is_kept_for_reads_in_any_order_stays_within_the_limits() {
    let (_root, path, bytes) = file(40 << 20);
    let limits = Limits { marks: 140_000, decoders: 400_000, ..LIMITS };
    let (unpacker, files) = listed(&path, 3, limits);
    for step in 1..60u64 {
        let block = (step * 7919 * 7919) % 40;
        let byte = read(&files, (step as usize % 3, block));
        assert_eq!(byte, bytes[(block * BLOCK) as usize]);
        assert_eq!(counted(&unpacker), []);
        assert!(unpacker.lock().running.is_empty());
    }
    let state = unpacker.lock();
    assert!(state.distance > 4 * BLOCK && !state.marks.is_empty());
}
