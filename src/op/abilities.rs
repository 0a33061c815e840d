//! Optional parts of an operator: CUDA implementation, pixel movement, fast path.

use crate::geometry::Roi;
use crate::image::HostImage;

use super::params::{normalize, resample};
use super::{Bounds, Trace, Wanted};

/// CUDA implementation of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cuda {
    /// Name of the C++ type that `text` declares.
    pub type_name: &'static str,
    /// CUDA text that declares `template <class Src> struct <type_name>`.
    pub text: &'static str,
    /// Role of the operator in the tiled kernel (`kernels/tile.cu`). A chain gets a tiled kernel if all operators
    /// after the last resampling one are [`Tiling::Follows`].
    pub tiling: Tiling,
}

impl Cuda {
    /// Type and the text that declares it. Pixels are evaluated one by one.
    pub const fn new(type_name: &'static str, text: &'static str) -> Self {
        Self { type_name, text, tiling: Tiling::None }
    }

    /// Sets the operator's role in the tiled kernel.
    pub const fn tiled(self, tiling: Tiling) -> Self {
        Self { tiling, ..self }
    }
}

/// Role of an operator in the tiled kernel, in which a thread block computes a tile of the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tiling {
    /// Pixels are evaluated one by one, as `at(x, y)`. Always possible.
    None,
    /// The operator resamples: its CUDA type is that of `kernels/resample.cu`.
    Resamples,
    /// The operator only moves pixels along the axes, fills pixels outside the image, or maps each channel's value by
    /// itself. The CUDA type has the members `resampled`, `columns`, `rows` and `of` (described in
    /// `kernels/image.cu`).
    Follows,
}

/// An operator that moves pixels. `P` is [`Operator::Params`](super::Operator::Params).
pub trait Spatial<P> {
    /// Returns the input window that an output window needs. Writes whatever depends on the window (coefficient
    /// tables) into `params` and `table`.
    fn demand(&self, params: &mut P, wanted: Wanted, table: &mut Vec<i32>) -> Roi;

    /// Records how the pixels move, for `dump` and `Batch::samples`. Boxes and masks follow [`Trace::view`].
    fn trace(&self, params: &P, trace: &mut Trace);

    /// Maximum number of entries that [`demand`](Self::demand) appends to the table, for inputs of at most
    /// `bounds.pixels` pixels and at most `bounds.side` columns or rows. Default 0.
    fn table_len(&self, bounds: Bounds) -> usize {
        let _ = bounds;
        0
    }

    /// Writes the address (on the host or on the device) of this operator's table into the parameters. The default
    /// does nothing, for operators without a table.
    fn set_table(&self, params: &mut P, address: u64) {
        let _ = (params, address);
    }
}

/// Faster CPU implementation of an operator, bit-identical to its reference. `P` is
/// [`Operator::Params`](super::Operator::Params).
pub trait FastPath<P> {
    /// Fast equivalent of [`Operator::reference`](super::Operator::reference).
    fn apply(&self, params: &P, table: &[i32], src: &HostImage, out: &mut HostImage);

    /// How the CPU may fuse this operator with its neighbours. Default [`Fusion::None`].
    fn fusion(&self, params: &P) -> Fusion {
        let _ = params;
        Fusion::None
    }
}

/// What the CPU may do instead of calling [`FastPath::apply`], with identical bits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fusion {
    /// No fusion.
    None,
    /// Resamples rows, then columns, with these parameters. Rows can be consumed as they are decoded.
    Resample(resample::Params),
    /// Mirrors. The CPU writes pixels in reverse order.
    Flip {
        /// Left to right.
        horizontal: bool,
        /// Top to bottom.
        vertical: bool,
    },
    /// Maps each byte of a channel to a float. The CPU uses a lookup table.
    Normalize(normalize::Params),
    /// Crops a window. The CPU offsets coordinates.
    Crop {
        /// Columns to the left of the window.
        x: u32,
        /// Rows above the window.
        y: u32,
    },
}
