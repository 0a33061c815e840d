//! Real device code on the simulated machine: NVIDIA's NVRTC compiles kernels, and the interpreter of PTX executes them.
//!
//! Two environment variables select it for the tests and for the processes that they start: `SIM_NVRTC` is the path of
//! `libnvrtc.so`, and `SIM_PTX` that of the interpreter's shared library. `tests/device_code/run.sh` sets them. With
//! `SIM_EVERY_SCHEDULE` as well, every launch runs under every schedule of warps and blocks, which takes five times as long.

use std::ffi::{CStr, c_char, c_int};

use super::{SimTotals, Simulated};

const VARIABLES: [&str; 2] = ["SIM_NVRTC", "SIM_PTX"];

/// Whether kernels are compiled by NVRTC and interpreted. Otherwise they are compiled for the host.
///
/// # Panics
/// If only one of the variables is set.
pub fn executes_device_code() -> bool {
    let set = VARIABLES.map(|name| std::env::var_os(name).is_some());
    assert_eq!(set[0], set[1], "{VARIABLES:?} belong together");
    set[0]
}

/// Names what compiles, so that results of different compilers are kept apart.
pub(super) fn version() -> String {
    match executes_device_code() {
        true => std::env::var("SIM_NVRTC").expect("a path in UTF-8"),
        false => String::new(),
    }
}

impl Simulated {
    /// Makes every launch run under every schedule of warps and blocks, whose results must be equal. Otherwise, and after
    /// the reset, launches take turns with the schedules, unless `SIM_EVERY_SCHEDULE` is set.
    pub fn every_schedule(&self, wanted: bool) {
        let put = |f: extern "C" fn(c_int)| f(wanted.into());
        self.call(&self.libraries.driver, "sim_every_schedule", put);
    }

    /// What the interpreter executed since the reset.
    pub fn totals(&self) -> SimTotals {
        let mut totals = SimTotals::default();
        let get = |f: extern "C" fn(*mut SimTotals)| f(&mut totals);
        self.call(&self.libraries.driver, "sim_totals", get);
        totals
    }

    /// What NVRTC and its assembler said at the last compilation: with machine code, registers and spills of each kernel.
    pub fn compiler_log(&self) -> String {
        let get = |f: extern "C" fn() -> *const c_char| {
            // SAFETY: a string with a NUL byte, which no test changes meanwhile.
            unsafe { CStr::from_ptr(f()) }.to_string_lossy().into_owned()
        };
        self.call(&self.libraries.nvrtc, "sim_nvrtc_log", get)
    }

    /// Number of faults of device code since the reset, which this test expected. A process with others ends with an
    /// error.
    pub fn expected_kernel_faults(&self) -> u64 {
        let get = |f: extern "C" fn() -> u64| f();
        self.call(&self.libraries.driver, "sim_expect_kernel_faults", get)
    }
}
