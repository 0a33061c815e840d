//! Host memory that decoding takes: an upper bound, from the header alone.

use crate::tensor::CHANNELS;

use super::{Component, Format, Header, JpegHeader, webp};

/// What decoding one image takes of host memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeMemory {
    /// A whole image, which the decoder keeps for the next one.
    pub scratch: u64,
    /// A row, which it keeps too.
    pub line: u64,
    /// What the format's library allocates, and frees with the image.
    pub library: u64,
}

impl DecodeMemory {
    /// All together.
    pub const fn total(self) -> u64 {
        self.scratch.saturating_add(self.line).saturating_add(self.library)
    }
}

/// What libraries allocate for any image: tables, states and small chunks.
const LIBRARY_BYTES: u64 = 96 << 10;

/// Rows of a component that libjpeg holds for each of its vertical sampling factor: a row of blocks, with the context of
/// fancy upsampling before and after it.
const JPEG_ROWS: u64 = 10;

/// Bytes of a coefficient.
const COEFFICIENT_BYTES: u64 = 2;

/// The `png` crate shifts its buffer of unpacked rows back after so many rows or bytes, and looks back 32 KiB.
const PNG_SHIFT: (u64, u64) = (4, 128 << 10);
const PNG_LOOK_BACK_BYTES: u64 = 56 << 10;
/// What our limit leaves the crate for chunks: 32 bytes for each column, and these.
const PNG_CHUNK_BYTES: u64 = 64 << 10;

/// Most bytes that a lossless WebP's code tables are expected to take where the bytes at hand do not tell: 1000 groups of
/// 21 KiB, and for small files a share of their length.
const WEBP_CODE_BYTES: u64 = 24 << 20;
const WEBP_CODE_BYTES_PER_BYTE: u64 = 8 << 10;

/// Most bytes that decoding an image takes. `head` is the file or its first bytes, and `file_bytes` the length of the
/// whole file. The answer is a bound where `head` is the whole file. From first bytes alone, the code tables of a lossless
/// WebP are an estimate.
///
/// * JPEG of one scan: rows. Of several scans, progressive or not: all coefficients too.
/// * PNG: rows; the whole image where it is interlaced.
/// * WebP: the whole image, and the planes and tables of its library.
/// * PNM: a row. What is decoded already: nothing.
pub fn memory_bytes(header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
    let (width, pixels) = (u64::from(header.size.width), header.size.pixels());
    let row = CHANNELS as u64 * width;
    match (header.format, &header.jpeg) {
        (Format::Jpeg, Some(jpeg)) => DecodeMemory {
            // Four bytes of ink at most, and what libjpeg rounds up to whole blocks.
            line: 4 * (width + 64),
            library: jpeg_bytes(header, jpeg),
            ..DecodeMemory::default()
        },
        (Format::Png, _) => png_bytes(header, head),
        (Format::WebP, _) => webp_bytes(header, head, file_bytes),
        (Format::Pixels, _) => DecodeMemory::default(),
        (Format::Pnm, _) => DecodeMemory { line: row, ..DecodeMemory::default() },
        // No JPEG's header is without it.
        (Format::Jpeg, None) => DecodeMemory { scratch: 0, line: row, library: 8 * pixels },
    }
}

fn jpeg_bytes(header: &Header, jpeg: &JpegHeader) -> u64 {
    let components = jpeg.components();
    let most = |side: fn(&Component) -> u8| {
        components.iter().map(|it| u64::from(side(it))).max().unwrap_or(1).max(1)
    };
    let (h_most, v_most) = (most(|it| it.h), most(|it| it.v));
    // MCUs in a row, and rows of them.
    let across = u64::from(header.size.width).div_ceil(8 * h_most);
    let down = u64::from(header.size.height).div_ceil(8 * v_most);
    let several = jpeg.is_progressive() || !jpeg.is_interleaved();
    let of = |component: &Component| {
        let (h, v) = (u64::from(component.h), u64::from(component.v));
        let columns = 8 * h * across;
        let rows = JPEG_ROWS * v * columns;
        // Where rows are of another height than columns, a row is stretched before it is written.
        let stretched = v_most * 8 * h_most * across;
        let blocks = if several { (h * across).saturating_mul(v * down) } else { 0 };
        rows + stretched + 64 * COEFFICIENT_BYTES * blocks
    };
    components.iter().map(of).fold(LIBRARY_BYTES, u64::saturating_add)
}

fn png_bytes(header: &Header, head: &[u8]) -> DecodeMemory {
    let (width, height) = (u64::from(header.size.width), u64::from(header.size.height));
    // IHDR: bit depth, colour type and interlacing follow the sides.
    let at = |place: usize| head.get(place).copied().map(u64::from);
    let bits = at(24).filter(|it| matches!(it, 1 | 2 | 4 | 8 | 16)).unwrap_or(16);
    let samples = match at(25) {
        Some(0 | 3) => 1,
        Some(4) => 2,
        Some(2) => 3,
        _ => 4,
    };
    let interlaced = at(28) != Some(0);
    let stored = (width * bits * samples).div_ceil(8);
    let row = stored + 1;
    let (rows, bytes) = PNG_SHIFT;
    let all = row.saturating_mul(height.saturating_add(if interlaced { 8 } else { 0 }));
    let unpacked = (rows * row).max(bytes) + 2 * row + PNG_LOOK_BACK_BYTES;
    // A buffer that doubles is there twice while it is moved.
    let unpacked = 3 * unpacked.min(all.saturating_add(PNG_LOOK_BACK_BYTES));
    let library = LIBRARY_BYTES + unpacked + 3 * row + 32 * width + PNG_CHUNK_BYTES;
    let scratch = if interlaced { stored.saturating_mul(height) } else { 0 };
    DecodeMemory { scratch, line: CHANNELS as u64 * width, library }
}

fn webp_bytes(header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
    let (width, height) = (u64::from(header.size.width), u64::from(header.size.height));
    // Whole macroblocks.
    let pixels = width.next_multiple_of(16) * height.next_multiple_of(16);
    let found = WebpParts::of(head);
    let (scratch, line) = (CHANNELS as u64 * width * height, CHANNELS as u64 * width);
    let expected = WEBP_CODE_BYTES.min(WEBP_CODE_BYTES_PER_BYTE * file_bytes);
    let chunks = webp::layout(head).ok().map(|it| it.chunks).or(head.get(12..));
    let codes = chunks.and_then(webp::code_groups::bytes).unwrap_or(expected);
    // Red, green, blue and alpha, and transforms and code groups of blocks of 4x4.
    let lossless = 5 * pixels + codes;
    // Luma, two chromas of a quarter each, and what is known of macroblocks; the file's partitions are copied.
    let lossy = 2 * pixels + file_bytes;
    let alpha = if found.alpha { lossless + pixels } else { 0 };
    let frame = match (found.lossless, found.lossy) {
        (true, false) => lossless,
        (false, true) => lossy + alpha,
        _ => lossless.max(lossy + alpha),
    };
    DecodeMemory { scratch, line, library: LIBRARY_BYTES + frame + 64 * width }
}

/// What a WebP's first chunks say; all that may be where they do not reach far enough.
struct WebpParts {
    lossless: bool,
    lossy: bool,
    alpha: bool,
}

impl WebpParts {
    fn of(head: &[u8]) -> Self {
        match head.get(12..16) {
            Some(b"VP8 ") => Self { lossless: false, lossy: true, alpha: false },
            // The flag for alpha is the last bit of the 29 after the signature, 28 of which are sides.
            Some(b"VP8L") => {
                let alpha = head.get(24).is_none_or(|byte| byte & 0x10 != 0);
                Self { lossless: true, lossy: false, alpha }
            }
            _ => {
                // The flags of VP8X.
                let flags = head.get(20).copied().unwrap_or(0xFF);
                // Frames of animations may have alpha whatever the flag says.
                let alpha = flags & (0x10 | 0x02) != 0;
                Self { lossless: true, lossy: true, alpha }
            }
        }
    }
}
