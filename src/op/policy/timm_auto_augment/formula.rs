//! `auto_augment` of timm 1.0, configured by a text such as `original-mstd0.5`
//! (`timm/data/auto_augment.py`).

use crate::geometry::Size;
use crate::random::SampleRng;

use super::super::steps::PolicyStep;
use super::super::timm::{Operation, Operation::*, Strength};

/// Operation with its probability and magnitude.
pub type Entry = (Operation, f64, f64);

/// Pairs of the policy `v0`, which is that of EfficientNet's TPU implementation.
pub const V0: &[[Entry; 2]] = &[
    [(Equalize, 0.8, 1.0), (ShearY, 0.8, 4.0)],
    [(Color, 0.4, 9.0), (Equalize, 0.6, 3.0)],
    [(Color, 0.4, 1.0), (Rotate, 0.6, 8.0)],
    [(Solarize, 0.8, 3.0), (Equalize, 0.4, 7.0)],
    [(Solarize, 0.4, 2.0), (Solarize, 0.6, 2.0)],
    [(Color, 0.2, 0.0), (Equalize, 0.8, 8.0)],
    [(Equalize, 0.4, 8.0), (SolarizeAdd, 0.8, 3.0)],
    [(ShearX, 0.2, 9.0), (Rotate, 0.6, 8.0)],
    [(Color, 0.6, 1.0), (Equalize, 1.0, 2.0)],
    [(Invert, 0.4, 9.0), (Rotate, 0.6, 0.0)],
    [(Equalize, 1.0, 9.0), (ShearY, 0.6, 3.0)],
    [(Color, 0.4, 7.0), (Equalize, 0.6, 0.0)],
    [(Posterize, 0.4, 6.0), (AutoContrast, 0.4, 7.0)],
    [(Solarize, 0.6, 8.0), (Color, 0.6, 9.0)],
    [(Solarize, 0.2, 4.0), (Rotate, 0.8, 9.0)],
    [(Rotate, 1.0, 7.0), (TranslateYRel, 0.8, 9.0)],
    [(ShearX, 0.0, 0.0), (Solarize, 0.8, 4.0)],
    [(ShearY, 0.8, 0.0), (Color, 0.6, 4.0)],
    [(Color, 1.0, 0.0), (Rotate, 0.6, 2.0)],
    [(Equalize, 0.8, 4.0), (Equalize, 0.0, 8.0)],
    [(Equalize, 1.0, 4.0), (AutoContrast, 0.6, 2.0)],
    [(ShearY, 0.4, 7.0), (SolarizeAdd, 0.6, 7.0)],
    [(Posterize, 0.8, 2.0), (Solarize, 0.6, 10.0)],
    [(Solarize, 0.6, 8.0), (Equalize, 0.6, 1.0)],
    [(Color, 0.8, 6.0), (Rotate, 0.4, 5.0)],
];

/// Pairs of the policy `original`, which is that of the AutoAugment paper (arXiv 1805.09501).
pub const ORIGINAL: &[[Entry; 2]] = &[
    [(PosterizeOriginal, 0.4, 8.0), (Rotate, 0.6, 9.0)],
    [(Solarize, 0.6, 5.0), (AutoContrast, 0.6, 5.0)],
    [(Equalize, 0.8, 8.0), (Equalize, 0.6, 3.0)],
    [(PosterizeOriginal, 0.6, 7.0), (PosterizeOriginal, 0.6, 6.0)],
    [(Equalize, 0.4, 7.0), (Solarize, 0.2, 4.0)],
    [(Equalize, 0.4, 4.0), (Rotate, 0.8, 8.0)],
    [(Solarize, 0.6, 3.0), (Equalize, 0.6, 7.0)],
    [(PosterizeOriginal, 0.8, 5.0), (Equalize, 1.0, 2.0)],
    [(Rotate, 0.2, 3.0), (Solarize, 0.6, 8.0)],
    [(Equalize, 0.6, 8.0), (PosterizeOriginal, 0.4, 6.0)],
    [(Rotate, 0.8, 8.0), (Color, 0.4, 0.0)],
    [(Rotate, 0.4, 9.0), (Equalize, 0.6, 2.0)],
    [(Equalize, 0.0, 7.0), (Equalize, 0.8, 8.0)],
    [(Invert, 0.6, 4.0), (Equalize, 1.0, 8.0)],
    [(Color, 0.6, 4.0), (Contrast, 1.0, 8.0)],
    [(Rotate, 0.8, 8.0), (Color, 1.0, 2.0)],
    [(Color, 0.8, 8.0), (Solarize, 0.8, 7.0)],
    [(Sharpness, 0.4, 7.0), (Invert, 0.6, 8.0)],
    [(ShearX, 0.6, 5.0), (Equalize, 1.0, 9.0)],
    [(Color, 0.4, 0.0), (Equalize, 0.6, 3.0)],
    [(Equalize, 0.4, 7.0), (Solarize, 0.2, 4.0)],
    [(Solarize, 0.6, 5.0), (AutoContrast, 0.6, 5.0)],
    [(Invert, 0.6, 4.0), (Equalize, 1.0, 8.0)],
    [(Color, 0.6, 4.0), (Contrast, 1.0, 8.0)],
    [(Equalize, 0.8, 8.0), (Equalize, 0.6, 3.0)],
];

/// Operations of the policy `3a`, which is 3-Augment of DeiT III.
pub const THREE_AUGMENT: &[Entry] =
    &[(Solarize, 1.0, 5.0), (Desaturate, 1.0, 10.0), (GaussianBlurRand, 1.0, 10.0)];

/// Settings of timm's AutoAugment, parsed from a text such as `original-mstd0.5`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoAugment {
    /// Policy: the operations from which those for one image are drawn.
    pub policy: Policy,
    /// Standard deviation of the magnitude (`mstd`). Default 0.
    pub std: f64,
}

/// Policy, which the beginning of the text selects, such as `original`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Applies one of these pairs of operations.
    Pairs(&'static [[Entry; 2]]),
    /// Applies one of these pairs of operations. Posterizing becomes stronger with the magnitude.
    /// This is for the policies `v0r` and `originalr`.
    PairsIncreasing(&'static [[Entry; 2]]),
    /// Applies one of these operations.
    Single(&'static [Entry]),
}

impl AutoAugment {
    /// Parses a text: the policy, then sections that are separated by dashes. The error is the part
    /// that timm does not have.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut sections = text.split('-');
        let policy = match sections.next() {
            Some("v0") => Policy::Pairs(V0),
            Some("v0r") => Policy::PairsIncreasing(V0),
            Some("original") => Policy::Pairs(ORIGINAL),
            Some("originalr") => Policy::PairsIncreasing(ORIGINAL),
            Some("3a") => Policy::Single(THREE_AUGMENT),
            other => return Err(other.unwrap_or_default().to_string()),
        };
        let mut read = Self { policy, std: 0.0 };
        for section in sections {
            let std = section.strip_prefix("mstd").and_then(|it| it.parse().ok());
            read.std = std.filter(|std| *std >= 0.0).ok_or_else(|| section.to_string())?;
        }
        Ok(read)
    }

    /// Maximum number of steps for one image.
    pub fn layers(&self) -> usize {
        match self.policy {
            Policy::Pairs(_) | Policy::PairsIncreasing(_) => 2,
            Policy::Single(_) => 1,
        }
    }

    /// Whether one of the operations blurs.
    pub fn blurs(&self) -> bool {
        matches!(self.policy, Policy::Single(_))
    }

    /// Draws the operations for one image.
    pub fn draw_entries(&self, rng: &mut SampleRng) -> [Option<Entry>; 2] {
        let mut place = |count: usize| rng.below(count as u64) as usize;
        match self.policy {
            Policy::Pairs(pairs) => pairs[place(pairs.len())].map(Some),
            Policy::PairsIncreasing(pairs) => {
                pairs[place(pairs.len())].map(|entry| Some(Self::increasing(entry)))
            }
            Policy::Single(entries) => [Some(entries[place(entries.len())]), None],
        }
    }

    fn increasing((operation, probability, magnitude): Entry) -> Entry {
        let operation = match operation {
            Posterize | PosterizeOriginal => PosterizeIncreasing,
            other => other,
        };
        (operation, probability, magnitude)
    }

    /// Draws whether an operation takes place, its magnitude and its sign. `size` is the size of
    /// the image before the step.
    pub fn draw(&self, entry: Entry, size: Size, rng: &mut SampleRng) -> PolicyStep {
        let (operation, probability, magnitude) = entry;
        Strength { magnitude, probability, std: self.std, ..Strength::default() }
            .draw(operation, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_or_the_wrong_part_is_named() {
        let read = AutoAugment::parse("original-mstd0.5");
        assert_eq!(read, Ok(AutoAugment { policy: Policy::Pairs(ORIGINAL), std: 0.5 }));
        assert_eq!(AutoAugment::parse("3a").map(|it| (it.layers(), it.blurs())), Ok((1, true)));
        for (text, part) in [("v1", "v1"), ("v0-m9", "m9"), ("v0-mstd", "mstd"), ("", "")] {
            assert_eq!(AutoAugment::parse(text), Err(part.to_string()), "{text}");
        }
    }
}
