//! Request events, for programs that display them.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::error::Redacted;

/// Event of a request that is not answered quickly or fails.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestEvent {
    /// A request waits for an answer while a source is being opened. Sent every three seconds.
    Waiting {
        /// URL of the request.
        url: Redacted,
        /// Time since the attempt began.
        waited: Duration,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Largest number of attempts.
        attempts: u32,
    },
    /// An attempt failed.
    Failed {
        /// URL of the request.
        url: Redacted,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Largest number of attempts.
        attempts: u32,
        /// Description of the failure.
        problem: String,
        /// Pause until the next attempt; `None` if there are no more attempts.
        pause: Option<Duration>,
    },
}

type Watcher = Arc<dyn Fn(&RequestEvent) + Send + Sync>;

/// Watcher of the requests of a handle, if set.
#[derive(Default)]
pub(super) struct RequestWatcher(RwLock<Option<Watcher>>);

impl RequestWatcher {
    /// Sets the watcher. It replaces an earlier watcher.
    pub fn set(&self, watcher: Watcher) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    /// Passes an event to the watcher.
    #[cfg(feature = "remote")]
    pub fn tell(&self, event: impl FnOnce() -> RequestEvent) {
        let watcher = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(watcher) = watcher {
            watcher(&event());
        }
    }
}
