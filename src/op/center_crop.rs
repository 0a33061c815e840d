//! `center_crop`: crops a centred window.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::image::PixelType;

use super::settings::{check_side, equal_values, one_or_each};
use super::shared::padding::{PadMode, Padding, centred};
use super::spatial::{border, pad};
use super::{BuiltIn, Draw, FieldError, Kinds, Operator};

/// Crops a centred window: torchvision's `CenterCrop`.
///
/// Along each axis, the window begins at `int(round((side - wanted) / 2))`, rounding half to even.
/// `side` is the side of the image, and `wanted` is that of the window. An image that is smaller
/// than the window is padded. The padding on the left and at the top is `(wanted - side) / 2`,
/// truncated to an integer. With `fill` and `mode` it is timm's `CenterCropOrPad`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
    /// Red, green and blue of the padding, in the unit of the input pixels: 0 to 255, or normalized
    /// values after `normalize`. In TOML, one number sets all three. Default 0. Only for the mode
    /// `constant`.
    #[serde(default, deserialize_with = "one_or_each")]
    pub fill: [f32; 3],
    /// How a smaller image is padded: `constant` (default), `edge`, `reflect` or `symmetric`.
    #[serde(default)]
    pub mode: PadMode,
}

impl CenterCrop {
    /// A crop to `width` columns and `height` rows.
    pub fn to(width: u32, height: u32) -> Self {
        Self { width, height, fill: [0.0; 3], mode: PadMode::Constant }
    }
}

impl Operator for CenterCrop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        border::kinds_of_padded(self.mode)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let (input, size) = (draw.size(), Size::new(self.width, self.height));
        let (left, right, x) = centred(input.width, self.width);
        let (top, bottom, y) = centred(input.height, self.height);
        let padding = Padding { left, top, right, bottom };
        border::draw_padded(draw, padding, self.mode, self.fill, (x, y), size);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
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
}

impl BuiltIn for CenterCrop {
    const NAME: &'static str = "center_crop";

    fn examples() -> Vec<Self> {
        let sizes = [(8, 8), (9, 5), (31, 4), (64, 64)];
        let mut all = sizes.map(|(width, height)| Self::to(width, height)).to_vec();
        all.push(Self { fill: [1.0, 128.0, 255.0], ..Self::to(90, 70) });
        all.push(Self { mode: PadMode::Reflect, ..Self::to(90, 70) });
        all
    }
}
