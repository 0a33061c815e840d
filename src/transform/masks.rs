//! Masks that follow the geometry of their image.

use std::ops::Range;

use crate::decode::ValueImage;
use crate::error::{DataError, Reason};
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::op::Origins;
use crate::op::resample;
use crate::plan::{ColumnSettings, Plan, SamplePlan};
use crate::tensor::ElementType;

/// Decodes masks and moves their pixels. The memory is reused for the next mask.
#[derive(Debug, Default)]
pub struct Masks {
    values: ValueImage,
    origins: Origins,
}

impl Masks {
    /// Decodes a mask, and writes for each output the numbers that it shows to `out`, which has the
    /// element type and the shape `[outputs, height, width]`. `header`, `plan` and `samples` belong
    /// to the image. `samples` has at least one output.
    ///
    /// # Errors
    /// If the mask cannot be decoded, has another size than its image, or has a number that the
    /// element type cannot represent.
    pub fn make(
        &mut self,
        encoded: &[u8],
        settings: &ColumnSettings,
        (header, plan, samples): (&Header, &Plan, &[SamplePlan]),
        out: &mut [u8],
    ) -> Result<(), DataError> {
        let Some(sample) = samples.first() else { return Ok(()) };
        let turn = if settings.turn { sample.orientation } else { Orientation::UPRIGHT };
        let stored = match turn.is_upright() {
            true => sample.upright,
            false => header.size,
        };
        self.values.decode(encoded, |mask| check(mask.size, stored, settings, header))?;
        let result = Size::new(plan.shape.width, plan.shape.height);
        let element = settings.dtype.unwrap_or(ElementType::U8);
        let each = result.pixels() as usize * element.bytes();
        for (sample, out) in samples.iter().zip(out.chunks_exact_mut(each)) {
            self.move_mask(sample, (result, element), settings.fill(), (turn, stored), out)?;
        }
        Ok(())
    }

    /// Writes the numbers that one output shows to `out`.
    fn move_mask(
        &mut self,
        sample: &SamplePlan,
        (result, element): (Size, ElementType),
        fill: f64,
        turned: (Orientation, Size),
        out: &mut [u8],
    ) -> Result<(), DataError> {
        let width = result.width as usize;
        for y in (0..result.height).step_by(Origins::ROWS as usize) {
            let rows = y..result.height.min(y + Origins::ROWS);
            let [begin, end] =
                [rows.start, rows.end].map(|row| row as usize * width * element.bytes());
            let out = &mut out[begin..end];
            self.find_origins(sample, result, rows, turned);
            match element {
                ElementType::U8 => self.write::<u8>(out, fill as u8, |value| {
                    u8::try_from(value).map_err(|_| beyond_bytes(value))
                })?,
                ElementType::I64 => {
                    self.write::<i64>(out, fill as i64, |value| Ok(value.into()))?
                }
                _ => self.write::<f32>(out, fill as f32, |value| Ok(value.into()))?,
            }
        }
        Ok(())
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        self.values.release();
        self.origins.release();
    }

    /// Finds the origins of these rows of the result in the mask as stored. `turn` maps the stored
    /// pixels, `stored.width` x `stored.height` if the mask is not scaled, to the upright image.
    fn find_origins(
        &mut self,
        sample: &SamplePlan,
        result: Size,
        rows: Range<u32>,
        (turn, stored): (Orientation, Size),
    ) {
        let origins = &mut self.origins;
        sample.actions.origins(result, rows, origins);
        origins.turn_back(turn, stored);
        if self.values.size() != stored {
            let scaling = resample::Params::new(self.values.size().window(), stored);
            origins.follow_axes(scaling.nearest_columns(), scaling.nearest_rows());
        }
    }

    fn write<T: bytemuck::Pod>(
        &self,
        out: &mut [u8],
        fill: T,
        convert: impl Fn(u16) -> Result<T, DataError>,
    ) -> Result<(), DataError> {
        let numbers: &mut [T] = bytemuck::cast_slice_mut(out);
        for (out, origin) in numbers.iter_mut().zip(self.origins.iter()) {
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
