//! Decode routes: ways from an encoded image to pixels on the device.
//!
//! A route has two parts. The part in this module is for plans: name, supported images and memory.
//! The other part is a `DeviceDecoder` (`loader/device/decoder.rs`), which needs a GPU. To add a
//! route, add these files and lines:
//!
//! * a file in `plan/route/` with the [`RouteSpec`], and a line in the list below,
//! * a file in `loader/device/routes/` with the decoder, and a line in the list of
//!   `loader/device/routes.rs`.

use serde::{Deserialize, Serialize};

use crate::header::Header;

pub(super) mod nvjpeg;

pub(crate) use self::feedwater::{FeedwaterCall, PROBLEM_BYTES, description_bytes};

macro_rules! routes {
    ($(
        $(#[doc = $about:literal])+
        $(#[serde($($serde:tt)+)])*
        $route:ident = $file:ident
    ),+ $(,)?) => {
        $(mod $file;)+

        /// Route from a JPEG's bytes to pixels on the device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Route {
            $($(#[doc = $about])+ $(#[serde($($serde)+)])* $route),+
        }

        impl Route {
            /// All routes in order of preference.
            pub const ALL: [Route; [$(stringify!($route)),+].len()] = [$(Route::$route),+];

            /// One-line description of the decoder.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Route::$route => concat!($($about),+).trim_ascii()),+
                }
            }

            /// Name before version 1.0, still accepted in settings.
            pub const fn former_name(self) -> Option<&'static str> {
                self.spec().former_name
            }

            const fn spec(self) -> &'static RouteSpec {
                match self {
                    $(Route::$route => $file::SPEC),+
                }
            }
        }
    };
}

routes! {
    /// The GPU's JPEG engines; many images in one call.
    #[serde(alias = "hardware")]
    NvjpegHardware = nvjpeg_hardware,
    /// feedwater's own decoder in GPU kernels, with the pixels of the CPU; many images in one call.
    Feedwater = feedwater,
    /// All steps, entropy decoding included, in GPU kernels.
    #[serde(alias = "cuda")]
    NvjpegGpu = nvjpeg_gpu,
    /// Entropy decoding on the CPU, the rest on the GPU.
    #[serde(alias = "host")]
    NvjpegHybrid = nvjpeg_hybrid,
    /// The CPU's decoders. The window's pixels are uploaded.
    Cpu = cpu,
}

/// Properties of a route that a plan depends on.
#[derive(Debug)]
struct RouteSpec {
    /// Name in settings and reports.
    name: &'static str,
    /// See [`Route::former_name`].
    former_name: Option<&'static str>,
    /// Name of the footprint's row for the decoder's own buffers.
    row: &'static str,
    /// See [`Route::is_own`].
    is_own: bool,
    /// See [`Route::on_device`].
    on_device: bool,
    /// See [`Route::batches`].
    batches: bool,
    /// See [`Route::uses_worker_cpu`].
    uses_worker_cpu: bool,
    /// See [`Route::reduces`].
    reduces: bool,
    /// Checks that the decoder supports an image with this header at this reduction, if it
    /// [reduces](Route::reduces) at all. The error names the unsupported property.
    accepts: fn(&Header, u32) -> Result<(), &'static str>,
    /// Maximum size of a decode state's buffers.
    memory: fn(&DecoderSizes) -> DecoderMemory,
    /// Assumed time to decode an image, until times are measured.
    cost: AssumedCost,
}

/// Sizes that determine the memory of a decode state.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecoderSizes {
    /// Pixels of the largest image.
    pub pixels: usize,
    /// Bytes of the largest file.
    pub encoded_bytes: usize,
    /// Maximum number of images per call, on a route that [batches](Route::batches).
    pub group: usize,
}

/// Size of the buffers of one decode state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct DecoderMemory {
    /// Device memory, in bytes.
    pub device_bytes: usize,
    /// Page-locked memory, in bytes.
    pub pinned_bytes: usize,
}

/// Measured memory of a route's decode states, for the largest image of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct MeasuredMemory {
    /// The route.
    pub route: Route,
    /// Largest number of images per call that was measured.
    pub group: usize,
    /// Number of images that are decoded at the same time.
    pub lanes: usize,
    /// Memory of a state for one image per call.
    pub one: DecoderMemory,
    /// Additional memory for each further image of a call.
    pub each: DecoderMemory,
    /// Part of `one` that is in the two buffers which a decode state allocates at the start with a
    /// fixed size.
    pub buffers: DecoderMemory,
}

impl MeasuredMemory {
    /// Memory of a state for `group` images per call.
    pub(super) fn of(&self, group: usize) -> DecoderMemory {
        let others = group.saturating_sub(1);
        DecoderMemory {
            device_bytes: self.one.device_bytes + others * self.each.device_bytes,
            pinned_bytes: self.one.pinned_bytes + others * self.each.pinned_bytes,
        }
    }
}

/// Assumed time that an image occupies one decoder (a decode state, an engine or a worker), in
/// seconds.
///
/// The values are orders of magnitude. Only the ratio of the cost per byte to the cost per pixel
/// matters, because the loader learns the scale from the first images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AssumedCost {
    /// Per image.
    pub image: f64,
    /// Seconds per byte of the file.
    pub byte: f64,
    /// Seconds per pixel of the image.
    pub pixel: f64,
    /// Seconds per pixel of the wanted window.
    pub window_pixel: f64,
}

impl Route {
    /// Routes that are [on the device](Self::on_device).
    pub fn all_on_device() -> impl Iterator<Item = Route> {
        Self::ALL.into_iter().filter(|route| route.on_device())
    }

    /// Name in settings and reports.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Whether only code of feedwater decodes, or on the CPU also libjpeg-turbo. Its pixels are
    /// those of the CPU, and its memory is known exactly. Otherwise nvJPEG decodes, whose pixels
    /// differ slightly, and whose memory is measured or estimated.
    pub const fn is_own(self) -> bool {
        self.spec().is_own
    }

    /// Whether the GPU decodes, with decode states whose memory the plan counts. Otherwise the CPU
    /// decodes and a window is uploaded.
    pub const fn on_device(self) -> bool {
        self.spec().on_device
    }

    /// Whether a gatherer thread decodes many images per call. Otherwise the worker that read an
    /// image decodes it.
    pub const fn batches(self) -> bool {
        self.spec().batches
    }

    /// Whether decoding uses the CPU of a worker. `decode.max_cpu_threads` limits how many images
    /// are decoded on such routes at the same time.
    pub const fn uses_worker_cpu(self) -> bool {
        self.spec().uses_worker_cpu
    }

    /// Whether the decoder can reduce both sides of an image by 2, 4 or 8.
    pub const fn reduces(self) -> bool {
        self.spec().reduces
    }

    /// Checks that the decoder supports an image with this header at this reduction (1, 2, 4 or 8).
    /// The error names the unsupported property. The result depends only on the header; no decoder
    /// is called.
    ///
    /// | image | routes that accept it |
    /// |---|---|
    /// | baseline JPEG, all components in one scan | all routes |
    /// | extended sequential JPEG, all components in one scan | all routes but `nvjpeg-gpu` |
    /// | sequential JPEG with several scans | `cpu` |
    /// | progressive JPEG | `nvjpeg-hybrid`, `cpu` |
    /// | lossless or hierarchical JPEG, arithmetic coding, or not 8 bits per sample | `cpu` |
    /// | gray, YCbCr 4:4:4, 4:2:2, 4:2:0, 4:4:0 | all routes |
    /// | gray with unusual sampling factors | `feedwater`, `nvjpeg-hybrid`, `cpu` |
    /// | YCbCr 4:4:4, 4:2:2, 4:2:0, 4:4:0, with unusual sampling factors | `nvjpeg-hybrid`, `cpu` |
    /// | YCbCr 4:1:1 | all routes but `nvjpeg-hardware` |
    /// | YCbCr 4:1:0 | all routes but `nvjpeg-hardware` and `feedwater` |
    /// | chroma subsamplings other than 4:4:4, 4:2:2, 4:2:0, 4:4:0, 4:1:1, 4:1:0 | `cpu` |
    /// | JPEG with RGB, CMYK or YCCK colors, or with two components | `cpu` |
    /// | JPEG with restart markers, or with any orientation | all routes |
    /// | width or height below 16 pixels | `feedwater`, `nvjpeg-hybrid`, `cpu` |
    /// | 4:2:2 or 4:2:0, at most 4 pixels wide | `nvjpeg-hybrid`, `cpu` |
    /// | width or height above 16000 pixels | all routes but `nvjpeg-hardware` |
    /// | width or height above 16384 pixels | `feedwater`, `cpu` |
    /// | 2^19 or more blocks of luma | all routes but `feedwater` |
    /// | image that is reduced by 2, 4 or 8 while it is decoded | `nvjpeg-hardware`, `feedwater`, `cpu` |
    /// | PNG, WebP, PNM | `cpu` |
    ///
    /// `cpu` accepts every image, and returns an error for images that it cannot decode. The limits
    /// of the JPEG engines and the kernels come from nvJPEG's documentation of its backends (CUDA
    /// 13). That documentation does not mention sides above 16384, images smaller than one MCU,
    /// unusual sampling factors, or several sequential scans. The table assumes that nvJPEG does
    /// not support them. A wrong assumption costs only speed, because another route decodes the
    /// image.
    pub fn takes(self, header: &Header, reduction: u32) -> Result<(), &'static str> {
        (self.spec().accepts)(header, reduction)?;
        if reduction > 1 && !self.reduces() { Err("a reduction while decoding") } else { Ok(()) }
    }

    /// Assumed time to decode an image, until times are measured.
    pub(crate) const fn assumed_cost(self) -> AssumedCost {
        self.spec().cost
    }

    /// Name of the footprint's row for the decoder's own buffers.
    pub(super) const fn row(self) -> &'static str {
        self.spec().row
    }

    /// Maximum size of each decode state's own buffers.
    pub(super) fn memory(self, sizes: &DecoderSizes) -> DecoderMemory {
        (self.spec().memory)(sizes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn route_names_round_trip() {
        for route in Route::ALL {
            let text = serde_json::to_string(&route).unwrap();
            assert_eq!(text, format!("{:?}", route.name()));
            assert_eq!(serde_json::from_str::<Route>(&text).unwrap(), route);
            assert!(!route.about().is_empty(), "{route:?}");
        }
        let own =
            |of: fn(Route) -> &'static str| Route::ALL.map(of).into_iter().collect::<HashSet<_>>();
        assert_eq!(own(Route::name).len(), Route::ALL.len());
        assert_eq!(own(Route::row).len(), Route::ALL.len());
    }

    /// Checks combinations of properties that the plan and the loader rely on.
    #[test]
    fn properties_of_routes_are_consistent() {
        let sizes = DecoderSizes { pixels: 1 << 20, encoded_bytes: 1 << 18, group: 7 };
        for route in Route::ALL {
            let DecoderMemory { device_bytes, pinned_bytes } = route.memory(&sizes);
            assert_eq!(route.on_device(), device_bytes > 0 && pinned_bytes > 0, "{route:?}");
            assert!(!route.batches() || route.on_device() && !route.uses_worker_cpu(), "{route:?}");
            assert!(route.on_device() || route.uses_worker_cpu(), "{route:?}");
        }
    }
}
