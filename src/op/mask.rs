//! The kernel that moves masks, and its parameters.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use super::kernel_text::Text;
use super::warp::origins::rounded;
use super::warp::{OriginMap, Step, Warp};
use crate::geometry::Size;
use crate::tensor::{DType, ElementType, Layout, TensorShape};

/// Format of the results of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskFormat {
    /// Size in pixels.
    pub size: Size,
    /// Element type.
    pub element: ElementType,
    /// Number of classes of a one-hot mask, and the place of their axis. `None`: a mask has one
    /// number per pixel.
    pub classes: Option<(u32, Layout)>,
}

impl MaskFormat {
    /// Size of a result, in bytes.
    pub fn bytes(&self) -> usize {
        let elements = self.classes.map_or(1, |(classes, _)| classes as usize);
        self.pixels() * elements * self.element.bytes()
    }

    /// Size of a result whose pixels were moved on the CPU, in bytes. A one-hot mask then has the
    /// number of a class for each pixel, because the kernel makes the elements of the classes.
    pub fn moved_bytes(&self) -> usize {
        let each = self.classes.map_or(self.element.bytes(), |(classes, _)| class_bytes(classes));
        self.pixels() * each
    }

    /// Maximum size of a number of the stored mask, in bytes.
    pub fn stored_bytes(&self) -> usize {
        match (self.classes, self.element) {
            (Some((classes, _)), _) => class_bytes(classes),
            (None, ElementType::U8) => 1,
            (None, _) => 2,
        }
    }

    /// Shape of a one-hot mask, with the classes as channels. `None` for other masks.
    pub fn one_hot_shape(&self) -> Option<TensorShape> {
        let (classes, layout) = self.classes?;
        let dtype = match self.element {
            ElementType::U8 => DType::U8,
            ElementType::F16 => DType::F16,
            ElementType::BF16 => DType::BF16,
            ElementType::F32 => DType::F32,
            ElementType::I64 => return None,
        };
        let Size { width, height } = self.size;
        Some(TensorShape { batch: 1, width, height, channels: classes as usize, dtype, layout })
    }

    fn pixels(&self) -> usize {
        self.size.pixels() as usize
    }
}

/// Size of the number of a class, in bytes. The largest number of this size is no class.
pub const fn class_bytes(classes: u32) -> usize {
    if classes <= u8::MAX as u32 { 1 } else { 2 }
}

/// Text of the kernel `mask(const Sample* masks, int count, int width, int height)`. The grid
/// covers the largest of `count` masks. A [`MaskSample`] describes each mask.
pub fn mask_kernel_text() -> String {
    let sizes = format!(
        "#define MASK_BYTES {}\n#define STEP_BYTES {}",
        size_of::<MaskParams>(),
        size_of::<StepParams>()
    );
    let mut text = Text::default();
    text.add("image", include_str!("../../kernels/image.cu"));
    text.add("warp", include_str!("../../kernels/warp.cu"));
    text.add("sizes", &sizes);
    text.add("mask", include_str!("../../kernels/mask.cu"));
    text.source
}

/// A mask for the kernel, with the layout of `Sample` in `kernels/mask.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MaskSample {
    /// Address of the result.
    pub out: u64,
    /// Address of a [`MaskParams`].
    pub mask: u64,
}

/// Parameters of one result of a mask, with the layout of `Mask` in `kernels/mask.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MaskParams {
    values: u64,
    steps: u64,
    fill: u64,
    count: i32,
    stored: i32,
    element: i32,
    columns: i32,
    width: i32,
    height: i32,
    classes: i32,
    interleaved: i32,
    one: u32,
    unused: u32,
}

impl MaskParams {
    /// Parameters of a result at the address `values` whose pixels were moved on the CPU, so that
    /// the kernel copies it, or makes the elements of its classes.
    pub fn moved(values: u64, format: &MaskFormat) -> Self {
        let Size { width, height } = format.size;
        let (element, one) = Code::of(format.element);
        let (classes, layout) = format.classes.unwrap_or_default();
        let stored = match format.classes {
            None => element,
            Some(_) if format.stored_bytes() == 1 => Code::U8,
            Some(_) => Code::U16,
        };
        Self {
            values,
            steps: 0,
            fill: 0,
            count: 0,
            stored: stored as i32,
            element: element as i32,
            columns: width as i32,
            width: width as i32,
            height: height as i32,
            classes: classes as i32,
            interleaved: (layout == Layout::Nhwc).into(),
            one,
            unused: 0,
        }
    }

    /// Parameters of a result. `values` is the address of the stored values, which have two bytes
    /// if `is_wide`, else one, and `columns` the width of the stored mask. `steps` are the address
    /// and the count of the steps. `fill` is the value of pixels that show no part of the image.
    pub fn new(
        (values, is_wide, columns): (u64, bool, u32),
        (steps, count): (u64, usize),
        format: &MaskFormat,
        fill: f64,
    ) -> Self {
        let stored = if is_wide { Code::U16 } else { Code::U8 };
        let fill = match format.element {
            _ if format.classes.is_some() => fill as u64,
            ElementType::U8 => u64::from(fill as u8),
            ElementType::I64 => fill as i64 as u64,
            _ => u64::from((fill as f32).to_bits()),
        };
        let (count, columns) = (count as i32, columns as i32);
        Self { steps, fill, count, stored: stored as i32, columns, ..Self::moved(values, format) }
    }
}

/// Element types of the kernel: `Element` in `kernels/mask.cu`.
#[derive(Clone, Copy)]
enum Code {
    U8,
    U16,
    I64,
    F32,
}

impl Code {
    /// Code of an element type, and the bits of the number 1. Two-byte elements, which only
    /// one-hot masks have, have the same code. `I64`, which they cannot have, has no such bits.
    fn of(element: ElementType) -> (Self, u32) {
        match element {
            ElementType::U8 => (Code::U8, 1),
            ElementType::F16 => (Code::U16, f16::ONE.to_bits().into()),
            ElementType::BF16 => (Code::U16, bf16::ONE.to_bits().into()),
            ElementType::I64 => (Code::I64, 0),
            ElementType::F32 => (Code::F32, 1f32.to_bits()),
        }
    }
}

/// Step for the kernel, with the layout of `Step` in `kernels/mask.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct StepParams {
    columns: u64,
    rows: u64,
    transposed: i32,
    unused: i32,
    warp: Warp,
}

impl OriginMap {
    /// Maximum memory in bytes that [`write`](Self::write) needs. `lines` and `others` are as for
    /// [`most_bytes`](Self::most_bytes). All warps have at most `displaced` displacements together.
    pub fn most_kernel_bytes(lines: u64, others: u64, displaced: u64) -> u64 {
        let runs = others.saturating_add(1);
        let steps = (2 * runs).saturating_mul(size_of::<StepParams>() as u64);
        let axes = lines.saturating_mul(runs).saturating_mul(size_of::<i32>() as u64);
        steps
            .saturating_add(axes)
            .saturating_add(displaced.saturating_mul(DISPLACEMENT_BYTES as u64))
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Writes the steps for the kernel to the beginning of `out`, which is at `address` on the
    /// device. `table` has the tables of all actions. Returns the number of bytes, a multiple of 8.
    /// `None` if they do not fit, or if the kernel cannot follow a step.
    pub fn write(&self, table: &[i32], address: u64, out: &mut [u8]) -> Option<usize> {
        let mut end = self.steps.len() * size_of::<StepParams>();
        let mut add = |bytes: usize| {
            let first = end;
            end = (first + bytes).next_multiple_of(8);
            first
        };
        for (number, step) in self.steps.iter().enumerate() {
            let mut params = StepParams::zeroed();
            match step {
                Step::Axes(axes) => {
                    let lines = &self.axes[axes.first..][..axes.columns + axes.rows];
                    let bytes: &[u8] = bytemuck::cast_slice(lines);
                    let at = add(bytes.len());
                    out.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
                    params.columns = address + at as u64;
                    params.rows = params.columns + (axes.columns * size_of::<i32>()) as u64;
                    params.transposed = axes.transposed.into();
                }
                Step::Warp(warp, range) => {
                    params.warp = *warp;
                    if warp.is_displaced() {
                        let displacements = &table[range.clone()];
                        let bytes = displacements.len() * size_of::<i16>();
                        let at = add(bytes);
                        let pairs = out.get_mut(at..at + bytes)?.as_chunks_mut().0;
                        for (place, &by) in pairs.iter_mut().zip(displacements) {
                            *place = (rounded(by) as i16).to_ne_bytes();
                        }
                        params.warp.set_table(address + at as u64);
                    }
                }
                Step::Formula(..) => return None,
            }
            let at = number * size_of::<StepParams>();
            out.get_mut(at..)?
                .get_mut(..size_of::<StepParams>())?
                .copy_from_slice(bytemuck::bytes_of(&params));
        }
        (end <= out.len()).then_some(end)
    }
}

/// Size of the displacement of one pixel for the kernel, in bytes.
const DISPLACEMENT_BYTES: usize = 2 * size_of::<i16>();
