//! Flips: columns, rows or both in reverse order.

use bytemuck::{Pod, Zeroable};

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::op::{Cuda, Tiling, Trace};

/// CUDA implementation.
pub const CUDA: Cuda =
    Cuda::new("Flip", include_str!("../../../kernels/flip.cu")).tiled(Tiling::Follows);

/// Mirroring of one sample.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    width: i32,
    height: i32,
    horizontal: i32,
    vertical: i32,
}

impl Params {
    /// Mirroring of an image of size `input`, left to right and top to bottom.
    pub fn new(input: Size, horizontal: bool, vertical: bool) -> Self {
        let (width, height) = (input.width as i32, input.height as i32);
        Self { width, height, horizontal: horizontal.into(), vertical: vertical.into() }
    }

    /// Width and height of the image.
    pub fn input(&self) -> (i64, i64) {
        (self.width.into(), self.height.into())
    }

    /// Whether columns are mirrored.
    pub fn horizontal(&self) -> bool {
        self.horizontal != 0
    }

    /// Whether rows are mirrored.
    pub fn vertical(&self) -> bool {
        self.vertical != 0
    }

    /// Input window that the output window `wanted` needs.
    pub fn demand(&self, Roi { x, y, width, height }: Roi) -> Roi {
        Roi {
            x: if self.horizontal() { self.width as u32 - x - width } else { x },
            y: if self.vertical() { self.height as u32 - y - height } else { y },
            width,
            height,
        }
    }

    /// Records the mirroring.
    pub fn trace(&self, trace: &mut Trace) {
        trace.cropping = false;
        trace.flipped_horizontally ^= self.horizontal();
        trace.flipped_vertically ^= self.vertical();
        trace.view.flip(self.horizontal(), self.vertical());
    }
}

/// Reference implementation.
pub fn reference(params: &Params, src: &HostImage, out: &mut HostImage) {
    match (src, out) {
        (HostImage::U8(src), HostImage::U8(out)) => mirror(params, src, out),
        (HostImage::F32(src), HostImage::F32(out)) => mirror(params, src, out),
        _ => unreachable!("flip preserves the pixel type"),
    }
}

fn mirror<T: Copy + Default>(params: &Params, src: &Image<T>, out: &mut Image<T>) {
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            let sx = if params.horizontal() { params.width as u32 - 1 - x } else { x };
            let sy = if params.vertical() { params.height as u32 - 1 - y } else { y };
            out.set_pixel(x, y, src.pixel(sx, sy));
        }
    }
}
