//! `crop`: a window at a fixed position, and code shared by all crops.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::random::SampleRng;

use super::settings::check_side;
use super::{
    Cuda, Examples, FastPath, FieldError, Fusion, Operator, Spatial, Tiling, Trace, Wanted,
};

/// Crops a window. Pixels outside the image are 0, as with Pillow's `Image.crop`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crop {
    /// First column. Default 0.
    #[serde(default)]
    pub x: u32,
    /// First row. Default 0.
    #[serde(default)]
    pub y: u32,
    /// Output width, in pixels.
    pub width: u32,
    /// Output height, in pixels.
    pub height: u32,
}

/// Window of one sample, which may extend outside the image.
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
    unused: i32,
}

impl Params {
    /// The window of `size` at `(x, y)` of an image. It may begin left of or above the image; `fill` is the red, green
    /// and blue of pixels outside the image.
    pub fn new((x, y): (i64, i64), size: Size, input: Size, fill: [f32; 3]) -> Self {
        // Beyond these bounds there is only fill, so clamping the position to an i32 changes nothing.
        let clamp = |at: i64| at.clamp(-(1 << 30), i64::from(i32::MAX)) as i32;
        Self {
            x: clamp(x),
            y: clamp(y),
            width: size.width as i32,
            height: size.height as i32,
            src_width: input.width as i32,
            src_height: input.height as i32,
            fill,
            unused: 0,
        }
    }

    /// Part of the image inside the part `of` of the window. `None` if there is only fill.
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

/// CUDA implementation of the crops.
pub(super) const CUDA: Cuda =
    Cuda::new("Crop", include_str!("../../kernels/crop.cu")).tiled(Tiling::Follows);

/// CPU implementation shared by the crops.
pub(super) struct Cut;

impl Spatial<Params> for Cut {
    /// Window of the image that is needed, or a single pixel if there is only fill.
    fn demand(&self, params: &mut Params, wanted: Wanted, _: &mut Vec<i32>) -> Roi {
        params.inside(wanted.output).unwrap_or(Roi::new(0, 0, 1, 1))
    }

    /// A window inside the image keeps the trace exact. After any other window, later crops no longer crop the image
    /// itself.
    fn trace(&self, params: &Params, trace: &mut Trace) {
        if let Some(inside) = params.inside(params.whole()) {
            trace.crop(inside);
        }
        trace.cropping &= matches!(self.fusion(params), Fusion::Crop { .. });
        trace.view.crop((params.x.into(), params.y.into()), params.whole().size());
    }
}

impl FastPath<Params> for Cut {
    /// Copies row by row.
    fn apply(&self, params: &Params, _: &[i32], src: &HostImage, out: &mut HostImage) {
        match (src, out) {
            (HostImage::U8(src), HostImage::U8(out)) => {
                cut_rows(params, src, out, params.fill.map(|value| value as u8));
            }
            (HostImage::F32(src), HostImage::F32(out)) => cut_rows(params, src, out, params.fill),
            _ => unreachable!("a crop preserves the pixel type"),
        }
    }

    /// Coordinate offsets suffice if nothing is filled.
    fn fusion(&self, params: &Params) -> Fusion {
        match params.inside(params.whole()) {
            Some(inside) if inside.size() == params.whole().size() => {
                Fusion::Crop { x: inside.x, y: inside.y }
            }
            _ => Fusion::None,
        }
    }
}

/// Reference implementation of the crops.
pub(super) fn reference(params: &Params, src: &HostImage, out: &mut HostImage) {
    match (src, out) {
        (HostImage::U8(src), HostImage::U8(out)) => {
            cut(params, src, out, params.fill.map(|value| value as u8));
        }
        (HostImage::F32(src), HostImage::F32(out)) => cut(params, src, out, params.fill),
        _ => unreachable!("a crop preserves the pixel type"),
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

fn cut_rows<T: Copy + Default>(params: &Params, src: &Image<T>, out: &mut Image<T>, fill: [T; 3]) {
    let window = out.window();
    for y in window.y..window.bottom() {
        let row = out.row_mut(y);
        let Some(inside) = params.inside(Roi { y, height: 1, ..window }) else {
            row.as_chunks_mut().0.fill(fill);
            continue;
        };
        let left = (inside.x as i32 - params.x) as usize - window.x as usize;
        let (before, rest) = row.split_at_mut(3 * left);
        let (middle, after) = rest.split_at_mut(3 * inside.width as usize);
        before.as_chunks_mut().0.fill(fill);
        after.as_chunks_mut().0.fill(fill);
        let start = 3 * (inside.x - src.window().x) as usize;
        middle.copy_from_slice(&src.row(inside.y)[start..][..middle.len()]);
    }
}

impl Operator for Crop {
    const NAME: &'static str = "crop";
    type Params = Params;
    const CUDA: Option<Cuda> = Some(CUDA);

    fn prepare(&self, input: Size, _: &mut SampleRng) -> (Size, Params) {
        let size = Size::new(self.width, self.height);
        (size, Params::new((self.x.into(), self.y.into()), size, input, [0.0; 3]))
    }

    fn reference(params: &Params, _: &[i32], src: &HostImage, out: &mut HostImage) {
        reference(params, src, out);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("width", self.width)?;
        check_side("height", self.height)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        Some(Size::new(self.width, self.height))
    }

    fn spatial(&self) -> Option<&dyn Spatial<Params>> {
        Some(&Cut)
    }

    fn fast_path(&self) -> Option<&dyn FastPath<Params>> {
        Some(&Cut)
    }
}

impl Examples for Crop {
    fn examples() -> Vec<Self> {
        [(0, 0, 9, 7), (3, 2, 8, 8), (5, 40, 50, 9), (1000, 0, 3, 3)]
            .map(|(x, y, width, height)| Self { x, y, width, height })
            .to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_inside_the_image_is_demanded() {
        let demanded = |x, y| {
            let mut params = Params::new((x, y), Size::new(10, 10), Size::new(8, 6), [0.0; 3]);
            let output = params.whole();
            let wanted = Wanted { input: Size::new(8, 6), reduction: 1, output };
            Cut.demand(&mut params, wanted, &mut Vec::new())
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
    fn only_a_crop_without_fill_is_fused() {
        let fused =
            |x| Cut.fusion(&Params::new((x, 0), Size::new(4, 4), Size::new(8, 6), [0.0; 3]));
        assert_eq!(fused(4), Fusion::Crop { x: 4, y: 0 });
        assert_eq!(fused(5), Fusion::None);
        assert_eq!(fused(-1), Fusion::None);
    }

    #[test]
    fn nested_crops_are_traced_to_the_image() {
        let mut traced = Trace::new(Size::new(100, 100));
        let outer = Params::new((10, 20), Size::new(50, 50), Size::new(100, 100), [0.0; 3]);
        Cut.trace(&outer, &mut traced);
        let inner = Params::new((1, 2), Size::new(3, 4), Size::new(50, 50), [0.0; 3]);
        Cut.trace(&inner, &mut traced);
        assert_eq!((traced.roi, traced.cropping), (Roi::new(11, 22, 3, 4), true));
        let outside = Params::new((2, 2), Size::new(3, 4), Size::new(3, 4), [0.0; 3]);
        Cut.trace(&outside, &mut traced);
        assert_eq!((traced.roi, traced.cropping), (Roi::new(13, 24, 1, 2), false));
    }
}
