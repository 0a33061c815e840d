//! `aug_mix`: the weighted sum of an image and several augmented versions of it.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_count, check_number, equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

use super::apply::{self, Warping};
use super::steps::TransformsVersion;
use formula as aug_mix;

pub mod formula;

/// Mixes the image with the results of several chains of random operations: torchvision's `AugMix`,
/// with the same operations, magnitudes, weights and order of draws.
///
/// The sum is computed in f32 and truncated, as in torchvision. The operations are those of PIL
/// images, as in the other policies, but torchvision converts a PIL image to a tensor first. Boxes,
/// masks and keypoints stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AugMix {
    /// Strength of the operations, 1 to 10. Magnitudes are drawn from the first `severity` of ten.
    /// Default 3.
    pub severity: u32,
    /// Number of chains of operations whose results are mixed, 1 to 16. Default 3.
    pub mixture_width: u32,
    /// Number of operations of each chain, 1 to 16. Default: 1 to 3, drawn for each chain
    /// (torchvision's -1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain_depth: Option<u32>,
    /// Parameter of the Dirichlet distributions of the weights, 0.1 to 1000. Default 1.
    pub alpha: f64,
    /// Whether brightness, saturation, contrast and sharpness are among the operations. Default
    /// true.
    pub all_ops: bool,
    /// Interpolation between pixels. Default bilinear.
    pub interpolation: Interpolation,
    /// Red, green and blue of pixels that an operation leaves empty. In TOML, one number sets all
    /// three. Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
    /// Version of torchvision's transforms, `v1` or `v2` (default). Only the thresholds of
    /// `Solarize` differ: v1's are evenly spaced from 255 to 0. v2's are 255 times a rounded
    /// fraction. Where v1's threshold is a whole number, v2's may be a little larger, so that v2
    /// does not invert pixels with this value.
    pub version: TransformsVersion,
}

impl Default for AugMix {
    fn default() -> Self {
        Self {
            severity: 3,
            mixture_width: 3,
            chain_depth: None,
            alpha: 1.0,
            all_ops: true,
            interpolation: Interpolation::Bilinear,
            fill: [0; 3],
            version: TransformsVersion::default(),
        }
    }
}

/// Maximum number of operations in a chain of operations.
const MOST_DEPTH: u32 = 16;

impl Operator for AugMix {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        let depth = self.chain_depth.unwrap_or(aug_mix::MOST_DEPTH);
        // Saturating, because the settings may not be checked yet.
        let most = self.mixture_width.saturating_mul(depth.saturating_add(1)).saturating_add(1);
        let mut kinds = apply::kinds(0, false).list().to_vec();
        kinds.push(Kind::Mix);
        Kinds::up_to(most as usize, kinds)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Self { severity, mixture_width, alpha, interpolation, fill, version, .. } = *self;
        let mut weights = [0.0; 1 + aug_mix::MOST_WIDTH];
        let weights = &mut weights[..=mixture_width as usize];
        aug_mix::put_weights(alpha, weights, draw.rng());
        let size = draw.size();
        draw.mix(weights, |draw| {
            let depth = self.chain_depth.unwrap_or_else(|| aug_mix::depth(draw.rng()));
            for _ in 0..depth {
                let (operation, magnitude) =
                    aug_mix::draw(severity, self.all_ops, version, size, draw.rng());
                apply::draw(draw, operation.step(magnitude), Warping { interpolation, fill });
            }
        });
    }

    fn check(&self) -> Result<(), FieldError> {
        check_count("severity", self.severity, 1, aug_mix::BINS)?;
        check_count("mixture_width", self.mixture_width, 1, aug_mix::MOST_WIDTH as u32)?;
        if let Some(depth) = self.chain_depth {
            check_count("chain_depth", depth, 1, MOST_DEPTH)?;
        }
        check_number("alpha", self.alpha, 0.1, 1000.0)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for AugMix {
    const NAME: &'static str = "aug_mix";

    fn examples() -> Vec<Self> {
        vec![
            Self::default(),
            Self { severity: 10, mixture_width: 1, chain_depth: Some(1), ..Self::default() },
            Self {
                severity: 10,
                mixture_width: 4,
                chain_depth: Some(2),
                alpha: 0.3,
                all_ops: false,
                interpolation: Interpolation::Nearest,
                fill: [9, 99, 199],
                version: TransformsVersion::V1,
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Roi, Size};
    use crate::image::{HostImage, Image, PixelType};
    use crate::op::kind::mix::{Mix, Mixer};
    use crate::op::{ActionParams, Actions, Trace};
    use crate::random::SampleKey;

    /// Each chain of operations begins with the original image. The chains do not move boxes.
    #[test]
    fn the_result_is_the_weighted_sum_of_the_chains() {
        let size = Size::new(23, 17);
        let bytes = (0..3 * 23 * 17).map(|at: u32| (at * at / 7 % 251) as u8).collect();
        let image = HostImage::U8(Image::from_data(size.window(), bytes));
        for (index, op) in
            (0..40).flat_map(|index| AugMix::examples().into_iter().map(move |op| (index, op)))
        {
            let key = SampleKey { index, ..SampleKey::default() };
            let (mut actions, mut trace) = (Actions::default(), Trace::new(size));
            actions.draw([&op as &dyn Operator], key, size, &mut trace);
            actions.demand(size.window());
            assert_eq!(trace, Trace::new(size));
            let (mut weights, mut results) = (Vec::new(), Vec::new());
            let mut current = image.clone();
            for (place, action) in actions.list.iter().enumerate() {
                let mut out = HostImage::new(PixelType::U8, size.window());
                match action.params {
                    ActionParams::Mix(Mix::Begin { weight, .. } | Mix::Add { weight, .. }) => {
                        weights.push(weight);
                        results.push(std::mem::replace(&mut current, image.clone()));
                    }
                    ref params => {
                        let table = actions.table_of(place);
                        params.reference(table, &current, &mut out, &mut Mixer::default());
                        current = out;
                    }
                }
            }
            assert_eq!(weights.len() as u32, 1 + op.mixture_width);
            let byte = |at: usize| {
                let bytes = results.iter().map(|it| match it {
                    HostImage::U8(image) => image.data()[at],
                    HostImage::F32(_) => unreachable!("steps keep bytes"),
                });
                aug_mix::mixed(&weights, bytes)
            };
            let expected: Vec<u8> = (0..3 * 23 * 17).map(byte).collect();
            let whole = actions.reference(&image);
            assert_eq!(whole, HostImage::U8(Image::from_data(size.window(), expected)), "{index}");
            // If only a window of the result is computed, its pixels equal those of the whole
            // result.
            let part = Roi::new(5, 3, 7, 9);
            let mut actions = Actions::default();
            actions.draw([&op as &dyn Operator], key, size, &mut trace);
            let read = actions.demand(part);
            let cut = |of: &HostImage, window: Roi| {
                let HostImage::U8(of) = of else { unreachable!("bytes") };
                let mut cut = Image::new(window);
                for y in window.y..window.bottom() {
                    for x in window.x..window.right() {
                        cut.set_pixel(x, y, of.pixel(x, y));
                    }
                }
                HostImage::U8(cut)
            };
            assert_eq!(actions.reference(&cut(&image, read)), cut(&whole, part), "{index}");
        }
    }

    #[test]
    fn invalid_settings_are_refused() {
        let field = |op: AugMix| op.check().unwrap_err().field;
        let base = AugMix::default();
        assert_eq!(base.check(), Ok(()));
        assert_eq!(field(AugMix { severity: 11, ..base }), "severity");
        assert_eq!(field(AugMix { mixture_width: 0, ..base }), "mixture_width");
        assert_eq!(field(AugMix { chain_depth: Some(0), ..base }), "chain_depth");
        assert_eq!(field(AugMix { alpha: 0.0, ..base }), "alpha");
    }
}
