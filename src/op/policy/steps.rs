//! Steps of augmentation policies, and code that torchvision's policies share. Policies draw
//! [`PolicyStep`]s, which `apply.rs` turns into actions.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::random::SampleRng;

use crate::op::spatial::affine::formula::{Affine, policy};

/// One drawn step of a policy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyStep {
    /// Changes nothing.
    Identity,
    /// An affine transform as torchvision's `affine` defines it.
    Affine(Affine),
    /// Affine matrix, in row-major order, that maps positions of the result to positions of the
    /// input: Pillow's `Image.transform`.
    Matrix([f64; 6]),
    /// Rotation around the centre in degrees, counter-clockwise, without enlarging the image.
    Rotate(f64),
    /// Brightness factor: 0 gives black.
    Brightness(f64),
    /// Saturation factor: 0 gives gray.
    Saturation(f64),
    /// Contrast factor: 0 gives the mean gray.
    Contrast(f64),
    /// Sharpness factor: 0 gives a smoothed image.
    Sharpness(f64),
    /// Keeps this number of leading bits, 0 to 8.
    Posterize(u32),
    /// Inverts bytes that reach this threshold, 0 to 256.
    Solarize(f64),
    /// Adds this number to each byte below 128. The sum is clamped to 255.
    SolarizeAdd(u32),
    /// Stretches each channel to 0..=255.
    AutoContrast,
    /// Equalizes each channel's histogram.
    Equalize,
    /// Inverts all bytes.
    Invert,
    /// Replaces each channel by Pillow's luma (mode `L`).
    Grayscale,
    /// Pillow's `GaussianBlur` with this radius (standard deviation) in pixels.
    GaussianBlur(f64),
}

/// Operation of a torchvision policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of torchvision")]
pub enum Operation {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    /// `Solarize` in [`TransformsVersion::V1`]: the magnitude is the threshold.
    SolarizeAt,
    AutoContrast,
    Equalize,
    Invert,
}

impl Operation {
    /// Step for a magnitude, like `_apply_image_or_video_transform` of
    /// `torchvision/transforms/v2/_auto_augment.py` for PIL images.
    pub fn step(self, magnitude: f64) -> PolicyStep {
        match self {
            Self::Identity => PolicyStep::Identity,
            Self::ShearX => PolicyStep::Affine(policy::shear_x(magnitude)),
            Self::ShearY => PolicyStep::Affine(policy::shear_y(magnitude)),
            Self::TranslateX => PolicyStep::Affine(policy::translate_x(magnitude)),
            Self::TranslateY => PolicyStep::Affine(policy::translate_y(magnitude)),
            Self::Rotate => PolicyStep::Rotate(magnitude),
            Self::Brightness => PolicyStep::Brightness(1.0 + magnitude),
            Self::Color => PolicyStep::Saturation(1.0 + magnitude),
            Self::Contrast => PolicyStep::Contrast(1.0 + magnitude),
            Self::Sharpness => PolicyStep::Sharpness(1.0 + magnitude),
            Self::Posterize => PolicyStep::Posterize(magnitude as u32),
            Self::Solarize => PolicyStep::Solarize(255.0 * magnitude),
            Self::SolarizeAt => PolicyStep::Solarize(magnitude),
            Self::AutoContrast => PolicyStep::AutoContrast,
            Self::Equalize => PolicyStep::Equalize,
            Self::Invert => PolicyStep::Invert,
        }
    }
}

/// Magnitudes of an operation, which are evenly spaced over the bins of a policy.
#[derive(Clone, Copy, Debug)]
pub enum Magnitudes {
    /// No magnitude.
    None,
    /// Magnitudes from the first number to the second, never negated.
    Plain(f64, f64),
    /// Magnitudes from 0 to this number, negated with probability 1/2.
    Signed(f64),
    /// Magnitudes from 0 to the result of this function of the image's size, negated with
    /// probability 1/2.
    Sides(fn(Size) -> f64),
    /// Numbers of bits that are kept. They go down from the first number by 0 up to the second
    /// number, and are rounded half to even.
    Bits(f32, f32),
}

impl Magnitudes {
    /// Magnitude number `bin` of `bins` (at least 2), before its sign is drawn. Equal to
    /// torchvision's magnitude, which is an f32.
    pub fn at(&self, bin: u32, bins: u32, size: Size) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Plain(from, to) => linear(from, to, bin, bins),
            Self::Signed(to) => linear(0.0, to, bin, bins),
            Self::Sides(to) => linear(0.0, to(size), bin, bins),
            Self::Bits(from, span) => {
                f64::from((from - bin as f32 / ((bins - 1) as f32 / span)).round_ties_even())
            }
        }
    }

    fn is_signed(&self) -> bool {
        matches!(self, Self::Signed(_) | Self::Sides(_))
    }
}

/// Drawn operation with its magnitude. [`Operation::step`] turns both into a step.
pub type Drawn = (Operation, f64);

/// Operations of a policy with their magnitudes.
pub type Space = [(Operation, Magnitudes)];

/// Version of torchvision's transforms. The policies of both versions differ only in the thresholds
/// of `Solarize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransformsVersion {
    /// `torchvision.transforms`: the thresholds are evenly spaced from 255 to 0.
    V1,
    /// `torchvision.transforms.v2`: the thresholds are 255 times magnitudes that are evenly spaced
    /// from 1 to 0 and rounded to f32, and so differ from whole numbers by the rounding.
    #[default]
    V2,
}

/// Entry of a space in this version, given the entry in [`TransformsVersion::V2`].
pub fn entry_of(
    version: TransformsVersion,
    entry: (Operation, Magnitudes),
) -> (Operation, Magnitudes) {
    match (version, entry.0) {
        (TransformsVersion::V1, Operation::Solarize) => {
            (Operation::SolarizeAt, Magnitudes::Plain(255.0, 0.0))
        }
        _ => entry,
    }
}

/// Draws an operation of a space, all equally likely.
pub(super) fn drawn_from(
    space: &Space,
    version: TransformsVersion,
    rng: &mut SampleRng,
) -> (Operation, Magnitudes) {
    entry_of(version, space[rng.below(space.len() as u64) as usize])
}

/// Returns an operation with its magnitude number `bin`. Draws the sign of the magnitude if it has
/// one.
pub(super) fn signed(
    (operation, magnitudes): (Operation, Magnitudes),
    (bin, bins): (u32, u32),
    size: Size,
    rng: &mut SampleRng,
) -> Drawn {
    let magnitude = magnitudes.at(bin, bins, size);
    let negated = magnitudes.is_signed() && rng.chance(0.5);
    (operation, if negated { -magnitude } else { magnitude })
}

/// Draws from the standard normal distribution (Box and Muller, 1958).
pub(super) fn normal(rng: &mut SampleRng) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - rng.uniform())).sqrt();
    radius * libm::cos(2.0 * std::f64::consts::PI * rng.uniform())
}

/// Element of `torch.linspace(from, to, count)` in f32. It is computed from the nearer end and
/// rounded once, as on processors with FMA.
fn linear(from: f64, to: f64, number: u32, count: u32) -> f64 {
    let (from, to) = (from as f32, to as f32);
    let step = f64::from((to - from) / (count - 1) as f32);
    let value = if number < count / 2 {
        f64::from(from) + step * f64::from(number)
    } else {
        f64::from(to) - step * f64::from(count - 1 - number)
    };
    f64::from(value as f32)
}
