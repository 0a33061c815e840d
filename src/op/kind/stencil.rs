//! Stencils: functions of a pixel and its eight neighbours.

use bytemuck::Pod;
use serde::Serialize;
use serde_json::Value;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::op::Wanted;
use crate::op::wide::pixels::{BLOCK, Shuffles};
use crate::op::wide::{Instructions, Loop};

use super::mix::Mixer;
use super::{
    ActionKind, Cases, Codes, Cuda, Execution, Executor, Facts, Kind, MakeRow, ParamBytes,
    ProgramRole,
};

/// A function of a pixel and its eight neighbours. Pixels at the border of the image are unchanged,
/// as in Pillow's `ImageFilter.Kernel` (`src/libImaging/Filter.c`).
pub trait StencilFormula: 'static {
    /// Parameters of one sample, with the same rules as
    /// [`ColourFormula::Params`](super::ColourFormula::Params).
    type Params: Pod + Serialize;
    /// CUDA implementation: a type with the function
    /// `static __device__ Bytes of(const Params& p, const Bytes (&around)[9])`. The name of the
    /// parameters' type is the name of this type followed by `Params`.
    const CUDA: Option<Cuda>;

    /// Computes the new value of the middle pixel of a 3x3 neighbourhood. `around` holds the pixels
    /// in row order.
    fn pixel(params: &Self::Params, around: &[[u8; 3]; 9]) -> [u8; 3];
}

/// Pixels of a row.
type Row = [[u8; 3]];

/// Kind of the actions that compute pixels by one [`StencilFormula`].
#[derive(Debug)]
#[non_exhaustive]
pub struct StencilKind {
    pub(super) facts: Facts,
    pixel: fn(&ParamBytes, &[[u8; 3]; 9]) -> [u8; 3],
    /// Computes the inner pixels of a row from three input rows, which begin one pixel further
    /// left.
    row: fn(&ParamBytes, [&Row; 3], &mut Row, Instructions),
}

/// The inner pixels of a row, and the three input rows that contain their neighbours.
struct Neighbourhoods<'a, F: StencilFormula> {
    params: &'a F::Params,
    rows: [&'a Row; 3],
    out: &'a mut Row,
}

impl<F: StencilFormula> Loop for Neighbourhoods<'_, F> {
    /// Works on blocks of pixels with one array per channel, because the compiler can then use
    /// vector instructions.
    #[inline(always)]
    fn run(self, shuffles: impl Shuffles) {
        let Self { params, rows: [above, row, below], out } = self;
        for (number, out) in out.chunks_mut(BLOCK).enumerate() {
            let begin = number * BLOCK;
            let needed = begin..begin + out.len() + 2;
            // Written without `map`, which the compiler does not always inline.
            let planes = [
                planes(&above[needed.clone()], shuffles),
                planes(&row[needed.clone()], shuffles),
                planes(&below[needed], shuffles),
            ];
            let mut found = [[0; BLOCK]; 3];
            for x in 0..BLOCK {
                let at = |row: usize, column: usize| {
                    let [r, g, b] = &planes[row];
                    [r[x + column], g[x + column], b[x + column]]
                };
                let [a, b, c] = [at(0, 0), at(0, 1), at(0, 2)];
                let [d, e, f] = [at(1, 0), at(1, 1), at(1, 2)];
                let [g, h, i] = [at(2, 0), at(2, 1), at(2, 2)];
                [found[0][x], found[1][x], found[2][x]] =
                    F::pixel(params, &[a, b, c, d, e, f, g, h, i]);
            }
            out.copy_from_slice(&shuffles.together(&found)[..out.len()]);
        }
    }
}

/// Channels of a block of pixels and of the two pixels after it. Pixels beyond the end of the row
/// are 0.
#[inline(always)]
fn planes(row: &Row, shuffles: impl Shuffles) -> [[u8; BLOCK + 2]; 3] {
    let (mut block, mut after) = ([[0; 3]; BLOCK], [[0; 3]; 2]);
    let (first, last) = row.split_at(row.len().min(BLOCK));
    block[..first.len()].copy_from_slice(first);
    after[..last.len()].copy_from_slice(last);
    let mut planes = [[0; BLOCK + 2]; 3];
    for (channel, plane) in shuffles.apart(&block).iter().enumerate() {
        planes[channel][..BLOCK].copy_from_slice(plane);
        planes[channel][BLOCK] = after[0][channel];
        planes[channel][BLOCK + 1] = after[1][channel];
    }
    planes
}

impl StencilKind {
    /// Kind of the actions that compute pixels by the formula `F`.
    pub const fn of<F: StencilFormula>() -> &'static Self {
        const {
            &Self {
                facts: Facts {
                    cuda: F::CUDA,
                    params_bytes: size_of::<F::Params>(),
                    program: ProgramRole::added(cases),
                    ..Facts::new::<(Params, F)>(Execution::Rows)
                },
                pixel: |params, around| F::pixel(params.get(), around),
                row: |params, rows, out, instructions| {
                    instructions.run(Neighbourhoods::<F> { params: params.get(), rows, out });
                },
            }
        }
    }
}

impl Kind {
    /// Kind of the actions that compute pixels by the stencil formula `F`.
    pub const fn stencil<F: StencilFormula>() -> Self {
        Kind::Stencil(StencilKind::of::<F>())
    }
}

/// Parameters of one sample.
#[derive(Clone, Debug)]
pub struct Params {
    /// The kind.
    pub formula: &'static StencilKind,
    /// Size of the whole image.
    pub whole: Size,
    /// Parameters of the formula.
    pub params: ParamBytes,
}

impl ActionKind for Params {
    /// Demands one more pixel on each side of the wanted window, if the image has it.
    fn demand(&mut self, wanted: Wanted, _: &mut Vec<i32>, _: usize) -> Roi {
        let (wanted, whole) = (wanted.output, self.whole);
        let (x, y) = (wanted.x.saturating_sub(1), wanted.y.saturating_sub(1));
        let (right, bottom) =
            ((wanted.right() + 1).min(whole.width), (wanted.bottom() + 1).min(whole.height));
        Roi::new(x, y, right - x, bottom - y)
    }

    fn executor(&self) -> Executor<'_> {
        Executor::Rows(self)
    }

    fn reference(&self, _: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("a stencil needs an input and an output of bytes");
        };
        let (window, whole) = (out.window(), self.whole);
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                let inner = x > 0 && x + 1 < whole.width && y > 0 && y + 1 < whole.height;
                let pixel = if inner {
                    let around = std::array::from_fn(|at| {
                        src.pixel(x + at as u32 % 3 - 1, y + at as u32 / 3 - 1)
                    });
                    (self.formula.pixel)(&self.params, &around)
                } else {
                    src.pixel(x, y)
                };
                out.set_pixel(x, y, pixel);
            }
        }
    }

    fn bytes(&self, _: u64) -> ParamBytes {
        self.params
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        ("stencil", None)
    }
}

impl MakeRow for Params {
    fn row(&self, _: &[i32], src: &Image<u8>, (first, y): (u32, u32), out: &mut Row) {
        let pixels = |y: u32| src.row(y).as_chunks::<3>().0;
        let from = (first - src.window().x) as usize;
        out.copy_from_slice(&pixels(y)[from..from + out.len()]);
        let end = first + out.len() as u32;
        let (left, right) = (first.max(1), end.min(self.whole.width.saturating_sub(1)));
        if y == 0 || y + 1 >= self.whole.height || left >= right {
            return;
        }
        let begin = (left - 1 - src.window().x) as usize;
        let rows = [y - 1, y, y + 1].map(|y| &pixels(y)[begin..]);
        let out = &mut out[(left - first) as usize..(right - first) as usize];
        (self.formula.row)(&self.params, rows, out, Instructions::here());
    }
}

fn cases(codes: &Codes, cases: &mut Cases) {
    if let Some(code) = codes.bytes {
        let name = codes.type_name;
        let call = format!("stencil_at<Leaf, {name}, {name}Params>(pass, x, y)");
        cases.reads.push_str(&format!("    case {code}: value.bytes = {call}; break;\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{self, ActionParams, Actions};
    use crate::random::SampleKey;

    /// Tests rows with whole and partial blocks.
    #[test]
    fn rows_are_the_pixels_of_the_formula() {
        let mut compared = 0;
        let bytes = |y: u32| (0..202).map(move |x| [0, 5, 9].map(|c| (x * x * y + c * x) as u8));
        let rows = [1, 6, 11].map(|y| bytes(y).collect::<Vec<_>>());
        for operator in op::list_of_operators::examples() {
            let actions = Actions::of([&*operator], SampleKey::default(), Size::new(120, 40));
            for action in &actions.list {
                let ActionParams::Stencil(Params { formula, params, .. }) = &action.params else {
                    continue;
                };
                for len in [1, 63, 64, 65, 200] {
                    for set in Instructions::all() {
                        let mut found = vec![[0; 3]; len];
                        (formula.row)(params, rows.each_ref().map(|row| &row[..]), &mut found, set);
                        for (x, found) in found.into_iter().enumerate() {
                            let around = std::array::from_fn(|at| rows[at / 3][x + at % 3]);
                            assert_eq!(
                                (formula.pixel)(params, &around),
                                found,
                                "{x} of {len} {set:?}"
                            );
                        }
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared >= 20, "{compared}");
    }
}
