//! `random_affine`: rotates, shears, scales and moves by random amounts.

use serde::{Deserialize, Serialize};

use crate::op::settings::{
    around_zero, around_zero_or_none, check_number, check_pair, equal_values, one_or_each,
};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

use super::affine::formula::Ranges;
use super::affine::{MOST_SHEAR, SCALES};
use super::rotate::{MOST, check_center};

/// Rotates, moves, scales and shears by random amounts, which are drawn uniformly in this order:
/// torchvision's `RandomAffine`. The result equals that of [`Affine`](super::affine::Affine) with
/// the same amounts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    /// Smallest and largest angle in degrees, clockwise. In TOML, one number n means `[-n, n]`.
    #[serde(deserialize_with = "around_zero")]
    pub degrees: [f64; 2],
    /// Largest translation in each direction, as a fraction of width and height, 0 to 1. Drawn
    /// translations are rounded to whole pixels. Default: the image is not moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translate: Option<[f64; 2]>,
    /// Smallest and largest scale factor, 0.001 to 1000. Default: the image is not scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<[f64; 2]>,
    /// Smallest and largest shear angle parallel to the x axis, in degrees, -89 to 89. In TOML, one
    /// number n means `[-n, n]`. Default: no shear.
    #[serde(
        default,
        deserialize_with = "around_zero_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub shear_x: Option<[f64; 2]>,
    /// Smallest and largest shear angle parallel to the y axis, in degrees, -89 to 89. In TOML, one
    /// number n means `[-n, n]`. Default: no shear. torchvision takes `shear_x` and `shear_y` as
    /// one list `shear`.
    #[serde(
        default,
        deserialize_with = "around_zero_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub shear_y: Option<[f64; 2]>,
    /// Interpolation between pixels. Default nearest.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Centre of rotation, shear and scale as `[column, row]`, in pixels from the upper left
    /// corner. Default: the centre of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
    /// Fill colour outside of the image: red, green and blue. In TOML, one number sets all three.
    /// Default 0.
    #[serde(default, deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

impl RandomAffine {
    /// Rotates by at most `degrees` in each direction and changes nothing else.
    pub fn within(degrees: f64) -> Self {
        Self {
            degrees: [-degrees, degrees],
            translate: None,
            scale: None,
            shear_x: None,
            shear_y: None,
            interpolation: Interpolation::default(),
            center: None,
            fill: [0; 3],
        }
    }
}

impl Operator for RandomAffine {
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
        let Self { degrees, translate, scale, shear_x, shear_y, .. } = *self;
        let input = draw.size();
        let ranges = Ranges { degrees, translate, scale, shear_x, shear_y };
        let mut affine = ranges.draw(input, draw.rng());
        affine.center = self.center;
        draw.warp(affine.warp(input, self.interpolation, self.fill), input);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("degrees", self.degrees, -MOST, MOST)?;
        for (axis, most) in self.translate.iter().flatten().enumerate() {
            check_number(&format!("translate[{axis}]"), *most, 0.0, 1.0)?;
        }
        let pairs = [
            ("scale", self.scale, SCALES),
            ("shear_x", self.shear_x, [-MOST_SHEAR, MOST_SHEAR]),
            ("shear_y", self.shear_y, [-MOST_SHEAR, MOST_SHEAR]),
        ];
        for (field, range, [low, high]) in pairs {
            if let Some(range) = range {
                check_pair(field, range, low, high)?;
            }
        }
        check_center(self.center)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for RandomAffine {
    const NAME: &'static str = "random_affine";

    fn examples() -> Vec<Self> {
        let base = Self::within(25.0);
        vec![
            base,
            Self { translate: Some([0.2, 0.3]), ..Self::within(0.0) },
            Self { scale: Some([0.5, 2.0]), ..Self::within(0.0) },
            Self {
                translate: Some([0.1, 0.1]),
                scale: Some([0.8, 1.2]),
                shear_x: Some([-10.0, 10.0]),
                shear_y: Some([0.0, 15.0]),
                interpolation: Interpolation::Bilinear,
                fill: [7, 8, 9],
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
        let field = |op: RandomAffine| op.check().unwrap_err().field;
        let base = RandomAffine::within(10.0);
        assert_eq!(base.check(), Ok(()));
        assert_eq!(field(RandomAffine { translate: Some([0.0, 1.5]), ..base }), "translate[1]");
        assert_eq!(field(RandomAffine { scale: Some([0.0, 1.0]), ..base }), "scale");
        assert_eq!(field(RandomAffine { shear_y: Some([5.0, -5.0]), ..base }), "shear_y");
    }

    #[test]
    fn ranges_accept_one_number() {
        let read = |text: &str| toml::from_str::<RandomAffine>(text).unwrap();
        let op = read("degrees = 10\nshear_x = 5\nshear_y = [1, 2]\nfill = 3");
        assert_eq!((op.shear_x, op.shear_y), (Some([-5.0, 5.0]), Some([1.0, 2.0])));
        assert_eq!((op.degrees, op.fill), ([-10.0, 10.0], [3; 3]));
    }
}
