//! `gaussian_blur`: blurs with a Gaussian.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::resample::{Blur, MAX_BLUR};
use crate::op::settings::{check_pair, drawn, one_or_each};
use crate::op::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Blurs with a Gaussian, like torchvision's `GaussianBlur`. Bytes may differ from torchvision's by
/// one level, because weights are integers, and the image is rounded to bytes after the columns and
/// again after the rows.
///
/// The weight at distance x is exp(-x^2 / (2 sigma^2)), normalized. The image is reflected at its
/// borders. torchvision refuses kernels that reach over a whole image. feedwater reflects the image
/// as often as such a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    /// Width and height of the kernel in pixels, or one number for both: odd, 1 to 1023.
    #[serde(deserialize_with = "one_or_each")]
    pub kernel_size: [u32; 2],
    /// Standard deviation in pixels, 0.001 to 1000, the same for both axes. One number, or a range
    /// `[low, high]` from which the deviation is drawn uniformly. Default `[0.1, 2.0]`.
    #[serde(deserialize_with = "one_or_each", default = "sigma_of_torchvision")]
    pub sigma: [f64; 2],
}

impl Operator for GaussianBlur {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Resample])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let sigma = drawn(self.sigma, draw.rng());
        draw.blur(Blur { kernel: self.kernel_size, sigma: [sigma; 2] });
    }

    fn check(&self) -> Result<(), FieldError> {
        for size in self.kernel_size {
            if size % 2 == 0 || size > MAX_BLUR {
                let problem = format!("must be an odd number from 1 to {MAX_BLUR}, is {size}");
                return Err(FieldError::new("kernel_size", problem));
            }
        }
        check_pair("sigma", self.sigma, 0.001, 1000.0)
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        let of = |size| Blur::table_len(self.kernel_size, size);
        if let Some(wanted) = bounds.wanted {
            return of(wanted);
        }
        // The table of coefficients has entries for each column and each row. Of all images with a
        // given number of pixels, the widest or the tallest image therefore needs the largest
        // table.
        let other = bounds.pixels.div_ceil(u64::from(bounds.side.max(1))).max(1);
        let other = other.min(u64::from(bounds.side)) as u32;
        of(Size::new(bounds.side, other)).max(of(Size::new(other, bounds.side)))
    }
}

impl BuiltIn for GaussianBlur {
    const NAME: &'static str = "gaussian_blur";

    fn examples() -> Vec<Self> {
        [([3, 3], [0.5; 2]), ([5, 9], [0.1, 2.0]), ([1, 23], [3.0, 5.0])]
            .map(|(kernel_size, sigma)| Self { kernel_size, sigma })
            .to_vec()
    }
}

fn sigma_of_torchvision() -> [f64; 2] {
    [0.1, 2.0]
}
