//! Stencils: functions of a pixel and its eight neighbours.

use std::any::TypeId;

use bytemuck::Pod;
use serde::Serialize;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::op::{Cuda, ParamBytes};

/// A function of a pixel and its eight neighbours. Pixels at the border of the image are unchanged, as in Pillow's
/// `ImageFilter.Kernel` (`src/libImaging/Filter.c`).
pub trait StencilFormula: 'static {
    /// As [`ColourFormula::Params`](super::ColourFormula::Params).
    type Params: Pod + Serialize;
    /// CUDA implementation: a type with the function `static __device__ Bytes of(const Params& p, const Bytes
    /// (&around)[9])`, whose parameters' type has the same name and `Params` behind it.
    const CUDA: Option<Cuda>;

    /// New value of the pixel in the middle of a neighbourhood, which is given in row order.
    fn pixel(params: &Self::Params, around: &[[u8; 3]; 9]) -> [u8; 3];
}

/// Pixels of a row.
type Row = [[u8; 3]];

/// A [`StencilFormula`] as data.
#[derive(Debug)]
#[non_exhaustive]
pub struct StencilForm {
    /// Identifies the formula.
    pub(super) formula: fn() -> TypeId,
    pub(super) cuda: Option<Cuda>,
    pub(crate) params_bytes: usize,
    /// Computes the inner pixels of a row from three rows, which begin one pixel before it.
    row: fn(&ParamBytes, [&Row; 3], &mut Row),
}

impl StencilForm {
    /// The formula `F`.
    pub const fn of<F: StencilFormula>() -> &'static Self {
        const {
            &Self {
                formula: TypeId::of::<F>,
                cuda: F::CUDA,
                params_bytes: size_of::<F::Params>(),
                row: |params, [above, row, below], out| {
                    let params = params.get();
                    for (x, out) in out.iter_mut().enumerate() {
                        let [a, b, c] =
                            [above, row, below].map(|row| [row[x], row[x + 1], row[x + 2]]);
                        let around = [a[0], a[1], a[2], b[0], b[1], b[2], c[0], c[1], c[2]];
                        *out = F::pixel(params, &around);
                    }
                },
            }
        }
    }

    /// Window of an image of size `whole` that a window of the result needs: one more pixel on each side.
    pub(crate) fn demand(wanted: Roi, whole: Size) -> Roi {
        let (x, y) = (wanted.x.saturating_sub(1), wanted.y.saturating_sub(1));
        let (right, bottom) =
            ((wanted.right() + 1).min(whole.width), (wanted.bottom() + 1).min(whole.height));
        Roi::new(x, y, right - x, bottom - y)
    }

    /// Computes row `y` of the columns of `out`, from the column `first` on.
    pub(crate) fn row(
        &self,
        params: &ParamBytes,
        src: &Image<u8>,
        (first, y): (u32, u32),
        whole: Size,
        out: &mut [[u8; 3]],
    ) {
        let pixels = |y: u32| src.row(y).as_chunks::<3>().0;
        let from = (first - src.window().x) as usize;
        out.copy_from_slice(&pixels(y)[from..from + out.len()]);
        let end = first + out.len() as u32;
        let (left, right) = (first.max(1), end.min(whole.width.saturating_sub(1)));
        if y == 0 || y + 1 >= whole.height || left >= right {
            return;
        }
        let begin = (left - 1 - src.window().x) as usize;
        let rows = [y - 1, y, y + 1].map(|y| &pixels(y)[begin..]);
        (self.row)(params, rows, &mut out[(left - first) as usize..(right - first) as usize]);
    }

    /// Reference implementation, for an image of size `whole`.
    pub(crate) fn reference(
        &self,
        params: &ParamBytes,
        whole: Size,
        src: &HostImage,
        out: &mut HostImage,
    ) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("stencils map bytes to bytes");
        };
        let window = out.window();
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                let mut pixel = [[0; 3]];
                self.row(params, src, (x, y), whole, &mut pixel);
                out.set_pixel(x, y, pixel[0]);
            }
        }
    }
}
