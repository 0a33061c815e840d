//! `elastic`: displaces each pixel by smooth noise.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::settings::{check_number, equal_values, one_or_each};
use crate::op::warp::field::Smoothness;
use crate::op::{Bounds, BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

/// Displaces each pixel by blurred noise: torchvision's `ElasticTransform`. With the same noise,
/// channel values differ from torchvision's by at most 1.
///
/// Columns of masks, points and boxes follow the image. Annotated objects of a source do not move.
/// torchvision moves points and the corners of a box by the displacements at their pixels, which is
/// an approximation. Unlike in torchvision, the image may be smaller than the kernel of the blur.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Elastic {
    /// Strength in x and in y direction, 0 to 10,000. A blurred noise value of 1 displaces a pixel
    /// by `alpha / 2` pixels. In TOML, one number sets both. Default 50.
    #[serde(deserialize_with = "one_or_each")]
    pub alpha: [f64; 2],
    /// Standard deviation of the blur in x and in y direction, in pixels, 0 to 100. Either both are
    /// 0 (no blur) or both are above 0. In TOML, one number sets both. Default 5.
    #[serde(deserialize_with = "one_or_each")]
    pub sigma: [f64; 2],
    /// Interpolation between pixels: `bilinear` (default) or `nearest`.
    pub interpolation: Interpolation,
    /// Fill colour outside of the image: red, green and blue, 0 to 255. In TOML, one number sets
    /// all three. Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

impl Default for Elastic {
    fn default() -> Self {
        Self {
            alpha: [50.0; 2],
            sigma: [5.0; 2],
            interpolation: Interpolation::Bilinear,
            fill: [0; 3],
        }
    }
}

impl Elastic {
    fn smoothness(&self) -> Smoothness {
        Smoothness { alpha: self.alpha, sigma: self.sigma }
    }
}

impl Operator for Elastic {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn interpolation(&self) -> Option<(&'static str, bool)> {
        Some(("interpolation", self.interpolation == Interpolation::Nearest))
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Warp])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.displace(self.smoothness(), self.interpolation, self.fill);
    }

    fn check(&self) -> Result<(), FieldError> {
        for axis in [0, 1] {
            check_number(&format!("alpha[{axis}]"), self.alpha[axis], 0.0, 10_000.0)?;
            check_number(&format!("sigma[{axis}]"), self.sigma[axis], 0.0, 100.0)?;
        }
        let [along_columns, along_rows] = self.sigma;
        if (along_columns == 0.0) != (along_rows == 0.0) {
            let problem =
                format!("must be 0 for both axes or above 0 for both, is {:?}", self.sigma);
            return Err(FieldError::new("sigma", problem));
        }
        if self.interpolation == Interpolation::Bicubic {
            let problem = "must be \"nearest\" or \"bilinear\", is \"bicubic\"";
            return Err(FieldError::new("interpolation", problem));
        }
        Ok(())
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        let rows = bounds.pixels.div_ceil(bounds.side.into());
        let size = Size::new(bounds.side, u32::try_from(rows).unwrap_or(u32::MAX));
        self.smoothness().entries(size)
    }
}

impl BuiltIn for Elastic {
    const NAME: &'static str = "elastic";

    fn examples() -> Vec<Self> {
        let nearest = Interpolation::Nearest;
        vec![
            Self { sigma: [2.0; 2], ..Self::default() },
            Self { alpha: [200.0, 0.0], sigma: [1.0, 4.0], fill: [9, 200, 0], ..Self::default() },
            Self { alpha: [6.0; 2], sigma: [0.0; 2], interpolation: nearest, ..Self::default() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::warp::field::Field;

    /// Noise does not repeat in large images.
    #[test]
    fn displacements_of_a_large_image_do_not_repeat() {
        let field =
            Field { smoothness: Smoothness { alpha: [2.0; 2], sigma: [0.0; 2] }, key: [1, 2] };
        let (size, mut table) = (Size::new(700, 500), Vec::new());
        field.append(size, &mut table);
        let mut pairs: Vec<[i32; 2]> = table.as_chunks().0.to_vec();
        assert_eq!(pairs.len() as u64, size.pixels());
        let [x, y] = [0, 1].map(|axis| pairs.iter().map(|it| f64::from(it[axis])).sum::<f64>());
        // Each displacement is uniform from -1 to 1 pixel. The limit is four standard deviations of
        // the sum.
        let most = 4.0 * 65536.0 * (pairs.len() as f64 / 3.0).sqrt();
        assert!(x.abs() < most && y.abs() < most, "{x} {y}");
        pairs.sort_unstable();
        pairs.dedup();
        // 350,000 draws from 2^34 possible pairs have 3.6 duplicates on average.
        assert!(pairs.len() as u64 > size.pixels() - 20, "{}", pairs.len());
    }

    #[test]
    fn settings_are_checked() {
        let field = |elastic: Elastic| elastic.check().unwrap_err().field;
        assert_eq!(field(Elastic { alpha: [1.0, -1.0], ..Elastic::default() }), "alpha[1]");
        assert_eq!(field(Elastic { sigma: [101.0, 1.0], ..Elastic::default() }), "sigma[0]");
        assert_eq!(field(Elastic { sigma: [0.0, 1.0], ..Elastic::default() }), "sigma");
        let interpolation = Interpolation::Bicubic;
        assert_eq!(field(Elastic { interpolation, ..Elastic::default() }), "interpolation");
        for elastic in Elastic::examples() {
            assert_eq!(elastic.check(), Ok(()));
        }
    }
}
