//! Pillow's `ImageFilter.GaussianBlur`, which some policies draw.

use bytemuck::{Pod, Zeroable};
use serde::Serialize;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image, PixelType};
use crate::op::kind::{ImageFormula, Movement};
use crate::op::wide::Instructions;
use crate::op::{Cuda, Draw, Wanted};
use crate::tensor::CHANNELS;

use formula::BoxBlur;

pub mod formula;

/// Formula of the blur: three passes of a box filter along each axis, which approximate a Gaussian.
pub enum BoxBlurred {}

/// Parameters of the blur of one sample.
#[derive(Clone, Copy, Debug, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    radius: u32,
    weight: u32,
    far: u32,
    width: u32,
    height: u32,
    unused: u32,
}

/// Adds a blur with a standard deviation of 0.1 to [`MAX_DEVIATION`] pixels.
pub fn draw(draw: &mut Draw<'_>, deviation: f64) {
    let BoxBlur { radius, weight, far } = BoxBlur::gaussian(deviation.min(MAX_DEVIATION) as f32);
    let size = draw.size();
    let Size { width, height } = size;
    let params = Params { radius, weight, far, width, height, unused: 0 };
    draw.image::<BoxBlurred>(&params, size);
}

/// Maximum standard deviation of the blur, in pixels.
pub const MAX_DEVIATION: f64 = 2.0;

/// Radius of the box filter for [`MAX_DEVIATION`]. The kernel has the same constant.
const MAX_RADIUS: usize = 1;

impl Params {
    fn filter(&self) -> BoxBlur {
        BoxBlur { radius: self.radius, weight: self.weight, far: self.far }
    }

    /// Window of the input that all passes together read for a window of the output.
    fn input(&self, Roi { x, y, width, height }: Roi) -> Roi {
        let halo = BoxBlur::PASSES as u32 * (self.radius + 1);
        let axis = |first: u32, len: u32, most: u32| {
            let end = (first + len + halo).min(most);
            let first = first.saturating_sub(halo);
            (first, end - first)
        };
        let ((x, width), (y, height)) = (axis(x, width, self.width), axis(y, height, self.height));
        Roi::new(x, y, width, height)
    }
}

type Pixel = [u8; CHANNELS];

impl ImageFormula for BoxBlurred {
    type Params = Params;
    const MOVEMENT: Movement = Movement::Nothing;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("BoxBlurred", include_str!("../../../../kernels/box_blur.cu")));

    fn pixels(input: PixelType) -> Option<PixelType> {
        (input == PixelType::U8).then_some(input)
    }

    fn demand(params: &mut Params, wanted: Wanted) -> Roi {
        params.input(wanted.output)
    }

    /// Runs all passes over the whole of `src`. The results are wrong near an edge of `src` that is
    /// not an edge of the image, but `out` has no pixels there.
    fn reference(params: &Params, src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("a blur takes bytes");
        };
        let (from, window) = (src.window(), out.window());
        let (width, height) = (from.width as usize, from.height as usize);
        let mut rows: Vec<Pixel> = src.data().as_chunks().0.to_vec();
        passes(&params.filter(), &mut rows, width);
        let mut columns: Vec<Pixel> =
            (0..width * height).map(|at| rows[at % height * width + at / height]).collect();
        passes(&params.filter(), &mut columns, height);
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                let (column, row) = ((x - from.x) as usize, (y - from.y) as usize);
                out.set_pixel(x, y, columns[column * height + row]);
            }
        }
    }

    /// Computes the output in strips of columns. When a row is read, it is first filtered along the
    /// row. The passes along the columns follow, and each of them stores only a few rows.
    fn apply(params: &Params, src: &HostImage, out: &mut HostImage) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("a blur takes bytes");
        };
        let window = out.window();
        for left in (window.x..window.right()).step_by(STRIP) {
            let width = (window.right() - left).min(STRIP as u32);
            strip(params, Roi { x: left, width, ..window }, src, out);
        }
    }
}

/// Runs all passes along lines of `len` pixels.
fn passes(filter: &BoxBlur, lines: &mut [Pixel], len: usize) {
    let mut before = vec![[0; CHANNELS]; len];
    for line in lines.chunks_exact_mut(len) {
        for _ in 0..BoxBlur::PASSES {
            before.copy_from_slice(line);
            filter.pass(&before, line);
        }
    }
}

/// Number of columns of a strip.
const STRIP: usize = 64;

/// Number of rows that a pass along columns reads to compute one row.
const ROWS: usize = 2 * MAX_RADIUS + 3;

/// State of one pass along the columns of a strip.
#[derive(Clone, Copy)]
struct Pass {
    /// The last input rows. Row `y` is at index `y % ROWS`.
    rows: [[Pixel; STRIP]; ROWS],
    /// Next row that this pass computes.
    next: u32,
}

/// All passes along the columns of a strip.
struct Passes {
    filter: BoxBlur,
    /// First row that is read. `last` is the last one.
    first: u32,
    last: u32,
    passes: [Pass; BoxBlur::PASSES],
}

/// Computes the columns and rows `wanted` of the output.
fn strip(params: &Params, wanted: Roi, src: &Image<u8>, out: &mut Image<u8>) {
    /// Number of pixels on each side that one pass reads for a value.
    const REACH: usize = MAX_RADIUS + 1;
    const LINE: usize = STRIP + 2 * (BoxBlur::PASSES + 1) * REACH;
    let (filter, read) = (params.filter(), params.input(wanted));
    let width = read.width as usize;
    let (mut line, mut filtered) = ([[0; CHANNELS]; LINE], [[0; CHANNELS]; LINE]);
    let (line, filtered) = (&mut line[..width + 2 * REACH], &mut filtered[..width]);
    let pass = Pass { rows: [[[0; CHANNELS]; STRIP]; ROWS], next: read.y };
    let passes = [pass; BoxBlur::PASSES];
    let mut passes = Passes { filter, first: read.y, last: read.bottom() - 1, passes };
    let mut put = |y: u32, row: &[Pixel; STRIP]| {
        if (wanted.y..wanted.bottom()).contains(&y) {
            let left = (wanted.x - out.window().x) as usize;
            let to = &mut out.row_mut(y).as_chunks_mut().0[left..][..wanted.width as usize];
            to.copy_from_slice(&row[..wanted.width as usize]);
        }
    };
    for y in read.y..read.bottom() {
        let from = (read.x - src.window().x) as usize;
        filtered.copy_from_slice(&src.row(y).as_chunks().0[from..][..width]);
        for _ in 0..BoxBlur::PASSES {
            // Beyond an edge, the pixel at the edge is repeated.
            line[..REACH].fill(filtered[0]);
            line[REACH..][..width].copy_from_slice(filtered);
            line[REACH + width..].fill(filtered[width - 1]);
            let taps = [0, 1, 2, 3, 4].map(|first| line[first..][..width].as_flattened());
            filter.values(taps, filtered.as_flattened_mut(), Instructions::here());
        }
        let mut row = [[0; CHANNELS]; STRIP];
        let inner = &filtered[(wanted.x - read.x) as usize..][..wanted.width as usize];
        row[..inner.len()].copy_from_slice(inner);
        passes.push(0, y, &row, &mut put);
    }
}

impl Passes {
    /// Adds row `y` to the input of pass number `number`, and computes all rows that this makes
    /// possible. The next pass receives these rows. After the last pass, `put` receives them.
    fn push(
        &mut self,
        number: usize,
        y: u32,
        row: &[Pixel; STRIP],
        put: &mut impl FnMut(u32, &[Pixel; STRIP]),
    ) {
        let Some(pass) = self.passes.get_mut(number) else { return put(y, row) };
        pass.rows[y as usize % ROWS] = *row;
        let ready = match y == self.last {
            true => y + 1,
            false => (y + 1).saturating_sub(self.filter.radius + 1),
        };
        while self.passes[number].next < ready {
            let next = self.passes[number].next;
            let result = self.row(number, next);
            self.passes[number].next += 1;
            self.push(number + 1, next, &result, put);
        }
    }

    /// Computes row `y` of the result of pass number `number`.
    fn row(&self, number: usize, y: u32) -> [Pixel; STRIP] {
        let rows = &self.passes[number].rows;
        // Beyond an edge, the row at the edge is repeated.
        let row = |y: i64| {
            rows[y.clamp(self.first.into(), self.last.into()) as usize % ROWS].as_flattened()
        };
        let taps = [-2, -1, 0, 1, 2].map(|distance| row(i64::from(y) + distance));
        let mut out = [[0; CHANNELS]; STRIP];
        self.filter.values(taps, out.as_flattened_mut(), Instructions::here());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_deviation_has_the_largest_radius() {
        assert_eq!(BoxBlur::gaussian(MAX_DEVIATION as f32).radius as usize, MAX_RADIUS);
    }
}
