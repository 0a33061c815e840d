//! `color_jitter`: brightness, contrast, saturation and hue with random factors in random order.

use serde::{Deserialize, Deserializer};

use crate::random::SampleRng;

use super::super::FieldError;
use super::blend::MAX_FACTOR;
use super::channel_permutation::shuffle;
use super::check_pair;

/// One operator with its factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Factor of [`brightness`](super::brightness).
    Brightness(f64),
    /// Factor of [`contrast`](super::contrast).
    Contrast(f64),
    /// Factor of [`saturation`](super::saturation).
    Saturation(f64),
    /// Turn of [`hue`](super::hue), in circles.
    Hue(f64),
    /// Order of [`channel_permutation`](super::channel_permutation).
    Channels([u32; 3]),
}

/// Changes brightness, contrast, saturation and hue by random amounts in random order, like torchvision's
/// `ColorJitter`.
///
/// Each setting is a range `[low, high]`, from which the factor is drawn uniformly, or one number v for the range
/// `[max(0, 1 - v), 1 + v]` (hue: `[-v, v]`). Default: not changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ColorJitter {
    /// Factor of brightness: 0 is black, 1 the image.
    #[serde(deserialize_with = "around_one")]
    pub brightness: Option<[f64; 2]>,
    /// Factor of contrast: 0 is the mean gray, 1 the image.
    #[serde(deserialize_with = "around_one")]
    pub contrast: Option<[f64; 2]>,
    /// Factor of saturation: 0 is the gray image, 1 the image.
    #[serde(deserialize_with = "around_one")]
    pub saturation: Option<[f64; 2]>,
    /// Turn of the hue in circles, -0.5 to 0.5.
    #[serde(deserialize_with = "around_zero")]
    pub hue: Option<[f64; 2]>,
}

impl ColorJitter {
    /// Draws the steps of one sample in their order: one of 24 orders, then each factor that is set.
    pub fn draw(&self, rng: &mut SampleRng) -> [Option<Step>; 4] {
        let mut order = [0, 1, 2, 3];
        shuffle(&mut order, rng);
        let mut factor = |range: Option<[f64; 2]>| range.map(|[low, high]| rng.between(low, high));
        let steps = [
            factor(self.brightness).map(Step::Brightness),
            factor(self.contrast).map(Step::Contrast),
            factor(self.saturation).map(Step::Saturation),
            factor(self.hue).map(Step::Hue),
        ];
        order.map(|at: usize| steps[at])
    }

    /// Checks the ranges.
    pub fn check(&self) -> Result<(), FieldError> {
        let fields = [
            ("brightness", self.brightness, 0.0, MAX_FACTOR),
            ("contrast", self.contrast, 0.0, MAX_FACTOR),
            ("saturation", self.saturation, 0.0, MAX_FACTOR),
            ("hue", self.hue, -0.5, 0.5),
        ];
        for (field, range, low, high) in fields {
            if let Some(range) = range {
                check_pair(field, range, low, high)?;
            }
        }
        Ok(())
    }
}

/// A range, or the largest change.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected one number or [low, high]")]
enum Setting {
    Change(f64),
    Range([f64; 2]),
}

fn around_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[f64; 2]>, D::Error> {
    range(deserializer, 1.0, |change| [(1.0 - change).max(0.0), 1.0 + change])
}

fn around_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[f64; 2]>, D::Error> {
    range(deserializer, 0.0, |change| [-change, change])
}

/// `None` for the range that changes nothing, as in torchvision: a hue turned by 0 is not converted back and forth. A
/// negative change becomes a range that `check` refuses.
fn range<'de, D: Deserializer<'de>>(
    deserializer: D,
    neutral: f64,
    around: impl Fn(f64) -> [f64; 2],
) -> Result<Option<[f64; 2]>, D::Error> {
    let range = match Setting::deserialize(deserializer)? {
        Setting::Change(change) => around(change),
        Setting::Range(range) => range,
    };
    Ok((range != [neutral; 2]).then_some(range))
}
