//! Pixels: functions of a pixel's value, or of its value and position.

use std::any::TypeId;

use bytemuck::Pod;
use serde::Serialize;

use crate::image::{HostImage, Image, PixelType};
use crate::op::formula::{PixelMap, map_row};
use crate::op::wide::{Instructions, Loop};
use crate::op::{Cuda, ParamBytes};

/// A function of a pixel's red, green and blue.
pub trait ColourFormula: 'static {
    /// Parameters of one sample as plain bytes, identical on CPU and GPU. At most
    /// [`MAX_PARAMS_BYTES`](crate::op::custom::MAX_PARAMS_BYTES) bytes, a multiple of 8. `feedwater dump` writes them as
    /// serde gives them.
    type Params: Pod + Serialize;
    /// CUDA implementation: a type with the function `static __device__ Bytes of(const Params& p, Bytes pixel)`, whose
    /// parameters' type has the same name and `Params` behind it.
    const CUDA: Option<Cuda>;

    /// New value of a pixel.
    fn pixel(params: &Self::Params, pixel: [u8; 3]) -> [u8; 3];
}

/// A function of a pixel's value and its position in the image.
pub trait PositionFormula: 'static {
    /// As [`ColourFormula::Params`].
    type Params: Pod + Serialize;
    /// CUDA implementation: a type with the functions `static __device__ Bytes of(const Params& p, int x, int y, Bytes
    /// pixel)` and the same for `Floats3`, of those that `bytes` and `floats` say.
    const CUDA: Option<Cuda>;
    /// Whether pixels of bytes are accepted.
    const BYTES: bool = true;
    /// Whether pixels of floats are accepted.
    const FLOATS: bool = false;

    /// New value of the pixel at column `x` of row `y`.
    fn bytes(params: &Self::Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
        let _ = (params, x, y);
        pixel
    }

    /// New value of the pixel at column `x` of row `y`.
    fn floats(params: &Self::Params, x: i32, y: i32, pixel: [f32; 3]) -> [f32; 3] {
        let _ = (params, x, y);
        pixel
    }
}

/// Positions of the pixels of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowPosition {
    /// Column of the first pixel.
    pub x: i32,
    /// Distance of the next pixel's column: 1, or -1.
    pub step: i32,
    /// Row.
    pub y: i32,
}

impl RowPosition {
    /// Column of pixel number `place`.
    fn column(self, place: usize) -> i32 {
        self.x + self.step * place as i32
    }
}

type Row<T> = fn(&ParamBytes, RowPosition, &mut [[T; 3]], Instructions);

/// A formula of colours with its parameters.
struct Colour<'a, F: ColourFormula>(&'a F::Params);

impl<F: ColourFormula> PixelMap for Colour<'_, F> {
    #[inline(always)]
    fn of(&self, pixel: [u8; 3]) -> [u8; 3] {
        F::pixel(self.0, pixel)
    }
}

/// A row of colours.
struct Colours<'a, F: ColourFormula> {
    colour: Colour<'a, F>,
    row: &'a mut [[u8; 3]],
}

impl<F: ColourFormula> Loop for Colours<'_, F> {
    #[inline(always)]
    fn run(self) {
        map_row(self.row, &self.colour);
    }
}

/// A formula of pixels as data.
#[derive(Debug)]
#[non_exhaustive]
pub struct PixelForm {
    /// Identifies the formula.
    pub(super) formula: fn() -> TypeId,
    pub(super) cuda: Option<Cuda>,
    pub(crate) params_bytes: usize,
    /// Whether the CUDA function takes the position.
    pub(crate) takes_position: bool,
    /// Changes a row of bytes, if they are accepted.
    pub(crate) bytes: Option<Row<u8>>,
    /// Changes a row of floats, if they are accepted.
    pub(crate) floats: Option<Row<f32>>,
}

impl PixelForm {
    /// The formula `F` of colours.
    pub const fn colour<F: ColourFormula>() -> &'static Self {
        const {
            &Self {
                formula: TypeId::of::<F>,
                cuda: F::CUDA,
                params_bytes: size_of::<F::Params>(),
                takes_position: false,
                bytes: Some(|params, _, row, instructions| {
                    instructions.run(Colours { colour: Colour::<F>(params.get()), row });
                }),
                floats: None,
            }
        }
    }

    /// The formula `F` of values and positions.
    pub const fn position<F: PositionFormula>() -> &'static Self {
        const {
            // With AVX2 these would not be faster: most of their time goes into random numbers and branches.
            let bytes: Row<u8> = |params, at, row, _| {
                for (place, pixel) in row.iter_mut().enumerate() {
                    *pixel = F::bytes(params.get(), at.column(place), at.y, *pixel);
                }
            };
            let floats: Row<f32> = |params, at, row, _| {
                for (place, pixel) in row.iter_mut().enumerate() {
                    *pixel = F::floats(params.get(), at.column(place), at.y, *pixel);
                }
            };
            &Self {
                formula: TypeId::of::<F>,
                cuda: F::CUDA,
                params_bytes: size_of::<F::Params>(),
                takes_position: true,
                bytes: if F::BYTES { Some(bytes) } else { None },
                floats: if F::FLOATS { Some(floats) } else { None },
            }
        }
    }

    /// Whether pixels of this type are accepted.
    pub(super) fn takes(&self, pixels: PixelType) -> bool {
        match pixels {
            PixelType::U8 => self.bytes.is_some(),
            PixelType::F32 => self.floats.is_some(),
        }
    }

    /// Reference implementation: pixel by pixel.
    pub(crate) fn reference(&self, params: &ParamBytes, src: &HostImage, out: &mut HostImage) {
        match (src, out, self.bytes, self.floats) {
            (HostImage::U8(src), HostImage::U8(out), Some(row), _) => each(params, row, src, out),
            (HostImage::F32(src), HostImage::F32(out), _, Some(row)) => each(params, row, src, out),
            _ => unreachable!("the pixel type is accepted, and kept"),
        }
    }
}

fn each<T: Copy + Default>(params: &ParamBytes, row: Row<T>, src: &Image<T>, out: &mut Image<T>) {
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            let mut pixel = [src.pixel(x, y)];
            let at = RowPosition { x: x as i32, step: 1, y: y as i32 };
            row(params, at, &mut pixel, Instructions::PLAIN);
            out.set_pixel(x, y, pixel[0]);
        }
    }
}
