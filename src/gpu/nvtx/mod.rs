//! NVTX ranges for NVIDIA's profilers (Nsight Systems), one named range per stage of each thread.
//!
//! A profiler sets `NVTX_INJECTION64_PATH` to the path of its library, which receives the ranges as
//! NVTX 3 defines. The ranges are in the domain `feedwater`, or in the default domain if the
//! profiler does not support domains. NVTX needs no CUDA library. The path `./.` turns ranges off,
//! as in every program with NVTX 3.

use std::env;
use std::ffi::CStr;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::measure::Marker;

use self::injection::Injection;

mod injection;

/// Environment variable that a profiler sets to the path of its library (nvtxInit.h).
const INJECTION: &str = "NVTX_INJECTION64_PATH";

/// Profiler that receives a range for each stage.
pub struct Nvtx(&'static Injection);

impl Nvtx {
    /// Opens the profiler's library, or returns the reason why it cannot be opened. The library is
    /// opened and initialised at most once per process, even if the first attempt fails.
    pub fn open() -> Result<Arc<Self>> {
        let unavailable = |reason| Error::unavailable("NVTX (a profiler's library)", reason);
        let Some(path) = env::var_os(INJECTION).filter(|path| !path.is_empty()) else {
            let reason = format!(
                "no profiler has set the environment variable {INJECTION}; run this program under \
                 a profiler such as `nsys profile`, or without NVTX ranges"
            );
            return Err(unavailable(reason));
        };
        let started = Injection::start(&path);
        let named = |reason| unavailable(format!("{INJECTION} names {}{reason}", path.display()));
        Ok(Arc::new(Self(started.map_err(named)?)))
    }
}

impl Marker for Nvtx {
    fn begin(&self, name: &'static CStr) {
        self.0.push(name);
    }

    fn end(&self) {
        self.0.pop();
    }
}
