//! Image sets of the benchmarks: synthetic photographs, and the user's own files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use feedwater::internals::decode::Decoders;
use feedwater::internals::header::Header;
use feedwater::internals::threads::in_parts;
use feedwater::source::FileList;
use feedwater::source::settings::FileListSettings;
use feedwater::storage::{Storage, StorageSettings};
use feedwater_tools::synth::Settings;
use feedwater_tools::synth::census::{self, Census};

use super::{cores, make, name_of_size};

/// A set of intact JPEGs, whose files are in the page cache.
pub struct PhotoSet {
    pub name: String,
    pub files: Vec<PathBuf>,
    pub census: Census,
}

impl PhotoSet {
    fn synthetic(name: String, folder: &str, settings: &Settings) -> Self {
        let files = make(folder, settings);
        let census = Census::of_files(&files).expect("the set is complete");
        Self { name, files, census }
    }

    /// Returns a set of synthetic images that all have this size, the same quality and the same
    /// chroma subsampling.
    pub fn uniform(images: u64, size: (u32, u32)) -> Self {
        let name = name_of_size(size);
        let settings = Settings::uniform(images, size.0, size.1);
        Self::synthetic(name.clone(), &format!("uniform-{images}-{name}"), &settings)
    }

    /// Returns a set of synthetic images with the sizes, chroma subsamplings, qualities and Huffman
    /// tables that were counted on ImageNet files.
    pub fn like_imagenet(images: u64) -> Self {
        let settings = Settings { images, ..Settings::default() };
        Self::synthetic("imagenet-like".into(), &format!("imagenet-like-{images}"), &settings)
    }

    /// Returns a set of the JPEGs below a folder that decode without an error.
    fn of_folder(folder: &Path) -> Self {
        let folder = folder.canonicalize().expect("a folder of FEEDWATER_PHOTOS exists");
        let all = census::jpegs(&folder).expect("a folder of FEEDWATER_PHOTOS can be read");
        let files = intact(&all);
        let name = format!("photographs in {}", folder.file_name().unwrap_or_default().display());
        if files.len() < all.len() {
            eprintln!("{name}: {} of {} files are left out", all.len() - files.len(), all.len());
        }
        let census = Census::of_files(&files).expect("the files were just read");
        Self { name, files, census }
    }

    /// Writes the list file `name` below [`directory`](super::directory), and opens it as a source.
    pub fn source(&self, name: &str) -> FileList {
        open_list(&super::list(name, &self.files))
    }

    /// Describes the files of the set, for the head of a table.
    pub fn composition(&self) -> String {
        format!("{}: {} files\n{}", self.name, self.files.len(), self.census)
    }

    /// Whether the shorter side of most images has more than 1000 pixels. Such images can be
    /// decoded at a reduced size.
    pub fn is_large(&self) -> bool {
        self.census.sizes.is_some_and(|[_, [width, height], _]| width.min(height) > 1000)
    }
}

/// Returns a set of the intact JPEGs of each folder in `FEEDWATER_PHOTOS` (separated by colons).
/// Leaves out folders without intact JPEGs.
pub fn own_photos() -> Vec<PhotoSet> {
    let folders = env::var_os("FEEDWATER_PHOTOS").unwrap_or_default();
    let folders = env::split_paths(&folders).filter(|it| !it.as_os_str().is_empty());
    let mut sets: Vec<_> = folders.map(|folder| PhotoSet::of_folder(&folder)).collect();
    sets.retain(|set| !set.files.is_empty());
    sets
}

/// Returns a single set with all photographs of `FEEDWATER_PHOTOS`. If there are none, the set has
/// `images` synthetic files like ImageNet's.
pub fn one_set(images: u64) -> PhotoSet {
    let files: Vec<_> = own_photos().into_iter().flat_map(|set| set.files).collect();
    if files.is_empty() {
        return PhotoSet::like_imagenet(images);
    }
    let census = Census::of_files(&files).expect("the files were just read");
    PhotoSet { name: "photographs of FEEDWATER_PHOTOS".into(), files, census }
}

/// Opens a list file as a source. The listed images may be in any folders.
pub fn open_list(list: &Path) -> FileList {
    let settings = StorageSettings { allow_folders: vec!["/".into()], ..Default::default() };
    let storage = Storage::new(&settings).expect("the settings are valid");
    FileList::open_with(list, &FileListSettings::default(), &storage).expect("the set exists")
}

fn intact(files: &[PathBuf]) -> Vec<PathBuf> {
    let next = AtomicUsize::new(0);
    let parts = in_parts(cores(), |_| {
        let (mut decoders, mut found) = (Decoders::new(), Vec::new());
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let bytes = fs::read(file).expect("the file can be read");
            let decodes = |header: Header| {
                let window = header.size.window();
                header.jpeg.is_some()
                    && decoders.decode(&bytes, &header, window, 1, &mut |_| ()).is_ok()
            };
            if Header::parse(&bytes).is_ok_and(decodes) {
                found.push(file.clone());
            }
        }
        found
    });
    let found = parts.into_iter().flat_map(|part| part.expect("decoding does not panic"));
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}
