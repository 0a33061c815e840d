//! Makes images smaller once, while packing, so that every epoch reads and decodes fewer bytes.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use serde::{Deserialize, Serialize};

use feedwater::error::{DataError, Error, Reason, Result};
use feedwater::internals::decode::Decoders;
use feedwater::internals::header::Header;
use feedwater::internals::plan::SampleMemory;
use feedwater::internals::transform::FullDecoder;
use feedwater::op::{Operator, Resize};

/// Size and quality of images that are made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presize {
    /// Length in pixels to which the shorter side is reduced. Images whose shorter side has at most
    /// this length are copied byte for byte.
    pub shorter: u32,
    /// JPEG quality, 1 to 100 as in libjpeg. The chroma has half the resolution in both directions
    /// (4:2:0).
    pub quality: u8,
}

impl Presize {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Config`] that names the invalid value.
    pub fn check(&self) -> Result<()> {
        if !(1..=100).contains(&self.quality) {
            return Err(Error::config("quality", format!("must be 1 to 100, is {}", self.quality)));
        }
        let checked = Resize::shorter(self.shorter).check();
        checked.map_err(|error| Error::config(error.field, error.problem))
    }
}

/// Makes images smaller. A presizer rotates an image upright, resizes it like the operator `resize`
/// (by default with Pillow's antialiased bilinear filter), and encodes it as a baseline JPEG. Use
/// one presizer per thread. Its buffers grow to the size of the largest image, until
/// [`release`](Self::release) frees them.
pub struct Presizer {
    quality: u8,
    shorter: u32,
    decoder: Decoders,
    full_decoder: FullDecoder,
}

impl Presizer {
    /// Creates a presizer. The settings must have passed [`Presize::check`].
    pub fn new(Presize { shorter, quality }: Presize) -> Self {
        let full_decoder = FullDecoder::new(Some(shorter), true);
        Self { quality, shorter, decoder: Decoders::new(), full_decoder }
    }

    /// Returns the memory that is needed to make the image smaller, besides the file itself.
    /// Returns `None` if the image is already small enough.
    pub fn need(&self, bytes: &[u8], header: &Header) -> Option<SampleMemory> {
        let decode = self.decoder.memory(header, bytes, bytes.len() as u64);
        let need = || SampleMemory::of_resized(header, decode, self.shorter);
        self.full_decoder.resizes(header).then(need)
    }

    /// Frees all buffers.
    pub fn release(&mut self) {
        self.decoder.release();
        self.full_decoder.release();
    }

    /// Sets `decode.strict`. If true (the default), damaged images are errors. If false, damage
    /// that Pillow tolerates is no error.
    pub fn strict(self, strict: bool) -> Self {
        Self { decoder: self.decoder.strict(strict), ..self }
    }

    /// Returns the smaller image as a JPEG, or `None` if the image is already small enough. Fails
    /// if the result is wider or higher than a JPEG can be (65535 pixels).
    pub fn make(&mut self, bytes: &[u8], header: &Header) -> Result<Option<Vec<u8>>, DataError> {
        if !self.full_decoder.resizes(header) {
            return Ok(None);
        }
        let size = self.full_decoder.size(header);
        let (Ok(width), Ok(height)) = (u16::try_from(size.width), u16::try_from(size.height))
        else {
            let problem = format!(
                "the resized image would have {size} pixels; a JPEG has at most 65535 per side"
            );
            return Err(DataError::new(Reason::Unsupported, problem));
        };
        let (_, pixels) = self.full_decoder.decode(bytes, header, &mut self.decoder)?;
        let mut jpeg = Vec::new();
        let mut encoder = Encoder::new(&mut jpeg, self.quality);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        let encoded = encoder.encode(&pixels, width, height, ColorType::Rgb);
        self.full_decoder.give_back(pixels);
        encoded.map(|()| Some(jpeg)).map_err(|error| {
            DataError::new(
                Reason::Unsupported,
                format!("the resized image cannot be encoded as a JPEG: {error}"),
            )
        })
    }
}
