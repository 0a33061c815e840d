//! Decoding of images with one number per pixel, such as masks of classes and depth maps.
//!
//! The numbers are those of `numpy.asarray(Image.open(file))` of Pillow, with one exception: the
//! samples of a PGM file are not scaled to its maximum value.
//!
//! | file | numbers |
//! |---|---|
//! | PNG with a palette, 1 to 8 bits | indices into the palette |
//! | PNG, gray, 1 bit | 0 and 1 |
//! | PNG, gray, 2 or 4 bits | samples, scaled to 0 to 255 |
//! | PNG, gray, 8 or 16 bits | samples |
//! | PGM, binary (`P5`) | samples |
//!
//! Damage that image decoders tolerate is an error here, because a wrong class is not visible.

use super::png::read_values;
use super::size_changed;
use crate::error::{DataError, Reason, reserve};
use crate::geometry::Size;
use crate::header::{Format, Header, PnmCoding, PnmLayout, pnm_layout};

/// Image with one number per pixel. Its memory is reused for the next image.
#[derive(Debug, Default)]
pub struct ValueImage {
    size: Size,
    /// Numbers, row by row.
    values: Vec<u16>,
    /// Stored rows of an interlaced PNG.
    scratch: Vec<u8>,
}

impl ValueImage {
    /// Maximum memory to decode an image of this size, in bytes.
    pub const fn most_bytes(size: Size) -> u64 {
        // Two bytes per number, and as many for an interlaced PNG. The `png` crate buffers rows
        // and 32 KiB of unpacked data, three times while its buffer grows.
        const FIXED: u64 = 512 << 10;
        let row = 2 * size.width as u64;
        4 * size.pixels() + 24 * row + FIXED
    }

    /// Size of the image.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Number of the pixel in column `x` of row `y`.
    pub fn at(&self, x: u32, y: u32) -> u16 {
        self.values[y as usize * self.size.width as usize + x as usize]
    }

    /// All numbers, row by row.
    pub fn numbers(&self) -> &[u16] {
        &self.values
    }

    /// Whether all numbers are at most 255.
    pub fn are_bytes(&self) -> bool {
        self.values.iter().all(|&value| value <= 255)
    }

    /// Writes all numbers to `out`, row by row in native byte order: two bytes per number if
    /// `is_wide`, and otherwise one byte, which is 255 for larger numbers.
    pub fn write(&self, is_wide: bool, out: &mut [u8]) {
        match is_wide {
            true => out.copy_from_slice(bytemuck::cast_slice(&self.values)),
            false => {
                let bytes = self.values.iter().map(|&value| value.min(255) as u8);
                out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = byte);
            }
        }
    }

    /// Decodes a file. Calls `check` with its header before memory is allocated for its pixels.
    ///
    /// # Errors
    /// Errors of `check`. `Unsupported` for another format, or for several channels. `Corrupt` and
    /// `Truncated` for damaged files.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        check: impl FnOnce(&Header) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let header = Header::parse(bytes)?;
        if !matches!(header.format, Format::Png | Format::Pnm) {
            let name = header.format.name();
            let problem =
                format!("is a {name} file; a mask must be a PNG or PGM file with exact numbers");
            return Err(DataError::new(Reason::Unsupported, problem));
        }
        check(&header)?;
        self.size = Size::default();
        reserve::renew(&mut self.values, header.size.pixels() as usize)?;
        match header.format {
            Format::Png => read_values(bytes, header.size, &mut self.scratch, &mut self.values)?,
            _ => read_pgm(bytes, header.size, &mut self.values)?,
        }
        self.size = header.size;
        Ok(())
    }

    /// Frees the memory.
    pub fn release(&mut self) {
        *self = Self::default();
    }
}

fn read_pgm(bytes: &[u8], size: Size, values: &mut [u16]) -> Result<(), DataError> {
    let PnmLayout { size: found, channels, coding, start, .. } = pnm_layout(bytes)?;
    if found != size {
        return Err(size_changed(size, found));
    }
    let samples = &bytes[start..];
    match (channels, coding) {
        (1, PnmCoding::Bytes) => {
            values.iter_mut().zip(samples).for_each(|(value, byte)| *value = (*byte).into());
        }
        (1, PnmCoding::Words) => {
            let words = samples.as_chunks().0.iter();
            values
                .iter_mut()
                .zip(words)
                .for_each(|(value, word)| *value = u16::from_be_bytes(*word));
        }
        _ => {
            let problem =
                "is a PNM file of another kind; save it as a gray PNG or a binary PGM (P5)";
            return Err(DataError::new(Reason::Unsupported, problem));
        }
    }
    Ok(())
}
