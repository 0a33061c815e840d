//! Ending a loader from another thread.

use std::fmt;
use std::sync::Arc;

/// Ends a loader from any thread, also while the consumer waits for a batch: for a handler of signals, a watchdog, a
/// button. Made by [`Loader::stopper`](super::Loader::stopper); it does not keep the loader's memory.
#[derive(Clone)]
pub struct Stopper(pub(super) Arc<dyn Fn() + Send + Sync>);

impl Stopper {
    /// Ends the loader: after the batches that are ready the consumer gets [`Error::Stopped`](crate::Error::Stopped),
    /// without waiting for reads that are under way. Does nothing where the loader has ended already.
    pub fn stop(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}
