//! CUDA libraries that are opened at run time.

/// NVIDIA library that is opened at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryName {
    /// libcuda, which is installed with the kernel driver.
    Driver,
    /// nvJPEG.
    NvJpeg,
    /// NVRTC, CUDA's run-time compiler.
    Nvrtc,
    /// NVML, the driver's library for monitoring devices.
    Nvml,
}

/// Number of libraries. This expression must use the last declared variant.
pub(super) const NAMES: usize = LibraryName::Nvml as usize + 1;
