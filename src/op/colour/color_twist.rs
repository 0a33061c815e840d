//! `color_twist`: brightness, contrast, saturation and hue as one linear map.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::ColourFormula;
use crate::op::settings::{check_pair, drawn, needs_colours, one_or_each};
use crate::op::shared::pillow_blend::MAX_FACTOR;
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Changes brightness, contrast, saturation and hue by one linear map of each pixel: DALI's
/// `color_twist`. DALI computes the matrix in f32 and feedwater in f64, so a byte may differ by one
/// level where the exact value is halfway between two levels.
///
/// Each setting is one number, or a range `[low, high]` from which the number is drawn uniformly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ColorTwist {
    /// Brightness factor: 0 gives black. Default 1.
    #[serde(deserialize_with = "one_or_each")]
    pub brightness: [f64; 2],
    /// Contrast factor: 0 gives the gray 128. Default 1.
    #[serde(deserialize_with = "one_or_each")]
    pub contrast: [f64; 2],
    /// Saturation factor: 0 gives the gray image. Default 1.
    #[serde(deserialize_with = "one_or_each")]
    pub saturation: [f64; 2],
    /// Hue rotation in degrees, -360 to 360. Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub hue: [f64; 2],
}

impl Default for ColorTwist {
    fn default() -> Self {
        Self { brightness: [1.0; 2], contrast: [1.0; 2], saturation: [1.0; 2], hue: [0.0; 2] }
    }
}

impl Operator for ColorTwist {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::colour::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let [brightness, contrast, saturation, hue] =
            [self.brightness, self.contrast, self.saturation, self.hue]
                .map(|range| drawn(range, draw.rng()));
        draw.colour::<Self>(&Params::new(brightness, contrast, saturation, hue));
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("brightness", self.brightness, 0.0, MAX_FACTOR)?;
        check_pair("contrast", self.contrast, 0.0, MAX_FACTOR)?;
        check_pair("saturation", self.saturation, 0.0, MAX_FACTOR)?;
        check_pair("hue", self.hue, -360.0, 360.0)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        needs_colours(Self::NAME, input)
    }
}

impl BuiltIn for ColorTwist {
    const NAME: &'static str = "color_twist";

    fn examples() -> Vec<Self> {
        vec![
            Self::default(),
            Self { hue: [-45.0, 45.0], saturation: [0.5, 1.5], ..Self::default() },
            Self { brightness: [2.0; 2], contrast: [0.3; 2], hue: [120.0; 2], ..Self::default() },
        ]
    }
}

impl ColourFormula for ColorTwist {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("ColorTwist", include_str!("../../../kernels/color_twist.cu")));

    /// Applies the linear map in f32, clamps the result to 0..=255 and rounds half to even. DALI
    /// computes its matrix in f32, which differs in the last bits, so a value halfway between two
    /// levels may become the other level.
    #[inline(always)]
    fn pixel(params: &Params, [r, g, b]: [u8; 3]) -> [u8; 3] {
        let [r, g, b] = [f32::from(r), f32::from(g), f32::from(b)];
        let channel = |row: [f32; 3]| {
            let value = row[0] * r + row[1] * g + row[2] * b + params.offset;
            let cut = value.clamp(0.0, 255.0);
            // f32 numbers as large as `ROUNDS` (1.5 * 2^23) have no fraction bits, so the addition
            // rounds.
            (cut + ROUNDS).to_bits() as u8
        };
        params.matrix.map(channel)
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Weights of red, green and blue, one row for each channel of the output.
    pub matrix: [[f32; 3]; 3],
    /// Offset that is added to each channel, in levels of a byte.
    pub offset: f32,
}

impl Params {
    /// Parameters of DALI's `color_twist` (`color_twist.h`). The operator rotates the hue by `hue`
    /// degrees and scales the saturation in YIQ, then scales the contrast around 128, then the
    /// brightness. The matrix is computed in f64 and rounded to f32.
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

const ROUNDS: f32 = 12_582_912.0;

type Matrix = [[f64; 3]; 3];

const RGB_TO_YIQ: Matrix = [[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]];

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    a.map(|row| [0, 1, 2].map(|column| (0..3).map(|at| row[at] * b[at][column]).sum()))
}

/// Inverse of a matrix: the adjugate divided by the determinant.
fn inverse(m: &Matrix) -> Matrix {
    let minor = |row: usize, column: usize| {
        let [r0, r1] = [(row + 1) % 3, (row + 2) % 3];
        let [c0, c1] = [(column + 1) % 3, (column + 2) % 3];
        m[r0][c0] * m[r1][c1] - m[r0][c1] * m[r1][c0]
    };
    let determinant: f64 = (0..3).map(|column| m[0][column] * minor(0, column)).sum();
    [0, 1, 2].map(|row| [0, 1, 2].map(|column| minor(column, row) / determinant))
}
