//! Compressed files that are read as their contents. Reads from any number of threads give the same
//! bytes as the plain file. Truncated or damaged files are errors. The same is true of sources that
//! read compressed files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::words::has_words;
use crate::common::{config_error, position};
use feedwater::error::Reason;
use feedwater::internals::storage::unpacked::{Limits, Listed, Packing, Unpacker};
use feedwater::loader::Loader;
use feedwater::op::{Chain, Resize};
use feedwater::source::custom::{Hints, HostPage};
use feedwater::source::settings::{TfRecordSettings, WebDatasetSettings};
use feedwater::source::{Source, TfRecord, WebDataset};
use feedwater::storage::File;
use feedwater::storage::Storage;
use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};
use tempfile::TempDir;
use zstd_safe::{CCtx, CParameter};

const MIB: usize = 1 << 20;

/// A pseudo-random number generator.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Returns bytes that alternate between runs that compress well and runs that do not.
fn content(len: usize) -> Vec<u8> {
    let (mut draws, mut bytes) = (Draws(7), Vec::with_capacity(len + 9000));
    while bytes.len() < len {
        let run = (draws.next() % 9000) as usize;
        match draws.next() % 3 {
            0 => bytes.resize(bytes.len() + run, b'a'),
            1 => bytes.extend((0..run / 8).flat_map(|_| draws.next().to_le_bytes())),
            _ => {
                let from = bytes.len().saturating_sub(20_000);
                let again = bytes[from..][..run.min(bytes.len() - from)].to_vec();
                bytes.extend(again);
            }
        }
    }
    bytes.truncate(len);
    bytes
}

/// Returns a gzip member. Its header has all optional fields.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let header = b"\x1f\x8b\x08\x1e\x01\x02\x03\x04\x00\x03\x05\x00extraname\0comment\0\x00\x00";
    let trailer = [crc32fast::hash(bytes).to_le_bytes(), (bytes.len() as u32).to_le_bytes()];
    [&header[..], &compress_to_vec(bytes, 1), trailer.as_flattened()].concat()
}

/// Returns a Zstandard frame with a checksum.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::ChecksumFlag(true)).unwrap();
    let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
    let len = context.compress2(&mut packed[..], bytes).unwrap();
    packed.truncate(len);
    packed
}

fn pieces(bytes: &[u8], len: usize, pack: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    bytes.chunks(len).flat_map(pack).collect()
}

/// Returns these contents compressed in every supported way, each with a name and its format.
fn packed(bytes: &[u8]) -> Vec<(&'static str, Packing, Vec<u8>)> {
    let skippable = b"\x53\x2a\x4d\x18\x04\x00\x00\x00skip";
    vec![
        ("gzip", Packing::Gzip, gzip(bytes)),
        (
            "members",
            Packing::Gzip,
            [pieces(bytes, 700_001, gzip), gzip(b""), vec![0; 999]].concat(),
        ),
        ("small members", Packing::Gzip, pieces(bytes, 60_000, gzip)),
        ("zlib", Packing::Zlib, compress_to_vec_zlib(bytes, 1)),
        ("zstd", Packing::Zstd, zstd(bytes)),
        ("frames", Packing::Zstd, [pieces(bytes, 300_001, zstd), skippable.to_vec()].concat()),
        ("large frames", Packing::Zstd, pieces(bytes, 3 * MIB, zstd)),
    ]
}

fn open(path: &Path, packing: Packing, limits: Limits) -> File {
    unpacker(limits).open(plain(path), 0, packing)
}

fn unpacker(limits: Limits) -> Arc<Unpacker> {
    Unpacker::new(Storage::default(), limits)
}

/// Opens the compressed file itself, without decompression.
fn plain(path: &Path) -> File {
    Storage::default().open(path).unwrap()
}

/// Writes a file with these bytes to a temporary folder.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    fs::write(&path, bytes).unwrap();
    (root, path)
}

/// Reads a file with several threads: half of them at random offsets, the other half in order.
fn read_anywhere(file: &File, bytes: &[u8], threads: u64, reads: usize) {
    thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || {
                let mut draws = Draws(number + 1);
                for read in 0..reads {
                    let start = match number % 2 {
                        0 => draws.next() as usize % (bytes.len() + 10),
                        // Threads with odd numbers read sequentially.
                        _ => read * bytes.len() / reads,
                    };
                    let mut buffer = vec![0; draws.next() as usize % 200_000];
                    let count = file.read_at(&mut buffer, start as u64).unwrap();
                    let expected = bytes.get(start..).unwrap_or(&[]);
                    let expected = &expected[..expected.len().min(buffer.len())];
                    assert_eq!(count, expected.len(), "{start}");
                    assert!(buffer[..count] == *expected, "{start}");
                }
            });
        }
    });
}

#[test]
fn any_read_from_any_thread_equals_the_plain_bytes() {
    let bytes = content(11 * MIB + 12_345);
    // These limits are so small that many blocks are evicted and decompressed again.
    let small = Limits { blocks: 2 * MIB, ahead: 2 * MIB, marks: 100_000, decoders: 400_000 };
    for (name, packing, packed) in packed(&bytes) {
        assert_eq!(Packing::of(&packed), Some(packing), "{name}");
        let (_root, path) = file(&packed);
        for limits in [Limits::default(), small] {
            read_anywhere(&open(&path, packing, limits), &bytes, 4, 30);
        }
    }
}

#[test]
fn files_of_one_memory_are_not_mixed_up() {
    let unpacker = unpacker(Limits { blocks: 3 * MIB, ahead: MIB, marks: 200_000, decoders: 1 });
    let sets: Vec<_> = (1..4).map(|number| content(number * 2 * MIB)).collect();
    let files: Vec<_> = sets.iter().map(|bytes| file(&gzip(bytes))).collect();
    thread::scope(|scope| {
        for (number, ((_, path), bytes)) in files.iter().zip(&sets).enumerate() {
            let file = unpacker.open(plain(path), number, Packing::Gzip);
            scope.spawn(move || read_anywhere(&file, bytes, 2, 20));
        }
    });
}

/// Opens files that share a cache, as consecutive files of a list. For every second file, the list
/// has no open descriptor.
fn listed(sets: &[(Packing, PathBuf)], limits: Limits) -> Vec<File> {
    let unpacker = unpacker(limits);
    let open = |(number, (packing, path)): (usize, &(Packing, PathBuf))| {
        unpacker.open(plain(path), number, *packing)
    };
    let files: Vec<File> = sets.iter().enumerate().map(open).collect();
    let list = sets.iter().enumerate().map(|(number, (packing, path))| {
        let held = Some(&files[number]).filter(|_| number % 2 == 0);
        Some(Listed::new(path.clone(), *packing, held))
    });
    unpacker.list(list.collect());
    files
}

/// Reads consecutive pieces with several threads. Each thread takes the next piece, and sometimes
/// also reads another one. Returns the bytes or the error of each piece.
fn read_in_order(
    files: &[File],
    pieces: &[(usize, u64, usize)],
    threads: u64,
    elsewhere: u64,
) -> Vec<Result<Vec<u8>, ErrorKind>> {
    let read = |&(number, offset, len): &(usize, u64, usize)| {
        let mut buffer = vec![0; len];
        let done = files[number].read_exact_at(&mut buffer, offset);
        done.map(|()| buffer).map_err(|error| error.kind())
    };
    let next = AtomicUsize::new(0);
    let work = |seed: u64| {
        let (mut draws, mut made) = (Draws(seed + 1), Vec::new());
        while let place = next.fetch_add(1, Ordering::Relaxed)
            && let Some(piece) = pieces.get(place)
        {
            made.push((place, read(piece)));
            if elsewhere > 0 && draws.next().is_multiple_of(elsewhere) {
                let _ = read(&pieces[draws.next() as usize % pieces.len()]);
            }
        }
        made
    };
    let work = &work;
    let mut made: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|seed| scope.spawn(move || work(seed))).collect();
        workers.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    made.sort_unstable_by_key(|(place, _)| *place);
    made.into_iter().map(|(_, made)| made).collect()
}

/// Cuts files of these lengths into pieces of random lengths. Returns all pieces twice, in order.
fn pieces_of(lengths: &[usize], seed: u64) -> Vec<(usize, u64, usize)> {
    let (mut draws, mut pieces) = (Draws(seed), Vec::new());
    for (number, &len) in lengths.iter().enumerate().cycle().take(2 * lengths.len()) {
        let mut offset = 0;
        while offset < len {
            let count = (draws.next() as usize % 300_000).min(len - offset);
            pieces.push((number, offset as u64, count));
            offset += count;
        }
    }
    pieces
}

#[test]
fn files_that_many_threads_read_one_after_another_have_the_plain_bytes() {
    let root = tempfile::tempdir().unwrap();
    let mut draws = Draws(11);
    let (mut sets, mut plain) = (Vec::new(), Vec::new());
    for number in 0..9 {
        let bytes = content(draws.next() as usize % (3 * MIB));
        let (_, packing, packed) = packed(&bytes).swap_remove(number % 7);
        let path = root.path().join(number.to_string());
        fs::write(&path, packed).unwrap();
        sets.push((packing, path));
        plain.push(bytes);
    }
    let lengths: Vec<usize> = plain.iter().map(Vec::len).collect();
    let small = Limits { blocks: 2 * MIB, ahead: 3 * MIB, marks: 100_000, decoders: 400_000 };
    for round in 0..12 {
        let limits = [Limits::default(), small][round as usize % 2];
        let pieces = pieces_of(&lengths, round + 1);
        let threads = 1 + draws.next() % 6;
        let made =
            read_in_order(&listed(&sets, limits), &pieces, threads, [0, 0, 9][round as usize % 3]);
        for ((number, offset, len), made) in pieces.into_iter().zip(made) {
            let expected = &plain[number][offset as usize..][..len];
            assert!(made.as_deref() == Ok(expected), "{round} {number} {offset} {made:.0?}");
        }
    }
}

/// The next files of the list are decompressed in advance. If they are damaged, only reads of these
/// files fail. The errors are the same as if the files were read alone.
#[test]
fn damage_in_the_files_that_follow_is_an_error_of_their_reads_only() {
    let root = tempfile::tempdir().unwrap();
    let bytes = content(5 * MIB / 2);
    let half = gzip(&bytes[..MIB]);
    let mut flipped = gzip(&bytes);
    let middle = flipped.len() / 2;
    flipped[middle..middle + 40].fill(0xff);
    let mut header = gzip(&bytes);
    header[0] = 0;
    let good = gzip(&bytes);
    let cut = zstd(&bytes)[..zstd(&bytes).len() / 2].to_vec();
    let sets = [
        (Packing::Gzip, good.clone()),
        (Packing::Gzip, flipped),
        (Packing::Gzip, half),
        (Packing::Zstd, cut),
        (Packing::Gzip, header),
        (Packing::Gzip, good[..good.len() - 1].to_vec()),
        (Packing::Gzip, good),
    ];
    let save = |(number, (packing, bytes)): (usize, &(Packing, Vec<u8>))| {
        let path = root.path().join(number.to_string());
        fs::write(&path, bytes).unwrap();
        (*packing, path)
    };
    let sets: Vec<_> = sets.iter().enumerate().map(save).collect();
    let pieces = pieces_of(&[bytes.len(); 7], 3);
    let alone = |&(number, offset, len): &(usize, u64, usize)| {
        let (packing, path) = &sets[number];
        let mut buffer = vec![0; len];
        let done = open(path, *packing, Limits::default()).read_exact_at(&mut buffer, offset);
        done.map(|()| buffer).map_err(|error| error.kind())
    };
    let expected: Vec<_> = pieces.iter().map(alone).collect();
    let fails = |number| {
        pieces.iter().zip(&expected).any(|(piece, result)| piece.0 == number && result.is_err())
    };
    assert_eq!((0..7).map(fails).collect::<Vec<_>>(), [false, true, true, true, true, true, false]);
    for threads in [1, 2, 3, 5] {
        let made = read_in_order(&listed(&sets, Limits::default()), &pieces, threads, 0);
        for ((piece, made), expected) in pieces.iter().zip(made).zip(&expected) {
            assert!(
                made == *expected,
                "{threads} {piece:?} {:?} {:?}",
                made.err(),
                expected.as_ref().err()
            );
        }
    }
}

/// Reads a file to its end. Returns the bytes before the first error, and the kind of the error.
fn all(path: &Path, packing: Packing) -> (Vec<u8>, Option<ErrorKind>) {
    let file = open(path, packing, Limits::default());
    let mut bytes = Vec::new();
    loop {
        let mut buffer = vec![0; 1000];
        match file.read_at(&mut buffer, bytes.len() as u64) {
            Ok(0) => return (bytes, None),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) => {
                // The message must contain the offset of the damage.
                assert!(error.to_string().contains(|it: char| it.is_ascii_digit()), "{error}");
                return (bytes, Some(error.kind()));
            }
        }
    }
}

#[test]
fn a_file_truncated_anywhere_is_an_error_with_the_byte() {
    let bytes = content(20_000);
    for (name, packing, packed) in packed(&bytes) {
        // Number of bytes that may be missing: zeros, an empty member, a skippable frame.
        let optional = match name {
            "members" => 999 + gzip(b"").len(),
            "frames" => 12,
            _ => 0,
        };
        let needed = packed.len() - optional;
        for len in (0..needed).step_by(41).chain(needed - 20..needed) {
            let (_root, path) = file(&packed[..len]);
            let (read, error) = all(&path, packing);
            let ends = len == 0 && packing == Packing::Zstd;
            assert_eq!(error, (!ends).then_some(ErrorKind::UnexpectedEof), "{name} {len}");
            assert!(bytes.starts_with(&read));
        }
        let (_root, path) = file(&packed);
        assert_eq!(all(&path, packing), (bytes.clone(), None), "{name}");
    }
}

#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let bytes = content(2_500);
    let mut refused = 0;
    for (name, packing, packed) in packed(&bytes) {
        for place in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[place] ^= 1 << (place % 8);
            let (_root, path) = file(&damaged);
            match all(&path, packing) {
                (read, None) => assert!(read == bytes, "{name} {place}"),
                (_, Some(kind)) => {
                    refused += 1;
                    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::InvalidData];
                    assert!(kinds.contains(&kind), "{name} {place} {kind}");
                }
            }
        }
    }
    assert!(refused > 500);
}

/// 256 MiB of zeros compress to very small files. Reading them must take the same bounded memory as
/// any other file.
#[test]
fn a_bomb_takes_time_but_no_memory() {
    let unpacker = unpacker(Limits::default());
    let zeros = vec![0; 64 * MIB];
    for (packing, packed) in [(Packing::Gzip, gzip(&zeros)), (Packing::Zstd, zstd(&zeros))] {
        let (_root, path) = file(&packed.repeat(4));
        let file = unpacker.open(plain(&path), packing as usize, packing);
        let mut buffer = [1; 100];
        let len = 4 * zeros.len() as u64;
        assert_eq!(file.read_at(&mut buffer, len - 50).unwrap(), 50);
        assert_eq!(buffer[..50], [0; 50]);
        assert_eq!(file.read_at(&mut buffer, 1 << 60).unwrap(), 0);
    }
}

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/records");
    fs::read(folder.join(name)).unwrap()
}

fn samples(source: &dyn Source) -> Vec<(i64, Vec<u8>)> {
    let read = |index| {
        let mut page = HostPage::default();
        source.read(index, &mut page, 1 << 20).unwrap();
        (source.label(index), page.bytes().to_vec())
    };
    (0..source.len()).map(read).collect()
}

#[test]
fn files_compressed_by_webdataset_and_tensorflow_are_read_sample_by_sample() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("train.tar.gz"), golden("train.tar.gz")).unwrap();
    let open = || WebDataset::open(&[root.path().into()], &WebDatasetSettings::default()).unwrap();
    for source in [open(), open()] {
        assert_eq!(samples(&source), [(7, golden("0.jpg"))]);
        // The description must contain the file, and the numbers of samples and compressed files.
        let described = source.describe();
        assert!(has_words(&described, &["train.tar.gz", "1"]), "{described}");
        let ones = described.split(' ').filter(|it| *it == "1").count();
        assert_eq!(ones, 2, "{described}");
        assert!(source.memory_bytes() > unpacker(Limits::default()).memory_bytes());
    }
    for name in ["gzip.tfrecord", "zlib.tfrecord"] {
        let (_root, path) = file(&golden(name));
        let source = TfRecord::open(&[path], &TfRecordSettings::default()).unwrap();
        assert_eq!(samples(&source), [(7, golden("0.jpg"))], "{name}");
    }
}

#[test]
fn compressed_archives_have_the_samples_of_plain_ones() {
    let names = ["train-000000.tar", "train-000001.tar"];
    let plain = tempfile::tempdir().unwrap();
    let packed_root = tempfile::tempdir().unwrap();
    for (name, pack, ending) in [(names[0], gzip as fn(&[u8]) -> _, "gz"), (names[1], zstd, "zst")]
    {
        fs::write(plain.path().join(name), golden(name)).unwrap();
        let path = packed_root.path().join(format!("{name}.{ending}"));
        fs::write(path, pieces(&golden(name), 5000, pack)).unwrap();
    }
    let open = |root: &TempDir| {
        WebDataset::open(&[root.path().into()], &WebDatasetSettings::default()).unwrap()
    };
    let (plain, packed) = (open(&plain), open(&packed_root));
    assert_eq!(samples(&plain), samples(&packed));
    // The description must contain the number of compressed files.
    assert!(has_words(&packed.describe(), &["4", "2"]), "{}", packed.describe());
    assert!(!has_words(&plain.describe(), &["2"]), "{}", plain.describe());
    assert_eq!(plain.slow_shuffled(), None);
    for shuffle in [false, true] {
        let chain = Chain::new().then(Resize::to(8, 8));
        let source = open(&packed_root);
        let loader = Loader::builder(source, chain).batch_size(2).shuffle(shuffle).build().unwrap();
        let warned = loader.warnings().iter().any(|it| it.contains("train-000000.tar.gz"));
        assert_eq!(warned, shuffle);
    }
    assert!(plain.memory_bytes() < 10_000);
}

#[test]
fn damage_in_a_compressed_archive_is_an_error_with_both_bytes() {
    let bytes = gzip(&golden("train-000000.tar"));
    let refused = |bytes: &[u8], values: &[&str]| {
        let (_root, path) = file(bytes);
        let error = config_error(WebDataset::open(from_ref(&path), &WebDatasetSettings::default()));
        let start = format!("source.webdataset: {}", path.display());
        assert!(error.key.starts_with(&start), "{error}");
        assert!(has_words(&error.problem, values), "{values:?}: {error}");
        position(&error)
    };
    // The key has the offset in the contents, the message has the offset in the compressed file.
    refused(&bytes[..bytes.len() - 1], &[&(bytes.len() - 1).to_string()]);
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    refused(&damaged, &["gzip"]);
    // The contents end in the middle of a member of the archive.
    let cut = golden("train-000000.tar")[..5000].to_vec();
    assert!(refused(&gzip(&cut), &["5000"]) <= 5000);
}

/// The file is damaged after the source was opened. Its length and time stay the same.
#[test]
fn damage_after_indexing_is_an_error_of_the_sample() {
    let (_root, path) = file(&gzip(&golden("train-000000.tar")));
    let open = || WebDataset::open(from_ref(&path), &WebDatasetSettings::default()).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    drop(open());
    let source = open();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 40].fill(0xff);
    fs::write(&path, bytes).unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    let fault = source.read(2, &mut HostPage::default(), 1 << 20).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
}
