//! Memory that decoders need.

use super::rows::most_rows;
use crate::header::{Format, Header};
use crate::image::PixelFormat;
use crate::tensor::CHANNELS;

/// Memory that the decoders of a thread share and reuse.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Memory for a whole image, for formats that cannot be decoded row by row.
    pub scratch: Vec<u8>,
    /// Memory for a group of rows, which the sink receives together.
    pub rows: Vec<u8>,
    /// Memory for a row that is converted to another pixel format, or composed with a background.
    pub line: Vec<u8>,
    /// Whether a gray value of 16 bits was clipped to 255 since
    /// [`forget_clipped`](super::Decoders::forget_clipped).
    pub clipped: bool,
}

impl Buffers {
    /// Returns the size of the memory, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.scratch.capacity() + self.rows.capacity() + self.line.capacity()
    }
}

/// Host memory for decoding one image, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeMemory {
    /// Size of [`Buffers::scratch`].
    pub scratch: u64,
    /// Size of [`Buffers::rows`] and [`Buffers::line`].
    pub rows: u64,
    /// Memory that the format's library allocates and frees with the image, and tables that
    /// feedwater's own decoder keeps.
    pub library: u64,
}

impl DecodeMemory {
    /// Returns the sum of all parts.
    pub const fn total(self) -> u64 {
        self.scratch.saturating_add(self.rows).saturating_add(self.library)
    }

    /// This memory of an image in RGB, for an image of another format or with a background.
    pub fn of_format(self, header: &Header, format: PixelFormat, has_background: bool) -> Self {
        let Self { mut scratch, mut rows, library } = self;
        let row = CHANNELS as u64 * u64::from(header.size.width);
        let formats =
            [Format::Png, Format::WebP, Format::Gif, Format::Tiff, Format::Bmp, Format::Npy];
        let reads_alpha = has_background || format.has_alpha();
        if reads_alpha && formats.contains(&header.format) {
            rows =
                rows.saturating_add(u64::from(header.size.width) * most_rows(header.size.height));
            if header.format == Format::WebP {
                scratch = scratch.saturating_add(header.size.pixels());
            }
        }
        if format.is_as_stored() && header.format == Format::Tiff {
            // A pixel of floats has up to twice the bytes of a pixel of integers.
            scratch = scratch.saturating_mul(2);
        }
        let converts = matches!(format, PixelFormat::U8 | PixelFormat::Indices) || has_background;
        if converts && !format.has_alpha() {
            rows = rows.saturating_add(row);
        }
        Self { scratch, rows, library }
    }
}
