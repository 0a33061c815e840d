//! The numbers of allocations and allocated bytes of this process, which `glibc.rs` counts.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

pub static HELD: AtomicI64 = AtomicI64::new(0);
pub static MOST: AtomicI64 = AtomicI64::new(0);

thread_local! {
    pub static CALLS: Cell<i64> = const { Cell::new(0) };
}

/// Number of allocations of this thread so far.
pub fn calls() -> i64 {
    CALLS.get()
}

/// Runs `work`. Returns the maximum number of bytes that were allocated at once in addition to
/// those before, and the result of `work`.
pub fn most_during<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let made = work();
    (MOST.load(Ordering::Relaxed).saturating_sub(before).max(0) as u64, made)
}
