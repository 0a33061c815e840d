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

use super::steps::PolicyStep;

/// How the warps of a policy interpolate, and how they fill pixels outside the image.
#[derive(Clone, Copy, Debug)]
pub struct Warping {
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Colour of pixels outside the image.
    pub fill: [u8; 3],
}

/// Kinds of the actions of at most `most` steps. `blurs` is whether a step may blur.
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
pub fn draw(draw: &mut Draw<'_>, step: PolicyStep, warping: Warping) {
    let Warping { interpolation, fill } = warping;
    let input = draw.size();
    match step {
        PolicyStep::Identity => {}
        PolicyStep::Affine(affine) => warp(draw, affine.warp(input, interpolation, fill)),
        PolicyStep::Matrix(matrix) => {
            warp(draw, Warp::affine(input, input, matrix, interpolation, fill))
        }
        PolicyStep::Rotate(angle) => {
            warp(draw, rotate::rotate(input, angle, false, None, interpolation, fill).1);
        }
        PolicyStep::Brightness(factor) => brightness::draw(draw, factor),
        PolicyStep::Saturation(factor) => saturation::draw(draw, factor),
        PolicyStep::Contrast(factor) => contrast::draw(draw, factor),
        PolicyStep::Sharpness(factor) => sharpness::draw(draw, factor),
        PolicyStep::Posterize(bits) => posterize::draw(draw, bits),
        PolicyStep::Solarize(threshold) => solarize::draw(draw, threshold),
        PolicyStep::SolarizeAdd(added) => {
            draw.note("SolarizeAdd", &[("added", &[added.into()])]);
            draw.table(|_, byte| match byte {
                0..128 => (u32::from(byte) + added).min(255) as u8,
                _ => byte,
            });
        }
        PolicyStep::AutoContrast => autocontrast::draw(draw),
        PolicyStep::Equalize => equalize::draw(draw),
        PolicyStep::Invert => invert::draw(draw),
        PolicyStep::Grayscale => grayscale::draw(draw),
        PolicyStep::GaussianBlur(radius) => box_blur::draw(draw, radius),
    }
}

fn warp(draw: &mut Draw<'_>, warp: Warp) {
    if !warp.is_identity() {
        draw.warp(warp, draw.size());
    }
}
