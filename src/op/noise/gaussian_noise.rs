//! `gaussian_noise`: adds normally distributed noise to each channel of each pixel.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::PositionFormula;
use crate::op::settings::check_number;
use crate::op::shared::noise::{equal_if_gray, key, normals, words};
use crate::op::wide::truncated;
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Adds normally distributed noise to each channel of each pixel, like torchvision's
/// `GaussianNoise`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GaussianNoise {
    /// Mean of the noise, -1 to 1, where 1 means 255 levels of a byte. Default 0.
    pub mean: f64,
    /// Standard deviation of the noise, 0 to 10, where 1 means 255 levels of a byte. Default 0.1.
    pub sigma: f64,
}

impl Default for GaussianNoise {
    fn default() -> Self {
        Self { mean: 0.0, sigma: 0.1 }
    }
}

impl Operator for GaussianNoise {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::position::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let key = key(draw.rng());
        let is_gray = u32::from(draw.channels() == 1);
        let params = Params { is_gray, ..Params::new(self.mean, self.sigma, key) };
        draw.position::<Self>(&params);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("mean", self.mean, -1.0, 1.0)?;
        check_number("sigma", self.sigma, 0.0, 10.0)
    }
}

impl BuiltIn for GaussianNoise {
    const NAME: &'static str = "gaussian_noise";

    fn examples() -> Vec<Self> {
        vec![Self::default(), Self { mean: 0.2, sigma: 1.0 }, Self { mean: -0.1, sigma: 0.0 }]
    }
}

impl PositionFormula for GaussianNoise {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("GaussianNoise", include_str!("../../../kernels/gaussian_noise.cu")));

    /// Adds `mean + sigma * n`, truncated towards 0, and clamps to 0..=255: torchvision's
    /// `gaussian_noise` on tensors of bytes (it refuses PIL images). The numbers `n` are normally
    /// distributed, from [`normals`].
    #[inline(always)]
    fn bytes(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
        let normals = equal_if_gray(normals(words(params.key, x, y)), params.is_gray);
        std::array::from_fn(|channel| {
            let noise = (params.mean + params.sigma * normals[channel]).clamp(-255.0, 255.0);
            let levels = truncated(noise.abs());
            let levels = if noise < 0.0 { -levels } else { levels };
            (i32::from(pixel[channel]) + levels).clamp(0, 255) as u8
        })
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Mean of the noise, in levels of a byte.
    pub mean: f32,
    /// Standard deviation of the noise, in levels of a byte, at most 2550.
    pub sigma: f32,
    /// Key of the random numbers for the sample's noise.
    pub key: [u32; 2],
    /// 1 if all channels have the noise of the first, else 0.
    pub is_gray: u32,
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}

impl Params {
    /// Parameters for a mean and a standard deviation on a scale of 0 to 1, as in torchvision.
    pub fn new(mean: f64, sigma: f64, key: [u32; 2]) -> Self {
        Self {
            mean: (mean * 255.0) as f32,
            sigma: (sigma * 255.0) as f32,
            key,
            is_gray: 0,
            padding: 0,
        }
    }
}
