//! Decoding on the CPU: a window of RGB rows out of a JPEG, PNG, WebP or PNM, bit for bit what Pillow gives.
//!
//! The pixels are those of Pillow's `Image.open(file).convert("RGB")` before any orientation is applied. Alpha is
//! dropped, gray becomes three equal channels, inks become RGB by Pillow's formula.
//!
//! Damage is reported, never painted over: where Pillow returns an image with gray or smeared parts after a
//! libjpeg warning about corrupt data, this decoder returns a [`DataError`]. Harmless oddities (stray bytes between
//! segments, unknown JFIF or Adobe versions) pass. A decode ends with the last row that its window needs, so
//! damage below the window is not seen.
//!
//! A decoder that is not [`strict`](HostDecoder::strict) takes what Pillow takes (with its `LOAD_TRUNCATED_IMAGES` at the
//! default, false), gives Pillow's pixels and says what it [`tolerated`](HostDecoder::tolerated). What Pillow refuses as
//! damaged it refuses too.

mod libjpeg;
mod libwebp;
mod png;
mod pnm;

use crate::error::{DataError, Reason, Tolerated, reserve};
use crate::geometry::{Roi, Size};
use crate::header::{ColorSpace, Format, FrameKind, Header, JpegHeader};
use crate::tensor::CHANNELS;

pub use crate::header::{DecodeMemory, memory_bytes};

/// Receives row `y` of the stored image: `3 * window.width` bytes.
pub type RowSink<'a> = dyn FnMut(u32, &[u8]) + 'a;

/// Decodes images on the CPU. One per thread; its buffers grow to what the largest image needs and serve every image.
/// [`memory_bytes`] bounds what an image needs.
///
/// An image that fails leaves nothing behind: the next one decodes as if it were the first.
#[derive(Debug)]
pub struct HostDecoder {
    strict: bool,
    tolerated: Option<Tolerated>,
    scratch: Vec<u8>,
    line: Vec<u8>,
}

impl Default for HostDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl HostDecoder {
    /// A strict decoder without buffers yet.
    pub const fn new() -> Self {
        Self { strict: true, tolerated: None, scratch: Vec::new(), line: Vec::new() }
    }

    /// The same decoder, which takes damage for a fault (the default), or takes what Pillow takes; `decode.strict` is the
    /// setting.
    ///
    /// Of PNGs, `tests/png_damage/` compares with Pillow's outcomes and pixels: cut anywhere, with any byte changed, with wrong and
    /// missing checksums, and with malformed chunks. Where Pillow refuses a PNG, a strict decoder does too, also for a chunk that
    /// says nothing of pixels (a `gAMA` of three bytes). A PNG whose header breaks the standard is refused in both cases,
    /// though Pillow guesses what is meant: IHDR is not the first chunk or has more than 13 bytes; a second IHDR differs; the
    /// compression or interlace method is unknown; there is no IDAT chunk, or the first frame of an animation is a part of the image.
    /// One difference is known the other way: damage behind the last pixel that only zlib sees, in a chunk whose checksum is right,
    /// can pass here.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// The damage that the last [`decode`](Self::decode) met and passed over; never any where the decoder is strict. Of
    /// several sorts it is one.
    pub const fn tolerated(&self) -> Option<Tolerated> {
        self.tolerated
    }

    /// Decodes the pixels of `window` and hands them to `row`, top to bottom: row `y` as `3 * window.width` bytes
    /// of RGB.
    ///
    /// `header` is what [`Header::parse_as`] said about the same `bytes`; limits on its size are the caller's to
    /// check first. `reduction` is 1, 2, 4 or 8 and divides both sides inside a JPEG's inverse transform; the
    /// other formats know only 1. `window` counts stored pixels, before the EXIF orientation and after the
    /// reduction, and lies inside [`reduced_size`]. Equal, bit for bit, to the same window of a whole decode.
    ///
    /// Memory: at most [`memory_bytes`]. `row` may have been called for some rows before a fault shows.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        window: Roi,
        reduction: u32,
        row: &mut RowSink<'_>,
    ) -> Result<(), DataError> {
        check(header, window, reduction)?;
        let Self { strict, ref mut tolerated, ref mut scratch, ref mut line } = *self;
        *tolerated = None;
        if window.is_empty() {
            return Ok(());
        }
        let size = header.size;
        let _library = reserve::promise(library_bytes(header))?;
        match header.format {
            Format::Jpeg => {
                *tolerated = libjpeg::decode(line, bytes, size, window, reduction, strict, row)?;
                *tolerated = tolerated.or(header.jpeg.as_ref().and_then(|jpeg| jpeg.tolerated));
            }
            Format::Png => {
                *tolerated = png::decode(scratch, line, bytes, size, window, strict, row)?;
            }
            Format::WebP => libwebp::decode(scratch, line, bytes, size, window, row)?,
            Format::Pnm => pnm::decode(line, bytes, size, window, row)?,
            Format::Pixels => copy(bytes, size, window, row)?,
        }
        Ok(())
    }

    /// Bytes of memory held between images.
    pub fn capacity_bytes(&self) -> usize {
        self.scratch.capacity() + self.line.capacity()
    }

    /// Gives all memory back. The decoder stays as [`strict`](Self::strict) as it is.
    pub fn release(&mut self) {
        *self = Self::new().strict(self.strict);
    }
}

/// Size of an image after the decoder's reduction: each side divided and rounded up (libjpeg's rule).
pub const fn reduced_size(size: Size, reduction: u32) -> Size {
    Size::new(size.width.div_ceil(reduction), size.height.div_ceil(reduction))
}

/// Whether images of this format can be reduced while they are decoded.
pub const fn can_reduce(format: Format) -> bool {
    matches!(format, Format::Jpeg)
}

/// Whether libjpeg-turbo's SIMD code was built in (on x86-64 that needs nasm at build time). Without it the
/// pixels are the same and decoding takes longer.
pub fn simd() -> bool {
    libjpeg::simd()
}

fn check(header: &Header, window: Roi, reduction: u32) -> Result<(), DataError> {
    let refuse = |problem| Err(DataError::new(Reason::Unsupported, problem));
    let name = header.format.name();
    match (can_reduce(header.format), reduction) {
        (_, 1) | (true, 2 | 4 | 8) => {}
        (true, _) => {
            return refuse(format!("a {name} can be reduced by 1, 2, 4 or 8, not by {reduction}"));
        }
        (false, _) => return refuse(format!("a {name} cannot be reduced while it is decoded")),
    }
    let size = reduced_size(header.size, reduction);
    if u64::from(window.x) + u64::from(window.width) > size.width.into()
        || u64::from(window.y) + u64::from(window.height) > size.height.into()
    {
        return refuse(format!("the window {window} is not inside the image of {size} pixels"));
    }
    header.jpeg.as_ref().map_or(Ok(()), check_jpeg)
}

/// Hands on the window of an image that is decoded already.
fn copy(bytes: &[u8], size: Size, window: Roi, row: &mut RowSink<'_>) -> Result<(), DataError> {
    let expected = CHANNELS as u64 * size.pixels();
    if bytes.len() as u64 != expected {
        let problem = format!("{} bytes, {size} pixels have {expected}", bytes.len());
        return Err(DataError::new(Reason::Corrupt, problem));
    }
    let stride = CHANNELS * size.width as usize;
    let columns = CHANNELS * window.x as usize..CHANNELS * window.right() as usize;
    for y in window.y..window.bottom() {
        row(y, &bytes[stride * y as usize..][..stride][columns.clone()]);
    }
    Ok(())
}

/// What libjpeg cannot decode, in clearer words than its own.
fn check_jpeg(jpeg: &JpegHeader) -> Result<(), DataError> {
    let what = match jpeg.frame {
        FrameKind::Lossless => "a lossless JPEG".into(),
        FrameKind::Hierarchical => "a hierarchical JPEG".into(),
        _ if jpeg.precision != 8 => format!("a JPEG with {} bits per sample", jpeg.precision),
        _ if jpeg.color_space() == ColorSpace::Unknown => "a JPEG with two components".into(),
        _ => return Ok(()),
    };
    let problem = format!("{what}; decoded are sequential and progressive ones with 8 bits");
    Err(DataError::new(Reason::Unsupported, problem))
}

/// Lengthens a scratch buffer where needed, to no more than that, and returns its first `len` bytes.
fn grown(buffer: &mut Vec<u8>, len: usize) -> Result<&mut [u8], DataError> {
    if buffer.len() < len {
        reserve::renew(buffer, len)?;
    }
    Ok(&mut buffer[..len])
}

/// Most bytes that a decoder library allocates by itself and aborts without. libjpeg and libwebp report a failed
/// allocation.
fn library_bytes(header: &Header) -> u64 {
    match header.format {
        Format::Png => png::library_bytes(header.size.width) as u64,
        Format::WebP | Format::Jpeg | Format::Pnm | Format::Pixels => 0,
    }
}

/// The fault for a file whose own decoder sees another size than its header said.
fn size_changed(header: Size, decoder: Size) -> DataError {
    DataError::new(
        Reason::Corrupt,
        format!("the header says {header}, the image has {decoder} pixels"),
    )
}
