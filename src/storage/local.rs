//! Local files, read with `pread`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::facts;
use super::pool::{self, Pooled, with_descriptors};
use super::{Entry, Identity, Stamp};

#[derive(Debug)]
pub struct File(Descriptor);

#[derive(Debug)]
enum Descriptor {
    Own(fs::File),
    Pooled(Pooled),
}

impl File {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Descriptor::Own(regular(path)?)))
    }

    /// Opens a file with a descriptor from the pool.
    pub fn open_pooled(path: &Path) -> io::Result<Self> {
        Ok(Self(Descriptor::Pooled(Pooled::new(path, regular(path)?)?)))
    }

    /// Runs `work` with the file's descriptor.
    pub fn with<T>(&self, work: impl FnOnce(&fs::File) -> io::Result<T>) -> io::Result<T> {
        match &self.0 {
            Descriptor::Own(file) => work(file),
            Descriptor::Pooled(file) => file.with(work),
        }
    }

    pub fn stamp(&self) -> io::Result<Stamp> {
        self.with(facts::stamp)
    }

    pub fn identity(&self) -> io::Result<Identity> {
        self.with(facts::identity)
    }

    /// Memory in addition to the struct itself, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        match &self.0 {
            Descriptor::Own(_) => 0,
            Descriptor::Pooled(file) => file.memory_bytes(),
        }
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|file| {
            let mut len = 0;
            while len < buffer.len() {
                match file.read_at(&mut buffer[len..], offset + len as u64) {
                    Ok(0) => break,
                    Ok(count) => len += count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(len)
        })
    }
}

fn regular(path: &Path) -> io::Result<fs::File> {
    crate::file::regular(path, pool::open(path))
}

pub fn len(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.len())
}

/// Lists the files and folders of a folder, and the names of all other entries. The order is
/// unspecified.
pub fn list(folder: &Path) -> io::Result<(Vec<Entry>, Vec<OsString>)> {
    let (mut entries, mut special) = (Vec::new(), Vec::new());
    for entry in with_descriptors(|| fs::read_dir(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        let mut kind = entry.file_type()?;
        if kind.is_symlink() {
            match fs::metadata(entry.path()) {
                Ok(metadata) => kind = metadata.file_type(),
                // If the target of a link cannot be determined, the link is listed as a file.
                // Reading it reports the error.
                Err(_) => {
                    entries.push(Entry { name, folder: false });
                    continue;
                }
            }
        }
        if kind.is_dir() || kind.is_file() {
            entries.push(Entry { name, folder: kind.is_dir() });
        } else {
            special.push(name);
        }
    }
    Ok((entries, special))
}
