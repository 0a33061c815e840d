//! WebP containers: canvas, first frame, and orientation in EXIF or XMP.
//!
//! The rules are those of libwebp's demuxer, which Pillow calls first. Containers that the demuxer
//! refuses are refused here. Later frames of an animation are checked too, but otherwise ignored.

use super::exif::Metadata;
use super::{Format, Header, corrupt, le32, truncated};
use crate::error::DataError;
use crate::geometry::{Roi, Size};

pub(crate) use code_groups::bytes as code_bytes;

mod code_groups;

/// Flags of a VP8X chunk.
const ANIMATION: u8 = 0x02;
const XMP: u8 = 0x04;
const EXIF: u8 = 0x08;
const ALPHA: u8 = 0x10;
/// All flags that may be set: animation, XMP, EXIF, alpha, and ICC profile (0x20).
const KNOWN_FLAGS: u8 = 0x3E;

/// Exclusive upper limit of the number of pixels of a canvas or frame.
const MAX_PIXELS: u64 = 1 << 32;

/// Size of a chunk's name and length, in bytes.
const CHUNK_HEAD: usize = 8;
/// Size of the fixed part of a VP8X chunk in bytes.
const VP8X_BYTES: usize = 10;
/// Size of the fixed part of an ANIM chunk in bytes.
const ANIM_BYTES: usize = 6;
/// Size of the fixed part of an ANMF chunk in bytes.
const ANMF_BYTES: usize = 16;

/// Position of the first frame, in the file and on the canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WebpLayout<'a> {
    /// Size of the canvas.
    pub size: Size,
    /// Part of the canvas that the frame covers. This is the whole canvas, except in animations.
    /// The rest is black.
    pub frame: Roi,
    /// Chunks of the frame: alpha if present, then the pixels.
    pub chunks: &'a [u8],
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, DataError> {
    let mut metadata = Metadata::default();
    let size = walk(bytes, &mut metadata)?.size;
    Ok(Header { format: Format::WebP, size, orientation: metadata.orientation(), jpeg: None })
}

/// Parses the header from the first bytes of a file. Metadata after these bytes is not found.
pub(super) fn parse_head(head: &[u8]) -> Result<Header, DataError> {
    let (Some(riff), Some(kind), Some(data)) = (le32(head, 4), head.get(12..16), head.get(20..))
    else {
        return Err(truncated("its first chunk"));
    };
    if u64::from(riff) + CHUNK_HEAD as u64 <= head.len() as u64 {
        return parse(head);
    }
    let size = match kind {
        b"VP8 " => lossy_size(data)?,
        b"VP8L" => lossless_size(data)?,
        b"VP8X" => canvas(data)?.1,
        _ => return Err(corrupt("the first chunk is neither VP8, VP8L nor VP8X")),
    };
    let orientation = Metadata::default().orientation();
    Ok(Header { format: Format::WebP, size, orientation, jpeg: None })
}

/// Parses the container for the decoder.
pub(crate) fn layout(bytes: &[u8]) -> Result<WebpLayout<'_>, DataError> {
    walk(bytes, &mut Metadata::default())
}

fn walk<'a>(bytes: &'a [u8], metadata: &mut Metadata) -> Result<WebpLayout<'a>, DataError> {
    let riff = le32(bytes, 4).ok_or_else(|| truncated("its first chunk"))?;
    let claimed = u64::from(riff) + CHUNK_HEAD as u64;
    if claimed > bytes.len() as u64 {
        let problem = format!(
            "the image data (the header gives a file length of {claimed} bytes, but the file has \
             only {} bytes)",
            bytes.len()
        );
        return Err(truncated(&problem));
    }
    if claimed < 20 {
        return Err(corrupt(format!(
            "the header gives a file length of {claimed} bytes, which is too short for one chunk"
        )));
    }
    let mut walk = Walk { bytes: &bytes[..claimed as usize], at: 12 };
    match walk.peek()?.kind {
        b"VP8 " | b"VP8L" => {
            // Alpha is only allowed with the alpha flag of a VP8X chunk, which this file does not
            // have.
            let Frame { size, chunks } = walk.frame(false)?;
            if walk.left() > 0 && walk.left() < CHUNK_HEAD {
                return Err(corrupt("the image ends inside the header of a chunk"));
            }
            Ok(WebpLayout { size, frame: size.window(), chunks })
        }
        b"VP8X" => walk.extended(metadata),
        _ => Err(corrupt("the first chunk is neither VP8, VP8L nor VP8X")),
    }
}

/// Reading position. Reading ends where the RIFF chunk ends.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// One complete chunk.
struct Chunk<'a> {
    kind: &'a [u8; 4],
    data: &'a [u8],
    /// Length in bytes, including header and padding.
    len: usize,
}

/// Chunks of one frame.
struct Frame<'a> {
    size: Size,
    chunks: &'a [u8],
}

impl<'a> Walk<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns the chunk that begins here.
    fn peek(&self) -> Result<Chunk<'a>, DataError> {
        let rest = &self.bytes[self.at..];
        let (Some(kind), Some(length)) = (rest.first_chunk(), le32(rest, 4)) else {
            return Err(corrupt("the image ends inside the header of a chunk"));
        };
        // Chunks are padded to an even length.
        let len = CHUNK_HEAD + length as usize + length as usize % 2;
        if len > rest.len() {
            let problem = format!("a chunk of {length} bytes is longer than the rest of the file");
            return Err(corrupt(problem));
        }
        Ok(Chunk { kind, data: &rest[CHUNK_HEAD..CHUNK_HEAD + length as usize], len })
    }

    /// Moves past the chunks of a frame: at most one alpha chunk, then pixels. Without `alpha`, an
    /// alpha chunk is not part of the frame.
    fn frame(&mut self, alpha: bool) -> Result<Frame<'a>, DataError> {
        let mut start = self.at;
        let mut chunk = self.peek()?;
        let seen = chunk.kind == b"ALPH";
        if seen {
            self.at += chunk.len;
            chunk = self.peek()?;
            if chunk.kind != b"VP8 " {
                return Err(corrupt("an alpha chunk is not followed by a VP8 chunk"));
            }
            if !alpha {
                start = self.at;
            }
        }
        let size = match chunk.kind {
            b"VP8 " => lossy_size(chunk.data)?,
            b"VP8L" => lossless_size(chunk.data)?,
            _ => return Err(corrupt("a frame has no VP8 or VP8L chunk")),
        };
        self.at += chunk.len;
        let chunks = &self.bytes[start..self.at];
        // libwebp also accepts an alpha chunk after the pixels as part of the frame. If alpha is
        // used, libwebp refuses this order.
        if self.left() >= CHUNK_HEAD && !seen && self.peek()?.kind == b"ALPH" {
            if alpha {
                return Err(corrupt(
                    "an alpha chunk follows the chunk of the pixels instead of preceding it",
                ));
            }
            self.at += self.peek()?.len;
        }
        Ok(Frame { size, chunks })
    }

    /// Parses a file that starts with a VP8X chunk.
    fn extended(&mut self, metadata: &mut Metadata) -> Result<WebpLayout<'a>, DataError> {
        let head = self.peek()?;
        let (flags, canvas) = canvas(head.data)?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(corrupt(format!("the VP8X chunk has the unknown flags {flags:#04x}")));
        }
        self.at += head.len;
        let animated = flags & ANIMATION != 0;
        let (mut first, mut frames, mut animation, mut exif, mut xmp) =
            (None, 0u32, false, false, false);
        while self.left() > 0 {
            let chunk = self.peek()?;
            match chunk.kind {
                b"VP8X" => return Err(corrupt("a second VP8X chunk")),
                b"VP8 " | b"VP8L" | b"ALPH" => {
                    if animated || animation || frames > 0 {
                        return Err(corrupt(
                            "the WebP has both an animation and pixels outside of its frames",
                        ));
                    }
                    let Frame { size, chunks } = self.frame(flags & ALPHA != 0)?;
                    if size != canvas {
                        return Err(corrupt(format!(
                            "the image has the size {size}, but its canvas has the size {canvas}"
                        )));
                    }
                    frames += 1;
                    first = Some(WebpLayout { size: canvas, frame: canvas.window(), chunks });
                    continue;
                }
                b"ANIM" => {
                    if chunk.data.len() < ANIM_BYTES {
                        return Err(corrupt(
                            "the ANIM chunk is too short for a background color and a loop count",
                        ));
                    }
                    animation = true;
                }
                b"ANMF" => {
                    if !animation {
                        return Err(corrupt(
                            "a frame precedes the ANIM chunk, which must come first",
                        ));
                    }
                    let (frame, chunks) = self.animation_frame(&chunk)?;
                    if animated {
                        check_inside(canvas, frame)?;
                        first = first.or(Some(WebpLayout { size: canvas, frame, chunks }));
                    }
                    continue;
                }
                b"EXIF" if flags & EXIF != 0 && !exif => {
                    exif = true;
                    metadata.set_exif(&chunk.data.into());
                }
                b"XMP " if flags & XMP != 0 && !xmp => {
                    xmp = true;
                    metadata.set_xmp(chunk.data);
                }
                _ => {}
            }
            self.at += chunk.len;
        }
        first.ok_or_else(|| corrupt("a WebP without an image"))
    }

    /// Moves past a frame of an animation. Returns its position on the canvas, and its chunks.
    fn animation_frame(&mut self, chunk: &Chunk<'a>) -> Result<(Roi, &'a [u8]), DataError> {
        let Some((head, payload)) = chunk.data.split_at_checked(ANMF_BYTES) else {
            return Err(corrupt(
                "an ANMF chunk is too short for the position and size of its frame",
            ));
        };
        let number = |at: usize| le24([head[at], head[at + 1], head[at + 2]]);
        let (x, y) = (2 * number(0), 2 * number(3));
        let size = Size::new(number(6) + 1, number(9) + 1);
        if size.pixels() >= MAX_PIXELS {
            return Err(corrupt(format!(
                "a frame has the size {size}; at most 2^32 - 1 pixels are allowed"
            )));
        }
        self.at += CHUNK_HEAD + ANMF_BYTES;
        let begin = self.at;
        let Frame { size: coded, chunks } = self.frame(true)?;
        if self.at - begin > payload.len() + payload.len() % 2 {
            return Err(corrupt(
                "the chunks inside a frame are longer than the ANMF chunk of the frame",
            ));
        }
        // If the size in the ANMF chunk differs from the size of the coded image, libwebp uses the
        // size of the coded image.
        Ok((Roi::new(x, y, coded.width, coded.height), chunks))
    }
}

/// Returns flags and canvas of a VP8X chunk.
fn canvas(data: &[u8]) -> Result<(u8, Size), DataError> {
    let &[flags, _, _, _, ref sides @ ..] = data else {
        return Err(corrupt("a VP8X chunk without flags"));
    };
    let Some(&[w0, w1, w2, h0, h1, h2]) = sides.first_chunk() else {
        let problem =
            format!("the VP8X chunk has {} bytes; at least {VP8X_BYTES} are needed", data.len());
        return Err(corrupt(problem));
    };
    let canvas = Size::new(le24([w0, w1, w2]) + 1, le24([h0, h1, h2]) + 1);
    if canvas.pixels() >= MAX_PIXELS {
        return Err(corrupt(format!(
            "the canvas has the size {canvas}; at most 2^32 - 1 pixels are allowed"
        )));
    }
    Ok((flags, canvas))
}

fn check_inside(canvas: Size, frame: Roi) -> Result<(), DataError> {
    let end = |at: u32, length: u32| u64::from(at) + u64::from(length);
    if end(frame.x, frame.width) > canvas.width.into()
        || end(frame.y, frame.height) > canvas.height.into()
    {
        return Err(corrupt(format!("the frame at {frame} is not inside the canvas of {canvas}")));
    }
    Ok(())
}

/// Returns the size in a VP8 chunk (RFC 6386, section 9.1): a key frame's tag, start code, and
/// 14-bit width and height.
fn lossy_size(data: &[u8]) -> Result<Size, DataError> {
    let head: &[u8; 10] = data.first_chunk().ok_or_else(|| truncated("its VP8 frame header"))?;
    let tag = le24([head[0], head[1], head[2]]);
    let (version, visible, partition) = (tag >> 1 & 7, tag >> 4 & 1, tag >> 5);
    if tag & 1 != 0 || head[3..6] != [0x9D, 0x01, 0x2A] || version > 3 || visible == 0 {
        return Err(corrupt("the VP8 chunk does not start with a visible key frame"));
    }
    if partition as usize >= data.len() {
        let problem = format!(
            "the first partition of {partition} bytes does not fit into its VP8 chunk of {} \
                 bytes",
            data.len()
        );
        return Err(corrupt(problem));
    }
    let side = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]) & 0x3FFF);
    let size = Size::new(side(6), side(8));
    if size.width == 0 || size.height == 0 {
        return Err(corrupt(format!("the header says {size}")));
    }
    Ok(size)
}

/// Returns the size in a VP8L chunk (WebP lossless bitstream, section 3): a signature byte, 14-bit
/// width and height minus one, alpha, and version 0.
fn lossless_size(data: &[u8]) -> Result<Size, DataError> {
    let (Some(signature), Some(bits)) = (data.first(), le32(data, 1)) else {
        return Err(truncated("its VP8L header"));
    };
    if *signature != 0x2F || bits >> 29 != 0 {
        return Err(corrupt("the VP8L chunk does not start with its signature and version 0"));
    }
    Ok(Size::new((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
}

fn le24([low, middle, high]: [u8; 3]) -> u32 {
    u32::from_le_bytes([low, middle, high, 0])
}
