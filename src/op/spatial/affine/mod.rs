//! `affine`: rotates, shears, scales and moves by fixed amounts.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_number, equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

use super::rotate::{MOST, check_center};

pub mod formula;

/// Rotates and shears the image around its centre, scales it and moves it: torchvision's `affine`
/// on PIL images, bit for bit (`_affine_image_pil` of
/// `torchvision/transforms/v2/functional/_geometry.py`). The output has the size of the input.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Affine {
    /// Angle in degrees, clockwise. Default 0.
    pub angle: f64,
    /// Pixels by which the image moves to the right and down. Default 0.
    pub translate: [f64; 2],
    /// Scale factor, 0.001 to 1000. Default 1.
    pub scale: f64,
    /// Shear angles in degrees, parallel to the x axis and to the y axis, -89 to 89. Default 0.
    pub shear: [f64; 2],
    /// Interpolation between pixels. Default nearest.
    pub interpolation: Interpolation,
    /// Centre of rotation, shear and scale as `[column, row]`, in pixels from the upper left
    /// corner. Default: the centre of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
    /// Fill colour outside of the image: red, green and blue. In TOML, one number sets all three.
    /// Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

/// Largest shear angle in degrees. The tangent of 90 degrees is infinite.
pub(super) const MOST_SHEAR: f64 = 89.0;
/// Smallest and largest scale factor.
pub(super) const SCALES: [f64; 2] = [1e-3, 1e3];

impl Default for Affine {
    fn default() -> Self {
        let formula::Affine { angle, translate, scale, shear, center } = formula::Affine::IDENTITY;
        let interpolation = Interpolation::default();
        Self { angle, translate, scale, shear, interpolation, center, fill: [0; 3] }
    }
}

impl Operator for Affine {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn interpolation(&self) -> Option<(&'static str, bool)> {
        Some(("interpolation", self.interpolation == Interpolation::Nearest))
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Warp])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Self { angle, translate, scale, shear, interpolation, center, fill } = *self;
        let affine = formula::Affine { angle, translate, scale, shear, center };
        let input = draw.size();
        draw.warp(affine.warp(input, interpolation, fill), input);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("angle", self.angle, -MOST, MOST)?;
        for axis in 0..2 {
            check_number(&format!("translate[{axis}]"), self.translate[axis], -MOST, MOST)?;
            check_number(&format!("shear[{axis}]"), self.shear[axis], -MOST_SHEAR, MOST_SHEAR)?;
        }
        check_number("scale", self.scale, SCALES[0], SCALES[1])?;
        check_center(self.center)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for Affine {
    const NAME: &'static str = "affine";

    fn examples() -> Vec<Self> {
        let base = Self::default();
        vec![
            Self { translate: [3.0, -2.0], fill: [1, 2, 3], ..base },
            Self { scale: 1.5, ..base },
            Self {
                angle: 33.0,
                shear: [10.0, -20.0],
                interpolation: Interpolation::Bilinear,
                ..base
            },
            Self {
                angle: -100.0,
                scale: 0.6,
                interpolation: Interpolation::Bicubic,
                center: Some([4.0, 5.0]),
                fill: [200; 3],
                ..base
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused() {
        let field = |op: Affine| op.check().unwrap_err().field;
        let base = Affine::default();
        assert_eq!(base.check(), Ok(()));
        assert_eq!(field(Affine { scale: 0.0, ..base }), "scale");
        assert_eq!(field(Affine { angle: f64::NAN, ..base }), "angle");
        assert_eq!(field(Affine { shear: [0.0, 90.0], ..base }), "shear[1]");
        assert_eq!(field(Affine { translate: [f64::INFINITY, 0.0], ..base }), "translate[0]");
    }
}
