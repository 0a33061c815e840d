//! `rand_augment` of timm 1.0, configured by a text such as `rand-m9-mstd0.5-inc1`
//! (`timm/data/auto_augment.py`).

use crate::geometry::Size;
use crate::random::SampleRng;

use super::steps::{PolicyStep, normal};

/// Magnitude at which operations have their full strength. A magnitude divided by this number is
/// the fraction of the full strength.
pub const DENOMINATOR: f64 = 10.0;

/// Settings of timm's RandAugment, parsed from a text such as `rand-m9-mstd0.5-inc1`.
#[derive(Clone, Debug, PartialEq)]
pub struct RandAugment {
    /// Strength of the steps, from four sections of the text. `m` is the magnitude (default 10),
    /// `p` the probability of each step (0.5), `mstd` the standard deviation of the magnitude (0)
    /// and `mmax` the largest magnitude (10). If `mstd` is above 100, the magnitude is uniform from
    /// 0 to `m`.
    pub strength: Strength,
    /// Number of steps per image (`n`). Default 2.
    pub layers: usize,
    /// Operations, selected by `t` and `inc`, with their weights. Weighted operations are drawn
    /// without repetition.
    pub operations: Operations,
}

/// Set of operations, which sections such as `inc1` and `tweights` of the text select.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operations {
    /// All operations are equally likely, and may be repeated.
    Even(&'static [Operation]),
    /// Operations are drawn by their weights, without repetition.
    Weighted(&'static [(Operation, f64)]),
}

/// Operation of timm. Operations whose names end in `Increasing` become stronger with a larger
/// magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of timm")]
pub enum Operation {
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    PosterizeIncreasing,
    Solarize,
    SolarizeIncreasing,
    SolarizeAdd,
    Color,
    ColorIncreasing,
    Contrast,
    ContrastIncreasing,
    Brightness,
    BrightnessIncreasing,
    Sharpness,
    SharpnessIncreasing,
    ShearX,
    ShearY,
    TranslateXRel,
    TranslateYRel,
    Desaturate,
    GaussianBlur,
    PosterizeOriginal,
    GaussianBlurRand,
}

use Operation::*;

/// How strong an operation is, and how often it takes place: the parameters of timm's `AugmentOp`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strength {
    /// Magnitude.
    pub magnitude: f64,
    /// Probability.
    pub probability: f64,
    /// Standard deviation of the magnitude. If it is infinite, the magnitude is uniform from 0 to
    /// `magnitude`.
    pub std: f64,
    /// Largest magnitude that may be drawn.
    pub max: f64,
    /// Largest translation at magnitude 10, as a fraction of the side.
    pub translate: f64,
}

impl Default for Strength {
    fn default() -> Self {
        let magnitude = DENOMINATOR;
        Self { magnitude, probability: 0.5, std: 0.0, max: DENOMINATOR, translate: 0.45 }
    }
}

impl Strength {
    /// Draws whether an operation takes place, its magnitude and its sign. `size` is the size of
    /// the image before the step.
    pub fn draw(&self, operation: Operation, size: Size, rng: &mut SampleRng) -> PolicyStep {
        if !rng.chance(self.probability) {
            return PolicyStep::Identity;
        }
        let magnitude = match self.std {
            0.0 => self.magnitude,
            f64::INFINITY => rng.between(0.0, self.magnitude),
            std => self.magnitude + std * normal(rng),
        };
        let magnitude = magnitude.min(self.max).max(0.0);
        if operation == GaussianBlurRand {
            let factor = (magnitude / DENOMINATOR).clamp(0.0, 1.0);
            return PolicyStep::GaussianBlur(rng.between(0.1, 2.0 * factor));
        }
        operation.step(magnitude, size, self.translate, rng.chance(0.5))
    }
}

/// Operations of texts without `inc1`.
pub const PLAIN: &[Operation] = &[
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    Solarize,
    SolarizeAdd,
    Color,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    TranslateXRel,
    TranslateYRel,
];

/// Operations of texts with `inc1`.
pub const INCREASING: &[Operation] = &[
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    PosterizeIncreasing,
    SolarizeIncreasing,
    SolarizeAdd,
    ColorIncreasing,
    ContrastIncreasing,
    BrightnessIncreasing,
    SharpnessIncreasing,
    ShearX,
    ShearY,
    TranslateXRel,
    TranslateYRel,
];

/// Operations of texts with `t3a`.
pub const THREE_AUGMENT: &[Operation] = &[SolarizeIncreasing, Desaturate, GaussianBlur];

/// Operations of texts with `tweights`.
pub const WEIGHTED: &[(Operation, f64)] = &[
    (Rotate, 3.0),
    (ShearX, 2.0),
    (ShearY, 2.0),
    (TranslateXRel, 1.0),
    (TranslateYRel, 1.0),
    (ColorIncreasing, 0.25),
    (SharpnessIncreasing, 0.25),
    (AutoContrast, 0.25),
    (SolarizeIncreasing, 0.05),
    (SolarizeAdd, 0.05),
    (ContrastIncreasing, 0.05),
    (BrightnessIncreasing, 0.05),
    (Equalize, 0.05),
    (PosterizeIncreasing, 0.05),
    (Invert, 0.05),
];

/// Operations of texts with `t3aw`.
pub const THREE_AUGMENT_WEIGHTED: &[(Operation, f64)] = &[
    (SolarizeIncreasing, 6.0),
    (Desaturate, 6.0),
    (GaussianBlur, 6.0),
    (Rotate, 3.0),
    (ShearX, 2.0),
    (ShearY, 2.0),
    (PosterizeIncreasing, 1.0),
    (AutoContrast, 1.0),
    (ColorIncreasing, 1.0),
    (SharpnessIncreasing, 1.0),
    (ContrastIncreasing, 1.0),
    (BrightnessIncreasing, 1.0),
    (Equalize, 1.0),
    (Invert, 1.0),
];

impl RandAugment {
    /// Parses a text: `rand`, then sections that are separated by dashes. The error is the section
    /// that timm does not have, or whose value is out of range.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut sections = text.split('-');
        if sections.next() != Some("rand") {
            return Err(text.to_string());
        }
        let (mut increasing, mut set) = (false, None);
        let mut read =
            Self { strength: Strength::default(), layers: 2, operations: Operations::Even(PLAIN) };
        for section in sections {
            let wrong = || section.to_string();
            if let Some(name) = section.strip_prefix('t') {
                set = Some(match name {
                    "weights" => Operations::Weighted(WEIGHTED),
                    "3a" => Operations::Even(THREE_AUGMENT),
                    "3aw" => Operations::Weighted(THREE_AUGMENT_WEIGHTED),
                    _ => return Err(wrong()),
                });
                continue;
            }
            let at = section.find(|it: char| it.is_ascii_digit()).ok_or_else(wrong)?;
            let (key, value) = section.split_at(at);
            let whole = || value.parse::<u32>().map_err(|_| wrong());
            let number = || value.parse::<f64>().map_err(|_| wrong());
            match key {
                "m" => read.strength.magnitude = whole()?.into(),
                "n" => read.layers = whole()? as usize,
                "p" => read.strength.probability = number()?,
                "mstd" => {
                    let std = number()?;
                    read.strength.std = if std > 100.0 { f64::INFINITY } else { std };
                }
                "mmax" if whole()? > 0 => read.strength.max = whole()?.into(),
                "mmax" => read.strength.max = DENOMINATOR,
                "inc" => increasing = whole()? != 0,
                _ => return Err(wrong()),
            }
        }
        read.operations =
            set.unwrap_or(Operations::Even(if increasing { INCREASING } else { PLAIN }));
        match read.operations {
            Operations::Weighted(all) if read.layers > all.len() => {
                Err(format!("n{}", read.layers))
            }
            _ if !(0.0..=1.0).contains(&read.strength.probability) => {
                Err(format!("p{}", read.strength.probability))
            }
            _ => Ok(read),
        }
    }

    /// Whether one of the operations blurs.
    pub fn blurs(&self) -> bool {
        match self.operations {
            Operations::Even(all) => all.contains(&GaussianBlur),
            Operations::Weighted(all) => all.iter().any(|it| it.0 == GaussianBlur),
        }
    }

    /// Draws the next operation of an image. `taken` is 0 before the first operation. It has a bit
    /// for each weighted operation that was drawn.
    pub fn draw_operation(&self, taken: &mut u64, rng: &mut SampleRng) -> Operation {
        match self.operations {
            Operations::Even(all) => all[rng.below(all.len() as u64) as usize],
            Operations::Weighted(all) => {
                let left =
                    |taken: u64| all.iter().enumerate().filter(move |it| taken >> it.0 & 1 == 0);
                let mut rest = rng.uniform() * left(*taken).map(|(_, it)| it.1).sum::<f64>();
                let found = left(*taken).find(|(_, it)| {
                    rest -= it.1;
                    rest < 0.0
                });
                // Because of rounding, `rest` may still be 0 or more. In this case, the last
                // operation that has not been drawn yet is taken. There is one, because a policy
                // has no more layers than weighted operations.
                let (number, operation) =
                    found.or_else(|| left(*taken).next_back()).unwrap_or((0, &all[0]));
                *taken |= 1 << number;
                operation.0
            }
        }
    }
}

impl Operation {
    /// Step of this operation for a magnitude. `negated` negates the magnitude if the operation has
    /// a sign. `translate` is the largest translation at magnitude 10, as a fraction of the side.
    pub fn step(self, magnitude: f64, size: Size, translate: f64, negated: bool) -> PolicyStep {
        let level = magnitude / DENOMINATOR;
        let signed = |value: f64| if negated { -value } else { value };
        let factor = level * 1.8 + 0.1;
        let increasing = || (1.0 + signed(level * 0.9)).max(0.1);
        let bits = (level * 4.0) as u32;
        let threshold = ((level * 256.0) as u32).min(256);
        match self {
            AutoContrast => PolicyStep::AutoContrast,
            Equalize => PolicyStep::Equalize,
            Invert => PolicyStep::Invert,
            Rotate => PolicyStep::Rotate(signed(level * 30.0)),
            Posterize => PolicyStep::Posterize(bits.min(8)),
            PosterizeOriginal => PolicyStep::Posterize((bits + 4).min(8)),
            PosterizeIncreasing => PolicyStep::Posterize(4u32.saturating_sub(bits)),
            Solarize => PolicyStep::Solarize(threshold.into()),
            SolarizeIncreasing => PolicyStep::Solarize((256 - threshold).into()),
            SolarizeAdd => PolicyStep::SolarizeAdd(((level * 110.0) as u32).min(128)),
            Color => PolicyStep::Saturation(factor),
            ColorIncreasing => PolicyStep::Saturation(increasing()),
            Contrast => PolicyStep::Contrast(factor),
            ContrastIncreasing => PolicyStep::Contrast(increasing()),
            Brightness => PolicyStep::Brightness(factor),
            BrightnessIncreasing => PolicyStep::Brightness(increasing()),
            Sharpness => PolicyStep::Sharpness(factor),
            SharpnessIncreasing => PolicyStep::Sharpness(increasing()),
            ShearX => PolicyStep::Matrix([1.0, signed(level * 0.3), 0.0, 0.0, 1.0, 0.0]),
            ShearY => PolicyStep::Matrix([1.0, 0.0, 0.0, signed(level * 0.3), 1.0, 0.0]),
            TranslateXRel => PolicyStep::Matrix([
                1.0,
                0.0,
                signed(level * translate) * f64::from(size.width),
                0.0,
                1.0,
                0.0,
            ]),
            TranslateYRel => PolicyStep::Matrix([
                1.0,
                0.0,
                0.0,
                0.0,
                1.0,
                signed(level * translate) * f64::from(size.height),
            ]),
            Desaturate => {
                let amount = (0.5 + (1.0 - 0.5) * level).clamp(0.5, 1.0);
                PolicyStep::Saturation((1.0 - amount).clamp(0.0, 1.0))
            }
            GaussianBlur => PolicyStep::GaussianBlur((0.1 + (2.0 - 0.1) * level).clamp(0.1, 2.0)),
            // The radius in this step is the maximum. `Strength::draw` draws the actual radius.
            GaussianBlurRand => PolicyStep::GaussianBlur(2.0 * level.clamp(0.0, 1.0)),
        }
    }
}
