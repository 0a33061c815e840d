//! `random_crop`: crops a window of fixed size at a random position.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::image::PixelType;
use crate::random::SampleRng;

use super::settings::{check_side, equal_values, one_or_each};
use super::shared::padding::{PadMode, Padding};
use super::spatial::{border, pad};
use super::{BuiltIn, Draw, FieldError, Kinds, Operator};

/// Crops a window at a random position of the padded image: torchvision's `RandomCrop`.
///
/// If the padded image is smaller than the window, torchvision raises an error. feedwater begins
/// the window at the first column or row of the image, and fills the missing pixels at the end with
/// `fill`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
    /// Padding on the left, top, right and bottom, in pixels. In TOML, one number sets all four.
    /// Default 0.
    #[serde(default, deserialize_with = "one_or_each")]
    pub padding: [u32; 4],
    /// Whether an image that is smaller than the window even with `padding` is padded further: on
    /// both sides, by the missing number of pixels. Default false.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// Red, green and blue of the padding, in the unit of the input pixels: 0 to 255, or normalized
    /// values after `normalize`. In TOML, one number sets all three. Default 0. Only for the mode
    /// `constant`.
    #[serde(default, deserialize_with = "one_or_each")]
    pub fill: [f32; 3],
    /// How the image is padded: `constant` (default), `edge`, `reflect` or `symmetric`.
    #[serde(default)]
    pub mode: PadMode,
}

/// Position of the window along one axis.
struct CropAxis {
    /// Padding before and after the image.
    padding: [u32; 2],
    /// First pixel of the window in the padded image.
    first: u32,
}

impl RandomCrop {
    /// A crop to `width` columns and `height` rows, without padding.
    pub fn to(width: u32, height: u32) -> Self {
        let (padding, fill) = ([0; 4], [0.0; 3]);
        Self { width, height, padding, pad_if_needed: false, fill, mode: PadMode::Constant }
    }

    /// Draws the position of the window along one axis. Draws a random number only if there is more
    /// than one possible position.
    fn place(&self, side: u32, padding: [u32; 2], wanted: u32, rng: &mut SampleRng) -> CropAxis {
        let [mut before, mut after] = padding;
        // Cannot overflow: sides of images and settings are far below the largest u32.
        let missing = wanted.saturating_sub(side + before + after);
        if self.pad_if_needed {
            before += missing;
            after += missing;
        }
        let first = match (side + before + after).saturating_sub(wanted) {
            0 => 0,
            room => rng.below(u64::from(room) + 1) as u32,
        };
        CropAxis { padding: [before, after], first }
    }
}

impl Operator for RandomCrop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        border::kinds_of_padded(self.mode)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let input = draw.size();
        let [left, top, right, bottom] = self.padding;
        let y = self.place(input.height, [top, bottom], self.height, draw.rng());
        let x = self.place(input.width, [left, right], self.width, draw.rng());
        let [left, right] = x.padding.map(|pixels| pixels as i32);
        let [top, bottom] = y.padding.map(|pixels| pixels as i32);
        let padding = Padding { left, top, right, bottom };
        let (first, size) = ((x.first.into(), y.first.into()), Size::new(self.width, self.height));
        border::draw_padded(draw, padding, self.mode, self.fill, first, size);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        for (side, &pixels) in self.padding.iter().enumerate() {
            if pixels > 0 {
                check_side(&format!("padding[{side}]"), pixels)?;
            }
        }
        border::check_mode(self.mode, self.fill)?;
        pad::check_fill(self.fill)
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        pad::filled(Self::NAME, self.fill, input)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        Some(Size::new(self.width, self.height))
    }

    fn is_random(&self) -> bool {
        // The operator is random with every setting, because it depends on the image whether a
        // number is drawn.
        true
    }
}

impl BuiltIn for RandomCrop {
    const NAME: &'static str = "random_crop";

    fn examples() -> Vec<Self> {
        let base = Self::to(12, 10);
        vec![
            base,
            Self { padding: [4, 3, 2, 1], fill: [1.0, 128.0, 255.0], ..base },
            Self { pad_if_needed: true, fill: [7.0; 3], ..Self::to(90, 70) },
            Self::to(90, 70),
            Self { padding: [4, 3, 2, 1], mode: PadMode::Reflect, ..base },
            Self { pad_if_needed: true, mode: PadMode::Symmetric, ..Self::to(90, 70) },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SampleKey;

    fn places(op: RandomCrop, side: u32, padding: [u32; 2], wanted: u32) -> Vec<i64> {
        let mut seen: Vec<i64> = (0..500)
            .map(|index| {
                let key = SampleKey { seed: 1, epoch: 0, index };
                let place = op.place(side, padding, wanted, &mut SampleRng::new(key, 0));
                i64::from(place.first) - i64::from(place.padding[0])
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    #[test]
    fn every_position_in_the_padded_image_is_drawn_and_no_other() {
        let op = RandomCrop::to(1, 1);
        assert_eq!(places(op, 6, [2, 1], 4), [-2, -1, 0, 1, 2, 3]);
        assert_eq!(places(op, 6, [0, 0], 6), [0]);
    }

    #[test]
    fn pad_if_needed_pads_both_sides() {
        let op = RandomCrop { pad_if_needed: true, ..RandomCrop::to(1, 1) };
        assert_eq!(places(op, 6, [0, 0], 8), [-2, -1, 0]);
        assert_eq!(places(RandomCrop::to(1, 1), 6, [0, 0], 8), [0]);
    }

    #[test]
    fn fill_must_match_the_pixel_type() {
        let op = RandomCrop { fill: [0.0, 0.5, 0.0], ..RandomCrop::to(1, 1) };
        let problem = op.pixels(PixelType::U8).unwrap_err();
        for value in ["0.5", "255", "normalize"] {
            assert!(problem.contains(value), "{value}: {problem}");
        }
        assert_eq!(op.pixels(PixelType::F32), Ok(PixelType::F32));
    }

    #[test]
    fn padding_and_fill_accept_one_value_or_all() {
        let read = |text: &str| toml::from_str::<RandomCrop>(text);
        let op = read("width = 3\nheight = 4\npadding = 2\nfill = [1, 2, 3]").unwrap();
        assert_eq!((op.padding, op.fill), ([2; 4], [1.0, 2.0, 3.0]));
        let error = read("width = 3\nheight = 4\npadding = [1, 2]").unwrap_err();
        // The message must contain the number of given values (2) and the expected number (4).
        let message = error.message();
        assert!(message.contains('2') && message.contains('4'), "{message}");
    }
}
