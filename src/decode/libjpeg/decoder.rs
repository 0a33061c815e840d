//! libjpeg-turbo as one of the decoders: which images it accepts, and what they need.

use super::{decode, memory};
use crate::decode::rows::most_rows;
use crate::decode::{
    Buffers, DecodeMemory, EncodedImage, HostDecoder, JpegBy, RowLayout, RowSink, unsupported,
};
use crate::error::{DataError, Tolerated};
use crate::header::{ColorSpace, Format, FrameKind, Header, JpegHeader};

/// Name of the decoder.
pub(in crate::decode) const NAME: &str = "libjpeg-turbo";

/// Decoder that uses libjpeg-turbo. Accepts every JPEG.
#[derive(Debug, Default)]
pub(in crate::decode) struct LibjpegTurbo;

impl HostDecoder for LibjpegTurbo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Jpeg
    }

    fn memory(&self, header: &Header, _: &[u8], _: u64) -> DecodeMemory {
        // A CMYK pixel has four bytes. libjpeg rounds the width up to whole blocks.
        let row = 4 * (u64::from(header.size.width) + 64);
        let library = match &header.jpeg {
            Some(jpeg) => memory::library_bytes(header.size, jpeg),
            // This case does not occur, because the header of every JPEG has `jpeg`.
            None => 8 * header.size.pixels(),
        };
        DecodeMemory { scratch: 0, rows: row * most_rows(header.size.height), library }
    }

    fn layouts(&self, header: &Header) -> &'static [RowLayout] {
        match header.jpeg.as_ref().map(JpegHeader::color_space) {
            Some(ColorSpace::Gray) => &[RowLayout::Rgb, RowLayout::Gray],
            _ => &[RowLayout::Rgb],
        }
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        let jpeg = image.header.jpeg.as_ref();
        jpeg.map_or(Ok(()), check)?;
        let tolerated = decode(image, &mut buffers.rows, sink)?;
        Ok(tolerated.or(jpeg.and_then(|jpeg| jpeg.tolerated)))
    }

    fn jpeg_by(&self) -> Option<JpegBy> {
        Some(JpegBy::Libjpeg)
    }
}

/// Refuses JPEGs that libjpeg cannot decode, with a clearer message than libjpeg's.
fn check(jpeg: &JpegHeader) -> Result<(), DataError> {
    let what = match jpeg.frame {
        FrameKind::Lossless => "a lossless JPEG".into(),
        FrameKind::Hierarchical => "a hierarchical JPEG".into(),
        _ if jpeg.precision != 8 => format!("a JPEG with {} bits per sample", jpeg.precision),
        _ if jpeg.color_space() == ColorSpace::Unknown => "a JPEG with two components".into(),
        _ => return Ok(()),
    };
    Err(unsupported(format!(
        "{what} is not supported; only sequential and progressive JPEGs with 8 bits per sample are"
    )))
}
