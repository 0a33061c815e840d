//! Python's state of a thread that Python did not start. The only `unsafe` of the package beside `capsule`.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

/// Whether the interpreter is about to end, which frees all states itself.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Keeps this thread's state until the thread ends. Without it each call of Python makes one and deletes it: values of
/// `threading.local` would last for one item, and `fork` in another thread could meet a state that is half made, because states are
/// made without the interpreter's lock.
pub fn keep() {
    thread_local! {
        static KEPT: Kept = Kept::new();
    }
    KEPT.with(|_| ());
}

/// Says that the interpreter is about to end.
pub fn end() {
    ENDS.store(true, Ordering::Release);
}

/// Whether this thread has a state that is to be released.
struct Kept(bool);

impl Kept {
    fn new() -> Self {
        // SAFETY: any thread may ask. The interpreter has been initialized, as this is called by code that it has loaded.
        let has_one = unsafe { ffi::PyGILState_GetThisThreadState() };
        if has_one.is_null() {
            // SAFETY: the interpreter has been initialized. The state that is made stays with the count of one that `drop` takes away;
            // `PyEval_SaveThread` releases the lock that was just taken, and the state is found again by its thread.
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
                // SAFETY: this thread holds the lock, and `new` has counted its state once more than this call of `try_attach`. `LOCKED`
                // takes that count away and keeps the lock, which `try_attach` releases together with the state.
                unsafe { ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED) }
            });
        }
    }
}
