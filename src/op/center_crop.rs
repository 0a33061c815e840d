//! `center_crop`: a centred window.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;

use super::settings::check_side;
use super::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Crops a centred window: torchvision's `CenterCrop`.
///
/// The window begins at `int(round((side - wanted) / 2))`, rounding half to even. A smaller image is padded with 0,
/// with `(wanted - side) / 2` truncated to an integer on the left and at the top.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
}

impl CenterCrop {
    /// A crop to `width` columns and `height` rows.
    pub fn to(width: u32, height: u32) -> Self {
        Self { width, height }
    }
}

fn first(side: u32, wanted: u32) -> i64 {
    if wanted > side {
        -i64::from((wanted - side) / 2)
    } else {
        (f64::from(side - wanted) / 2.0).round_ties_even() as i64
    }
}

impl Operator for CenterCrop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let (input, size) = (draw.size(), Size::new(self.width, self.height));
        let at = (first(input.width, self.width), first(input.height, self.height));
        draw.crop(at, size, [0.0; 3]);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        Some(Size::new(self.width, self.height))
    }
}

impl BuiltIn for CenterCrop {
    const NAME: &'static str = "center_crop";

    fn examples() -> Vec<Self> {
        [(8, 8), (9, 5), (31, 4), (64, 64)].map(|(width, height)| Self { width, height }).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Python's `int(round((side - wanted) / 2.0))`.
    #[test]
    fn half_pixels_round_to_even() {
        let firsts = [(10, 8), (11, 8), (13, 8), (15, 8), (9, 8)].map(|(s, w)| first(s, w));
        assert_eq!(firsts, [1, 2, 2, 4, 0]);
    }

    #[test]
    fn odd_padding_puts_the_smaller_half_first() {
        assert_eq!([first(8, 11), first(8, 12), first(7, 8)], [-1, -2, 0]);
    }
}
