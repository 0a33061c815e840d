//! `flip`: mirrors columns, rows or both.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::random::SampleRng;

use super::{
    Cuda, Examples, FastPath, FieldError, Fusion, Operator, Spatial, Tiling, Trace, Wanted,
};

/// Mirrors each sample with given probabilities, columns and rows independently.
///
/// Draws like torchvision's `RandomHorizontalFlip` and `RandomVerticalFlip`: mirrors if a uniform number in `[0, 1)`
/// is below the probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flip {
    /// Probability of mirroring left to right, 0 to 1. Default 0.
    pub horizontal: f64,
    /// Probability of mirroring top to bottom, 0 to 1. Default 0.
    pub vertical: f64,
}

/// Mirroring of one sample.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct FlipParams {
    width: i32,
    height: i32,
    horizontal: i32,
    vertical: i32,
}

impl Operator for Flip {
    const NAME: &'static str = "flip";
    type Params = FlipParams;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Flip", include_str!("../../kernels/flip.cu")).tiled(Tiling::Follows));

    fn prepare(&self, input: Size, rng: &mut SampleRng) -> (Size, FlipParams) {
        let horizontal = rng.chance(self.horizontal);
        let vertical = rng.chance(self.vertical);
        let (width, height) = (input.width as i32, input.height as i32);
        (
            input,
            FlipParams { width, height, horizontal: horizontal.into(), vertical: vertical.into() },
        )
    }

    fn reference(params: &FlipParams, _: &[i32], src: &HostImage, out: &mut HostImage) {
        match (src, out) {
            (HostImage::U8(src), HostImage::U8(out)) => mirror(params, src, out),
            (HostImage::F32(src), HostImage::F32(out)) => mirror(params, src, out),
            _ => unreachable!("flip preserves the pixel type"),
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        for (field, p) in [("horizontal", self.horizontal), ("vertical", self.vertical)] {
            if !(0.0..=1.0).contains(&p) {
                let problem = format!("must be a probability from 0 to 1, is {p}");
                return Err(FieldError::new(field, problem));
            }
        }
        Ok(())
    }

    fn is_random(&self) -> bool {
        // A number is drawn for every probability but has no effect if the probability is 0 or 1.
        [self.horizontal, self.vertical].iter().any(|&p| p > 0.0 && p < 1.0)
    }

    fn spatial(&self) -> Option<&dyn Spatial<FlipParams>> {
        Some(self)
    }

    fn fast_path(&self) -> Option<&dyn FastPath<FlipParams>> {
        Some(self)
    }
}

impl Spatial<FlipParams> for Flip {
    fn demand(&self, params: &mut FlipParams, wanted: Wanted, _: &mut Vec<i32>) -> Roi {
        let Roi { x, y, width, height } = wanted.output;
        Roi {
            x: if params.horizontal != 0 { params.width as u32 - x - width } else { x },
            y: if params.vertical != 0 { params.height as u32 - y - height } else { y },
            width,
            height,
        }
    }

    fn trace(&self, params: &FlipParams, trace: &mut Trace) {
        trace.cropping = false;
        trace.flipped_horizontally ^= params.horizontal != 0;
        trace.flipped_vertically ^= params.vertical != 0;
        trace.view.flip(params.horizontal != 0, params.vertical != 0);
    }
}

impl FastPath<FlipParams> for Flip {
    fn apply(&self, params: &FlipParams, table: &[i32], src: &HostImage, out: &mut HostImage) {
        Self::reference(params, table, src, out);
    }

    fn fusion(&self, params: &FlipParams) -> Fusion {
        Fusion::Flip { horizontal: params.horizontal != 0, vertical: params.vertical != 0 }
    }
}

impl Examples for Flip {
    fn examples() -> Vec<Self> {
        [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]
            .map(|(horizontal, vertical)| Flip { horizontal, vertical })
            .to_vec()
    }
}

fn mirror<T: Copy + Default>(params: &FlipParams, src: &Image<T>, out: &mut Image<T>) {
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            let sx = if params.horizontal != 0 { params.width as u32 - 1 - x } else { x };
            let sy = if params.vertical != 0 { params.height as u32 - 1 - y } else { y };
            out.set_pixel(x, y, src.pixel(sx, sy));
        }
    }
}
