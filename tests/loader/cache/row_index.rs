//! Row indexes of JPEGs, which let decoders skip rows. Batches are the same, whatever indexes are
//! stored.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use feedwater::internals::decode::{
    Decoders, Fingerprint, JpegDecoder, RowIndex, RowIndexOutcome, RowIndexTask, begin_row_indexes,
    read_row_indexes, write_row_index,
};
use feedwater::source::Directory;
use feedwater::storage::{Storage, StorageSettings};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use tempfile::TempDir;

use super::*;
use crate::common::image;

const SAMPLES: u64 = 12;
const NONE: Option<u64> = Some(0);

/// A folder of images, and a cache folder.
struct Set {
    images: TempDir,
    caches: TempDir,
}

impl Set {
    fn new() -> Self {
        let set =
            Self { images: tempfile::tempdir().unwrap(), caches: tempfile::tempdir().unwrap() };
        for (at, (file, _)) in jpegs(SAMPLES).into_iter().enumerate() {
            set.put(at, &file);
        }
        set
    }

    fn put(&self, at: usize, file: &[u8]) {
        let folder = self.images.path().join("class");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{at:02}.jpg")), file).unwrap();
    }

    fn builder(&self, chain: Chain) -> LoaderBuilder {
        let settings = StorageSettings::default();
        let storage = Storage::with_cache_directory(&settings, self.caches.path()).unwrap();
        let source =
            Directory::open_with(self.images.path(), &Default::default(), &storage).unwrap();
        builder(source, chain)
    }

    /// Runs two epochs with row indexes and two without, and compares the batches. Returns the
    /// counts of the index cache.
    fn run(&self, chain: fn() -> Chain) -> CacheStats {
        let mut without =
            self.builder(chain()).configure(|it| it.cache.row_index = NONE).build().unwrap();
        // The loader has only two epochs. Otherwise it would prefetch a third one, and lookups for
        // that epoch would be counted.
        let with =
            self.builder(chain()).configure(|it| it.cache.row_index = PLENTY).epochs(Some(2));
        let mut with = with.build().unwrap();
        for _ in 0..2 {
            assert_eq!(epoch(&mut with), epoch(&mut without));
        }
        cache(&with.stats().caches, "row_index").clone()
    }

    /// Returns the path of the file of row indexes in the cache folder.
    fn stored(&self) -> PathBuf {
        let files = fs::read_dir(self.caches.path()).unwrap();
        let mut files = files.map(|it| it.unwrap().path()).filter(|it| is_row_index(it));
        let file = files.next().expect("the indexes are stored");
        assert_eq!(files.next(), None);
        file
    }
}

fn is_row_index(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("row-index-")
}

/// Returns hits and misses of each of two epochs.
fn counts(stats: &CacheStats) -> [(u64, u64); 2] {
    [0, 1].map(|at| (stats.epochs[at].hits, stats.epochs[at].misses))
}

#[test]
fn indexes_are_made_in_the_first_epoch_and_outlive_the_loader() {
    let set = Set::new();
    let first = set.run(training);
    assert_eq!(counts(&first), [(0, SAMPLES), (SAMPLES, 0)]);
    assert_eq!((first.samples, first.rejected), (SAMPLES, 0));
    let second = set.run(training);
    assert_eq!(counts(&second), [(SAMPLES, 0), (SAMPLES, 0)]);
    // Other chains need other windows, but they use the same row indexes.
    assert_eq!(counts(&set.run(evaluation)), [(SAMPLES, 0), (SAMPLES, 0)]);
}

/// By default, a loader with a single epoch makes no row indexes and writes no file.
#[test]
fn by_default_indexes_are_made_in_the_second_epoch_and_end_with_the_loader() {
    let set = Set::new();
    for start in [0, 7] {
        let builder = || set.builder(training()).start_epoch(start);
        let mut without = builder().configure(|it| it.cache.row_index = NONE).build().unwrap();
        let mut with = builder().epochs(Some(3)).build().unwrap();
        let row = with.footprint().row("row indexes").unwrap();
        assert_eq!((row.each_bytes, with.plan().row_index_bytes), (1 << 20, 1 << 20));
        for _ in 0..3 {
            assert_eq!(epoch(&mut with), epoch(&mut without));
        }
        let stats = with.stats();
        let stats = cache(&stats.caches, "row_index");
        let epochs = stats.epochs.iter().map(|it| (it.epoch - start, it.hits, it.misses));
        let expected = [(1, 0, SAMPLES), (2, SAMPLES, 0)];
        assert_eq!(epochs.collect::<Vec<_>>(), expected);
        assert!(without.footprint().row("row indexes").is_none());
    }
    assert!(!fs::read_dir(set.caches.path()).unwrap().any(|it| is_row_index(&it.unwrap().path())));
}

#[test]
fn by_default_indexes_take_what_the_limit_leaves_and_only_where_they_are_worth_it() {
    let set = Set::new();
    let planned = |builder: LoaderBuilder| builder.build().unwrap().plan().row_index_bytes;
    assert_eq!(planned(set.builder(training())), 1 << 20);
    let whole = Chain::new().then(op::Resize::to(30, 20)).then(op::Normalize::IMAGENET);
    assert_eq!(planned(set.builder(whole)), 0);
    let libjpeg = set.builder(training()).configure(|it| it.decode.jpeg = JpegDecoder::Libjpeg);
    assert_eq!(planned(libjpeg), 0);
    assert_eq!(planned(set.builder(training()).configure(|it| it.cache.decoded = PLENTY)), 0);
    // Under a memory limit, row indexes get only the memory that everything else leaves.
    let none = set.builder(training()).configure(|it| it.cache.row_index = NONE).build().unwrap();
    let large = none.plan().settings.limits.large_image_memory;
    let others = none.footprint().total_bytes(MemoryKind::Host) + large;
    for (left, bytes) in [(0, 0), ((1 << 20) - 1, 0), (1 << 20, 1 << 20)] {
        let limited =
            || set.builder(training()).configure(|it| it.limits.host_memory = Some(others + left));
        let [with, without] = [None, NONE]
            .map(|bytes| limited().configure(|it| it.cache.row_index = bytes).build().unwrap());
        assert_eq!(with.plan().row_index_bytes, bytes, "{left} bytes left");
        assert_eq!(with.plan().reductions, without.plan().reductions);
        assert_eq!(with.plan().room.unplanned, without.plan().room.unplanned);
    }
}

/// The plan states how much memory the row indexes of all images need. If the setting has this
/// value, all indexes fit. With half of the value, they do not.
#[test]
fn the_memory_that_all_indexes_need_holds_all() {
    const IMAGES: u64 = 800;
    let set = Set::new();
    for at in 0..IMAGES {
        // The images have many rows, so their indexes are large. With this subsampling, an image
        // has twice as many rows of blocks as with 4:2:0.
        let (width, height) = (16, 300 + at as u32 % 200);
        let (mut file, pixels) = (Vec::new(), image(at, width, height));
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_sampling_factor(SamplingFactor::F_1_1);
        encoder.encode(&pixels, width as u16, height as u16, ColorType::Rgb).unwrap();
        set.put(at as usize, &file);
    }
    let chain = || Chain::new().then(op::CenterCrop::to(8, 8)).then(op::Normalize::IMAGENET);
    let planned = set.builder(chain()).build().unwrap();
    let needed = planned.plan().row_index.unwrap().bytes;
    for (memory, holds_all) in [(needed, true), (needed / 2, false)] {
        let limited =
            set.builder(chain()).configure(|it| it.cache.row_index = Some(memory)).epochs(Some(1));
        let mut loader = limited.build().unwrap();
        epoch(&mut loader);
        let stats = loader.stats();
        let kept = cache(&stats.caches, "row_index");
        assert_eq!(kept.samples == IMAGES, holds_all, "{kept:?}");
        // Deletes the stored indexes, so that the next loader makes them again.
        drop(loader);
        fs::remove_dir_all(set.caches.path()).unwrap();
        fs::create_dir(set.caches.path()).unwrap();
    }
}

#[test]
fn reduced_images_have_the_same_indexes() {
    let set = Set::new();
    let small = || Chain::new().then(op::Resize::to(24, 20)).then(op::Normalize::IMAGENET);
    let builder = || set.builder(small()).configure(|it| it.decode.prescale = true);
    for hits in [0, SAMPLES] {
        let mut without = builder().configure(|it| it.cache.row_index = NONE).build().unwrap();
        let mut with = builder().configure(|it| it.cache.row_index = PLENTY).build().unwrap();
        for _ in 0..2 {
            assert_eq!(epoch(&mut with), epoch(&mut without));
        }
        let stats = with.stats();
        let stats = cache(&stats.caches, "row_index");
        assert_eq!(counts(stats), [(hits, SAMPLES - hits), (SAMPLES, 0)]);
        assert_eq!(stats.rejected, 0);
    }
    // The same indexes are used if the decoder does not reduce the images.
    assert_eq!(counts(&set.run(training))[0], (SAMPLES, 0));
}

#[test]
fn a_file_that_changed_has_no_index() {
    let set = Set::new();
    set.run(training);
    set.put(3, &jpeg(77, 60, 50));
    set.put(5, &progressive(5, 60, 50));
    set.put(7, &png(7, 60, 50));
    let stats = set.run(training);
    let [(hits, misses), (next, _)] = counts(&stats);
    assert_eq!(stats.rejected, 0);
    assert_eq!((hits, next - hits), (SAMPLES - 3, 1), "{misses} misses");
}

#[test]
fn damaged_and_foreign_files_of_indexes_do_no_harm() {
    let set = Set::new();
    set.run(training);
    let file = set.stored();
    let bytes = fs::read(&file).unwrap();
    for cut in [0, 10, 16, 18, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&file, &bytes[..cut]).unwrap();
        let [(hits, _), second] = counts(&set.run(training));
        assert!(hits < SAMPLES && second == (SAMPLES, 0), "{hits} hits of {cut} bytes");
    }
    for at in (0..bytes.len()).step_by(37) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x55;
        fs::write(&file, &bad).unwrap();
        assert_eq!(counts(&set.run(training))[1], (SAMPLES, 0), "byte {at}");
    }
}

/// The indexes have correct checksums but wrong positions. The decoder rejects them, decodes the
/// images again without them, and drops them.
#[test]
fn an_index_that_does_not_fit_is_rejected_counted_and_dropped() {
    let whole = || Chain::new().then(op::Resize::to(30, 20)).then(op::Normalize::IMAGENET);
    let set = Set::new();
    set.run(whole);
    let mut out = Vec::new();
    begin_row_indexes(&mut out).unwrap();
    for (file, _) in jpegs(SAMPLES) {
        let header = Header::parse(&file).unwrap();
        let mut decoders = Decoders::new();
        decoders.set_row_index(RowIndexTask::Make(Fingerprint::of(&file, 1)));
        decoders.decode(&file, &header, header.size.window(), 1, &mut |_| {}).unwrap();
        let RowIndexOutcome::Made(_, index) = decoders.row_index() else { panic!() };
        let mut index = index.to_vec();
        // Changes the last position that the index stores, and corrects the checksum.
        let end = index.len() - 4;
        index[end - 1] ^= 2;
        let crc = crc32c::crc32c(&index[..end]);
        index[end..].copy_from_slice(&crc.to_le_bytes());
        write_row_index(&mut out, &index).unwrap();
    }
    fs::write(set.stored(), out).unwrap();
    let stats = set.run(whole);
    assert_eq!((stats.rejected, stats.samples), (SAMPLES, 0));
    assert_eq!(counts(&stats), [(SAMPLES, 0), (0, SAMPLES)]);
    // The dropped indexes are gone from the stored file too.
    assert_eq!(counts(&set.run(whole)), [(0, SAMPLES), (SAMPLES, 0)]);
}

#[test]
fn libjpeg_turbo_has_no_indexes() {
    let set = Set::new();
    let builder = set.builder(training()).configure(|it| it.decode.jpeg = JpegDecoder::Libjpeg);
    let mut loader = builder.configure(|it| it.cache.row_index = PLENTY).build().unwrap();
    assert_eq!(loader.plan().row_index, None);
    epoch(&mut loader);
    let stats = loader.stats();
    let stats = cache(&stats.caches, "row_index");
    assert_eq!((stats.hits, stats.misses, stats.samples), (0, 0, 0));
}

#[test]
fn a_full_cache_of_indexes_changes_nothing() {
    let set = Set::new();
    let mut without =
        set.builder(training()).configure(|it| it.cache.row_index = NONE).build().unwrap();
    let mut with =
        set.builder(training()).configure(|it| it.cache.row_index = Some(5000)).build().unwrap();
    for _ in 0..2 {
        assert_eq!(epoch(&mut with), epoch(&mut without));
    }
    let stats = with.stats();
    let stats = cache(&stats.caches, "row_index");
    assert!(stats.taken_bytes <= 5000 && stats.samples < SAMPLES, "{stats:?}");
    assert_eq!(with.footprint().row("row indexes").unwrap().each_bytes, 5000);
}

/// Inserts a comment of `padding` bytes into a JPEG. The first four bytes of the comment are chosen
/// such that the file has the CRC-32C `crc`.
fn with_crc(jpeg: &[u8], padding: usize, crc: u32) -> Vec<u8> {
    let length = (2 + padding as u16).to_be_bytes();
    let mut file = [&jpeg[..2], &[0xFF, 0xFE], &length, &vec![0x20; padding], &jpeg[2..]].concat();
    let base = crc32c::crc32c(&file);
    // A CRC is linear: flipping a bit always changes it in the same way. Gaussian elimination finds
    // which of the 32 bits to flip.
    let mut rows: Vec<(u32, u32)> = (0..32)
        .map(|bit| {
            let mut other = file.clone();
            other[6 + bit / 8] ^= 1 << (bit % 8);
            (crc32c::crc32c(&other) ^ base, 1 << bit)
        })
        .collect();
    let (mut wanted, mut bits) = (base ^ crc, 0);
    for place in 0..32 {
        let at = (place..32).find(|&at| rows[at].0 >> place & 1 == 1).unwrap();
        rows.swap(place, at);
        let pivot = rows[place];
        for row in &mut rows[place + 1..] {
            if row.0 >> place & 1 == 1 {
                *row = (row.0 ^ pivot.0, row.1 ^ pivot.1);
            }
        }
        if wanted >> place & 1 == 1 {
            (wanted, bits) = (wanted ^ pivot.0, bits ^ pivot.1);
        }
    }
    file[6..10].iter_mut().zip(bits.to_le_bytes()).for_each(|(byte, more)| *byte ^= more);
    assert_eq!(crc32c::crc32c(&file), crc);
    file
}

/// Anyone can make two images with equal length and CRC-32C. Two such images must not share a row
/// index.
#[test]
fn images_with_the_same_length_and_crc_have_their_own_pixels() {
    let (one, other) = (jpeg(41, 60, 50), jpeg(42, 60, 50));
    let longest = one.len().max(other.len()) + 16;
    let made = |jpeg: &[u8]| with_crc(jpeg, longest - jpeg.len(), 0x1234_5678);
    let (one, other) = (made(&one), made(&other));
    assert_eq!(one.len(), other.len());
    let fingerprints = [&one, &other].map(|file| Fingerprint::of(file, 1));
    assert!(fingerprints[0].key() == fingerprints[1].key() && fingerprints[0] != fingerprints[1]);
    let set = Set::new();
    set.put(2, &one);
    set.put(6, &other);
    for _ in 0..2 {
        assert_eq!(set.run(training).rejected, 0);
    }
}

/// The decoder of one image gets the row index of another image, with a fingerprint that matches.
/// It detects the mistake at the end of any window that it decodes.
#[test]
fn an_index_of_another_image_is_rejected_in_every_window() {
    let (one, other) = (jpeg(41, 90, 80), jpeg(42, 90, 80));
    let header = Header::parse(&one).unwrap();
    let mut decoders = Decoders::new().jpeg(JpegDecoder::Feedwater);
    decoders.set_row_index(RowIndexTask::Make(Fingerprint::of(&other, 1)));
    if decoders.decode(&other, &header, header.size.window(), 1, &mut |_| {}).is_err() {
        // On this CPU, libjpeg-turbo is faster than feedwater's decoder, so no row index is made.
        return;
    }
    let RowIndexOutcome::Made(_, index) = decoders.row_index() else { panic!() };
    let index = RowIndex::read(index.to_vec().into()).unwrap();
    for (x, y) in [(0, 0), (0, 20), (10, 33), (40, 50), (70, 5)] {
        for (width, height) in [(1, 1), (8, 8), (20, 20)] {
            decoders.set_row_index(RowIndexTask::Use(index.clone()));
            let window = Roi::new(x, y, width, height);
            assert!(decoders.decode(&one, &header, window, 1, &mut |_| {}).is_err(), "{window}");
            assert_eq!(decoders.row_index(), RowIndexOutcome::Rejected, "{window}");
        }
    }
}

/// If row indexes cannot be stored, the next run must make them again. If the user set a limit for
/// them, the loader warns.
#[test]
fn a_folder_that_cannot_keep_indexes_is_a_warning() {
    let set = Set::new();
    let (settings, file) = (StorageSettings::default(), set.caches.path().join("file"));
    fs::write(&file, "").unwrap();
    for (setting, is_told) in [(PLENTY, true), (None, false), (NONE, false)] {
        let storage = Storage::with_cache_directory(&settings, &file).unwrap();
        let source = Directory::open_with(set.images.path(), &Default::default(), &storage);
        let mut loader = builder(source.unwrap(), training())
            .configure(|it| it.cache.row_index = setting)
            .build()
            .unwrap();
        epoch(&mut loader);
        let told = loader.warnings().iter().any(|it| it.contains("row indexes are not kept"));
        assert_eq!(told, is_told, "{setting:?}: {:?}", loader.warnings());
    }
}

#[test]
fn indexes_of_version_1_are_made_again() {
    let set = Set::new();
    set.run(training);
    let mut bytes = fs::read(set.stored()).unwrap();
    assert_eq!(bytes[..16], *b"feedwater rows 2");
    bytes[15] = b'1';
    fs::write(set.stored(), bytes).unwrap();
    assert_eq!(counts(&set.run(training)), [(0, SAMPLES), (SAMPLES, 0)]);
    assert_eq!(counts(&set.run(training)), [(SAMPLES, 0), (SAMPLES, 0)]);
}

/// Other users may be able to write to the cache folder, so they could replace the file of row
/// indexes by a link or a pipe.
#[test]
fn a_link_or_a_pipe_in_place_of_the_file_is_neither_followed_nor_waited_for() {
    let set = Set::new();
    set.run(training);
    let stored = set.stored();
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious");
    // If the loader followed the link, it would find these row indexes and have hits.
    let whole = fs::read(&stored).unwrap();
    fs::write(&precious, &whole).unwrap();
    let is_replaced = || {
        assert_eq!(counts(&set.run(training)), [(0, SAMPLES), (SAMPLES, 0)]);
        assert!(fs::symlink_metadata(&stored).unwrap().is_file());
        assert_eq!(counts(&set.run(training)), [(SAMPLES, 0), (SAMPLES, 0)]);
    };
    for target in [&precious, &outside.path().join("missing")] {
        fs::remove_file(&stored).unwrap();
        symlink(target, &stored).unwrap();
        is_replaced();
    }
    assert!(fs::read(&precious).unwrap() == whole);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    fs::remove_file(&stored).unwrap();
    assert!(Command::new("mkfifo").arg(&stored).status().unwrap().success());
    is_replaced();
}

#[test]
fn a_stored_file_is_read_up_to_the_limit_of_the_cache() {
    let set = Set::new();
    set.run(training);
    let stored = set.stored();
    let bytes = fs::read(&stored).unwrap();
    let (magic, indexes) = bytes.split_at(16);
    // Entries that are not row indexes. They have slightly more than 1 MiB in total, so the row
    // indexes behind them are beyond the smaller limit.
    let others = [&(1u32 << 14).to_le_bytes()[..], &[0; 1 << 14]].concat().repeat(64);
    for (limit, hits) in [(1 << 20, 0), (4 << 20, SAMPLES)] {
        fs::write(&stored, [magic, &others[..], indexes].concat()).unwrap();
        let builder = set
            .builder(training())
            .configure(|it| it.cache.row_index = Some(limit))
            .epochs(Some(1));
        let mut loader = builder.build().unwrap();
        epoch(&mut loader);
        let stats = loader.stats();
        assert_eq!(cache(&stats.caches, "row_index").epochs[0].hits, hits, "limit {limit}");
    }
}

/// The fingerprint of an image depends on the seed of the cache. Anyone who knows the seed can make
/// images that share a row index, so every cache has a different seed.
#[test]
fn every_cache_draws_its_own_seed() {
    let [one, other] = [Set::new(), Set::new()].map(|set| {
        set.run(training);
        let (bytes, mut found) = (fs::read(set.stored()).unwrap(), Vec::new());
        read_row_indexes(&mut &bytes[..], |index| found.push(index.fingerprint()));
        assert_eq!(found.len() as u64, SAMPLES);
        found.sort_by_key(|it| (it.key().len, it.key().crc));
        found
    });
    for (one, other) in one.iter().zip(&other) {
        assert!(one.key() == other.key() && one != other, "{one:?}, {other:?}");
    }
}
