//! Names of the CUDA libraries.

/// NVIDIA library that is opened at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryName {
    /// libcuda, which comes with the kernel driver.
    Driver,
    /// nvJPEG.
    NvJpeg,
    /// Run-time compiler.
    Nvrtc,
    /// NVML, the driver's library for monitoring devices.
    Nvml,
}

/// Must be the variant declared last.
pub(super) const NAMES: usize = LibraryName::Nvml as usize + 1;
