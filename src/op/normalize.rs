//! `normalize`: bytes to floats around 0.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::image::{HostImage, PixelType};
use crate::geometry::Size;
use crate::random::SampleRng;
use crate::tensor::CHANNELS;

use super::{FieldError, Fusion, Operator, Tiling};

/// `(value / 255 - mean) / std`, each step rounded to f32: torchvision's `ToTensor`, then `Normalize`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// Mean of red, green and blue, in terms of 0 to 1.
    pub mean: [f32; 3],
    /// Their standard deviations, over 0.
    pub std: [f32; 3],
}

/// Mean and standard deviation of each channel, in terms of 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Subtracted.
    pub mean: [f32; 3],
    /// Then divided by.
    pub std: [f32; 3],
}

impl Params {
    /// What becomes of a byte of a channel.
    pub fn value(&self, channel: usize, byte: u8) -> f32 {
        (f32::from(byte) / 255.0 - self.mean[channel]) / self.std[channel]
    }

    /// What becomes of every byte of every channel.
    pub fn tables(&self) -> [[f32; 256]; CHANNELS] {
        std::array::from_fn(|channel| {
            std::array::from_fn(|byte| self.value(channel, byte as u8))
        })
    }
}

impl Normalize {
    /// The statistics of ImageNet with which torchvision's models are trained.
    pub const IMAGENET: Self =
        Self { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
}

impl Operator for Normalize {
    const NAME: &'static str = "normalize";
    const CUDA: &'static str = include_str!("../../kernels/normalize.cu");
    const TYPE: &'static str = "Normalize";
    type Params = Params;
    const TILING: Tiling = Tiling::Follows;

    fn check(&self) -> Result<(), FieldError> {
        for (channel, (mean, std)) in self.mean.iter().zip(self.std).enumerate() {
            if !mean.is_finite() {
                let problem = format!("must be a number, is {mean}");
                return Err(FieldError::new(format!("mean[{channel}]"), problem));
            }
            if !(std > 0.0 && std.is_finite()) {
                let problem = format!("must be a number over 0, is {std}");
                return Err(FieldError::new(format!("std[{channel}]"), problem));
            }
        }
        Ok(())
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        match input {
            PixelType::U8 => Ok(PixelType::F32),
            PixelType::F32 => {
                Err("normalize works on bytes and gets floats: keep only the first normalize".into())
            }
        }
    }

    fn prepare(&self, input: Size, _: &mut SampleRng) -> (Size, Params) {
        (input, Params { mean: self.mean, std: self.std })
    }

    fn reference(params: &Params, _: &[i32], src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::F32(out)) = (src, out) else {
            unreachable!("normalize takes bytes and gives floats");
        };
        let window = out.window();
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                let pixel = src.pixel(x, y);
                out.set_pixel(x, y, [0, 1, 2].map(|c| params.value(c, pixel[c])));
            }
        }
    }

    fn apply(params: &Params, _: &[i32], src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::F32(out)) = (src, out) else {
            unreachable!("normalize takes bytes and gives floats");
        };
        let (tables, window) = (params.tables(), out.window());
        let skipped = CHANNELS * (window.x - src.window().x) as usize;
        for y in window.y..window.bottom() {
            let bytes = src.row(y)[skipped..].as_chunks::<CHANNELS>().0;
            let floats = out.row_mut(y).as_chunks_mut::<CHANNELS>().0;
            for (float, byte) in floats.iter_mut().zip(bytes) {
                *float = [0, 1, 2].map(|c| tables[c][usize::from(byte[c])]);
            }
        }
    }

    fn fusion(params: &Params) -> Fusion {
        Fusion::Normalize(*params)
    }

    fn examples() -> Vec<Self> {
        vec![Self::IMAGENET, Self { mean: [0.5, 0.0, -1.0], std: [0.25, 1.0, 3.0] }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_std_that_is_not_over_0_is_named() {
        let field = |std| Normalize { std, ..Normalize::IMAGENET }.check().unwrap_err().field;
        assert_eq!(field([1.0, 0.0, 1.0]), "std[1]");
        assert_eq!(field([1.0, 1.0, f32::NAN]), "std[2]");
        assert_eq!(Normalize::IMAGENET.check(), Ok(()));
    }

    #[test]
    fn floats_are_refused_with_the_way_out() {
        let refused = Normalize::IMAGENET.pixels(PixelType::F32).unwrap_err();
        assert!(refused.contains("only the first normalize"), "{refused}");
    }
}
