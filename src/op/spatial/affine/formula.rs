//! Formulas of the operators `affine` and `random_affine`: torchvision's `affine` on PIL images
//! (`_affine_image_pil` and `_get_inverse_affine_matrix` of
//! `torchvision/transforms/v2/functional/_geometry.py`).

use crate::geometry::Size;
use crate::random::SampleRng;

use crate::op::warp::{Interpolation, Warp};

/// Parameters of an affine transform: rotation, shear and scale around the centre, then
/// translation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Rotation in degrees, clockwise.
    pub angle: f64,
    /// Translation in pixels, to the right and down.
    pub translate: [f64; 2],
    /// Scale factor, above 0.
    pub scale: f64,
    /// Shear angles in degrees, parallel to the x axis and to the y axis.
    pub shear: [f64; 2],
    /// Centre in pixels from the upper left corner. `None` is the centre of the image.
    pub center: Option<[f64; 2]>,
}

impl Affine {
    /// Parameters that leave the image unchanged.
    pub const IDENTITY: Self =
        Self { angle: 0.0, translate: [0.0; 2], scale: 1.0, shear: [0.0; 2], center: None };

    /// Warp with these parameters. The output has the size of the input.
    pub fn warp(&self, input: Size, interpolation: Interpolation, fill: [u8; 3]) -> Warp {
        Warp::affine(input, input, self.inverse(input), interpolation, fill)
    }

    /// Matrix, in row-major order, that maps positions of the output to positions of the input.
    pub fn inverse(&self, input: Size) -> [f64; 6] {
        let ([a, b, c, d], [cx, cy], [to_x, to_y]) = self.parts(input);
        let m = [d / self.scale, -b / self.scale, 0.0, -c / self.scale, a / self.scale, 0.0];
        let x = m[2] + (cx - m[0] * to_x - m[1] * to_y);
        let y = m[5] + (cy - m[3] * to_x - m[4] * to_y);
        [m[0], m[1], x, m[3], m[4], y]
    }

    /// Matrix, in row-major order, that maps positions of the input to positions of the output.
    pub fn forward(&self, input: Size) -> [f64; 6] {
        let ([a, b, c, d], [cx, cy], [to_x, to_y]) = self.parts(input);
        let m = [a, b, c, d].map(|it| it * self.scale);
        let (x, y) = (to_x - m[0] * cx - m[1] * cy, to_y - m[2] * cx - m[3] * cy);
        [m[0], m[1], x, m[2], m[3], y]
    }

    /// Returns the 2x2 matrix of rotation and shear, the centre, and the centre after the
    /// translation.
    fn parts(&self, input: Size) -> ([f64; 4], [f64; 2], [f64; 2]) {
        let radians = |degrees: f64| degrees * (std::f64::consts::PI / 180.0);
        let (turn, [sx, sy]) = (radians(self.angle), self.shear.map(radians));
        let (cos_sy, tan_sx) = (libm::cos(sy), libm::tan(sx));
        let a = libm::cos(turn - sy) / cos_sy;
        let b = -(a * tan_sx + libm::sin(turn));
        let c = libm::sin(turn - sy) / cos_sy;
        let d = libm::cos(turn) - c * tan_sx;
        let middle = [f64::from(input.width) * 0.5, f64::from(input.height) * 0.5];
        let center = self.center.unwrap_or(middle);
        let moved = [center[0] + self.translate[0], center[1] + self.translate[1]];
        ([a, b, c, d], center, moved)
    }
}

/// Ranges from which torchvision's `RandomAffine` draws its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranges {
    /// Smallest and largest rotation in degrees.
    pub degrees: [f64; 2],
    /// Largest translation in each direction, as a fraction of width and height, 0 to 1.
    pub translate: Option<[f64; 2]>,
    /// Smallest and largest scale factor.
    pub scale: Option<[f64; 2]>,
    /// Smallest and largest shear angle parallel to the x axis, in degrees.
    pub shear_x: Option<[f64; 2]>,
    /// Smallest and largest shear angle parallel to the y axis, in degrees.
    pub shear_y: Option<[f64; 2]>,
}

impl Ranges {
    /// Draws parameters in the order of `RandomAffine`: angle, translation, scale, shears. A
    /// translation is uniform and then rounded to whole pixels, ties to even. A parameter without a
    /// range takes no random number.
    pub fn draw(&self, input: Size, rng: &mut SampleRng) -> Affine {
        let angle = rng.between(self.degrees[0], self.degrees[1]);
        let sides = [f64::from(input.width), f64::from(input.height)];
        let translate = self.translate.map_or([0.0; 2], |most| {
            [0, 1].map(|axis| {
                let most = most[axis] * sides[axis];
                rng.between(-most, most).round_ties_even()
            })
        });
        let mut drawn = |range: Option<[f64; 2]>, otherwise| {
            range.map_or(otherwise, |[low, high]| rng.between(low, high))
        };
        let scale = drawn(self.scale, 1.0);
        let shear = [drawn(self.shear_x, 0.0), drawn(self.shear_y, 0.0)];
        Affine { angle, translate, scale, shear, center: None }
    }
}

/// Shears and translations of torchvision's policies `auto_augment`, `rand_augment`,
/// `trivial_augment_wide` and `aug_mix` (`_apply_image_or_video_transform` of
/// `torchvision/transforms/v2/_auto_augment.py`).
pub mod policy {
    use super::Affine;

    /// Shear parallel to the x axis by `magnitude` pixels per row. The upper left corner stays
    /// fixed.
    pub fn shear_x(magnitude: f64) -> Affine {
        Affine { shear: [degrees(magnitude), 0.0], center: Some([0.0; 2]), ..Affine::IDENTITY }
    }

    /// Shear parallel to the y axis by `magnitude` pixels per column. The upper left corner stays
    /// fixed.
    pub fn shear_y(magnitude: f64) -> Affine {
        Affine { shear: [0.0, degrees(magnitude)], center: Some([0.0; 2]), ..Affine::IDENTITY }
    }

    /// Translation to the right by whole pixels: `magnitude` without its fraction.
    pub fn translate_x(magnitude: f64) -> Affine {
        Affine { translate: [magnitude.trunc(), 0.0], ..Affine::IDENTITY }
    }

    /// Translation down by whole pixels: `magnitude` without its fraction.
    pub fn translate_y(magnitude: f64) -> Affine {
        Affine { translate: [0.0, magnitude.trunc()], ..Affine::IDENTITY }
    }

    fn degrees(magnitude: f64) -> f64 {
        libm::atan(magnitude) * (180.0 / std::f64::consts::PI)
    }
}
