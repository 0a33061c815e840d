//! Lets another thread cancel the waits of a thread.

use std::cell::RefCell;
#[cfg(feature = "remote")]
use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "remote")]
use std::sync::{
    atomic::Ordering,
    mpsc::{Receiver, RecvTimeoutError},
};
#[cfg(feature = "remote")]
use std::time::Duration;

thread_local! {
    static GIVEN_UP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Interval at which a waiting thread checks for cancellation.
#[cfg(feature = "remote")]
const LOOK: Duration = Duration::from_millis(20);

/// Runs `work`. After `given_up` is set, every wait for a server within `work` soon ends with an
/// error.
pub(crate) fn cancellable<T>(given_up: &Arc<AtomicBool>, work: impl FnOnce() -> T) -> T {
    /// Restores the previous value when it is dropped, even if `work` panics.
    struct Before(Option<Arc<AtomicBool>>);
    impl Drop for Before {
        fn drop(&mut self) {
            GIVEN_UP.set(self.0.take());
        }
    }
    let _before = Before(GIVEN_UP.replace(Some(given_up.clone())));
    work()
}

/// Receives the answer of another thread, or returns an error if the request is cancelled.
#[cfg(feature = "remote")]
pub(super) fn receive<T>(answer: &Receiver<Result<T>>) -> Result<T> {
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let given_up = |it: &Arc<AtomicBool>| it.load(Ordering::Acquire);
        if GIVEN_UP.with_borrow(|it| it.as_ref().is_some_and(given_up)) {
            break;
        }
    }
    Err(Error::other("the request was cancelled"))
}

#[cfg(feature = "remote")]
#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_wait_ends_when_it_is_given_up_and_not_before() {
        let given_up = Arc::new(AtomicBool::new(false));
        let (sender, answer) = sync_channel::<Result<u8>>(1);
        let answer = std::sync::Mutex::new(answer);
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| cancellable(&given_up, || receive(&answer.lock().unwrap())));
            std::thread::sleep(3 * LOOK);
            assert!(!waiting.is_finished());
            given_up.store(true, Ordering::Release);
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::Other, "{error}");
        });
        // After `cancellable` returns, the flag has no effect.
        cancellable(&given_up, || ());
        sender.send(Ok(7)).unwrap();
        assert_eq!(receive(&answer.lock().unwrap()).unwrap(), 7);
    }
}
