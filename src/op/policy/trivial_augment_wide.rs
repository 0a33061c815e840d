//! `trivial_augment_wide`: applies one operation with a random strength.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::settings::{check_count, equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kinds, Operator};
use crate::random::SampleRng;

use super::apply::{self, Warping};
use super::rand_augment::MOST_BINS;
use super::steps::{Drawn, Magnitudes, Operation, Space, TransformsVersion, drawn_from, signed};

/// Applies one operation that is drawn from 14, with a strength that is drawn too: torchvision's
/// `TrivialAugmentWide`, with the same operations, magnitudes and order of draws. The pixels are
/// those that torchvision computes for PIL images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrivialAugmentWide {
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

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        let interpolation = Interpolation::default();
        let version = TransformsVersion::default();
        Self { num_magnitude_bins: 31, interpolation, fill: [0; 3], version }
    }
}

impl Operator for TrivialAugmentWide {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        apply::kinds(1, false)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Self { num_magnitude_bins, interpolation, fill, version } = *self;
        let size = draw.size();
        let drawn = draw_step(num_magnitude_bins, version, size, draw.rng());
        apply::draw(draw, drawn.0.step(drawn.1), Warping { interpolation, fill });
    }

    fn check(&self) -> Result<(), FieldError> {
        check_count("num_magnitude_bins", self.num_magnitude_bins, 2, MOST_BINS)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for TrivialAugmentWide {
    const NAME: &'static str = "trivial_augment_wide";

    fn examples() -> Vec<Self> {
        let base = Self::default();
        vec![
            base,
            Self { interpolation: Interpolation::Bilinear, fill: [9, 99, 199], ..base },
            Self { version: TransformsVersion::V1, ..base },
        ]
    }
}

/// Operations and their magnitudes (`torchvision/transforms/v2/_auto_augment.py`).
pub const SPACE: &Space = &[
    (Operation::Identity, Magnitudes::None),
    (Operation::ShearX, Magnitudes::Signed(0.99)),
    (Operation::ShearY, Magnitudes::Signed(0.99)),
    (Operation::TranslateX, Magnitudes::Signed(32.0)),
    (Operation::TranslateY, Magnitudes::Signed(32.0)),
    (Operation::Rotate, Magnitudes::Signed(135.0)),
    (Operation::Brightness, Magnitudes::Signed(0.99)),
    (Operation::Color, Magnitudes::Signed(0.99)),
    (Operation::Contrast, Magnitudes::Signed(0.99)),
    (Operation::Sharpness, Magnitudes::Signed(0.99)),
    (Operation::Posterize, Magnitudes::Bits(8.0, 6.0)),
    (Operation::Solarize, Magnitudes::Plain(1.0, 0.0)),
    (Operation::AutoContrast, Magnitudes::None),
    (Operation::Equalize, Magnitudes::None),
];

/// Draws the only step: an operation and one of its `bins` (default 31) magnitudes, all equally
/// likely, and the sign of the magnitude.
pub fn draw_step(bins: u32, version: TransformsVersion, size: Size, rng: &mut SampleRng) -> Drawn {
    let entry = drawn_from(SPACE, version, rng);
    let bin = match entry.1 {
        Magnitudes::None => 0,
        _ => rng.below(bins.into()) as u32,
    };
    signed(entry, (bin, bins), size, rng)
}
