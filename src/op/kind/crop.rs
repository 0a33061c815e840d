//! Crops: actions that take a window of the image. The window may extend beyond the image.

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
    Cuda::new("Crop", include_str!("../../../kernels/crop.cu")).tiled(Tiling::Follows);

/// The kind.
pub static FACTS: Facts = Facts {
    takes_decoded_floats: true,
    pixels: Some,
    cuda: Some(CUDA),
    params_bytes: size_of::<Params>(),
    nests: true,
    ..Facts::new::<Params>(Execution::Pointwise)
};

/// Parameters of the crop of one sample: the window, the size of the input and the fill.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    x: i32,
    y: i32,
    width: i32,
    height: i32,
    src_width: i32,
    src_height: i32,
    fill: [f32; 3],
    /// 1 if the crop removes objects whose centre is outside the window, else 0. Kernels ignore
    /// this field.
    drops_objects: i32,
}

impl Params {
    /// The window of `size` at `(x, y)` of an image of size `input`. The window may begin left of
    /// or above the image. `fill` is the red, green and blue of pixels outside the image.
    pub fn new((x, y): (i64, i64), size: Size, input: Size, fill: [f32; 3]) -> Self {
        // A window beyond these bounds contains only fill, so clamping its position changes no
        // pixel.
        let clamp = |at: i64| at.clamp(-(1 << 30), i64::from(i32::MAX)) as i32;
        Self {
            x: clamp(x),
            y: clamp(y),
            width: size.width as i32,
            height: size.height as i32,
            src_width: input.width as i32,
            src_height: input.height as i32,
            fill,
            drops_objects: 0,
        }
    }

    /// Returns the same crop with an additional effect: it removes objects whose bounding box has
    /// its centre outside the window.
    pub fn dropping_objects(self) -> Self {
        Self { drops_objects: 1, ..self }
    }

    /// Position of the window in the image.
    pub fn position(&self) -> (i64, i64) {
        (self.x.into(), self.y.into())
    }

    /// Whether the whole window is inside the image. Then no pixel is filled.
    pub fn is_inside(&self) -> bool {
        self.inside(self.whole()).is_some_and(|inside| inside.size() == self.whole().size())
    }

    /// Intersection of the part `of` of the window with the image, in coordinates of the image.
    /// `None` if this part contains only fill.
    fn inside(&self, of: Roi) -> Option<Roi> {
        let axis = |at: i32, first: u32, len: u32, most: i32| {
            let first = i64::from(at) + i64::from(first);
            let end = (first + i64::from(len)).min(most.into());
            let first = first.max(0);
            (first < end).then(|| (first as u32, (end - first) as u32))
        };
        let (x, width) = axis(self.x, of.x, of.width, self.src_width)?;
        let (y, height) = axis(self.y, of.y, of.height, self.src_height)?;
        Some(Roi::new(x, y, width, height))
    }

    fn whole(&self) -> Roi {
        Roi::new(0, 0, self.width as u32, self.height as u32)
    }
}

impl ActionKind for Params {
    /// Demands the part of the wanted window that is inside the image, or a single pixel if the
    /// wanted window contains only fill.
    fn demand(&mut self, wanted: Wanted, _: &mut Vec<i32>, _: usize) -> Roi {
        self.inside(wanted.output).unwrap_or(Roi::new(0, 0, 1, 1))
    }

    /// Crops the traced region of the image to the part of the window inside the image. If the
    /// window extends beyond the image, later crops do not change the traced region.
    fn trace(&self, _: Size, trace: &mut Trace) {
        if let Some(inside) = self.inside(self.whole()) {
            trace.crop(inside);
        }
        trace.cropping &= self.is_inside();
        if self.drops_objects != 0 {
            trace.mapping.drop_objects(self.position(), self.whole().size());
        }
        trace.mapping.crop(self.position(), self.whole().size());
    }

    fn follow(&self, _: Range<usize>, _: Size, origins: &mut OriginMap) {
        let axis = |first: i32, len: i32, input: i32| {
            let origins = (0..i64::from(len)).map(move |at| i64::from(first) + at);
            origins.map(move |at| (0..input.into()).contains(&at).then_some(at as i32))
        };
        let columns = axis(self.x, self.width, self.src_width);
        origins.add_axes(columns, axis(self.y, self.height, self.src_height));
    }

    fn executor(&self) -> Executor<'_> {
        let is_inside = self.is_inside();
        let moves = Move::Window { position: self.position(), is_inside };
        let change = match is_inside {
            true => Change::None,
            false => {
                let input = (self.src_width.into(), self.src_height.into());
                Change::Fill { input, fill: self.fill }
            }
        };
        Executor::Pointwise(Pointwise { moves, change })
    }

    fn reference(&self, _: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        match (src, out) {
            (HostImage::U8(src), HostImage::U8(out)) => {
                cut(self, src, out, self.fill.map(|value| value as u8));
            }
            (HostImage::F32(src), HostImage::F32(out)) => cut(self, src, out, self.fill),
            _ => unreachable!("a crop preserves the pixel type"),
        }
    }

    fn bytes(&self, _: u64) -> ParamBytes {
        ParamBytes::new(self)
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        let (x, y) = self.position();
        ("crop", Some(json!({ "x": x, "y": y, "fill": self.fill })))
    }
}

fn cut<T: Copy + Default>(params: &Params, src: &Image<T>, out: &mut Image<T>, fill: [T; 3]) {
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            let (sx, sy) = (params.x + x as i32, params.y + y as i32);
            let inside =
                (0..params.src_width).contains(&sx) && (0..params.src_height).contains(&sy);
            out.set_pixel(x, y, if inside { src.pixel(sx as u32, sy as u32) } else { fill });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_inside_the_image_is_demanded() {
        let demanded = |x, y| {
            let mut params = Params::new((x, y), Size::new(10, 10), Size::new(8, 6), [0.0; 3]);
            let (input, padding) = (Size::new(8, 6), Size::default());
            let wanted = Wanted { input, reduction: 1, padding, output: params.whole() };
            params.demand(wanted, &mut Vec::new(), 0)
        };
        assert_eq!(demanded(-4, 2), Roi::new(0, 2, 6, 4));
        assert_eq!(demanded(7, -9), Roi::new(7, 0, 1, 1));
        assert_eq!(
            demanded(8, 0),
            Roi::new(0, 0, 1, 1),
            "a window of only fill still demands a pixel"
        );
        assert_eq!(demanded(-(1 << 40), 0), Roi::new(0, 0, 1, 1));
    }

    #[test]
    fn a_window_is_inside_up_to_the_last_pixel() {
        let inside =
            |x| Params::new((x, 0), Size::new(4, 4), Size::new(8, 6), [0.0; 3]).is_inside();
        assert_eq!([inside(-1), inside(0), inside(4), inside(5)], [false, true, true, false]);
    }

    #[test]
    fn nested_crops_are_traced_to_the_image() {
        let mut traced = Trace::new(Size::new(100, 100));
        let outer = Params::new((10, 20), Size::new(50, 50), Size::new(100, 100), [0.0; 3]);
        outer.trace(Size::new(50, 50), &mut traced);
        let inner = Params::new((1, 2), Size::new(3, 4), Size::new(50, 50), [0.0; 3]);
        inner.trace(Size::new(3, 4), &mut traced);
        assert_eq!((traced.roi, traced.cropping), (Roi::new(11, 22, 3, 4), true));
        let outside = Params::new((2, 2), Size::new(3, 4), Size::new(3, 4), [0.0; 3]);
        outside.trace(Size::new(3, 4), &mut traced);
        assert_eq!((traced.roi, traced.cropping), (Roi::new(13, 24, 1, 2), false));
    }
}
