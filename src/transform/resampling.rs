//! Resampling of rows as they come.

use std::ops::Range;

use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::op::resample::{Params, Resampler};
use crate::tensor::CHANNELS;

/// Resampler with the memory for a row of its output.
#[derive(Default)]
pub struct Resampling {
    resampler: Resampler,
    line: Vec<u8>,
    /// Rows that the outputs need.
    inputs: Range<u32>,
}

impl Resampling {
    /// Begins a resampling of rows of the window `input`.
    pub fn begin(&mut self, params: &Params, table: &[i32], input: Roi) -> Result<(), DataError> {
        self.resampler.begin(params, table, input)?;
        self.inputs = params.rows(table).inputs();
        reserve::renew(&mut self.line, CHANNELS * params.wanted().width as usize)
    }

    /// Adds a row, and passes each row that is complete then to `sink`. Rows come in order; those that no output needs
    /// are ignored.
    pub fn push(&mut self, y: u32, row: &[u8], mut sink: impl FnMut(u32, &[u8])) {
        if !self.inputs.contains(&y) {
            return;
        }
        self.resampler.push_row(y, row);
        while let Some(y) = self.resampler.next_output() {
            self.resampler.output_row(y, &mut self.line);
            sink(y, &self.line);
        }
    }

    /// A row of `width` pixels, with unspecified values.
    pub fn line(&mut self, width: u32) -> Result<&mut [[u8; CHANNELS]], DataError> {
        reserve::renew(&mut self.line, CHANNELS * width as usize)?;
        Ok(self.line.as_chunks_mut().0)
    }

    /// Memory held, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.resampler.scratch_bytes() + self.line.capacity()
    }
}
