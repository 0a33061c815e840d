//! Records when fetched data arrive.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Arrival>>> = const { RefCell::new(None) };
}

/// Time of a request and time of the arrival of its data.
#[derive(Debug)]
pub(crate) struct Arrival {
    asked: Instant,
    /// Nanoseconds from the request to the arrival; 0 until data arrive.
    after: AtomicU64,
}

impl Arrival {
    /// Creates an `Arrival` whose request time is now.
    pub fn new() -> Self {
        Self { asked: Instant::now(), after: AtomicU64::new(0) }
    }

    /// Time of the request.
    pub fn asked(&self) -> Instant {
        self.asked
    }

    /// Time from the request until the last data arrived, or until the request failed. `None`
    /// before that, and if nothing was fetched.
    pub fn after(&self) -> Option<Duration> {
        let nanoseconds = self.after.load(Relaxed);
        (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
    }

    /// Records that data have arrived now. The last call counts.
    #[cfg(feature = "remote")]
    pub(super) fn tell(&self) {
        self.after.fetch_max((self.asked.elapsed().as_nanos() as u64).max(1), Relaxed);
    }
}

/// Runs `work`. Every fetch that it starts records its arrival in `arrival`.
pub(crate) fn telling<T>(arrival: &Arc<Arrival>, work: impl FnOnce() -> T) -> T {
    /// Restores the previous value when it is dropped, even if `work` panics.
    struct Before(Option<Arc<Arrival>>);
    impl Drop for Before {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _before = Before(CURRENT.replace(Some(arrival.clone())));
    work()
}

/// Returns the `Arrival` in which the fetches of this thread are currently recorded.
#[cfg(feature = "remote")]
pub(super) fn current() -> Option<Arc<Arrival>> {
    CURRENT.with_borrow(Clone::clone)
}

#[cfg(feature = "remote")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_told_and_nobody_else() {
        let (first, second) = (Arc::new(Arrival::new()), Arc::new(Arrival::new()));
        assert!(current().is_none());
        telling(&first, || {
            telling(&second, || current().unwrap().tell());
            assert!(first.after().is_none() && second.after().is_some());
            current().unwrap().tell();
        });
        assert!(current().is_none());
        let (early, began) = (first.after().unwrap(), Instant::now());
        first.tell();
        let late = first.after().unwrap();
        assert!(early <= late && first.asked() + early <= began, "the last of it counts");
    }
}
