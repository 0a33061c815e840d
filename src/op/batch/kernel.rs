//! The kernel that executes blends and writes soft targets, and its parameters.

use std::fmt::Write;

use bytemuck::{Pod, Zeroable};

use crate::op::kernel_text::{order_type, out_type};
use crate::op::mask::MaskFormat;
use crate::tensor::{ElementType, Layout, TensorShape};

use super::{Blend, Blends, TargetRow};

/// Text of the kernel `mix(const Sample* pairs, int count, int width, int height)`. The grid covers
/// `width` x `height` pixels of `count` pairs. A [`PairParams`] describes each pair.
pub fn mix_kernel_text(shape: TensorShape) -> String {
    let (out, order) = (out_type(shape.dtype), order_type(shape));
    let bytes = size_of::<PairParams>();
    let types = format!("typedef {out} Out;\ntypedef {order} Order;\n#define PAIR_BYTES {bytes}");
    let mut source = String::new();
    for (file, text) in [
        ("image", include_str!("../../../kernels/image.cu")),
        ("store", include_str!("../../../kernels/store.cu")),
        ("blend", include_str!("../../../kernels/blend.cu")),
        ("types", &types),
        ("mix", include_str!("../../../kernels/mix.cu")),
    ] {
        // Writing into a String cannot fail.
        let _ = writeln!(source, "#line 1 \"{file}.cu\"\n{}", text.trim_end());
    }
    source
}

/// Text of the kernel `mix_masks(const Sample* pairs, int count, int width, int height)`, which
/// blends `count` pairs of masks. The grid covers the rows with the most elements. A
/// [`MaskPairParams`] describes each pair.
pub fn mix_masks_kernel_text() -> String {
    let bytes = size_of::<MaskPairParams>();
    let mut source = String::new();
    for (file, text) in [
        ("image", include_str!("../../../kernels/image.cu")),
        ("store", include_str!("../../../kernels/store.cu")),
        ("blend", include_str!("../../../kernels/blend.cu")),
        ("sizes", &format!("#define PAIR_BYTES {bytes}")),
        ("mix_masks", include_str!("../../../kernels/mix_masks.cu")),
    ] {
        // Writing into a String cannot fail.
        let _ = writeln!(source, "#line 1 \"{file}.cu\"\n{}", text.trim_end());
    }
    source
}

/// Parameters of a pair of masks for the kernel `mix_masks`, with the layout of `Sample` in
/// `kernels/mix_masks.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MaskPairParams {
    masks: [u64; 2],
    element: i32,
    width: i32,
    height: i32,
    planes: i32,
    count: i32,
    unused: i32,
    blends: [BlendParams; Blends::MOST],
}

impl MaskPairParams {
    /// Blends the one-hot masks at two addresses like their images. Elements of other masks are
    /// exchanged inside the windows of the blends.
    pub fn new(masks: [u64; 2], format: &MaskFormat, blends: &Blends) -> Self {
        let element = match format.element {
            ElementType::U8 => 0,
            ElementType::F16 => 1,
            ElementType::BF16 => 2,
            ElementType::F32 => 3,
            ElementType::I64 => 4,
        };
        let (planes, interleaved) = match format.classes {
            Some((classes, Layout::Nchw)) => (classes, 1),
            Some((classes, Layout::Nhwc)) => (1, classes),
            None => (1, 1),
        };
        let mut all = BlendParams::all(blends, interleaved);
        if format.classes.is_none() {
            all.iter_mut().for_each(|blend| blend.weight = 0.0);
        }
        Self {
            masks,
            element,
            width: Self::row_len(format) as i32,
            height: format.size.height as i32,
            planes: planes as i32,
            count: blends.len() as i32,
            unused: 0,
            blends: all,
        }
    }

    /// Number of elements of a row of a mask, which the grid must cover.
    pub fn row_len(format: &MaskFormat) -> u32 {
        match format.classes {
            Some((classes, Layout::Nhwc)) => format.size.width.saturating_mul(classes),
            _ => format.size.width,
        }
    }
}

/// Parameters of one pair for the kernel, with the layout of `Sample` in `kernels/mix.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PairParams {
    /// Addresses of the tensors of the two samples. The second is 0 if there is no second sample.
    images: [u64; 2],
    /// Addresses of the soft targets of the two samples. The second is 0 if there is no second
    /// sample.
    targets: [u64; 2],
    rows: [TargetRow; 2],
    classes: i32,
    count: i32,
    blends: [BlendParams; Blends::MOST],
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct BlendParams {
    x: i32,
    y: i32,
    right: i32,
    bottom: i32,
    weight: f32,
}

impl BlendParams {
    /// Parameters of all blends, for rows of `interleaved` elements per pixel.
    fn all(blends: &Blends, interleaved: u32) -> [Self; Blends::MOST] {
        let mut all = [Self::zeroed(); Blends::MOST];
        for (params, &Blend { window, weight, .. }) in all.iter_mut().zip(blends.iter()) {
            let [x, right] = [window.x, window.right()].map(|it| (it * interleaved) as i32);
            let [y, bottom] = [window.y, window.bottom()].map(|it| it as i32);
            *params = Self { x, y, right, bottom, weight };
        }
        all
    }
}

impl PairParams {
    /// Parameters of a pair, or of a single sample if the second addresses are 0. A single sample
    /// has no blends.
    pub fn new(
        images: [u64; 2],
        targets: [u64; 2],
        rows: [TargetRow; 2],
        classes: u32,
        blends: &Blends,
    ) -> Self {
        let (classes, count) = (classes as i32, blends.len() as i32);
        Self { images, targets, rows, classes, count, blends: BlendParams::all(blends, 1) }
    }
}
