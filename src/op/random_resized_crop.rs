//! `random_resized_crop`: crops a random window and resizes it.

use serde::{Deserialize, Serialize};

use crate::geometry::{Roi, Size};
use crate::random::SampleRng;

use super::resample::{self, Filter};
use super::settings::{check_range, check_side};
use super::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Crops a window of random area and aspect ratio and resizes it: torchvision's
/// `RandomResizedCrop`.
///
/// Draws an area (uniform in `scale`, as a fraction of the image) and an aspect ratio (log-uniform
/// in `ratio`), up to ten times, until a window fits into the image. Draws the position of this
/// window uniformly. If no window fits, crops the largest centred window that the ratios allow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
    /// Minimum and maximum area of the window, as a fraction of the image's area. Default
    /// `[0.08, 1]`.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Minimum and maximum aspect ratio of the window, width / height. Default 3/4 to 4/3.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// Resampling filter. Default bilinear.
    #[serde(default)]
    pub filter: Filter,
}

fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl RandomResizedCrop {
    const TRIES: u32 = 10;

    /// Crop to `width` columns and `height` rows, with torchvision's defaults for the other
    /// settings.
    pub fn to(width: u32, height: u32) -> Self {
        let (scale, ratio) = (default_scale(), default_ratio());
        Self { width, height, scale, ratio, filter: Filter::default() }
    }

    fn output(&self) -> Size {
        Size::new(self.width, self.height)
    }

    fn draw_box(&self, input: Size, rng: &mut SampleRng) -> Roi {
        let area = input.pixels() as f64;
        let [low, high] = self.ratio.map(libm::log);
        for _ in 0..Self::TRIES {
            let target = area * rng.between(self.scale[0], self.scale[1]);
            let ratio = libm::exp(rng.between(low, high));
            let width = (target * ratio).sqrt().round_ties_even();
            let height = (target / ratio).sqrt().round_ties_even();
            let fits = |side: f64, most: u32| side > 0.0 && side <= f64::from(most);
            if fits(width, input.width) && fits(height, input.height) {
                let (width, height) = (width as u32, height as u32);
                let y = rng.below(u64::from(input.height - height) + 1) as u32;
                let x = rng.below(u64::from(input.width - width) + 1) as u32;
                return Roi::new(x, y, width, height);
            }
        }
        self.fallback(input)
    }

    fn fallback(&self, input: Size) -> Roi {
        let [low, high] = self.ratio;
        let (width, height) = (f64::from(input.width), f64::from(input.height));
        let (mut w, mut h) = (input.width, input.height);
        if width / height < low {
            h = ((width / low).round_ties_even() as u32).max(1);
        } else if width / height > high {
            w = ((height * high).round_ties_even() as u32).max(1);
        }
        Roi::new((input.width - w) / 2, (input.height - h) / 2, w, h)
    }
}

impl Operator for RandomResizedCrop {
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
        let of = self.draw_box(draw.size(), draw.rng());
        draw.resample(of, self.output(), self.filter);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        check_range("scale", self.scale)?;
        check_range("ratio", self.ratio)?;
        if self.scale[1] > 1.0 {
            let problem =
                format!("is {}, but must be at most 1, which means the whole image", self.scale[1]);
            return Err(FieldError::new("scale[1]", problem));
        }
        Ok(())
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        Some(self.output())
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        // A window has an aspect ratio within `ratio` and at most `bounds.pixels` pixels. Rounding
        // adds at most 1 to its sides.
        let (pixels, side) = (bounds.pixels as f64, f64::from(bounds.side));
        let width = ((pixels * self.ratio[1]).sqrt() + 1.0).min(side);
        let height = ((pixels / self.ratio[0]).sqrt() + 1.0).min(side);
        let scale = (width / f64::from(self.width), height / f64::from(self.height));
        let output = (u64::from(self.width), u64::from(self.height));
        resample::table_len(self.filter, output, bounds, [scale; 2])
    }
}

impl BuiltIn for RandomResizedCrop {
    const NAME: &'static str = "random_resized_crop";

    fn examples() -> Vec<Self> {
        vec![
            Self::to(24, 16),
            Self { scale: [0.5, 0.5], ratio: [2.0, 2.0], ..Self::to(7, 31) },
            Self { filter: Filter::Bicubic, ..Self::to(33, 9) },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SampleKey;

    fn windows(op: &RandomResizedCrop, input: Size) -> impl Iterator<Item = Roi> {
        (0..2000).map(move |index| {
            let key = SampleKey { seed: 5, epoch: 0, index };
            op.draw_box(input, &mut SampleRng::new(key, 0))
        })
    }

    #[test]
    fn every_window_is_inside_and_within_scale_and_ratio() {
        let (op, input) = (RandomResizedCrop::to(8, 8), Size::new(500, 375));
        for window in windows(&op, input) {
            assert!(input.window().contains(window) && !window.is_empty());
            let ratio = f64::from(window.width) / f64::from(window.height);
            let area = window.size().pixels() as f64 / input.pixels() as f64;
            assert!((0.74..1.35).contains(&ratio) && (0.078..=1.0).contains(&area), "{window}");
        }
    }

    #[test]
    fn area_is_uniform_and_ratio_log_uniform() {
        let op = RandomResizedCrop { scale: [0.1, 0.3], ..RandomResizedCrop::to(8, 8) };
        let input = Size::new(4000, 4000);
        let (mut area, mut log_ratio) = (0.0, 0.0);
        for window in windows(&op, input) {
            area += window.size().pixels() as f64 / input.pixels() as f64 / 2000.0;
            log_ratio += (f64::from(window.width) / f64::from(window.height)).ln() / 2000.0;
        }
        // Standard errors of the two means: 0.2 / sqrt(12 * 2000) = 0.0013 for the area and 0.575 /
        // sqrt(12 * 2000) = 0.0037 for the logarithm of the ratio.
        assert!((area - 0.2).abs() < 0.005, "mean area {area}");
        assert!(log_ratio.abs() < 0.015, "mean log ratio {log_ratio}");
    }

    #[test]
    fn if_nothing_fits_the_window_is_centred_and_as_large_as_the_ratios_allow() {
        let op = RandomResizedCrop::to(8, 8);
        assert_eq!(op.fallback(Size::new(1000, 10)), Roi::new(493, 0, 13, 10));
        assert_eq!(op.fallback(Size::new(10, 1000)), Roi::new(0, 493, 10, 13));
        assert_eq!(op.fallback(Size::new(10, 9)), Roi::new(0, 0, 10, 9));
        let wide = RandomResizedCrop { ratio: [3.0, 4.0], ..op };
        assert_eq!(wide.fallback(Size::new(1, 1)), Roi::new(0, 0, 1, 1));
    }

    #[test]
    fn invalid_settings_are_refused() {
        let op = RandomResizedCrop::to(224, 224);
        assert_eq!(op.check(), Ok(()));
        let field = |op: RandomResizedCrop| op.check().unwrap_err().field;
        assert_eq!(field(RandomResizedCrop { height: 0, ..op }), "height");
        assert_eq!(field(RandomResizedCrop { scale: [0.5, 0.1], ..op }), "scale");
        assert_eq!(field(RandomResizedCrop { scale: [0.5, 1.5], ..op }), "scale[1]");
        assert_eq!(field(RandomResizedCrop { ratio: [0.0, 1.0], ..op }), "ratio");
    }
}
