//! CUDA access: device, streams, events, memory, kernels, nvJPEG.
//!
//! The crate is built without CUDA and runs without it: [`Device::open`] finds the driver at run time and returns an
//! error that names what is missing instead of panicking. This module does not depend on operators or plans: kernels
//! are passed as text, parameters as bytes.
//!
//! This module uses `unsafe` for these purposes only:
//! * calls of C functions of the driver, NVRTC, NVTX, nvJPEG and NVML, whose handles are owned by the types here;
//! * functions and initialisers of libraries that are opened at run time (`library.rs`);
//! * slices over page-locked memory (`pool.rs`);
//! * cudarc's slices over memory of our pools (`foreign.rs`);
//! * kernel texts that were compiled for the host, and pages that cannot be read, for comparisons (`host_kernel.rs`);
//! * nvJPEG's allocator callbacks, which come back from C with a pointer of ours (`nvjpeg/allocator.rs`).

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use crate::error::{Error, Result};

pub use kernel::compile;
pub use library_name::LibraryName;
pub use runtime::Runtime;
pub use stream::{Event, Stream};

pub(crate) use foreign::{BorrowedSlice, Element};
pub(crate) use kernel::{Kernel, compiler};
pub(crate) use pool::{DeviceBuffer, DevicePool, PinnedBuffer, PinnedPool};
pub(crate) use shape::{BLOCK, LaunchGoal, Multiprocessors, PROGRAM_THREADS, Shape};
pub(crate) use slot::TensorSlot;
pub(crate) use stopwatch::{Lap, Stopwatch};
pub(crate) use transfer::{Download, Staged, Upload, copy_within, fill, read_back};

mod arena;
mod cache;
mod context;
mod driver_symbols;
pub(crate) mod foreign;
pub(crate) mod host_kernel;
pub(crate) mod kernel;
mod library;
mod library_name;
pub(crate) mod nvjpeg;
pub(crate) mod nvml;
mod nvrtc;
pub(crate) mod nvtx;
pub(crate) mod pool;
pub(crate) mod probe;
mod runtime;
pub(crate) mod shape;
pub(crate) mod slot;
pub(crate) mod stopwatch;
mod stream;
pub(crate) mod transfer;

/// A GPU and its primary context, which is shared with every framework in the process.
#[derive(Debug)]
pub struct Device {
    runtime: Runtime,
    ordinal: usize,
    raw: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    capability: (u32, u32),
    driver_version: u32,
    /// Modules whose last launch could not be waited for.
    in_use: Mutex<Vec<sys::CUmodule>>,
}

// SAFETY: a context may be bound to any number of threads at a time (CUDA driver API, "Context Management").
unsafe impl Send for Device {}
// SAFETY: as above; the list of modules is locked.
unsafe impl Sync for Device {}

impl Device {
    /// Opens GPU number `ordinal` (0 is the first that `CUDA_VISIBLE_DEVICES` shows). The calling
    /// thread's current context stays as it is.
    ///
    /// [`Error::Unavailable`] without a working driver or without such a device, [`Error::Device`] if the driver
    /// refuses. Never panics.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        Self::open_with(ordinal, &Runtime::default())
    }

    /// [`open`](Self::open) with a handle that names the libraries to use and the directory of compiled kernels.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub fn open_with(ordinal: usize, runtime: &Runtime) -> Result<Arc<Self>> {
        let count = device_count(runtime)?;
        if ordinal >= count {
            let reason = match count {
                0 => "the driver sees no GPU; check `nvidia-smi` and CUDA_VISIBLE_DEVICES".into(),
                _ => format!(
                    "the driver sees {count} (numbers 0 to {}); choose one of them",
                    count - 1
                ),
            };
            return Err(Error::unavailable("that GPU", format!("number {ordinal}: {reason}")));
        }
        let driver_version = driver_version()?;
        let raw = driver("cuDeviceGet", result::device::get(ordinal as i32))?;
        let name = driver("cuDeviceGetName", result::device::get_name(raw))?;
        let capability = (
            attribute(raw, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(raw, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        // SAFETY: `raw` is a device of this driver. From here on `Device::drop` releases the context.
        let context = unsafe { result::primary_ctx::retain(raw) };
        let context = driver("cuDevicePrimaryCtxRetain", context)?;
        let runtime = runtime.clone();
        let in_use = Mutex::default();
        let device =
            Self { runtime, ordinal, raw, context, name, capability, driver_version, in_use };
        // A binding of this thread from before the context's last release is no longer valid.
        if result::ctx::get_current() == Ok(Some(context)) {
            device.bind()?;
        }
        Ok(Arc::new(device))
    }

    /// Keeps a module whose launches may still run until the device is dropped.
    fn unload_later(&self, module: sys::CUmodule) {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).push(module);
    }

    /// Retains the primary context until the process ends, as frameworks do. nvJPEG contains CUDA's runtime, whose
    /// code and handles belong to the context in which it was first used. Once that context is destroyed, its calls
    /// fail, even in a new context (CUDA runtime API, "Interactions with the CUDA Driver API").
    fn keep_context(self: &Arc<Self>) {
        static KEPT: Mutex<Vec<Arc<Device>>> = Mutex::new(Vec::new());
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.iter().any(|it| it.ordinal == self.ordinal) {
            kept.push(self.clone());
        }
    }

    /// Handle that the device was opened with.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Device number.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Device name, such as `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compute capability: `(9, 0)` for sm_90.
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// CUDA version that the driver supports, as 1000 * major + 10 * minor: 13000 for 13.0.
    pub fn driver_version(&self) -> u32 {
        self.driver_version
    }

    /// Properties that launches depend on.
    fn multiprocessors(&self) -> Result<Multiprocessors> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR as SHARED,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as COUNT,
        };
        let (count, shared_bytes) = (attribute(self.raw, COUNT)?, attribute(self.raw, SHARED)?);
        Ok(Multiprocessors { count, shared_bytes })
    }

    /// Free and total device memory in bytes, over all processes.
    pub fn memory_bytes(&self) -> Result<(u64, u64)> {
        let _entered = self.enter()?;
        let (free, total) = driver("cuMemGetInfo", result::mem_get_info())?;
        Ok((free as u64, total as u64))
    }

    /// Blocks until all work of the context is done, which includes other libraries' work. Fails while one of its
    /// streams is captured. For tests and tools; loaders wait for their own streams and events.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.enter()?;
        driver("cuCtxSynchronize", result::ctx::synchronize())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for module in std::mem::take(self.in_use.get_mut().unwrap_or_else(PoisonError::into_inner))
        {
            if let Ok(_entered) = self.enter() {
                // SAFETY: loaded once, unloaded once. The streams of launches hold the device and are gone.
                let _ = unsafe { result::module::unload(module) };
            }
        }
        // SAFETY: retained in `open`, once; everything that was made in the context holds an `Arc` of `self`
        // and is gone.
        let _ = unsafe { result::primary_ctx::release(self.raw) };
    }
}

/// Number of GPUs that the driver shows.
///
/// # Errors
/// [`Error::Unavailable`] without a working driver. Zero devices are not an error here.
pub fn device_count(runtime: &Runtime) -> Result<usize> {
    library::open(runtime, LibraryName::Driver, None)?;
    match result::init() {
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
        other => driver("cuInit", other).map_err(|error| {
            let way_out = "check `nvidia-smi`, and that container and driver fit together";
            Error::unavailable("a working CUDA driver", format!("{error}; {way_out}"))
        })?,
    }
    let count = driver("cuDeviceGetCount", result::device::get_count())?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// CUDA version that the driver supports.
fn driver_version() -> Result<u32> {
    let mut version = 0;
    // SAFETY: writes one integer; the library and the symbol are there, `device_count` has seen to it.
    driver("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version).result() })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

fn attribute(device: sys::CUdevice, attribute: sys::CUdevice_attribute) -> Result<u32> {
    // SAFETY: `device` comes from `cuDeviceGet`.
    let value = unsafe { result::device::get_attribute(device, attribute) };
    Ok(u32::try_from(driver("cuDeviceGetAttribute", value)?).unwrap_or(0))
}

/// Converts a driver call's result, including the driver's message.
fn driver<T>(call: &'static str, result: Result<T, DriverError>) -> Result<T> {
    result.map_err(|error| {
        let name = error.error_name().map(|text| text.to_string_lossy().into_owned());
        let words = error.error_string().map(|text| text.to_string_lossy().into_owned());
        let problem = match (name, words) {
            (Ok(name), Ok(words)) => format!("{words} ({name})"),
            _ => format!("driver error {}", error.0 as u32),
        };
        Error::Device { call, problem }
    })
}
