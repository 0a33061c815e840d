//! NVTX ranges, for NVIDIA's profilers (Nsight Systems): each stage of each thread as a range of its name.
//!
//! Version 2 of NVTX, a library; a toolkit of CUDA 13 has only version 3, which is a header of C.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use crate::error::Result;
use crate::measure::Marker;

use super::library::{self, Name};

type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

/// Puts ranges around stages.
pub struct Nvtx {
    push: Push,
    pop: Pop,
}

impl Nvtx {
    /// Opens the library, or says why not.
    pub fn open() -> Result<Arc<Self>> {
        let found = library::open(Name::Nvtx, None)?;
        // SAFETY: nvToolsExt.h declares `int nvtxRangePushA(const char *message)`.
        let push = unsafe { found.function::<Push>("nvtxRangePushA") }?;
        // SAFETY: nvToolsExt.h declares `int nvtxRangePop(void)`.
        let pop = unsafe { found.function::<Pop>("nvtxRangePop") }?;
        Ok(Arc::new(Self { push, pop }))
    }
}

impl Marker for Nvtx {
    fn begin(&self, name: &'static CStr) {
        // SAFETY: the text ends with a NUL byte and lives as long as the process; the call may come from any thread.
        unsafe { (self.push)(name.as_ptr()) };
    }

    fn end(&self) {
        // SAFETY: it has no arguments, and may come from any thread.
        unsafe { (self.pop)() };
    }
}
