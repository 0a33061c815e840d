//! `trivial_augment_wide`: torchvision's `TrivialAugmentWide` (`torchvision/transforms/v2/_auto_augment.py`).

use crate::geometry::Size;
use crate::random::SampleRng;

use super::{Drawn, Magnitudes, Operation, Space, drawn_from, signed};

/// Operations and magnitudes.
pub const SPACE: &Space = &[
    (Operation::Identity, Magnitudes::None),
    (Operation::ShearX, Magnitudes::Signed(0.99)),
    (Operation::ShearY, Magnitudes::Signed(0.99)),
    (Operation::TranslateX, Magnitudes::Signed(32.0)),
    (Operation::TranslateY, Magnitudes::Signed(32.0)),
    (Operation::Rotate, Magnitudes::Signed(135.0)),
    (Operation::Brightness, Magnitudes::Signed(0.99)),
    (Operation::Color, Magnitudes::Signed(0.99)),
    (Operation::Contrast, Magnitudes::Signed(0.99)),
    (Operation::Sharpness, Magnitudes::Signed(0.99)),
    (Operation::Posterize, Magnitudes::Bits(8.0, 6.0)),
    (Operation::Solarize, Magnitudes::Plain(1.0, 0.0)),
    (Operation::AutoContrast, Magnitudes::None),
    (Operation::Equalize, Magnitudes::None),
];

/// Draws the only step: an operation, one of `bins` (default 31) magnitudes, both evenly, and its sign.
pub fn draw(bins: u32, size: Size, rng: &mut SampleRng) -> Drawn {
    let entry = drawn_from(SPACE, rng);
    let bin = match entry.1 {
        Magnitudes::None => 0,
        _ => rng.below(bins.into()) as u32,
    };
    signed(entry, (bin, bins), size, rng)
}
