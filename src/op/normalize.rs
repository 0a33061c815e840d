//! `normalize`: maps bytes, or decoded floats, to normalized floats.

use std::fmt;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::image::{PixelFormat, PixelType};

use super::kind::PositionFormula;
use super::settings::{equal_values, one_or_each};
use super::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator, unsupported};

/// Computes `(value / 255 - mean) / std` and rounds each step to f32: torchvision's `ToTensor`,
/// then `Normalize`. For images of 16 bits (`decode.pixels`), the divisor is 65535. For images of
/// floats it is 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// Means of red, green and blue for channels from 0 to 1, each from -1 to 1. In TOML, one
    /// number sets all three. DALI's means are for channels from 0 to 255: divide them by 255. For
    /// images of floats, any means in the unit of the stored numbers.
    #[serde(deserialize_with = "one_or_each")]
    pub mean: [f32; 3],
    /// Standard deviations of red, green and blue for channels from 0 to 1: above 0, at most
    /// [`Normalize::MAX_STD`]. In TOML, one number sets all three. The standard deviation of real
    /// images never exceeds 0.5. For images of floats, any deviations above 0.
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

    /// Checks that `mean` and `std` can be statistics of channels from 0 to 1. `one` is the maximum
    /// of a channel before it is scaled.
    fn check_scale(&self, one: f32) -> Result<(), FieldError> {
        for (channel, (mean, std)) in self.mean.into_iter().zip(self.std).enumerate() {
            let scale = |field: &str, value: f32| {
                let Self { mean, std } = self.divided(one);
                let like = if one == 255.0 { " like DALI" } else { "" };
                let problem = format!(
                    "is {value}, but feedwater scales pixels to 0 to 1 before it normalizes, and \
                     not to 0 to {one}{like}; write mean = {} and std = {}",
                    list(mean),
                    list(std)
                );
                Err(FieldError::new(format!("{field}[{channel}]"), problem))
            };
            if mean > 1.0 {
                return scale("mean", mean);
            }
            if mean < -1.0 {
                let problem = format!("must be a number from -1 to 1, is {mean}");
                return Err(FieldError::new(format!("mean[{channel}]"), problem));
            }
            if std > Self::MAX_STD {
                return scale("std", std);
            }
        }
        Ok(())
    }

    /// The operator with `mean` and `std` divided by `one` if their values are apparently meant for
    /// channels from 0 to `one`.
    fn divided(&self, one: f32) -> Self {
        let by_one = |values: [f32; 3]| values.map(|value| value / one);
        let is_over_1 = |values: [f32; 3]| values.iter().any(|&value| value > 1.0);
        let mean_is = is_over_1(self.mean);
        let std_is = is_over_1(self.std) || mean_is && self.std.contains(&1.0);
        Self {
            mean: if mean_is { by_one(self.mean) } else { self.mean },
            std: if std_is { by_one(self.std) } else { self.std },
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
            if !mean.is_finite() {
                let problem = format!("must be a number, is {mean}");
                return Err(FieldError::new(format!("mean[{channel}]"), problem));
            }
            // The magnitude of normalized values is at most `2 / std` for channels from 0 to 1.
            if !(std > 0.0 && std.is_finite() && (2.0 / std).is_finite()) {
                let least = 2.0 / f32::MAX;
                let problem = format!("must be a finite number of at least {least:e}, is {std}");
                return Err(FieldError::new(format!("std[{channel}]"), problem));
            }
        }
        Ok(())
    }

    /// Numbers as stored may have any mean and deviation. For integers, the statistics are those of
    /// channels from 0 to 1.
    fn for_format(&self, format: PixelFormat) -> Result<Option<Arc<dyn Operator>>, FieldError> {
        if format == PixelFormat::Indices {
            return Err(FieldError::new("op", unsupported(Self::NAME, format, "")));
        }
        if !format.is_as_stored() {
            self.check_scale(format.scale())?;
        }
        let Self { mean, std } = *self;
        let of_floats = NormalizeFloats { mean, std, one: format.scale() };
        Ok(format.is_floats().then(|| Arc::new(of_floats) as _))
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

/// Normalization of decoded floats: `(value / one - mean) / std`, each step rounded to f32.
struct NormalizeFloats {
    mean: [f32; 3],
    std: [f32; 3],
    /// Value of a channel that is 1 after scaling.
    one: f32,
}

/// Named as in the chain.
impl fmt::Debug for NormalizeFloats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean, std, one } = self;
        let mut text = f.debug_struct("Normalize");
        text.field("mean", mean).field("std", std).field("one", one).finish()
    }
}

impl Operator for NormalizeFloats {
    fn name(&self) -> &'static str {
        Normalize::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::position::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Self { mean, std, one } = *self;
        draw.position::<Self>(&FloatParams { mean, std, one, padding: 0 });
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Normalize::NAME, "mean", self.mean, input)?;
        equal_values(Normalize::NAME, "std", self.std, input)
    }
}

impl PositionFormula for NormalizeFloats {
    type Params = FloatParams;
    const CUDA: Option<Cuda> = None;
    const BYTES: bool = false;
    const FLOATS: bool = true;

    #[inline(always)]
    fn floats(params: &FloatParams, _: i32, _: i32, pixel: [f32; 3]) -> [f32; 3] {
        let FloatParams { mean, std, one, .. } = params;
        [0, 1, 2].map(|channel| (pixel[channel] / one - mean[channel]) / std[channel])
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, Pod, Zeroable, Serialize)]
#[repr(C)]
struct FloatParams {
    mean: [f32; 3],
    std: [f32; 3],
    one: f32,
    /// Always 0.
    #[serde(skip)]
    padding: u32,
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

    /// Error of the operator in a chain for bytes.
    fn refusal(normalize: Normalize) -> Option<FieldError> {
        let checked = normalize.check();
        checked.and_then(|()| normalize.for_format(PixelFormat::U8x3).map(drop)).err()
    }

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
            let error = refusal(Normalize { mean, std }).unwrap();
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
            assert_eq!(refusal(Normalize { mean, std }), None, "{mean:?} {std:?}");
        }
        let field = |mean, std| refusal(Normalize { mean, std }).unwrap().field;
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
