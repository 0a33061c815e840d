//! Request events, for programs that show them.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::error::Redacted;

/// Event of a request that does not succeed at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestEvent {
    /// A request is waiting for an answer while a source is opened. Sent every three seconds.
    Waiting {
        /// Requested URL.
        url: Redacted,
        /// Time since the attempt began.
        waited: Duration,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Maximum number of attempts.
        attempts: u32,
    },
    /// An attempt failed.
    Failed {
        /// Requested URL.
        url: Redacted,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Maximum number of attempts.
        attempts: u32,
        /// What went wrong.
        problem: String,
        /// Pause until the next attempt. `None` if there is none.
        pause: Option<Duration>,
    },
}

type Watcher = Arc<dyn Fn(&RequestEvent) + Send + Sync>;

/// Watcher of a handle's requests, if set.
#[derive(Default)]
pub(super) struct Watch(RwLock<Option<Watcher>>);

impl Watch {
    /// Sets the watcher, replacing an earlier one.
    pub fn set(&self, watcher: Watcher) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    /// Sends an event to the watcher.
    #[cfg(feature = "remote")]
    pub fn tell(&self, event: impl FnOnce() -> RequestEvent) {
        let watcher = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(watcher) = watcher {
            watcher(&event());
        }
    }
}
