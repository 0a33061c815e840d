//! `normalize`: maps bytes to normalized floats.

use serde::{Deserialize, Serialize};

use crate::image::PixelType;

use super::settings::{equal_values, one_or_each};
use super::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Computes `(value / 255 - mean) / std` and rounds each step to f32: torchvision's `ToTensor`,
/// then `Normalize`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// Means of red, green and blue for channels from 0 to 1, each from -1 to 1. In TOML, one
    /// number sets all three. DALI's means are for channels from 0 to 255: divide them by 255.
    #[serde(deserialize_with = "one_or_each")]
    pub mean: [f32; 3],
    /// Standard deviations of red, green and blue for channels from 0 to 1: above 0, at most
    /// [`Normalize::MAX_STD`]. In TOML, one number sets all three. The standard deviation of real
    /// images never exceeds 0.5.
    #[serde(deserialize_with = "one_or_each")]
    pub std: [f32; 3],
}

impl Normalize {
    /// Maximum `std`. A larger value is certainly meant for channels from 0 to 255, for which even
    /// nearly uniform images exceed 4.
    pub const MAX_STD: f32 = 4.0;

    /// ImageNet statistics used to train torchvision's models.
    pub const IMAGENET: Self = Self { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

    /// Normalized value of a byte of channel number `channel`.
    pub fn value(&self, channel: usize, byte: u8) -> f32 {
        (f32::from(byte) / 255.0 - self.mean[channel]) / self.std[channel]
    }

    /// The operator with `mean` and `std` divided by 255 if their values are apparently meant for
    /// channels from 0 to 255.
    fn divided(&self) -> Self {
        let by_255 = |values: [f32; 3]| values.map(|value| value / 255.0);
        let is_over_1 = |values: [f32; 3]| values.iter().any(|&value| value > 1.0);
        let mean_is = is_over_1(self.mean);
        let std_is = is_over_1(self.std) || mean_is && self.std.contains(&1.0);
        Self {
            mean: if mean_is { by_255(self.mean) } else { self.mean },
            std: if std_is { by_255(self.std) } else { self.std },
        }
    }
}

impl Operator for Normalize {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::FloatTable])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let [mean, std] = [self.mean, self.std].map(|values| values.map(f64::from));
        draw.note("Normalize", &[("mean", &mean), ("std", &std)]);
        draw.float_table(|channel, byte| self.value(channel, byte));
    }

    fn check(&self) -> Result<(), FieldError> {
        for (channel, (mean, std)) in self.mean.into_iter().zip(self.std).enumerate() {
            let scale = |field: &str, value: f32| {
                let Self { mean, std } = self.divided();
                let problem = format!(
                    "is {value}, but feedwater scales pixels to 0 to 1 before it normalizes, and \
                     not to 0 to 255 like DALI; write mean = {} and std = {}",
                    list(mean),
                    list(std)
                );
                Err(FieldError::new(format!("{field}[{channel}]"), problem))
            };
            if mean > 1.0 && mean.is_finite() {
                return scale("mean", mean);
            }
            if !(-1.0..=1.0).contains(&mean) {
                let problem = format!("must be a number from -1 to 1, is {mean}");
                return Err(FieldError::new(format!("mean[{channel}]"), problem));
            }
            if std > Self::MAX_STD && std.is_finite() {
                return scale("std", std);
            }
            // Normalized values must be finite too. Their magnitude is at most `2 / std`.
            if !(std > 0.0 && std.is_finite() && (2.0 / std).is_finite()) {
                let problem =
                    format!("must be a number above 0 and at most {}, is {std}", Self::MAX_STD);
                return Err(FieldError::new(format!("std[{channel}]"), problem));
            }
        }
        Ok(())
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        match input {
            PixelType::U8 => Ok(PixelType::F32),
            PixelType::F32 => {
                Err("normalize needs bytes but its input is floats: keep only the first normalize"
                    .into())
            }
        }
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "mean", self.mean, input)?;
        equal_values(Self::NAME, "std", self.std, input)
    }
}

impl BuiltIn for Normalize {
    const NAME: &'static str = "normalize";

    fn examples() -> Vec<Self> {
        vec![Self::IMAGENET, Self { mean: [0.5, 0.0, -1.0], std: [0.25, 1.0, 3.0] }]
    }
}

/// Formats three values as TOML, rounded to five decimal places.
fn list(values: [f32; 3]) -> String {
    let [r, g, b] = values.map(|value| match (f64::from(value) * 1e5).round() / 1e5 {
        rounded if rounded == 0.0 && value != 0.0 => f64::from(value),
        rounded => rounded,
    });
    format!("[{r}, {g}, {b}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_std_of_0_or_nan_is_refused() {
        let field = |std| Normalize { std, ..Normalize::IMAGENET }.check().unwrap_err().field;
        assert_eq!(field([1.0, 0.0, 1.0]), "std[1]");
        assert_eq!(field([1.0, 1.0, f32::NAN]), "std[2]");
        assert_eq!(Normalize::IMAGENET.check(), Ok(()));
    }

    /// DALI's `CropMirrorNormalize` takes the same statistics for channels from 0 to 255.
    #[test]
    fn statistics_on_a_scale_of_255_are_refused_with_a_suggestion() {
        let imagenet = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375]);
        for ((mean, std), field, answer) in [
            (imagenet, "mean[0]", "mean = [0.485, 0.456, 0.406] and std = [0.229, 0.224, 0.225]"),
            (([0.0; 3], [255.0; 3]), "std[0]", "mean = [0, 0, 0] and std = [1, 1, 1]"),
            (
                ([127.5; 3], [127.5; 3]),
                "mean[0]",
                "mean = [0.5, 0.5, 0.5] and std = [0.5, 0.5, 0.5]",
            ),
            (
                ([0.0, 0.0, 104.0], [1.0; 3]),
                "mean[2]",
                "mean = [0, 0, 0.40784] and std = [0.00392, 0.00392, 0.00392]",
            ),
            (
                (imagenet.0, [0.229, 0.224, 0.225]),
                "mean[0]",
                "mean = [0.485, 0.456, 0.406] and std = [0.229, 0.224, 0.225]",
            ),
            (
                ([0.485, 0.456, 0.406], imagenet.1),
                "std[0]",
                "mean = [0.485, 0.456, 0.406] and std = [0.229, 0.224, 0.225]",
            ),
        ] {
            let error = Normalize { mean, std }.check().unwrap_err();
            assert_eq!(error.field, field, "{mean:?} {std:?}");
            for setting in answer.split(" and ") {
                assert!(error.problem.contains(setting), "{setting}: {}", error.problem);
            }
        }
    }

    #[test]
    fn unusual_but_valid_statistics_are_accepted() {
        for (mean, std) in [
            ([0.0; 3], [1.0; 3]),
            ([0.5; 3], [0.5; 3]),
            // Models of Caffe take bytes minus the mean, without scaling. A `std` of 1/255 gives
            // the same.
            ([0.485, 0.456, 0.406], [1.0 / 255.0; 3]),
            ([-1.0; 3], [2.0; 3]),
        ] {
            assert_eq!(Normalize { mean, std }.check(), Ok(()), "{mean:?} {std:?}");
        }
        let field = |mean, std| Normalize { mean, std }.check().unwrap_err().field;
        assert_eq!(field([-123.0, 0.0, 0.0], [1.0; 3]), "mean[0]");
        assert_eq!(field([0.0, f32::NAN, 0.0], [1.0; 3]), "mean[1]");
        assert_eq!(field([0.0, f32::INFINITY, 0.0], [1.0; 3]), "mean[1]");
        assert_eq!(field([0.0; 3], [1.0, 1.0, f32::INFINITY]), "std[2]");
        // 1 / 1e-39 overflows f32.
        assert_eq!(field([0.0; 3], [1.0, 1.0, 1e-39]), "std[2]");
    }

    #[test]
    fn float_input_is_refused_with_a_suggestion() {
        let refused = Normalize::IMAGENET.pixels(PixelType::F32).unwrap_err();
        assert!(refused.contains("normalize"), "{refused}");
    }
}
