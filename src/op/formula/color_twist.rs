//! `color_twist`: brightness, contrast, saturation and hue as one linear map.

use bytemuck::{Pod, Zeroable};

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Weights of red, green and blue in each channel of the output.
    pub matrix: [[f32; 3]; 3],
    /// Added to each channel.
    pub offset: f32,
}

impl Params {
    /// DALI's `color_twist` (`color_twist.h`): rotates the hue by `hue` degrees and scales the saturation in YIQ, then
    /// scales the contrast around 128, then the brightness. The matrix is computed in f64 and rounded.
    pub fn new(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Self {
        let turn = hue.to_radians();
        let (sin, cos) = (saturation * libm::sin(turn), saturation * libm::cos(turn));
        let twist = [[1.0, 0.0, 0.0], [0.0, cos, sin], [0.0, -sin, cos]];
        let matrix = product(&product(&inverse(&RGB_TO_YIQ), &twist), &RGB_TO_YIQ);
        let scale = brightness * contrast;
        Self {
            matrix: matrix.map(|row| row.map(|weight| (scale * weight) as f32)),
            offset: ((128.0 - 128.0 * contrast) * brightness) as f32,
        }
    }
}

/// The linear map in f32, cut to 0..=255 and rounded half to even. DALI sums in another order, so single pixels
/// differ by one level.
#[inline(always)]
pub fn pixel(params: &Params, [r, g, b]: [u8; 3]) -> [u8; 3] {
    let [r, g, b] = [f32::from(r), f32::from(g), f32::from(b)];
    params.matrix.map(|row| {
        let value = row[0] * r + row[1] * g + row[2] * b + params.offset;
        let cut = value.clamp(0.0, 255.0);
        // At this size f32 has no fraction bits: the addition rounds.
        ((cut + ROUNDS) - ROUNDS) as u8
    })
}

const ROUNDS: f32 = 12_582_912.0;

type Matrix = [[f64; 3]; 3];

const RGB_TO_YIQ: Matrix = [[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]];

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    a.map(|row| [0, 1, 2].map(|column| (0..3).map(|at| row[at] * b[at][column]).sum()))
}

/// Adjugate divided by the determinant.
fn inverse(m: &Matrix) -> Matrix {
    let minor = |row: usize, column: usize| {
        let [r0, r1] = [(row + 1) % 3, (row + 2) % 3];
        let [c0, c1] = [(column + 1) % 3, (column + 2) % 3];
        m[r0][c0] * m[r1][c1] - m[r0][c1] * m[r1][c0]
    };
    let determinant: f64 = (0..3).map(|column| m[0][column] * minor(0, column)).sum();
    [0, 1, 2].map(|row| [0, 1, 2].map(|column| minor(column, row) / determinant))
}
