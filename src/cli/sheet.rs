//! A contact sheet: the pictures of a batch as a person would see them.

use std::io;
use std::path::Path;

use feedwater::Result;
use feedwater::file::AtomicFile;
use feedwater::geometry::Size;
use feedwater::loader::Batch;
use feedwater::op::{Fusion, normalize};
use feedwater::plan::Plan;
use feedwater::random::{SampleKey, SampleRng};
use feedwater::tensor::{CHANNELS, DType, Layout, TensorShape};
use half::{bf16, f16};

/// Most pictures on a sheet.
const MOST: usize = 64;

/// Pixels between pictures.
const GAP: usize = 2;

/// RGB pictures on a dark ground, row after row, as near to a square as it gets.
pub struct Sheet {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Sheet {
    /// The first pictures of a batch, with the chain's `normalize` undone.
    pub fn new(plan: &Plan, batch: &Batch) -> Result<Self> {
        match batch.host() {
            Some(data) => Ok(Self::of(plan, batch.shape(), data)),
            None => Ok(Self::of(plan, batch.shape(), &batch.to_host()?)),
        }
    }

    fn of(plan: &Plan, shape: TensorShape, data: &[u8]) -> Self {
        let normalize = normalization(plan);
        let count = shape.batch.min(MOST);
        let columns = (1..=count).find(|columns| columns * columns >= count).unwrap_or(1);
        let rows = count.div_ceil(columns);
        let (columns_each, rows_each) = (shape.width as usize, shape.height as usize);
        let width = columns * (columns_each + GAP) + GAP;
        let height = rows * (rows_each + GAP) + GAP;
        let mut rgb = vec![32; CHANNELS * width * height];
        for sample in 0..count {
            let data = &data[sample * shape.sample_bytes()..][..shape.sample_bytes()];
            let left = GAP + sample % columns * (columns_each + GAP);
            let top = GAP + sample / columns * (rows_each + GAP);
            for y in 0..rows_each {
                for x in 0..columns_each {
                    for channel in 0..CHANNELS {
                        let at = match shape.layout {
                            Layout::Nchw => (channel * rows_each + y) * columns_each + x,
                            Layout::Nhwc => (y * columns_each + x) * CHANNELS + channel,
                        };
                        let value = element(shape.dtype, data, at);
                        let level = match &normalize {
                            None => value,
                            Some(it) => 255.0 * (value * it.std[channel] + it.mean[channel]),
                        };
                        // `as` clamps to 0..=255.
                        rgb[CHANNELS * ((top + y) * width + left + x) + channel] =
                            (level + 0.5) as u8;
                    }
                }
            }
        }
        Self { width, height, rgb }
    }

    /// Writes it as a PNG.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = AtomicFile::create(path)?;
        let mut encoder = png::Encoder::new(&mut file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.rgb)?;
        writer.finish()?;
        file.commit()
    }
}

/// What the chain's last `normalize` subtracts and divides by.
fn normalization(plan: &Plan) -> Option<normalize::Params> {
    // Its parameters are the same for every size and every sample.
    plan.steps.iter().enumerate().rev().find_map(|(place, step)| {
        let mut rng = SampleRng::new(SampleKey::default(), place as u16);
        let (_, params) = step.operator.prepare(Size::new(1, 1), &mut rng);
        match step.operator.fusion(&params) {
            Fusion::Normalize(params) => Some(params),
            _ => None,
        }
    })
}

/// Element number `at` of a tensor in native byte order.
fn element(dtype: DType, data: &[u8], at: usize) -> f32 {
    let bytes = &data[at * dtype.bytes()..];
    match dtype {
        DType::U8 => f32::from(bytes[0]),
        DType::F16 => f16::from_ne_bytes([bytes[0], bytes[1]]).to_f32(),
        DType::BF16 => bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32(),
        _ => f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
    }
}
