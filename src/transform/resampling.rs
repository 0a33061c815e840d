//! Resampling of rows, one at a time, in the order in which they are decoded or read.

use std::ops::Range;

use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::op::resample::{Params, Resampler};
use crate::tensor::CHANNELS;

use super::pass::Pass;

/// Resampler with a buffer for one row of its output.
#[derive(Default)]
pub struct Resampling {
    resampler: Resampler,
    line: Vec<u8>,
    /// Input rows that the output needs.
    inputs: Range<u32>,
}

impl Resampling {
    /// Begins to resample rows of the window `input`.
    pub fn begin(&mut self, params: &Params, table: &[i32], input: Roi) -> Result<(), DataError> {
        self.resampler.begin(params, table, input)?;
        self.inputs = params.rows(table).inputs();
        reserve::renew(&mut self.line, CHANNELS * params.wanted().width as usize)
    }

    /// Adds an input row, and passes each completed output row to `pass`. Rows must be added in
    /// order. Input rows that no output row needs are ignored.
    pub fn push(&mut self, y: u32, row: &[u8], pass: &mut Pass<'_>) {
        if !self.inputs.contains(&y) {
            return;
        }
        self.resampler.push_row(y, row);
        while let Some(y) = self.resampler.next_output() {
            pass.make(y, &mut self.line, |out| self.resampler.output_row(y, out));
        }
    }

    /// Returns a row buffer of `width` pixels with unspecified values.
    pub fn line(&mut self, width: u32) -> Result<&mut [u8], DataError> {
        reserve::renew(&mut self.line, CHANNELS * width as usize)?;
        Ok(&mut self.line)
    }

    /// Memory that the buffers hold, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.resampler.scratch_bytes() + self.line.capacity()
    }
}
