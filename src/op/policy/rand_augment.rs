//! `rand_augment`: applies several operations with the same strength.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::settings::{check_count, equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kinds, Operator};
use crate::random::SampleRng;

use super::apply::{self, Warping};
use super::steps::{Drawn, Magnitudes, Operation, Space, TransformsVersion, drawn_from, signed};

/// Applies operations that are drawn from 14, all with the same strength: torchvision's
/// `RandAugment`, with the same operations, magnitudes and order of draws. The pixels are those
/// that torchvision computes for PIL images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandAugment {
    /// Number of operations per image, 0 to 16. Default 2.
    pub num_ops: u32,
    /// Strength of the operations: number of the magnitude, from 0 to `num_magnitude_bins - 1`.
    /// Default 9.
    pub magnitude: u32,
    /// Number of magnitudes of each operation, 2 to 1000. Default 31.
    pub num_magnitude_bins: u32,
    /// Interpolation between pixels. Default nearest.
    pub interpolation: Interpolation,
    /// Red, green and blue of pixels that an operation leaves empty. In TOML, one number sets all
    /// three. Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
    /// Version of torchvision's transforms, `v1` or `v2` (default). Only the thresholds of
    /// `Solarize` differ: v1's are evenly spaced from 255 to 0. v2's are 255 times a rounded
    /// fraction. Where v1's threshold is a whole number, v2's may be a little larger, so that v2
    /// does not invert pixels with this value.
    pub version: TransformsVersion,
}

impl Default for RandAugment {
    fn default() -> Self {
        Self {
            num_ops: 2,
            magnitude: 9,
            num_magnitude_bins: 31,
            interpolation: Interpolation::default(),
            fill: [0; 3],
            version: TransformsVersion::default(),
        }
    }
}

/// Maximum number of operations per image.
pub(super) const MOST_OPS: u32 = 16;
/// Maximum number of magnitudes of each operation.
pub(super) const MOST_BINS: u32 = 1000;

impl Operator for RandAugment {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        apply::kinds(self.num_ops as usize, false)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Self { num_ops, magnitude, num_magnitude_bins, interpolation, fill, version } = *self;
        let size = draw.size();
        for _ in 0..num_ops {
            let drawn = draw_step((magnitude, num_magnitude_bins), version, size, draw.rng());
            apply::draw(draw, drawn.0.step(drawn.1), Warping { interpolation, fill });
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_count("num_ops", self.num_ops, 0, MOST_OPS)?;
        check_count("num_magnitude_bins", self.num_magnitude_bins, 2, MOST_BINS)?;
        check_count("magnitude", self.magnitude, 0, self.num_magnitude_bins - 1)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for RandAugment {
    const NAME: &'static str = "rand_augment";

    fn examples() -> Vec<Self> {
        let base = Self::default();
        vec![
            base,
            Self { num_ops: 5, interpolation: Interpolation::Bilinear, fill: [9, 99, 199], ..base },
            Self { magnitude: 30, version: TransformsVersion::V1, ..base },
            Self { num_ops: 0, ..base },
        ]
    }
}

/// Operations and their magnitudes (`torchvision/transforms/v2/_auto_augment.py`).
pub const SPACE: &Space = &[
    (Operation::Identity, Magnitudes::None),
    (Operation::ShearX, Magnitudes::Signed(0.3)),
    (Operation::ShearY, Magnitudes::Signed(0.3)),
    (Operation::TranslateX, Magnitudes::Sides(|size| 150.0 / 331.0 * f64::from(size.width))),
    (Operation::TranslateY, Magnitudes::Sides(|size| 150.0 / 331.0 * f64::from(size.height))),
    (Operation::Rotate, Magnitudes::Signed(30.0)),
    (Operation::Brightness, Magnitudes::Signed(0.9)),
    (Operation::Color, Magnitudes::Signed(0.9)),
    (Operation::Contrast, Magnitudes::Signed(0.9)),
    (Operation::Sharpness, Magnitudes::Signed(0.9)),
    (Operation::Posterize, Magnitudes::Bits(8.0, 4.0)),
    (Operation::Solarize, Magnitudes::Plain(1.0, 0.0)),
    (Operation::AutoContrast, Magnitudes::None),
    (Operation::Equalize, Magnitudes::None),
];

/// Draws one of the `num_ops` (default 2) steps: an operation, all equally likely, and the sign of
/// its magnitude. `magnitude` is the number of the magnitude (default 9) and the number of all
/// magnitudes (default 31). For every step, `size` is the size of the image before the first step.
pub fn draw_step(
    magnitude: (u32, u32),
    version: TransformsVersion,
    size: Size,
    rng: &mut SampleRng,
) -> Drawn {
    let entry = drawn_from(SPACE, version, rng);
    signed(entry, magnitude, size, rng)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused() {
        let field = |op: RandAugment| op.check().unwrap_err().field;
        let base = RandAugment::default();
        assert_eq!(base.check(), Ok(()));
        assert_eq!(field(RandAugment { magnitude: 31, ..base }), "magnitude");
        assert_eq!(field(RandAugment { num_magnitude_bins: 1, ..base }), "num_magnitude_bins");
        assert_eq!(field(RandAugment { num_ops: 17, ..base }), "num_ops");
    }
}
