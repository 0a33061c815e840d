//! `crop`: crops a window at a fixed position.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;

use super::settings::check_side;
use super::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Crops a window at a fixed position. Pixels outside the image are 0, as with Pillow's
/// `Image.crop`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crop {
    /// First column of the window. Default 0.
    #[serde(default)]
    pub x: u32,
    /// First row of the window. Default 0.
    #[serde(default)]
    pub y: u32,
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
}

impl Operator for Crop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let size = Size::new(self.width, self.height);
        draw.crop((self.x.into(), self.y.into()), size, [0.0; 3]);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        Some(Size::new(self.width, self.height))
    }
}

impl BuiltIn for Crop {
    const NAME: &'static str = "crop";

    fn examples() -> Vec<Self> {
        [(0, 0, 9, 7), (3, 2, 8, 8), (5, 40, 50, 9), (1000, 0, 3, 3)]
            .map(|(x, y, width, height)| Self { x, y, width, height })
            .to_vec()
    }
}
