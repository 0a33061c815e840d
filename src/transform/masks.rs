//! Masks that follow the geometry of their image.

use half::{bf16, f16};

use super::outlines::{ObjectMasks, Outlines};
use crate::decode::ValueImage;
use crate::error::{DataError, Reason};
use crate::field::{CellFormat, Written};
use crate::footprint::Memory;
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::op::mask::{MaskParams, class_bytes};
use crate::op::resample;
use crate::op::{OriginMap, OriginRows};
use crate::plan::{ColumnSettings, Plan, SamplePlan};
use crate::tensor::{ElementType, Layout, TensorShape};

use super::DeviceMask;

/// Decodes masks and moves their pixels. The memory is reused for the next mask.
#[derive(Debug, Default)]
pub struct Masks {
    values: ValueImage,
    objects: ObjectMasks,
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
    one_hot: Option<OneHot>,
    /// Rotation of the stored mask.
    turn: Orientation,
    /// Size of the stored mask, if it is not scaled.
    stored: Size,
}

impl<'a> MaskOutputs<'a> {
    /// Outputs `samples` of the chain of `plan`, for an image with this header. `one_hot` is the
    /// format of one-hot masks.
    pub fn new(
        settings: &'a ColumnSettings,
        one_hot: Option<OneHot>,
        (header, plan, samples): (&Header, &Plan, &'a [SamplePlan]),
    ) -> Self {
        let (turn, upright) = match samples.first() {
            Some(sample) => (sample.orientation, sample.upright),
            None => (Orientation::UPRIGHT, header.size),
        };
        let turn = if settings.turn { turn } else { Orientation::UPRIGHT };
        let stored = if turn.is_upright() { upright } else { header.size };
        let size = Size::new(plan.shape.width, plan.shape.height);
        Self { settings, samples, size, one_hot, turn, stored }
    }

    fn element(&self) -> ElementType {
        self.settings.cells(&[]).element
    }
}

impl Masks {
    /// Decodes a mask, whose image has this header.
    ///
    /// # Errors
    /// If the mask cannot be decoded, has another size than its image, or is one-hot and has a
    /// number that is no class, also at a pixel that no output shows.
    pub fn decode(
        &mut self,
        encoded: &[u8],
        outputs: &MaskOutputs<'_>,
        header: &Header,
    ) -> Result<(), DataError> {
        let MaskOutputs { settings, stored, one_hot, .. } = *outputs;
        self.values.decode(encoded, |mask| check(mask.size, stored, settings, header))?;
        one_hot.map_or(Ok(()), |one_hot| one_hot.check(self.values.numbers()))
    }

    /// Writes for each output the numbers of the decoded mask that it shows to `out`, which has the
    /// element type and the shape `[outputs, height, width]`, or the format of `one_hot`.
    ///
    /// # Errors
    /// If an output shows a number that the element type cannot represent.
    pub fn write(&mut self, outputs: &MaskOutputs<'_>, out: &mut [u8]) -> Result<(), DataError> {
        let MaskOutputs { size, one_hot, .. } = *outputs;
        let (element, fill) = (outputs.element(), outputs.settings.fill());
        let Some(each) = out.len().checked_div(outputs.samples.len()) else { return Ok(()) };
        for (sample, out) in outputs.samples.iter().zip(out.chunks_exact_mut(each)) {
            self.follow(outputs, sample);
            if let Some(one_hot) = one_hot {
                one_hot.clear(out);
            }
            for y in (0..size.height).step_by(OriginRows::ROWS as usize) {
                let rows = y..size.height.min(y + OriginRows::ROWS);
                self.rows.find(&self.origins, &sample.actions.table, size.width, rows);
                let (mask, first) = ((&self.rows, &self.values), y as usize * size.width as usize);
                match one_hot {
                    Some(one_hot) => one_hot.write(mask, first, out),
                    None => {
                        write_numbers(mask, &mut out[first * element.bytes()..], (element, fill))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the decoded mask and the steps of each output to `mask`, for the kernel. Returns
    /// false if they do not fit, if the kernel cannot follow a step, or if numbers of the mask are
    /// too large for the element type.
    pub fn write_for_kernel(
        &mut self,
        outputs: &MaskOutputs<'_>,
        mut mask: DeviceMask<'_>,
    ) -> bool {
        let (count, fill) = (outputs.samples.len(), outputs.settings.fill());
        let stored_bytes = mask.format.stored_bytes();
        // Numbers beyond the bytes of a class are no classes.
        let has_class_bytes = stored_bytes == 1 && outputs.one_hot.is_some();
        let is_wide = !has_class_bytes && !self.values.are_bytes();
        if is_wide && stored_bytes == 1 {
            return false;
        }
        let first = DeviceMask::params_bytes(count);
        let len = self.values.size().pixels() as usize * if is_wide { 2 } else { 1 };
        let Some(values) = mask.bytes.get_mut(first..).and_then(|rest| rest.get_mut(..len)) else {
            return false;
        };
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
            mask.put(number, &MaskParams::new(values, steps, &mask.format, fill));
        }
        *mask.used = end;
        true
    }

    /// Writes the masks of all objects of a sample to its cell: [`ObjectMasks::make`].
    ///
    /// # Errors
    /// Errors of [`ObjectMasks::make`].
    pub fn make_objects(
        &mut self,
        outlines: Outlines<'_>,
        settings: (&ColumnSettings, &CellFormat),
        image: (&Header, &Plan, &SamplePlan),
        cell: &mut [u8],
    ) -> Result<Written, DataError> {
        let origins = (&mut self.origins, &mut self.rows);
        self.objects.make(outlines, settings, origins, image, cell)
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        self.values.release();
        self.objects.release();
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
}

/// Writes the numbers of the pixels with these origins to the beginning of `out`.
fn write_numbers(
    mask: (&OriginRows, &ValueImage),
    out: &mut [u8],
    (element, fill): (ElementType, f64),
) -> Result<(), DataError> {
    fn write<T: bytemuck::Pod>(
        (origins, values): (&OriginRows, &ValueImage),
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
    pixels: usize,
    /// Element type and place of the classes. `None`: a pixel has the number of its class, of
    /// [`class_bytes`], from which a kernel makes the elements of the classes.
    elements: Option<(ElementType, Layout)>,
}

impl OneHot {
    /// Format of a column of masks that follow images of this shape. `memory` is that of the
    /// column. `None` if a mask has one number per pixel.
    pub fn of(settings: &ColumnSettings, image: TensorShape, memory: Memory) -> Option<Self> {
        let (classes, element) = (settings.one_hot?, settings.cells(&[]).element);
        let pixels = image.width as usize * image.height as usize;
        let elements = (memory == Memory::Host).then_some((element, image.layout));
        Some(Self { classes, fill: settings.fill(), pixels, elements })
    }

    /// Checks that all numbers of a mask are classes, or `fill`.
    fn check(self, numbers: &[u16]) -> Result<(), DataError> {
        let is_wrong =
            |number: u16| u32::from(number) >= self.classes && f64::from(number) != self.fill;
        match numbers.iter().find(|&&number| is_wrong(number)) {
            Some(&number) => Err(self.no_class(number)),
            None => Ok(()),
        }
    }

    /// Makes all pixels of `out` pixels without a class.
    fn clear(self, out: &mut [u8]) {
        // The largest number is no class.
        out.fill(if self.elements.is_some() { 0 } else { u8::MAX });
    }

    /// Writes the classes of the pixels with these origins. `first` is the number of pixels before
    /// them, and `out` is the whole mask, whose pixels have no class yet.
    fn write(self, (origins, values): (&OriginRows, &ValueImage), first: usize, out: &mut [u8]) {
        for (at, origin) in (first..).zip(origins.iter()) {
            let Some((x, y)) = origin else { continue };
            self.set(values.at(x, y).into(), at, out);
        }
    }

    /// Fills masks with one number: a class, or any other number for no class.
    pub fn fill(self, number: i64, out: &mut [u8]) {
        self.clear(out);
        let each = self.pixels
            * match self.elements {
                Some((element, _)) => self.classes as usize * element.bytes(),
                None => class_bytes(self.classes),
            };
        for out in out.chunks_exact_mut(each) {
            (0..self.pixels).for_each(|at| self.set(number, at, out));
        }
    }

    /// Sets the class of the pixel at this index, if the number is a class.
    fn set(self, number: i64, at: usize, out: &mut [u8]) {
        let Ok(class) = u32::try_from(number) else { return };
        if class >= self.classes {
            return;
        }
        let Some((element, layout)) = self.elements else {
            return match class_bytes(self.classes) {
                1 => put(out, at, [class as u8]),
                _ => put(out, at, (class as u16).to_ne_bytes()),
            };
        };
        let place = match layout {
            Layout::Nchw => class as usize * self.pixels + at,
            Layout::Nhwc => at * self.classes as usize + class as usize,
        };
        match element {
            ElementType::F32 => put(out, place, 1f32.to_ne_bytes()),
            ElementType::F16 => put(out, place, f16::ONE.to_ne_bytes()),
            ElementType::BF16 => put(out, place, bf16::ONE.to_ne_bytes()),
            ElementType::I64 => put(out, place, 1i64.to_ne_bytes()),
            ElementType::U8 => put(out, place, [1]),
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

/// Writes the element at this place.
fn put<const BYTES: usize>(out: &mut [u8], place: usize, element: [u8; BYTES]) {
    out[place * BYTES..][..BYTES].copy_from_slice(&element);
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
        (true, false, _) => "; width and height are exchanged, so transpose it",
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
