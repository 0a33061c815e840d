//! Making images smaller once, so that every epoch reads and decodes less.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use serde::{Deserialize, Serialize};

use feedwater::decode::Decoders;
use feedwater::error::{DataError, Error, Reason, Result};
use feedwater::header::Header;
use feedwater::op::{Operator, Resize};
use feedwater::plan::SampleMemory;
use feedwater::transform::FullDecoder;

/// How small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presize {
    /// Pixels of the shorter side; images whose shorter side is not longer are kept as they are, byte for byte.
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

/// Makes images smaller: upright, resized as the operator `resize` does by default (Pillow's antialiased bilinear
/// filter), and a baseline JPEG afterwards. One per thread; its buffers grow to the largest image until they are given back.
pub struct Presizer {
    quality: u8,
    shorter: u32,
    decoder: Decoders,
    full_decoder: FullDecoder,
}

impl Presizer {
    /// With these settings, which were checked.
    pub fn new(Presize { shorter, quality }: Presize) -> Self {
        let full_decoder = FullDecoder::new(Some(shorter), true);
        Self { quality, shorter, decoder: Decoders::new(), full_decoder }
    }

    /// Memory that making the image smaller takes, beside its file; `None` where the image is small enough.
    pub fn need(&self, bytes: &[u8], header: &Header) -> Option<SampleMemory> {
        let decode = self.decoder.memory(header, bytes, bytes.len() as u64);
        let need = || SampleMemory::of_resized(header, decode, self.shorter);
        self.full_decoder.resizes(header).then(need)
    }

    /// Gives all memory back.
    pub fn release(&mut self) {
        self.decoder.release();
        self.full_decoder.release();
    }

    /// The same presizer, for which damage is a fault (the default), or which takes what Pillow takes: `decode.strict`.
    pub fn strict(self, strict: bool) -> Self {
        Self { decoder: self.decoder.strict(strict), ..self }
    }

    /// The smaller image as a JPEG, or `None` where the image is small enough. An image that is wide or high beyond
    /// what a JPEG can be (65535) after that is a fault.
    pub fn make(&mut self, bytes: &[u8], header: &Header) -> Result<Option<Vec<u8>>, DataError> {
        if !self.full_decoder.resizes(header) {
            return Ok(None);
        }
        let size = self.full_decoder.size(header);
        let (Ok(width), Ok(height)) = (u16::try_from(size.width), u16::try_from(size.height))
        else {
            let problem = format!("would be {size} pixels, a JPEG has at most 65535 a side");
            return Err(DataError::new(Reason::Unsupported, problem));
        };
        let (_, pixels) = self.full_decoder.decode(bytes, header, &mut self.decoder)?;
        let mut jpeg = Vec::new();
        let mut encoder = Encoder::new(&mut jpeg, self.quality);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        let encoded = encoder.encode(&pixels, width, height, ColorType::Rgb);
        self.full_decoder.give_back(pixels);
        encoded.map(|()| Some(jpeg)).map_err(|error| {
            DataError::new(Reason::Unsupported, format!("cannot be encoded again: {error}"))
        })
    }
}
