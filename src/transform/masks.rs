//! Masks that follow the geometry of their image.

use std::ops::Range;

use half::{bf16, f16};

use super::outlines::{ObjectMasks, Outlines};
use crate::decode::ValueImage;
use crate::error::{DataError, Reason};
use crate::field::CellFormat;
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::op::Origins;
use crate::op::resample;
use crate::plan::{ColumnSettings, Plan, SamplePlan};
use crate::tensor::{ElementType, Layout, TensorShape};

/// Decodes masks and moves their pixels. The memory is reused for the next mask.
#[derive(Debug, Default)]
pub struct Masks {
    values: ValueImage,
    objects: ObjectMasks,
    origins: Origins,
}

impl Masks {
    /// Decodes a mask, and writes for each output the numbers that it shows to `out`, which has the
    /// element type and the shape `[outputs, height, width]`, or with `one_hot` an axis of classes
    /// like the channels of an image. `header`, `plan` and `samples` belong
    /// to the image. `samples` has at least one output.
    ///
    /// # Errors
    /// If the mask cannot be decoded, has another size than its image, or has a number that is no
    /// class or that the element type cannot represent.
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
        let one_hot = OneHot::of(settings, plan.shape);
        let (element, fill) = (settings.cells(&[]).element, settings.fill());
        let outputs = out.chunks_exact_mut(out.len() / samples.len());
        for (sample, out) in samples.iter().zip(outputs) {
            let moved = (sample, result, turn, stored);
            if one_hot.is_some() {
                out.fill(0);
            }
            self.move_mask(moved, |mask, first| match one_hot {
                Some(one_hot) => one_hot.write(mask, first, out),
                None => write_numbers(mask, &mut out[first * element.bytes()..], (element, fill)),
            })?;
        }
        Ok(())
    }

    /// Calls `write` with the origins of a few rows of an output after the other, with the mask,
    /// and with the number of pixels before these rows.
    fn move_mask(
        &mut self,
        (sample, result, turn, stored): (&SamplePlan, Size, Orientation, Size),
        mut write: impl FnMut((&Origins, &ValueImage), usize) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        for y in (0..result.height).step_by(Origins::ROWS as usize) {
            let rows = y..result.height.min(y + Origins::ROWS);
            self.find_origins(sample, result, rows, (turn, stored));
            write((&self.origins, &self.values), y as usize * result.width as usize)?;
        }
        Ok(())
    }

    /// Writes the masks of all objects of a sample to its cell: [`ObjectMasks::make`].
    ///
    /// # Errors
    /// Errors of [`ObjectMasks::make`].
    pub fn make_objects(
        &mut self,
        outlines: Outlines<'_>,
        settings: (&ColumnSettings, &CellFormat, u64),
        image: (&Header, &Plan, &SamplePlan),
        cell: &mut [u8],
    ) -> Result<usize, DataError> {
        self.objects.make(outlines, settings, &mut self.origins, image, cell)
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        self.values.release();
        self.objects.release();
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
}

/// Writes the numbers of the pixels with these origins to the beginning of `out`.
fn write_numbers(
    mask: (&Origins, &ValueImage),
    out: &mut [u8],
    (element, fill): (ElementType, f64),
) -> Result<(), DataError> {
    fn write<T: bytemuck::Pod>(
        (origins, values): (&Origins, &ValueImage),
        out: &mut [u8],
        fill: T,
        convert: impl Fn(u16) -> Result<T, DataError>,
    ) -> Result<(), DataError> {
        let numbers: &mut [T] = bytemuck::cast_slice_mut(out);
        for (out, origin) in numbers.iter_mut().zip(origins.iter()) {
            *out = match origin {
                Some((x, y)) => convert(values.at(x, y))?,
                None => fill,
            };
        }
        Ok(())
    }
    match element {
        ElementType::U8 => write::<u8>(mask, out, fill as u8, |value| {
            u8::try_from(value).map_err(|_| beyond_bytes(value))
        }),
        ElementType::I64 => write::<i64>(mask, out, fill as i64, |value| Ok(value.into())),
        _ => write::<f32>(mask, out, fill as f32, |value| Ok(value.into())),
    }
}

/// Format of one-hot masks.
#[derive(Clone, Copy, Debug)]
pub struct OneHot {
    classes: u32,
    /// Number of pixels without a class.
    fill: f64,
    element: ElementType,
    layout: Layout,
    pixels: usize,
}

impl OneHot {
    /// Format of a column of masks that follow images of this shape. `None` if a mask has one
    /// number per pixel.
    pub fn of(settings: &ColumnSettings, image: TensorShape) -> Option<Self> {
        let classes = settings.one_hot?;
        let (fill, element) = (settings.fill(), settings.cells(&[]).element);
        let pixels = image.width as usize * image.height as usize;
        Some(Self { classes, fill, element, layout: image.layout, pixels })
    }

    /// Writes the classes of the pixels with these origins. `first` is the number of pixels before
    /// them, and `out` is the whole mask, which is 0 for these pixels.
    fn write(
        self,
        (origins, values): (&Origins, &ValueImage),
        first: usize,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        for (at, origin) in (first..).zip(origins.iter()) {
            let Some((x, y)) = origin else { continue };
            let value = values.at(x, y);
            if u32::from(value) < self.classes {
                self.set(value.into(), at, out);
            } else if f64::from(value) != self.fill {
                return Err(self.no_class(value));
            }
        }
        Ok(())
    }

    /// Fills masks with one number: a class, or any other number for no class.
    pub fn fill(self, number: i64, out: &mut [u8]) {
        out.fill(0);
        let Ok(class) = u32::try_from(number) else { return };
        if class < self.classes {
            let each = self.pixels * self.classes as usize * self.element.bytes();
            for out in out.chunks_exact_mut(each) {
                (0..self.pixels).for_each(|at| self.set(class, at, out));
            }
        }
    }

    /// Sets the class of the pixel with this number.
    fn set(self, class: u32, at: usize, out: &mut [u8]) {
        let class = class as usize;
        let place = match self.layout {
            Layout::Nchw => class * self.pixels + at,
            Layout::Nhwc => at * self.classes as usize + class,
        };
        let bytes = self.element.bytes();
        let out = &mut out[place * bytes..][..bytes];
        match self.element {
            ElementType::F32 => out.copy_from_slice(&1f32.to_ne_bytes()),
            ElementType::F16 => out.copy_from_slice(&f16::ONE.to_ne_bytes()),
            ElementType::BF16 => out.copy_from_slice(&bf16::ONE.to_ne_bytes()),
            ElementType::I64 => out.copy_from_slice(&1i64.to_ne_bytes()),
            ElementType::U8 => out.fill(1),
        }
    }

    fn no_class(self, value: u16) -> DataError {
        let Self { classes, fill, .. } = self;
        let problem = format!(
            "has the number {value}, but one_hot = {classes} allows the classes 0 to {}, and {fill} \
             for pixels without a class; set one_hot to at least {}, or fill = {value} if it marks \
             such pixels",
            classes - 1,
            u32::from(value) + 1,
        );
        DataError::new(Reason::Field, problem)
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
