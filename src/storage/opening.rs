//! State of the requests that are sent while a source is opened. If a server does not answer,
//! opening fails soon, even if other requests are pending.

use std::cell::RefCell;
#[cfg(feature = "remote")]
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Opening>>> = const { RefCell::new(None) };
}

/// State that is shared by all requests that are sent while one source is opened.
#[derive(Debug, Default)]
pub struct Opening {
    /// Error of the first request that was cancelled because no server answered.
    failed: OnceLock<String>,
    /// Number of requests that were cancelled.
    #[cfg(feature = "remote")]
    failures: AtomicU32,
    /// Number of requests that may be cancelled before all other requests are cancelled too.
    #[cfg(feature = "remote")]
    allowed: u32,
}

/// Number of unanswered requests that [`opening_apart`] tolerates. It is more than zero, because a
/// list may name a few dead hosts. It is small, because each of these requests may take
/// `storage.open_timeout`.
#[cfg(feature = "remote")]
const ALLOWED_APART: u32 = 4;

/// State of the source opening in which this thread takes part. It is passed to helper threads.
#[derive(Clone, Debug)]
pub(crate) struct OpeningOf(Option<Arc<Opening>>);

impl Opening {
    /// Returns the reason why no more requests are sent, if too many requests were cancelled.
    #[cfg(feature = "remote")]
    pub fn failure(&self) -> Option<&str> {
        let is_over = self.allowed == 0 || self.failures.load(Ordering::Acquire) > self.allowed;
        self.failed.get().filter(|_| is_over).map(String::as_str)
    }

    /// Records that a request was cancelled. If more requests were cancelled than allowed, all
    /// others are cancelled.
    #[cfg(feature = "remote")]
    pub fn fail(&self, problem: &str) {
        // `set` fails if a problem is already stored. The first problem is kept.
        let _ = self.failed.set(problem.into());
        self.failures.fetch_add(1, Ordering::AcqRel);
    }
}

/// Runs `work`, which opens a source. Within `work`, each request has `storage.open_timeout` for
/// all its attempts. The first request that gets no answer cancels all others. If this thread is
/// already opening a source, `work` is part of that opening.
///
/// # Errors
///
/// Returns the errors of `work`, or [`Error::Unavailable`] if `work` succeeded although a request
/// was cancelled.
pub(crate) fn opening<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let current = OpeningOf::current().0.unwrap_or_default();
    let done = OpeningOf(Some(current.clone())).within(work)?;
    match current.failed.get() {
        Some(problem) => Err(Error::unavailable("a server", problem.clone())),
        None => Ok(done),
    }
}

/// Whether this thread opens a source or starts a loader. If so, the data that it reads are not for
/// a batch.
#[doc(hidden)]
pub fn is_opening() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Runs `work`. If its requests fail, the source that this thread opens does not fail. Also returns
/// the reason if a request was cancelled because no server answered. Up to [`ALLOWED_APART`]
/// unanswered requests do not cancel the other requests of `work`.
pub(crate) fn opening_apart<T>(work: impl FnOnce() -> T) -> (T, Option<String>) {
    let own = Arc::new(Opening {
        #[cfg(feature = "remote")]
        allowed: ALLOWED_APART,
        ..Opening::default()
    });
    let done = OpeningOf(Some(own.clone())).within(work);
    (done, own.failed.get().cloned())
}

/// Makes opening the source fail, if this thread is opening a source.
pub(crate) fn fail_opening(problem: String) {
    if let Some(opening) = OpeningOf::current().0 {
        // `set` fails if a problem is already stored. The earlier problem is kept.
        let _ = opening.failed.set(problem);
    }
}

impl OpeningOf {
    /// Returns the state of the source opening in which this thread takes part, if any.
    pub fn current() -> Self {
        Self(CURRENT.with_borrow(Clone::clone))
    }

    /// Runs `work` on this thread as part of the source opening that `self` stands for.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Restores the previous value when it is dropped, even if `work` panics.
        struct Before(Option<Arc<Opening>>);
        impl Drop for Before {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _before = Before(CURRENT.replace(self.0.clone()));
        work()
    }

    /// Returns the state that the requests for opening a source share, if this thread was opening a
    /// source.
    #[cfg(feature = "remote")]
    pub fn opening(self) -> Option<Arc<Opening>> {
        self.0
    }
}

#[cfg(feature = "remote")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_within_another_is_a_part_of_it_and_helpers_belong_to_it() {
        let current = || OpeningOf::current().opening();
        assert!(current().is_none());
        let outer = opening(|| {
            let outer = OpeningOf::current();
            let inner = opening(|| {
                current().unwrap().fail("first");
                Ok(())
            });
            std::thread::scope(|scope| {
                let helper = scope.spawn(|| outer.within(|| current().unwrap().fail("second")));
                helper.join().unwrap();
            });
            assert_eq!(current().unwrap().failure(), Some("first"));
            assert!(matches!(inner, Err(Error::Unavailable { reason, .. }) if reason == "first"));
            Ok(())
        });
        assert!(outer.is_err() && current().is_none());
        let next = opening(|| Ok(current().unwrap().failure().is_none())).unwrap();
        assert!(next);
    }
}
