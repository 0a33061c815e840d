//! Formulas of `perspective` and `random_perspective`: torchvision's `perspective` on PIL images.

use crate::geometry::Size;
use crate::random::SampleRng;

/// Corners of a quadrilateral as `[column, row]` in pixels: upper left, upper right, lower right,
/// lower left.
pub type Corners = [[i32; 2]; 4];

/// Largest coordinate for which the coefficients are computed exactly, in i128. Larger coordinates
/// could overflow, so f64 is used for them.
const LARGEST_EXACT: i32 = 4096;

/// Corners of an image as in torchvision: column and row of each corner pixel, counted from 0.
pub fn corners(size: Size) -> Corners {
    let (right, bottom) = (size.width as i32 - 1, size.height as i32 - 1);
    [[0, 0], [right, 0], [right, bottom], [0, bottom]]
}

/// Coefficients for which [`Warp::perspective`](crate::op::warp::Warp::perspective) moves the
/// points `start` of the input to the points `end` of the output: `_get_perspective_coeffs` of
/// torchvision (`torchvision/transforms/functional.py`).
///
/// torchvision solves eight equations by least squares in f64 and rounds the solution to f32. For
/// coordinates up to 4096, feedwater solves them exactly and then rounds to f32. The coefficients
/// are equal with two exceptions: torchvision's error can round a value to the neighbouring f32,
/// and where a coefficient is 0, torchvision can have a value below 1e-12. Corners that span no
/// quadrilateral give the identity.
pub fn coefficients(start: &Corners, end: &Corners) -> [f64; 8] {
    let largest = start.iter().chain(end).flatten().map(|it| it.unsigned_abs()).max();
    let [all @ .., last] = if largest <= Some(LARGEST_EXACT as u32) {
        homography(&end.map(|it| it.map(i128::from)), &start.map(|it| it.map(i128::from)))
            .map(|it| it as f64)
    } else {
        homography(&end.map(|it| it.map(f64::from)), &start.map(|it| it.map(f64::from)))
    };
    if last == 0.0 || !all.iter().chain([&last]).all(|it| it.is_finite()) {
        return [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
    }
    all.map(|it| f64::from((it / last) as f32))
}

/// Draws the four corners of torchvision's `RandomPerspective`. Each corner moves inwards by at
/// most `distortion` (0 to 1) times half the side. Corners are drawn in torchvision's order: upper
/// left, upper right, lower right, lower left; x before y.
pub fn draw(size: Size, distortion: f64, rng: &mut SampleRng) -> Corners {
    let bound = |side: u32| (distortion * f64::from(side / 2)) as u64 + 1;
    let mut inwards = |side: u32| rng.below(bound(side)) as i32;
    let [width, height] = [size.width as i32, size.height as i32];
    let mut corner = |right: bool, below: bool| {
        let (x, y) = (inwards(size.width), inwards(size.height));
        [if right { width - 1 - x } else { x }, if below { height - 1 - y } else { y }]
    };
    [corner(false, false), corner(true, false), corner(true, true), corner(false, true)]
}

/// Matrix, in row-major order, that maps the corners `from` to the corners `to`, up to a common
/// factor. `basis` writes a quadrilateral as a matrix of its first three points, scaled so that
/// their sum is the fourth point.
fn homography<T: Number>(from: &[[T; 2]; 4], to: &[[T; 2]; 4]) -> [T; 9] {
    let (from, to) = (basis(from), basis(to));
    let inverse = adjugate(&from);
    let mut product = [from[0]; 9];
    for (number, place) in product.iter_mut().enumerate() {
        let (row, column) = (number / 3, number % 3);
        let term = |k: usize| to[3 * row + k] * inverse[3 * k + column];
        *place = term(0) + term(1) + term(2);
    }
    product
}

fn basis<T: Number>([a, b, c, d]: &[[T; 2]; 4]) -> [T; 9] {
    // `area` returns twice the signed area of a triangle. The areas `u`, `v` and `w` are the
    // weights with which the first three points add up to the fourth, up to a common factor.
    let area = |p: &[T; 2], q: &[T; 2], r: &[T; 2]| {
        (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])
    };
    let (u, v, w) = (area(d, b, c), area(a, d, c), area(a, b, d));
    [u * a[0], v * b[0], w * c[0], u * a[1], v * b[1], w * c[1], u, v, w]
}

fn adjugate<T: Number>(m: &[T; 9]) -> [T; 9] {
    let minor = |a: usize, b: usize, c: usize, d: usize| m[a] * m[d] - m[b] * m[c];
    [
        minor(4, 5, 7, 8),
        minor(2, 1, 8, 7),
        minor(1, 2, 4, 5),
        minor(5, 3, 8, 6),
        minor(0, 2, 6, 8),
        minor(2, 0, 5, 3),
        minor(3, 4, 6, 7),
        minor(1, 0, 7, 6),
        minor(0, 1, 3, 4),
    ]
}

trait Number:
    Copy + std::ops::Add<Output = Self> + std::ops::Sub<Output = Self> + std::ops::Mul<Output = Self>
{
}
impl Number for i128 {}
impl Number for f64 {}
