//! Parameters of a resampling, shared by all implementations.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::geometry::{Roi, Size};

/// Resampling filter, with Pillow's names. The support of a filter is half its width in input
/// pixels if the image is enlarged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// Takes the pixel whose centre is nearest.
    Nearest,
    /// Mean of the area that an output pixel covers; support 0.5.
    Box,
    /// Triangle; support 1. The usual filter for training.
    #[default]
    Bilinear,
    /// Hamming-windowed sinc; support 1.
    Hamming,
    /// Keys' cubic with a = -0.5; support 2.
    Bicubic,
    /// Lanczos-windowed sinc; support 3.
    Lanczos,
}

/// Parameters of one sample's resampling, shared by CPU and GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Address of the table of coefficients, for kernels.
    pub table: u64,
    /// First column of the wanted window of the output.
    pub x: i32,
    /// First row of the wanted window.
    pub y: i32,
    /// Number of columns of the wanted window.
    pub width: i32,
    /// Number of rows of the wanted window.
    pub height: i32,
    /// Offset of the columns' bounds in the table.
    pub h_bounds: i32,
    /// Offset of the columns' coefficients in the table.
    pub h_coefs: i32,
    /// Number of entries of coefficients per column.
    pub h_taps: i32,
    /// Offset of the rows' bounds in the table.
    pub v_bounds: i32,
    /// Offset of the rows' coefficients in the table.
    pub v_coefs: i32,
    /// Number of entries of coefficients per row.
    pub v_taps: i32,
    /// First column of the resampled box of the input, before any reduction by the decoder.
    pub box_x: i32,
    /// First row of the box.
    pub box_y: i32,
    /// Number of columns of the box.
    pub box_width: i32,
    /// Number of rows of the box.
    pub box_height: i32,
    /// Number of columns of the whole output.
    pub out_width: i32,
    /// Number of rows of the whole output.
    pub out_height: i32,
}

/// Fraction bits of a coefficient: 32 minus 8 for the byte and 2 for filters that go below 0 or
/// over 1.
pub const PRECISION_BITS: u32 = 22;

/// Number of table entries of a coefficient for floats, an f64.
pub const WORDS: usize = 2;

/// Half of an output level. It is added to a sum so that the shift rounds.
pub const HALF: i32 = 1 << (PRECISION_BITS - 1);

impl Params {
    /// Resampling of the box `of` of the input to a whole output of size `to`. The wanted window is
    /// empty until the table is filled.
    pub fn new(of: Roi, to: Size) -> Self {
        Self {
            box_x: of.x as i32,
            box_y: of.y as i32,
            box_width: of.width as i32,
            box_height: of.height as i32,
            out_width: to.width as i32,
            out_height: to.height as i32,
            ..Self::default()
        }
    }

    /// Window of the output that the table covers.
    pub fn wanted(&self) -> Roi {
        Roi::new(self.x as u32, self.y as u32, self.width as u32, self.height as u32)
    }

    /// Resampled box of the input, before any reduction by the decoder.
    pub fn of(&self) -> Roi {
        let [x, y, width, height] =
            [self.box_x, self.box_y, self.box_width, self.box_height].map(|it| it as u32);
        Roi::new(x, y, width, height)
    }

    /// Size of the whole output.
    pub fn output(&self) -> Size {
        Size::new(self.out_width as u32, self.out_height as u32)
    }

    /// Column of the input whose centre is nearest, for each column of the whole output.
    pub fn nearest_columns(&self) -> impl Iterator<Item = u32> {
        let of = self.of();
        nearest((0.0, of.width as f32), of.width, self.output().width).map(move |at| of.x + at)
    }

    /// Row of the input whose centre is nearest, for each row of the whole output.
    pub fn nearest_rows(&self) -> impl Iterator<Item = u32> {
        let of = self.of();
        nearest((0.0, of.height as f32), of.height, self.output().height).map(move |at| of.y + at)
    }

    /// Table entries of the columns, for the horizontal pass.
    pub fn columns<'a>(&self, table: &'a [i32]) -> Axis<'a> {
        Axis::new(table, self.width, self.h_bounds, self.h_coefs, self.h_taps)
    }

    /// Table entries of the rows, for the vertical pass.
    pub fn rows<'a>(&self, table: &'a [i32]) -> Axis<'a> {
        Axis::new(table, self.height, self.v_bounds, self.v_coefs, self.v_taps)
    }
}

/// Returns for each of `outputs` outputs the input whose centre is nearest. The box from `in0` to
/// `in1` is resampled, and touches `len` inputs.
pub(super) fn nearest((in0, in1): (f32, f32), len: u32, outputs: u32) -> impl Iterator<Item = u32> {
    let step = f64::from(in1 - in0) / f64::from(outputs);
    let mut position = f64::from(in0) + step * 0.5;
    (0..outputs).map(move |_| {
        let nearest = (position as u32).min(len - 1);
        // Pillow adds up the steps instead of multiplying, and the rounding must be the same.
        position += step;
        nearest
    })
}

/// Upper bounds over all tables that an operator may need. The fields can be the bounds of
/// different tables: the output with the fewest columns may have the most taps per column.
#[derive(Clone, Copy, Debug)]
pub struct TableBounds {
    /// Number of entries of a table.
    pub entries: usize,
    /// Number of entries for the columns: two bounds and the taps of each column.
    pub columns: usize,
    /// Number of taps of a column and of a row.
    pub taps: [usize; 2],
}

impl TableBounds {
    /// Bounds of the same table with coefficients for floats.
    pub fn for_floats(self) -> Self {
        Self {
            entries: self.entries.saturating_mul(WORDS),
            columns: self.columns.saturating_mul(WORDS),
            taps: self.taps,
        }
    }
}

/// Entries of one axis of a table of coefficients.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    bounds: &'a [i32],
    pub(super) coefs: &'a [i32],
    taps: usize,
}

impl<'a> Axis<'a> {
    fn new(table: &'a [i32], len: i32, bounds: i32, coefs: i32, taps: i32) -> Self {
        let (len, taps) = (len as usize, taps as usize);
        Self {
            bounds: &table[bounds as usize..][..2 * len],
            coefs: &table[coefs as usize..][..taps * len],
            taps,
        }
    }

    /// Number of outputs.
    pub fn len(&self) -> usize {
        self.bounds.len() / 2
    }

    /// Whether there are no outputs. Never true for a filled table.
    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Number of entries of coefficients per output: its taps, or twice as many for floats.
    pub fn taps(&self) -> usize {
        self.taps
    }

    /// First input index and coefficients of output `index`. Outputs are counted from the start of
    /// the wanted window.
    pub fn output(&self, index: usize) -> (u32, &'a [i32]) {
        let (first, count) = (self.bounds[2 * index], self.bounds[2 * index + 1]);
        (first as u32, &self.coefs[self.taps * index..][..count as usize])
    }

    /// Whether each output is a copy of one input, in a table for floats. Such an axis has no
    /// coefficients.
    pub fn is_copied(&self) -> bool {
        self.taps == 0
    }

    /// First input index and coefficients of output `index`, in a table for floats.
    pub fn float_output(&self, index: usize) -> (u32, impl Iterator<Item = f64> + Clone + 'a) {
        let (first, count) = (self.bounds[2 * index], self.bounds[2 * index + 1]);
        let count = if self.is_copied() { 0 } else { count as usize };
        let words = &self.coefs[self.taps * index..][..WORDS * count];
        let weights = words.as_chunks::<WORDS>().0.iter();
        (first as u32, weights.map(|words| f64::from_bits(bytemuck::must_cast(*words))))
    }

    /// Range of input indices that all outputs need. The start is that of the first output and the
    /// end that of the last output, because neither end decreases from one output to the next.
    pub fn inputs(&self) -> std::ops::Range<u32> {
        let last = self.bounds.len() - 2;
        self.bounds[0] as u32..(self.bounds[last] + self.bounds[last + 1]) as u32
    }
}
