//! `pad`: adds pixels at the sides.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::settings::{check_side, equal_values, one_or_each};
use crate::op::shared::padding::{PadMode, Padding};
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

use super::border::{self, Border};

/// Adds pixels at the sides: torchvision's `Pad` on PIL images.
///
/// The modes `reflect` and `symmetric` mirror the image repeatedly if the padding is larger than
/// the image, as torchvision does with PIL images. With tensors, torchvision refuses such a
/// padding. In every mode, boxes move with the image, and mirrored copies of an object have no box.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Pixels to add on the left, top, right and bottom. In TOML, one number sets all four.
    #[serde(deserialize_with = "one_or_each")]
    pub padding: [u32; 4],
    /// Colour of the padding in the mode `constant`: red, green and blue in the scale of the input
    /// pixels, which is 0 to 255, or normalized values after `normalize`. In TOML, one number sets
    /// all three. Default 0.
    #[serde(default, deserialize_with = "one_or_each")]
    pub fill: [f32; 3],
    /// Pixels that are added: `constant` (the fill colour, default), `edge` (repeats edge pixels),
    /// `reflect` (mirrors the image without its edge pixels) or `symmetric` (mirrors the image with
    /// its edge pixels).
    #[serde(default)]
    pub mode: PadMode,
}

impl Pad {
    /// Padding of one colour.
    pub fn constant(padding: [u32; 4], fill: [f32; 3]) -> Self {
        Self { padding, fill, mode: PadMode::Constant }
    }

    /// Padding that repeats or mirrors pixels of the image, depending on `mode`.
    pub fn with(mode: PadMode, padding: [u32; 4]) -> Self {
        Self { padding, fill: [0.0; 3], mode }
    }

    fn padding(&self) -> Padding {
        let [left, top, right, bottom] = self.padding.map(|side| side as i32);
        Padding { left, top, right, bottom }
    }

    fn output(&self, input: Size) -> Size {
        // The padded sides fit an i32, because images and settings are far smaller.
        self.padding().output(input).unwrap_or(input)
    }
}

/// Checks that each channel of a fill colour is a finite number.
pub(in crate::op) fn check_fill(fill: [f32; 3]) -> Result<(), FieldError> {
    for (channel, value) in fill.iter().enumerate() {
        if !value.is_finite() {
            let problem = format!("must be a number, is {value}");
            return Err(FieldError::new(format!("fill[{channel}]"), problem));
        }
    }
    Ok(())
}

/// Pixel type of the output of an operator that pads with a fill colour. An error if the input has
/// bytes and the fill is not whole numbers from 0 to 255.
pub(in crate::op) fn filled(
    name: &str,
    fill: [f32; 3],
    input: PixelType,
) -> Result<PixelType, String> {
    let byte = |value: f32| (0.0..=255.0).contains(&value) && value.fract() == 0.0;
    if input == PixelType::U8 && !fill.iter().all(|&value| byte(value)) {
        return Err(format!(
            "the input of {name} is bytes, but its fill {fill:?} contains a number that is not a \
             byte; use whole numbers from 0 to 255, or put {name} after normalize"
        ));
    }
    Ok(input)
}

impl Operator for Pad {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([match self.mode {
            PadMode::Constant => Kind::Crop,
            _ => Kind::image::<Border>(),
        }])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let (input, output) = (draw.size(), self.output(draw.size()));
        match border::Params::new(self.padding(), input, self.mode) {
            Some(params) => draw.image::<Border>(&params, output),
            None => {
                let [left, top, ..] = self.padding.map(i64::from);
                draw.crop((-left, -top), output, self.fill);
            }
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        for (side, &pixels) in self.padding.iter().enumerate() {
            if pixels > 0 {
                check_side(&format!("padding[{side}]"), pixels)?;
            }
        }
        border::check_mode(self.mode, self.fill)?;
        check_fill(self.fill)
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        filled(Self::NAME, self.fill, input)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        input.map(|input| self.output(input))
    }
}

impl BuiltIn for Pad {
    const NAME: &'static str = "pad";

    fn examples() -> Vec<Self> {
        vec![
            Self::constant([3; 4], [0.0; 3]),
            Self::constant([0, 5, 12, 1], [1.0, 128.0, 255.0]),
            Self::with(PadMode::Edge, [4, 0, 3, 9]),
            Self::with(PadMode::Reflect, [2, 5, 60, 0]),
            Self::with(PadMode::Symmetric, [0, 70, 1, 8]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_and_fill_are_checked() {
        let op = Pad::constant([0, 1, 2, 40_000], [0.0; 3]);
        assert_eq!(op.check().unwrap_err().field, "padding[3]");
        let op = Pad { fill: [0.0, 0.5, 0.0], ..Pad::with(PadMode::Edge, [1; 4]) };
        assert_eq!(op.check().unwrap_err().field, "fill");
        let op = Pad::constant([1; 4], [0.0, 0.5, 0.0]);
        assert_eq!(op.check(), Ok(()));
        assert!(op.pixels(PixelType::U8).unwrap_err().contains("0.5"));
        assert_eq!(op.pixels(PixelType::F32), Ok(PixelType::F32));
        assert_eq!(op.fixed_output(Some(Size::new(3, 4))), Some(Size::new(5, 6)));
    }
}
