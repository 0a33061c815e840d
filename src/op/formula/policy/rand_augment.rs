//! `rand_augment`: torchvision's `RandAugment` (`torchvision/transforms/v2/_auto_augment.py`).

use crate::geometry::Size;
use crate::random::SampleRng;

use super::{Drawn, Magnitudes, Operation, Space, drawn_from, signed};

/// Operations and magnitudes.
pub const SPACE: &Space = &[
    (Operation::Identity, Magnitudes::None),
    (Operation::ShearX, Magnitudes::Signed(0.3)),
    (Operation::ShearY, Magnitudes::Signed(0.3)),
    (Operation::TranslateX, Magnitudes::Sides(|size| 150.0 / 331.0 * f64::from(size.width))),
    (Operation::TranslateY, Magnitudes::Sides(|size| 150.0 / 331.0 * f64::from(size.height))),
    (Operation::Rotate, Magnitudes::Signed(30.0)),
    (Operation::Brightness, Magnitudes::Signed(0.9)),
    (Operation::Color, Magnitudes::Signed(0.9)),
    (Operation::Contrast, Magnitudes::Signed(0.9)),
    (Operation::Sharpness, Magnitudes::Signed(0.9)),
    (Operation::Posterize, Magnitudes::Bits(8.0, 4.0)),
    (Operation::Solarize, Magnitudes::Plain(1.0, 0.0)),
    (Operation::AutoContrast, Magnitudes::None),
    (Operation::Equalize, Magnitudes::None),
];

/// Draws one of `num_ops` (default 2) steps: an operation evenly, and the sign of its magnitude number `magnitude` (default 9) of
/// `bins` (default 31). All steps take the size of the image before the first one.
pub fn draw(magnitude: u32, bins: u32, size: Size, rng: &mut SampleRng) -> Drawn {
    let entry = drawn_from(SPACE, rng);
    signed(entry, (magnitude, bins), size, rng)
}
