//! `auto_augment`: torchvision's `AutoAugment` with its three policies
//! (`torchvision/transforms/v2/_auto_augment.py`).

use crate::geometry::Size;
use crate::random::SampleRng;

use super::super::rand_augment;
use super::super::steps::{
    Drawn, Magnitudes, Operation, Space, TransformsVersion, entry_of, signed,
};

/// Pairs of operations. Each operation has its probability and the number of its magnitude, or 0 if
/// it has no magnitude.
pub type Policies = [[(Operation, f64, u32); 2]];

/// Number of magnitudes of each operation.
pub const BINS: u32 = 10;

/// Magnitudes of an operation: those of `rand_augment`, and none for `Invert`.
pub fn magnitudes(operation: Operation) -> Magnitudes {
    let space: &Space = rand_augment::SPACE;
    let entry = space.iter().find(|entry| entry.0 == operation);
    entry.map_or(Magnitudes::None, |entry| entry.1)
}

/// Draws a pair, all equally likely. For each operation of the pair, draws whether it takes place,
/// and the sign of its magnitude. An operation that does not take place becomes the identity.
pub fn draw(
    policies: &Policies,
    version: TransformsVersion,
    size: Size,
    rng: &mut SampleRng,
) -> [Drawn; 2] {
    let pair = &policies[rng.below(policies.len() as u64) as usize];
    pair.map(|(operation, probability, bin)| {
        if !rng.chance(probability) {
            return (Operation::Identity, 0.0);
        }
        signed(entry_of(version, (operation, magnitudes(operation))), (bin, BINS), size, rng)
    })
}

/// `imagenet`.
pub const IMAGENET: &Policies = &[
    [(Operation::Posterize, 0.4, 8), (Operation::Rotate, 0.6, 9)],
    [(Operation::Solarize, 0.6, 5), (Operation::AutoContrast, 0.6, 0)],
    [(Operation::Equalize, 0.8, 0), (Operation::Equalize, 0.6, 0)],
    [(Operation::Posterize, 0.6, 7), (Operation::Posterize, 0.6, 6)],
    [(Operation::Equalize, 0.4, 0), (Operation::Solarize, 0.2, 4)],
    [(Operation::Equalize, 0.4, 0), (Operation::Rotate, 0.8, 8)],
    [(Operation::Solarize, 0.6, 3), (Operation::Equalize, 0.6, 0)],
    [(Operation::Posterize, 0.8, 5), (Operation::Equalize, 1.0, 0)],
    [(Operation::Rotate, 0.2, 3), (Operation::Solarize, 0.6, 8)],
    [(Operation::Equalize, 0.6, 0), (Operation::Posterize, 0.4, 6)],
    [(Operation::Rotate, 0.8, 8), (Operation::Color, 0.4, 0)],
    [(Operation::Rotate, 0.4, 9), (Operation::Equalize, 0.6, 0)],
    [(Operation::Equalize, 0.0, 0), (Operation::Equalize, 0.8, 0)],
    [(Operation::Invert, 0.6, 0), (Operation::Equalize, 1.0, 0)],
    [(Operation::Color, 0.6, 4), (Operation::Contrast, 1.0, 8)],
    [(Operation::Rotate, 0.8, 8), (Operation::Color, 1.0, 2)],
    [(Operation::Color, 0.8, 8), (Operation::Solarize, 0.8, 7)],
    [(Operation::Sharpness, 0.4, 7), (Operation::Invert, 0.6, 0)],
    [(Operation::ShearX, 0.6, 5), (Operation::Equalize, 1.0, 0)],
    [(Operation::Color, 0.4, 0), (Operation::Equalize, 0.6, 0)],
    [(Operation::Equalize, 0.4, 0), (Operation::Solarize, 0.2, 4)],
    [(Operation::Solarize, 0.6, 5), (Operation::AutoContrast, 0.6, 0)],
    [(Operation::Invert, 0.6, 0), (Operation::Equalize, 1.0, 0)],
    [(Operation::Color, 0.6, 4), (Operation::Contrast, 1.0, 8)],
    [(Operation::Equalize, 0.8, 0), (Operation::Equalize, 0.6, 0)],
];

/// `cifar10`.
pub const CIFAR10: &Policies = &[
    [(Operation::Invert, 0.1, 0), (Operation::Contrast, 0.2, 6)],
    [(Operation::Rotate, 0.7, 2), (Operation::TranslateX, 0.3, 9)],
    [(Operation::Sharpness, 0.8, 1), (Operation::Sharpness, 0.9, 3)],
    [(Operation::ShearY, 0.5, 8), (Operation::TranslateY, 0.7, 9)],
    [(Operation::AutoContrast, 0.5, 0), (Operation::Equalize, 0.9, 0)],
    [(Operation::ShearY, 0.2, 7), (Operation::Posterize, 0.3, 7)],
    [(Operation::Color, 0.4, 3), (Operation::Brightness, 0.6, 7)],
    [(Operation::Sharpness, 0.3, 9), (Operation::Brightness, 0.7, 9)],
    [(Operation::Equalize, 0.6, 0), (Operation::Equalize, 0.5, 0)],
    [(Operation::Contrast, 0.6, 7), (Operation::Sharpness, 0.6, 5)],
    [(Operation::Color, 0.7, 7), (Operation::TranslateX, 0.5, 8)],
    [(Operation::Equalize, 0.3, 0), (Operation::AutoContrast, 0.4, 0)],
    [(Operation::TranslateY, 0.4, 3), (Operation::Sharpness, 0.2, 6)],
    [(Operation::Brightness, 0.9, 6), (Operation::Color, 0.2, 8)],
    [(Operation::Solarize, 0.5, 2), (Operation::Invert, 0.0, 0)],
    [(Operation::Equalize, 0.2, 0), (Operation::AutoContrast, 0.6, 0)],
    [(Operation::Equalize, 0.2, 0), (Operation::Equalize, 0.6, 0)],
    [(Operation::Color, 0.9, 9), (Operation::Equalize, 0.6, 0)],
    [(Operation::AutoContrast, 0.8, 0), (Operation::Solarize, 0.2, 8)],
    [(Operation::Brightness, 0.1, 3), (Operation::Color, 0.7, 0)],
    [(Operation::Solarize, 0.4, 5), (Operation::AutoContrast, 0.9, 0)],
    [(Operation::TranslateY, 0.9, 9), (Operation::TranslateY, 0.7, 9)],
    [(Operation::AutoContrast, 0.9, 0), (Operation::Solarize, 0.8, 3)],
    [(Operation::Equalize, 0.8, 0), (Operation::Invert, 0.1, 0)],
    [(Operation::TranslateY, 0.7, 9), (Operation::AutoContrast, 0.9, 0)],
];

/// `svhn`.
pub const SVHN: &Policies = &[
    [(Operation::ShearX, 0.9, 4), (Operation::Invert, 0.2, 0)],
    [(Operation::ShearY, 0.9, 8), (Operation::Invert, 0.7, 0)],
    [(Operation::Equalize, 0.6, 0), (Operation::Solarize, 0.6, 6)],
    [(Operation::Invert, 0.9, 0), (Operation::Equalize, 0.6, 0)],
    [(Operation::Equalize, 0.6, 0), (Operation::Rotate, 0.9, 3)],
    [(Operation::ShearX, 0.9, 4), (Operation::AutoContrast, 0.8, 0)],
    [(Operation::ShearY, 0.9, 8), (Operation::Invert, 0.4, 0)],
    [(Operation::ShearY, 0.9, 5), (Operation::Solarize, 0.2, 6)],
    [(Operation::Invert, 0.9, 0), (Operation::AutoContrast, 0.8, 0)],
    [(Operation::Equalize, 0.6, 0), (Operation::Rotate, 0.9, 3)],
    [(Operation::ShearX, 0.9, 4), (Operation::Solarize, 0.3, 3)],
    [(Operation::ShearY, 0.8, 8), (Operation::Invert, 0.7, 0)],
    [(Operation::Equalize, 0.9, 0), (Operation::TranslateY, 0.6, 6)],
    [(Operation::Invert, 0.9, 0), (Operation::Equalize, 0.6, 0)],
    [(Operation::Contrast, 0.3, 3), (Operation::Rotate, 0.8, 4)],
    [(Operation::Invert, 0.8, 0), (Operation::TranslateY, 0.0, 2)],
    [(Operation::ShearY, 0.7, 6), (Operation::Solarize, 0.4, 8)],
    [(Operation::Invert, 0.6, 0), (Operation::Rotate, 0.8, 4)],
    [(Operation::ShearY, 0.3, 7), (Operation::TranslateX, 0.9, 3)],
    [(Operation::ShearX, 0.1, 6), (Operation::Invert, 0.6, 0)],
    [(Operation::Solarize, 0.7, 2), (Operation::TranslateY, 0.6, 7)],
    [(Operation::ShearY, 0.8, 4), (Operation::Invert, 0.8, 0)],
    [(Operation::ShearX, 0.7, 9), (Operation::TranslateY, 0.8, 3)],
    [(Operation::ShearY, 0.8, 5), (Operation::AutoContrast, 0.7, 0)],
    [(Operation::ShearX, 0.7, 2), (Operation::Invert, 0.1, 0)],
];
