//! Which decoder decodes a JPEG, and why.

use serde::{Deserialize, Serialize};

/// `decode.jpeg`: what decodes JPEGs on the CPU. Pixels are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JpegDecoder {
    /// Our own decoder, and libjpeg-turbo for images that it does not decode ([`JpegRefusal`]). On CPUs for which there are
    /// no vector instructions in our decoder (x86-64 without SSE4.1) it is libjpeg-turbo.
    #[default]
    Auto,
    /// Our own decoder only. Other images are errors, for measurements and tests.
    Feedwater,
    /// libjpeg-turbo only.
    Libjpeg,
}

/// Why libjpeg-turbo decodes a JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum JpegRefusal {
    /// Progressive scans that leave coefficients imprecise, or come in an unusual order.
    Progressive,
    /// Arithmetic coding.
    Arithmetic,
    /// Lossless, hierarchical, or other than 8 bits per sample.
    Process,
    /// Red, green and blue, inks, or two components.
    Color,
    /// Chroma that is subsampled in another way than 4:4:4, 4:2:2, 4:4:0, 4:2:0 or 4:1:1, or half as wide as luma with at most two
    /// samples.
    Sampling,
    /// A scan for each component.
    Scans,
    /// The image is reduced while it is decoded, in a way that leaves half as much chroma as luma (4:2:2 and 4:4:0 at 1/8, or
    /// narrow 4:2:2).
    Reduction,
    /// Something unusual or damaged before the coded data.
    Header,
    /// Something unusual or damaged in the coded data.
    Data,
}

/// What decoded a JPEG on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JpegBy {
    /// Our own decoder.
    Feedwater,
    /// libjpeg-turbo, by the user's choice, or because it is faster on this CPU.
    Libjpeg,
    /// libjpeg-turbo, because our own decoder does not decode the image.
    Refused(JpegRefusal),
}

impl JpegBy {
    /// Key in counts.
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
