//! `random_crop`: a window of fixed size at a random position.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::image::PixelType;
use crate::random::SampleRng;

use super::settings::{check_side, one_or_each};
use super::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Crops a window at a random position of the padded image: torchvision's `RandomCrop`.
///
/// If the padded image is smaller than the window, torchvision raises an error. Here the window begins at the image's
/// first column (row), and the missing pixels at the end are `fill`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
    /// Padding on the left, top, right and bottom, in pixels. In TOML also one number for all four. Default 0.
    #[serde(default, deserialize_with = "one_or_each")]
    pub padding: [u32; 4],
    /// Whether to pad both sides by the difference if the padded image is still smaller than the window. Default
    /// false.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// Red, green and blue of the padding, in the values of the input pixels: 0 to 255, or normalized values after
    /// `normalize`. In TOML also one number for all. Default 0.
    #[serde(default, deserialize_with = "one_or_each")]
    pub fill: [f32; 3],
}

impl RandomCrop {
    /// A crop to `width` columns and `height` rows, without padding.
    pub fn to(width: u32, height: u32) -> Self {
        Self { width, height, padding: [0; 4], pad_if_needed: false, fill: [0.0; 3] }
    }

    /// Start of the window on one axis. Draws a number only if there is a choice.
    fn place(&self, side: u32, padding: [u32; 2], wanted: u32, rng: &mut SampleRng) -> i64 {
        let mut before = i64::from(padding[0]);
        let mut padded = u64::from(side) + u64::from(padding[0]) + u64::from(padding[1]);
        let missing = u64::from(wanted).saturating_sub(padded);
        if self.pad_if_needed {
            before += missing as i64;
            padded += 2 * missing;
        }
        match padded.saturating_sub(u64::from(wanted)) {
            0 => -before,
            room => rng.below(room + 1) as i64 - before,
        }
    }
}

impl Operator for RandomCrop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let input = draw.size();
        let [left, top, right, bottom] = self.padding;
        let y = self.place(input.height, [top, bottom], self.height, draw.rng());
        let x = self.place(input.width, [left, right], self.width, draw.rng());
        draw.crop((x, y), Size::new(self.width, self.height), self.fill);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        for (side, &pixels) in self.padding.iter().enumerate() {
            if pixels > 0 {
                check_side(&format!("padding[{side}]"), pixels)?;
            }
        }
        for (channel, value) in self.fill.iter().enumerate() {
            if !value.is_finite() {
                let problem = format!("must be a number, is {value}");
                return Err(FieldError::new(format!("fill[{channel}]"), problem));
            }
        }
        Ok(())
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        let byte = |value: f32| (0.0..=255.0).contains(&value) && value.fract() == 0.0;
        if input == PixelType::U8 && !self.fill.iter().all(|&value| byte(value)) {
            return Err(format!(
                "random_crop's input is bytes, but its fill {:?} is not: use whole numbers from 0 to 255, or \
                 put random_crop after normalize",
                self.fill
            ));
        }
        Ok(input)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        Some(Size::new(self.width, self.height))
    }

    fn is_random(&self) -> bool {
        // Whether a number is drawn depends on the image.
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
                op.place(side, padding, wanted, &mut SampleRng::new(key, 0))
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
        // The given number of values, and the largest one.
        let message = error.message();
        assert!(message.contains('2') && message.contains('4'), "{message}");
    }
}
