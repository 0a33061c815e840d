//! Pixel actions: functions of a pixel's value, or of its value and position.

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
    /// Parameters of one sample as plain bytes, identical on CPU and GPU. Their size is a multiple
    /// of 8 and at most [`MAX_PARAMS_BYTES`](crate::op::custom::MAX_PARAMS_BYTES) bytes.
    /// `feedwater dump` writes the fields that serde serializes.
    type Params: Pod + Serialize;
    /// CUDA implementation: a type with the function
    /// `static __device__ Bytes of(const Params& p, Bytes pixel)`. The name of the parameters' type
    /// is the name of this type followed by `Params`.
    const CUDA: Option<Cuda>;

    /// Computes the new value of a pixel.
    fn pixel(params: &Self::Params, pixel: [u8; 3]) -> [u8; 3];

    /// Changes a block of pixels on the CPU, given as one array per channel. Default: calls `pixel`
    /// for each pixel. A formula overrides the default if it can compute the same values faster.
    #[inline(always)]
    fn block(params: &Self::Params, [r, g, b]: &mut [[u8; BLOCK]; 3]) {
        for at in 0..BLOCK {
            [r[at], g[at], b[at]] = Self::pixel(params, [r[at], g[at], b[at]]);
        }
    }
}

/// A function of a pixel's value and its position in the image.
///
/// The CPU computes many pixels at once if the compiler can vectorize `bytes` and `floats`. For
/// this, these functions and all functions that they call must be `#[inline(always)]`, and must
/// select values instead of branching.
pub trait PositionFormula: Sized + 'static {
    /// Parameters of one sample, with the same rules as [`ColourFormula::Params`].
    type Params: Pod + Serialize;
    /// CUDA implementation: a type with the function
    /// `static __device__ Bytes of(const Params& p, int x, int y, Bytes pixel)` if `BYTES` is set,
    /// and with the same function for `Floats3` if `FLOATS` is set.
    const CUDA: Option<Cuda>;
    /// Whether the formula accepts pixels of bytes.
    const BYTES: bool = true;
    /// Whether the formula accepts pixels of floats.
    const FLOATS: bool = false;

    /// Computes the new value of the pixel at column `x` of row `y`.
    fn bytes(params: &Self::Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
        let _ = (params, x, y);
        pixel
    }

    /// Computes the new value of the pixel at column `x` of row `y`.
    fn floats(params: &Self::Params, x: i32, y: i32, pixel: [f32; 3]) -> [f32; 3] {
        let _ = (params, x, y);
        pixel
    }

    /// Changes a row of pixels on the CPU. Default: computes each pixel. A formula overrides the
    /// default if it changes few pixels of a row, or if it can compute the same values faster.
    #[inline(always)]
    fn row<T: Channel>(params: &Self::Params, at: RowPosition, row: &mut [[T; 3]]) {
        at.map::<Self, T>(params, row);
    }
}

/// Type of a channel's value: a byte or a float.
pub trait Channel: Pod + Default {
    /// Computes the new value of the pixel at column `x` of row `y` by [`PositionFormula::bytes`]
    /// or [`PositionFormula::floats`].
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

/// Positions of a row's pixels in the image.
#[derive(Clone, Copy, Debug)]
pub struct RowPosition {
    /// Column of the first pixel.
    pub x: i32,
    /// Difference between the columns of two consecutive pixels: 1, or -1 in a mirrored row.
    pub step: i32,
    /// Row.
    pub y: i32,
}

impl RowPosition {
    /// Number of pixels that are computed at once.
    const BLOCK: usize = 32;

    /// Position of the rest of the row, from pixel number `place` on.
    #[inline(always)]
    pub fn from(self, place: usize) -> Self {
        Self { x: self.x + self.step * place as i32, ..self }
    }

    /// Range of the numbers of those pixels in a row that are in the columns `columns` of the
    /// image. The row has `len` pixels.
    #[inline(always)]
    pub fn places(self, columns: Range<i32>, len: usize) -> Range<usize> {
        let [start, end] = [columns.start, columns.end].map(i64::from);
        let x = i64::from(self.x);
        let [first, end] =
            if self.step == 1 { [start - x, end - x] } else { [x + 1 - end, x + 1 - start] };
        let [first, end] = [first, end].map(|place| place.clamp(0, len as i64) as usize);
        first..end.max(first)
    }

    /// Applies a formula to each pixel of a row. Works on blocks of pixels with one array per
    /// channel, because the compiler can then use vector instructions.
    #[inline(always)]
    pub fn map<F: PositionFormula, T: Channel>(self, params: &F::Params, row: &mut [[T; 3]]) {
        let mut last = [[T::default(); 3]; Self::BLOCK];
        for (number, pixels) in row.chunks_mut(Self::BLOCK).enumerate() {
            let (at, len) = (self.from(number * Self::BLOCK), pixels.len());
            // Whole and partial blocks share one call, because the compiler does not inline a long
            // formula twice.
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

    /// Changes a block of pixels. Pixels after number `last` are only padding.
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
            // Padding repeats the last column, so the formula receives no column outside the row.
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

/// A [`ColourFormula`] with its parameters.
struct Colour<'a, F: ColourFormula>(&'a F::Params);

impl<F: ColourFormula> PixelMap for Colour<'_, F> {
    #[inline(always)]
    fn change(&self, planes: &mut Planes) {
        F::block(self.0, planes);
    }
}

/// A row of pixels with its position, and the parameters of the formula that changes it.
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

/// Kind of the actions that compute pixels by one formula: a [`ColourFormula`] or a
/// [`PositionFormula`].
#[derive(Debug)]
#[non_exhaustive]
pub struct PixelKind {
    pub(super) facts: Facts,
    /// Whether the formula needs the position of the pixel.
    pub(crate) takes_position: bool,
    /// Changes a row of bytes. `None` if the formula does not accept bytes.
    pub(crate) bytes: Option<Row<u8>>,
    /// Changes a row of floats. `None` if the formula does not accept floats.
    pub(crate) floats: Option<Row<f32>>,
    /// Computes the new value of one pixel of bytes.
    byte_pixel: Pixel<u8>,
    /// Computes the new value of one pixel of floats.
    float_pixel: Pixel<f32>,
}

impl PixelKind {
    /// Kind of the actions that compute pixels by the colour formula `F`.
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

    /// Kind of the actions that compute pixels by the position formula `F`.
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
    /// Kind of the actions that compute pixels by the colour formula `F`.
    pub const fn colour<F: ColourFormula>() -> Self {
        Kind::Pixel(PixelKind::colour::<F>())
    }

    /// Kind of the actions that compute pixels by the position formula `F`.
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

    /// Calls the formula for each pixel.
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

/// Adds calls of the formula to the kernel's function `change`. `at` is C++ text: `x, y, ` if the
/// formula takes the position, else empty.
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

    /// Tests rows with whole and partial blocks, in mirrored and other images, and with different
    /// first columns.
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
