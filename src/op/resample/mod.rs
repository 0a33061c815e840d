//! Resampling as Pillow up to 12 does it, bit for bit: what `resize` and `random_resized_crop` share.
//!
//! Pillow's integer algorithm (`src/libImaging/Resample.c`, 8 bits per channel): for every output column
//! the filter's weights over the input columns are computed in f64, normalised to sum 1, scaled by 2^22 and
//! rounded to i32; a horizontal pass forms the sums, adds half, shifts by 22 and clamps to a byte; a vertical
//! pass does the same with the result. The window of the filter is truncated at the border of the box
//! that is resampled, so that nothing outside it is ever read. `nearest` is Pillow's affine
//! nearest instead (`Geometry.c`).
//!
//! **The table** (`&[i32]`), made by `fill_table`, holds two axes, columns first. An axis of `n` outputs
//! (those of the wanted window) is: `n` pairs `(first, count)`, the first input index (absolute, in the
//! coordinates of the input image) and the number of taps, at `*_bounds`; then `n` times `*_taps`
//! coefficients, zero-padded, at `*_coefs`. Offsets are in entries from the table's start.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// Resampling filter, with Pillow's names and supports (in input pixels where the image grows).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// The pixel whose centre is nearest.
    Nearest,
    /// Mean over the area; support 0.5.
    Box,
    /// Triangle; support 1. What models are usually trained with.
    #[default]
    Bilinear,
    /// Hamming-windowed sinc; support 1.
    Hamming,
    /// Keys' cubic with a = -0.5; support 2.
    Bicubic,
    /// Lanczos-windowed sinc; support 3.
    Lanczos,
}

/// What one sample's resampling is: the numbers that CPU and GPU share.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Address of the table.
    pub table: u64,
    /// First column of the wanted window of the output.
    pub x: i32,
    /// First row of it.
    pub y: i32,
    /// Columns of it.
    pub width: i32,
    /// Rows of it.
    pub height: i32,
    /// Offset of the columns' bounds in the table.
    pub h_bounds: i32,
    /// Offset of the columns' coefficients.
    pub h_coefs: i32,
    /// Coefficients per column.
    pub h_taps: i32,
    /// Offset of the rows' bounds.
    pub v_bounds: i32,
    /// Offset of the rows' coefficients.
    pub v_coefs: i32,
    /// Coefficients per row.
    pub v_taps: i32,
    /// The box of the input that is resampled, before any reduction by the decoder.
    pub box_x: i32,
    /// First row of the box.
    pub box_y: i32,
    /// Columns of the box.
    pub box_width: i32,
    /// Rows of the box.
    pub box_height: i32,
    /// Columns of the whole output.
    pub out_width: i32,
    /// Rows of the whole output.
    pub out_height: i32,
}
