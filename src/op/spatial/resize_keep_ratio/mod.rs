//! `resize_keep_ratio`: resizes to cover a size, or to fit into it, with random scale and aspect
//! ratio.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::resample::{self, Filter};
use crate::op::settings::{check_number, check_pair, check_side};
use crate::op::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

use formula::{KeepRatio, Range};

pub mod formula;

/// Resizes the image to cover a size (`longest` 0), to fit into the size (`longest` 1), or to
/// something in between: timm's `ResizeKeepRatio`. A random scale and a random aspect ratio can
/// change both sides. Sides have at least one pixel. timm fails if a side would have none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeKeepRatio {
    /// Width to cover or to fit into, in pixels.
    pub width: u32,
    /// Height to cover or to fit into, in pixels.
    pub height: u32,
    /// Weight between covering the size (0) and fitting into it (1). Default 0.
    #[serde(default)]
    pub longest: f64,
    /// Probability of a random scale, 0 to 1. Default 0.
    #[serde(default)]
    pub scale_probability: f64,
    /// Smallest and largest scale, 0.01 to 32. Default 0.85 to 1.05.
    #[serde(default = "default_scales")]
    pub scale: [f64; 2],
    /// Whether `scale` is the relative area of a crop, as in `random_resized_crop`. A smaller scale
    /// then makes the image larger. Default false.
    #[serde(default)]
    pub scale_is_area: bool,
    /// Probability of a random aspect ratio, 0 to 1. Default 0.
    #[serde(default)]
    pub aspect_probability: f64,
    /// Smallest and largest factor by which the aspect ratio changes, 0.01 to 32. Default 0.9 to
    /// 1.11.
    #[serde(default = "default_aspects")]
    pub aspect: [f64; 2],
    /// Resampling filter. Default bilinear.
    #[serde(default)]
    pub filter: Filter,
}

fn default_scales() -> [f64; 2] {
    [0.85, 1.05]
}

fn default_aspects() -> [f64; 2] {
    [0.9, 1.11]
}

impl ResizeKeepRatio {
    /// Resizes the image to cover `width` columns and `height` rows.
    pub fn cover(width: u32, height: u32) -> Self {
        Self {
            width,
            height,
            longest: 0.0,
            scale_probability: 0.0,
            scale: default_scales(),
            scale_is_area: false,
            aspect_probability: 0.0,
            aspect: default_aspects(),
            filter: Filter::default(),
        }
    }

    /// Resizes the image to fit into `width` columns and `height` rows.
    pub fn fit(width: u32, height: u32) -> Self {
        Self { longest: 1.0, ..Self::cover(width, height) }
    }

    fn formula(&self) -> KeepRatio {
        let range = |probability, [low, high]: [f64; 2]| Range { probability, low, high };
        KeepRatio {
            target: Size::new(self.width, self.height),
            longest: self.longest,
            scale: range(self.scale_probability, self.scale),
            scale_is_area: self.scale_is_area,
            aspect: range(self.aspect_probability, self.aspect),
        }
    }
}

impl Operator for ResizeKeepRatio {
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
        let formula = self.formula();
        let factors = formula.draw(draw.rng());
        let input = draw.size();
        draw.resample(input.window(), formula.output(input, factors), self.filter);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        check_number("longest", self.longest, 0.0, 1.0)?;
        check_number("scale_probability", self.scale_probability, 0.0, 1.0)?;
        check_pair("scale", self.scale, 0.01, 32.0)?;
        check_number("aspect_probability", self.aspect_probability, 0.0, 1.0)?;
        check_pair("aspect", self.aspect, 0.01, 32.0)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        let formula = self.formula();
        input.filter(|_| !formula.is_random()).map(|input| formula.output(input, [1.0; 2]))
    }

    fn largest_output(&self, input: Size) -> Size {
        let formula = self.formula();
        formula.output(input, formula.largest())
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        let formula = self.formula();
        let (width, height) = (f64::from(self.width), f64::from(self.height));
        let side = f64::from(bounds.side);
        // `ratio` is a weighted mean of two ratios, one for each axis: input side to target side.
        // The smaller of the two ratios is at most their geometric mean.
        let smaller = (bounds.pixels as f64 / (width * height)).sqrt();
        let larger = side / width.min(height);
        let ratio = larger * self.longest + smaller * (1.0 - self.longest);
        // Rounding shortens an output side by less than half, so the scale grows by less than a
        // factor of 2.
        let scale = 2.0 * ratio / formula.smallest();
        let [tallest, widest] = formula.largest();
        let most = |target: f64, other: f64, factor: f64| {
            ((target / self.longest).min(side * other) * factor).min(f64::from(i32::MAX)) as u64 + 1
        };
        let output = (most(width, height, widest), most(height, width, tallest));
        resample::table_len(self.filter, output, bounds, [(scale, scale); 2])
    }
}

impl BuiltIn for ResizeKeepRatio {
    const NAME: &'static str = "resize_keep_ratio";

    fn examples() -> Vec<Self> {
        let base = Self::cover(30, 20);
        let random = Self { scale_probability: 0.5, aspect_probability: 0.5, ..base };
        vec![
            base,
            Self { filter: Filter::Bicubic, ..Self::fit(30, 20) },
            Self { longest: 0.5, ..base },
            random,
            Self { scale: [0.8, 1.0], scale_is_area: true, aspect: [0.9, 1.0 / 0.9], ..random },
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
        for op in ResizeKeepRatio::examples() {
            for size in [(1, 1), (1, 90), (500, 3), (64, 48)] {
                let size = Size::new(size.0, size.1);
                let most = op.largest_output(size);
                for index in 0..200 {
                    let key = SampleKey { index, ..SampleKey::default() };
                    let output = Actions::of([&op as &dyn Operator], key, size).list[0].whole;
                    assert!(output.width <= most.width && output.height <= most.height, "{op:?}");
                    assert!(op.fixed_output(Some(size)).is_none_or(|fixed| fixed == output));
                }
            }
        }
    }

    #[test]
    fn invalid_settings_are_refused() {
        let field = |op: ResizeKeepRatio| op.check().unwrap_err().field;
        let base = ResizeKeepRatio::cover(5, 5);
        assert_eq!(base.check(), Ok(()));
        assert_eq!(field(ResizeKeepRatio { longest: 1.5, ..base }), "longest");
        assert_eq!(field(ResizeKeepRatio { scale: [0.0, 1.0], ..base }), "scale");
        assert_eq!(
            field(ResizeKeepRatio { aspect_probability: -0.1, ..base }),
            "aspect_probability"
        );
    }
}
