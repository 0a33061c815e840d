//! `equalize`: equalizes the histogram of each channel.

use serde::{Deserialize, Serialize};

use crate::op::kind::StatisticsFormula;
use crate::op::kind::statistics::Reads;
use crate::op::shared::Histograms;
use crate::op::shared::histograms::identity;
use crate::op::{BuiltIn, Cuda, Draw, Kind, Kinds, Operator};

/// Equalizes the histogram of each channel, like torchvision's `equalize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equalize {}

impl Operator for Equalize {
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

impl BuiltIn for Equalize {
    const NAME: &'static str = "equalize";

    fn examples() -> Vec<Self> {
        vec![Self {}]
    }
}

impl StatisticsFormula for Equalize {
    type Params = [u32; 2];
    type Value = u8;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Equalize", include_str!("../../../kernels/equalize.cu")));
    const READS: Reads = Reads::Channels;

    /// Maps a byte to the number of pixels with a smaller byte, divided by a step and rounded:
    /// torchvision's `equalize` on PIL images (`ImageOps.equalize`). The step is (all pixels -
    /// pixels with the largest byte) / 255. A channel whose step is 0, such as one whose bytes are
    /// all equal, is unchanged.
    fn table(_: &Self::Params, histograms: &Histograms) -> [[u8; 256]; 3] {
        histograms.channel.map(|bins| table(&bins))
    }
}

/// Adds an action that equalizes the histograms of the sample's image.
pub(in crate::op) fn draw(draw: &mut Draw<'_>) {
    draw.statistics::<Equalize>(&[0; 2]);
}

fn table(bins: &[u32; 256]) -> [u8; 256] {
    let count: u64 = bins.iter().map(|&pixels| u64::from(pixels)).sum();
    let last = bins.iter().rev().find(|&&pixels| pixels > 0).map_or(0, |&pixels| u64::from(pixels));
    let step = (count - last) / 255;
    if step == 0 {
        return identity();
    }
    let mut below = step / 2;
    bins.map(|pixels| {
        let level = below / step;
        below += u64::from(pixels);
        level.min(255) as u8
    })
}
