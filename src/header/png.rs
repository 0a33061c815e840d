//! PNG chunks: size in IHDR, orientation in EXIF or XMP, and positions of palette and pixels.

use std::iter;

use super::exif::Metadata;
use super::{Format, Header, be32, corrupt, truncated};
use crate::error::DataError;
use crate::geometry::Size;

mod checks;
mod inflate;
mod text;

use checks::Checks;
pub(crate) use inflate::{Inflater, Stream};

/// Maximum width and height that the format allows, in pixels.
const MAX_SIDE: u32 = i32::MAX as u32;

/// Size of the file signature in bytes.
const SIGNATURE_BYTES: usize = 8;
/// Size of a chunk's length and kind in bytes.
const HEAD_BYTES: usize = 8;
/// Size of a chunk's checksum in bytes.
const CRC_BYTES: usize = 4;

/// Palette and pixels of a PNG. For an APNG, the pixels are those of the default image, as in
/// Pillow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PngLayout<'a> {
    /// Signature and IHDR.
    pub head: &'a [u8],
    /// Colors of three bytes. Empty without a PLTE chunk.
    pub palette: &'a [u8],
    /// Content of the tRNS chunk: alpha of the colors of the palette, or one transparent color.
    /// Empty without this chunk.
    pub transparency: &'a [u8],
    /// Whether a tRNS chunk is after the pixels, where Pillow also reads it.
    has_late_transparency: bool,
    /// Consecutive IDAT chunks, including headers and checksums.
    pub pixels: &'a [u8],
    /// Whether the last IDAT chunk is complete, including its checksum.
    pub pixels_whole: bool,
    /// Whether the last IDAT chunk is complete, except possibly for its checksum.
    pub data_whole: bool,
    /// How the file ends after the pixels.
    pub end: PngEnd,
}

/// How a PNG file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PngEnd {
    /// The file ends with an IEND chunk.
    Whole,
    /// The file has no IEND chunk, but Pillow accepts it.
    Missing,
    /// The file ends inside a chunk that Pillow reads.
    Cut,
    /// Pillow refuses one of the chunks after the pixels.
    Malformed(DataError),
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, DataError> {
    let (Some(length), Some(width), Some(height)) =
        (be32(bytes, 8), be32(bytes, 16), be32(bytes, 20))
    else {
        return Err(truncated("its IHDR chunk"));
    };
    if length != 13 || &bytes[12..16] != b"IHDR" {
        return Err(corrupt("the first chunk is not a 13-byte IHDR"));
    }
    if bytes.len() < 33 {
        return Err(truncated("its IHDR chunk"));
    }
    let size = Size::new(width, height);
    if width == 0 || height == 0 || width > MAX_SIDE || height > MAX_SIDE {
        return Err(corrupt(format!(
            "the IHDR chunk gives the size {size}; width and height must be from 1 to {MAX_SIDE}"
        )));
    }
    let orientation = metadata(bytes).orientation();
    Ok(Header { format: Format::Png, size, orientation, jpeg: None })
}

/// Reads orientation metadata of all chunks, including those after the pixels. As in Pillow, only
/// the last chunk of each kind is used, an eXIf chunk takes precedence over a profile in a text
/// chunk, and chunks after an animation's first frame are ignored.
fn metadata(bytes: &[u8]) -> Metadata {
    let (mut exif, mut profile, mut xmp, mut packet) = (None, None, None, None);
    let (mut animated, mut pixels) = (false, false);
    let mut chunks = Chunks::new(bytes);
    while let Some(Chunk { kind, data, .. }) = chunks.next().filter(|it| it.data.is_some()) {
        let data = data.unwrap_or_default();
        match kind {
            b"eXIf" => exif = Some(data),
            b"tEXt" | b"zTXt" | b"iTXt" => match text::keyword(data) {
                // Pillow treats the content of a tEXt chunk with the keyword `exif` like that of an
                // eXIf chunk.
                b"exif" if kind == b"tEXt" => exif = Some(data.get(5..).unwrap_or_default()),
                b"Raw profile type exif" => profile = text::text(kind, data).or(profile),
                b"XML:com.adobe.xmp" => {
                    if let Some(text) = text::text(kind, data) {
                        if kind == b"iTXt" {
                            packet = Some(text.clone());
                        }
                        xmp = Some(text);
                    }
                }
                _ => {}
            },
            b"acTL" => animated = true,
            b"IDAT" => pixels = true,
            b"fcTL" if animated && pixels => break,
            b"IEND" => break,
            _ => {}
        }
    }
    let mut metadata = Metadata::default();
    if let Some(exif) = exif {
        metadata.set_exif(&exif.into());
    } else if let Some(exif) = profile.and_then(|text| text::raw_profile(&text)) {
        metadata.set_exif(&exif[..].into());
    }
    // If the last XMP text of all chunks is empty, Pillow uses the last XMP text in an iTXt chunk.
    if let Some(xmp) = xmp.filter(|text| !text.is_empty()).or(packet) {
        metadata.set_xmp(&xmp);
    }
    metadata
}

/// Returns the positions of palette and pixels. The header of the file must have been parsed.
///
/// Errors if Pillow refuses the chunks before the pixels: `Corrupt` (a wrong checksum, an invalid
/// chunk type, a malformed chunk, no pixels) or `Truncated`.
pub(crate) fn layout(bytes: &[u8]) -> Result<PngLayout<'_>, DataError> {
    let (mut palette, mut transparency): (&[u8], &[u8]) = (&[], &[]);
    let mut checks = Checks::new(&bytes[16..29]);
    let mut chunks = Chunks::new(bytes);
    let pixels = loop {
        let at = chunks.at;
        let chunk = chunks.next().ok_or_else(|| truncated("the chunks before its pixels"))?;
        let name = || chunk.kind.escape_ascii();
        if !chunk.is_named() {
            return Err(corrupt(format!("a chunk has the invalid name \"{}\"", name())));
        }
        if chunk.kind == b"IDAT" {
            break at;
        }
        let (Some(data), Some(crc)) = (chunk.data, chunk.crc) else {
            return Err(truncated(&format!("its {} chunk", name())));
        };
        if crc != checksum(chunk.kind, data) {
            return Err(corrupt(format!("the checksum of the {} chunk is wrong", name())));
        }
        match chunk.kind {
            b"PLTE" => palette = data,
            b"tRNS" => transparency = data,
            b"IEND" | b"fdAT" => {
                return Err(corrupt("the PNG has no IDAT chunk before its IEND chunk"));
            }
            _ => {}
        }
        checks.check(chunk.kind, data)?;
    };
    if checks.transparent_color() {
        // Pillow takes a line feed after the alphas for the end of a line.
        transparency = transparency.strip_suffix(b"\n").unwrap_or(transparency);
    }
    checks.pixels_begin();
    checks.together()?;
    chunks.at = pixels;
    let [mut pixels_whole, mut data_whole] = [true; 2];
    let end = loop {
        let at = chunks.at;
        match chunks.next() {
            Some(chunk) if chunk.kind == b"IDAT" => {
                pixels_whole = chunk.crc.is_some();
                data_whole = chunk.data.is_some();
            }
            _ => break at,
        }
        if !pixels_whole {
            break bytes.len();
        }
    };
    chunks.at = end;
    let pixels = &bytes[pixels..end];
    let end = ending(chunks, &mut checks);
    Ok(PngLayout {
        head: &bytes[..33],
        palette,
        transparency,
        has_late_transparency: checks.has_late_transparency(),
        pixels,
        pixels_whole,
        data_whole,
        end,
    })
}

impl<'a> PngLayout<'a> {
    /// Checks that no tRNS chunk is after the pixels. Pillow applies such a chunk.
    pub fn check_transparency(&self) -> Result<(), DataError> {
        match self.has_late_transparency {
            false => Ok(()),
            true => Err(corrupt(
                "the tRNS chunk of the PNG is after its pixels; save the image again, or decode it \
                 without alpha",
            )),
        }
    }

    /// Iterates over the contents of the IDAT chunks. The last content may be incomplete.
    pub fn data(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let pixels = self.pixels;
        let mut chunks = Chunks { bytes: pixels, at: 0 };
        iter::from_fn(move || {
            let start = pixels.len().min(chunks.at + HEAD_BYTES);
            Some(chunks.next()?.data.unwrap_or(&pixels[start..]))
        })
    }

    /// Whether the checksums of all IDAT chunks are correct.
    pub fn checksums_hold(&self) -> bool {
        let mut chunks = Chunks { bytes: self.pixels, at: 0 };
        chunks
            .all(|it| it.data.zip(it.crc).is_some_and(|(data, crc)| crc == checksum(it.kind, data)))
    }
}

/// Returns how the file ends after the pixels.
fn ending(chunks: Chunks<'_>, checks: &mut Checks<'_>) -> PngEnd {
    let end = last_chunks(chunks, checks);
    // An error in a single chunk takes precedence over an error that concerns several chunks.
    match checks.together() {
        Err(error) if matches!(end, PngEnd::Whole | PngEnd::Missing) => PngEnd::Malformed(error),
        _ => end,
    }
}

fn last_chunks(chunks: Chunks<'_>, checks: &mut Checks<'_>) -> PngEnd {
    let mut first_frame_ended = false;
    for chunk in chunks {
        match chunk.data {
            _ if !chunk.is_named() => return PngEnd::Missing,
            Some(_) if chunk.kind == b"IEND" && chunk.crc.is_some() => return PngEnd::Whole,
            None if chunk.kind == b"IEND" || first_frame_ended => return PngEnd::Missing,
            None => return PngEnd::Cut,
            Some(_) if chunk.kind == b"IEND" || first_frame_ended => {}
            Some(_) if chunk.kind == b"fcTL" && checks.is_animated() => first_frame_ended = true,
            Some(data) => {
                if let Err(error) = checks.check(chunk.kind, data) {
                    return PngEnd::Malformed(error);
                }
            }
        }
    }
    PngEnd::Missing
}

/// Checks that the default image of an APNG has the size of the image, if the default image is the
/// first frame of the animation. `head` is the content of IHDR.
fn check_default_image(head: &[u8], control: &[u8]) -> Result<(), DataError> {
    let number = |at: usize| be32(control, at);
    if [number(4), number(8), number(12), number(16)]
        != [be32(head, 0), be32(head, 4), Some(0), Some(0)]
    {
        return Err(corrupt(
            "the first frame of the animation does not have the size of the image",
        ));
    }
    Ok(())
}

fn checksum(kind: &[u8; 4], data: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(kind);
    hasher.update(data);
    hasher.finalize()
}

/// Iterator over chunks, beginning at a position. It ends at an incomplete chunk header.
struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
}

struct Chunk<'a> {
    kind: &'a [u8; 4],
    /// Content of the chunk. `None` if the file ends inside the content.
    data: Option<&'a [u8]>,
    crc: Option<u32>,
}

impl Chunk<'_> {
    /// Whether Pillow accepts the chunk type as valid.
    fn is_named(&self) -> bool {
        self.kind.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    }
}

impl<'a> Chunks<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: SIGNATURE_BYTES }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        let length = be32(rest, 0)? as usize;
        let kind = rest.get(4..)?.first_chunk()?;
        let data = rest.get(HEAD_BYTES..HEAD_BYTES + length);
        let crc = be32(rest, HEAD_BYTES + length);
        self.at = self.bytes.len().min(self.at + HEAD_BYTES + length + CRC_BYTES);
        Some(Chunk { kind, data, crc })
    }
}
