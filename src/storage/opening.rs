//! The opening of a source: a server that answers nothing ends it soon, whatever is still to be asked.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Opening>>> = const { RefCell::new(None) };
}

/// What the requests of an opening know of each other.
#[derive(Debug, Default)]
pub struct Opening {
    /// What the first request said that was given up since nothing answered.
    failed: OnceLock<String>,
}

/// The opening that this thread works for, for threads that help it.
#[derive(Clone, Debug)]
pub(crate) struct OpeningOf(Option<Arc<Opening>>);

impl Opening {
    /// Why no more is asked, where a request was given up.
    #[cfg(feature = "remote")]
    pub fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// A request was given up: all others are, too.
    #[cfg(feature = "remote")]
    pub fn fail(&self, problem: &str) {
        // The first one counts.
        let _ = self.failed.set(problem.into());
    }
}

/// Does the work of opening a source. While it lasts a request has `storage.open_timeout` for all of its attempts, and the
/// first that is given up since the server is silent ends all others. An opening within another one belongs to that.
///
/// # Errors
///
/// That of the work; [`Error::Unavailable`] where the work went on although a request was given up.
pub(crate) fn opening<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let current = OpeningOf::current().0.unwrap_or_default();
    let done = OpeningOf(Some(current.clone())).within(work)?;
    match current.failed.get() {
        Some(problem) => Err(Error::unavailable("a server", problem.clone())),
        None => Ok(done),
    }
}

impl OpeningOf {
    /// That of this thread.
    pub fn current() -> Self {
        Self(CURRENT.with_borrow(Clone::clone))
    }

    /// Does the work for this opening.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Puts back what held before, also after a panic.
        struct Before(Option<Arc<Opening>>);
        impl Drop for Before {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _before = Before(CURRENT.replace(self.0.clone()));
        work()
    }

    /// The opening, where there is one.
    #[cfg(feature = "remote")]
    pub fn opening(self) -> Option<Arc<Opening>> {
        self.0
    }
}

#[cfg(all(test, feature = "remote"))]
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
