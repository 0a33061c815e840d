//! A directory with one folder per class.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Configured, Expected, NoSettings, Page, Source, file, settings};
use crate::error::{Error, Fault, Result};
use crate::storage::{self, Stamp};

/// Pictures in class folders, as torchvision's `ImageFolder` sees them.
///
/// * Every folder directly in the directory is a class; classes are numbered in the byte order of their
///   names. Where there is no folder, the files of the directory itself are the samples, with label -1.
/// * The samples of a class are the regular files in its folder, and then those of its sub-folders, each
///   level in the byte order of names. Links are followed; a link to a folder above itself is not.
/// * Names that begin with a dot are not seen. The other names do not matter: what is a picture is known
///   by content, so a text file among the pictures is a sample that cannot be decoded.
/// * Files beside the class folders are not samples; [`Source::describe`] counts them.
/// * The directory may be a URL that can be listed (`s3://bucket/train`): one listing tells names, lengths and versions of
///   all objects, and a sample is one request. One that has changed since is a sample that cannot be read.
pub struct Directory {
    root: PathBuf,
    classes: Vec<String>,
    folders: Vec<Folder>,
    /// All file names, one after another.
    names: Vec<u8>,
    /// For each sample, the end of its name in `names`; it begins where the one before ends.
    ends: Vec<u64>,
    /// For each sample behind a URL, which version it is; empty where the files are local.
    stamps: Vec<Stamp>,
    largest_bytes: u64,
    beside: u64,
}

/// A run of samples in one folder.
struct Folder {
    path: PathBuf,
    label: i64,
    /// The first sample after it.
    end: u64,
}

impl Directory {
    /// Lists the directory. Fails where it cannot be read or holds no file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let root = path.as_ref().to_path_buf();
        let mut this = Self {
            root: root.clone(),
            classes: Vec::new(),
            folders: Vec::new(),
            names: Vec::new(),
            ends: Vec::new(),
            stamps: Vec::new(),
            largest_bytes: 0,
            beside: 0,
        };
        if storage::is_url(&root) {
            this.add_objects(storage::list_all(&root).map_err(|error| Error::io(&root, &error))?);
            return this.checked();
        }
        let top = list(&root)?;
        if top.folders.is_empty() {
            this.add_files(root.clone(), -1, &top.files);
        } else {
            this.beside = top.files.len() as u64;
            let above = &mut HashSet::from([identity(&root)?]);
            for (label, name) in top.folders.iter().enumerate() {
                this.classes.push(name.to_string_lossy().into_owned());
                this.walk(root.join(name), label as i64, above)?;
            }
        }
        this.largest_bytes = file::largest(this.len(), |index| this.path(index));
        this.checked()
    }

    fn checked(self) -> Result<Self> {
        if self.ends.is_empty() {
            let problem = format!("no files in {} or in its folders", self.root.display());
            return Err(Error::config("source.directory", problem));
        }
        Ok(self)
    }

    /// The path of a sample.
    pub fn path(&self, index: u64) -> PathBuf {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        let name = &self.names[start..self.ends[index] as usize];
        self.folder(index as u64).path.join(std::ffi::OsStr::from_bytes(name))
    }

    fn folder(&self, index: u64) -> &Folder {
        &self.folders[self.folders.partition_point(|folder| folder.end <= index)]
    }

    fn walk(&mut self, path: PathBuf, label: i64, above: &mut HashSet<(u64, u64)>) -> Result<()> {
        let identity = identity(&path)?;
        if !above.insert(identity) {
            return Ok(());
        }
        let entries = list(&path)?;
        self.add_files(path.clone(), label, &entries.files);
        for name in &entries.folders {
            self.walk(path.join(name), label, above)?;
        }
        above.remove(&identity);
        Ok(())
    }

    /// What a walk over folders finds, from one flat list.
    fn add_objects(&mut self, mut objects: Vec<(String, Stamp)>) {
        if objects.iter().any(|(name, _)| name.contains('/')) {
            let all = objects.len();
            objects.retain(|(name, _)| name.contains('/'));
            self.beside = (all - objects.len()) as u64;
        }
        objects.sort_unstable_by(|(a, _), (b, _)| in_order_of_a_walk(a, b));
        let parts = |name: &str| match name.rsplit_once('/') {
            Some((folder, file)) => (folder.to_string(), file.to_string()),
            None => (String::new(), name.to_string()),
        };
        for run in objects.chunk_by(|(a, _), (b, _)| parts(a).0 == parts(b).0) {
            let (folder, _) = parts(&run[0].0);
            let label = match folder.split('/').next() {
                None | Some("") => -1,
                Some(class) => {
                    if self.classes.last().is_none_or(|last| last != class) {
                        self.classes.push(class.to_string());
                    }
                    self.classes.len() as i64 - 1
                }
            };
            let names: Vec<_> = run.iter().map(|(name, _)| OsString::from(parts(name).1)).collect();
            let path = if folder.is_empty() { self.root.clone() } else { self.root.join(folder) };
            self.add_files(path, label, &names);
            self.stamps.extend(run.iter().map(|(_, stamp)| *stamp));
        }
        self.largest_bytes = self.stamps.iter().map(|stamp| stamp.len).max().unwrap_or(0);
    }

    fn add_files(&mut self, path: PathBuf, label: i64, files: &[OsString]) {
        for name in files {
            self.names.extend_from_slice(name.as_bytes());
            self.ends.push(self.names.len() as u64);
        }
        if !files.is_empty() {
            self.folders.push(Folder { path, label, end: self.ends.len() as u64 });
        }
    }
}

impl Configured for Directory {
    const KEY: &'static str = "directory";
    type Settings = NoSettings;

    fn open(paths: &[PathBuf], _: &NoSettings) -> Result<Self> {
        Self::open(settings::only(Self::KEY, paths)?)
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
        self.path(index).to_string_lossy().into_owned()
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), Fault> {
        let path = self.path(index);
        match self.stamps.get(index as usize) {
            Some(stamp) => file::read_object(&path, Some(*stamp), page, limit),
            None => file::read(&path, page, limit),
        }
    }

    fn is_remote(&self) -> bool {
        !self.stamps.is_empty()
    }

    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        let stamp = *self.stamps.get(index as usize)?;
        Some(file::expect(self.path(index), Some(stamp), limit))
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn largest_bytes(&self) -> u64 {
        self.largest_bytes
    }

    fn memory_bytes(&self) -> u64 {
        let stamps = self.stamps.capacity() * size_of::<Stamp>();
        (self.names.capacity() + self.ends.capacity() * size_of::<u64>() + stamps) as u64
    }

    fn describe(&self) -> String {
        let mut text = format!(
            "{}: {} files in {} classes",
            self.root.display(),
            self.ends.len(),
            self.classes.len()
        );
        if self.beside > 0 {
            text += &format!(" ({} files beside the class folders are not samples)", self.beside);
        }
        text
    }
}

/// The order in which a walk comes to files: those of a folder before those of its sub-folders, each in byte order.
fn in_order_of_a_walk(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('/').peekable(), b.split('/').peekable());
    loop {
        let (Some(first), Some(second)) = (a.next(), b.next()) else { return Ordering::Equal };
        match (a.peek().is_some(), b.peek().is_some()) {
            (false, true) => return Ordering::Less,
            (true, false) => return Ordering::Greater,
            _ => match first.cmp(second) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

struct Entries {
    files: Vec<OsString>,
    folders: Vec<OsString>,
}

/// Device and inode: what a folder is, whatever the path that led to it.
fn identity(path: &Path) -> Result<(u64, u64)> {
    let metadata = fs::metadata(path).map_err(|error| Error::io(path, &error))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The visible entries of a folder, each sort in byte order. A link that leads nowhere is a sample that cannot be read:
/// its policy decides, not the listing.
fn list(path: &Path) -> Result<Entries> {
    let entries = storage::list(path).map_err(|error| Error::io(path, &error))?;
    let (folders, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|it| it.folder);
    let names = |entries: Vec<storage::Entry>| entries.into_iter().map(|it| it.name).collect();
    Ok(Entries { files: names(files), folders: names(folders) })
}
