//! GPU utilization as NVML, the driver's monitoring library, reports it.
//!
//! The library is installed with the driver and opened at run time. If it is missing, utilization
//! is not reported, and everything else works. The declarations follow the documentation of
//! `nvml.h` (docs.nvidia.com/deploy, "NVML API Reference").

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::library::{self, Found};
use super::library_name::LibraryName as Name;
use super::{Device, Runtime};
use crate::error::{Error, Result};
use crate::measure::DeviceReading;

/// Initialised NVML library. Dropping it shuts NVML down, unless other code in the process uses
/// NVML.
#[derive(Debug)]
pub struct Nvml {
    found: &'static Found,
    shutdown: unsafe extern "C" fn() -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// One device whose utilization NVML reports.
#[derive(Debug)]
pub struct Monitor {
    nvml: Arc<Nvml>,
    device: Handle,
    // `None` for functions that are missing in old drivers.
    utilisation: Option<unsafe extern "C" fn(Handle, *mut Rates) -> c_int>,
    memory: Option<unsafe extern "C" fn(Handle, *mut MemoryInfo) -> c_int>,
    jpeg: Option<EngineUtilisation>,
    decoder: Option<EngineUtilisation>,
    pcie: Option<unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int>,
}

/// `nvmlDevice_t`.
type Handle = *mut c_void;

/// Function that writes an engine's utilization in percent and the sampling period in microseconds.
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

/// Value of `nvmlPcieUtilCounter_t` for the bytes that the device sent.
const SENT: c_uint = 0;
/// Value of `nvmlPcieUtilCounter_t` for the bytes that the device received.
const RECEIVED: c_uint = 1;

// SAFETY: NVML is thread-safe (its reference, "Multi-threading"). A device's handle stays valid
// until the library is shut down, and `nvml` prevents that.
unsafe impl Send for Monitor {}
// SAFETY: NVML is thread-safe (its reference, "Multi-threading"), and no field of `Monitor`
// changes.
unsafe impl Sync for Monitor {}

impl Nvml {
    /// Opens and initialises the library.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the NVML library is missing, or if it finds no driver.
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
        // SAFETY: the function has no arguments.
        let status = unsafe { init() };
        if status != SUCCESS {
            let reason = format!("{}: {}", found.path(), nvml.words(status));
            return Err(Error::unavailable(Name::Nvml.noun(), reason));
        }
        nvml.shutdown = shutdown;
        Ok(Arc::new(nvml))
    }

    /// Returns the path or name by which the library was opened.
    pub fn path(&self) -> &str {
        self.found.path()
    }

    /// Returns the version of the library, which is the driver's version.
    pub fn version(&self) -> Result<String> {
        let mut text = [0u8; VERSION_BYTES];
        // SAFETY: the type is that of nvml.h. At most `VERSION_BYTES` bytes are written.
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

    /// Creates a monitor of this device. The device is identified by its PCI bus address, because
    /// NVML's device numbers ignore `CUDA_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// [`Error::Device`] if NVML does not find the device or may not access it.
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
        // SAFETY: the type is that of nvml.h. The text is alive, and one handle is written.
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
        // SAFETY: the call returns a static string, or null, for every number.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("NVML error {status}");
        }
        // SAFETY: the string ends with a NUL.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        format!("{text} (NVML error {status})")
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: NVML was initialised once and is shut down once.
        let _ = unsafe { (self.shutdown)() };
    }
}

impl Monitor {
    /// Reads the current values. Takes about 40 ms, in which PCIe traffic is counted. Threads that
    /// process samples must not call this function.
    ///
    /// # Errors
    /// [`Error::Device`], for example if the device is lost. A value that the device does not
    /// support or that this process may not read is not an error.
    pub fn read(&self) -> Result<DeviceReading> {
        let mut rates = Rates::default();
        let rates = self
            .ask("nvmlDeviceGetUtilizationRates", self.utilisation, |call| {
                // SAFETY: the handle is alive. The call writes the structure of nvml.h.
                unsafe { call(self.device, &mut rates) }
            })?
            .then_some(rates.gpu);
        let mut memory = MemoryInfo::default();
        let memory = self
            .ask("nvmlDeviceGetMemoryInfo", self.memory, |call| {
                // SAFETY: the handle is alive. The call writes the structure of nvml.h.
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
            // SAFETY: the handle is alive. The call writes two numbers.
            unsafe { call(self.device, &mut percent, &mut microseconds) }
        })?;
        Ok(told.then(|| share(percent)))
    }

    /// Returns the PCIe throughput in bytes per second.
    fn throughput(&self, counter: c_uint) -> Result<Option<f64>> {
        let mut kilobytes = 0;
        let told = self.ask("nvmlDeviceGetPcieThroughput", self.pcie, |call| {
            // SAFETY: the handle is alive. The call writes one number.
            unsafe { call(self.device, counter, &mut kilobytes) }
        })?;
        Ok(told.then(|| f64::from(kilobytes) * 1000.0))
    }

    /// Calls a function of NVML. Returns whether the device supports the query.
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

/// Values of `nvmlReturn_t`.
const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;
const NO_PERMISSION: c_int = 4;
const FUNCTION_NOT_FOUND: c_int = 13;

/// `NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE`.
const VERSION_BYTES: usize = 80;

fn share(percent: c_uint) -> f64 {
    f64::from(percent) / 100.0
}

/// Does nothing. Used as shutdown function before the library is initialised.
unsafe extern "C" fn nothing() -> c_int {
    SUCCESS
}
