//! Masks that follow the geometry of their image.

use crate::decode::ValueImage;
use crate::error::{DataError, Reason};
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::op::mask::MaskParams;
use crate::op::resample;
use crate::op::{OriginMap, OriginRows};
use crate::plan::{ColumnSettings, Plan, SamplePlan};
use crate::tensor::ElementType;

use super::DeviceMask;

/// Decodes masks and moves their pixels. The memory is reused for the next mask.
#[derive(Debug, Default)]
pub struct Masks {
    values: ValueImage,
    origins: OriginMap,
    rows: OriginRows,
}

/// Outputs of a chain, and how the mask of their image is stored.
#[derive(Clone, Copy)]
pub struct MaskOutputs<'a> {
    settings: &'a ColumnSettings,
    samples: &'a [SamplePlan],
    /// Size of the outputs.
    size: Size,
    /// Rotation of the stored mask.
    turn: Orientation,
    /// Size of the stored mask, if it is not scaled.
    stored: Size,
}

impl<'a> MaskOutputs<'a> {
    /// Outputs `samples` of the chain of `plan`, for an image with this header.
    pub fn new(
        settings: &'a ColumnSettings,
        (header, plan, samples): (&Header, &Plan, &'a [SamplePlan]),
    ) -> Self {
        let (turn, upright) = match samples.first() {
            Some(sample) => (sample.orientation, sample.upright),
            None => (Orientation::UPRIGHT, header.size),
        };
        let turn = if settings.turn { turn } else { Orientation::UPRIGHT };
        let stored = if turn.is_upright() { upright } else { header.size };
        let size = Size::new(plan.shape.width, plan.shape.height);
        Self { settings, samples, size, turn, stored }
    }

    fn element(&self) -> ElementType {
        self.settings.dtype.unwrap_or(ElementType::U8)
    }
}

impl Masks {
    /// Decodes a mask, whose image has this header.
    ///
    /// # Errors
    /// If the mask cannot be decoded, or has another size than its image.
    pub fn decode(
        &mut self,
        encoded: &[u8],
        outputs: &MaskOutputs<'_>,
        header: &Header,
    ) -> Result<(), DataError> {
        let MaskOutputs { settings, stored, .. } = *outputs;
        self.values.decode(encoded, |mask| check(mask.size, stored, settings, header))
    }

    /// Writes for each output the numbers of the decoded mask that it shows to `out`, which has the
    /// element type and the shape `[outputs, height, width]`.
    ///
    /// # Errors
    /// If an output shows a number that the element type cannot represent.
    pub fn write(&mut self, outputs: &MaskOutputs<'_>, out: &mut [u8]) -> Result<(), DataError> {
        let (size, element, fill) = (outputs.size, outputs.element(), outputs.settings.fill());
        let row_bytes = size.width as usize * element.bytes();
        let each =
            outputs.samples.iter().zip(out.chunks_exact_mut(size.height as usize * row_bytes));
        for (sample, out) in each {
            self.follow(outputs, sample);
            for y in (0..size.height).step_by(OriginRows::ROWS as usize) {
                let rows = y..size.height.min(y + OriginRows::ROWS);
                let out = &mut out[rows.start as usize * row_bytes..rows.end as usize * row_bytes];
                self.rows.find(&self.origins, &sample.actions.table, size.width, rows);
                match element {
                    ElementType::U8 => self.write_rows::<u8>(out, fill as u8, |value| {
                        u8::try_from(value).map_err(|_| beyond_bytes(value))
                    })?,
                    ElementType::I64 => {
                        self.write_rows::<i64>(out, fill as i64, |value| Ok(value.into()))?
                    }
                    _ => self.write_rows::<f32>(out, fill as f32, |value| Ok(value.into()))?,
                }
            }
        }
        Ok(())
    }

    /// Writes the decoded mask and the steps of each output to `mask`, for the kernel. Returns
    /// false if they do not fit, if the kernel cannot follow a step, or if the element type cannot
    /// represent a number of the mask.
    pub fn write_for_kernel(
        &mut self,
        outputs: &MaskOutputs<'_>,
        mut mask: DeviceMask<'_>,
    ) -> bool {
        let (element, fill) = (outputs.element(), outputs.settings.fill());
        let (count, is_wide) = (outputs.samples.len(), !self.values.are_bytes());
        let first = DeviceMask::params_bytes(count);
        let len = self.values.size().pixels() as usize * if is_wide { 2 } else { 1 };
        let Some(values) = mask.bytes.get_mut(first..).and_then(|rest| rest.get_mut(..len)) else {
            return false;
        };
        if is_wide && element == ElementType::U8 {
            return false;
        }
        self.values.write(is_wide, values);
        let values = (mask.address + first as u64, is_wide, self.values.size().width);
        let mut end = (first + len).next_multiple_of(8);
        for (number, sample) in outputs.samples.iter().enumerate() {
            self.follow(outputs, sample);
            let address = mask.address + end as u64;
            let Some(rest) = mask.bytes.get_mut(end..) else { return false };
            let Some(bytes) = self.origins.write(&sample.actions.table, address, rest) else {
                return false;
            };
            end += bytes;
            let steps = (address, self.origins.steps());
            mask.put(number, &MaskParams::new(values, steps, (element, outputs.size), fill));
        }
        *mask.used = end;
        true
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        self.values.release();
        self.origins.release();
        self.rows.release();
    }

    /// Computes the steps from the pixels of an output to those of the stored mask.
    fn follow(&mut self, outputs: &MaskOutputs<'_>, sample: &SamplePlan) {
        let origins = &mut self.origins;
        origins.clear();
        sample.actions.origins(origins);
        origins.turn_back(outputs.turn, outputs.stored);
        if self.values.size() != outputs.stored {
            let scaling = resample::Params::new(self.values.size().window(), outputs.stored);
            let (columns, rows) = (scaling.nearest_columns(), scaling.nearest_rows());
            origins.add_axes(columns.map(|at| Some(at as i32)), rows.map(|at| Some(at as i32)));
        }
    }

    fn write_rows<T: bytemuck::Pod>(
        &self,
        out: &mut [u8],
        fill: T,
        convert: impl Fn(u16) -> Result<T, DataError>,
    ) -> Result<(), DataError> {
        let numbers: &mut [T] = bytemuck::cast_slice_mut(out);
        for (out, origin) in numbers.iter_mut().zip(self.rows.iter()) {
            *out = match origin {
                Some((x, y)) => convert(self.values.at(x, y))?,
                None => fill,
            };
        }
        Ok(())
    }
}

/// Checks the size of a mask. `wanted` is the size of the image, as stored if the mask is turned.
fn check(
    size: Size,
    wanted: Size,
    settings: &ColumnSettings,
    header: &Header,
) -> Result<(), DataError> {
    let fits = size.width <= wanted.width && size.height <= wanted.height;
    if size == wanted || settings.scale && fits {
        return Ok(());
    }
    let is_turned = Size::new(size.height, size.width) == wanted;
    let remedy = match (is_turned, settings.turn, fits) {
        (true, false, _) if !header.orientation.is_upright() => {
            "; if it was made from the pixels before EXIF turns them, set turn = true"
        }
        (true, true, _) => "; if it was made from the image as EXIF turns it, set turn = false",
        (_, _, true) => "; set scale = true to scale it",
        (_, _, false) => {
            "; a mask may not be larger than its image, so resize it with nearest interpolation \
             before training"
        }
    };
    let problem = format!("has {size} pixels, and its image has {wanted}{remedy}");
    Err(DataError::new(Reason::Field, problem))
}

fn beyond_bytes(value: u16) -> DataError {
    let problem = format!(
        "has the number {value}; a mask of u8 holds 0 to 255, so set dtype = \"i64\", or \"f32\" \
         for quantities such as distances"
    );
    DataError::new(Reason::Field, problem)
}
