//! A contact sheet: the images of a batch as a person would see them.

use std::borrow::Cow;
use std::io::{self, Write};
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

/// Most images on a sheet.
const MOST: usize = 64;

/// Pixels between images.
const GAP: usize = 2;

/// Level of the space between images.
const GROUND: u8 = 32;

/// RGB images on a dark ground, row after row, as near to a square as it gets. It is drawn while it is written, so it takes
/// the memory of one row of pixels.
pub struct Sheet<'a> {
    shape: TensorShape,
    data: &'a [u8],
    normalize: Option<normalize::Params>,
    count: usize,
    columns: usize,
}

impl<'a> Sheet<'a> {
    /// The first images of a batch of this shape, with the chain's `normalize` undone.
    pub fn new(plan: &Plan, shape: TensorShape, data: &'a [u8]) -> Self {
        let count = shape.batch.min(MOST);
        let columns = (1..=count).find(|columns| columns * columns >= count).unwrap_or(1);
        Self { shape, data, normalize: normalization(plan), count, columns }
    }

    /// Writes it as a PNG, which is still to be committed.
    pub fn write(&self, path: &Path) -> io::Result<AtomicFile> {
        let mut file = AtomicFile::create(path)?;
        let (width, height) = self.size();
        let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header()?;
        let mut rows = writer.stream_writer()?;
        let mut rgb = vec![GROUND; CHANNELS * width];
        for y in 0..height {
            self.draw_row(y, &mut rgb);
            rows.write_all(&rgb)?;
        }
        rows.finish()?;
        writer.finish()?;
        file.flush()?;
        Ok(file)
    }

    /// Width and height in pixels.
    fn size(&self) -> (usize, usize) {
        let side = |pictures: usize, pixels: u32| pictures * (pixels as usize + GAP) + GAP;
        let rows = self.count.div_ceil(self.columns);
        (side(self.columns, self.shape.width), side(rows, self.shape.height))
    }

    /// Draws row `y` of the sheet.
    fn draw_row(&self, y: usize, rgb: &mut [u8]) {
        rgb.fill(GROUND);
        let (width, height) = (self.shape.width as usize, self.shape.height as usize);
        let (row, y) = (y / (height + GAP), y % (height + GAP));
        // Each image has a gap above it.
        let Some(y) = y.checked_sub(GAP) else { return };
        let pictures = row * self.columns..self.count.min((row + 1) * self.columns);
        for (column, sample) in pictures.enumerate() {
            let bytes = self.shape.sample_bytes();
            let data = &self.data[sample * bytes..][..bytes];
            let left = GAP + column * (width + GAP);
            let pixels = rgb[CHANNELS * left..].chunks_exact_mut(CHANNELS).take(width);
            for (x, pixel) in pixels.enumerate() {
                for (channel, level) in pixel.iter_mut().enumerate() {
                    *level = self.level(data, (x, y), channel);
                }
            }
        }
    }

    /// The level of one channel of a pixel, 0 to 255.
    fn level(&self, data: &[u8], (x, y): (usize, usize), channel: usize) -> u8 {
        let (width, height) = (self.shape.width as usize, self.shape.height as usize);
        let at = match self.shape.layout {
            Layout::Nchw => (channel * height + y) * width + x,
            Layout::Nhwc => (y * width + x) * CHANNELS + channel,
        };
        let value = element(self.shape.dtype, data, at);
        let level = match &self.normalize {
            None => value,
            Some(it) => 255.0 * (value * it.std[channel] + it.mean[channel]),
        };
        // `as` clamps to 0..=255.
        (level + 0.5) as u8
    }
}

/// The tensor of a batch in host memory; a copy where it lives on the device.
pub fn on_host(batch: &Batch) -> Result<Cow<'_, [u8]>> {
    batch.host().map_or_else(|| batch.to_host().map(Cow::Owned), |data| Ok(Cow::Borrowed(data)))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Three images of 2x1 pixels with the levels 1, 2 and 3, on a sheet of two by two.
    #[test]
    fn images_lie_in_rows_on_the_ground() {
        let shape =
            TensorShape { batch: 3, width: 2, height: 1, dtype: DType::U8, layout: Layout::Nhwc };
        let data = [[1; 6], [2; 6], [3; 6]].concat();
        let sheet = Sheet { shape, data: &data, normalize: None, count: 3, columns: 2 };
        assert_eq!(sheet.size(), (10, 8));
        let drawn: Vec<String> = (0..8)
            .map(|y| {
                let mut rgb = vec![0; CHANNELS * 10];
                sheet.draw_row(y, &mut rgb);
                let (pixels, _) = rgb.as_chunks::<CHANNELS>();
                assert!(pixels.iter().all(|[r, g, b]| r == g && g == b));
                pixels
                    .iter()
                    .map(|&[level, ..]| if level == GROUND { '.' } else { (b'0' + level) as char })
                    .collect()
            })
            .collect();
        let [gap, first, second] = ["..........", "..11..22..", "..33......"];
        assert_eq!(drawn, [gap, gap, first, gap, gap, second, gap, gap]);
    }
}
