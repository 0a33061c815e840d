//! Source for a directory that has one folder per class.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::file::{self, Files};
use super::side_files::SideFiles;
use super::{
    BadShards, Configured, Exclusion, ExclusionReason, Exclusions, Fields, Heads, Hints, Identity,
    Notes, Page, RemoteReads, Sealed, Source,
};
use super::{exclusion, settings};
use crate::error::{DataError, Error, Redacted, Result, escaped};
use crate::footprint::counted;
use crate::storage::{self, Stamp, Storage};

pub use classes::DirectorySettings;

use classes::Classes;
use folders::{Entries, identity, list, walk};

mod classes;
mod fields;
mod folders;

/// Images in class folders, in the order of torchvision's `ImageFolder`.
///
/// * Every folder directly in the directory is a class. Classes are numbered in the byte order of
///   their names, or by `class_to_index`. If there are no folders, the samples are the images in
///   the directory itself, with label -1.
/// * The samples of a class are the images in its folder and in all folders below it. Folders are
///   in the byte order of their whole paths (`a`, `a-b`, `a/b`), and the files of each folder in
///   the byte order of their names. Links are followed, except a link to a folder that contains the
///   link.
/// * An image is a regular file whose name ends in one of `extensions`. Its format is detected from
///   its content. Other files, pipes, devices, and files next to the class folders are skipped and
///   counted ([`Notes::excluded`]). Images next to the class folders cause a warning.
/// * A class without images is an error unless `allow_empty` is set, because skipping it would
///   shift the labels of later classes.
/// * Files and folders whose names begin with a dot are ignored.
/// * If the directory contains folders such as `train/` and `val/` with the class folders inside
///   them, `train` and `val` become the classes, with a warning ([`Notes::warnings`]).
/// * The directory may be a URL that supports listing (`s3://bucket/train`). One listing returns
///   the names, lengths and versions of all objects. Each sample is read with one request. An
///   object that has changed since the listing is a sample error.
/// * The setting `side_files` makes [`Fields`](super::custom::Fields) of files beside the images. A
///   file ending in `.json` is JSON. Any other file is text if it is UTF-8, and bytes otherwise. A
///   file that does not exist is a missing value. A file that cannot be read is a sample error.
/// * The second source of a join needs no images. Without `side_files`, the samples there are all
///   files, or those with the given `extensions`, and the contents of a file are the field `value`.
pub struct Directory {
    storage: Storage,
    root: PathBuf,
    classes: Vec<String>,
    folders: Vec<Folder>,
    /// All file names, concatenated.
    names: Vec<u8>,
    /// End of each sample's name in `names`. The name begins where the previous name ends.
    ends: Vec<u64>,
    /// Version of each sample at a URL; empty for local files.
    stamps: Vec<Stamp>,
    largest_bytes: u64,
    excluded: Vec<Exclusion>,
    warnings: Vec<String>,
    side_files: SideFiles,
    /// Whether the source was opened for its fields, and each file is the field `value`.
    has_values: bool,
}

/// Consecutive samples in one folder.
struct Folder {
    path: PathBuf,
    label: i64,
    /// Index after the folder's last sample.
    end: u64,
}

impl Directory {
    /// Lists the directory with the settings of torchvision's `ImageFolder`. Returns the errors of
    /// [`Self::with`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(path, &DirectorySettings::default())
    }

    /// Lists the directory with the given settings.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be read. [`Error::Config`] if the directory or one of
    /// its classes has no image, or if a setting is invalid.
    pub fn with(path: impl AsRef<Path>, settings: &DirectorySettings) -> Result<Self> {
        Self::open_with(path, settings, &Storage::default())
    }

    /// Lists the directory with the given settings, and reads its files through this storage
    /// handle.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`with`](Self::with).
    pub fn open_with(
        path: impl AsRef<Path>,
        settings: &DirectorySettings,
        storage: &Storage,
    ) -> Result<Self> {
        Self::listed(path.as_ref(), settings, storage, false)
    }

    /// Lists the directory. With `for_fields`, classes may be empty, and files need not be images
    /// unless side files are beside them.
    fn listed(
        root: &Path,
        settings: &DirectorySettings,
        storage: &Storage,
        for_fields: bool,
    ) -> Result<Self> {
        settings.check()?;
        let changed = for_fields.then(|| settings.for_fields());
        let settings = changed.as_ref().unwrap_or(settings);
        let mut listing = Listing {
            settings,
            classes: Classes::default(),
            excluded: Exclusions::default(),
            images_beside: None,
            found: Self {
                storage: storage.clone(),
                root: root.to_path_buf(),
                classes: Vec::new(),
                folders: Vec::new(),
                names: Vec::new(),
                ends: Vec::new(),
                stamps: Vec::new(),
                largest_bytes: 0,
                excluded: Vec::new(),
                warnings: Vec::new(),
                side_files: SideFiles::new(&settings.side_files, root)?,
                has_values: for_fields && settings.side_files.is_empty(),
            },
            for_fields,
        };
        match storage::is_url(root) {
            true => {
                let objects = storage.list_all(root).map_err(|error| Error::io(root, &error))?;
                listing.add_objects(objects);
            }
            false => listing.add_folders()?,
        }
        listing.finish()
    }

    /// Returns the path of a sample.
    pub fn path(&self, index: u64) -> PathBuf {
        self.folder(index).path.join(OsStr::from_bytes(self.name(index)))
    }

    /// Returns the file name of a sample.
    fn name(&self, index: u64) -> &[u8] {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.names[start..self.ends[index] as usize]
    }

    fn folder(&self, index: u64) -> &Folder {
        &self.folders[self.folders.partition_point(|folder| folder.end <= index)]
    }
}

/// State of the listing of a directory.
struct Listing<'a> {
    settings: &'a DirectorySettings,
    classes: Classes,
    excluded: Exclusions,
    /// Number of files next to the class folders that have the name of an image, and the first.
    images_beside: Option<(u64, String)>,
    found: Directory,
    /// Whether images and classes are not needed.
    for_fields: bool,
}

impl Listing<'_> {
    fn add_folders(&mut self) -> Result<()> {
        let root = self.found.root.clone();
        let top = list(&self.found.storage, &root)?;
        if top.folders.is_empty() {
            self.add_files(root, -1, &top);
            return Ok(());
        }
        top.files.iter().for_each(|name| self.count_beside_classes(name));
        for name in &top.special {
            self.count(ExclusionReason::BesideClasses, "", Path::new(name));
        }
        let above = &mut HashSet::from([identity(&root)?]);
        for (number, name) in top.folders.iter().enumerate() {
            let class = name.to_string_lossy();
            match self.settings.label(number, &class) {
                Some(label) => {
                    self.classes.begin(&class);
                    self.add_class_folder(&root.join(name), label, above)?;
                }
                None => self.count(ExclusionReason::OtherClass, "", Path::new(name)),
            }
        }
        Ok(())
    }

    /// Adds the images of a class in the order of torchvision's `sorted(os.walk(folder))`. This
    /// order compares whole paths, so `a-b` precedes `a/b`.
    fn add_class_folder(
        &mut self,
        class: &Path,
        label: i64,
        above: &mut HashSet<(u64, u64)>,
    ) -> Result<()> {
        let mut folders = Vec::new();
        walk(&self.found.storage, class.to_path_buf(), above, &mut folders)?;
        folders.sort_unstable_by(|(a, _), (b, _)| {
            a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes())
        });
        for (path, entries) in folders {
            let below = path != class;
            let images = self.add_files(path, label, &entries);
            self.classes.add(images, below);
        }
        Ok(())
    }

    /// Adds all images of a store's flat list of objects, in the same order as a walk over folders.
    fn add_objects(&mut self, mut objects: Vec<(String, Stamp)>) {
        // Object stores mark folders by empty objects. An empty object with the name of an image
        // may be such a marker, so it is skipped and counted.
        objects.retain(|(name, stamp)| {
            let is_marker = stamp.len == 0 && self.settings.is_image(OsStr::new(name));
            if is_marker {
                self.excluded.add(ExclusionReason::EmptyObject, "", 1, name);
            }
            !is_marker
        });
        if objects.iter().any(|(name, _)| name.contains('/')) {
            for (name, _) in objects.iter().filter(|(name, _)| !name.contains('/')) {
                self.count_beside_classes(OsStr::new(name));
            }
            objects.retain(|(name, _)| name.contains('/'));
        }
        objects.sort_unstable_by(|(a, _), (b, _)| in_order_of_a_walk(a, b));
        let mut number = 0;
        for class in objects.chunk_by(|(a, _), (b, _)| class_of(a) == class_of(b)) {
            let Some(name) = class_of(&class[0].0) else {
                self.add_class(-1, class);
                continue;
            };
            match self.settings.label(number, name) {
                Some(label) => {
                    self.classes.begin(name);
                    self.add_class(label, class);
                }
                None => self.count(ExclusionReason::OtherClass, "", Path::new(name)),
            }
            number += 1;
        }
        let stamps = &self.found.stamps;
        self.found.largest_bytes = stamps.iter().map(|stamp| stamp.len).max().unwrap_or(0);
    }

    /// Adds the objects of a class. They are already in the order of a walk over folders.
    fn add_class(&mut self, label: i64, objects: &[(String, Stamp)]) {
        for run in objects.chunk_by(|(a, _), (b, _)| folder_of(a) == folder_of(b)) {
            let (folder, root) = (folder_of(&run[0].0), &self.found.root);
            let path = if folder.is_empty() { root.clone() } else { root.join(folder) };
            let file = |name: &str| OsString::from(name.rsplit('/').next().unwrap_or(name));
            let is_image = |name: &str| self.settings.is_image(&file(name));
            let stamps = run.iter().filter(|(name, _)| is_image(name)).map(|(_, stamp)| *stamp);
            self.found.stamps.extend(stamps);
            let files = run.iter().map(|(name, _)| file(name)).collect();
            let entries = Entries { files, folders: Vec::new(), special: Vec::new() };
            let images = self.add_files(path, label, &entries);
            self.classes.add(images, folder.contains('/'));
        }
    }

    /// Adds the images of a folder and counts its other files. Returns the number of images.
    fn add_files(&mut self, path: PathBuf, label: i64, entries: &Entries) -> u64 {
        let before = self.found.ends.len();
        for name in &entries.files {
            if self.settings.is_image(name) {
                self.found.names.extend_from_slice(name.as_bytes());
                self.found.ends.push(self.found.names.len() as u64);
            } else {
                let kind = exclusion::extension(&name.to_string_lossy());
                self.count(ExclusionReason::OtherExtension, &kind, &path.join(name));
            }
        }
        for name in &entries.special {
            self.count(ExclusionReason::Special, "", &path.join(name));
        }
        let end = self.found.ends.len();
        if end > before {
            self.found.folders.push(Folder { path, label, end: end as u64 });
        }
        (end - before) as u64
    }

    fn count(&mut self, why: ExclusionReason, kind: &str, path: &Path) {
        self.excluded.add(why, kind, 1, &path.to_string_lossy());
    }

    /// Counts a file next to the class folders.
    fn count_beside_classes(&mut self, name: &OsStr) {
        self.count(ExclusionReason::BesideClasses, "", Path::new(name));
        if self.settings.is_image(name) {
            let first = || (0, name.to_string_lossy().into_owned());
            self.images_beside.get_or_insert_with(first).0 += 1;
        }
    }

    fn finish(self) -> Result<Directory> {
        let Self { settings, classes, excluded, images_beside, mut found, for_fields } = self;
        found.excluded = excluded.into_list();
        if found.ends.is_empty() {
            let (root, endings) = (Redacted::path(&found.root), settings.extensions.join(", "));
            let what = if for_fields { "files" } else { "images" };
            let problem =
                format!("no {what} in {root} or its folders (with the extensions {endings})");
            let problem = exclusion::none_but(problem, &found.excluded);
            return Err(Error::config("source.directory", problem));
        }
        found.classes = classes.names(&found.root, settings)?;
        if !for_fields {
            found.warnings.extend(classes.warning(&found.root));
            found.warnings.extend(images_beside.map(|(count, first)| {
                format!(
                    "{} next to the class folders of {} {} not read, such as {}; move images into \
                     class folders, or write a list of all images and use the source list",
                    counted(count, "image"),
                    Redacted::path(&found.root),
                    if count == 1 { "is" } else { "are" },
                    escaped(&first),
                )
            }));
        }
        found.warnings.extend(found.check_side_files()?);
        if found.stamps.is_empty() && !for_fields {
            let path = |index| found.path(index);
            found.largest_bytes = file::largest(&found.storage, found.len(), path);
        }
        Ok(found)
    }
}

impl Sealed for Directory {}

impl Configured for Directory {
    const KEY: &'static str = "directory";
    type Settings = DirectorySettings;

    fn open_with(
        paths: &[PathBuf],
        settings: &DirectorySettings,
        storage: &Storage,
    ) -> Result<Self> {
        Self::open_with(settings::only(Self::KEY, paths)?, settings, storage)
    }

    /// Lists the directory. Without side files, its files are the field `value`.
    fn open_fields(
        paths: &[PathBuf],
        settings: &DirectorySettings,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        bad.check_unset(Self::KEY)?;
        Self::listed(settings::only(Self::KEY, paths)?, settings, storage, true)
    }
}

impl Source for Directory {
    fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    fn label(&self, index: u64) -> i64 {
        self.folder(index).label
    }

    fn location(&self, index: u64) -> String {
        Redacted::path(&self.path(index)).into_string()
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        file::read_sample(self, index, page, limit)
    }

    fn describe(&self) -> String {
        let classes = self.classes.iter().filter(|name| !name.is_empty()).count();
        let (files, classes) = (counted(self.len(), "file"), counted(classes, "class"));
        format!("{}: {files} in {classes}", Redacted::path(&self.root))
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn fields(&self) -> Option<&dyn Fields> {
        (self.has_values || !self.side_files.is_empty()).then_some(self)
    }

    fn remote(&self) -> Option<&dyn RemoteReads> {
        (!self.stamps.is_empty()).then_some(self)
    }

    fn heads(&self) -> Option<&dyn Heads> {
        self.stamps.is_empty().then_some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }

    fn notes(&self) -> Option<&dyn Notes> {
        Some(self)
    }
}

impl Hints for Directory {
    fn largest_bytes(&self) -> Option<u64> {
        Some(self.largest_bytes)
    }

    fn storages(&self) -> Vec<Storage> {
        vec![self.storage.clone()]
    }

    fn memory_bytes(&self) -> u64 {
        let stamps = self.stamps.capacity() * size_of::<Stamp>();
        (self.names.capacity() + self.ends.capacity() * size_of::<u64>() + stamps) as u64
    }
}

impl Files for Directory {
    fn storage(&self) -> &Storage {
        &self.storage
    }

    fn path(&self, index: u64) -> PathBuf {
        self.path(index)
    }

    fn stamp(&self, index: u64) -> Option<Stamp> {
        self.stamps.get(index as usize).copied()
    }
}

impl Notes for Directory {
    fn excluded(&self) -> Vec<Exclusion> {
        self.excluded.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

/// Returns the first folder in the name of an object.
fn class_of(name: &str) -> Option<&str> {
    name.split_once('/').map(|(class, _)| class)
}

/// Returns all folders in the name of an object.
fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Compares object names in the order in which [`Listing::add_class_folder`] adds files.
fn in_order_of_a_walk(a: &str, b: &str) -> Ordering {
    let key = |name| (class_of(name), folder_of(name));
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}
