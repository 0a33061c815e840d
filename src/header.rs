//! Image headers: format, size and orientation from the first bytes. Reads no pixels.
//!
//! The format is detected from the content, never from a name. Whatever sizes the bytes claim, nothing here allocates
//! more than an error text, except for the text of a PNG's profile, at most 1 MiB, and 64 KiB to unpack and check the
//! texts of a PNG. Every loop moves forward through the bytes, so hostile input costs at most one pass over the file.

mod exif;
mod jpeg;
mod png;
mod pnm;
mod verify;
mod webp;

use crate::error::{DataError, Reason};
use crate::geometry::{Orientation, Size};

pub use jpeg::{
    ColorSpace, Component, FrameKind, JpegHeader, JpegLayout, JpegScan, JpegScanComponent, Sampling,
};
pub(crate) use png::{Inflater, PngEnd, PngLayout, Stream as PngStream, layout as png_layout};
pub use pnm::PnmHead;
pub(crate) use pnm::{PnmCoding, PnmLayout, is_space as is_pnm_space, layout as pnm_layout};
pub(crate) use webp::{WebpLayout, code_bytes as webp_code_bytes, layout as webp_layout};

/// Image format, detected from the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// ITU-T T.81.
    Jpeg,
    /// W3C PNG.
    Png,
    /// Google WebP.
    WebP,
    /// Netpbm's bitmaps, gray or RGB images, as text (`P1` to `P3`) or binary (`P4` to `P6`), with up to 16 bits per
    /// sample.
    Pnm,
    /// Decoded pixels: three bytes per pixel, rows without padding. Produced by a cache, never found in a file.
    Pixels,
}

impl Format {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::WebP => "WebP",
            Format::Pnm => "PNM",
            Format::Pixels => "decoded image",
        }
    }

    /// Factors by which a decoder can reduce both sides of such an image while decoding.
    pub const fn reductions(self) -> &'static [u32] {
        match self {
            Format::Jpeg => &[1, 2, 4, 8],
            Format::Png | Format::WebP | Format::Pnm | Format::Pixels => &[1],
        }
    }
}

/// Properties of an image that are known before it is decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Format, by content.
    pub format: Format,
    /// Size as stored, before the orientation is applied; both sides are at least 1.
    pub size: Size,
    /// Rotation and mirroring to apply to the stored pixels, equal to Pillow's `ImageOps.exif_transpose`.
    pub orientation: Orientation,
    /// JPEG properties. `None` for other formats.
    pub jpeg: Option<JpegHeader>,
}

impl Header {
    /// Parses the header of a whole file. Never panics, whatever the bytes.
    ///
    /// Errors: `Empty` for no bytes, `Unsupported` for another format (the text says what the bytes look like),
    /// `Truncated` if the file ends inside its header or, for a JPEG, has no end-of-image marker after its first scan
    /// or, for a PNM, is too short for its pixels, and `Corrupt` if the header contradicts the format.
    pub fn parse(bytes: &[u8]) -> Result<Self, DataError> {
        Self::parse_as(bytes, true)
    }

    /// Parses the header of a whole file. Unless `strict`, accepts a JPEG that lacks its end-of-image marker or has a
    /// segment of impossible length, and records that in [`JpegHeader::tolerated`]. `decode.strict` is the setting.
    pub fn parse_as(bytes: &[u8], strict: bool) -> Result<Self, DataError> {
        if bytes.is_empty() {
            return Err(DataError::new(Reason::Empty, "the file has no bytes"));
        }
        match recognise(bytes)? {
            Format::Jpeg => jpeg::parse(bytes, strict),
            Format::Png => png::parse(bytes),
            Format::WebP => webp::parse(bytes),
            Format::Pnm => pnm::parse(bytes),
            Format::Pixels => Err(corrupt("a file is never a decoded image")),
        }
    }

    /// Parses the header from the first bytes of a file, which need not include the pixels. An orientation stored
    /// after the pixels is not seen.
    ///
    /// Errors: those of [`parse_as`](Self::parse_as); `Truncated` if the header extends beyond these bytes.
    pub fn parse_head(head: &[u8], strict: bool) -> Result<Self, DataError> {
        match recognise(head) {
            Ok(Format::Jpeg) => jpeg::parse_head(head, strict).map(|(header, _)| header),
            Ok(Format::WebP) => webp::parse_head(head),
            _ => Self::parse_as(head, strict),
        }
    }

    /// Checks that a JPEG with this header is so well formed that it may be passed to a decoder that must not see
    /// damaged files: every marker up to the end, in one pass, without decoding. Never panics, whatever the bytes.
    ///
    /// The check covers ITU-T T.81's 8-bit Huffman-coded images, and refuses everything else:
    ///
    /// * Segments follow one another without stray bytes. There is exactly one frame header, the one of this header.
    /// * Quantisation and Huffman tables are well formed: lengths fit, no step is 0, codes do not overlap, symbols
    ///   are those of the process.
    /// * Each scan names components of the frame, in its order, with tables defined before it. Its band and bits
    ///   follow from the scans before it. At the end each component was coded.
    /// * Restart markers are in order and match the interval. The coded data between markers is neither shorter nor
    ///   longer than its blocks can be.
    /// * There is an end-of-image marker; what follows it does not matter.
    ///
    /// A file that is refused here is not necessarily damaged: it goes to the CPU's decoder, which decides. Refusing
    /// too much costs speed; accepting too much would cost safety.
    ///
    /// Errors: `Truncated` if the file ends before the image does, `Unsupported` for what the check does not cover
    /// (other formats, arithmetic coding, other precisions, lossless and hierarchical frames), `Corrupt` otherwise.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), DataError> {
        self.walk(bytes, None)
    }

    /// Verifies a JPEG like [`verify`](Self::verify), and fills `layout` with the offsets of its tables and scans in
    /// the same pass; with `restarts` also with those of its restart markers.
    ///
    /// Errors: those of [`verify`](Self::verify), and `Unsupported` for more than [`JpegLayout::MOST_SCANS`] scans.
    /// After an error `layout` is empty.
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
                let problem = format!("a {}: only a JPEG can be verified", self.format.name());
                Err(DataError::new(Reason::Unsupported, problem))
            }
        }
    }
}

const JPEG_MAGIC: &[u8] = &[0xFF, 0xD8, 0xFF];
const PNG_MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";

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
    for (magic, name) in [
        (JPEG_MAGIC, "JPEG"),
        (PNG_MAGIC, "PNG"),
        (b"RIFF", "WebP"),
        (b"P1", "PNM"),
        (b"P2", "PNM"),
        (b"P3", "PNM"),
        (b"P4", "PNM"),
        (b"P5", "PNM"),
        (b"P6", "PNM"),
    ] {
        if magic.starts_with(bytes)
            || (bytes.len() < 12 && name == "WebP" && bytes.starts_with(magic))
        {
            let problem = format!("the file has only {} bytes, the start of a {name}", bytes.len());
            return Err(DataError::new(Reason::Truncated, problem));
        }
    }
    let problem = format!("neither JPEG, PNG, WebP nor PNM (P1 to P6): {}", looks_like(bytes));
    Err(DataError::new(Reason::Unsupported, problem))
}

/// Description of bytes in another format, for the error text.
fn looks_like(bytes: &[u8]) -> String {
    const OTHERS: [(usize, &[u8], &str); 16] = [
        (0, b"GIF8", "a GIF"),
        (0, b"BM", "a BMP"),
        (0, b"II*\0", "a TIFF"),
        (0, b"MM\0*", "a TIFF"),
        (0, b"II+\0", "a BigTIFF"),
        (4, b"ftypavif", "an AVIF"),
        (4, b"ftyphei", "a HEIC"),
        (4, b"ftyp", "an MP4 or a related format"),
        (0, &[0xFF, 0x0A], "a JPEG XL"),
        (4, b"JXL \r\n", "a JPEG XL"),
        (4, b"jP  \r\n", "a JPEG 2000"),
        (0, b"8BPS", "a Photoshop file"),
        (0, b"%PDF", "a PDF"),
        (0, b"PK\x03\x04", "a ZIP archive"),
        (0, &[0x1F, 0x8B], "a gzip file"),
        (0, b"P7\n", "a PAM (`pamtopnm` makes a PNM of it)"),
    ];
    let found = OTHERS
        .iter()
        .find(|(at, magic, _)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    if let Some((_, _, name)) = found {
        return format!("the bytes look like {name}");
    }
    let head = &bytes[..bytes.len().min(64)];
    if head.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7E)) {
        return "the bytes look like text".into();
    }
    let start: Vec<String> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("the file starts with {}", start.join(" "))
}

fn truncated(what: &str) -> DataError {
    DataError::new(Reason::Truncated, format!("the file ends inside {what}"))
}

fn corrupt(problem: impl Into<String>) -> DataError {
    DataError::new(Reason::Corrupt, problem)
}

/// Big-endian 16-bit number, if the bytes reach that far.
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Big-endian 32-bit number, if the bytes reach that far.
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Little-endian 32-bit number, if the bytes reach that far.
fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
