//! Decoding of whole images, optionally resized, for the decoded cache and for packing.

use crate::decode::Decoders;
use crate::error::{DataError, reserve};
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::image::Image;
use crate::op::resample::{self, Resampler};
use crate::op::{Bounds, Operator, Resize, Wanted};
use crate::tensor::CHANNELS;

use super::upright::Upright;

/// Decoder of whole images. Its buffers grow to the size of the largest image and are reused until
/// they are released.
pub struct FullDecoder {
    /// Maximum shorter side in pixels, and the operator that resizes larger images to it.
    resize: Option<(u32, Resize)>,
    /// Whether images are rotated upright.
    turn: bool,
    pixels: Vec<u8>,
    upright: Option<Image<u8>>,
    table: Vec<i32>,
    resampler: Resampler,
    /// One row of the resized image.
    line: Vec<u8>,
}

impl FullDecoder {
    /// Creates a decoder. With `presize`, an image whose shorter side is longer than `presize`
    /// pixels is resized to that length. If `turn` is set, resized images are rotated upright.
    pub fn new(presize: Option<u32>, turn: bool) -> Self {
        let resize = presize.map(|pixels| (pixels, Resize::shorter(pixels)));
        let resampler = Resampler::default();
        let (pixels, table, line) = (Vec::new(), Vec::new(), Vec::new());
        Self { resize, turn, pixels, upright: None, table, resampler, line }
    }

    /// Whether [`decode`](Self::decode) will resize the image.
    pub fn resizes(&self, header: &Header) -> bool {
        let Size { width, height } = header.size;
        self.resize.is_some_and(|(pixels, _)| width.min(height) > pixels)
    }

    /// Returns the size of the image that [`decode`](Self::decode) returns: upright if it is
    /// resized, otherwise as stored.
    pub fn size(&self, header: &Header) -> Size {
        match self.resize {
            Some((_, resize)) if self.resizes(header) => {
                let upright = self.orientation(header).upright_size(header.size);
                resize.output(upright)
            }
            _ => header.size,
        }
    }

    /// Decodes a whole image. Returns the orientation that must still be applied, and the pixels
    /// row by row, of size [`size`](Self::size). A resized image is already upright if the decoder
    /// rotates images.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        decoder: &mut Decoders,
    ) -> Result<(Orientation, Vec<u8>), DataError> {
        match self.resize {
            Some((_, resize)) if self.resizes(header) => {
                let pixels = self.resized(&resize, bytes, header, decoder)?;
                Ok((Orientation::UPRIGHT, pixels))
            }
            _ => {
                let mut pixels = self.room(header.size)?;
                pixels.clear();
                let window = header.size.window();
                let decoded = decoder.decode(bytes, header, window, 1, &mut |rows| {
                    rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
                });
                match decoded {
                    Ok(()) => Ok((header.orientation, pixels)),
                    Err(error) => {
                        self.pixels = pixels;
                        Err(error)
                    }
                }
            }
        }
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        reserve::free(&mut self.pixels);
        *self = Self { resize: self.resize, ..Self::new(None, self.turn) };
    }

    /// Takes back the buffer of pixels that [`decode`](Self::decode) returned, so that the next
    /// image reuses it.
    pub fn give_back(&mut self, pixels: Vec<u8>) {
        self.pixels = pixels;
    }

    /// Decodes an image, upright if the decoder rotates images, and resizes it.
    fn resized(
        &mut self,
        resize: &Resize,
        bytes: &[u8],
        header: &Header,
        decoder: &mut Decoders,
    ) -> Result<Vec<u8>, DataError> {
        let (orientation, stored) = (self.orientation(header), header.size);
        let size = orientation.upright_size(stored);
        // The buffer is taken out of `self`, so that an error leaves no partial image behind.
        let mut upright = self.upright.take().unwrap_or_default();
        upright.reset(size.window())?;
        let turned = Upright { orientation, stored, first_column: 0 };
        decoder.decode(bytes, header, stored.window(), 1, &mut |rows| {
            turned.store(rows, &mut upright);
        })?;
        let output = resize.output(size);
        let mut params = resample::Params::new(size.window(), output);
        self.table.clear();
        let bounds = Bounds {
            pixels: size.pixels(),
            side: size.width.max(size.height),
            wanted: Some(output),
        };
        reserve::reserve(&mut self.table, resize.coefficients(bounds))?;
        let wanted =
            Wanted { input: size, reduction: 1, padding: Size::default(), output: output.window() };
        resample::fill_table(&mut params, wanted, resize.filter, &mut self.table);
        self.resampler.begin(&params, &self.table, upright.window())?;
        reserve::resize(&mut self.line, CHANNELS * params.wanted().width as usize)?;
        let mut small = Image::from_data(output.window(), self.room(output)?);
        let (resampler, line) = (&mut self.resampler, &mut self.line);
        resample::run(resampler, &params, &self.table, &upright, line, &mut small);
        self.upright = Some(upright);
        Ok(small.into_data())
    }

    /// Allocates memory for an image of this size.
    fn room(&mut self, size: Size) -> Result<Vec<u8>, DataError> {
        let mut pixels = std::mem::take(&mut self.pixels);
        reserve::renew(&mut pixels, 3 * size.pixels() as usize)?;
        Ok(pixels)
    }

    /// Returns the orientation that the decoder applies: the image's, or none if the decoder does
    /// not rotate images.
    fn orientation(&self, header: &Header) -> Orientation {
        if self.turn { header.orientation } else { Orientation::UPRIGHT }
    }
}
