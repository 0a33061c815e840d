//! What happens to requests, for programs that show it.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::error::Redacted;

/// What happens to a request that does not simply succeed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestEvent {
    /// While a source is opened, a request has waited for an answer: told every three seconds of waiting.
    Waiting {
        /// What was asked for.
        url: Redacted,
        /// Since the attempt began.
        waited: Duration,
        /// The attempt, from 1 on.
        attempt: u32,
        /// Attempts that there are.
        attempts: u32,
    },
    /// An attempt has failed.
    Failed {
        /// What was asked for.
        url: Redacted,
        /// The attempt, from 1 on.
        attempt: u32,
        /// Attempts that there are.
        attempts: u32,
        /// What went wrong.
        problem: String,
        /// The pause until the next attempt; `None` where there is none.
        pause: Option<Duration>,
    },
}

type Watcher = Arc<dyn Fn(&RequestEvent) + Send + Sync>;

/// Who is told of the requests of a handle, if anybody is.
#[derive(Default)]
pub(super) struct Watch(RwLock<Option<Watcher>>);

impl Watch {
    /// From now on this one alone is told.
    pub fn set(&self, watcher: Watcher) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    /// Tells an event.
    #[cfg(feature = "remote")]
    pub fn tell(&self, event: impl FnOnce() -> RequestEvent) {
        let watcher = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(watcher) = watcher {
            watcher(&event());
        }
    }
}
