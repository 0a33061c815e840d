//! `five_crop`: crops the four corners and the centre.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;

use crate::op::settings::check_side;
use crate::op::shared::padding::centred;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Crops the four corners and the centre of the image: torchvision's `FiveCrop`.
///
/// The five crops are in this order: top left, top right, bottom left, bottom right, centre. They
/// are the outputs of a [`View`](crate::op::View), or `crop` chooses one of them.
///
/// If the image is smaller than the window, torchvision raises an error. feedwater fills the
/// missing pixels with 0: beyond the edges that a corner does not touch, and on both sides of the
/// centre.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FiveCrop {
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
    /// Index of the only crop to make, 0 to 4. By default, all five are made, which is possible
    /// only in a view.
    #[serde(default)]
    pub crop: Option<u32>,
}

impl FiveCrop {
    /// Number of crops.
    pub(super) const CROPS: u32 = 5;

    /// Five crops to `width` columns and `height` rows.
    pub fn to(width: u32, height: u32) -> Self {
        Self { width, height, crop: None }
    }
}

/// Crops the window of size `size` with this number.
pub(super) fn crop(draw: &mut Draw<'_>, number: u32, size: Size) {
    let input = draw.size();
    let last = |side: u32, wanted: u32| i64::from(side) - i64::from(wanted);
    let middle = |side: u32, wanted: u32| {
        let (before, _, first) = centred(side, wanted);
        first - i64::from(before)
    };
    let (right, bottom) = (last(input.width, size.width), last(input.height, size.height));
    let position = match number {
        0 => (0, 0),
        1 => (right, 0),
        2 => (0, bottom),
        3 => (right, bottom),
        _ => (middle(input.width, size.width), middle(input.height, size.height)),
    };
    draw.crop(position, size, [0.0; 3]);
}

/// Checks the number of a crop, of which there are `crops`.
pub(super) fn check_crop(crop: Option<u32>, crops: u32) -> Result<(), FieldError> {
    match crop {
        Some(number) if number >= crops => {
            let problem = format!("must be 0 to {}, is {number}", crops - 1);
            Err(FieldError::new("crop", problem))
        }
        _ => Ok(()),
    }
}

impl Operator for FiveCrop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let number = self.crop.unwrap_or(draw.output());
        crop(draw, number, Size::new(self.width, self.height));
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        check_crop(self.crop, Self::CROPS)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        Some(Size::new(self.width, self.height))
    }

    fn outputs(&self) -> u32 {
        self.crop.map_or(Self::CROPS, |_| 1)
    }
}

impl BuiltIn for FiveCrop {
    const NAME: &'static str = "five_crop";

    fn examples() -> Vec<Self> {
        let crops = (0..Self::CROPS).map(|crop| Self { crop: Some(crop), ..Self::to(9, 8) });
        crops.chain([1, 4].map(|crop| Self { crop: Some(crop), ..Self::to(131, 50) })).collect()
    }
}
