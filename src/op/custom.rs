//! Types that an operator of your own needs, besides the trait [`Operator`](super::Operator).
//!
//! `examples/02-own-operator.rs` in the repository is a complete operator.
//! [`testing`](crate::testing) compares its CPU and CUDA implementations.

use crate::geometry::{Roi, Size};

pub use super::draw::Draw;
pub use super::kind::{Cuda, ImageFormula, Kind, Kinds};
pub use crate::geometry::{BoundingBox, Mapping, Orientation};
pub use crate::image::{HostImage, Image, PixelType};
pub use crate::random::SampleRng;

/// Maximum size of an action's parameters for a kernel, in bytes.
pub const MAX_PARAMS_BYTES: usize = 96;

/// Invalid setting of an operator: the name of the field (such as `std[1]`) and the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// Name of the field as in TOML.
    pub field: String,
    /// Description of the problem, including the invalid value.
    pub problem: String,
}

impl FieldError {
    /// Creates an error for `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Window that is needed of an action's output, and the size of the action's input. From these,
/// [`ImageFormula::demand`] computes the window that the action reads.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Size of the whole input. If the decoder reduced the image, the reduced size.
    pub input: Size,
    /// Factor (1, 2, 4 or 8) by which the decoder reduced both sides, after
    /// [`Operator::draw`](super::Operator::draw) was called with the full size. The factor is more
    /// than 1 only for the first action of a sample, and only if this action resamples.
    pub reduction: u32,
    /// Columns and rows, in pixels of the unreduced image, that the decoder added before the first
    /// column and row. The decoder adds columns if EXIF mirrors the image left to right and the
    /// reduction does not divide the width. It adds rows in the same way.
    pub padding: Size,
    /// Window of the output that the next action or the tensor needs.
    pub output: Roi,
}

/// Upper bounds for all images that an operator may receive, and for the window that is needed of
/// its output.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of pixels of an image.
    pub pixels: u64,
    /// Maximum number of columns, and also of rows, of an image.
    pub side: u32,
    /// Largest output window that is ever needed: the output size of a following crop. `None` if no
    /// crop follows. Then the output of `resize` with `shorter` is not bounded: an image of one row
    /// becomes `shorter` rows high, and its columns grow in proportion.
    pub wanted: Option<Size>,
}

/// Where the operators of one sample move its pixels, in coordinates of the upright image.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Trace {
    /// Region of the image that is left after the crops at the beginning of the chain.
    pub roi: Roi,
    /// Whether all actions so far that move pixels are crops inside the image. Then the next crop
    /// also crops `roi`.
    pub cropping: bool,
    /// Whether the image is mirrored left to right.
    pub flipped_horizontally: bool,
    /// Whether the image is mirrored top to bottom.
    pub flipped_vertically: bool,
    /// Position of the image in the output of the chain, for boxes and masks.
    pub mapping: Mapping,
}

impl Trace {
    /// Trace of an unchanged image of `size`.
    pub fn new(size: Size) -> Self {
        Self { roi: size.window(), cropping: true, mapping: Mapping::new(size), ..Self::default() }
    }

    /// Crops `roi` to `window`, which is given in coordinates of `roi` and clipped to it. Has no
    /// effect if `cropping` is false.
    pub fn crop(&mut self, window: Roi) {
        if self.cropping {
            let left = Roi { x: 0, y: 0, ..self.roi };
            let cut = window.intersection(left);
            self.roi = Roi { x: self.roi.x + cut.x, y: self.roi.y + cut.y, ..cut };
        }
    }
}
