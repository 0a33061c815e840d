//! Images from a cache, which are already decoded. Their rows are passed on without a copy.

use super::rows::hand_on;
use super::{Buffers, DecodeMemory, EncodedImage, HostDecoder, RowLayout, RowSink};
use crate::error::{DataError, Reason, Tolerated};
use crate::header::{Format, Header};
use crate::tensor::CHANNELS;

/// Decoder that accepts decoded pixels.
#[derive(Debug, Default)]
pub(super) struct Pixels;

impl HostDecoder for Pixels {
    fn name(&self) -> &'static str {
        "pixels"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Pixels
    }

    fn memory(&self, _: &Header, _: &[u8], _: u64) -> DecodeMemory {
        DecodeMemory::default()
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        _: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        let EncodedImage { bytes, header, window, .. } = *image;
        let size = header.size;
        let expected = CHANNELS as u64 * size.pixels();
        if bytes.len() as u64 != expected {
            let problem = format!(
                "the decoded image has {} bytes, but {size} pixels need {expected} bytes",
                bytes.len()
            );
            return Err(DataError::new(Reason::Corrupt, problem));
        }
        let stride = CHANNELS * size.width as usize;
        let start = stride * window.y as usize + CHANNELS * window.x as usize;
        hand_on(&bytes[start..], (stride, RowLayout::Rgb), window, sink);
        Ok(None)
    }
}
