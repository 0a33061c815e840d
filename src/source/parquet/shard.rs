//! One Parquet file and its errors.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::error::{DataError, Error, Reason};
use crate::storage::{File, Stamp, Storage};

/// One of the source's files. `stamp` is its length and version at the time of opening.
pub struct Shard {
    pub path: PathBuf,
    pub stamp: Stamp,
    file: File,
}

/// Error in a file, with the byte offset.
#[derive(Clone, Debug)]
pub struct FileError {
    pub reason: Reason,
    pub offset: u64,
    /// Error message with a remedy.
    pub problem: String,
}

impl Shard {
    pub fn open(storage: &Storage, path: &Path) -> Result<Self, Error> {
        let io = |error: io::Error| Error::io(path, &error);
        let file = storage.open_pooled(path).map_err(io)?;
        let stamp = file.stamp().map_err(io)?;
        Ok(Self { path: path.into(), stamp, file })
    }

    /// Allocated memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.path.capacity() as u64 + self.file.memory_bytes()
    }

    /// Reads bytes of the file. Checks that the file has not changed since it was opened.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), FileError> {
        self.reads(|read| read(bytes, offset))
    }

    /// Runs `with`, which may read any number of times. Checks once at the end that the file has
    /// not changed.
    pub fn reads<T>(
        &self,
        with: impl FnOnce(&dyn Fn(&mut [u8], u64) -> Result<(), FileError>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let io = |offset| {
            move |error: io::Error| FileError {
                reason: Reason::Unreadable,
                offset,
                problem: error.to_string(),
            }
        };
        let file = &self.file;
        let done = with(&|bytes, offset| {
            file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => {
                    let end = offset + bytes.len() as u64;
                    let problem =
                        format!("the file ends before byte {end}: it was truncated; copy it again");
                    FileError { reason: Reason::Truncated, offset, problem }
                }
                _ => io(offset)(error),
            })
        })?;
        if file.stamp().map_err(io(0))? != self.stamp {
            let problem = "the file was changed after it was opened; open the source again".into();
            return Err(FileError { reason: Reason::Unreadable, offset: 0, problem });
        }
        Ok(done)
    }
}

impl FileError {
    pub fn corrupt(offset: u64, problem: impl Into<String>) -> Self {
        Self { reason: Reason::Corrupt, offset, problem: problem.into() }
    }

    pub fn unsupported(offset: u64, problem: impl Into<String>) -> Self {
        Self { reason: Reason::Unsupported, offset, problem: problem.into() }
    }

    /// Converts to an error that names the file.
    pub fn into_error(self, path: &Path) -> Error {
        let Self { reason, offset, problem } = self;
        match reason {
            Reason::Unreadable => Error::io(path, &io::Error::other(problem)),
            _ => {
                let place = format!("source.parquet: {}, byte {offset}", path.display());
                Error::config(place, problem)
            }
        }
    }
}

impl From<FileError> for DataError {
    fn from(wrong: FileError) -> Self {
        Self::new(wrong.reason, format!("byte {}: {}", wrong.offset, wrong.problem))
    }
}
