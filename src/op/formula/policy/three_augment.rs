//! `three_augment`: 3-Augment of DeiT III (`augment.py` of facebookresearch/deit).

use crate::random::SampleRng;

use super::Step;

/// Draws one of three steps, evenly: gray, solarized from 128 on, or blurred with a radius that is uniform in 0.1 to 2 pixels.
/// DeiT III's recipe continues with `color_jitter` (0.3 for brightness, contrast and saturation).
pub fn draw(rng: &mut SampleRng) -> Step {
    match rng.below(3) {
        0 => Step::Grayscale,
        1 => Step::Solarize(128.0),
        _ => Step::GaussianBlur(rng.between(0.1, 2.0)),
    }
}
