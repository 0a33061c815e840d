//! `random_zoom_out`: places the image on a larger canvas.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::settings::{check_number, check_pair, drawn_f32, equal_values, one_or_each};
use crate::op::shared::padding::Padding;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};
use crate::random::SampleRng;

use super::pad::{check_fill, filled};

/// Places the image at a random position of a larger canvas of random size: torchvision's
/// `RandomZoomOut` (SSD).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomZoomOut {
    /// Smallest and largest ratio of the canvas's sides to the image's sides, 1 to 32. Default 1 to
    /// 4.
    pub side_range: [f64; 2],
    /// Probability that the image changes, 0 to 1. Default 0.5.
    pub probability: f64,
    /// Colour of the padding: red, green and blue in the scale of the input pixels, which is 0 to
    /// 255, or normalized values after `normalize`. In TOML, one number sets all three. Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub fill: [f32; 3],
}

impl Default for RandomZoomOut {
    fn default() -> Self {
        Self { side_range: [1.0, 4.0], probability: 0.5, fill: [0.0; 3] }
    }
}

impl Operator for RandomZoomOut {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::up_to(1, [Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        if !draw.rng().chance(self.probability) {
            return;
        }
        let (factor, place) = draw_zoom_out(self.side_range, draw.rng());
        let padding = zoom_out(draw.size(), factor, place);
        if let Some(output) = padding.output(draw.size()) {
            draw.crop((-i64::from(padding.left), -i64::from(padding.top)), output, self.fill);
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("side_range", self.side_range, 1.0, 32.0)?;
        check_number("probability", self.probability, 0.0, 1.0)?;
        check_fill(self.fill)
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        filled(Self::NAME, self.fill, input)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        if self.is_random() { None } else { input }
    }

    fn largest_output(&self, input: Size) -> Size {
        if !self.is_random() {
            return input;
        }
        // The factor is rounded to f32, which can make it slightly larger than the setting.
        let side =
            |len: u32| ((f64::from(len) * self.side_range[1] * 1.000_001) as u32).saturating_add(1);
        Size::new(side(input.width), side(input.height))
    }

    fn is_random(&self) -> bool {
        self.probability > 0.0
    }
}

impl BuiltIn for RandomZoomOut {
    const NAME: &'static str = "random_zoom_out";

    fn examples() -> Vec<Self> {
        let base = Self::default();
        vec![
            base,
            Self { probability: 1.0, fill: [1.0, 100.0, 200.0], ..base },
            Self { probability: 0.0, ..base },
        ]
    }
}

/// Draws the random numbers of torchvision's `RandomZoomOut` that follow the decision whether the
/// image changes. Returns the ratio of the canvas's sides to the image's, and the position of the
/// image on the canvas, from left and top (0) to right and bottom (1).
pub fn draw_zoom_out(factors: [f64; 2], rng: &mut SampleRng) -> (f32, [f32; 2]) {
    (drawn_f32(factors, rng), [rng.uniform() as f32, rng.uniform() as f32])
}

/// Padding that `random_zoom_out` adds to an image of size `input`.
pub fn zoom_out(input: Size, factor: f32, place: [f32; 2]) -> Padding {
    let axis = |len: u32, place: f32| {
        let canvas = (len as f32 * factor) as i32;
        let before = ((canvas - len as i32) as f32 * place) as i32;
        (before, canvas - (before + len as i32))
    };
    let (left, right) = axis(input.width, place[0]);
    let (top, bottom) = axis(input.height, place[1]);
    Padding { left, top, right, bottom }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Actions;
    use crate::random::SampleKey;

    #[test]
    fn no_output_is_larger_than_the_largest_or_smaller_than_the_image() {
        let op = RandomZoomOut { probability: 1.0, ..RandomZoomOut::default() };
        let size = Size::new(37, 1);
        let most = op.largest_output(size);
        for index in 0..500 {
            let key = SampleKey { seed: 1, epoch: 0, index };
            let output = Actions::of([&op as &dyn Operator], key, size).list[0].whole;
            assert!((size.width..=most.width).contains(&output.width), "{output}");
            assert!((size.height..=most.height).contains(&output.height), "{output}");
        }
    }

    #[test]
    fn invalid_settings_are_refused() {
        let field = |op: RandomZoomOut| op.check().unwrap_err().field;
        let base = RandomZoomOut::default();
        assert_eq!(field(RandomZoomOut { side_range: [0.5, 2.0], ..base }), "side_range");
        assert_eq!(field(RandomZoomOut { probability: f64::NAN, ..base }), "probability");
    }
}
