//! `autocontrast`: stretches each channel to 0..=255.

use serde::{Deserialize, Serialize};

use crate::op::kind::StatisticsFormula;
use crate::op::kind::statistics::Reads;
use crate::op::shared::Histograms;
use crate::op::shared::histograms::identity;
use crate::op::{BuiltIn, Cuda, Draw, Kind, Kinds, Operator};

/// Stretches each channel to 0..=255, like torchvision's `autocontrast`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Autocontrast {}

impl Operator for Autocontrast {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::statistics::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        self::draw(draw);
    }
}

impl BuiltIn for Autocontrast {
    const NAME: &'static str = "autocontrast";

    fn examples() -> Vec<Self> {
        vec![Self {}]
    }
}

impl StatisticsFormula for Autocontrast {
    type Params = [u32; 2];
    type Value = u8;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Autocontrast", include_str!("../../../kernels/autocontrast.cu")));
    const READS: Reads = Reads::Extremes;

    /// Maps the smallest byte of a channel to 0 and the largest to 255: torchvision's
    /// `autocontrast` on PIL images (`ImageOps.autocontrast` without cutoff). A channel whose bytes
    /// are all equal is unchanged.
    fn table(_: &Self::Params, histograms: &Histograms) -> [[u8; 256]; 3] {
        histograms.channel.map(|bins| table(&bins))
    }
}

/// Adds an action that stretches the channels of the sample's image.
pub(in crate::op) fn draw(draw: &mut Draw<'_>) {
    draw.statistics::<Autocontrast>(&[0; 2]);
}

/// Table for a channel with this histogram. The arithmetic is Pillow's: f64, then truncation. Where
/// the exact value is an integer, the rounding error of f64 decides the byte, so another formula
/// would differ from Pillow.
fn table(bins: &[u32; 256]) -> [u8; 256] {
    let low = bins.iter().position(|&pixels| pixels > 0).unwrap_or(255);
    let high = bins.iter().rposition(|&pixels| pixels > 0).unwrap_or(0);
    if high <= low {
        return identity();
    }
    let scale = 255.0 / (high - low) as f64;
    let offset = -(low as f64) * scale;
    std::array::from_fn(|byte| (byte as f64 * scale + offset) as u8)
}
