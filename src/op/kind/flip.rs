//! Flips: actions that reverse the order of columns, rows or both.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use serde_json::{Value, json};

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::op::{OriginMap, Trace, Wanted};

use super::mix::Mixer;
use super::{
    ActionKind, Change, Cuda, Execution, Executor, Facts, Move, ParamBytes, Pointwise, Tiling,
};

const CUDA: Cuda =
    Cuda::new("Flip", include_str!("../../../kernels/flip.cu")).tiled(Tiling::Follows);

/// The kind.
pub static FACTS: Facts = Facts {
    takes_decoded_floats: true,
    pixels: Some,
    cuda: Some(CUDA),
    params_bytes: size_of::<Params>(),
    nests: true,
    ..Facts::new::<Params>(Execution::Pointwise)
};

/// Parameters of the flip of one sample.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    width: i32,
    height: i32,
    horizontal: i32,
    vertical: i32,
}

impl Params {
    /// Parameters for an image of size `input`. `horizontal` mirrors the image left to right,
    /// `vertical` top to bottom.
    pub fn new(input: Size, horizontal: bool, vertical: bool) -> Self {
        let (width, height) = (input.width as i32, input.height as i32);
        Self { width, height, horizontal: horizontal.into(), vertical: vertical.into() }
    }

    /// Whether columns are mirrored.
    pub fn horizontal(&self) -> bool {
        self.horizontal != 0
    }

    /// Whether rows are mirrored.
    pub fn vertical(&self) -> bool {
        self.vertical != 0
    }
}

impl ActionKind for Params {
    fn demand(&mut self, wanted: Wanted, _: &mut Vec<i32>, _: usize) -> Roi {
        let Roi { x, y, width, height } = wanted.output;
        Roi {
            x: if self.horizontal() { self.width as u32 - x - width } else { x },
            y: if self.vertical() { self.height as u32 - y - height } else { y },
            width,
            height,
        }
    }

    fn trace(&self, _: Size, trace: &mut Trace) {
        trace.cropping = false;
        trace.flipped_horizontally ^= self.horizontal();
        trace.flipped_vertically ^= self.vertical();
        trace.mapping.flip(self.horizontal(), self.vertical());
    }

    fn follow(&self, _: Range<usize>, _: Size, origins: &mut OriginMap) {
        let axis = |len: i32, mirror: bool| {
            (0..len).map(move |at| Some(if mirror { len - 1 - at } else { at }))
        };
        let columns = axis(self.width, self.horizontal());
        origins.add_axes(columns, axis(self.height, self.vertical()));
    }

    fn executor(&self) -> Executor<'_> {
        let (horizontal, vertical) = (self.horizontal(), self.vertical());
        let input = (self.width.into(), self.height.into());
        let moves = Move::Mirror { horizontal, vertical, input };
        Executor::Pointwise(Pointwise { moves, change: Change::None })
    }

    fn reference(&self, _: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        match (src, out) {
            (HostImage::U8(src), HostImage::U8(out)) => mirror(self, src, out),
            (HostImage::F32(src), HostImage::F32(out)) => mirror(self, src, out),
            _ => unreachable!("flip preserves the pixel type"),
        }
    }

    fn bytes(&self, _: u64) -> ParamBytes {
        ParamBytes::new(self)
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        let (horizontal, vertical) = (self.horizontal(), self.vertical());
        ("flip", Some(json!({ "horizontal": horizontal, "vertical": vertical })))
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
