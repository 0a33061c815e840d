//! Files of the machine, read with `pread`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::{Entry, Stamp};

#[derive(Debug)]
pub struct File(pub(super) fs::File);

impl File {
    pub fn open(path: &Path) -> io::Result<Self> {
        // Without waiting: a pipe without a writer would hold up the thread for ever.
        let file = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        // A socket cannot be opened, and the system's words for that are of devices.
        let kind = match &file {
            Ok(file) => file.metadata()?.file_type(),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                fs::metadata(path)?.file_type()
            }
            Err(_) => return Ok(Self(file?)),
        };
        match kind.is_file() {
            true => Ok(Self(file?)),
            false => {
                let words = format!("not a regular file but {}", name_of(kind));
                Err(io::Error::other(words))
            }
        }
    }

    pub fn stamp(&self) -> io::Result<Stamp> {
        // `fs::File::metadata` asks for more, a third slower; this is asked after every read.
        let facts = rustix::fs::fstat(&self.0)?;
        let version = [facts.st_mtime as u64, facts.st_mtime_nsec as u64];
        Ok(Stamp { len: facts.st_size as u64, version })
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut len = 0;
        while len < buffer.len() {
            match self.0.read_at(&mut buffer[len..], offset + len as u64) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }
}

pub fn stamp(path: &Path) -> io::Result<Stamp> {
    let facts = rustix::fs::stat(path)?;
    let version = [facts.st_mtime as u64, facts.st_mtime_nsec as u64];
    Ok(Stamp { len: facts.st_size as u64, version })
}

pub fn len(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.len())
}

fn name_of(kind: fs::FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Files and folders, and the names of what is neither; in no order.
pub fn list(folder: &Path) -> io::Result<(Vec<Entry>, Vec<OsString>)> {
    let (mut entries, mut special) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        let mut kind = entry.file_type()?;
        if kind.is_symlink() {
            match fs::metadata(entry.path()) {
                Ok(metadata) => kind = metadata.file_type(),
                // Whoever reads it will be told; the listing does not decide.
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
