//! `thumbnail`: shrinks an image to fit into a size.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::resample::{self, Filter};
use crate::op::settings::check_side;
use crate::op::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Shrinks an image to fit into a size and preserves its aspect ratio: Pillow's `Image.thumbnail`
/// with `reducing_gap=None`. Images that already fit are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thumbnail {
    /// Maximum width of the output, in pixels.
    pub width: u32,
    /// Maximum height of the output, in pixels.
    pub height: u32,
    /// Resampling filter. Default bicubic.
    #[serde(default = "bicubic")]
    pub filter: Filter,
}

fn bicubic() -> Filter {
    Filter::Bicubic
}

impl Thumbnail {
    /// Shrinks images to at most `width` columns and `height` rows, with Pillow's default filter.
    pub fn within(width: u32, height: u32) -> Self {
        Self { width, height, filter: bicubic() }
    }

    fn most(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl Operator for Thumbnail {
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
        let input = draw.size();
        draw.resample(input.window(), size(input, self.most()), self.filter);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        input.map(|input| size(input, self.most()))
    }

    fn largest_output(&self, input: Size) -> Size {
        let most = self.most();
        Size::new(input.width.min(most.width), input.height.min(most.height))
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        resample::within_len(self.filter, self.most(), bounds)
    }
}

impl BuiltIn for Thumbnail {
    const NAME: &'static str = "thumbnail";

    fn examples() -> Vec<Self> {
        vec![
            Self::within(16, 16),
            Self { filter: Filter::Lanczos, ..Self::within(30, 9) },
            Self::within(500, 400),
        ]
    }
}

/// Output size of `thumbnail` (`src/PIL/Image.py`). An image that fits into `most` keeps its size.
/// Otherwise the output is the size within `most` whose aspect ratio is nearest to that of the
/// image.
pub fn size(input: Size, most: Size) -> Size {
    if most.width >= input.width && most.height >= input.height {
        return input;
    }
    let (x, y) = (f64::from(most.width), f64::from(most.height));
    let aspect = f64::from(input.width) / f64::from(input.height);
    // Rounds `side` to the neighbouring whole number with the smaller error, down if both errors
    // are equal.
    let nearest = |side: f64, error: &dyn Fn(f64) -> f64| {
        let (low, high) = (side.floor(), side.ceil());
        (if error(high) < error(low) { high } else { low }).max(1.0) as u32
    };
    if x / y >= aspect {
        Size::new(nearest(y * aspect, &|side| (aspect - side / y).abs()), most.height)
    } else {
        let error = |side: f64| if side == 0.0 { 0.0 } else { (aspect - x / side).abs() };
        Size::new(most.width, nearest(x / aspect, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_checked() {
        assert_eq!(Thumbnail::within(0, 5).check().unwrap_err().field, "width");
        assert_eq!(Thumbnail::within(5, 40_000).check().unwrap_err().field, "height");
    }
}
