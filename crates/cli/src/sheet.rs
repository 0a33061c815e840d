//! Draws a contact sheet: the images of a batch with their labels, files and objects.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use feedwater::Result;
use feedwater::internals::file::AtomicFile;
use feedwater::internals::tensor::{CHANNELS, DType, Layout, TensorShape};
use feedwater::loader::{Batch, Column, Loader};
use half::{bf16, f16};

use caption::Caption;
pub use ends::{Ends, normalization};
use line::{Line, Rgb, shortened, text_width};

mod caption;
mod columns;
mod ends;
mod font;
mod line;
mod masks;
mod object;

/// Largest number of images on a sheet.
const MAX_IMAGES: usize = 64;

/// Gap between images, in pixels.
const GAP: usize = 8;

/// Grey level of the background.
const BACKGROUND: u8 = 32;

/// Colours of the two lines of a caption.
const TITLE: Rgb = [236, 236, 236];
const FILE: Rgb = [164, 172, 180];

/// Smallest width of a caption line, in characters.
const MIN_CHARACTERS: usize = 16;

/// Height of a caption line including the space below it, in pixels at scale 1.
const LINE: usize = font::ROWS + 2;

/// Contact sheet: RGB images with captions on a dark background, in a grid as square as possible.
///
/// Each row is drawn just before it is written. So only one row of pixels and the captions are in
/// memory.
pub struct Sheet<'a> {
    shape: TensorShape,
    /// Values of the tensor in native byte order.
    data: Cow<'a, [u8]>,
    /// Numbers of a mask for each pixel, if there are masks.
    masks: Option<Vec<u8>>,
    normalize: Option<Ends>,
    /// Whether pixels are indices, which have a colour each.
    indices: bool,
    captions: Vec<Caption>,
    columns: usize,
}

impl<'a> Sheet<'a> {
    /// Creates a sheet of the first images of a batch. It shows pixels as they are before
    /// `normalize`, with the masks, boxes, points and texts of columns.
    ///
    /// # Errors
    /// [`Error::Device`](feedwater::Error::Device) if the images are on a device and cannot be
    /// copied.
    pub fn new(loader: &Loader, batch: &'a Batch) -> Result<Self> {
        let plan = loader.plan();
        let count = batch.len().min(MAX_IMAGES);
        let captions = (0..count).map(|place| Caption::new(loader, batch, place)).collect();
        let data = on_host(batch.images())?;
        let masks = masks::masks(plan, batch, None)?;
        Ok(Self { masks, ..Self::of(batch.shape(), data, normalization(plan), captions) })
    }

    /// Creates a sheet of the first outputs of a view.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn of_view(loader: &Loader, batch: &'a Batch, number: usize) -> Result<Self> {
        let plan = loader.plan();
        let view = &plan.views[number];
        let outputs = view.outputs() as usize;
        let shape = TensorShape { batch: outputs * batch.len(), ..view.plan.shape };
        let captions = (0..shape.batch.min(MAX_IMAGES)).map(|place| {
            let output = view.count.map(|_| place % outputs);
            Caption::of_view(loader, batch, (place / outputs, output), number)
        });
        let captions = captions.collect();
        let data = batch.column(&view.name).map_or(Ok(Cow::Borrowed(&[][..])), on_host)?;
        let masks = masks::masks(plan, batch, Some(number))?;
        Ok(Self { masks, ..Self::of(shape, data, normalization(&view.plan), captions) })
    }

    fn of(
        shape: TensorShape,
        data: Cow<'a, [u8]>,
        normalize: Option<Ends>,
        captions: Vec<Caption>,
    ) -> Self {
        let values = data.chunks_exact(shape.dtype.bytes()).map(|it| element(shape.dtype, it, 0));
        let indices = normalize.is_some_and(|ends| ends[0][0].is_infinite());
        let normalize = normalize.filter(|_| !indices).map(|ends| ends::with_range(ends, values));
        let count = captions.len();
        let columns = (1..=count).find(|columns| columns * columns >= count).unwrap_or(1);
        Self { shape, data, masks: None, normalize, indices, captions, columns }
    }

    /// Writes the sheet as a PNG. The caller commits the returned file.
    pub fn write(&self, path: &Path) -> io::Result<AtomicFile> {
        let mut file = AtomicFile::create(path)?;
        let (width, height) = self.size();
        let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header()?;
        let mut rows = writer.stream_writer()?;
        let mut rgb = vec![BACKGROUND; CHANNELS * width];
        for y in 0..height {
            self.draw_row(y, &mut rgb);
            rows.write_all(&rgb)?;
        }
        rows.finish()?;
        writer.finish()?;
        file.flush()?;
        Ok(file)
    }

    /// Pixels per font pixel, 1 to 4. Large images have larger captions, which stay readable when
    /// the sheet is shown reduced.
    fn scale(&self) -> usize {
        (self.shape.width as usize / 320).clamp(1, 4)
    }

    /// Width of a grid cell in pixels: the width of the image or of the shortest caption, whichever
    /// is larger.
    fn column(&self) -> usize {
        let caption = text_width(MIN_CHARACTERS, self.scale() as i32) as usize;
        (self.shape.width as usize).max(caption)
    }

    /// Height of a grid cell in pixels: gap, image and caption.
    fn pitch(&self) -> usize {
        GAP + self.shape.height as usize + (2 * LINE + 5) * self.scale()
    }

    /// Width and height of the sheet in pixels.
    fn size(&self) -> (usize, usize) {
        let rows = self.captions.len().div_ceil(self.columns);
        (self.columns * (self.column() + GAP) + GAP, rows * self.pitch() + GAP)
    }

    /// Draws row `y` of the sheet.
    fn draw_row(&self, y: usize, rgb: &mut [u8]) {
        rgb.fill(BACKGROUND);
        let (row, y) = (y / self.pitch(), y % self.pitch());
        let first = (row * self.columns).min(self.captions.len());
        let end = self.captions.len().min(first + self.columns);
        for (column, place) in (first..end).enumerate() {
            let left = GAP + column * (self.column() + GAP);
            self.draw_cell(place, left, y, rgb);
        }
    }

    /// Draws row `y` of a grid cell (gap, image and caption), beginning at column `left` of the
    /// sheet.
    fn draw_cell(&self, place: usize, left: usize, y: usize, rgb: &mut [u8]) {
        let caption = &self.captions[place];
        let (width, height) = (self.shape.width as usize, self.shape.height as usize);
        let (scale, y) = (self.scale(), y as i32 - GAP as i32);
        if let Some((_, colour)) = caption.mark {
            let (from, to) = (left as i32, (left + width) as i32);
            let frame = [from - 4, -4, to + 4, height as i32 + 4];
            Line { rgb: &mut *rgb, y }.fill(frame, colour);
        }
        let Ok(inside) = usize::try_from(y) else { return };
        if inside < height {
            let bytes = self.shape.sample_bytes();
            let data = &self.data[place * bytes..][..bytes];
            let pixels = &mut rgb[CHANNELS * left..][..CHANNELS * width];
            for (x, pixel) in pixels.chunks_exact_mut(CHANNELS).enumerate() {
                for (channel, level) in pixel.iter_mut().enumerate() {
                    *level = self.level(data, (x, inside), channel);
                }
                if self.indices {
                    pixel.copy_from_slice(&object::of_index(pixel[0]));
                }
                if let Some(masks) = &self.masks {
                    let number = masks[(place * height + inside) * width + x];
                    object::tint(pixel, number);
                }
            }
            let size = [width as i32, height as i32];
            caption.draw_over(&mut Line { rgb: pixels, y }, size, scale as i32);
            return;
        }
        let text = &mut rgb[CHANNELS * left..][..CHANNELS * self.column()];
        let characters = (self.column() + scale) / (font::ADVANCE * scale);
        let mut line = Line { rgb: text, y };
        let top = (height + 5 * scale) as i32;
        let (below, scale) = (top + (LINE * scale) as i32, scale as i32);
        line.text([0, top], &shortened(&caption.title, characters), scale, TITLE);
        line.text([0, below], &shortened(&caption.file, characters), scale, FILE);
    }

    /// Returns the value of one channel of a pixel as a level of 0 to 255.
    fn level(&self, data: &[u8], (x, y): (usize, usize), channel: usize) -> u8 {
        let (width, height) = (self.shape.width as usize, self.shape.height as usize);
        let at = match self.shape.layout {
            // Images with one channel are gray.
            _ if self.shape.channels == 1 => y * width + x,
            Layout::Nchw => (channel * height + y) * width + x,
            Layout::Nhwc => (y * width + x) * self.shape.channels + channel,
        };
        let value = element(self.shape.dtype, data, at);
        let level = match &self.normalize {
            None => value,
            Some(ends) => {
                let [low, high] = ends[channel];
                255.0 * (value - low) / (high - low)
            }
        };
        // The conversion with `as` truncates to an integer and clamps to 0..=255, so adding 0.5
        // rounds.
        (level + 0.5) as u8
    }
}

/// Returns the values of a column in host memory. Those in device memory are copied.
fn on_host(column: Column<'_>) -> Result<Cow<'_, [u8]>> {
    column.bytes().map_or_else(|| column.to_host().map(Cow::Owned), |it| Ok(Cow::Borrowed(it)))
}

/// Reads element number `at` of a tensor in native byte order.
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
mod tests;
