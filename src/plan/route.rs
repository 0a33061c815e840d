//! Routes: by which engine a picture is decoded.

use serde::{Deserialize, Serialize};

/// One way from a JPEG's bytes to pixels on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// The GPU's JPEG engines; many pictures in one call.
    Hardware,
    /// Entropy decoding and everything else in kernels of the GPU.
    Cuda,
    /// Entropy decoding on the CPU, the rest on the GPU.
    Host,
    /// libjpeg-turbo on the CPU; the window's pixels are uploaded.
    Cpu,
}

impl Route {
    /// All of them.
    pub const ALL: [Route; 4] = [Route::Hardware, Route::Cuda, Route::Host, Route::Cpu];

    /// The name in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Route::Hardware => "hardware",
            Route::Cuda => "cuda",
            Route::Host => "host",
            Route::Cpu => "cpu",
        }
    }
}
