//! Choice of the decoder for a JPEG, and the reason for the choice.

use serde::{Deserialize, Serialize};

/// Setting `decode.jpeg`: the CPU decoder for JPEGs. All choices return the same pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JpegDecoder {
    /// feedwater's own decoder. libjpeg-turbo decodes the images that our decoder refuses
    /// ([`JpegRefusal`]). On CPUs without vector instructions for our decoder (x86-64 without
    /// SSE4.1), libjpeg-turbo decodes all images.
    #[default]
    Auto,
    /// feedwater's own decoder only, for measurements and tests. Images that this decoder refuses
    /// are sample errors.
    Feedwater,
    /// libjpeg-turbo only.
    Libjpeg,
}

/// Reason why libjpeg-turbo decodes a JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum JpegRefusal {
    /// Progressive scans that code coefficients incompletely or in an unusual order.
    Progressive,
    /// Arithmetic coding.
    Arithmetic,
    /// Lossless or hierarchical coding, or a sample size other than 8 bits.
    Process,
    /// RGB, CMYK or YCCK colors, or two components.
    Color,
    /// Chroma sampling other than 4:4:4, 4:2:2, 4:4:0, 4:2:0 or 4:1:1, or half-width chroma with at
    /// most two samples per row.
    Sampling,
    /// Components of a sequential JPEG that are coded in several scans.
    Scans,
    /// A reduction during decoding that changes how chroma is upsampled: 4:2:2 and 4:4:0 at 1/8, or
    /// 4:2:2 with at most two chroma samples per row.
    Reduction,
    /// Unusual or corrupt segments before the coded data.
    Header,
    /// Unusual or corrupt coded data.
    Data,
}

impl JpegRefusal {
    /// Reason in reports, without a decoder's name.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Progressive => "unusual progressive scans",
            Self::Arithmetic => "arithmetic coding",
            Self::Process => "lossless, hierarchical, or not 8 bits per sample",
            Self::Color => "neither gray nor YCbCr",
            Self::Sampling => "an unusual chroma sampling",
            Self::Scans => "several sequential scans",
            Self::Reduction => "a reduction that changes how chroma is upsampled",
            Self::Header => "an unusual header",
            Self::Data => "unusual or damaged data",
        }
    }
}

/// Decoder that decoded a JPEG on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JpegBy {
    /// feedwater's own decoder.
    Feedwater,
    /// libjpeg-turbo, because the user chose it or because it is faster on this CPU.
    Libjpeg,
    /// libjpeg-turbo, because feedwater's own decoder refused the image.
    Refused(JpegRefusal),
}

impl JpegBy {
    /// Key of this decoder in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Feedwater => "feedwater",
            Self::Libjpeg => "libjpeg-turbo",
            Self::Refused(refusal) => match refusal {
                JpegRefusal::Progressive => "libjpeg-turbo: unusual progressive scans",
                JpegRefusal::Arithmetic => "libjpeg-turbo: arithmetic coding",
                JpegRefusal::Process => "libjpeg-turbo: process",
                JpegRefusal::Color => "libjpeg-turbo: neither gray nor YCbCr",
                JpegRefusal::Sampling => "libjpeg-turbo: chroma sampling",
                JpegRefusal::Scans => "libjpeg-turbo: several scans",
                JpegRefusal::Reduction => "libjpeg-turbo: reduced",
                JpegRefusal::Header => "libjpeg-turbo: unusual header",
                JpegRefusal::Data => "libjpeg-turbo: unusual or damaged data",
            },
        }
    }
}
