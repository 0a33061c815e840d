//! CUDA access: device, streams, events, memory, kernels, nvJPEG.
//!
//! The crate builds and runs without CUDA. [`Device::open`] finds the driver at run time. If a
//! library or a function is missing, `Device::open` returns an error that names the missing part,
//! and does not panic. This module does not depend on operators or plans: it takes kernels as
//! source code and parameters as bytes.
//!
//! This module uses `unsafe` for these purposes only:
//! * It calls C functions of the driver, NVRTC, NVTX, nvJPEG and NVML. Types of this module own the
//!   handles that these functions create.
//! * `library.rs` opens libraries at run time, which runs their initialisers, and looks up
//!   functions.
//! * `pool.rs` creates slices over page-locked memory.
//! * `foreign.rs` creates cudarc's slices over memory of our pools.
//! * `host_kernel.rs` runs kernels that were compiled for the host, and maps unreadable memory
//!   pages, for tests.
//! * `nvjpeg/allocator.rs` has nvJPEG's allocator callbacks. nvJPEG passes them a pointer to a
//!   value of this crate.

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use crate::error::{Error, Result};

pub use kernel::compile;
pub use library_name::LibraryName;
pub use runtime::Runtime;
pub use stream::{Event, Stream};

pub(crate) use foreign::BorrowedSlice;
pub use foreign::DeviceElement;
pub(crate) use kernel::{Kernel, compiler};
pub(crate) use pool::{DeviceBuffer, DevicePool, PinnedBuffer, PinnedPool};
pub(crate) use shape::{BLOCK, LaunchGoal, Multiprocessors, PROGRAM_THREADS, Shape};
pub(crate) use slot::TensorSlot;
pub(crate) use stopwatch::{Lap, Stopwatch};
pub(crate) use transfer::{Download, Staged, Upload, copy_from_page, copy_within, fill, read_back};

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

/// GPU with its primary context, which all frameworks in the process share.
#[derive(Debug)]
pub struct Device {
    runtime: Runtime,
    ordinal: usize,
    raw: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    capability: (u32, u32),
    driver_version: u32,
    /// Modules that stay loaded until the device is dropped, because waiting for their last launch
    /// failed.
    in_use: Mutex<Vec<sys::CUmodule>>,
}

// SAFETY: several threads may bind a context at the same time (CUDA driver API, "Context
// Management").
unsafe impl Send for Device {}
// SAFETY: several threads may bind a context at the same time. A lock protects the list of modules.
unsafe impl Sync for Device {}

impl Device {
    /// Opens GPU number `ordinal`. 0 is the first GPU in `CUDA_VISIBLE_DEVICES`. Does not change
    /// the calling thread's current context.
    ///
    /// Returns [`Error::Unavailable`] without a working driver or without such a device, and
    /// [`Error::Device`] if a driver call fails. Never panics.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        Self::open_with(ordinal, &Runtime::default())
    }

    /// Like [`open`](Self::open), with a [`Runtime`] that specifies the libraries and the directory
    /// of compiled kernels.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Self::open).
    pub fn open_with(ordinal: usize, runtime: &Runtime) -> Result<Arc<Self>> {
        let count = device_count(runtime)?;
        if ordinal >= count {
            let reason = match count {
                0 => "the driver sees no GPU; check `nvidia-smi` and CUDA_VISIBLE_DEVICES".into(),
                _ => format!(
                    "the driver has {count}, numbered 0 to {}; choose one of these numbers",
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
        // SAFETY: `raw` is a device of this driver. From here on, `Device::drop` releases the
        // context.
        let context = unsafe { result::primary_ctx::retain(raw) };
        let context = driver("cuDevicePrimaryCtxRetain", context)?;
        let runtime = runtime.clone();
        let in_use = Mutex::default();
        let device =
            Self { runtime, ordinal, raw, context, name, capability, driver_version, in_use };
        // If the primary context was released and is now retained again, this thread's old binding
        // to the context is no longer valid.
        if result::ctx::get_current() == Ok(Some(context)) {
            device.bind()?;
        }
        Ok(Arc::new(device))
    }

    /// Keeps a module loaded until the device is dropped, because its launches may still run.
    fn unload_later(&self, module: sys::CUmodule) {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).push(module);
    }

    /// Retains the primary context until the process ends, as frameworks do. nvJPEG contains CUDA's
    /// runtime. The runtime's code and handles belong to the context in which the runtime was first
    /// used. Once that context is destroyed, the runtime's calls fail, even in a new context (CUDA
    /// runtime API, "Interactions with the CUDA Driver API").
    fn keep_context(self: &Arc<Self>) {
        static KEPT: Mutex<Vec<Arc<Device>>> = Mutex::new(Vec::new());
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.iter().any(|it| it.ordinal == self.ordinal) {
            kept.push(self.clone());
        }
    }

    /// Returns the [`Runtime`] with which the device was opened.
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

    /// Returns the properties of the GPU on which the grids and blocks of launches depend.
    fn multiprocessors(&self) -> Result<Multiprocessors> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR as SHARED,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as COUNT,
        };
        let (count, shared_bytes) = (attribute(self.raw, COUNT)?, attribute(self.raw, SHARED)?);
        Ok(Multiprocessors { count, shared_bytes })
    }

    /// Returns free and total device memory in bytes. Memory of all processes counts as used.
    pub fn memory_bytes(&self) -> Result<(u64, u64)> {
        let _entered = self.enter()?;
        let (free, total) = driver("cuMemGetInfo", result::mem_get_info())?;
        Ok((free as u64, total as u64))
    }

    /// Blocks until all work of the context is done, including that of other libraries. Fails while
    /// one of the context's streams is captured. Only tests and tools use this function. Loaders
    /// wait for their own streams and events.
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
                // SAFETY: the module was loaded once and is unloaded once. The streams of its
                // launches hold the device, so they no longer exist.
                let _ = unsafe { result::module::unload(module) };
            }
        }
        // SAFETY: `open` retained the context once. Everything that was created in it holds an
        // `Arc` of `self` and no longer exists.
        let _ = unsafe { result::primary_ctx::release(self.raw) };
    }
}

/// Returns the number of GPUs that the driver reports.
///
/// # Errors
/// [`Error::Unavailable`] without a working driver. Zero devices are not an error here.
pub fn device_count(runtime: &Runtime) -> Result<usize> {
    library::open(runtime, LibraryName::Driver, None)?;
    match result::init() {
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
        other => driver("cuInit", other).map_err(|error| {
            let way_out = "check `nvidia-smi`, and that the container supports this driver";
            Error::unavailable("a working CUDA driver", format!("{error}; {way_out}"))
        })?,
    }
    let count = driver("cuDeviceGetCount", result::device::get_count())?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Returns the CUDA version that the driver supports.
fn driver_version() -> Result<u32> {
    let mut version = 0;
    // SAFETY: the call writes one integer. `device_count` has checked that library and symbol
    // exist.
    driver("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version).result() })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

fn attribute(device: sys::CUdevice, attribute: sys::CUdevice_attribute) -> Result<u32> {
    // SAFETY: `device` comes from `cuDeviceGet`.
    let value = unsafe { result::device::get_attribute(device, attribute) };
    Ok(u32::try_from(driver("cuDeviceGetAttribute", value)?).unwrap_or(0))
}

/// Converts the result of a driver call. Errors include the driver's message.
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
