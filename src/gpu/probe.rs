//! Report about this machine's CUDA installation, for users. Loaders do not need it.

use super::nvjpeg::Library;
use super::nvml::Nvml;
use super::nvrtc::Nvrtc;
use super::{Device, LibraryName, Runtime, device_count, driver_version, library};

/// Report about the CUDA installation. An error is a text that says what is missing and how to
/// install it.
#[derive(Clone, Debug)]
pub struct Probe {
    /// libcuda. Its version is the CUDA version that the driver supports.
    pub driver: Result<LibraryReport, String>,
    /// Report about each GPU, or the reason why the GPU cannot be opened. Empty without a driver.
    pub devices: Vec<Result<DeviceReport, String>>,
    /// nvJPEG.
    pub nvjpeg: Result<LibraryReport, String>,
    /// NVRTC, the run-time compiler.
    pub nvrtc: Result<LibraryReport, String>,
    /// NVML, which is used only to report GPU utilization.
    pub nvml: Result<LibraryReport, String>,
}

/// Report about one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryReport {
    /// Path or name by which the library was opened.
    pub path: String,
    /// Version, such as `13.0`.
    pub version: String,
    /// Known problems of this version.
    pub warnings: Vec<String>,
}

/// Report about one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Number of the GPU.
    pub ordinal: usize,
    /// Name of the GPU.
    pub name: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Free device memory, in bytes.
    pub free_bytes: u64,
    /// Total device memory, in bytes.
    pub total_bytes: u64,
}

/// Probes all libraries that the runtime specifies or finds. Opens the libraries and, for a short
/// time, every GPU. Never panics.
pub fn probe(runtime: &Runtime) -> Probe {
    let count = device_count(runtime);
    let version = count.as_ref().ok().and_then(|_| driver_version().ok());
    let driver = count.clone().and_then(|_| {
        let found = library::open(runtime, LibraryName::Driver, None)?;
        let version = driver_version()?;
        let version = format!("{}.{}", version / 1000, version % 1000 / 10);
        Ok(LibraryReport { path: found.path().to_owned(), version, warnings: Vec::new() })
    });
    let devices = (0..count.unwrap_or(0))
        .map(|ordinal| device(ordinal, runtime).map_err(|error| error.to_string()));
    let major = version.map(|version| version / 1000);
    let nvrtc = Nvrtc::open(runtime, major).map(|nvrtc| LibraryReport {
        path: nvrtc.path().to_owned(),
        version: format!("{}.{}", nvrtc.version().0, nvrtc.version().1),
        warnings: Vec::new(),
    });
    let nvjpeg = Library::open(runtime, major).map(|nvjpeg| LibraryReport {
        path: nvjpeg.path().to_owned(),
        version: nvjpeg.version().to_string(),
        warnings: nvjpeg.warnings(),
    });
    let nvml = Nvml::open(runtime).and_then(|nvml| {
        let (path, version) = (nvml.path().to_owned(), nvml.version()?);
        Ok(LibraryReport { path, version, warnings: Vec::new() })
    });
    Probe {
        driver: driver.map_err(|error| error.to_string()),
        devices: devices.collect(),
        nvjpeg: nvjpeg.map_err(|error| error.to_string()),
        nvrtc: nvrtc.map_err(|error| error.to_string()),
        nvml: nvml.map_err(|error| error.to_string()),
    }
}

fn device(ordinal: usize, runtime: &Runtime) -> crate::error::Result<DeviceReport> {
    let device = Device::open_with(ordinal, runtime)?;
    let (free_bytes, total_bytes) = device.memory_bytes()?;
    let (name, capability) = (device.name().to_owned(), device.capability());
    Ok(DeviceReport { ordinal, name, capability, free_bytes, total_bytes })
}
