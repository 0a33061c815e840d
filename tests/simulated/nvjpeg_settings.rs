//! Settings and counters of the simulated nvJPEG.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Mutex;

use feedwater::internals::gpu::nvjpeg::{self, Backend};

use super::Simulated;
use super::libjpeg::{self, Decode, Window};

impl Simulated {
    /// Sets the version of nvJPEG. After the reset, it is 13.3.2.
    pub fn nvjpeg_version(&self, major: c_int, minor: c_int, patch: c_int) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_version",
            |f: extern "C" fn(c_int, c_int, c_int)| {
                f(major, minor, patch);
            },
        );
    }

    /// Sets whether nvJPEG allocates memory for the device phase of each image. It frees this
    /// memory at once, in stream order.
    pub fn nvjpeg_scratch(&self, wanted: bool) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_scratch", |f: extern "C" fn(c_int)| {
            f(wanted.into())
        });
    }

    /// Sets how many bytes of device memory each decode state for single images allocates. After
    /// the reset, it is 0.
    pub fn nvjpeg_own(&self, bytes: usize) {
        nvjpeg::forget_backends();
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_own", |f: extern "C" fn(usize)| f(bytes));
    }

    /// Sets factors for the memory that nvJPEG's buffers need for samples and for trial images.
    /// After the reset, they are 1.
    pub fn nvjpeg_memory_factors(&self, samples: usize, trials: usize) {
        nvjpeg::forget_backends();
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_memory_factors",
            |f: extern "C" fn(usize, usize)| f(samples, trials),
        );
    }

    /// Sets the number of JPEG engines. After the reset, there are 7. With 0, the hardware backend
    /// is not available.
    pub fn hardware_engines(&self, count: c_int) {
        nvjpeg::forget_backends();
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_engines", |f: extern "C" fn(c_int)| {
            f(count)
        });
    }

    /// Sets whether the JPEG engines write their destinations during the call, regardless of the
    /// stream, as those of Hopper GPUs do. After the reset, they do. Otherwise they read the files
    /// and write the pixels in stream order.
    pub fn hopper(&self, wanted: bool) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_hopper", |f: extern "C" fn(c_int)| {
            f(wanted.into())
        });
    }

    /// Lets the JPEG engines skip every `every`-th image and report success. With 0, the value
    /// after the reset, they skip none.
    pub fn skipping(&self, every: u32) {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_set_skipping", |f: extern "C" fn(u32)| {
            f(every)
        });
    }

    /// Lets the JPEG engines refuse files with three components whose first component has these
    /// sampling factors (horizontal * 16 + vertical). If `admitted` is true, a support query
    /// reports such files as supported nevertheless. After the reset, the engines refuse no such
    /// files.
    pub fn refusing(&self, sampling: c_int, admitted: bool) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_refusing",
            |f: extern "C" fn(c_int, c_int)| f(sampling, admitted.into()),
        );
    }

    /// Sets whether the routes that decode on the device (`nvjpeg-hardware`, `nvjpeg-gpu`) ignore
    /// errors of the decoder. The pixels are then those that the decoder wrote, and 0xee elsewhere.
    /// After the reset, errors are reported.
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

    /// Returns the number of windows that the JPEG engines have decoded.
    pub fn windows(&self) -> u64 {
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_windows", |f: extern "C" fn() -> u64| f())
    }

    /// Returns how many calls of the JPEG engines since the reset had images of different chroma
    /// subsamplings.
    pub fn mixed_calls(&self) -> u64 {
        let symbol = "sim_nvjpeg_mixed_calls";
        self.call(&self.libraries.nvjpeg, symbol, |f: extern "C" fn() -> u64| f())
    }

    /// Adds `levels` to every byte that a backend decodes. After the reset, nothing is added.
    pub fn stray(&self, backend: Backend, levels: u8) {
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_stray",
            |f: extern "C" fn(c_int, c_int)| f(number(backend), levels.into()),
        );
    }

    /// Sets the decoder that nvJPEG calls for pixels. With `None`, pixels are a pattern that
    /// depends on the file's bytes and the position.
    pub fn set_decoder(&self, decode: Option<Decode>) {
        *DECODE.lock().unwrap() = decode;
        self.call(
            &self.libraries.nvjpeg,
            "sim_nvjpeg_set_decoder",
            |f: extern "C" fn(Option<CallDecoder>)| f(decode.map(|_| call_decoder as CallDecoder)),
        );
    }

    /// Returns how often the JPEG engines were called for samples since the reset, by the number of
    /// images in the call (1 to 64).
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

/// The decoder that the test has set.
static DECODE: Mutex<Option<Decode>> = Mutex::new(None);

type CallDecoder = unsafe extern "C" fn(*const u8, usize, &Window, *mut u8) -> c_int;

/// Calls the decoder that the test has set.
unsafe extern "C" fn call_decoder(
    bytes: *const u8,
    count: usize,
    window: &Window,
    rgb: *mut u8,
) -> c_int {
    let decode = DECODE.lock().unwrap().expect("nvjpeg.cpp calls it only if a decoder is set");
    // SAFETY: nvjpeg.cpp passes `count` bytes, and memory for the pixels of the window.
    unsafe { libjpeg::call(decode, bytes, count, window, rgb) }
}

/// Returns the number that nvjpeg.h gives a backend.
fn number(backend: Backend) -> c_int {
    match backend {
        Backend::Hybrid => 1,
        Backend::GpuHybrid => 2,
        Backend::Hardware => 3,
    }
}
