//! `auto_augment`: applies pairs of operations that were found by search.

use serde::{Deserialize, Serialize};

use crate::op::settings::{equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, Interpolation, Kinds, Operator};

use super::apply::{self, Warping};
use super::steps::{Operation, TransformsVersion};

pub mod formula;

/// Applies one of 25 pairs of operations, in which each operation has its own probability and
/// strength: torchvision's `AutoAugment`, with the same operations, magnitudes and order of draws.
/// The pixels are those that torchvision computes for PIL images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoAugment {
    /// Dataset for which the pairs were found: `imagenet` (default), `cifar10` or `svhn`.
    pub policy: AutoAugmentPolicy,
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

/// Dataset for which the pairs of operations were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AutoAugmentPolicy {
    /// ImageNet.
    #[default]
    Imagenet,
    /// CIFAR-10.
    Cifar10,
    /// Street View House Numbers.
    Svhn,
}

impl Operator for AutoAugment {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        apply::kinds(2, false)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Self { policy, interpolation, fill, version } = *self;
        let pairs = match policy {
            AutoAugmentPolicy::Imagenet => formula::IMAGENET,
            AutoAugmentPolicy::Cifar10 => formula::CIFAR10,
            AutoAugmentPolicy::Svhn => formula::SVHN,
        };
        let size = draw.size();
        let drawn: [(Operation, f64); 2] = formula::draw(pairs, version, size, draw.rng());
        for (operation, magnitude) in drawn {
            apply::draw(draw, operation.step(magnitude), Warping { interpolation, fill });
        }
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for AutoAugment {
    const NAME: &'static str = "auto_augment";

    fn examples() -> Vec<Self> {
        let base = Self::default();
        vec![
            base,
            Self {
                policy: AutoAugmentPolicy::Cifar10,
                interpolation: Interpolation::Bilinear,
                ..base
            },
            Self {
                policy: AutoAugmentPolicy::Svhn,
                fill: [9, 99, 199],
                version: TransformsVersion::V1,
                ..base
            },
        ]
    }
}
