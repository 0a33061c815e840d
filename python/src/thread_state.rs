//! Keeps Python's state of threads that Python did not start. Only this module and `capsule` use
//! `unsafe`.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

/// Whether the interpreter is about to end. The interpreter then frees all thread states itself.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Keeps this thread's Python state until the thread ends. Without this, each call of Python would
/// create and delete a state. Values of `threading.local` would then last for one item only. Also,
/// `fork` in another thread could copy a half-created state, because states are created without the
/// interpreter's lock.
pub fn keep() {
    thread_local! {
        static KEPT: Kept = Kept::new();
    }
    KEPT.with(|_| ());
}

/// Records that the interpreter is about to end.
pub fn end() {
    ENDS.store(true, Ordering::Release);
}

/// Whether this thread must release its state at its end.
struct Kept(bool);

impl Kept {
    fn new() -> Self {
        // SAFETY: any thread may call this. The interpreter is initialized, because it has loaded
        // this code.
        let has_one = unsafe { ffi::PyGILState_GetThisThreadState() };
        if has_one.is_null() {
            // SAFETY: the interpreter is initialized. The created state keeps a count of one, which
            // `drop` takes away. `PyEval_SaveThread` releases the lock that was just taken. Python
            // finds the state again by its thread.
            unsafe {
                ffi::PyGILState_Ensure();
                ffi::PyEval_SaveThread();
            }
        }
        Self(has_one.is_null())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.0 && !ENDS.load(Ordering::Acquire) {
            Python::try_attach(|_| {
                // SAFETY: `try_attach` holds the lock. It has counted the state once, and `new` has
                // counted it once before. Releasing with `LOCKED` removes the count of `new` and
                // keeps the lock. `try_attach` then releases the lock and the state.
                unsafe { ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED) }
            });
        }
    }
}
