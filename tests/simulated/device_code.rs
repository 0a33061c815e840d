//! Executes real device code on the simulated machine: NVIDIA's NVRTC compiles kernels, and the PTX
//! interpreter executes them.
//!
//! Two environment variables turn device code on, for tests and for processes that tests start.
//! `SIM_NVRTC` is the path of `libnvrtc.so`, and `SIM_PTX` is the path of the interpreter's shared
//! library. `tests/device_code/run.sh` sets both. With `SIM_EVERY_SCHEDULE`, every launch runs
//! under every schedule of warps and blocks, which takes five times as long.

use std::ffi::{CStr, c_char, c_int};

use super::{SimTotals, Simulated};

const VARIABLES: [&str; 2] = ["SIM_NVRTC", "SIM_PTX"];

/// Whether NVRTC compiles kernels and the interpreter executes them. Otherwise kernels are compiled
/// for the host.
///
/// # Panics
/// Panics if only one of the two environment variables is set.
pub fn executes_device_code() -> bool {
    let set = VARIABLES.map(|name| std::env::var_os(name).is_some());
    assert_eq!(set[0], set[1], "{VARIABLES:?} must be set together");
    set[0]
}

/// Returns a text that identifies the compiler, so that results of different compilers are cached
/// separately.
pub(super) fn version() -> String {
    match executes_device_code() {
        true => std::env::var("SIM_NVRTC").expect("a path in UTF-8"),
        false => String::new(),
    }
}

impl Simulated {
    /// Sets whether every launch runs under every schedule of warps and blocks. All results must be
    /// equal. By default and after a reset, successive launches use different schedules, unless
    /// `SIM_EVERY_SCHEDULE` is set.
    pub fn every_schedule(&self, wanted: bool) {
        let put = |f: extern "C" fn(c_int)| f(wanted.into());
        self.call(&self.libraries.driver, "sim_every_schedule", put);
    }

    /// Returns the interpreter's statistics since the reset.
    pub fn totals(&self) -> SimTotals {
        let mut totals = SimTotals::default();
        let get = |f: extern "C" fn(*mut SimTotals)| f(&mut totals);
        self.call(&self.libraries.driver, "sim_totals", get);
        totals
    }

    /// Returns what NVRTC and its assembler printed during the last compilation. If they produced
    /// machine code, the text includes the registers and spills of each kernel.
    pub fn compiler_log(&self) -> String {
        let get = |f: extern "C" fn() -> *const c_char| {
            // SAFETY: the string ends with a NUL byte, and only a compilation changes it.
            unsafe { CStr::from_ptr(f()) }.to_string_lossy().into_owned()
        };
        self.call(&self.libraries.nvrtc, "sim_nvrtc_log", get)
    }

    /// Returns the number of faults of device code since the reset, and marks these faults as
    /// expected. A process with unexpected faults ends with an error.
    pub fn expected_kernel_faults(&self) -> u64 {
        let get = |f: extern "C" fn() -> u64| f();
        self.call(&self.libraries.driver, "sim_expect_kernel_faults", get)
    }
}
