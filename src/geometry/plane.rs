//! Projective transforms of positions.

use super::{Axis, BoundingBox, Orientation, Size};

/// Projective transform of positions. The centre of an image's first pixel is at 0.5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plane([f64; 9]);

/// Minimum divisor (third homogeneous coordinate) of a visible point. A point with a smaller
/// divisor is behind or beside the viewer.
const NEAREST: f64 = 1e-6;

impl Plane {
    /// Identity transform.
    pub const IDENTITY: Self = Self([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);

    /// Creates a transform to `(m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5])`, divided by
    /// `m[6] x + m[7] y + m[8]`.
    pub const fn new(matrix: [f64; 9]) -> Self {
        Self(matrix)
    }

    /// Creates a transform to `(m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5])`.
    pub const fn affine([a, b, c, d, e, f]: [f64; 6]) -> Self {
        Self([a, b, c, d, e, f, 0.0, 0.0, 1.0])
    }

    /// Returns the transform from the upright image to the stored image, which has size `stored`.
    pub fn stored(orientation: Orientation, stored: Size) -> Self {
        let upright = orientation.upright_size(stored);
        let axis =
            |mirror: bool, len: u32| if mirror { (-1.0, f64::from(len)) } else { (1.0, 0.0) };
        let (x, from_x) = axis(orientation.mirror_x, upright.width);
        let (y, from_y) = axis(orientation.mirror_y, upright.height);
        match orientation.transpose {
            true => Self::affine([0.0, y, from_y, x, 0.0, from_x]),
            false => Self::affine([x, 0.0, from_x, 0.0, y, from_y]),
        }
    }

    /// Returns the nine coefficients, row by row.
    pub fn matrix(&self) -> [f64; 9] {
        self.0
    }

    /// Transforms a point. Returns `None` for points on or behind the line at infinity.
    pub fn point(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let [x, y, divisor] = self.homogeneous(x, y);
        (divisor >= NEAREST).then(|| (x / divisor, y / divisor))
    }

    /// Returns the smallest box around the transformed box. Only the part in front of the line at
    /// infinity counts. Returns `None` if there is no such part.
    pub fn bounding_box(&self, of: &BoundingBox) -> Option<BoundingBox> {
        let BoundingBox { left, top, right, bottom } = *of;
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
        let corners = corners.map(|(x, y)| self.homogeneous(x, y));
        let mut around: Option<BoundingBox> = None;
        let mut add = |[x, y, divisor]: [f64; 3]| {
            let (x, y) = (x / divisor, y / divisor);
            around = Some(around.map_or(BoundingBox::new(x, y, 0.0, 0.0), |it| BoundingBox {
                left: it.left.min(x),
                top: it.top.min(y),
                right: it.right.max(x),
                bottom: it.bottom.max(y),
            }));
        };
        for (number, corner) in corners.into_iter().enumerate() {
            let next = corners[(number + 1) % 4];
            if corner[2] >= NEAREST {
                add(corner);
            }
            if (corner[2] >= NEAREST) != (next[2] >= NEAREST) {
                let share = (NEAREST - corner[2]) / (next[2] - corner[2]);
                add([0, 1, 2].map(|at| match at {
                    2 => NEAREST,
                    _ => corner[at] + (next[at] - corner[at]) * share,
                }));
            }
        }
        around
    }

    /// Returns the inverse transform, or `None` if the transform cannot be inverted.
    pub fn inverse(&self) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, i] = self.0;
        let [p, q, r] = [e * i - f * h, c * h - b * i, b * f - c * e];
        let determinant = a * p + d * q + g * r;
        let all = [
            [p, q, r],
            [f * g - d * i, a * i - c * g, c * d - a * f],
            [d * h - e * g, b * g - a * h, a * e - b * d],
        ];
        let inverse = all.as_flattened().iter().map(|it| it / determinant);
        let mut matrix = [0.0; 9];
        for (place, value) in matrix.iter_mut().zip(inverse) {
            *place = value;
        }
        matrix.iter().all(|it| it.is_finite()).then_some(Self(matrix))
    }

    /// Returns this transform followed by a transform of each axis.
    pub(super) fn then(&self, x: Axis, y: Axis) -> Self {
        let [a, b, c, d, e, f, g, h, i] = self.0;
        let column = |value: f64, divisor: f64| value * x.scale + divisor * x.offset;
        let row = |value: f64, divisor: f64| value * y.scale + divisor * y.offset;
        Self([column(a, g), column(b, h), column(c, i), row(d, g), row(e, h), row(f, i), g, h, i])
    }

    fn homogeneous(&self, x: f64, y: f64) -> [f64; 3] {
        let [a, b, c, d, e, f, g, h, i] = self.0;
        [a * x + b * y + c, d * x + e * y + f, g * x + h * y + i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_moves_points_back() {
        let plane = Plane::new([1.5, 0.2, 3.0, -0.1, 0.8, 5.0, 0.001, -0.002, 1.0]);
        let (x, y) = plane.point(30.0, 20.0).unwrap();
        let (x, y) = plane.inverse().unwrap().point(x, y).unwrap();
        assert!((x - 30.0).abs() < 1e-9 && (y - 20.0).abs() < 1e-9);
        assert_eq!(Plane::affine([1.0, 2.0, 0.0, 2.0, 4.0, 0.0]).inverse(), None);
    }

    #[test]
    fn a_box_across_the_line_at_infinity_stays_finite() {
        // The transform divides by 1 - 0.1 x, which is 0 at x = 10.
        let plane = Plane::new([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -0.1, 0.0, 1.0]);
        assert_eq!(plane.point(10.0, 5.0), None);
        assert_eq!(plane.point(11.0, 5.0), None);
        let around = plane.bounding_box(&BoundingBox::new(5.0, 1.0, 20.0, 2.0)).unwrap();
        assert_eq!((around.left, around.top), (10.0, 2.0));
        assert!(around.right > 1e6 && around.right.is_finite());
        assert_eq!(plane.bounding_box(&BoundingBox::new(11.0, 1.0, 20.0, 2.0)), None);
    }

    #[test]
    fn orientations_are_planes() {
        let stored = Size::new(7, 5);
        for value in 1..=8 {
            let orientation = Orientation::from_exif(value);
            let plane = Plane::stored(orientation, stored);
            let (x, y) = orientation.upright_point(stored, 2.5, 4.25);
            assert_eq!(plane.point(x, y), Some((2.5, 4.25)), "orientation {value}");
        }
    }
}
