//! Routes: by which decoder the pixels of an image get to the device.
//!
//! A route has two halves. Here is what a plan must know of it: name, images, memory. What decodes is its `DeviceDecoder`
//! (`loader/device/decoder.rs`), which needs a GPU. To add a route: a file with its [`RouteSpec`] in `plan/route/`, one line in
//! the list below; and a file with its decoder in `loader/device/routes/`, one line in the list of `loader/device/routes.rs`.

use serde::{Deserialize, Serialize};

use crate::header::Header;

pub(super) mod nvjpeg;

macro_rules! routes {
    ($(
        $(#[doc = $about:literal])+
        $(#[serde($($serde:tt)+)])*
        $route:ident = $file:ident
    ),+ $(,)?) => {
        $(mod $file;)+

        /// One way from a JPEG's bytes to pixels on the device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Route {
            $($(#[doc = $about])+ $(#[serde($($serde)+)])* $route),+
        }

        impl Route {
            /// All of them. Where several would do, the first is named first.
            pub const ALL: [Route; [$(stringify!($route)),+].len()] = [$(Route::$route),+];

            /// What it decodes with, in one line for people.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Route::$route => concat!($($about),+).trim_ascii()),+
                }
            }

            /// Name before version 1.0, which is still accepted.
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
    /// Entropy decoding and everything else in kernels of the GPU.
    #[serde(alias = "cuda")]
    NvjpegGpu = nvjpeg_gpu,
    /// Entropy decoding on the CPU, the rest on the GPU.
    #[serde(alias = "host")]
    NvjpegHybrid = nvjpeg_hybrid,
    /// libjpeg-turbo on the CPU; the window's pixels are uploaded.
    Cpu = cpu,
}

/// What a plan must know of a route.
#[derive(Debug)]
struct RouteSpec {
    /// Name in settings and reports.
    name: &'static str,
    /// See [`Route::former_name`].
    former_name: Option<&'static str>,
    /// Row of the footprint with the decoder's own buffers.
    row: &'static str,
    /// See [`Route::on_device`].
    on_device: bool,
    /// See [`Route::batches`].
    batches: bool,
    /// See [`Route::uses_worker_cpu`].
    uses_worker_cpu: bool,
    /// See [`Route::reduces`].
    reduces: bool,
    /// Whether the decoder takes an image with this header, unreduced; the reason where it does not.
    accepts: fn(&Header) -> Result<(), &'static str>,
    /// Most bytes of a decode state's buffers.
    memory: fn(&DecoderSizes) -> DecoderMemory,
    /// What an image is assumed to cost before any was measured.
    cost: AssumedCost,
}

/// What the memory of a decode state depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecoderSizes {
    /// Pixels of the largest image.
    pub pixels: usize,
    /// Bytes of the largest file.
    pub encoded_bytes: usize,
    /// Most images of one call, on a route that [batches](Route::batches).
    pub group: usize,
}

/// Bytes of a decode state's own buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DecoderMemory {
    /// On the device.
    pub device_bytes: usize,
    /// In page-locked memory.
    pub pinned_bytes: usize,
}

/// Seconds that an image takes of one of a decoder's places.
///
/// Orders of magnitude: the ratio of bytes to pixels is what matters, since the scale is learnt from the first images on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AssumedCost {
    /// For the image.
    pub image: f64,
    /// For each byte of its file.
    pub byte: f64,
    /// For each of its pixels.
    pub pixel: f64,
    /// For each pixel of the window that is wanted.
    pub window_pixel: f64,
}

impl Route {
    /// Those that are [on the device](Self::on_device).
    pub fn all_on_device() -> impl Iterator<Item = Route> {
        Self::ALL.into_iter().filter(|route| route.on_device())
    }

    /// Name in settings and reports.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Whether the device decodes, with decode states of which the plan knows the memory; else the CPU does, and a window is
    /// uploaded.
    pub const fn on_device(self) -> bool {
        self.spec().on_device
    }

    /// Whether many images are decoded in one call, by a thread that gathers them; else each by the worker that read it.
    pub const fn batches(self) -> bool {
        self.spec().batches
    }

    /// Whether decoding keeps a worker's CPU busy: `decode.max_cpu_threads` limits how many images are on such routes at one
    /// time.
    pub const fn uses_worker_cpu(self) -> bool {
        self.spec().uses_worker_cpu
    }

    /// Whether the decoder can reduce both sides of an image by 2, 4 or 8.
    pub const fn reduces(self) -> bool {
        self.spec().reduces
    }

    /// Whether the decoder takes an image with this header, at this reduction (1, 2, 4 or 8); the reason where it does
    /// not. The header alone decides: no decoder is asked to find out by failing.
    ///
    /// | image | hardware | cuda | host | cpu |
    /// |---|---|---|---|---|
    /// | baseline, all components in one scan | yes | yes | yes | yes |
    /// | extended sequential, all components in one scan | yes | no | yes | yes |
    /// | sequential with several scans | no | no | no | yes |
    /// | progressive | no | no | yes | yes |
    /// | lossless, hierarchical, arithmetic, other than 8 bits | no | no | no | yes |
    /// | gray, YCbCr 4:4:4, 4:2:2, 4:2:0, 4:4:0 | yes | yes | yes | yes |
    /// | the same with factors that are multiples of the usual ones | no | no | yes | yes |
    /// | YCbCr 4:1:1, 4:1:0 | no | yes | yes | yes |
    /// | other samplings | no | no | no | yes |
    /// | RGB, CMYK, YCCK, two components | no | no | no | yes |
    /// | restart markers, any orientation | yes | yes | yes | yes |
    /// | a side below 16 pixels | no | no | yes | yes |
    /// | a side above 16000 pixels | no | yes | yes | yes |
    /// | a side above 16384 pixels | no | no | no | yes |
    /// | reduced | yes | no | no | yes |
    /// | PNG, WebP, PNM | no | no | no | yes |
    ///
    /// `cpu` takes everything: what libjpeg cannot decode gets its named fault there. The limits of the hardware engines
    /// and of the kernels are those of nvJPEG's documentation (its backends, CUDA 13). Where that is silent the table is
    /// careful, since an image that goes elsewhere costs only speed: it says nothing of sides above 16384, of images
    /// smaller than one MCU, of unusual factors, nor of several sequential scans.
    pub fn takes(self, header: &Header, reduction: u32) -> Result<(), &'static str> {
        (self.spec().accepts)(header)?;
        if reduction > 1 && !self.reduces() { Err("a reduction while decoding") } else { Ok(()) }
    }

    /// What an image is assumed to cost before any was measured.
    pub(crate) const fn assumed_cost(self) -> AssumedCost {
        self.spec().cost
    }

    /// Row of the footprint with the decoder's own buffers.
    pub(super) const fn row(self) -> &'static str {
        self.spec().row
    }

    /// Bytes of each decode state's own buffers, at most.
    pub(super) fn memory(self, sizes: &DecoderSizes) -> DecoderMemory {
        (self.spec().memory)(sizes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_route_is_read_by_the_name_that_it_is_told_by() {
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

    /// What the plan and the loader rely on where they ask for properties alone.
    #[test]
    fn properties_of_a_route_go_together() {
        let sizes = DecoderSizes { pixels: 1 << 20, encoded_bytes: 1 << 18, group: 7 };
        for route in Route::ALL {
            let DecoderMemory { device_bytes, pinned_bytes } = route.memory(&sizes);
            assert_eq!(route.on_device(), device_bytes > 0 && pinned_bytes > 0, "{route:?}");
            assert!(!route.batches() || route.on_device() && !route.uses_worker_cpu(), "{route:?}");
            assert!(route.on_device() || route.uses_worker_cpu(), "{route:?}");
        }
    }
}
