//! `augmix` of timm 1.0, configured by a text such as `augmix-m5-w4-d2`
//! (`timm/data/auto_augment.py`).

use super::super::aug_mix::formula as aug_mix;
use super::super::timm::{DENOMINATOR, Operation, Operation::*, Strength};

/// Operations of `augmix`, all equally likely.
pub const OPERATIONS: &[Operation] = &[
    AutoContrast,
    ColorIncreasing,
    ContrastIncreasing,
    BrightnessIncreasing,
    SharpnessIncreasing,
    Equalize,
    Rotate,
    PosterizeIncreasing,
    SolarizeIncreasing,
    ShearX,
    ShearY,
    TranslateXRel,
    TranslateYRel,
];

/// Settings of timm's AugMix, parsed from a text such as `augmix-m5-w4-d2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AugMix {
    /// Strength of the operations. `m` is the magnitude (default 3), `mstd` its standard deviation.
    /// Without `mstd`, the magnitude is uniform from 0 to `m`.
    pub strength: Strength,
    /// Number of chains of operations whose results are mixed (`w`). Default 3.
    pub width: u32,
    /// Number of operations of each chain (`d`). Default: 1 to 3, drawn for each chain.
    pub depth: Option<u32>,
    /// Parameter of the Dirichlet distributions of the weights (`a`). Default 1.
    pub alpha: f64,
}

/// Maximum number of operations in a chain of operations.
const MOST_DEPTH: u32 = 16;

impl AugMix {
    /// Parses a text: `augmix`, then sections that are separated by dashes. The error is the
    /// section that timm does not have, or whose value is out of range.
    pub fn parse(text: &str, translate: f64) -> Result<Self, String> {
        let mut sections = text.split('-');
        if sections.next() != Some("augmix") {
            return Err(text.to_string());
        }
        let uniform = f64::INFINITY;
        let strength = Strength {
            magnitude: 3.0,
            probability: 1.0,
            std: uniform,
            max: DENOMINATOR,
            translate,
        };
        let mut read = Self { strength, width: 3, depth: None, alpha: 1.0 };
        for section in sections {
            let wrong = || section.to_string();
            let at = section.find(|it: char| it.is_ascii_digit()).ok_or_else(wrong)?;
            let (key, value) = section.split_at(at);
            let whole = || value.parse::<u32>().map_err(|_| wrong());
            let number = || value.parse::<f64>().map_err(|_| wrong());
            match key {
                "m" => read.strength.magnitude = whole()?.into(),
                "w" => read.width = whole()?,
                "d" => read.depth = Some(whole()?).filter(|depth| *depth > 0),
                "a" => read.alpha = number()?,
                "mstd" => read.strength.std = number()?,
                _ => return Err(wrong()),
            }
            let is_known = (1..=aug_mix::MOST_WIDTH as u32).contains(&read.width)
                && read.depth.is_none_or(|depth| depth <= MOST_DEPTH)
                && (0.1..=1000.0).contains(&read.alpha);
            if !is_known {
                return Err(wrong());
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_or_the_wrong_section_is_named() {
        let read = AugMix::parse("augmix-m5-w4-d2-mstd0.5", 0.3).unwrap();
        assert_eq!((read.width, read.depth, read.alpha), (4, Some(2), 1.0));
        assert_eq!((read.strength.magnitude, read.strength.std), (5.0, 0.5));
        assert_eq!(AugMix::parse("augmix", 0.3).map(|it| it.depth), Ok(None));
        for (text, part) in [("rand", "rand"), ("augmix-b1", "b1"), ("augmix-w17", "w17")] {
            assert_eq!(AugMix::parse(text, 0.3), Err(part.to_string()), "{text}");
        }
    }
}
