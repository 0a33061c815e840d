//! Decoding on the device: the kernels in `kernels/jpeg/`, and what they must know of an image. The
//! kernels accept the sequential JPEGs that the CPU decoder accepts, and return the same samples.
//! They report every anomaly as a [`DeviceProblem`]; the image is then decoded on the CPU.

mod file;
mod image;
mod memory;
mod planes;
mod problem;
mod text;

pub use file::DeviceFile;
pub use image::{DeviceImage, DeviceRefusal};
pub use memory::{DeviceMemory, DeviceRoom, JpegParams};
pub use problem::DeviceProblem;
pub use text::{JPEG_KERNELS, JpegKernel, jpeg_kernels_text};
