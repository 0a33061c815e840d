//! Intermediate images between the passes of a transform.

use crate::error::DataError;
use crate::geometry::Roi;
use crate::image::{HostImage, Image, PixelType};
use crate::op::kind::mix::{Mix, Mixer};

/// Intermediate images: two of bytes, two of floats, and two for actions that mix images. Images of
/// both pixel types are kept, so that a chain that changes the pixel type reuses the memory of the
/// previous sample. `plan/need.rs` predicts this memory.
pub struct Images {
    bytes: [HostImage; 2],
    floats: [HostImage; 2],
    mixer: Mixer,
    /// Pixel type and index of the current image.
    at: (PixelType, usize),
}

impl Default for Images {
    fn default() -> Self {
        let [bytes, floats] =
            [PixelType::U8, PixelType::F32].map(|pixels| [0; 2].map(|_| empty(pixels)));
        Self { bytes, floats, mixer: Mixer::default(), at: (PixelType::U8, 1) }
    }
}

impl Images {
    /// Begins a sample. The next image of bytes will be the one at index 0.
    pub fn begin(&mut self) {
        self.at = (PixelType::U8, 1);
    }

    /// Returns the current image.
    pub fn current(&self) -> &HostImage {
        let (pixels, place) = self.at;
        &self.of(pixels)[place]
    }

    /// Returns the current image.
    pub fn current_mut(&mut self) -> &mut HostImage {
        let (pixels, place) = self.at;
        &mut self.of_mut(pixels)[place]
    }

    /// Takes the current image out. The caller must [put it back](Self::put_back).
    pub fn take(&mut self) -> HostImage {
        let (pixels, place) = self.at;
        std::mem::replace(&mut self.of_mut(pixels)[place], empty(pixels))
    }

    /// Puts the current image back.
    pub fn put_back(&mut self, image: HostImage) {
        let (pixels, place) = self.at;
        self.of_mut(pixels)[place] = image;
    }

    /// Takes out the image to write next, with this window and unspecified values: the other image
    /// of the current pixel type, or the first image of the other pixel type. The caller passes it
    /// to [`advance`](Self::advance), which makes it the current image.
    pub fn next(&mut self, pixels: PixelType, window: Roi) -> Result<HostImage, DataError> {
        let place = self.place(pixels);
        let mut image = std::mem::replace(&mut self.of_mut(pixels)[place], empty(pixels));
        let reset = match &mut image {
            HostImage::U8(image) => image.reset(window),
            HostImage::F32(image) => image.reset(window),
        };
        reset.map(|()| image)
    }

    /// Executes one action of a mix, which adds up several images, on the image `src`. Returns the
    /// image for the next action, cut to `window`.
    pub fn mix(&mut self, mix: &Mix, src: &HostImage, window: Roi) -> Result<HostImage, DataError> {
        let mut out = self.next(PixelType::U8, window)?;
        self.mixer.take(*mix, src, &mut out).map(|()| out)
    }

    /// Makes an image from [`next`](Self::next) the current image.
    pub fn advance(&mut self, image: HostImage) {
        self.at = (image.pixels(), self.place(image.pixels()));
        self.put_back(image);
    }

    /// Memory that the intermediate images hold, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        let images = self.bytes.iter().chain(&self.floats).map(HostImage::capacity_bytes);
        images.sum::<usize>() + self.mixer.capacity_bytes()
    }

    fn place(&self, pixels: PixelType) -> usize {
        if pixels == self.at.0 { 1 - self.at.1 } else { 0 }
    }

    fn of(&self, pixels: PixelType) -> &[HostImage; 2] {
        match pixels {
            PixelType::U8 => &self.bytes,
            PixelType::F32 => &self.floats,
        }
    }

    fn of_mut(&mut self, pixels: PixelType) -> &mut [HostImage; 2] {
        match pixels {
            PixelType::U8 => &mut self.bytes,
            PixelType::F32 => &mut self.floats,
        }
    }
}

/// Returns an image without pixels or memory.
fn empty(pixels: PixelType) -> HostImage {
    match pixels {
        PixelType::U8 => HostImage::U8(Image::default()),
        PixelType::F32 => HostImage::F32(Image::default()),
    }
}
