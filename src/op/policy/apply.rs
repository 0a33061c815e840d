//! What the steps of policies draw.

use crate::op::formula::policy::Step;
use crate::op::formula::{
    Histograms, Tables, autocontrast, brightness, contrast, equalize, grayscale, invert, posterize,
    rotate, saturation, sharpness, solarize, warp::Warp,
};
use crate::op::kind::{ColourFormula, StatisticsFormula, StencilFormula};
use crate::op::resample::Blur;
use crate::op::{Bounds, Cuda, Draw, Interpolation, Kind, Kinds};

/// How a policy fills what its warps leave empty, and interpolates.
#[derive(Clone, Copy, Debug)]
pub struct Warping {
    pub interpolation: Interpolation,
    pub fill: [u8; 3],
}

/// Kinds of at most `most` steps.
pub fn kinds(most: usize) -> Kinds {
    let kinds = [
        Kind::Warp,
        Kind::Table,
        Kind::Resample,
        Kind::colour::<Saturation>(),
        Kind::colour::<Gray>(),
        Kind::statistics::<Contrast>(),
        Kind::statistics::<AutoContrast>(),
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
        Step::Brightness(factor) => {
            let params = brightness::Params { factor: factor as f32 };
            draw.table(|_, byte| brightness::byte(&params, byte));
        }
        Step::Saturation(factor) => {
            draw.colour::<Saturation>(&saturation::Params { factor: factor as f32, padding: 0 });
        }
        Step::Contrast(factor) => {
            draw.statistics::<Contrast>(&contrast::Params { factor: factor as f32, padding: 0 });
        }
        Step::Sharpness(factor) => {
            draw.stencil::<Sharpness>(&sharpness::Params { factor: factor as f32, padding: 0 });
        }
        Step::Posterize(bits) => draw.table(|_, byte| posterize::byte(bits, byte)),
        Step::Solarize(threshold) => draw.table(|_, byte| solarize::byte(threshold, byte)),
        Step::SolarizeAdd(added) => draw.table(|_, byte| match byte {
            0..128 => (u32::from(byte) + added).min(255) as u8,
            _ => byte,
        }),
        Step::AutoContrast => draw.statistics::<AutoContrast>(&0),
        Step::Equalize => draw.statistics::<Equalize>(&0),
        Step::Invert => draw.table(|_, byte| invert::byte(byte)),
        Step::Grayscale => draw.colour::<Gray>(&0),
        Step::GaussianBlur(radius) => {
            draw.blur(Blur { kernel: [BLUR_KERNEL; 2], sigma: [radius; 2] });
        }
    }
}

/// Size of the kernel of blurs, in pixels: three deviations of the largest radius, 2 pixels, on each side.
const BLUR_KERNEL: u32 = 13;

/// Maximum number of coefficients of `steps` steps.
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

struct Saturation;

impl ColourFormula for Saturation {
    type Params = saturation::Params;
    const CUDA: Option<Cuda> = None;

    fn pixel(params: &Self::Params, pixel: [u8; 3]) -> [u8; 3] {
        saturation::pixel(params, pixel)
    }
}

struct Gray;

impl ColourFormula for Gray {
    type Params = u64;
    const CUDA: Option<Cuda> = None;

    fn pixel(_: &Self::Params, pixel: [u8; 3]) -> [u8; 3] {
        grayscale::pixel(pixel)
    }
}

struct Contrast;

impl StatisticsFormula for Contrast {
    type Params = contrast::Params;
    type Value = u8;
    const CUDA: Option<Cuda> = None;

    fn table(params: &Self::Params, histograms: &Histograms) -> Tables {
        contrast::tables(params, histograms)
    }
}

struct AutoContrast;

impl StatisticsFormula for AutoContrast {
    type Params = u64;
    type Value = u8;
    const CUDA: Option<Cuda> = None;

    fn table(_: &Self::Params, histograms: &Histograms) -> Tables {
        autocontrast::tables(histograms)
    }
}

struct Equalize;

impl StatisticsFormula for Equalize {
    type Params = u64;
    type Value = u8;
    const CUDA: Option<Cuda> = None;

    fn table(_: &Self::Params, histograms: &Histograms) -> Tables {
        equalize::tables(histograms)
    }
}

struct Sharpness;

impl StencilFormula for Sharpness {
    type Params = sharpness::Params;
    const CUDA: Option<Cuda> = None;

    fn pixel(params: &Self::Params, around: &[[u8; 3]; 9]) -> [u8; 3] {
        sharpness::pixel(params, around)
    }
}
