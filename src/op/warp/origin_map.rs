//! Origins of pixels: which pixel of an image each pixel of a chain's result shows, with nearest
//! interpolation. Masks follow the images of their samples in this way.
//!
//! With nearest interpolation, every geometric action copies whole pixels. So a chain of them is a
//! chain of integer positions, and following the positions back gives the same pixels as executing
//! one action after another. Actions whose columns and rows are independent of each other are
//! composed into one step. The CPU ([`OriginRows`](super::OriginRows)) and the kernel `mask` follow
//! the same steps.

use std::ops::Range;

use super::Warp;
use crate::geometry::{Orientation, Size};
use crate::op::ParamBytes;

/// Steps from the pixels of a result back to the pixels of an image. The memory is reused for the
/// next result.
#[derive(Debug, Default)]
pub struct OriginMap {
    /// Steps from the result to the image.
    pub(in crate::op) steps: Vec<Step>,
    /// Origins of the columns and then of the rows of each step that has them. [`FILLED`] stands
    /// for a column or row that shows no pixel of the image.
    pub(in crate::op) axes: Vec<i32>,
    /// Origins of the columns and then of the rows of the action that is being added.
    added: Vec<i32>,
}

/// Origin of a column or a row that shows no pixel of the image.
pub(super) const FILLED: i32 = -1;

/// Step from the pixels of an image to those of an earlier image.
#[derive(Clone, Debug)]
pub(in crate::op) enum Step {
    /// Columns and rows are independent of each other.
    Axes(Axes),
    /// A warp with nearest interpolation, and the range of its table.
    Warp(Warp, Range<usize>),
    /// A function of the parameters, the column and the row.
    Formula(Origin, ParamBytes),
}

/// Function that returns the column and row of a pixel's origin. `None` fills the pixel.
pub type Origin = fn(&ParamBytes, u32, u32) -> Option<(u32, u32)>;

/// Range of a step's columns and rows in [`OriginMap::axes`].
#[derive(Clone, Copy, Debug)]
pub(in crate::op) struct Axes {
    pub first: usize,
    pub columns: usize,
    pub rows: usize,
    /// Whether columns of the result are rows of the earlier image.
    pub transposed: bool,
}

impl Axes {
    pub fn columns<'a>(&self, axes: &'a [i32]) -> &'a [i32] {
        &axes[self.first..][..self.columns]
    }

    pub fn rows<'a>(&self, axes: &'a [i32]) -> &'a [i32] {
        &axes[self.first + self.columns..][..self.rows]
    }
}

impl OriginMap {
    /// Memory in bytes for actions whose outputs have at most `lines` columns and rows together, of
    /// which at most `others` do not have independent columns and rows.
    pub fn most_bytes(lines: u64, others: u64) -> u64 {
        let runs = others.saturating_add(1);
        let axes = lines.saturating_mul(runs + 1).saturating_mul(size_of::<i32>() as u64);
        axes.saturating_add((2 * runs).saturating_mul(2 * size_of::<Step>() as u64))
    }

    /// Removes all steps.
    pub fn clear(&mut self) {
        self.steps.clear();
        self.axes.clear();
    }

    /// Adds an action whose columns and rows are independent of each other. `columns` returns the
    /// origin of each column of the action's output, and `rows` that of each row. `None` fills the
    /// column or row.
    pub fn add_axes(
        &mut self,
        columns: impl Iterator<Item = Option<i32>>,
        rows: impl Iterator<Item = Option<i32>>,
    ) {
        let Self { steps, axes, added, .. } = self;
        added.clear();
        added.reserve_exact(columns.size_hint().0 + rows.size_hint().0);
        added.extend(columns.map(|it| it.unwrap_or(FILLED)));
        let count = added.len();
        added.extend(rows.map(|it| it.unwrap_or(FILLED)));
        let Some(Step::Axes(last)) = steps.last() else {
            let (first, rows) = (axes.len(), added.len() - count);
            steps.push(Step::Axes(Axes { first, columns: count, rows, transposed: false }));
            axes.reserve_exact(added.len());
            axes.extend_from_slice(added);
            return;
        };
        let (columns, rows) = added.split_at(count);
        let inputs = if last.transposed { [rows, columns] } else { [columns, rows] };
        let (own_columns, own_rows) = axes[last.first..].split_at_mut(last.columns);
        for (own, inputs) in [own_columns, own_rows].into_iter().zip(inputs) {
            for place in own.iter_mut().filter(|place| **place != FILLED) {
                *place = inputs[*place as usize];
            }
        }
    }

    /// Adds a warp. `output` is the size of its output, and `table` the range of its table of
    /// displacements.
    pub fn add_warp(&mut self, warp: &Warp, table: Range<usize>, output: Size) {
        let nearest = warp.nearest(output);
        match nearest.axes(output) {
            Some((columns, rows)) => self.add_axes(columns, rows),
            None => self.steps.push(Step::Warp(nearest, table)),
        }
    }

    /// Adds an action with any function.
    pub fn add_formula(&mut self, origin: Origin, params: ParamBytes) {
        self.steps.push(Step::Formula(origin, params));
    }

    /// Adds the step from the upright image to the image as stored, which has size `stored`.
    pub fn turn_back(&mut self, orientation: Orientation, stored: Size) {
        if orientation.is_upright() {
            return;
        }
        let upright = orientation.upright_size(stored);
        let axis = |len: u32, mirror: bool| {
            (0..len).map(move |at| Some(if mirror { len - 1 - at } else { at } as i32))
        };
        let columns = axis(upright.width, orientation.mirror_x);
        self.add_axes(columns, axis(upright.height, orientation.mirror_y));
        if let Some(Step::Axes(axes)) = self.steps.last_mut() {
            axes.transposed ^= orientation.transpose;
        }
    }

    /// Frees the memory.
    pub fn release(&mut self) {
        *self = Self::default();
    }
}
