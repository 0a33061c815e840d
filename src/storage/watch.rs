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

static WATCHER: RwLock<Option<Watcher>> = RwLock::new(None);

/// Calls this function, in the place of one that was given before, for every event of a request of this process. It is called
/// by the threads that talk to servers, so it must not wait, and must not read from URLs. Without one nothing is printed.
pub fn watch_requests(watcher: impl Fn(&RequestEvent) + Send + Sync + 'static) {
    *WATCHER.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(watcher));
}

/// Tells an event.
#[cfg(feature = "remote")]
pub(super) fn tell(event: impl FnOnce() -> RequestEvent) {
    let watcher = WATCHER.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(watcher) = watcher {
        watcher(&event());
    }
}
