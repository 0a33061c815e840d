//! Pool of objects that threads share. A thread takes an object and returns it later.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Fixed number of interchangeable objects. The object that was returned longest ago is taken
/// first, because the device has most likely finished with it.
pub(in crate::loader) struct ObjectPool<T> {
    state: Mutex<ObjectPoolState<T>>,
    changed: Condvar,
}

struct ObjectPoolState<T> {
    things: VecDeque<T>,
    closed: bool,
}

impl<T> ObjectPool<T> {
    pub fn new(things: impl IntoIterator<Item = T>) -> Self {
        let state = ObjectPoolState { things: things.into_iter().collect(), closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits for an object. Returns `None` if the pool is closed, because no thread may return
    /// another object after that.
    pub fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(thing) = state.things.pop_front() {
                return Some(thing);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the first suitable object, or else the one that was returned longest ago. Does not
    /// wait.
    pub fn take_suited(&self, suits: impl Fn(&T) -> bool) -> Option<T> {
        let mut state = self.lock();
        let suited = state.things.iter().position(suits).unwrap_or(0);
        state.things.remove(suited)
    }

    pub fn put_back(&self, thing: T) {
        self.lock().things.push_back(thing);
        self.changed.notify_one();
    }

    /// Wakes all waiting threads; later calls of `take` return `None`.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ObjectPoolState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_returned_longest_ago_is_taken_first() {
        let pool = ObjectPool::new([1, 2, 3]);
        let first = pool.take().unwrap();
        pool.put_back(first);
        assert_eq!([pool.take(), pool.take(), pool.take()], [Some(2), Some(3), Some(1)]);
    }

    #[test]
    fn a_suitable_object_is_preferred() {
        let pool = ObjectPool::new([1, 2, 3]);
        assert_eq!(pool.take_suited(|&it| it == 2), Some(2));
        assert_eq!(pool.take_suited(|_| false), Some(1));
        assert_eq!(pool.take_suited(|_| true), Some(3));
        assert_eq!(pool.take_suited(|_| true), None);
    }

    #[test]
    fn closing_wakes_waiting_threads() {
        let pool = ObjectPool::<u8>::new([]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take());
            pool.close();
            assert_eq!(waiter.join().unwrap(), None);
        });
    }
}
