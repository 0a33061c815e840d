//! Steps of policies as actions.

use super::colour::{
    autocontrast::{self, Autocontrast},
    brightness,
    contrast::{self, Contrast},
    equalize::{self, Equalize},
    grayscale::{self, Grayscale},
    invert, posterize,
    saturation::{self, Saturation},
    solarize,
};
use super::filter::sharpness::{self, Sharpness};
use super::formula::{policy::Step, rotate, warp::Warp};
use super::resample::Blur;
use super::{Bounds, Draw, Interpolation, Kind, Kinds};

/// How a policy interpolates, and the red, green and blue of what becomes empty.
#[derive(Clone, Copy, Debug)]
pub struct Warping {
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Red, green and blue.
    pub fill: [u8; 3],
}

/// Kinds of at most `most` steps.
pub fn kinds(most: usize) -> Kinds {
    let kinds = [
        Kind::Warp,
        Kind::Table,
        Kind::Resample,
        Kind::colour::<Saturation>(),
        Kind::colour::<Grayscale>(),
        Kind::statistics::<Contrast>(),
        Kind::statistics::<Autocontrast>(),
        Kind::statistics::<Equalize>(),
        Kind::stencil::<Sharpness>(),
    ];
    Kinds::up_to(most, kinds)
}

/// Draws a step. One that changes nothing draws nothing.
pub fn draw(draw: &mut Draw<'_>, step: Step, warping: Warping) {
    let Warping { interpolation, fill } = warping;
    let input = draw.size();
    match step {
        Step::Identity => {}
        Step::Affine(affine) => warp(draw, affine.warp(input, interpolation, fill)),
        Step::Matrix(matrix) => warp(draw, Warp::affine(input, input, matrix, interpolation, fill)),
        Step::Rotate(angle) => {
            warp(draw, rotate::rotate(input, angle, false, None, interpolation, fill).1);
        }
        Step::Brightness(factor) => brightness::draw(draw, factor),
        Step::Saturation(factor) => saturation::draw(draw, factor),
        Step::Contrast(factor) => contrast::draw(draw, factor),
        Step::Sharpness(factor) => sharpness::draw(draw, factor),
        Step::Posterize(bits) => posterize::draw(draw, bits),
        Step::Solarize(threshold) => solarize::draw(draw, threshold),
        Step::SolarizeAdd(added) => draw.table(|_, byte| match byte {
            0..128 => (u32::from(byte) + added).min(255) as u8,
            _ => byte,
        }),
        Step::AutoContrast => autocontrast::draw(draw),
        Step::Equalize => equalize::draw(draw),
        Step::Invert => invert::draw(draw),
        Step::Grayscale => grayscale::draw(draw),
        Step::GaussianBlur(radius) => {
            draw.blur(Blur { kernel: [BLUR_KERNEL; 2], sigma: [radius; 2] });
        }
    }
}

/// Size of the kernel of blurs, in pixels: three deviations of the largest radius, 2 pixels, on each side.
const BLUR_KERNEL: u32 = 13;

/// Maximum number of coefficients of `steps` steps that blur.
pub fn coefficients(steps: usize, bounds: Bounds) -> usize {
    let side = u64::from(bounds.side).min(bounds.pixels) as u32;
    let output = crate::geometry::Size::new(side, side);
    steps.saturating_mul(Blur::table_len([BLUR_KERNEL; 2], output))
}

fn warp(draw: &mut Draw<'_>, warp: Warp) {
    if !warp.is_identity() {
        draw.warp(warp, draw.size());
    }
}
