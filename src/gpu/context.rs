//! The CUDA context that is current on the calling thread.
//!
//! CUDA gives every thread one current context, which frameworks in the process use too. For
//! example, after `torch.cuda.set_device(1)` PyTorch's calls use GPU 1 because that GPU's context
//! is current. Every function of this crate that calls the driver therefore enters the device's
//! context and restores the previous one before it returns. Threads of this crate bind their device
//! once ([`Device::adopt_thread`]). Entering the context then costs these threads only one query.

use std::ffi::c_int;
use std::ptr;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::{Device, LibraryName, driver, library};
use crate::error::Result;

/// `CU_STREAM_CAPTURE_MODE_RELAXED` of cuda.h.
const RELAXED: c_int = 2;

/// Guard while a device's context is current on the calling thread. Dropping it restores the
/// previous context.
#[derive(Debug)]
#[must_use = "the context is current only until this is dropped"]
pub(super) struct Entered {
    /// Previous context, or a null pointer if no context was current. `None` if nothing must be
    /// restored. The pointer makes this type `!Send`.
    before: Option<sys::CUcontext>,
}

impl Device {
    /// Makes this device current on the calling thread until the guard is dropped.
    pub(super) fn enter(&self) -> Result<Entered> {
        let before = twice(result::ctx::get_current);
        if before == Ok(Some(self.context)) {
            return Ok(Entered { before: None });
        }
        self.bind()?;
        // If the query failed, the previous context is unknown and cannot be restored.
        Ok(Entered { before: before.ok().map(|context| context.unwrap_or(ptr::null_mut())) })
    }

    /// Makes this device current on the calling thread, without restoring the previous one.
    /// Functions of this module enter the context themselves. A thread of this crate needs this
    /// binding only for calls of foreign code (a framework's, cudart's).
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained as long as `self` lives.
        driver("cuCtxSetCurrent", twice(|| unsafe { result::ctx::set_current(self.context) }))
    }

    /// Prepares a thread of this crate, whose streams are never captured. Binds the device until
    /// the thread ends. Also lets the thread call the driver while another thread of the process
    /// captures a graph in the default (global) mode. Otherwise the driver refuses calls that may
    /// be unsafe during a capture (event queries, allocations) and invalidates the capture. On
    /// drivers without capture modes, the thread is only bound.
    #[doc(hidden)]
    pub fn adopt_thread(&self) {
        // If binding fails, every later call enters the context by itself.
        let _ = self.bind();
        self.exchange_capture_mode(RELAXED);
    }

    /// Runs code that may call the driver while another thread of the process captures a graph,
    /// then restores the calling thread's capture mode. Destructors use this function, because they
    /// may run on the user's threads. Threads prepared by [`adopt_thread`](Self::adopt_thread) do
    /// not need it.
    pub(super) fn beside_captures<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = self.exchange_capture_mode(RELAXED);
        let value = run();
        if let Some(before) = before {
            self.exchange_capture_mode(before);
        }
        value
    }

    /// Sets the capture mode of the calling thread and returns the previous one. Returns `None` if
    /// the driver has no capture modes.
    fn exchange_capture_mode(&self, mut mode: c_int) -> Option<c_int> {
        type Exchange = unsafe extern "C" fn(*mut c_int) -> c_int;
        let driver = library::open(&self.runtime, LibraryName::Driver, None).ok()?;
        // SAFETY: the function pointer type is that of cuda.h, with enumerations as integers.
        let exchange = unsafe { driver.function::<Exchange>("cuThreadExchangeStreamCaptureMode") };
        let exchange = exchange.ok()?;
        // SAFETY: the function reads one number and writes one. It affects the calling thread only.
        (unsafe { exchange(&mut mode) } == 0).then_some(mode)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: `before` is null or the context that was current on this thread before. Its
            // owner keeps it alive. If the call fails, our context stays current, and the owner's
            // next call reports why.
            let _ = twice(|| unsafe { result::ctx::set_current(before) });
        }
    }
}

/// Calls a function, and calls it once more if the first call returned an error. Such an error may
/// come from earlier asynchronous work instead of this call (CUDA driver API, "Context
/// Management"), and destructors need the function to succeed even then.
fn twice<T>(call: impl Fn() -> Result<T, DriverError>) -> Result<T, DriverError> {
    call().or_else(|_| call())
}
