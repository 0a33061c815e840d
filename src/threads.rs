//! Runs parts of a task on separate threads, and creates the error for a thread that the system
//! refuses to start.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::error::Error;

/// Runs `work` with each number below `parts`, in parallel. Returns the results in order. If a part
/// panics, the panic is its result.
///
/// The calling thread runs part 0. If the system starts no more threads, it also runs the remaining
/// parts, one after another. The result is the same. Parts must not wait for each other.
pub fn in_parts<T: Send>(parts: usize, work: impl Fn(usize) -> T + Sync) -> Vec<thread::Result<T>> {
    let guarded = |part| catch_unwind(AssertUnwindSafe(|| work(part)));
    let guarded = &guarded;
    thread::scope(|scope| {
        let start = |part| {
            let thread = thread::Builder::new().name(format!("feedwater-part-{part}"));
            thread.spawn_scoped(scope, move || guarded(part)).ok()
        };
        let threads: Vec<_> = (1..parts).map_while(start).collect();
        let here = (0..parts.min(1)).map(guarded).collect::<Vec<_>>();
        let rest: Vec<_> = (1 + threads.len()..parts).map(guarded).collect();
        let threads = threads.into_iter().map(|it| it.join().flatten());
        here.into_iter().chain(threads).chain(rest).collect()
    })
}

/// Returns how many of `wanted` threads the system starts at the same time. All of them have ended
/// on return.
pub fn startable(wanted: usize) -> usize {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = std::sync::Mutex::new(receiver);
    let wait = || drop(receiver.lock().map(|it| it.recv()));
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, wait).ok();
        let started = (0..wanted).map_while(start).count();
        drop(sender);
        started
    })
}

/// Creates the error for a thread that the system refuses to start. `way_out` names settings that
/// need fewer threads.
pub fn refused(name: &str, error: &io::Error, way_out: &str) -> Error {
    let reason = format!(
        "the thread {name} cannot be started: {error}; {way_out}, or allow more threads or memory \
         (ulimit -u, ulimit -v, pids.max of the container)"
    );
    Error::unavailable("a thread", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_once_and_a_panic_is_its_result() {
        for parts in [0, 1, 2, 17] {
            let found = in_parts(parts, |part| part * part).into_iter().map(Result::unwrap);
            assert!(found.eq((0..parts).map(|part| part * part)));
        }
        let found = in_parts(3, |part| assert_ne!(part, 1));
        assert_eq!(found.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!((startable(0), startable(3)), (0, 3));
    }
}
