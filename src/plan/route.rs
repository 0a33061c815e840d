//! Routes: by which engine an image is decoded.

use serde::{Deserialize, Serialize};

use crate::header::{ColorSpace, FrameKind, Header, JpegHeader, Sampling};

/// One way from a JPEG's bytes to pixels on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Route {
    /// The GPU's JPEG engines; many images in one call.
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

    /// Whether the engine takes an image with this header, at this reduction (1, 2, 4 or 8); the reason where it does
    /// not. The header alone decides: no engine is asked to find out by failing.
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
        if self == Route::Cpu {
            return Ok(());
        }
        let Some(jpeg) = &header.jpeg else { return Err("not a JPEG") };
        for (refused, why) in [
            (matches!(jpeg.frame, FrameKind::Lossless), "lossless"),
            (matches!(jpeg.frame, FrameKind::Hierarchical), "hierarchical"),
            (jpeg.arithmetic, "arithmetic coding"),
            (jpeg.precision != 8, "not 8 bits per sample"),
            (!jpeg.is_progressive() && !jpeg.is_interleaved(), "several sequential scans"),
        ] {
            if refused {
                return Err(why);
            }
        }
        match jpeg.color_space() {
            ColorSpace::Gray | ColorSpace::YCbCr => {}
            ColorSpace::Rgb => return Err("RGB without a colour transform"),
            ColorSpace::Cmyk | ColorSpace::Ycck => return Err("four inks"),
            ColorSpace::Unknown => return Err("two components"),
        }
        let sides = [header.size.width, header.size.height];
        let largest = if self == Route::Hardware { MOST_HARDWARE } else { MOST };
        if sides.iter().any(|&side| side > largest) {
            return Err("too wide or too high");
        }
        if jpeg.sampling() == Sampling::Other {
            return Err("an unusual sampling");
        }
        if self == Route::Host {
            return if reduction > 1 { Err(REDUCED) } else { Ok(()) };
        }
        if jpeg.is_progressive() {
            return Err("progressive");
        }
        if sides.iter().any(|&side| side < LEAST) {
            return Err("smaller than one MCU");
        }
        if !has_usual_factors(jpeg) {
            return Err("unusual sampling factors");
        }
        match self {
            Route::Hardware if matches!(jpeg.sampling(), Sampling::S411 | Sampling::S410) => {
                Err("4:1:1 or 4:1:0")
            }
            Route::Cuda if jpeg.frame != FrameKind::Baseline => Err("extended sequential"),
            Route::Cuda if reduction > 1 => Err(REDUCED),
            _ => Ok(()),
        }
    }
}

/// Pixels a side that the hardware engines take.
const MOST_HARDWARE: u32 = 16_000;
/// Pixels a side that nvJPEG is given at all.
const MOST: u32 = 16_384;
/// Pixels a side of the largest MCU of 4:2:0.
const LEAST: u32 = 16;
const REDUCED: &str = "a reduction while decoding";

/// Whether the chroma, or what is gray, has factors of 1.
fn has_usual_factors(jpeg: &JpegHeader) -> bool {
    jpeg.components().last().is_some_and(|last| (last.h, last.v) == (1, 1))
}
