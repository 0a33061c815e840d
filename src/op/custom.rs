//! What an operator of your own needs beside the trait [`Operator`](super::Operator).
//!
//! `examples/02-own-operator.rs` in the repository is a complete operator; [`testing`](crate::testing) compares all forms of it.

use crate::geometry::{Roi, Size};

pub use super::draw::Draw;
pub use super::kind::{Cuda, ImageFormula, Kind, Kinds};
pub use crate::geometry::{BoundingBox, Orientation, View};
pub use crate::image::{HostImage, Image, PixelType};
pub use crate::random::SampleRng;

/// Maximum size of an action's parameters, in bytes.
pub const MAX_PARAMS_BYTES: usize = 96;

/// Invalid operator setting: the field's name (such as `std[1]`) and the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// Field name as in TOML.
    pub field: String,
    /// Problem, including the value.
    pub problem: String,
}

impl FieldError {
    /// Creates an error for `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// The output window that [`ImageFormula::demand`] is called for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Size of the whole input, after the decoder's reduction if there was one.
    pub input: Size,
    /// Factor (1, 2, 4 or 8) by which the decoder reduced both sides after [`Operator::draw`](super::Operator::draw) saw the full size.
    /// More than 1 only for the first action of a sample, and only if that resamples.
    pub reduction: u32,
    /// Columns and rows of the unreduced image that the decoder added before the first ones, because EXIF mirrors the
    /// axis and the reduction does not divide its side.
    pub padding: Size,
    /// Window of the output.
    pub output: Roi,
}

/// Upper bounds on the size of any image and of the wanted window.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of pixels.
    pub pixels: u64,
    /// Maximum number of columns, and of rows.
    pub side: u32,
    /// Largest output window that is ever needed, if known: the output size of a following crop. Without it `resize`
    /// with `shorter` is unbounded, because a one-row image would become as many columns as there are pixels.
    pub wanted: Option<Size>,
}

/// Geometry of one sample's operators, in coordinates of the upright image.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Trace {
    /// Part of the image that is left after the leading crops of the chain.
    pub roi: Roi,
    /// Whether a following crop still crops the image itself, because only crops came before it.
    pub cropping: bool,
    /// Whether the image is mirrored left to right.
    pub flipped_horizontally: bool,
    /// Whether the image is mirrored top to bottom.
    pub flipped_vertically: bool,
    /// Position of the image in the output of the chain.
    pub view: View,
}

impl Trace {
    /// Trace of an unchanged image of `size`.
    pub fn new(size: Size) -> Self {
        Self { roi: size.window(), cropping: true, view: View::new(size), ..Self::default() }
    }

    /// Crops to `window`, given in coordinates of the current region and clipped to it.
    pub fn crop(&mut self, window: Roi) {
        if self.cropping {
            let left = Roi { x: 0, y: 0, ..self.roi };
            let cut = window.intersection(left);
            self.roi = Roi { x: self.roi.x + cut.x, y: self.roi.y + cut.y, ..cut };
        }
    }
}
