//! A loader in a child process after `fork`. The child has copies of all locks but not of the
//! parent's other threads. A lock that such a thread held at the fork is never released in the
//! child.

use super::Loader;
use crate::error::{Error, Result};

impl Loader {
    /// Checks that this process built the loader. A child must not wait for a lock that a thread of
    /// its parent held.
    ///
    /// # Errors
    /// [`Error::Forked`] in any process that did not build the loader.
    pub(in crate::loader) fn check_process(&self) -> Result<()> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(Error::Forked { built_in: self.process }),
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // After a `fork`, the child process must not join threads, wait for locks or call the
            // device. So one reference to each of these parts is leaked, which keeps the part
            // alive.
            let threads = (self.tuning.take(), self.watch.take());
            let shared = (self.engine.clone(), self.gpu.clone(), self.prefetcher.clone());
            let data = (self.source.clone(), self.meters.clone(), self.caches.clone());
            std::mem::forget((threads, shared, data));
        }
    }
}
