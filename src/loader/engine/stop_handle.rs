//! Ending a loader from another thread.

use std::fmt;
use std::sync::Arc;

/// Handle that ends a loader from any thread, even while the consumer waits for a batch. Useful for
/// signal handlers, watchdogs or a button. Created by
/// [`Loader::stop_handle`](crate::loader::Loader::stop_handle). Does not keep the loader's memory
/// alive.
#[derive(Clone)]
pub struct StopHandle(pub(in crate::loader) Arc<dyn Fn() + Send + Sync>);

impl StopHandle {
    /// Ends the loader. The consumer still gets the batches that are ready, then
    /// [`Error::Stopped`](crate::Error::Stopped). Does not wait for running reads. Does nothing if
    /// the loader has already ended.
    pub fn stop(&self) {
        (self.0)();
    }
}

impl fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StopHandle")
    }
}
