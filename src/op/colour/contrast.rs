//! `contrast`: blends the image with its mean gray.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::StatisticsFormula;
use crate::op::kind::statistics::Reads;
use crate::op::settings::{check_pair, drawn, one_or_each};
use crate::op::shared::Histograms;
use crate::op::shared::histograms::count_and_sum;
use crate::op::shared::pillow_blend::{MAX_FACTOR, blend};
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Blends the image with its mean gray, like torchvision's `adjust_contrast`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contrast {
    /// Contrast factor: 0 gives the mean gray of the image, 1 leaves the image unchanged. One
    /// number, or a range `[low, high]` from which the factor is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub factor: [f64; 2],
}

impl Operator for Contrast {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::statistics::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let factor = drawn(self.factor, draw.rng());
        self::draw(draw, factor);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("factor", self.factor, 0.0, MAX_FACTOR)
    }
}

impl BuiltIn for Contrast {
    const NAME: &'static str = "contrast";

    fn examples() -> Vec<Self> {
        [[1.3; 2], [0.0; 2], [0.6, 1.4]].map(|factor| Self { factor }).to_vec()
    }
}

impl StatisticsFormula for Contrast {
    type Params = Params;
    type Value = u8;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Contrast", include_str!("../../../kernels/contrast.cu")));
    const READS: Reads = Reads::MeanGray;

    /// Blends each byte with the mean of the gray image, which is rounded half up: torchvision's
    /// `adjust_contrast` on PIL images (`ImageEnhance.Contrast`).
    fn table(params: &Params, histograms: &Histograms) -> [[u8; 256]; 3] {
        let mean = mean(&histograms.gray);
        [std::array::from_fn(|byte| blend(mean, byte as u8, params.factor)); 3]
    }
}

/// Adds an action that changes the contrast by `factor`.
pub(in crate::op) fn draw(draw: &mut Draw<'_>, factor: f64) {
    draw.statistics::<Contrast>(&Params { factor: factor as f32, padding: 0 });
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Contrast factor: 0 gives the mean gray, 1 the unchanged image.
    pub factor: f32,
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}

/// Mean of a histogram, rounded half up. Pillow computes the mean in f64 and gets the same byte: a
/// mean that is not exactly halfway between two integers is farther from halfway than the error of
/// f64.
fn mean(bins: &[u32; 256]) -> u8 {
    let (count, sum) = count_and_sum(bins);
    ((2 * sum + count) / (2 * count).max(1)) as u8
}
