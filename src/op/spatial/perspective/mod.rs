//! `perspective`: moves the corners of the image.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::settings::{equal_values, one_or_each};
use crate::op::warp::Warp;
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

use formula::{Corners, coefficients, corners};

pub mod formula;

/// Maps four points of the input to four points of the output: torchvision's `perspective` on PIL
/// images (`torchvision/transforms/_functional_pil.py`). The output has the size of the input.
///
/// With the same coefficients, pixels equal torchvision's. torchvision computes the coefficients
/// with LAPACK's least-squares solver and rounds them to f32. feedwater solves the equations
/// exactly for coordinates up to 4096 before it rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perspective {
    /// Points of the input as `[column, row]` in pixels: upper left, upper right, lower right,
    /// lower left. Default: the centres of the corner pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Corners>,
    /// Points of the output to which the points of the input move, in the same order.
    pub end: Corners,
    /// Interpolation between pixels. Default bilinear.
    #[serde(default = "bilinear")]
    pub interpolation: Interpolation,
    /// Fill colour outside of the image: red, green and blue. In TOML, one number sets all three.
    /// Default 0.
    #[serde(default, deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

/// Default interpolation of the perspective operators.
pub(super) fn bilinear() -> Interpolation {
    Interpolation::Bilinear
}

/// Warp of an image of size `input` that moves the points `start` to the points `end`.
pub(super) fn warp(
    input: Size,
    start: Option<Corners>,
    end: &Corners,
    interpolation: Interpolation,
    fill: [u8; 3],
) -> Warp {
    let start = start.unwrap_or_else(|| corners(input));
    Warp::perspective(input, coefficients(&start, end), interpolation, fill)
}

/// Largest absolute coordinate of a point, in pixels.
const FARTHEST: i32 = 32_767;

impl Operator for Perspective {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn interpolation(&self) -> Option<(&'static str, bool)> {
        Some(("interpolation", self.interpolation == Interpolation::Nearest))
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Warp])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let input = draw.size();
        draw.warp(warp(input, self.start, &self.end, self.interpolation, self.fill), input);
    }

    fn check(&self) -> Result<(), FieldError> {
        let points = [("start", self.start), ("end", Some(self.end))];
        for (name, points) in points {
            let Some(points) = points else { continue };
            for (number, point) in points.iter().enumerate() {
                let far = point.iter().find(|at| at.unsigned_abs() > FARTHEST as u32);
                if let Some(at) = far {
                    let problem = format!("must be from -{FARTHEST} to {FARTHEST}, is {at}");
                    return Err(FieldError::new(format!("{name}[{number}]"), problem));
                }
            }
            if (0..4).any(|corner| is_flat(&points, corner)) {
                let problem = "has three points on one line".to_string();
                return Err(FieldError::new(name, problem));
            }
        }
        Ok(())
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

/// Whether a corner of `points` and its two neighbours are on one line.
fn is_flat(points: &Corners, corner: usize) -> bool {
    let [a, b, c] = [3, 0, 1].map(|next| points[(corner + next) % 4].map(i64::from));
    (b[0] - a[0]) * (c[1] - a[1]) == (b[1] - a[1]) * (c[0] - a[0])
}

impl BuiltIn for Perspective {
    const NAME: &'static str = "perspective";

    fn examples() -> Vec<Self> {
        let end = [[3, 2], [20, 0], [24, 17], [-2, 12]];
        let base = Self { start: None, end, interpolation: bilinear(), fill: [0; 3] };
        vec![
            base,
            Self { interpolation: Interpolation::Nearest, fill: [9, 8, 7], ..base },
            Self {
                start: Some([[0, 0], [10, 1], [12, 9], [1, 8]]),
                interpolation: Interpolation::Bicubic,
                ..base
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_must_span_a_quadrilateral() {
        let op = Perspective::examples()[0];
        assert_eq!(op.check(), Ok(()));
        let flat = Perspective { end: [[0, 0], [5, 5], [9, 9], [0, 7]], ..op };
        assert_eq!(flat.check().unwrap_err().field, "end");
        let far = Perspective { start: Some([[0, 0], [9, 0], [9, 40_000], [0, 9]]), ..op };
        assert_eq!(far.check().unwrap_err().field, "start[2]");
    }
}
