//! Making pictures smaller once, so that every epoch reads and decodes less.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use serde::{Deserialize, Serialize};

use crate::decode::HostDecoder;
use crate::error::{Error, Fault, Reason, Result};
use crate::geometry::Size;
use crate::header::Header;
use crate::image::{HostImage, Image, PixelType};
use crate::op::{Operator, Resize, Wanted};
use crate::random::{SampleKey, SampleRng};

/// How small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presize {
    /// Pixels of the shorter side; pictures whose shorter side is not longer are kept as they are, byte for byte.
    pub shorter: u32,
    /// JPEG quality in libjpeg's terms, 1 to 100. The chroma is halved both ways (4:2:0).
    pub quality: u8,
}

impl Presize {
    /// Whether the settings can be.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the value that cannot be.
    pub fn check(&self) -> Result<()> {
        if !(1..=100).contains(&self.quality) {
            return Err(Error::config("quality", format!("must be 1 to 100, is {}", self.quality)));
        }
        let checked = Resize::shorter(self.shorter).check();
        checked.map_err(|error| Error::config(error.field, error.problem))
    }
}

/// Makes pictures smaller: upright, resized as the operator `resize` does by default (Pillow's antialiased bilinear
/// filter), and a baseline JPEG afterwards. One per thread; its buffers only ever grow.
pub struct Presizer {
    settings: Presize,
    decoder: HostDecoder,
    upright: HostImage,
    resized: HostImage,
    table: Vec<i32>,
}

impl Presizer {
    /// With these settings, which were checked.
    pub fn new(settings: Presize) -> Self {
        Self {
            settings,
            decoder: HostDecoder::new(),
            upright: HostImage::new(PixelType::U8, Size::default().window()),
            resized: HostImage::new(PixelType::U8, Size::default().window()),
            table: Vec::new(),
        }
    }

    /// The smaller picture as a JPEG, or `None` where the picture is small enough. A picture that is wide or high beyond
    /// what a JPEG can be (65535) after that is a fault.
    pub fn make(&mut self, bytes: &[u8], header: &Header) -> Result<Option<Vec<u8>>, Fault> {
        let size = header.orientation.upright_size(header.size);
        if size.width.min(size.height) <= self.settings.shorter {
            return Ok(None);
        }
        self.decode(bytes, header, size)?;
        let output = self.resize(size);
        let (Ok(width), Ok(height)) = (u16::try_from(output.width), u16::try_from(output.height))
        else {
            let problem = format!("would be {output} pixels, a JPEG has at most 65535 a side");
            return Err(Fault::new(Reason::Unsupported, problem));
        };
        let HostImage::U8(pixels) = &self.resized else { unreachable!("made with this type") };
        let mut jpeg = Vec::new();
        let mut encoder = Encoder::new(&mut jpeg, self.settings.quality);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        encoder.encode(pixels.data(), width, height, ColorType::Rgb).map_err(|error| {
            Fault::new(Reason::Unsupported, format!("cannot be encoded again: {error}"))
        })?;
        Ok(Some(jpeg))
    }

    fn decode(&mut self, bytes: &[u8], header: &Header, upright: Size) -> Result<(), Fault> {
        let (stored, orientation) = (header.size, header.orientation);
        let HostImage::U8(image) = &mut self.upright else { unreachable!("made with this type") };
        image.reset(upright.window());
        let mut row = |y: u32, line: &[u8]| {
            if orientation.is_upright() {
                image.row_mut(y).copy_from_slice(line);
                return;
            }
            for (x, pixel) in (0..).zip(line.as_chunks().0) {
                let (x, y) = orientation.upright_position(stored, x, y);
                image.set_pixel(x, y, *pixel);
            }
        };
        self.decoder.decode(bytes, header, stored.window(), 1, &mut row)
    }

    fn resize(&mut self, input: Size) -> Size {
        let resize = Resize::shorter(self.settings.shorter);
        // The operator draws nothing.
        let mut rng = SampleRng::new(SampleKey { seed: 0, epoch: 0, index: 0 }, 0);
        let (output, mut params) = resize.prepare(input, &mut rng);
        self.table.clear();
        let wanted = Wanted { input, reduction: 1, output: output.window() };
        resize.demand(&mut params, wanted, &mut self.table);
        let HostImage::U8(image) = &mut self.resized else { unreachable!("made with this type") };
        Image::reset(image, output.window());
        Resize::apply(&params, &self.table, &self.upright, &mut self.resized);
        output
    }
}
