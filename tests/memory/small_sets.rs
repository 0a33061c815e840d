//! Memory that depends on the data set: batches that are larger than the set, and stored files of
//! row indexes.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use feedwater::internals::decode::begin_row_indexes;
use feedwater::loader::Loader;
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::settings::WebDatasetSettings;
use feedwater::source::{Directory, WebDataset};
use feedwater::storage::{Storage, StorageSettings};

use super::{Files, MIB, crop, run, small};

pub fn slots_of_a_batch_that_is_larger_than_the_set_have_its_size() {
    let files = Files::new(small(40));
    let sizes =
        [(LastBatch::Partial, 1, 40), (LastBatch::Partial, 3, 14), (LastBatch::Pad, 1, 1024)];
    for (last, world, batch) in sizes {
        let loader =
            || files.loader(crop()).batch_size(1024).last_batch(last).on_error(OnError::Stop);
        let loader = || if world > 1 { loader().shard(1, world) } else { loader() };
        let plan = loader().build().unwrap().plan().clone();
        assert_eq!(plan.shape.batch, batch, "{last:?} of {world}");
        let seen = run(loader, 2);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        seen.check("a batch larger than the set");
    }
    let mut loader = files.loader(crop()).batch_size(1024).build().unwrap();
    let lens: Vec<usize> = loader.epoch().map(|batch| batch.unwrap().len()).collect();
    assert_eq!(lens, [40]);
}

/// Writes a tar archive of these files.
fn tar(path: &Path, files: impl Iterator<Item = Vec<u8>>) {
    let mut archive = tar::Builder::new(File::create(path).unwrap());
    for (number, file) in files.enumerate() {
        let mut head = tar::Header::new_ustar();
        head.set_size(file.len() as u64);
        head.set_mode(0o644);
        archive.append_data(&mut head, format!("{number:05}.jpg"), &file[..]).unwrap();
    }
    archive.finish().unwrap();
}

/// A file of row indexes beside a shard may be huge, for example after damage to the disk. Reading
/// it must stay within the footprint.
pub fn a_huge_file_of_row_indexes_is_read_within_the_footprint() {
    let folder = tempfile::tempdir().unwrap();
    let shard = folder.path().join("train.tar");
    tar(&shard, small(20));
    let rows = folder.path().join("train.tar.rows");
    for entry in [&[][..], &[255, 1, 0, 0]] {
        let mut file = File::create(&rows).unwrap();
        begin_row_indexes(&mut file).unwrap();
        file.write_all(entry).unwrap();
        // Makes the file 300 MiB long. It is sparse, so it takes no space on the disk.
        file.set_len(300 * MIB).unwrap();
        let loader = || {
            let settings =
                WebDatasetSettings { label: String::new(), ..WebDatasetSettings::default() };
            let source = WebDataset::open(std::slice::from_ref(&shard), &settings).unwrap();
            let loader = Loader::builder(source, crop()).batch_size(4).num_workers(1).prefetch(1);
            let device = feedwater::loader::DeviceChoice::Cpu;
            loader
                .device(device)
                .last_batch(LastBatch::Partial)
                .configure(|it| it.cache.row_index = Some(MIB))
        };
        let seen = run(loader, 2);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        seen.check("a sparse file of row indexes");
    }
}

/// A file of row indexes in the cache folder may be huge too.
pub fn a_huge_stored_file_of_row_indexes_is_read_within_the_footprint() {
    let (files, caches) = (Files::new(small(20)), tempfile::tempdir().unwrap());
    let loader = || {
        let settings = StorageSettings::default();
        let storage = Storage::with_cache_directory(&settings, caches.path()).unwrap();
        let source = Directory::open_with(files.0.path(), &Default::default(), &storage).unwrap();
        let loader = Loader::builder(source, crop()).batch_size(4).num_workers(1).prefetch(1);
        let device = feedwater::loader::DeviceChoice::Cpu;
        loader
            .device(device)
            .last_batch(LastBatch::Partial)
            .configure(|it| it.cache.row_index = Some(MIB))
    };
    assert!(run(loader, 1).problem.is_none());
    let mut names = fs::read_dir(caches.path()).unwrap().map(|it| it.unwrap().path());
    let is_stored = |path: &PathBuf| path.to_string_lossy().contains("/row-index-");
    let stored = names.find(is_stored).expect("the indexes must be stored");
    for entry in [&[][..], &[255, 1, 0, 0]] {
        let mut file = File::create(&stored).unwrap();
        begin_row_indexes(&mut file).unwrap();
        file.write_all(entry).unwrap();
        // Makes the file 300 MiB long. It is sparse, so it takes no space on the disk.
        file.set_len(300 * MIB).unwrap();
        let seen = run(loader, 2);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        seen.check("a sparse stored file of row indexes");
        assert!(fs::metadata(&stored).unwrap().len() < MIB, "the file must be replaced");
    }
}
