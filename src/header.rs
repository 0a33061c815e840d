//! Image headers: format, size and orientation, read from the first bytes of a file. Pixels are not
//! decoded.
//!
//! The format is detected from the content, never from a file name. Whatever sizes a file claims,
//! nothing here allocates more than an error text, with two exceptions: the text of a PNG's profile
//! (at most 1 MiB), and 64 KiB to unpack and check a PNG's texts. Every loop moves forward through
//! the bytes, so hostile input costs at most one pass over the file.

#[cfg(feature = "bmp")]
mod bmp;
mod exif;
mod foreign;
#[cfg(feature = "gif")]
mod gif;
mod jpeg;
mod npy;
mod pfm;
mod png;
mod pnm;
#[cfg(feature = "tiff")]
mod tiff;
mod verify;
mod webp;

use crate::error::{DataError, Reason};
use crate::geometry::{Orientation, Size};

#[cfg(feature = "bmp")]
pub(crate) use bmp::{BmpCoding, BmpLayout, layout as bmp_layout};
pub(crate) use foreign::program_for;
#[cfg(feature = "gif")]
pub(crate) use gif::{GifLayout, layout as gif_layout};
pub use jpeg::{
    ColorSpace, Component, FrameKind, JpegHeader, JpegLayout, JpegScan, JpegScanComponent, Sampling,
};
pub(crate) use npy::{NpyLayout, layout as npy_layout};
pub(crate) use pfm::{PfmLayout, layout as pfm_layout};
pub(crate) use png::{Inflater, PngEnd, PngLayout, Stream as PngStream, layout as png_layout};
pub use pnm::PnmHead;
pub(crate) use pnm::{PnmCoding, PnmLayout, is_space as is_pnm_space, layout as pnm_layout};
#[cfg(feature = "tiff")]
pub(crate) use tiff::{
    FLOAT_BITS as TIFF_FLOAT_BITS, TiffColors, TiffLayout, TiffPacking, TiffPredictor,
    layout as tiff_layout,
};
pub(crate) use webp::{WebpLayout, code_bytes as webp_code_bytes, layout as webp_layout};

/// Usual extensions of image files, as in torchvision's `IMG_EXTENSIONS`.
pub(crate) const EXTENSIONS: [&str; 9] =
    ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];

/// Image format, detected from the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG (ITU-T T.81).
    Jpeg,
    /// PNG (W3C).
    Png,
    /// WebP (Google).
    WebP,
    /// Netpbm's bitmaps, gray images and RGB images, as text (`P1` to `P3`) or binary (`P4` to
    /// `P6`), with up to 16 bits per sample.
    Pnm,
    /// Portable float maps (`Pf`, `PF`), for images of floats only
    /// ([`PixelFormat`](crate::image::PixelFormat)).
    Pfm,
    /// An image in an array of NumPy (`.npy`), with the shape (height, width), (height, width,
    /// channels) or (channels, height, width), and 1, 3 or 4 channels.
    Npy,
    /// Bitmaps of Windows and OS/2. Needs the feature `bmp`.
    Bmp,
    /// CompuServe GIF. Only the first frame is read. Needs the feature `gif`.
    Gif,
    /// TIFF. Only the first image is read. Needs the feature `tiff`.
    Tiff,
    /// Decoded pixels, three bytes per pixel, rows without padding. A cache produces such images.
    /// No file has this format.
    Pixels,
}

impl Format {
    /// Name of the format in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::WebP => "WebP",
            Format::Pnm => "PNM",
            Format::Pfm => "PFM",
            Format::Npy => ".npy array",
            Format::Bmp => "BMP",
            Format::Gif => "GIF",
            Format::Tiff => "TIFF",
            Format::Pixels => "decoded image",
        }
    }

    /// Factors by which a decoder can reduce both sides of an image of this format while it
    /// decodes.
    pub const fn reductions(self) -> &'static [u32] {
        match self {
            Format::Jpeg => &[1, 2, 4, 8],
            _ => &[1],
        }
    }
}

/// Properties of an image that are known before it is decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Format, detected from the content.
    pub format: Format,
    /// Size as stored, before the orientation is applied. Width and height are at least 1.
    pub size: Size,
    /// Rotation and mirroring to apply to the stored pixels, equal to Pillow's
    /// `ImageOps.exif_transpose`.
    pub orientation: Orientation,
    /// JPEG properties. `None` for other formats.
    pub jpeg: Option<JpegHeader>,
}

impl Header {
    /// Parses the header of a whole file. Never panics, whatever the bytes.
    ///
    /// Errors: `Empty` for no bytes. `Unsupported` for another format, with a text that names the
    /// format if it is known. `Truncated` if the file ends inside its header. `Truncated` also for
    /// a JPEG without an end-of-image marker after its first scan, and for a PNM that is too short
    /// for its pixels. `Corrupt` if the header contradicts the format.
    pub fn parse(bytes: &[u8]) -> Result<Self, DataError> {
        Self::parse_as(bytes, true)
    }

    /// Parses the header of a whole file. Unless `strict`, accepts a JPEG that lacks its
    /// end-of-image marker or has a segment with an impossible length, and records that in
    /// [`JpegHeader::tolerated`]. The setting is `decode.strict`.
    pub fn parse_as(bytes: &[u8], strict: bool) -> Result<Self, DataError> {
        if bytes.is_empty() {
            return Err(DataError::new(Reason::Empty, "the file has no bytes"));
        }
        match recognise(bytes)? {
            Format::Jpeg => jpeg::parse(bytes, strict),
            Format::Png => png::parse(bytes),
            Format::WebP => webp::parse(bytes),
            Format::Pnm => pnm::parse(bytes),
            Format::Pfm => pfm::parse(bytes),
            Format::Npy => npy::parse(bytes),
            #[cfg(feature = "bmp")]
            Format::Bmp => bmp::parse(bytes),
            #[cfg(feature = "gif")]
            Format::Gif => gif::parse(bytes),
            #[cfg(feature = "tiff")]
            Format::Tiff => tiff::parse(bytes),
            Format::Pixels => {
                Err(corrupt("the format `pixels` is for decoded images, which have no file"))
            }
            #[cfg(not(all(feature = "bmp", feature = "gif", feature = "tiff")))]
            other => Err(not_built(other, "all-formats")),
        }
    }

    /// Parses the header from the first bytes of a file, which need not include the pixels. An
    /// orientation that is stored after these bytes is not found.
    ///
    /// Returns the errors of [`parse_as`](Self::parse_as), and `Truncated` if the header extends
    /// beyond these bytes.
    pub fn parse_head(head: &[u8], strict: bool) -> Result<Self, DataError> {
        match recognise(head) {
            Ok(Format::Jpeg) => jpeg::parse_head(head, strict).map(|(header, _)| header),
            Ok(Format::WebP) => webp::parse_head(head),
            _ => Self::parse_as(head, strict),
        }
    }

    /// Checks that a JPEG with this header is well formed. After this check, decoders that are
    /// unsafe for corrupt files may decode the file. The check reads every marker up to the end in
    /// one pass and does not decode. Never panics, whatever the bytes.
    ///
    /// The check covers 8-bit Huffman-coded images of ITU-T T.81. It refuses all other images.
    ///
    /// * Segments follow one another without stray bytes. There is exactly one frame header, and it
    ///   matches this `Header`.
    /// * Quantization and Huffman tables are well formed: lengths fit, no step is 0, codes do not
    ///   overlap, and the coding process allows all symbols.
    /// * Each scan refers to components of the frame, in the frame's order, with tables that are
    ///   defined before the scan. The scan's band and bits are a valid continuation of earlier
    ///   scans. All components are coded at the end.
    /// * Restart markers are in order and match the interval. The coded data between markers is
    ///   neither shorter nor longer than its blocks can be.
    /// * There is an end-of-image marker. Bytes after it do not matter.
    ///
    /// A refused file is not necessarily corrupt. The CPU decodes it, or finds it corrupt. Refusing
    /// an intact file only costs speed, but accepting a malformed file would be unsafe.
    ///
    /// Errors: `Truncated` if the file ends before the image. `Unsupported` for images that the
    /// check does not cover (other formats, arithmetic coding, other precisions, lossless and
    /// hierarchical frames). `Corrupt` otherwise.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), DataError> {
        self.walk(bytes, None)
    }

    /// Verifies a JPEG like [`verify`](Self::verify). In the same pass, fills `layout` with the
    /// offsets of the JPEG's tables and scans. With `restarts`, also adds the offsets of its
    /// restart markers.
    ///
    /// Returns the errors of [`verify`](Self::verify), and `Unsupported` for more than
    /// [`JpegLayout::MOST_SCANS`] scans. After an error `layout` is empty.
    pub fn layout(
        &self,
        bytes: &[u8],
        restarts: bool,
        layout: &mut JpegLayout,
    ) -> Result<(), DataError> {
        layout.begin(restarts);
        let walked = self.walk(bytes, Some(layout));
        if walked.is_err() {
            layout.begin(restarts);
        }
        walked
    }

    fn walk(&self, bytes: &[u8], layout: Option<&mut JpegLayout>) -> Result<(), DataError> {
        match &self.jpeg {
            Some(jpeg) => verify::verify(bytes, self.size, jpeg, layout),
            None => {
                let problem = format!(
                    "the file is a {}, but only a JPEG can be verified",
                    self.format.name()
                );
                Err(DataError::new(Reason::Unsupported, problem))
            }
        }
    }
}

const JPEG_MAGIC: &[u8] = &[0xFF, 0xD8, 0xFF];
const PNG_MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Formats that need a feature: first bytes, format, feature, and whether this build has the
/// feature.
const OPTIONAL: [(&[u8], Format, &str, bool); 4] = [
    (b"BM", Format::Bmp, "bmp", cfg!(feature = "bmp")),
    (b"GIF8", Format::Gif, "gif", cfg!(feature = "gif")),
    (b"II*\0", Format::Tiff, "tiff", cfg!(feature = "tiff")),
    (b"MM\0*", Format::Tiff, "tiff", cfg!(feature = "tiff")),
];

fn recognise(bytes: &[u8]) -> Result<Format, DataError> {
    if bytes.starts_with(JPEG_MAGIC) {
        return Ok(Format::Jpeg);
    }
    if bytes.starts_with(PNG_MAGIC) {
        return Ok(Format::Png);
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Ok(Format::WebP);
    }
    if pnm::is_pnm(bytes) {
        return Ok(Format::Pnm);
    }
    if pfm::is_pfm(bytes) {
        return Ok(Format::Pfm);
    }
    if npy::is_npy(bytes) {
        return Ok(Format::Npy);
    }
    for (magic, format, feature, is_built) in OPTIONAL {
        if bytes.starts_with(magic) {
            return if is_built { Ok(format) } else { Err(not_built(format, feature)) };
        }
    }
    let optional = OPTIONAL.map(|(magic, format, ..)| (magic, format.name()));
    let known = [(JPEG_MAGIC, "JPEG"), (PNG_MAGIC, "PNG"), (b"RIFF", "WebP")];
    let pnm = [b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"].map(|magic| (&magic[..], "PNM"));
    for (magic, name) in known.into_iter().chain(pnm).chain(optional) {
        if magic.starts_with(bytes)
            || (bytes.len() < 12 && name == "WebP" && bytes.starts_with(magic))
        {
            let problem =
                format!("the file begins like a {name}, but ends after {} bytes", bytes.len());
            return Err(DataError::new(Reason::Truncated, problem));
        }
    }
    let mut names = vec!["JPEG", "PNG", "WebP"];
    names.extend(OPTIONAL.iter().filter(|it| it.3).map(|it| it.1.name()));
    names.dedup();
    let (names, seen) = (names.join(", "), foreign::looks_like(bytes));
    let problem = format!("the file is neither {names} nor PNM (P1 to P6, Pf, PF): {seen}");
    Err(DataError::new(Reason::Unsupported, problem))
}

fn not_built(format: Format, feature: &str) -> DataError {
    let problem = format!(
        "the file is a {}, but this program was built without the feature \"{feature}\"; build it \
         with that feature",
        format.name()
    );
    DataError::new(Reason::Unsupported, problem)
}

fn truncated(what: &str) -> DataError {
    DataError::new(Reason::Truncated, format!("the file ends inside {what}"))
}

fn corrupt(problem: impl Into<String>) -> DataError {
    DataError::new(Reason::Corrupt, problem)
}

/// Returns a big-endian 16-bit number, or `None` beyond the end of the bytes.
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Returns a big-endian 32-bit number, or `None` beyond the end of the bytes.
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Returns a little-endian 32-bit number, or `None` beyond the end of the bytes.
fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
