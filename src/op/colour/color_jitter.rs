//! `color_jitter`: brightness, contrast, saturation and hue with random factors in random order.

use serde::{Deserialize, Deserializer, Serialize};

use crate::op::settings::check_pair;
use crate::op::shared::pillow_blend::MAX_FACTOR;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};
use crate::random::SampleRng;

use super::brightness;
use super::channel_permutation::{self, ChannelPermutation, shuffle};
use super::contrast::{self, Contrast};
use super::hue::{self, Hue};
use super::saturation::{self, Saturation};

/// Changes brightness, contrast, saturation and hue by random amounts in random order, like
/// torchvision's `ColorJitter`.
///
/// Each setting is a range `[low, high]`, from which the factor is drawn uniformly, or one number
/// v, which stands for the range `[max(0, 1 - v), 1 + v]` (hue: `[-v, v]`). A setting that is left
/// out changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ColorJitter {
    /// Brightness factor: 0 gives black, 1 leaves the image unchanged.
    #[serde(deserialize_with = "around_one", skip_serializing_if = "Option::is_none")]
    pub brightness: Option<[f64; 2]>,
    /// Contrast factor: 0 gives the mean gray of the image, 1 leaves the image unchanged.
    #[serde(deserialize_with = "around_one", skip_serializing_if = "Option::is_none")]
    pub contrast: Option<[f64; 2]>,
    /// Saturation factor: 0 gives the gray image, 1 leaves the image unchanged.
    #[serde(deserialize_with = "around_one", skip_serializing_if = "Option::is_none")]
    pub saturation: Option<[f64; 2]>,
    /// Hue rotation as a fraction of a full circle, -0.5 to 0.5.
    #[serde(deserialize_with = "around_zero", skip_serializing_if = "Option::is_none")]
    pub hue: Option<[f64; 2]>,
}

impl ColorJitter {
    /// Draws the steps of one sample and returns them in the order in which they run. Draws one of
    /// the 24 orders first, then a factor for each setting that is present.
    #[doc(hidden)]
    pub fn steps(&self, rng: &mut SampleRng) -> [Option<ColorStep>; 4] {
        let mut order = [0, 1, 2, 3];
        shuffle(&mut order, rng);
        let mut factor = |range: Option<[f64; 2]>| range.map(|[low, high]| rng.between(low, high));
        let steps = [
            factor(self.brightness).map(ColorStep::Brightness),
            factor(self.contrast).map(ColorStep::Contrast),
            factor(self.saturation).map(ColorStep::Saturation),
            factor(self.hue).map(ColorStep::Hue),
        ];
        order.map(|at: usize| steps[at])
    }
}

impl Operator for ColorJitter {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        let kinds = [
            self.brightness.map(|_| Kind::Table),
            self.contrast.map(|_| Kind::statistics::<Contrast>()),
            self.saturation.map(|_| Kind::colour::<Saturation>()),
            self.hue.map(|_| Kind::colour::<Hue>()),
        ];
        let kinds: Vec<Kind> = kinds.into_iter().flatten().collect();
        Kinds::up_to(kinds.len(), kinds)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let steps = self.steps(draw.rng());
        steps.into_iter().flatten().for_each(|step| step.draw(draw));
    }

    fn check(&self) -> Result<(), FieldError> {
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

    fn is_random(&self) -> bool {
        // The operator is random even if every range is a single number, because the order of the
        // steps is drawn at random.
        [self.brightness, self.contrast, self.saturation, self.hue].iter().any(Option::is_some)
    }
}

impl BuiltIn for ColorJitter {
    const NAME: &'static str = "color_jitter";

    fn examples() -> Vec<Self> {
        let (wide, hue) = (Some([0.6, 1.4]), Some([-0.1, 0.1]));
        vec![
            Self { brightness: wide, contrast: wide, saturation: wide, hue },
            Self { contrast: Some([0.0, 2.0]), ..Self::default() },
            Self { saturation: wide, hue: Some([-0.5, 0.5]), ..Self::default() },
            Self::default(),
        ]
    }
}

/// One step of `color_jitter` or `photometric_distort`: an operator with its drawn parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColorStep {
    /// Brightness factor, for [`brightness`](super::brightness).
    Brightness(f64),
    /// Contrast factor, for [`contrast`](super::contrast).
    Contrast(f64),
    /// Saturation factor, for [`saturation`](super::saturation).
    Saturation(f64),
    /// Hue rotation as a fraction of a circle, for [`hue`](super::hue).
    Hue(f64),
    /// Order of the channels, for [`channel_permutation`](super::channel_permutation).
    Channels([u32; 3]),
}

impl ColorStep {
    /// Adds the action of this step to the sample.
    pub(super) fn draw(self, draw: &mut Draw<'_>) {
        match self {
            ColorStep::Brightness(factor) => brightness::draw(draw, factor),
            ColorStep::Contrast(factor) => contrast::draw(draw, factor),
            ColorStep::Saturation(factor) => saturation::draw(draw, factor),
            ColorStep::Hue(shift) => hue::draw(draw, shift),
            ColorStep::Channels(order) => channel_permutation::draw(draw, order),
        }
    }

    /// Kinds of the actions that steps add.
    pub(super) fn kinds() -> [Kind; 5] {
        [
            Kind::Table,
            Kind::statistics::<Contrast>(),
            Kind::colour::<Saturation>(),
            Kind::colour::<Hue>(),
            Kind::colour::<ChannelPermutation>(),
        ]
    }
}

/// A setting as the user writes it: a range, or the largest change from the neutral factor.
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

/// Reads a setting as a range. Returns `None` if the range changes nothing. The step is then
/// skipped, as in torchvision, because even a hue rotation by 0 changes pixels: converting an image
/// to hue bytes and back rounds. If the setting is one negative number, returns a range that
/// `check` refuses.
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
