//! Settings that change while a loader runs: the number of active workers, and which part of the
//! work runs on the device.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::plan::Offload;

/// Settings that every worker reads before each sample.
pub(super) struct Controls {
    pub gate: Gate,
    /// Part of the work that runs on the device, packed into one word, so no thread reads a
    /// half-changed value. The word is twice the number of operators on the device, plus one if
    /// decoding is also on the device.
    offload: AtomicUsize,
}

impl Controls {
    pub fn new(workers: usize, offload: Offload) -> Self {
        let controls = Self { gate: Gate::new(workers), offload: AtomicUsize::new(0) };
        controls.set_offload(offload);
        controls
    }

    /// Part of the work that currently runs on the device.
    pub fn offload(&self) -> Offload {
        let word = self.offload.load(Ordering::Relaxed);
        Offload { operators: word / 2, decode: word % 2 == 1 }
    }

    pub fn set_offload(&self, Offload { operators, decode }: Offload) {
        self.offload.store(2 * operators + usize::from(decode), Ordering::Relaxed);
    }
}

/// Lets the first `open` workers run and blocks the others between samples.
pub(super) struct Gate {
    /// Number of active workers. Changed only under the lock, so a thread that is about to wait
    /// sees the change.
    open: AtomicUsize,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub fn new(open: usize) -> Self {
        Self { open: AtomicUsize::new(open), closed: Mutex::new(false), changed: Condvar::new() }
    }

    /// Number of active workers.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Sets the number of active workers. A worker that becomes inactive finishes its sample first.
    pub fn set(&self, open: usize) {
        let _closed = self.lock();
        self.open.store(open, Ordering::Release);
        self.changed.notify_all();
    }

    /// Wakes all waiting workers at the end of the loader.
    pub fn close(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until worker `number`, from 0, is active. Returns false if the gate was closed.
    pub fn pass(&self, number: usize) -> bool {
        if number < self.open() {
            return true;
        }
        let waits = |closed: &mut bool| !*closed && number >= self.open();
        let closed = self.changed.wait_while(self.lock(), waits);
        !*closed.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn workers_wait_until_they_are_active_or_the_gate_closes() {
        let gate = Arc::new(Gate::new(1));
        assert!(gate.pass(0));
        let (sender, passed) = channel();
        let threads: Vec<_> = (1..4)
            .map(|number| {
                let (gate, sender) = (gate.clone(), sender.clone());
                thread::spawn(move || sender.send((number, gate.pass(number))).unwrap())
            })
            .collect();
        gate.set(3);
        let mut first = [passed.recv().unwrap(), passed.recv().unwrap()];
        first.sort_unstable();
        assert_eq!(first, [(1, true), (2, true)]);
        assert!(passed.try_recv().is_err(), "the fourth waits");
        gate.close();
        assert_eq!(passed.recv().unwrap(), (3, false));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn offload_returns_the_value_that_was_set() {
        for (operators, decode) in [(0, false), (1, false), (3, false), (3, true)] {
            let offload = Offload { operators, decode };
            let controls = Controls::new(1, Offload { operators: 5, decode: true });
            controls.set_offload(offload);
            assert_eq!(controls.offload(), offload);
        }
    }
}
