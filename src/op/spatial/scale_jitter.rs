//! `scale_jitter`: resizes to a random size.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::resample::{self, Filter};
use crate::op::settings::{check_pair, check_side, drawn_f32};
use crate::op::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator};
use crate::random::SampleRng;

/// Resizes to the largest size that fits into a target, times a random scale: torchvision's
/// `ScaleJitter` (Simple Copy-Paste). Sides have at least one pixel. torchvision fails if a side
/// would have none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleJitter {
    /// Width of the target, in pixels.
    pub width: u32,
    /// Height of the target, in pixels.
    pub height: u32,
    /// Smallest and largest scale, 0.01 to 32. Default 0.1 to 2.
    #[serde(default = "default_scales")]
    pub scale_range: [f64; 2],
    /// Resampling filter. Default bilinear.
    #[serde(default)]
    pub filter: Filter,
}

fn default_scales() -> [f64; 2] {
    [0.1, 2.0]
}

impl ScaleJitter {
    /// Creates an operator with a target of `width` columns and `height` rows and torchvision's
    /// defaults.
    pub fn around(width: u32, height: u32) -> Self {
        Self { width, height, scale_range: default_scales(), filter: Filter::default() }
    }

    /// Largest output for an image of any size.
    fn most(&self) -> Size {
        // The factor is rounded to f32, which can make it slightly larger than the setting.
        let side = |len: u32| {
            ((f64::from(len) * self.scale_range[1] * 1.000_001) as u32).saturating_add(1)
        };
        Size::new(side(self.width), side(self.height))
    }
}

impl Operator for ScaleJitter {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn interpolation(&self) -> Option<(&'static str, bool)> {
        Some(("filter", self.filter == Filter::Nearest))
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Resample])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let scale = draw_scale_jitter(self.scale_range, draw.rng());
        let (input, target) = (draw.size(), Size::new(self.width, self.height));
        let output = scale_jitter(input, target, scale);
        draw.resample(input.window(), output, self.filter);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        check_pair("scale_range", self.scale_range, 0.01, 32.0)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        None
    }

    fn largest_output(&self, _: Size) -> Size {
        self.most()
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        let [low, _] = self.scale_range;
        let side = |len: u32| (f64::from(len) * low) as u32;
        let least = Size::new(side(self.width).max(1), side(self.height).max(1));
        resample::between_len(self.filter, [least, self.most()], bounds)
    }
}

impl BuiltIn for ScaleJitter {
    const NAME: &'static str = "scale_jitter";

    fn examples() -> Vec<Self> {
        let base = Self::around(30, 24);
        vec![base, Self { scale_range: [0.3, 0.3], filter: Filter::Bicubic, ..base }]
    }
}

/// Draws the scale of torchvision's `ScaleJitter`: uniform in `scales`.
pub fn draw_scale_jitter(scales: [f64; 2], rng: &mut SampleRng) -> f32 {
    drawn_f32(scales, rng)
}

/// Output size of `scale_jitter`: the largest size that fits into `target`, times `scale`. Each
/// side has at least one pixel. torchvision fails if a side would have none.
pub fn scale_jitter(input: Size, target: Size, scale: f32) -> Size {
    let (width, height) = (f64::from(input.width), f64::from(input.height));
    let fit = (f64::from(target.height) / height).min(f64::from(target.width) / width);
    let factor = fit as f32 * scale;
    let side = |len: u32| ((len as f32 * factor) as u32).max(1);
    Size::new(side(input.width), side(input.height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Actions;
    use crate::random::SampleKey;

    #[test]
    fn no_output_is_larger_than_the_largest() {
        let op = ScaleJitter::around(30, 24);
        for (place, size) in [(1, 1), (1, 90), (500, 3), (64, 48)].into_iter().enumerate() {
            let size = Size::new(size.0, size.1);
            for index in 0..300 {
                let key = SampleKey { seed: place as u64, epoch: 0, index };
                let output = Actions::of([&op as &dyn Operator], key, size).list[0].whole;
                let most = op.largest_output(size);
                assert!(output.width <= most.width && output.height <= most.height, "{output}");
                assert!(output.width > 0 && output.height > 0);
            }
        }
    }

    #[test]
    fn invalid_settings_are_refused() {
        let op = ScaleJitter { scale_range: [0.0, 1.0], ..ScaleJitter::around(5, 5) };
        assert_eq!(op.check().unwrap_err().field, "scale_range");
    }
}
