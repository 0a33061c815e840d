//! `letterbox`: resizes an image to fit into a size and pads the rest.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::image::PixelFormat;
use crate::op::resample::{self, Filter};
use crate::op::settings::{check_side, equal_values, one_or_each_or_none};
use crate::op::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator, supports};

pub mod formula;

/// Resizes the image to the largest size that fits into the output, and pads the rest. This is
/// YOLO's preprocessing: the image is placed as by Ultralytics' `LetterBox` 8.4
/// (`ultralytics/data/augment.py`).
///
/// Ultralytics resizes with OpenCV's bilinear interpolation, which does not antialias when it
/// shrinks an image. feedwater resamples as Pillow does, with antialiasing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Letterbox {
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
    /// Whether images that are smaller than the output are enlarged. Default true.
    #[serde(default = "yes")]
    pub scale_up: bool,
    /// Whether the image is centred. If false, it is at the upper left corner. Default true.
    #[serde(default = "yes")]
    pub center: bool,
    /// Reduces the padding of each axis to its remainder after division by this many pixels, as
    /// Ultralytics' `auto` does with 32. If `width` and `height` are multiples of `stride`, so are
    /// the sides of the output. Default: pads to the whole output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<u32>,
    /// Colour of the padding: red, green and blue. In TOML, one number sets all three. Default 114,
    /// except for palette indices (`decode.pixels = "indices"`), where it must be set.
    #[serde(
        default,
        deserialize_with = "one_or_each_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub fill: Option<[u8; 3]>,
    /// Resampling filter. Default bilinear.
    #[serde(default)]
    pub filter: Filter,
}

fn yes() -> bool {
    true
}

/// Default of `fill`.
const GRAY: [u8; 3] = [114; 3];

impl Letterbox {
    /// Creates an operator with an output of `width` columns and `height` rows and Ultralytics'
    /// defaults.
    pub fn to(width: u32, height: u32) -> Self {
        let (stride, fill, filter) = (None, None, Filter::default());
        Self { width, height, scale_up: true, center: true, stride, fill, filter }
    }

    fn fill(&self) -> [u8; 3] {
        self.fill.unwrap_or(GRAY)
    }

    fn formula(&self) -> formula::Letterbox {
        let Self { width, height, scale_up, center, stride, .. } = *self;
        formula::Letterbox { output: Size::new(width, height), scale_up, center, stride }
    }
}

impl Operator for Letterbox {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn interpolation(&self) -> Option<(&'static str, bool)> {
        Some(("filter", self.filter == Filter::Nearest))
    }

    /// The default colour would be a class that the image does not have.
    fn for_format(&self, format: PixelFormat) -> Result<Option<Arc<dyn Operator>>, FieldError> {
        if format == PixelFormat::Indices && self.fill.is_none() {
            let problem = format!(
                "of {} is not set, but the pixels are indices, for which its default {} is a class; \
                 set it to the number of the padding, such as 0 or 255",
                Self::NAME,
                GRAY[0]
            );
            return Err(FieldError::new("fill", problem));
        }
        supports(self, format).map(|()| None)
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Resample, Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let (resized, around) = self.formula().place(draw.size());
        draw.resample(draw.size().window(), resized, self.filter);
        let output = around.output(resized).unwrap_or(resized);
        draw.crop(
            (-i64::from(around.left), -i64::from(around.top)),
            output,
            self.fill().map(f32::from),
        );
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        self.stride.map_or(Ok(()), |stride| check_side("stride", stride))
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill(), input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        match (self.stride, input) {
            (None, _) => Some(Size::new(self.width, self.height)),
            (Some(_), input) => input.and_then(|input| {
                let (resized, around) = self.formula().place(input);
                around.output(resized)
            }),
        }
    }

    fn largest_output(&self, _: Size) -> Size {
        Size::new(self.width, self.height)
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        resample::within_len(self.filter, Size::new(self.width, self.height), bounds)
    }
}

impl BuiltIn for Letterbox {
    const NAME: &'static str = "letterbox";

    fn examples() -> Vec<Self> {
        let base = Self::to(32, 24);
        vec![
            base,
            Self { scale_up: false, fill: Some([0, 1, 2]), ..Self::to(40, 40) },
            Self { center: false, filter: Filter::Bicubic, ..Self::to(9, 33) },
            Self { stride: Some(8), ..Self::to(31, 40) },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused() {
        let field = |op: Letterbox| op.check().unwrap_err().field;
        assert_eq!(field(Letterbox::to(0, 5)), "width");
        assert_eq!(field(Letterbox { stride: Some(0), ..Letterbox::to(5, 5) }), "stride");
        assert_eq!(Letterbox::to(640, 640).check(), Ok(()));
    }

    #[test]
    fn only_with_a_stride_the_output_depends_on_the_input() {
        let op = Letterbox::to(640, 640);
        assert_eq!(op.fixed_output(None), Some(Size::new(640, 640)));
        let op = Letterbox { stride: Some(32), ..op };
        assert_eq!(op.fixed_output(None), None);
        assert_eq!(op.fixed_output(Some(Size::new(1280, 720))), Some(Size::new(640, 384)));
    }
}
