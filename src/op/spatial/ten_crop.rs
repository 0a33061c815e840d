//! `ten_crop`: crops the four corners and the centre of the image and of its mirror image.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;

use crate::op::settings::check_side;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

use super::five_crop::{self, FiveCrop};

/// Crops the four corners and the centre of the image and of its mirror image: torchvision's
/// `TenCrop`.
///
/// First come the crops of [`FiveCrop`], then those of the mirror image in the same order. They are
/// the outputs of a [`View`](crate::op::View), or `crop` selects one of them. Images that are
/// smaller than the window are filled as by [`FiveCrop`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenCrop {
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
    /// Whether the image is mirrored top to bottom instead of left to right. Default false.
    #[serde(default)]
    pub vertical_flip: bool,
    /// Index of the only crop to make, 0 to 9. By default, all ten are made, which is possible
    /// only in a view.
    #[serde(default)]
    pub crop: Option<u32>,
}

impl TenCrop {
    const CROPS: u32 = 2 * FiveCrop::CROPS;

    /// Ten crops to `width` columns and `height` rows, five of them mirrored left to right.
    pub fn to(width: u32, height: u32) -> Self {
        Self { width, height, vertical_flip: false, crop: None }
    }
}

impl Operator for TenCrop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Flip, Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let number = self.crop.unwrap_or(draw.output());
        let is_mirrored = number >= FiveCrop::CROPS;
        draw.flip(is_mirrored && !self.vertical_flip, is_mirrored && self.vertical_flip);
        five_crop::crop(draw, number % FiveCrop::CROPS, Size::new(self.width, self.height));
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        five_crop::check_crop(self.crop, Self::CROPS)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        Some(Size::new(self.width, self.height))
    }

    fn outputs(&self) -> u32 {
        self.crop.map_or(Self::CROPS, |_| 1)
    }
}

impl BuiltIn for TenCrop {
    const NAME: &'static str = "ten_crop";

    fn examples() -> Vec<Self> {
        let crop = |number| Self { crop: Some(number), ..Self::to(9, 8) };
        let vertical = Self { vertical_flip: true, ..crop(7) };
        let small = Self { crop: Some(8), ..Self::to(131, 50) };
        [0, 4, 5, 6, 9].map(crop).into_iter().chain([vertical, small]).collect()
    }
}
