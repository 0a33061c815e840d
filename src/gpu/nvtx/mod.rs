//! NVTX ranges for NVIDIA's profilers (Nsight Systems), one named range per stage of each thread.
//!
//! * If the [`Runtime`] or `FEEDWATER_LIBNVTX` specifies a library, that library is used as NVTX 2.
//! * Otherwise, if a profiler is attached (it sets `NVTX_INJECTION64_PATH`), its own library
//!   receives the ranges in the NVTX 3 way. They are in a domain `feedwater`, or in the default
//!   domain if the profiler does not support domains. This needs no CUDA library. The path `./.`
//!   turns ranges off, as in every program with NVTX 3.
//! * Otherwise libnvToolsExt is searched for, which is part of CUDA toolkits before version 13.

use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::measure::Marker;

use self::injection::Injection;
use super::library;
use super::library_name::LibraryName as Name;
use super::runtime::Runtime;

mod injection;

/// Environment variable that a profiler sets to the path of its library (nvtxInit.h).
const INJECTION: &str = "NVTX_INJECTION64_PATH";

type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

/// Emits ranges around stages.
pub struct Nvtx(Ranges);

enum Ranges {
    /// NVTX 2: functions of libnvToolsExt.
    Library { push: Push, pop: Pop },
    /// NVTX 3: functions of the profiler.
    Injected(&'static Injection),
}

impl Nvtx {
    /// Opens the library, or returns the reason why it cannot be opened. A profiler's library is
    /// opened and initialised once per process, even if that fails.
    pub fn open(runtime: &Runtime) -> Result<Arc<Self>> {
        let injection = env::var_os(INJECTION).filter(|path| !path.is_empty());
        if let Some(path) = injection.filter(|_| runtime.file_of(Name::Nvtx).is_none()) {
            let unavailable = |reason| {
                let reason = format!("{INJECTION} names {}{reason}", path.display());
                Error::unavailable("NVTX (a profiler's library)", reason)
            };
            let started = Injection::start(&path).map_err(unavailable)?;
            return Ok(Arc::new(Self(Ranges::Injected(started))));
        }
        let found = library::open(runtime, Name::Nvtx, None)?;
        // SAFETY: nvToolsExt.h declares `int nvtxRangePushA(const char *message)`.
        let push = unsafe { found.function::<Push>("nvtxRangePushA") }?;
        // SAFETY: nvToolsExt.h declares `int nvtxRangePop(void)`.
        let pop = unsafe { found.function::<Pop>("nvtxRangePop") }?;
        Ok(Arc::new(Self(Ranges::Library { push, pop })))
    }
}

impl Marker for Nvtx {
    fn begin(&self, name: &'static CStr) {
        match &self.0 {
            // SAFETY: the text ends with a NUL byte and lives as long as the process. Any thread
            // may call.
            Ranges::Library { push, .. } => _ = unsafe { push(name.as_ptr()) },
            Ranges::Injected(injection) => injection.push(name),
        }
    }

    fn end(&self) {
        match &self.0 {
            // SAFETY: the function has no arguments. Any thread may call.
            Ranges::Library { pop, .. } => _ = unsafe { pop() },
            Ranges::Injected(injection) => injection.pop(),
        }
    }
}
