//! Formulas of `rotate` and `random_rotation`: torchvision's `rotate` on PIL images, which is
//! `Image.rotate` of Pillow 12.3 (`src/PIL/Image.py`).

use std::io::Write;

use crate::geometry::{Orientation, Size};
use crate::random::SampleRng;

use crate::op::warp::{Interpolation, Warp};

/// Rotates counter-clockwise by `angle` degrees around `center`, which is in pixels from the upper
/// left corner (`None`: the centre of the image). Returns the size of the output and its warp.
///
/// With `expand`, the output is as large as the rotated image, otherwise as large as the input. A
/// rotation by a multiple of 90 degrees around the centre of the image needs no interpolation if
/// the output has the shape of the rotated image.
///
/// The cosine and sine in the matrix are rounded to 15 digits after the point, as in Pillow.
pub fn rotate(
    input: Size,
    angle: f64,
    expand: bool,
    center: Option<[f64; 2]>,
    interpolation: Interpolation,
    fill: [u8; 3],
) -> (Size, Warp) {
    let angle = angle.rem_euclid(360.0);
    if let Some(orientation) = turn(input, angle, expand).filter(|_| center.is_none()) {
        return (orientation.upright_size(input), Warp::turn(input, orientation));
    }
    let (mut width, mut height) = (f64::from(input.width), f64::from(input.height));
    let [cx, cy] = center.unwrap_or([width / 2.0, height / 2.0]);
    let radians = -(angle * (std::f64::consts::PI / 180.0));
    let (cos, sin) = (rounded(libm::cos(radians)), rounded(libm::sin(radians)));
    let mut matrix = [cos, sin, 0.0, rounded(-libm::sin(radians)), cos, 0.0];
    let (x, y) = mapped(&matrix, -cx, -cy);
    (matrix[2], matrix[5]) = (x + cx, y + cy);
    if expand {
        let corners = [(0.0, 0.0), (width, 0.0), (width, height), (0.0, height)];
        let corners = corners.map(|(x, y)| mapped(&matrix, x, y));
        let (new_width, new_height) =
            (extent(corners.map(|it| it.0)), extent(corners.map(|it| it.1)));
        (matrix[2], matrix[5]) =
            mapped(&matrix, -(new_width - width) / 2.0, -(new_height - height) / 2.0);
        (width, height) = (new_width, new_height);
    }
    let output = Size::new(width as u32, height as u32);
    (output, Warp::affine(input, output, matrix, interpolation, fill))
}

/// Draws the angle of torchvision's `RandomRotation`: uniform in `degrees`.
pub fn draw(degrees: [f64; 2], rng: &mut SampleRng) -> f64 {
    rng.between(degrees[0], degrees[1])
}

/// Quarter turns and mirroring that have the same effect as the rotation. `None` if the rotation
/// needs interpolation.
fn turn(input: Size, angle: f64, expand: bool) -> Option<Orientation> {
    let square = input.width == input.height;
    let turned =
        |transpose, mirror_x, mirror_y| Some(Orientation { transpose, mirror_x, mirror_y });
    match angle {
        0.0 => turned(false, false, false),
        180.0 => turned(false, true, true),
        90.0 if expand || square => turned(true, false, true),
        270.0 if expand || square => turned(true, true, false),
        _ => None,
    }
}

/// Python's `round(value, 15)`, for numbers from -1 to 1.
fn rounded(value: f64) -> f64 {
    let mut text = [0; "-0.123456789012345".len()];
    let mut rest = &mut text[..];
    if write!(rest, "{value:.15}").is_err() {
        return value;
    }
    let unused = rest.len();
    let text = std::str::from_utf8(&text[..text.len() - unused]);
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(value)
}

fn mapped(matrix: &[f64; 6], x: f64, y: f64) -> (f64, f64) {
    let [a, b, c, d, e, f] = matrix;
    (a * x + b * y + c, d * x + e * y + f)
}

/// Length from the smallest coordinate, rounded down, to the largest, rounded up.
fn extent(of: [f64; 4]) -> f64 {
    let (low, high) = of
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(*it), high.max(*it)));
    high.ceil() - low.floor()
}
