//! `random_rotation`: rotates by a random angle.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::settings::{around_zero, check_pair, equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

use super::rotate::{MOST, Rotate, check_center};

/// Rotates by an angle that is drawn uniformly: torchvision's `RandomRotation`. The result equals
/// that of [`Rotate`] with the same angle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// Smallest and largest angle in degrees, counter-clockwise. In TOML, one number n means `[-n,
    /// n]`.
    #[serde(deserialize_with = "around_zero")]
    pub degrees: [f64; 2],
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

impl RandomRotation {
    /// Rotates by at most `degrees` in each direction, with torchvision's defaults.
    pub fn within(degrees: f64) -> Self {
        let interpolation = Interpolation::default();
        let degrees = [-degrees, degrees];
        Self { degrees, interpolation, expand: false, center: None, fill: [0; 3] }
    }
}

impl Operator for RandomRotation {
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
        let Self { degrees: [low, high], interpolation, expand, center, fill } = *self;
        let angle = draw.rng().between(low, high);
        Rotate { angle, interpolation, expand, center, fill }.apply(draw);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("degrees", self.degrees, -MOST, MOST)?;
        check_center(self.center)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        if self.expand { None } else { input }
    }

    fn largest_output(&self, input: Size) -> Size {
        if !self.expand {
            return input;
        }
        // A side of the output is at most the diagonal of the input, plus one partly covered pixel
        // at each end.
        let diagonal = f64::from(input.width).hypot(input.height.into());
        let side = diagonal.ceil() as u32 + 2;
        Size::new(side, side)
    }
}

impl BuiltIn for RandomRotation {
    const NAME: &'static str = "random_rotation";

    fn examples() -> Vec<Self> {
        let base = Self::within(30.0);
        vec![
            base,
            Self { interpolation: Interpolation::Bilinear, expand: true, ..Self::within(180.0) },
            Self { degrees: [90.0, 90.0], expand: true, fill: [5; 3], ..base },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Actions;
    use crate::random::SampleKey;

    #[test]
    fn no_output_is_larger_than_the_largest() {
        let op = RandomRotation { expand: true, ..RandomRotation::within(180.0) };
        for size in [Size::new(1, 1), Size::new(1, 40), Size::new(37, 20)] {
            let most = op.largest_output(size);
            for index in 0..500 {
                let key = SampleKey { seed: 1, epoch: 0, index };
                let actions = Actions::of([&op as &dyn Operator], key, size);
                let output = actions.list[0].whole;
                assert!(output.width <= most.width && output.height <= most.height, "{output}");
            }
        }
    }

    #[test]
    fn one_number_is_a_range_around_zero() {
        let read = |text: &str| toml::from_str::<RandomRotation>(text);
        assert_eq!(read("degrees = 15").unwrap(), RandomRotation::within(15.0));
        assert_eq!(read("degrees = [-5, 60.5]").unwrap().degrees, [-5.0, 60.5]);
        assert!(read("degrees = [1, 2, 3]").is_err());
        let turned = RandomRotation { degrees: [3.0, -3.0], ..RandomRotation::within(1.0) };
        assert_eq!(turned.check().unwrap_err().field, "degrees");
    }
}
