//! RGB pixels in host memory, which CPU operators exchange.

use serde::{Deserialize, Serialize};

use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::tensor::CHANNELS;

pub use planes::Planes;

mod planes;

/// Element type of a pixel: bytes before `normalize`, floats after it. Images of 16 bits and of
/// floats ([`PixelFormat`]) have floats from the decoder on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PixelType {
    /// Three bytes.
    U8,
    /// Three 32-bit floats.
    F32,
}

/// Pixel format of decoded images: element type and number of channels. The names are those of the
/// crate `fast_image_resize`, except `indices`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PixelFormat {
    /// Gray of 8 bits, as Pillow's `convert("L")`. All image formats can be decoded to it.
    U8,
    /// Palette indices or other numbers of 8 bits that have no mean, such as classes. Operators may
    /// only move pixels, with nearest interpolation.
    Indices,
    /// Red, green and blue of 8 bits. All image formats can be decoded to it.
    #[default]
    U8x3,
    /// Red, green, blue and alpha of 8 bits, as Pillow's `convert("RGBA")`. All image formats can
    /// be decoded to it.
    U8x4,
    /// Gray of 16 bits.
    U16,
    /// Red, green and blue of 16 bits.
    U16x3,
    /// Red, green, blue and alpha of 16 bits.
    U16x4,
    /// Numbers with one channel, as stored.
    F32,
    /// Numbers with three channels, as stored.
    F32x3,
    /// Numbers with three channels and alpha, as stored.
    F32x4,
}

impl PixelFormat {
    /// Name in TOML, Python and messages.
    pub const fn name(self) -> &'static str {
        match self {
            PixelFormat::U8 => "u8",
            PixelFormat::Indices => "indices",
            PixelFormat::U8x3 => "u8x3",
            PixelFormat::U8x4 => "u8x4",
            PixelFormat::U16 => "u16",
            PixelFormat::U16x3 => "u16x3",
            PixelFormat::U16x4 => "u16x4",
            PixelFormat::F32 => "f32",
            PixelFormat::F32x3 => "f32x3",
            PixelFormat::F32x4 => "f32x4",
        }
    }

    /// Number of channels of the tensor. Images with one channel have three equal channels until
    /// the tensor is stored. Images with four channels are a pair of images until then: one of the
    /// colours, and one of the alpha channel with three equal channels.
    pub const fn channels(self) -> usize {
        match self {
            PixelFormat::U8 | PixelFormat::Indices | PixelFormat::U16 | PixelFormat::F32 => 1,
            PixelFormat::U8x3 | PixelFormat::U16x3 | PixelFormat::F32x3 => CHANNELS,
            PixelFormat::U8x4 | PixelFormat::U16x4 | PixelFormat::F32x4 => CHANNELS + 1,
        }
    }

    /// Whether images of this format have an alpha channel.
    pub const fn has_alpha(self) -> bool {
        matches!(self, PixelFormat::U8x4 | PixelFormat::U16x4 | PixelFormat::F32x4)
    }

    /// Element type of images of this format. Values of 16 bits are stored as floats.
    pub const fn pixel_type(self) -> PixelType {
        match self {
            PixelFormat::U8 | PixelFormat::Indices | PixelFormat::U8x3 | PixelFormat::U8x4 => {
                PixelType::U8
            }
            _ => PixelType::F32,
        }
    }

    /// Whether images of this format are stored as floats: all but those of 8 bits.
    pub const fn is_floats(self) -> bool {
        matches!(self.pixel_type(), PixelType::F32)
    }

    /// Whether images of this format are decoded and transformed only on the CPU: all but `u8x3`.
    pub const fn is_only_on_cpu(self) -> bool {
        !matches!(self, PixelFormat::U8x3)
    }

    /// Whether channels have 16 bits.
    pub const fn is_16_bit(self) -> bool {
        matches!(self, PixelFormat::U16 | PixelFormat::U16x3 | PixelFormat::U16x4)
    }

    /// Whether channels have the numbers of the file, whatever its type.
    pub const fn is_as_stored(self) -> bool {
        matches!(self, PixelFormat::F32 | PixelFormat::F32x3 | PixelFormat::F32x4)
    }

    /// Number by which `normalize` divides: the maximum of an unsigned integer, or 1 for numbers as
    /// stored.
    pub const fn scale(self) -> f32 {
        match self {
            PixelFormat::U8 | PixelFormat::Indices | PixelFormat::U8x3 | PixelFormat::U8x4 => 255.0,
            PixelFormat::U16 | PixelFormat::U16x3 | PixelFormat::U16x4 => 65_535.0,
            PixelFormat::F32 | PixelFormat::F32x3 | PixelFormat::F32x4 => 1.0,
        }
    }
}

/// Interleaved RGB pixels of one window of an image. Rows have no padding.
///
/// Coordinates are those of the whole image. Operators therefore do not depend on which window is
/// stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image<T> {
    window: Roi,
    data: Vec<T>,
}

impl<T: Copy + Default> Image<T> {
    /// Creates a window of zeros.
    pub fn new(window: Roi) -> Self {
        Self { window, data: vec![T::default(); len(window)] }
    }

    /// Creates an image from a window's `width * height * 3` values, row by row.
    pub fn from_data(window: Roi, data: Vec<T>) -> Self {
        assert_eq!(data.len(), len(window), "pixels of {window}");
        Self { window, data }
    }

    /// Changes the window. Reuses the memory, or allocates exactly what is needed. The values are
    /// unspecified. If the allocation fails, the window is empty.
    pub fn reset(&mut self, window: Roi) -> Result<(), DataError> {
        self.window = Roi::default();
        if let Err(error) = reserve::renew(&mut self.data, len(window)) {
            self.data.clear();
            return Err(error);
        }
        self.window = window;
        Ok(())
    }

    /// Stored window of the image.
    pub fn window(&self) -> Roi {
        self.window
    }

    /// All values, row by row.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// All values, row by row, as a vector.
    pub fn into_data(mut self) -> Vec<T> {
        std::mem::take(&mut self.data)
    }

    /// All values, row by row.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// Returns the `3 * width` values of row `y` of the image.
    pub fn row(&self, y: u32) -> &[T] {
        let len = CHANNELS * self.window.width as usize;
        &self.data[(y - self.window.y) as usize * len..][..len]
    }

    /// Returns the `3 * width` values of row `y` of the image.
    pub fn row_mut(&mut self, y: u32) -> &mut [T] {
        let len = CHANNELS * self.window.width as usize;
        &mut self.data[(y - self.window.y) as usize * len..][..len]
    }

    /// Pixel at column `x` of row `y` of the image.
    pub fn pixel(&self, x: u32, y: u32) -> [T; CHANNELS] {
        let row = &self.row(y)[CHANNELS * (x - self.window.x) as usize..];
        [row[0], row[1], row[2]]
    }

    /// Sets the pixel at column `x` of row `y` of the image.
    pub fn set_pixel(&mut self, x: u32, y: u32, pixel: [T; CHANNELS]) {
        let start = CHANNELS * (x - self.window.x) as usize;
        self.row_mut(y)[start..start + CHANNELS].copy_from_slice(&pixel);
    }

    /// Memory that the image holds, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.data.capacity() * size_of::<T>()
    }
}

impl<T> Drop for Image<T> {
    fn drop(&mut self) {
        reserve::free(&mut self.data);
    }
}

/// Image of either pixel type.
#[derive(Clone, Debug, PartialEq)]
pub enum HostImage {
    /// Bytes.
    U8(Image<u8>),
    /// Floats: after `normalize`, or from the decoder on in formats of 16 bits and of floats.
    F32(Image<f32>),
}

impl HostImage {
    /// Creates a window of zeros.
    pub fn new(pixels: PixelType, window: Roi) -> Self {
        match pixels {
            PixelType::U8 => HostImage::U8(Image::new(window)),
            PixelType::F32 => HostImage::F32(Image::new(window)),
        }
    }

    /// Stored window of the image.
    pub fn window(&self) -> Roi {
        match self {
            HostImage::U8(image) => image.window(),
            HostImage::F32(image) => image.window(),
        }
    }

    /// Memory that the image holds, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        match self {
            HostImage::U8(image) => image.capacity_bytes(),
            HostImage::F32(image) => image.capacity_bytes(),
        }
    }

    /// Pixel type of the image.
    pub fn pixels(&self) -> PixelType {
        match self {
            HostImage::U8(_) => PixelType::U8,
            HostImage::F32(_) => PixelType::F32,
        }
    }

    /// Size of the image in device memory, in bytes. There, rows of bytes are padded to
    /// [`Roi::pitch_bytes`] bytes, and rows of floats have no padding.
    pub fn bytes_on_device(&self) -> usize {
        match self {
            HostImage::U8(image) => image.window().pitched_bytes(),
            HostImage::F32(image) => size_of_val(image.data()),
        }
    }

    /// Writes the image in its device layout to `out`, which must have
    /// [`bytes_on_device`](Self::bytes_on_device) bytes. Padding between rows is not written.
    pub fn write_for_device(&self, out: &mut [u8]) {
        match self {
            HostImage::U8(image) => {
                let window = image.window();
                let rows = out.chunks_exact_mut((window.pitch_bytes() as usize).max(1));
                for (row, y) in rows.zip(window.y..window.bottom()) {
                    let pixels = image.row(y);
                    row[..pixels.len()].copy_from_slice(pixels);
                }
            }
            HostImage::F32(image) => out.copy_from_slice(bytemuck::cast_slice(image.data())),
        }
    }
}

fn len(window: Roi) -> usize {
    CHANNELS * window.width as usize * window.height as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_those_of_the_whole_image() {
        let mut image = Image::<u8>::new(Roi::new(10, 20, 3, 2));
        image.set_pixel(12, 21, [1, 2, 3]);
        assert_eq!(image.pixel(12, 21), [1, 2, 3]);
        assert_eq!(image.row(21), [0, 0, 0, 0, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn device_rows_of_bytes_are_padded_to_sixteen_pixels() {
        let of = |width| {
            HostImage::U8(Image::from_data(Roi::new(3, 4, width, 2), vec![7; 6 * width as usize]))
        };
        for (width, pitch) in [(1, 48), (16, 48), (17, 96)] {
            let image = of(width);
            assert_eq!(image.bytes_on_device(), 2 * pitch, "{width}");
            let mut out = vec![9; 2 * pitch];
            image.write_for_device(&mut out);
            let row: Vec<u8> =
                (0..pitch).map(|at| if at < 3 * width as usize { 7 } else { 9 }).collect();
            assert_eq!(out, [&row[..], &row[..]].concat(), "{width}");
        }
        let floats = HostImage::F32(Image::from_data(Roi::new(0, 0, 1, 2), vec![0.5; 6]));
        let mut out = vec![0; floats.bytes_on_device()];
        floats.write_for_device(&mut out);
        assert_eq!(out, 0.5f32.to_ne_bytes().repeat(6));
    }
}
