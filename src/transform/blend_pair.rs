//! Blends pairs of finished samples in place (CutMix, MixUp and similar).

use std::ops::Range;

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::geometry::Size;
use crate::op::Blend;
use crate::op::mask::MaskFormat;
use crate::tensor::{DType, Layout, TensorShape};

/// Applies blends, in order, to the tensors of two samples of a batch. `shape` is the shape of a
/// sample's tensor. Allocates nothing.
pub fn blend(shape: TensorShape, blends: &[Blend], pair: [&mut [u8]; 2]) {
    let [first, second] = pair;
    for blend in blends {
        let pair = [&mut *first, &mut *second];
        match shape.dtype {
            DType::U8 => typed::<u8>(shape, blend, pair),
            DType::F16 => typed::<f16>(shape, blend, pair),
            DType::BF16 => typed::<bf16>(shape, blend, pair),
            DType::F32 => typed::<f32>(shape, blend, pair),
        }
    }
}

/// Applies blends, in order, to the masks of two samples. One-hot masks are blended like images.
/// Elements of other masks are exchanged inside the windows of the blends, which have the weight 0.
pub fn blend_masks(format: &MaskFormat, blends: &[Blend], pair: [&mut [u8]; 2]) {
    match format.one_hot_shape() {
        Some(shape) => blend(shape, blends, pair),
        None => exchange(format.size, format.element.bytes(), blends, pair),
    }
}

/// Exchanges the elements of two masks of this size, whose elements have `bytes` bytes, inside the
/// windows of the blends.
fn exchange(size: Size, bytes: usize, blends: &[Blend], pair: [&mut [u8]; 2]) {
    let [first, second] = pair;
    let row_bytes = size.width as usize * bytes;
    for Blend { window, .. } in blends {
        let columns = window.x as usize * bytes..window.right() as usize * bytes;
        for y in window.y as usize..window.bottom() as usize {
            let rows = [&mut *first, &mut *second].map(|mask| &mut mask[y * row_bytes..]);
            let [first, second] = rows.map(|row| &mut row[columns.clone()]);
            first.swap_with_slice(second);
        }
    }
}

fn typed<E: Element>(shape: TensorShape, blend: &Blend, pair: [&mut [u8]; 2]) {
    let [first, second] = pair.map(bytemuck::cast_slice_mut::<u8, E>);
    for run in runs(shape, blend) {
        let (first, second) = (&mut first[run.clone()], &mut second[run]);
        match blend.weight {
            0.0 => first.swap_with_slice(second),
            weight => E::blend(first, second, weight),
        }
    }
}

/// Returns the contiguous ranges of elements of a sample inside the blend's window.
fn runs(shape: TensorShape, blend: &Blend) -> impl Iterator<Item = Range<usize>> + use<> {
    let window = blend.window;
    let [x, y, mut columns, mut rows] =
        [window.x, window.y, window.width, window.height].map(|it| it as usize);
    let (width, height) = (shape.width as usize, shape.height as usize);
    let (planes, interleaved) = match shape.layout {
        Layout::Nchw => (shape.channels, 1),
        Layout::Nhwc => (1, shape.channels),
    };
    if columns == width {
        (columns, rows) = (columns * rows, 1);
    }
    (0..planes).flat_map(move |plane| {
        (y..y + rows).map(move |row| {
            let start = ((plane * height + row) * width + x) * interleaved;
            start..start + columns * interleaved
        })
    })
}

/// Element type, with a blend loop that the compiler vectorizes.
trait Element: Pod {
    fn blend(first: &mut [Self], second: &mut [Self], weight: f32);
}

impl Element for u8 {
    fn blend(first: &mut [u8], second: &mut [u8], weight: f32) {
        for (first, second) in first.iter_mut().zip(second) {
            let (a, b) = (f32::from(*first), f32::from(*second));
            *first = byte(Blend::sum(weight, a, b));
            *second = byte(Blend::sum(weight, b, a));
        }
    }
}

/// Rounds a value from 0 to 255, ties to even. Adding 2^23 leaves the integer in the lowest bits.
/// On CPUs without SSE4.1, `round_ties_even` would be a function call.
fn byte(value: f32) -> u8 {
    (value + 8_388_608.0).to_bits() as u8
}

impl Element for f32 {
    fn blend(first: &mut [f32], second: &mut [f32], weight: f32) {
        for (first, second) in first.iter_mut().zip(second) {
            let (a, b) = (*first, *second);
            *first = Blend::sum(weight, a, b);
            *second = Blend::sum(weight, b, a);
        }
    }
}

impl Element for f16 {
    fn blend(first: &mut [f16], second: &mut [f16], weight: f32) {
        halves(first, second, weight);
    }
}

impl Element for bf16 {
    fn blend(first: &mut [bf16], second: &mut [bf16], weight: f32) {
        halves(first, second, weight);
    }
}

/// Blends elements of two bytes, which are converted in blocks.
fn halves<E>(first: &mut [E], second: &mut [E], weight: f32)
where
    [E]: HalfFloatSliceExt,
{
    const MOST: usize = 256;
    let (mut a, mut b) = ([0.0; MOST], [0.0; MOST]);
    for (first, second) in first.chunks_mut(MOST).zip(second.chunks_mut(MOST)) {
        let (a, b) = (&mut a[..first.len()], &mut b[..second.len()]);
        first.convert_to_f32_slice(a);
        second.convert_to_f32_slice(b);
        f32::blend(a, b, weight);
        first.convert_from_f32_slice(a);
        second.convert_from_f32_slice(b);
    }
}

/// Applies one blend, element by element. Tests compare [`blend`] and the kernel `mix` with this
/// reference.
#[doc(hidden)]
pub fn reference(shape: TensorShape, blend: &Blend, pair: [&mut [u8]; 2]) {
    let Blend { window, weight, .. } = *blend;
    let (width, height) = (shape.width as usize, shape.height as usize);
    let [first, second] = pair;
    for y in window.y as usize..window.bottom() as usize {
        for x in window.x as usize..window.right() as usize {
            for channel in 0..shape.channels {
                let place = match shape.layout {
                    Layout::Nchw => (channel * height + y) * width + x,
                    Layout::Nhwc => (y * width + x) * shape.channels + channel,
                };
                let bytes = place * shape.dtype.bytes()..(place + 1) * shape.dtype.bytes();
                let (first, second) = (&mut first[bytes.clone()], &mut second[bytes]);
                if weight == 0.0 {
                    first.swap_with_slice(second);
                    continue;
                }
                let [a, b] = [&*first, &*second].map(|it| value(shape.dtype, it));
                store(shape.dtype, weight * a + (1.0 - weight) * b, first);
                store(shape.dtype, weight * b + (1.0 - weight) * a, second);
            }
        }
    }
}

fn value(dtype: DType, element: &[u8]) -> f32 {
    match dtype {
        DType::U8 => element[0].into(),
        DType::F16 => bytemuck::pod_read_unaligned::<f16>(element).to_f32(),
        DType::BF16 => bytemuck::pod_read_unaligned::<bf16>(element).to_f32(),
        DType::F32 => bytemuck::pod_read_unaligned(element),
    }
}

fn store(dtype: DType, value: f32, element: &mut [u8]) {
    match dtype {
        DType::U8 => element[0] = value.round_ties_even() as u8,
        DType::F16 => element.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
        DType::BF16 => element.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
        DType::F32 => element.copy_from_slice(&value.to_ne_bytes()),
    }
}
