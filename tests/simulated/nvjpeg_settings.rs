//! Settings and counters of the simulated nvJPEG.

use std::collections::BTreeMap;
use std::ffi::c_int;

use feedwater::internals::gpu::nvjpeg::{self, Backend};

use super::{Decode, Simulated};

impl Simulated {
    /// Sets nvJPEG's version; 13.3.2 after the reset.
    pub fn nvjpeg_version(&self, major: c_int, minor: c_int, patch: c_int) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_version",
            |f: extern "C" fn(c_int, c_int, c_int)| {
                f(major, minor, patch);
            },
        );
    }

    /// Sets whether nvJPEG allocates memory for each image's device phase and frees it at once, in stream order.
    pub fn nvjpeg_scratch(&self, wanted: bool) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_scratch", |f: extern "C" fn(c_int)| {
            f(wanted.into())
        });
    }

    /// Sets the device bytes that each decode state of one image allocates; 0 after the reset.
    pub fn nvjpeg_own(&self, bytes: usize) {
        nvjpeg::forget_backends();
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_own", |f: extern "C" fn(usize)| f(bytes));
    }

    /// Sets the factors of what samples and trial images need in nvJPEG's buffers; 1 after the reset.
    pub fn nvjpeg_memory_factors(&self, samples: usize, trials: usize) {
        nvjpeg::forget_backends();
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_memory_factors",
            |f: extern "C" fn(usize, usize)| f(samples, trials),
        );
    }

    /// Sets the number of JPEG engines; 7 after the reset. With 0 there is no hardware backend.
    pub fn hardware_engines(&self, count: c_int) {
        nvjpeg::forget_backends();
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_engines", |f: extern "C" fn(c_int)| {
            f(count)
        });
    }

    /// Sets whether the engines write their destinations when they are called, wherever the stream is, as Hopper's do; true after
    /// the reset. Otherwise they read the files and write when the stream gets there.
    pub fn hopper(&self, wanted: bool) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_hopper", |f: extern "C" fn(c_int)| {
            f(wanted.into())
        });
    }

    /// Makes the engines skip every so many images, and report success; 0, as after the reset, is none.
    pub fn skipping(&self, every: u32) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_skipping", |f: extern "C" fn(u32)| {
            f(every)
        });
    }

    /// Makes the engines refuse files of three components with these factors of the first (horizontal * 16 + vertical), also when
    /// asked about them unless they are `admitted` then; 0 and false after the reset.
    pub fn refusing(&self, sampling: c_int, admitted: bool) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_refusing",
            |f: extern "C" fn(c_int, c_int)| f(sampling, admitted.into()),
        );
    }

    /// Sets whether decoding on the device (hardware, cuda) ignores errors of the decoder, and returns the pixels that the
    /// decoder left (0xee where it wrote none); false after the reset.
    pub fn lenient(&self, wanted: bool) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_lenient", |f: extern "C" fn(c_int)| {
            f(wanted.into())
        });
    }

    /// Number of images that a backend has decoded since the reset.
    pub fn decoded(&self, backend: Backend) -> u64 {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_decoded", |f: extern "C" fn(c_int) -> u64| {
            f(number(backend))
        })
    }

    /// Number of windows that the engines decoded.
    pub fn windows(&self) -> u64 {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_windows", |f: extern "C" fn() -> u64| f())
    }

    /// Number of calls of the engines with images of several chroma samplings since the reset.
    pub fn mixed_calls(&self) -> u64 {
        let symbol = "sim_nvjpeg_mixed_calls";
        self.call(&self.libraries.nvjpeg, symbol, |f: extern "C" fn() -> u64| f())
    }

    /// Sets the error, in levels, of every byte that a backend decodes; 0 after the reset.
    pub fn stray(&self, backend: Backend, levels: u8) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_stray",
            |f: extern "C" fn(c_int, c_int)| f(number(backend), levels.into()),
        );
    }

    /// Sets the decoder; `None` is a pattern of the file's bytes and the position.
    pub fn set_decoder(&self, decode: Option<Decode>) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_decoder",
            |f: extern "C" fn(Option<Decode>)| f(decode),
        );
    }

    /// Number of calls of the engines for samples since the reset, by their number of images up to 64.
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

/// Number of a backend in nvjpeg.h.
fn number(backend: Backend) -> c_int {
    match backend {
        Backend::Hybrid => 1,
        Backend::GpuHybrid => 2,
        Backend::Hardware => 3,
    }
}
