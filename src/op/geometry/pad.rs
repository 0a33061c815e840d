//! `pad`: adds pixels at the sides.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::formula::pad::Padding;
use crate::op::settings::{check_side, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Adds pixels of one colour at the sides: torchvision's `Pad` with `padding_mode` constant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Pixels on the left, top, right and bottom. In TOML also one number for all four.
    #[serde(deserialize_with = "one_or_each")]
    pub padding: [u32; 4],
    /// Red, green and blue of the padding, in the values of the input pixels: 0 to 255, or normalized values after
    /// `normalize`. In TOML also one number for all. Default 0.
    #[serde(default, deserialize_with = "one_or_each")]
    pub fill: [f32; 3],
}

impl Pad {
    fn output(&self, input: Size) -> Size {
        let [left, top, right, bottom] = self.padding.map(|side| side as i32);
        // The sides of images and settings are far below the largest i32.
        Padding { left, top, right, bottom }.output(input).unwrap_or(input)
    }
}

/// Checks that a fill is a number, and a byte if the input is bytes.
pub(super) fn check_fill(fill: [f32; 3]) -> Result<(), FieldError> {
    for (channel, value) in fill.iter().enumerate() {
        if !value.is_finite() {
            let problem = format!("must be a number, is {value}");
            return Err(FieldError::new(format!("fill[{channel}]"), problem));
        }
    }
    Ok(())
}

/// Pixel type of an operator that pads with a fill.
pub(super) fn filled(name: &str, fill: [f32; 3], input: PixelType) -> Result<PixelType, String> {
    let byte = |value: f32| (0.0..=255.0).contains(&value) && value.fract() == 0.0;
    if input == PixelType::U8 && !fill.iter().all(|&value| byte(value)) {
        return Err(format!(
            "{name}'s input is bytes, but its fill {fill:?} is not: use whole numbers from 0 to 255, or put \
             {name} after normalize"
        ));
    }
    Ok(input)
}

impl Operator for Pad {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let [left, top, ..] = self.padding.map(i64::from);
        draw.crop((-left, -top), self.output(draw.size()), self.fill);
    }

    fn check(&self) -> Result<(), FieldError> {
        for (side, &pixels) in self.padding.iter().enumerate() {
            if pixels > 0 {
                check_side(&format!("padding[{side}]"), pixels)?;
            }
        }
        check_fill(self.fill)
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        filled(Self::NAME, self.fill, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        input.map(|input| self.output(input))
    }
}

impl BuiltIn for Pad {
    const NAME: &'static str = "pad";

    fn examples() -> Vec<Self> {
        vec![
            Self { padding: [3; 4], fill: [0.0; 3] },
            Self { padding: [0, 5, 12, 1], fill: [1.0, 128.0, 255.0] },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_and_fill_are_checked() {
        let op = Pad { padding: [0, 1, 2, 40_000], fill: [0.0; 3] };
        assert_eq!(op.check().unwrap_err().field, "padding[3]");
        let op = Pad { padding: [1; 4], fill: [0.0, 0.5, 0.0] };
        assert_eq!(op.check(), Ok(()));
        assert!(op.pixels(PixelType::U8).unwrap_err().contains("0.5"));
        assert_eq!(op.pixels(PixelType::F32), Ok(PixelType::F32));
        assert_eq!(op.fixed_output(Some(Size::new(3, 4))), Some(Size::new(5, 6)));
    }
}
