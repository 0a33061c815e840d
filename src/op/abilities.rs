//! What an operator may have besides its reference: a form on the GPU, a part in moving pixels, a fast path.

use crate::geometry::Roi;
use crate::image::HostImage;

use super::{Bounds, Trace, Wanted, normalize, resample};

/// An operator's form on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cuda {
    /// The C++ type that the text declares.
    pub type_name: &'static str,
    /// CUDA text that declares `template <class Src> struct <type_name>`.
    pub text: &'static str,
    /// What the operator is to the tiled form of the kernel (`kernels/tile.cu`), which a chain has where nothing follows the
    /// last operator that resamples but such as [follow](Tiling::Follows).
    pub tiling: Tiling,
}

impl Cuda {
    /// The type, and the text that declares it; its pixels are evaluated one by one.
    pub const fn new(type_name: &'static str, text: &'static str) -> Self {
        Self { type_name, text, tiling: Tiling::None }
    }

    /// The same with a part in the tiled form of the kernel.
    pub const fn tiled(self, tiling: Tiling) -> Self {
        Self { tiling, ..self }
    }
}

/// What an operator is to the tiled form of the kernel, in which a block makes a part of the tensor together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tiling {
    /// Its pixels are evaluated one by one, as `at(x, y)`: always possible.
    None,
    /// It resamples: the CUDA type is that of `kernels/resample.cu`.
    Resamples,
    /// It only moves pixels along the axes, fills what is outside, or maps each channel's value by itself; and the CUDA
    /// type has the members `resampled`, `columns`, `rows` and `of` (described in `kernels/image.cu`).
    Follows,
}

/// An operator that moves pixels. `P` is [`Operator::Params`](super::Operator::Params).
pub trait Spatial<P> {
    /// Says which window of the input is needed for a window of the output, and folds what depends on it
    /// (coefficient tables) into `params` and `table`.
    fn demand(&self, params: &mut P, wanted: Wanted, table: &mut Vec<i32>) -> Roi;

    /// Records where the pixels go, for `dump` and for `Batch::samples`. Boxes and masks follow [`Trace::view`].
    fn trace(&self, params: &P, trace: &mut Trace);

    /// The largest number of entries that [`demand`](Self::demand) appends to the table, for inputs of at
    /// most `bounds.pixels` pixels and at most `bounds.side` columns or rows. Default 0.
    fn table_len(&self, bounds: Bounds) -> usize {
        let _ = bounds;
        0
    }

    /// Writes the address (on the host or on the device) of this operator's table into the parameters. The default is that of
    /// an operator without a table.
    fn set_table(&self, params: &mut P, address: u64) {
        let _ = (params, address);
    }
}

/// An operator that the CPU can run faster than by its reference, with the same bits. `P` is
/// [`Operator::Params`](super::Operator::Params).
pub trait FastPath<P> {
    /// The same as [`Operator::reference`](super::Operator::reference), as fast as the CPU can.
    fn apply(&self, params: &P, table: &[i32], src: &HostImage, out: &mut HostImage);

    /// How the CPU may fuse this operator with its neighbours. Default [`Fusion::None`].
    fn fusion(&self, params: &P) -> Fusion {
        let _ = params;
        Fusion::None
    }
}

/// What the CPU may do with an operator instead of calling [`FastPath::apply`]; the bits are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fusion {
    /// Nothing.
    None,
    /// It resamples rows, then columns, by these parameters: rows can be taken as they are decoded.
    Resample(resample::Params),
    /// It mirrors: writing backwards does it.
    Flip {
        /// Left to right.
        horizontal: bool,
        /// Top to bottom.
        vertical: bool,
    },
    /// It maps each byte of a channel to a float: a table does it.
    Normalize(normalize::Params),
    /// It cuts a window out: coordinates do it.
    Crop {
        /// Columns to the left of it.
        x: u32,
        /// Rows above it.
        y: u32,
    },
}
