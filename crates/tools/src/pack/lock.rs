//! Locks a directory while a process packs into it, so that no other process packs into it.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use feedwater::error::{Error, Result};
use feedwater::internals::file::open_own;

/// Name of the lock file. The file is never removed. Otherwise a process could hold the lock of the
/// removed file while another process creates and locks a new one.
const NAME: &str = ".feedwater-pack.lock";

/// Lock on a directory. It is released when it is dropped, or by the system when the process ends.
pub(super) struct Lock(File);

impl Lock {
    /// Locks a directory. Does nothing on file systems that do not support locks.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Io`] if another process packs into the directory. The message contains
    /// the ID of that process.
    pub fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(NAME);
        let failed = |error| Error::io(&path, &error);
        let mut file = open_own(&path).map_err(failed)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(held(directory, file)),
            Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                return Err(failed(error));
            }
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let told = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        told.map_err(failed)?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Unlock explicitly. Closing the file would not release the lock if another thread has just
        // forked a process: the child shares the open file until it executes its program or ends.
        let _ = self.0.unlock();
    }
}

fn held(directory: &Path, file: File) -> Error {
    let mut text = String::new();
    let _ = file.take(32).read_to_string(&mut text);
    let who = match text.trim().parse::<u32>() {
        Ok(process) => format!("process {process}"),
        Err(_) => "another process".into(),
    };
    let problem = format!(
        "{who} is packing into this directory; wait until it has finished, or name another \
             directory"
    );
    Error::Io { path: directory.into(), problem, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_released_while_a_started_process_has_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let lock = Lock::take(directory.path()).unwrap();
        assert!(Lock::take(directory.path()).is_err());
        // This copy of the file descriptor stands for the one that a forked process has.
        let _of_process = lock.0.try_clone().unwrap();
        drop(lock);
        Lock::take(directory.path()).unwrap();
    }
}
