//! Pixels: functions of a pixel's value, or of its value and position.

use std::ops::Range;

use bytemuck::Pod;
use serde::Serialize;
use serde_json::Value;

use crate::image::{HostImage, Image, PixelType};
use crate::op::wide::pixels::{BLOCK, PixelMap, Planes, Shuffles};
use crate::op::wide::{Instructions, Loop};

use super::mix::Mixer;
use super::{
    ActionKind, Cases, Change, Codes, Cuda, Execution, Executor, Facts, Kind, Move, ParamBytes,
    Pointwise, ProgramRole,
};

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

    /// Changes the channels of some pixels on the CPU. Default: each pixel. For formulas that know a faster way to the
    /// same values.
    #[inline(always)]
    fn block(params: &Self::Params, [r, g, b]: &mut [[u8; BLOCK]; 3]) {
        for at in 0..BLOCK {
            [r[at], g[at], b[at]] = Self::pixel(params, [r[at], g[at], b[at]]);
        }
    }
}

/// A function of a pixel's value and its position in the image.
///
/// On the CPU many pixels are computed at once if `bytes` and `floats` are `#[inline(always)]`, as everything that they
/// call, and select values instead of branching.
pub trait PositionFormula: Sized + 'static {
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

    /// Changes a row on the CPU. Default: each pixel. For formulas that leave most of a row as it is, or that know a
    /// faster way to the same values.
    #[inline(always)]
    fn row<T: Channel>(params: &Self::Params, at: RowPosition, row: &mut [[T; 3]]) {
        at.map::<Self, T>(params, row);
    }
}

/// Value of a channel: a byte or a float.
pub trait Channel: Pod + Default {
    /// New value of the pixel at column `x` of row `y`: [`PositionFormula::bytes`] or [`PositionFormula::floats`].
    fn pixel<F: PositionFormula>(params: &F::Params, x: i32, y: i32, pixel: [Self; 3])
    -> [Self; 3];
}

impl Channel for u8 {
    #[inline(always)]
    fn pixel<F: PositionFormula>(params: &F::Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
        F::bytes(params, x, y, pixel)
    }
}

impl Channel for f32 {
    #[inline(always)]
    fn pixel<F: PositionFormula>(params: &F::Params, x: i32, y: i32, pixel: [f32; 3]) -> [f32; 3] {
        F::floats(params, x, y, pixel)
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
    /// Pixels that are computed at once.
    const BLOCK: usize = 32;

    /// Position of the row that begins at pixel number `place`.
    #[inline(always)]
    pub fn from(self, place: usize) -> Self {
        Self { x: self.x + self.step * place as i32, ..self }
    }

    /// Numbers of the pixels in these columns, in a row of `len` pixels.
    #[inline(always)]
    pub fn places(self, columns: Range<i32>, len: usize) -> Range<usize> {
        let [start, end] = [columns.start, columns.end].map(i64::from);
        let x = i64::from(self.x);
        let [first, end] =
            if self.step == 1 { [start - x, end - x] } else { [x + 1 - end, x + 1 - start] };
        let [first, end] = [first, end].map(|place| place.clamp(0, len as i64) as usize);
        first..end.max(first)
    }

    /// Applies a formula to each pixel of a row. Works on blocks of pixels with their channels apart, so that the
    /// compiler can use vector instructions.
    #[inline(always)]
    pub fn map<F: PositionFormula, T: Channel>(self, params: &F::Params, row: &mut [[T; 3]]) {
        let mut last = [[T::default(); 3]; Self::BLOCK];
        for (number, pixels) in row.chunks_mut(Self::BLOCK).enumerate() {
            let (at, len) = (self.from(number * Self::BLOCK), pixels.len());
            // One call for both, since the compiler does not inline a long formula twice.
            let block = match pixels.first_chunk_mut() {
                Some(block) => block,
                None => {
                    last[..len].copy_from_slice(pixels);
                    &mut last
                }
            };
            at.map_block::<F, T>(params, block, len - 1);
            if len < Self::BLOCK {
                pixels.copy_from_slice(&last[..len]);
            }
        }
    }

    /// Changes a block, of which the pixels after number `last` are not in the row.
    #[inline(always)]
    fn map_block<F: PositionFormula, T: Channel>(
        self,
        params: &F::Params,
        block: &mut [[T; 3]; Self::BLOCK],
        last: usize,
    ) {
        let [mut r, mut g, mut b] = [[T::default(); Self::BLOCK]; 3];
        for at in 0..Self::BLOCK {
            [r[at], g[at], b[at]] = block[at];
        }
        for at in 0..Self::BLOCK {
            // The formula sees no column outside of the row.
            let x = self.x + self.step * (at as i32).min(last as i32);
            [r[at], g[at], b[at]] = T::pixel::<F>(params, x, self.y, [r[at], g[at], b[at]]);
        }
        for at in 0..Self::BLOCK {
            block[at] = [r[at], g[at], b[at]];
        }
    }
}

type Pixel<T> = fn(&ParamBytes, i32, i32, [T; 3]) -> [T; 3];

type Row<T> = fn(&ParamBytes, RowPosition, &mut [[T; 3]], Instructions);

/// A formula of colours with its parameters.
struct Colour<'a, F: ColourFormula>(&'a F::Params);

impl<F: ColourFormula> PixelMap for Colour<'_, F> {
    #[inline(always)]
    fn change(&self, planes: &mut Planes) {
        F::block(self.0, planes);
    }
}

/// A row of values at their positions.
struct Positions<'a, F: PositionFormula, T> {
    params: &'a F::Params,
    at: RowPosition,
    row: &'a mut [[T; 3]],
}

impl<F: PositionFormula, T: Channel> Loop for Positions<'_, F, T> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        F::row(self.params, self.at, self.row);
    }
}

/// The kind of pixels that one formula computes: a [`ColourFormula`] or a [`PositionFormula`].
#[derive(Debug)]
#[non_exhaustive]
pub struct PixelKind {
    pub(super) facts: Facts,
    /// Whether the formula takes the position.
    pub(crate) takes_position: bool,
    /// Changes a row of bytes, if they are accepted.
    pub(crate) bytes: Option<Row<u8>>,
    /// Changes a row of floats, if they are accepted.
    pub(crate) floats: Option<Row<f32>>,
    /// New value of a pixel of bytes.
    byte_pixel: Pixel<u8>,
    /// New value of a pixel of floats.
    float_pixel: Pixel<f32>,
}

impl PixelKind {
    /// The kind with the formula `F` of colours.
    pub const fn colour<F: ColourFormula>() -> &'static Self {
        const {
            &Self {
                facts: Facts {
                    cuda: F::CUDA,
                    params_bytes: size_of::<F::Params>(),
                    program: ProgramRole::added(|codes, cases| add_cases(codes, "", cases)),
                    ..Facts::new::<(Params, F)>(Execution::Pointwise)
                },
                takes_position: false,
                bytes: Some(|params, _, row, instructions| {
                    instructions.map(row, &Colour::<F>(params.get()));
                }),
                floats: None,
                byte_pixel: |params, _, _, pixel| F::pixel(params.get(), pixel),
                float_pixel: |_, _, _, pixel| pixel,
            }
        }
    }

    /// The kind with the formula `F` of values and positions.
    pub const fn position<F: PositionFormula>() -> &'static Self {
        const {
            let bytes: Row<u8> = |params, at, row, instructions| {
                instructions.run(Positions::<F, u8> { params: params.get(), at, row });
            };
            let floats: Row<f32> = |params, at, row, instructions| {
                instructions.run(Positions::<F, f32> { params: params.get(), at, row });
            };
            &Self {
                facts: Facts {
                    pixels: |input| match input {
                        PixelType::U8 => F::BYTES.then_some(input),
                        PixelType::F32 => F::FLOATS.then_some(input),
                    },
                    cuda: F::CUDA,
                    params_bytes: size_of::<F::Params>(),
                    program: ProgramRole::added(|codes, cases| add_cases(codes, "x, y, ", cases)),
                    ..Facts::new::<(Params, F)>(Execution::Pointwise)
                },
                takes_position: true,
                bytes: if F::BYTES { Some(bytes) } else { None },
                floats: if F::FLOATS { Some(floats) } else { None },
                byte_pixel: |params, x, y, pixel| F::bytes(params.get(), x, y, pixel),
                float_pixel: |params, x, y, pixel| F::floats(params.get(), x, y, pixel),
            }
        }
    }
}

impl Kind {
    /// The kind of colours computed by the formula `F`.
    pub const fn colour<F: ColourFormula>() -> Self {
        Kind::Pixel(PixelKind::colour::<F>())
    }

    /// The kind of pixels computed from value and position by the formula `F`.
    pub const fn position<F: PositionFormula>() -> Self {
        Kind::Pixel(PixelKind::position::<F>())
    }
}

/// Parameters of one sample.
#[derive(Clone, Debug)]
pub struct Params {
    /// The kind.
    pub formula: &'static PixelKind,
    /// Parameters of the formula.
    pub params: ParamBytes,
}

impl ActionKind for Params {
    fn executor(&self) -> Executor<'_> {
        let change = Change::Pixel(self.formula, &self.params);
        Executor::Pointwise(Pointwise { moves: Move::None, change })
    }

    /// Pixel by pixel.
    fn reference(&self, _: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        let Self { formula, params } = self;
        match (src, out) {
            (HostImage::U8(src), HostImage::U8(out)) => each(params, formula.byte_pixel, src, out),
            (HostImage::F32(src), HostImage::F32(out)) => {
                each(params, formula.float_pixel, src, out);
            }
            _ => unreachable!("a pixel formula preserves the pixel type"),
        }
    }

    fn bytes(&self, _: u64) -> ParamBytes {
        self.params
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        ("pixel", None)
    }
}

/// Adds calls of the formula. `at` is the position as its first arguments, if the formula takes it.
fn add_cases(codes: &Codes, at: &str, cases: &mut Cases) {
    let name = codes.type_name;
    for (code, member) in [(codes.bytes, "bytes"), (codes.floats, "floats")] {
        if let Some(code) = code {
            let call = format!("{name}::of(step.as<{name}Params>(), {at}value.{member})");
            cases.changes.push_str(&format!("    case {code}: value.{member} = {call}; break;\n"));
        }
    }
}

fn each<T: Copy + Default>(params: &ParamBytes, of: Pixel<T>, src: &Image<T>, out: &mut Image<T>) {
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            out.set_pixel(x, y, of(params, x as i32, y as i32, src.pixel(x, y)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Size;
    use crate::op::{self, ActionParams, Actions};
    use crate::random::SampleKey;

    /// Rows with and without whole blocks, of images that are mirrored or not, from any column on.
    #[test]
    fn rows_are_the_pixels_of_the_formula() {
        let bytes: Vec<[u8; 3]> =
            (0..100u32).map(|at| [0, 5, 9].map(|c| (at * at + c * at) as u8)).collect();
        let floats: Vec<[f32; 3]> =
            bytes.iter().map(|pixel| pixel.map(|it| f32::from(it) / 7.0 - 3.0)).collect();
        let mut compared = 0;
        for operator in op::list_of_operators::examples() {
            let actions = Actions::of([&*operator], SampleKey::default(), Size::new(120, 40));
            for action in &actions.list {
                let ActionParams::Pixel(Params { formula, params }) = &action.params else {
                    continue;
                };
                for (x, step, len) in
                    [(0, 1, 100), (17, 1, 1), (9, 1, 32), (119, -1, 100), (70, -1, 37)]
                {
                    for y in [0, 11, 20] {
                        for set in Instructions::all() {
                            let at = RowPosition { x, step, y };
                            if let Some(row) = formula.bytes {
                                assert_row(row, formula.byte_pixel, params, at, &bytes[..len], set);
                                compared += 1;
                            }
                            if let Some(row) = formula.floats {
                                assert_row(
                                    row,
                                    formula.float_pixel,
                                    params,
                                    at,
                                    &floats[..len],
                                    set,
                                );
                                compared += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(compared > 600, "{compared}");
    }

    fn assert_row<T: Channel + PartialEq + std::fmt::Debug>(
        row: Row<T>,
        of: Pixel<T>,
        params: &ParamBytes,
        at: RowPosition,
        pixels: &[[T; 3]],
        set: Instructions,
    ) {
        let mut found = pixels.to_vec();
        row(params, at, &mut found, set);
        for (place, (pixel, found)) in pixels.iter().zip(found).enumerate() {
            assert_eq!(of(params, at.from(place).x, at.y, *pixel), found, "{at:?} {place} {set:?}");
        }
    }

    #[test]
    fn places_are_those_of_the_columns() {
        for (x, step, len) in [(0, 1, 10), (7, 1, 5), (9, -1, 10), (20, -1, 7), (3, -1, 1)] {
            let at = RowPosition { x, step, y: 0 };
            for columns in [0..0, 0..1, 2..9, 7..8, 8..100, 15..18, i32::MIN..i32::MAX] {
                let inside: Vec<usize> =
                    (0..len).filter(|&place| columns.contains(&at.from(place).x)).collect();
                assert!(at.places(columns.clone(), len).eq(inside), "{at:?} {len} {columns:?}");
            }
        }
    }
}
