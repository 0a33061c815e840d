//! `rotate`: rotates by a fixed angle.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::settings::{check_number, equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

use formula::rotate;

pub mod formula;

/// Largest absolute angle in degrees, and largest absolute coordinate of a centre in pixels.
pub(super) const MOST: f64 = 1e6;

/// Rotates counter-clockwise: torchvision's `rotate` on PIL images, bit for bit (Pillow's
/// `Image.rotate`).
///
/// A rotation by a multiple of 90 degrees around the centre of the image needs no interpolation if
/// the output has the shape of the rotated image. This is so with `expand`, for square images, and
/// for 180 degrees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// Angle in degrees, counter-clockwise.
    pub angle: f64,
    /// Interpolation between pixels. Default nearest.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Whether the output is enlarged to hold the whole rotated image. Default false: the output
    /// has the size of the input.
    #[serde(default)]
    pub expand: bool,
    /// Centre of the rotation as `[column, row]`, in pixels from the upper left corner. Default:
    /// the centre of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
    /// Fill colour outside of the image: red, green and blue. In TOML, one number sets all three.
    /// Default 0.
    #[serde(default, deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

impl Rotate {
    /// Rotates by `angle` degrees, with torchvision's defaults.
    pub fn by(angle: f64) -> Self {
        let interpolation = Interpolation::default();
        Self { angle, interpolation, expand: false, center: None, fill: [0; 3] }
    }

    pub(super) fn apply(&self, draw: &mut Draw<'_>) {
        let Self { angle, interpolation, expand, center, fill } = *self;
        let (size, warp) = rotate(draw.size(), angle, expand, center, interpolation, fill);
        draw.warp(warp, size);
    }
}

/// Checks that the coordinates of a centre are numbers from `-MOST` to `MOST`.
pub(super) fn check_center(center: Option<[f64; 2]>) -> Result<(), FieldError> {
    for (axis, at) in center.iter().flatten().enumerate() {
        check_number(&format!("center[{axis}]"), *at, -MOST, MOST)?;
    }
    Ok(())
}

impl Operator for Rotate {
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
        self.apply(draw);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("angle", self.angle, -MOST, MOST)?;
        check_center(self.center)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        let Self { angle, interpolation, expand, center, fill } = *self;
        input.map(|input| rotate(input, angle, expand, center, interpolation, fill).0)
    }
}

impl BuiltIn for Rotate {
    const NAME: &'static str = "rotate";

    fn examples() -> Vec<Self> {
        let base = Self::by(30.0);
        vec![
            base,
            Self { interpolation: Interpolation::Bilinear, fill: [9, 128, 255], ..Self::by(-77.5) },
            Self { interpolation: Interpolation::Bicubic, expand: true, ..base },
            Self { center: Some([3.0, -2.5]), ..Self::by(200.0) },
            Self { expand: true, ..Self::by(90.0) },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angle_and_centre_must_be_numbers() {
        assert_eq!(Rotate::by(-720.5).check(), Ok(()));
        assert_eq!(Rotate::by(f64::NAN).check().unwrap_err().field, "angle");
        let op = Rotate { center: Some([0.0, f64::INFINITY]), ..Rotate::by(1.0) };
        assert_eq!(op.check().unwrap_err().field, "center[1]");
    }

    #[test]
    fn an_enlarged_output_holds_the_rotated_image() {
        let size = |angle| {
            let op = Rotate { expand: true, ..Rotate::by(angle) };
            op.fixed_output(Some(Size::new(40, 30)))
        };
        assert_eq!(size(90.0), Some(Size::new(30, 40)));
        assert_eq!(size(180.0), Some(Size::new(40, 30)));
        assert_eq!(size(45.0), Some(Size::new(50, 50)));
    }
}
