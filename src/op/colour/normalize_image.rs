//! `normalize_image`: subtracts the image's own mean and divides by its own standard deviation.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::StatisticsFormula;
use crate::op::kind::statistics::Reads;
use crate::op::shared::Histograms;
use crate::op::{BuiltIn, Cuda, Draw, Kind, Kinds, Operator};

/// Subtracts the image's own mean and divides by its own standard deviation: Albumentations'
/// `Normalize` with the normalization `image` or `image_per_channel`. The results are the f64
/// values of Albumentations, rounded to f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NormalizeImage {
    /// Whether each channel has its own mean and standard deviation. Default: false, one mean and
    /// one deviation for all channels together.
    pub per_channel: bool,
}

impl Operator for NormalizeImage {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::statistics::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.statistics::<Self>(&Params { per_channel: self.per_channel.into(), padding: 0 });
    }
}

impl BuiltIn for NormalizeImage {
    const NAME: &'static str = "normalize_image";

    fn examples() -> Vec<Self> {
        [false, true].map(|per_channel| Self { per_channel }).to_vec()
    }
}

impl StatisticsFormula for NormalizeImage {
    type Params = Params;
    type Value = f32;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("NormalizeImage", include_str!("../../../kernels/normalize_image.cu")));
    const READS: Reads = Reads::Channels;

    /// `(byte - mean) / (deviation + 1e-4)`, clamped to -20..=20: Albumentations'
    /// `Normalize(normalization="image")` and `"image_per_channel"` (`albucore/functions.py`).
    /// Statistics and results are computed in f64, and each result is rounded once to f32.
    fn table(params: &Params, histograms: &Histograms) -> [[f32; 256]; 3] {
        let [r, g, b] = &histograms.channel;
        let all =
            || std::array::from_fn(|byte| [r, g, b].map(|bins| u64::from(bins[byte])).iter().sum());
        histograms
            .channel
            .map(|bins| table(&if params.per_channel == 1 { bins.map(u64::from) } else { all() }))
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// 1 if each channel has its own mean and deviation, 0 if all channels share them.
    pub per_channel: u32,
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}

/// Added to the deviation, in levels of a byte. It makes an image of one colour 0 instead of NaN.
const EPSILON: f64 = 1e-4;

/// Results are clamped to the range from `-LIMIT` to `LIMIT`.
const LIMIT: f64 = 20.0;

fn table(bins: &[u64; 256]) -> [f32; 256] {
    let (mut count, mut sum) = (0, 0);
    for (pixels, byte) in bins.iter().zip(0..) {
        count += pixels;
        sum += byte * pixels;
    }
    let count = count.max(1) as f64;
    let mean = sum as f64 / count;
    let mut squares = 0.0;
    for (byte, &pixels) in bins.iter().enumerate() {
        let distance = byte as f64 - mean;
        squares += pixels as f64 * (distance * distance);
    }
    let deviation = (squares / count).sqrt() + EPSILON;
    std::array::from_fn(|byte| ((byte as f64 - mean) / deviation).clamp(-LIMIT, LIMIT) as f32)
}
