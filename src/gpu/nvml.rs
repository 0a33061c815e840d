//! NVML: device utilization as reported by the driver.
//!
//! The library comes with the driver and is opened at run time. Without it everything runs, but these figures are
//! missing. The declarations follow the documentation of `nvml.h` (docs.nvidia.com/deploy, "NVML API Reference").

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::library::{self, Found};
use super::library_name::LibraryName as Name;
use super::{Device, Runtime};
use crate::error::{Error, Result};
use crate::measure::DeviceReading;

/// Initialised library. Dropping it shuts NVML down, unless other code in the process uses it.
#[derive(Debug)]
pub struct Nvml {
    found: &'static Found,
    shutdown: unsafe extern "C" fn() -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// Device to be monitored.
#[derive(Debug)]
pub struct Monitor {
    nvml: Arc<Nvml>,
    device: Handle,
    // `None` for functions that old drivers lack.
    utilisation: Option<unsafe extern "C" fn(Handle, *mut Rates) -> c_int>,
    memory: Option<unsafe extern "C" fn(Handle, *mut MemoryInfo) -> c_int>,
    jpeg: Option<EngineUtilisation>,
    decoder: Option<EngineUtilisation>,
    pcie: Option<unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int>,
}

/// `nvmlDevice_t`.
type Handle = *mut c_void;

/// Writes utilization in percent, and the sampling period in microseconds.
type EngineUtilisation = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> c_int;

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Default)]
struct Rates {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Default)]
struct MemoryInfo {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlPcieUtilCounter_t`.
const SENT: c_uint = 0;
const RECEIVED: c_uint = 1;

// SAFETY: NVML is thread-safe (its reference, "Multi-threading"); a device's handle is a name that stays valid until the
// library is shut down, which `nvml` keeps from happening.
unsafe impl Send for Monitor {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Monitor {}

impl Nvml {
    /// Opens and initialises the library.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no library, or if it finds no driver.
    pub fn open(runtime: &Runtime) -> Result<Arc<Self>> {
        let found = library::open(runtime, Name::Nvml, None)?;
        // SAFETY: the types are those of nvml.h.
        let (init, shutdown, error_string) = unsafe {
            (
                found.function::<unsafe extern "C" fn() -> c_int>("nvmlInit_v2")?,
                found.function("nvmlShutdown")?,
                found.function("nvmlErrorString")?,
            )
        };
        let mut nvml = Self { found, shutdown: nothing, error_string };
        // SAFETY: has no arguments.
        let status = unsafe { init() };
        if status != SUCCESS {
            let reason = format!("{}: {}", found.path(), nvml.words(status));
            return Err(Error::unavailable(Name::Nvml.noun(), reason));
        }
        nvml.shutdown = shutdown;
        Ok(Arc::new(nvml))
    }

    /// Path or name by which it was opened.
    pub fn path(&self) -> &str {
        self.found.path()
    }

    /// Version of the library, which is the driver's version.
    pub fn version(&self) -> Result<String> {
        let mut text = [0u8; VERSION_BYTES];
        // SAFETY: the type is that of nvml.h, and at most so many bytes are written.
        let status = unsafe {
            let version =
                self.found.function::<unsafe extern "C" fn(*mut c_char, c_uint) -> c_int>(
                    "nvmlSystemGetNVMLVersion",
                )?;
            version(text.as_mut_ptr().cast(), VERSION_BYTES as c_uint)
        };
        self.check("nvmlSystemGetNVMLVersion", status)?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Monitor of this device, identified by its PCI bus address, because NVML's numbers ignore
    /// `CUDA_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// [`Error::Device`] if NVML does not know the device or may not access it.
    pub fn monitor(self: &Arc<Self>, device: &Device) -> Result<Monitor> {
        let at = |attribute| super::attribute(device.raw, attribute);
        let (domain, bus, slot) = (
            at(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            at(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            at(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        );
        let place = CString::new(format!("{domain:08x}:{bus:02x}:{slot:02x}.0"));
        let place = place.map_err(|_| Error::Internal { problem: "a NUL in a number".into() })?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: the type is that of nvml.h; the text is alive, and one handle is written.
        let status = unsafe {
            let by_place =
                self.found.function::<unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int>(
                    "nvmlDeviceGetHandleByPciBusId_v2",
                )?;
            by_place(place.as_ptr(), &mut handle)
        };
        self.check("nvmlDeviceGetHandleByPciBusId_v2", status)?;
        // SAFETY: the types are those of nvml.h.
        unsafe {
            Ok(Monitor {
                nvml: self.clone(),
                device: handle,
                utilisation: self.found.function("nvmlDeviceGetUtilizationRates").ok(),
                memory: self.found.function("nvmlDeviceGetMemoryInfo").ok(),
                jpeg: self.found.function("nvmlDeviceGetJpgUtilization").ok(),
                decoder: self.found.function("nvmlDeviceGetDecoderUtilization").ok(),
                pcie: self.found.function("nvmlDeviceGetPcieThroughput").ok(),
            })
        }
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<()> {
        match status {
            SUCCESS => Ok(()),
            status => Err(Error::Device { call, problem: self.words(status) }),
        }
    }

    fn words(&self, status: c_int) -> String {
        // SAFETY: gives a text that is never freed for every number.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("NVML error {status}");
        }
        // SAFETY: a text that ends with a NUL.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        format!("{text} (NVML error {status})")
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: initialised once, shut down once.
        let _ = unsafe { (self.shutdown)() };
    }
}

impl Monitor {
    /// Current reading. Takes about 40 ms, during which PCIe traffic is counted, so it must not be called by threads
    /// that process samples.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost, for example. Unsupported or unpermitted values are not an error.
    pub fn read(&self) -> Result<DeviceReading> {
        let mut rates = Rates::default();
        let rates = self
            .ask("nvmlDeviceGetUtilizationRates", self.utilisation, |call| {
                // SAFETY: the handle is alive; writes the structure of nvml.h.
                unsafe { call(self.device, &mut rates) }
            })?
            .then_some(rates.gpu);
        let mut memory = MemoryInfo::default();
        let memory = self
            .ask("nvmlDeviceGetMemoryInfo", self.memory, |call| {
                // SAFETY: as above.
                unsafe { call(self.device, &mut memory) }
            })?
            .then_some(memory);
        Ok(DeviceReading {
            gpu: rates.map(share),
            jpeg: self.engine("nvmlDeviceGetJpgUtilization", self.jpeg)?,
            decoder: self.engine("nvmlDeviceGetDecoderUtilization", self.decoder)?,
            memory_used: memory.as_ref().map(|it| it.used),
            memory_total: memory.as_ref().map(|it| it.total),
            received: self.throughput(RECEIVED)?,
            sent: self.throughput(SENT)?,
        })
    }

    fn engine(&self, name: &'static str, call: Option<EngineUtilisation>) -> Result<Option<f64>> {
        let (mut percent, mut microseconds) = (0, 0);
        let told = self.ask(name, call, |call| {
            // SAFETY: the handle is alive; writes two numbers.
            unsafe { call(self.device, &mut percent, &mut microseconds) }
        })?;
        Ok(told.then(|| share(percent)))
    }

    /// PCIe throughput in bytes per second.
    fn throughput(&self, counter: c_uint) -> Result<Option<f64>> {
        let mut kilobytes = 0;
        let told = self.ask("nvmlDeviceGetPcieThroughput", self.pcie, |call| {
            // SAFETY: the handle is alive; writes one number.
            unsafe { call(self.device, counter, &mut kilobytes) }
        })?;
        Ok(told.then(|| f64::from(kilobytes) * 1000.0))
    }

    /// Calls the function and returns whether the device supports the query.
    fn ask<F>(
        &self,
        name: &'static str,
        function: Option<F>,
        call: impl FnOnce(F) -> c_int,
    ) -> Result<bool> {
        let Some(function) = function else { return Ok(false) };
        match call(function) {
            NOT_SUPPORTED | NO_PERMISSION | FUNCTION_NOT_FOUND => Ok(false),
            status => self.nvml.check(name, status).map(|()| true),
        }
    }
}

/// `nvmlReturn_t`.
const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;
const NO_PERMISSION: c_int = 4;
const FUNCTION_NOT_FOUND: c_int = 13;

/// `NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE`.
const VERSION_BYTES: usize = 80;

fn share(percent: c_uint) -> f64 {
    f64::from(percent) / 100.0
}

/// Placeholder for shutting down an uninitialised library.
unsafe extern "C" fn nothing() -> c_int {
    SUCCESS
}
