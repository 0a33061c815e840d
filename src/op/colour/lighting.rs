//! `lighting`: AlexNet's noise along the principal components of natural colours.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_number, needs_colours};
use crate::op::shared::noise::normals;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};
use crate::random::SampleRng;

/// Adds AlexNet's noise along the principal components of natural colours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lighting {
    /// Standard deviation of the three factors, one per principal component, 0 to 100. The factors
    /// are normally distributed. Default 0.1.
    pub std: f64,
}

impl Default for Lighting {
    fn default() -> Self {
        Self { std: 0.1 }
    }
}

impl Operator for Lighting {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Params { shift } = Params::draw(self.std, draw.rng());
        draw.note("Lighting", &[("shift", &shift)]);
        draw.table(|channel, byte| (f64::from(byte) + shift[channel] + 0.5) as u8);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("std", self.std, 0.0, 100.0)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        needs_colours(Self::NAME, input)
    }

    fn is_random(&self) -> bool {
        self.std > 0.0
    }
}

impl BuiltIn for Lighting {
    const NAME: &'static str = "lighting";

    fn examples() -> Vec<Self> {
        [0.0, 0.1, 2.0].map(|std| Self { std }).to_vec()
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Shift that is added to each channel, in levels of a byte.
    pub shift: [f64; 3],
}

/// Square roots of the eigenvalues of the covariance of ImageNet's pixels, with channels from 0 to
/// 1 (`Lighting` of fb.resnet.torch, `datasets/transforms.lua`).
const EIGENVALUES: [f64; 3] = [0.2175, 0.0188, 0.0045];

/// Eigenvectors of the covariance, one per column.
const EIGENVECTORS: [[f64; 3]; 3] =
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]];

impl Params {
    /// Shift for three normally distributed factors, which are already multiplied by their standard
    /// deviation.
    pub fn new(alphas: [f64; 3]) -> Self {
        let amounts: [f64; 3] = std::array::from_fn(|at| alphas[at] * EIGENVALUES[at]);
        let shift = EIGENVECTORS
            .map(|row| 255.0 * (row[0] * amounts[0] + row[1] * amounts[1] + row[2] * amounts[2]));
        Self { shift }
    }

    /// Draws the three factors from a normal distribution with the standard deviation `std`.
    /// AlexNet uses 0.1 (Krizhevsky, Sutskever and Hinton, "ImageNet classification with deep
    /// convolutional neural networks", 2012, section 4.1).
    pub fn draw(std: f64, rng: &mut SampleRng) -> Self {
        let normals = normals(std::array::from_fn(|_| rng.bits()));
        Self::new(normals.map(|it| std * f64::from(it)))
    }
}
