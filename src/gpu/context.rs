//! The calling thread's current context.
//!
//! CUDA gives every thread one current context, which frameworks in the process use too: after `torch.cuda.set_device(1)`
//! their calls go to GPU 1 because its context is current. So every function of this crate that calls the driver enters
//! the device's context and restores the previous one before it returns. Threads of this crate bind their device once
//! ([`Device::adopt_thread`]), and entering costs them one query.

use std::ffi::c_int;
use std::ptr;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::{Device, LibraryName, driver, library};
use crate::error::Result;

/// `CU_STREAM_CAPTURE_MODE_RELAXED` of cuda.h.
const RELAXED: c_int = 2;

/// The time during which a device's context is current on the calling thread. Dropping it restores the context that
/// was current before.
#[derive(Debug)]
#[must_use = "the context is current only until this is dropped"]
pub(super) struct Entered {
    /// Null for none. `None` if there is nothing to restore. The pointer keeps this on its thread.
    before: Option<sys::CUcontext>,
}

impl Device {
    /// Makes this device current on the calling thread until the result is dropped.
    pub(super) fn enter(&self) -> Result<Entered> {
        let before = twice(result::ctx::get_current);
        if before == Ok(Some(self.context)) {
            return Ok(Entered { before: None });
        }
        self.bind()?;
        // If the query failed, the previous context is not known.
        Ok(Entered { before: before.ok().map(|context| context.unwrap_or(ptr::null_mut())) })
    }

    /// Makes this device current on the calling thread and leaves it so. Everything in this module enters the context
    /// itself and restores the previous one. Foreign calls (a framework's, cudart's) on a thread of ours need this.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained as long as `self` lives.
        driver("cuCtxSetCurrent", twice(|| unsafe { result::ctx::set_current(self.context) }))
    }

    /// Prepares a thread of ours, whose streams nobody captures: binds the device until the thread ends, and lets the
    /// thread call the driver while another thread of the process captures a graph in the default, global mode.
    /// Otherwise the driver refuses calls that may be unsafe during a capture (event queries, allocations) and
    /// invalidates the capture. The latter has no effect on drivers that lack the function.
    #[doc(hidden)]
    pub fn adopt_thread(&self) {
        // If it fails, every later call enters the context by itself.
        let _ = self.bind();
        self.exchange_capture_mode(RELAXED);
    }

    /// Runs code that may call the driver while another thread of the process captures a graph, as threads that
    /// [`adopt_thread`](Self::adopt_thread) has prepared may, then restores the thread's mode. For destructors, which may
    /// run on the user's threads.
    pub(super) fn beside_captures<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = self.exchange_capture_mode(RELAXED);
        let value = run();
        if let Some(before) = before {
            self.exchange_capture_mode(before);
        }
        value
    }

    /// Sets the capture mode of the calling thread, and returns the previous one. `None` if the driver has no modes.
    fn exchange_capture_mode(&self, mut mode: c_int) -> Option<c_int> {
        type Exchange = unsafe extern "C" fn(*mut c_int) -> c_int;
        let driver = library::open(&self.runtime, LibraryName::Driver, None).ok()?;
        // SAFETY: the type is that of cuda.h, with its enumerations as the integers that they are.
        let exchange = unsafe { driver.function::<Exchange>("cuThreadExchangeStreamCaptureMode") };
        let exchange = exchange.ok()?;
        // SAFETY: reads one number and writes one, for the calling thread alone.
        (unsafe { exchange(&mut mode) } == 0).then_some(mode)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: null, or the context that was current on this thread; whoever made it current keeps it. If
            // setting fails, the thread keeps ours, and its owner's next call reports why.
            let _ = twice(|| unsafe { result::ctx::set_current(before) });
        }
    }
}

/// Calls again after an error, because these functions may return the error of earlier asynchronous work (CUDA driver
/// API, "Context Management"), and destructors depend on them.
fn twice<T>(call: impl Fn() -> Result<T, DriverError>) -> Result<T, DriverError> {
    call().or_else(|_| call())
}
