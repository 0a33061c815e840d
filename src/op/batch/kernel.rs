//! The kernel that executes blends and writes soft targets, and its parameters.

use std::fmt::Write;

use bytemuck::{Pod, Zeroable};

use crate::op::kernel_text::{order_type, out_type};
use crate::tensor::TensorShape;

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
        ("types", &types),
        ("mix", include_str!("../../../kernels/mix.cu")),
    ] {
        // Writing into a String cannot fail.
        let _ = writeln!(source, "#line 1 \"{file}.cu\"\n{}", text.trim_end());
    }
    source
}

/// Text of the kernel `exchange(const Sample* pairs, int count, int width, int height)`, which
/// exchanges parts of `count` pairs of masks. An [`ExchangeParams`] describes each pair.
pub fn exchange_kernel_text() -> String {
    let bytes = size_of::<ExchangeParams>();
    let mut source = String::new();
    for (file, text) in [
        ("image", include_str!("../../../kernels/image.cu")),
        ("sizes", &format!("#define PAIR_BYTES {bytes}")),
        ("exchange", include_str!("../../../kernels/exchange.cu")),
    ] {
        // Writing into a String cannot fail.
        let _ = writeln!(source, "#line 1 \"{file}.cu\"\n{}", text.trim_end());
    }
    source
}

/// Parameters of a pair of masks for the kernel `exchange`, with the layout of `Sample` in
/// `kernels/exchange.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct ExchangeParams {
    masks: [u64; 2],
    element_bytes: i32,
    count: i32,
    windows: [[i32; 4]; Blends::MOST],
}

impl ExchangeParams {
    /// Exchanges the elements of the masks at two addresses inside the windows of the blends, which
    /// have the weight 0. Elements have 1, 4 or 8 bytes.
    pub fn new(masks: [u64; 2], element_bytes: usize, blends: &Blends) -> Self {
        let mut windows = [[0; 4]; Blends::MOST];
        for (place, Blend { window, .. }) in windows.iter_mut().zip(blends.iter()) {
            *place = [window.x, window.y, window.right(), window.bottom()].map(|it| it as i32);
        }
        let (element_bytes, count) = (element_bytes as i32, blends.len() as i32);
        Self { masks, element_bytes, count, windows }
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
        let mut all = [BlendParams::zeroed(); Blends::MOST];
        for (params, &Blend { window, weight, .. }) in all.iter_mut().zip(blends.iter()) {
            let [x, y] = [window.x, window.y].map(|it| it as i32);
            let [right, bottom] = [window.right(), window.bottom()].map(|it| it as i32);
            *params = BlendParams { x, y, right, bottom, weight };
        }
        let (classes, count) = (classes as i32, blends.len() as i32);
        Self { images, targets, rows, classes, count, blends: all }
    }
}
