//! Kinds of actions: what the steps of a chain are, for those who execute them.
//!
//! An operator draws actions; each action is of one kind. Plan, CPU transform and kernels match on kinds and never on
//! operators, so an operator of a known kind needs no code of its own anywhere else.

use crate::image::PixelType;

use super::Cuda;
use super::formula::warp;

pub use image::{ImageForm, ImageFormula};
pub use pixel::{Channel, ColourFormula, PixelForm, PositionFormula, RowPosition};
pub use statistics::{StatisticsForm, StatisticsFormula};
pub use stencil::{StencilForm, StencilFormula};

pub mod crop;
pub mod flip;
mod image;
pub mod mix;
mod pixel;
pub mod statistics;
mod stencil;
pub mod table;

/// What an action is, and so how it is executed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A window of the image, with a fill outside of it.
    Crop,
    /// Columns, rows or both in reverse order.
    Flip,
    /// Separable resampling by a table of coefficients.
    Resample,
    /// Maps each byte of a channel to a byte. Neighbouring tables become one.
    Table,
    /// Maps each byte of a channel to a float.
    FloatTable,
    /// A function of a pixel's value, or of its value and position.
    Pixel(&'static PixelForm),
    /// A table made from the histograms of the whole image.
    Statistics(&'static StatisticsForm),
    /// A function of a pixel and its eight neighbours.
    Stencil(&'static StencilForm),
    /// Each pixel is read at a position of the input that a map gives.
    Warp,
    /// A place of a weighted sum of several chains' results.
    Mix,
    /// Any function from an image to an image.
    Image(&'static ImageForm),
}

impl Kind {
    /// The kind of images computed by the formula `F`.
    pub const fn image<F: ImageFormula>() -> Self {
        Kind::Image(ImageForm::of::<F>())
    }

    /// The kind of colours computed by the formula `F`.
    pub const fn colour<F: ColourFormula>() -> Self {
        Kind::Pixel(PixelForm::colour::<F>())
    }

    /// The kind of pixels computed from value and position by the formula `F`.
    pub const fn position<F: PositionFormula>() -> Self {
        Kind::Pixel(PixelForm::position::<F>())
    }

    /// The kind of tables that the formula `F` makes from histograms.
    pub const fn statistics<F: StatisticsFormula>() -> Self {
        Kind::Statistics(StatisticsForm::of::<F>())
    }

    /// The kind of stencils with the formula `F`.
    pub const fn stencil<F: StencilFormula>() -> Self {
        Kind::Stencil(StencilForm::of::<F>())
    }

    /// Output pixel type for an input pixel type. `None` if the kind does not accept it.
    pub fn pixels(self, input: PixelType) -> Option<PixelType> {
        match (self, input) {
            (Kind::Crop | Kind::Flip, _) => Some(input),
            (Kind::Resample | Kind::Table, PixelType::U8) => Some(PixelType::U8),
            (Kind::FloatTable, PixelType::U8) => Some(PixelType::F32),
            (Kind::Resample | Kind::Table | Kind::FloatTable, PixelType::F32) => None,
            (Kind::Stencil(_) | Kind::Warp | Kind::Mix, PixelType::U8) => Some(PixelType::U8),
            (Kind::Statistics(form), PixelType::U8) => Some(form.output),
            (Kind::Statistics(_) | Kind::Stencil(_) | Kind::Warp | Kind::Mix, PixelType::F32) => {
                None
            }
            (Kind::Pixel(form), _) => form.takes(input).then_some(input),
            (Kind::Image(form), _) => (form.pixels)(input),
        }
    }

    /// CUDA implementation. `None` if actions of this kind run only on the CPU.
    pub fn cuda(self) -> Option<Cuda> {
        match self {
            Kind::Crop => Some(crop::CUDA),
            Kind::Flip => Some(flip::CUDA),
            Kind::Resample => Some(super::resample::CUDA),
            Kind::Table => Some(table::CUDA),
            Kind::FloatTable => Some(table::FLOAT_CUDA),
            Kind::Pixel(form) => form.cuda,
            Kind::Statistics(form) => form.cuda,
            Kind::Stencil(form) => form.cuda,
            Kind::Warp => Some(warp::CUDA),
            Kind::Mix => None,
            Kind::Image(form) => form.cuda,
        }
    }

    /// Whether the CUDA type wraps the image below it, so that a fused kernel can have it.
    pub(crate) fn nests(self) -> bool {
        match self {
            Kind::Crop | Kind::Flip | Kind::Resample | Kind::Table | Kind::FloatTable => true,
            Kind::Pixel(_) | Kind::Statistics(_) | Kind::Stencil(_) | Kind::Warp | Kind::Mix => {
                false
            }
            Kind::Image(form) => form.cuda.is_some(),
        }
    }

    /// Whether this is the kind `other`.
    pub fn is(self, other: Kind) -> bool {
        match (self, other) {
            (Kind::Image(one), Kind::Image(other)) => (one.formula)() == (other.formula)(),
            (Kind::Pixel(one), Kind::Pixel(other)) => (one.formula)() == (other.formula)(),
            (Kind::Statistics(one), Kind::Statistics(other)) => {
                (one.formula)() == (other.formula)()
            }
            (Kind::Stencil(one), Kind::Stencil(other)) => (one.formula)() == (other.formula)(),
            _ => std::mem::discriminant(&self) == std::mem::discriminant(&other),
        }
    }

    /// Whether a pixel of the output depends on one pixel of the input, and on nothing else of it.
    pub fn is_pointwise(self) -> bool {
        matches!(self, Kind::Crop | Kind::Flip | Kind::Table | Kind::FloatTable | Kind::Pixel(_))
    }

    /// Maximum number of table entries (of 32 bits) of an action, except for coefficients.
    pub(crate) fn entries(self) -> usize {
        match self {
            Kind::Table => table::BYTE_ENTRIES,
            Kind::FloatTable => table::FLOAT_ENTRIES,
            Kind::Warp => warp::START_ENTRIES,
            _ => 0,
        }
    }
}

/// Kinds of the actions that an operator draws.
#[derive(Clone, Debug)]
pub struct Kinds {
    kinds: Vec<Kind>,
    most: Option<usize>,
}

impl Kinds {
    /// One action of each kind, in this order, for every sample.
    pub fn exactly(kinds: impl Into<Vec<Kind>>) -> Self {
        Self { kinds: kinds.into(), most: None }
    }

    /// At most `most` actions, each of one of these kinds, in any order.
    pub fn up_to(most: usize, kinds: impl Into<Vec<Kind>>) -> Self {
        Self { kinds: kinds.into(), most: Some(most) }
    }

    /// The kinds.
    pub fn list(&self) -> &[Kind] {
        &self.kinds
    }

    /// Whether every sample has exactly these actions, in this order.
    pub fn is_exact(&self) -> bool {
        self.most.is_none()
    }

    /// Maximum number of actions.
    pub fn most(&self) -> usize {
        self.most.unwrap_or(self.kinds.len())
    }

    /// Why a kernel cannot execute these actions. `None` if it can.
    pub fn not_on_device(&self) -> Option<&'static str> {
        let host_only = self.kinds.iter().any(|kind| kind.cuda().is_none());
        host_only.then_some("has no CUDA text")
    }

    /// Whether a fused kernel can execute these actions, whose order is fixed.
    #[doc(hidden)]
    pub fn fuses(&self) -> bool {
        self.is_exact() && self.kinds.iter().all(|kind| kind.nests())
    }

    /// Whether all kinds are [pointwise](Kind::is_pointwise).
    pub fn are_pointwise(&self) -> bool {
        self.kinds.iter().all(|kind| kind.is_pointwise())
    }

    /// Output pixel type for an input pixel type. `None` if one of the kinds does not accept its input.
    pub fn pixels(&self, input: PixelType) -> Option<PixelType> {
        if self.is_exact() {
            return self.kinds.iter().try_fold(input, |pixels, kind| kind.pixels(pixels));
        }
        let keeps = |kind: &Kind| kind.pixels(input) == Some(input);
        self.kinds.iter().all(keeps).then_some(input)
    }

    /// Maximum number of table entries (of 32 bits) of all actions, except for coefficients.
    pub(crate) fn entries(&self) -> usize {
        let entries = self.kinds.iter().map(|kind| kind.entries());
        match self.most {
            None => entries.sum(),
            Some(most) => most * entries.max().unwrap_or(0),
        }
    }
}
