//! Actions for the steps of policies.

use crate::op::colour::{
    autocontrast, brightness, contrast, equalize, grayscale, invert, posterize, saturation,
    solarize,
};
use crate::op::filter::box_blur::{self, BoxBlurred};
use crate::op::filter::sharpness;
use crate::op::spatial::rotate::formula as rotate;
use crate::op::warp::Warp;
use crate::op::{
    Autocontrast, Contrast, Draw, Equalize, Grayscale, Interpolation, Kind, Kinds, Saturation,
    Sharpness,
};

use super::steps::Step;

/// How the warps of a policy interpolate, and how they fill pixels outside the image.
#[derive(Clone, Copy, Debug)]
pub struct Warping {
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Colour of pixels outside the image.
    pub fill: [u8; 3],
}

/// Kinds of the actions of at most `most` steps. `blurs` tells whether a step may blur.
pub fn kinds(most: usize, blurs: bool) -> Kinds {
    let mut kinds = vec![
        Kind::Warp,
        Kind::Table,
        Kind::colour::<Saturation>(),
        Kind::colour::<Grayscale>(),
        Kind::statistics::<Contrast>(),
        Kind::statistics::<Autocontrast>(),
        Kind::statistics::<Equalize>(),
        Kind::stencil::<Sharpness>(),
    ];
    if blurs {
        kinds.push(Kind::image::<BoxBlurred>());
    }
    Kinds::up_to(most, kinds)
}

/// Interpolation of timm's policies: the given one, else bilinear or bicubic with equal
/// probability.
pub fn interpolation(given: Option<Interpolation>, draw: &mut Draw<'_>) -> Interpolation {
    given.unwrap_or_else(|| {
        let bilinear = draw.rng().chance(0.5);
        if bilinear { Interpolation::Bilinear } else { Interpolation::Bicubic }
    })
}

/// Adds the action of a step. A step that changes nothing adds no action.
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
        Step::SolarizeAdd(added) => {
            draw.note("SolarizeAdd", &[("added", &[added.into()])]);
            draw.table(|_, byte| match byte {
                0..128 => (u32::from(byte) + added).min(255) as u8,
                _ => byte,
            });
        }
        Step::AutoContrast => autocontrast::draw(draw),
        Step::Equalize => equalize::draw(draw),
        Step::Invert => invert::draw(draw),
        Step::Grayscale => grayscale::draw(draw),
        Step::GaussianBlur(radius) => box_blur::draw(draw, radius),
    }
}

fn warp(draw: &mut Draw<'_>, warp: Warp) {
    if !warp.is_identity() {
        draw.warp(warp, draw.size());
    }
}
