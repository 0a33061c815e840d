//! One pack at a time in a directory.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use feedwater::error::{Error, Result};

/// Hidden, and left in place: removing a lock's file would let two processes hold it.
const NAME: &str = ".feedwater-pack.lock";

/// Held until it is dropped. The system gives it back when the process ends, however that comes.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a directory. On file systems without locks nobody is kept out.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where another pack holds it, with the number of its process.
    pub fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(NAME);
        let failed = |error| Error::io(&path, &error);
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(held(directory, file)),
            Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                return Err(failed(error));
            }
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let told = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        told.map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn held(directory: &Path, file: File) -> Error {
    let mut text = String::new();
    let _ = file.take(32).read_to_string(&mut text);
    let who = match text.trim().parse::<u32>() {
        Ok(process) => format!("process {process}"),
        Err(_) => "another process".into(),
    };
    let problem =
        format!("{who} is packing into this directory; wait for it, or name another directory");
    Error::Io { path: directory.into(), problem, source: None }
}
