//! Settings and counters of the simulated nvJPEG.

use std::collections::BTreeMap;
use std::ffi::c_int;

use feedwater::internals::gpu::nvjpeg::{self, Backend};

use super::{Decode, Simulated};

impl Simulated {
    /// Sets the version of nvJPEG. 13.3.2 after the reset.
    pub fn nvjpeg_version(&self, major: c_int, minor: c_int, patch: c_int) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_version",
            |f: extern "C" fn(c_int, c_int, c_int)| {
                f(major, minor, patch);
            },
        );
    }

    /// Sets whether nvJPEG allocates memory for the device phase of each image and frees it at
    /// once, in stream order.
    pub fn nvjpeg_scratch(&self, wanted: bool) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_scratch", |f: extern "C" fn(c_int)| {
            f(wanted.into())
        });
    }

    /// Sets the device memory in bytes that each decode state of a single image allocates. 0 after
    /// the reset.
    pub fn nvjpeg_own(&self, bytes: usize) {
        nvjpeg::forget_backends();
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_own", |f: extern "C" fn(usize)| f(bytes));
    }

    /// Sets factors for the memory that samples and trial images need in nvJPEG's buffers. 1 after
    /// the reset.
    pub fn nvjpeg_memory_factors(&self, samples: usize, trials: usize) {
        nvjpeg::forget_backends();
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_memory_factors",
            |f: extern "C" fn(usize, usize)| f(samples, trials),
        );
    }

    /// Sets the number of JPEG engines. 7 after the reset. With 0, there is no hardware backend.
    pub fn hardware_engines(&self, count: c_int) {
        nvjpeg::forget_backends();
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_engines", |f: extern "C" fn(c_int)| {
            f(count)
        });
    }

    /// Sets whether the engines write their destinations during the call, regardless of the stream,
    /// as Hopper's do. True after the reset. Otherwise they read the files and write the pixels in
    /// stream order.
    pub fn hopper(&self, wanted: bool) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_hopper", |f: extern "C" fn(c_int)| {
            f(wanted.into())
        });
    }

    /// Lets the engines skip every `every`-th image and report success. 0, the value after the
    /// reset, skips none.
    pub fn skipping(&self, every: u32) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_skipping", |f: extern "C" fn(u32)| {
            f(every)
        });
    }

    /// Lets the engines refuse files with three components whose first has these sampling factors
    /// (horizontal * 16 + vertical). If `admitted`, a support query reports such files as supported
    /// nevertheless. 0 and false after the reset.
    pub fn refusing(&self, sampling: c_int, admitted: bool) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_refusing",
            |f: extern "C" fn(c_int, c_int)| f(sampling, admitted.into()),
        );
    }

    /// Sets whether decoding on the device (`nvjpeg-hardware`, `nvjpeg-gpu`) ignores errors of the
    /// decoder. The pixels are then those that the decoder left, 0xee where it wrote none. False
    /// after the reset.
    pub fn lenient(&self, wanted: bool) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_lenient", |f: extern "C" fn(c_int)| {
            f(wanted.into())
        });
    }

    /// Returns the number of images that a backend has decoded since the reset.
    pub fn decoded(&self, backend: Backend) -> u64 {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_decoded", |f: extern "C" fn(c_int) -> u64| {
            f(number(backend))
        })
    }

    /// Returns the number of windows that the engines decoded.
    pub fn windows(&self) -> u64 {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_windows", |f: extern "C" fn() -> u64| f())
    }

    /// Returns the number of calls of the engines with images of several chroma samplings since the
    /// reset.
    pub fn mixed_calls(&self) -> u64 {
        let symbol = "sim_nvjpeg_mixed_calls";
        self.call(&self.libraries.nvjpeg, symbol, |f: extern "C" fn() -> u64| f())
    }

    /// Adds an error of `levels` to every byte that a backend decodes. 0 after the reset.
    pub fn stray(&self, backend: Backend, levels: u8) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_stray",
            |f: extern "C" fn(c_int, c_int)| f(number(backend), levels.into()),
        );
    }

    /// Sets the decoder. With `None`, pixels are a pattern that depends on the file's bytes and the
    /// position.
    pub fn set_decoder(&self, decode: Option<Decode>) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_decoder",
            |f: extern "C" fn(Option<Decode>)| f(decode),
        );
    }

    /// Returns the number of calls of the engines for samples since the reset, by their number of
    /// images up to 64.
    pub fn call_sizes(&self) -> BTreeMap<u32, u64> {
        let of = |images| {
            self.call(
                &self.libraries.nvjpeg,
                "sim_nvjpeg_calls_of",
                |f: extern "C" fn(u32) -> u64| f(images),
            )
        };
        (1..=64).map(|images| (images, of(images))).filter(|(_, calls)| *calls > 0).collect()
    }
}

/// Returns the number of a backend in nvjpeg.h.
fn number(backend: Backend) -> c_int {
    match backend {
        Backend::Hybrid => 1,
        Backend::GpuHybrid => 2,
        Backend::Hardware => 3,
    }
}
