//! `check-windows`: tests whether the JPEG engines of a GPU decode windows. The test may crash, so
//! the library runs this command in a separate process.

use clap::Args;
use feedwater::gpu::{Device, Runtime};
use feedwater::internals::gpu::nvjpeg::check_windows;

use super::{CommandError, print};

/// Checks whether the JPEG engines of a GPU decode windows
#[derive(Args)]
pub struct Options {
    /// Number of the GPU
    gpu: usize,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let device = Device::open_with(options.gpu, &Runtime::default())?;
    let mut printed = Ok(());
    check_windows(&device, |line| {
        if printed.is_ok() {
            printed = print(line);
        }
    })?;
    printed
}
