//! TIFF: the first directory. An image is supported if it is stored in one plane, and if its strips
//! or tiles are uncompressed or losslessly compressed.

use super::exif::Metadata;
use super::{Format, Header, corrupt, truncated};
use crate::error::{DataError, Reason};
use crate::footprint::counted;
use crate::geometry::Size;

const MAX_SIDE: u32 = i32::MAX as u32;
/// Size of a directory entry in bytes.
const ENTRY_BYTES: usize = 12;
/// Maximum number of pixels of a tile, as a multiple of the image's number of pixels.
const MOST_TILE_RATIO: u64 = 4;
/// A tile with at most this many pixels is accepted, however small the image is.
const LEAST_TILE_LIMIT: u64 = 1 << 20;
/// Number of bits of a float.
pub(crate) const FLOAT_BITS: u32 = 32;
/// Maximum number of samples of a pixel, as in Pillow.
const MOST_SAMPLES: u32 = 6;

/// Position and coding of a TIFF's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TiffLayout {
    pub size: Size,
    pub colors: TiffColors,
    /// Number of bits per sample: 1, 2, 4, 8 or 16, or 32 for floats.
    pub bits: u32,
    /// Number of samples per pixel.
    pub samples: usize,
    /// Number of the sample with alpha, as Pillow interprets the extra samples.
    pub alpha: Option<usize>,
    pub packing: TiffPacking,
    /// Whether samples are stored as differences from the sample of the previous pixel.
    pub differences: bool,
    pub little: bool,
    /// Size of a strip or tile in pixels. The last strip ends with the image. Tiles may extend
    /// beyond the image.
    pub chunk: Size,
    pub tiled: bool,
    /// Offsets of the strips or tiles.
    offsets: Values,
    /// Lengths of the strips or tiles. `None` if they follow from the size.
    lengths: Option<Values>,
    /// Palette: red, green and blue of all colors.
    palette: Option<Values>,
}

/// Meaning of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TiffColors {
    /// Gray. Black is 0, or the maximum value if `inverted`.
    Gray {
        inverted: bool,
    },
    Rgb,
    /// Red, green and blue are multiplied by the fourth sample (premultiplied alpha).
    Multiplied,
    Indices,
    Inks,
}

/// Compression of a strip or tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TiffPacking {
    None,
    Lzw,
    Deflate,
    PackBits,
}

/// Integer values of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values {
    at: usize,
    /// Number of bytes per value: 1, 2 or 4.
    bytes: usize,
    count: u32,
    little: bool,
}

impl Values {
    fn get(&self, file: &[u8], index: usize) -> Option<u32> {
        if index >= self.count as usize {
            return None;
        }
        let at = self.at.checked_add(index.checked_mul(self.bytes)?)?;
        let bytes = file.get(at..at.checked_add(self.bytes)?)?.iter();
        let append = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
        Some(if self.little { bytes.rev().fold(0, append) } else { bytes.fold(0, append) })
    }
}

impl TiffLayout {
    /// Size of an unpacked row of a strip or tile, in bytes.
    pub fn row_bytes(&self) -> usize {
        (self.chunk.width as usize * self.samples * self.bits as usize).div_ceil(8)
    }

    /// Number of stored rows of a strip or tile. Only the last strip has fewer rows than the
    /// others.
    pub fn chunk_rows(&self, row_of_chunks: usize) -> usize {
        let rows = self.chunk.height as usize;
        if self.tiled { rows } else { rows.min(self.size.height as usize - rows * row_of_chunks) }
    }

    /// Number of strips or tiles side by side.
    pub fn across(&self) -> usize {
        self.size.width.div_ceil(self.chunk.width) as usize
    }

    /// Returns the stored bytes of a strip or tile.
    pub fn chunk<'a>(&self, file: &'a [u8], index: usize) -> Result<&'a [u8], DataError> {
        let number = |values: &Values| match values.get(file, index) {
            Some(number) => Ok(number as usize),
            None if index < values.count as usize => Err(truncated("the list of strips or tiles")),
            None => Err(corrupt(format!("strip or tile {index} has no offset or length"))),
        };
        let start = number(&self.offsets)?;
        let len = match self.lengths {
            Some(lengths) if self.packing != TiffPacking::None => number(&lengths)?,
            lengths => {
                let needed =
                    self.row_bytes().saturating_mul(self.chunk_rows(index / self.across()));
                let stored = lengths.and_then(|lengths| lengths.get(file, index)).unwrap_or(0);
                // A length of 0 stands for an unknown length, as in libtiff. A longer one is
                // padding.
                if stored > 0 && (stored as usize) < needed {
                    return Err(truncated(&format!(
                        "strip or tile {index}, which has {stored} bytes, but needs {needed}"
                    )));
                }
                needed
            }
        };
        let end = start.checked_add(len).filter(|end| *end <= file.len());
        end.map(|end| &file[start..end]).ok_or_else(|| truncated(&format!("strip or tile {index}")))
    }

    /// Returns the colors of all indices.
    pub fn palette(&self, file: &[u8]) -> [[u8; 3]; 256] {
        let count = 1 << self.bits.min(8);
        std::array::from_fn(|index| {
            let of = |channel: usize| {
                let at = count * channel + index;
                let value = self.palette.filter(|_| index < count)?.get(file, at)?;
                Some((value >> 8) as u8)
            };
            [0, 1, 2].map(|channel| of(channel).unwrap_or(0))
        })
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, DataError> {
    let size = layout(bytes)?.size;
    let mut metadata = Metadata::default();
    // EXIF data has the structure of a TIFF, so the whole file is read as EXIF data.
    metadata.set_exif(&bytes.into());
    Ok(Header { format: Format::Tiff, size, orientation: metadata.orientation(), jpeg: None })
}

/// Reader of the first directory.
struct Directory<'a> {
    file: &'a [u8],
    little: bool,
    at: usize,
    count: usize,
}

impl Directory<'_> {
    fn integer(&self, at: usize, bytes: usize) -> Option<u32> {
        Values { at, bytes, count: 1, little: self.little }.get(self.file, 0)
    }

    /// Returns the values of the last entry with this tag.
    fn values(&self, tag: u32) -> Result<Option<Values>, DataError> {
        let mut found = None;
        for index in 0..self.count {
            let at = self.at + ENTRY_BYTES * index;
            if self.integer(at, 2) != Some(tag) {
                continue;
            }
            let (Some(kind), Some(count)) = (self.integer(at + 2, 2), self.integer(at + 4, 4))
            else {
                break;
            };
            let bytes = match kind {
                1 => 1,
                3 => 2,
                4 => 4,
                _ => {
                    return Err(corrupt(format!(
                        "tag {tag} has type {kind}, which is not an unsigned integer"
                    )));
                }
            };
            let is_inside = bytes as u64 * u64::from(count) <= 4;
            let place = if is_inside {
                Some(at + 8)
            } else {
                self.integer(at + 8, 4).map(|it| it as usize)
            };
            let place = place.ok_or_else(|| truncated("its directory"))?;
            if count > 0 {
                found = Some(Values { at: place, bytes, count, little: self.little });
            }
        }
        Ok(found)
    }

    /// Returns the first value of a tag.
    fn value(&self, tag: u32) -> Result<Option<u32>, DataError> {
        let Some(values) = self.values(tag)? else { return Ok(None) };
        let value = values.get(self.file, 0);
        value.map(Some).ok_or_else(|| truncated(&format!("the values of tag {tag}")))
    }

    /// Whether all values of a tag equal `wanted`. Also true if there is no such tag.
    fn all(&self, tag: u32, wanted: u32) -> Result<bool, DataError> {
        let Some(values) = self.values(tag)? else { return Ok(true) };
        let mut all = true;
        for index in 0..values.count.min(MOST_SAMPLES) as usize {
            let value = values.get(self.file, index);
            all &= value.ok_or_else(|| truncated(&format!("the values of tag {tag}")))? == wanted;
        }
        Ok(all)
    }
}

/// Parses the first directory.
pub(crate) fn layout(bytes: &[u8]) -> Result<TiffLayout, DataError> {
    let little = match bytes.get(..4) {
        Some(b"II*\0") => true,
        Some(b"MM\0*") => false,
        _ => return Err(unsupported("a version other than 42".into())),
    };
    let mut directory = Directory { file: bytes, little, at: 0, count: 0 };
    let cut = || truncated("its directory");
    let at = directory.integer(4, 4).ok_or_else(cut)? as usize;
    directory.count = directory.integer(at, 2).ok_or_else(cut)? as usize;
    directory.at = at + 2;
    if directory.at + ENTRY_BYTES * directory.count > bytes.len() {
        return Err(cut());
    }
    let side =
        |tag, name| directory.value(tag)?.ok_or_else(|| corrupt(format!("a TIFF without {name}")));
    let size = Size::new(side(256, "a width")?, side(257, "a height")?);
    if size.width.min(size.height) == 0 || size.width.max(size.height) > MAX_SIDE {
        return Err(corrupt(format!(
            "the header gives the size {size}; width and height must be from 1 to {MAX_SIDE}"
        )));
    }
    let bits = directory.value(258)?.unwrap_or(1);
    let samples = directory.value(277)?.unwrap_or(1);
    let extra = directory.values(338)?;
    let first_extra = directory.value(338)?;
    let photometric = directory.value(262)?.unwrap_or(0);
    let compression = directory.value(259)?.unwrap_or(1);
    let (colors, needed) = match photometric {
        0 | 1 => (TiffColors::Gray { inverted: photometric == 0 }, 1),
        2 if first_extra == Some(1) => (TiffColors::Multiplied, 3),
        2 => (TiffColors::Rgb, 3),
        3 => (TiffColors::Indices, 1),
        5 => (TiffColors::Inks, 4),
        6 => return Err(unsupported("YCbCr samples".into())),
        8 => return Err(unsupported("CIE L*a*b* samples".into())),
        other => return Err(unsupported(format!("photometric interpretation {other}"))),
    };
    let extras = extra.map_or(0, |it| it.count);
    // An RGB image may have a fourth sample that no tag declares.
    let is_complete =
        samples == extras.saturating_add(needed) || (photometric, samples, extras) == (2, 4, 0);
    if !is_complete || samples > MOST_SAMPLES {
        return Err(unsupported(format!("{}, {extras} of them extra", counted(samples, "sample"))));
    }
    let has_bits = match colors {
        // Pillow does not read inverted 16-bit samples in big-endian order. It reads them in
        // little-endian order, but does not invert them.
        TiffColors::Gray { inverted } if bits == 16 => samples == 1 && (little || !inverted),
        TiffColors::Gray { inverted } if bits == FLOAT_BITS => samples == 1 && !inverted,
        TiffColors::Gray { .. } => {
            samples == 1 && matches!(bits, 1 | 2 | 4 | 8)
                || (bits, samples, photometric, first_extra) == (8, 2, 1, Some(2))
        }
        TiffColors::Indices => {
            samples == 1 && matches!(bits, 1 | 2 | 4 | 8)
                || (bits, samples) == (8, 2) && matches!(first_extra, Some(0 | 2))
        }
        TiffColors::Rgb | TiffColors::Multiplied => bits == 8 || bits == 16 && samples <= 4,
        TiffColors::Inks => bits == 8,
    };
    // Without the tag, samples are unsigned integers.
    let has_format = match directory.value(339)? {
        Some(3) if bits == FLOAT_BITS => directory.all(339, 3)?,
        _ => bits != FLOAT_BITS && directory.all(339, 1)?,
    };
    if !has_bits || !directory.all(258, bits)? || !has_format {
        return Err(unsupported(format!(
            "the combination of {} of {} per pixel, sample format {} and photometric \
             interpretation {photometric}, which feedwater does not support",
            counted(samples, "sample"),
            counted(bits, "bit"),
            directory.value(339)?.unwrap_or(1)
        )));
    }
    let packing = match compression {
        1 => TiffPacking::None,
        5 => TiffPacking::Lzw,
        8 | 32946 => TiffPacking::Deflate,
        32773 => TiffPacking::PackBits,
        2..=4 => return Err(unsupported("fax compression".into())),
        6 | 7 => return Err(unsupported("JPEG compression".into())),
        other => return Err(unsupported(format!("compression {other}"))),
    };
    let differences = match directory.value(317)?.unwrap_or(1) {
        _ if matches!(packing, TiffPacking::None | TiffPacking::PackBits) => false,
        1 => false,
        2 if matches!(bits, 8 | 16) => true,
        other => {
            return Err(unsupported(format!(
                "predictor {other} for samples of {bits} bits, which feedwater does not support"
            )));
        }
    };
    if samples > 1 && directory.value(284)?.unwrap_or(1) != 1 {
        return Err(unsupported("samples in separate planes".into()));
    }
    if directory.value(266)?.unwrap_or(1) != 1 {
        return Err(unsupported("bits in reverse order".into()));
    }
    let tiled = directory.values(273)?.is_none();
    let (offsets, lengths, chunk) = if tiled {
        let chunk = Size::new(side(322, "strips or tiles")?, side(323, "a height of tiles")?);
        (324, 325, chunk)
    } else {
        (
            273,
            279,
            Size::new(size.width, directory.value(278)?.unwrap_or(u32::MAX).min(size.height)),
        )
    };
    if chunk.pixels() == 0 || chunk.width > MAX_SIDE || chunk.height > MAX_SIDE {
        return Err(corrupt(format!(
            "the strips or tiles of the TIFF have the size {chunk}, which is empty or too large"
        )));
    }
    if chunk.pixels() > size.pixels().saturating_mul(MOST_TILE_RATIO).max(LEAST_TILE_LIMIT) {
        return Err(unsupported(format!(
            "tiles of {chunk} pixels, which are too large for an image of {size} pixels"
        )));
    }
    let offsets = directory.values(offsets)?.ok_or_else(|| corrupt("a TIFF without offsets"))?;
    let palette = directory.values(320)?;
    if colors == TiffColors::Indices {
        let last = (3 << bits) - 1;
        match palette {
            Some(palette) if palette.count as usize > last => {
                palette.get(bytes, last).ok_or_else(|| truncated("its colors"))?;
            }
            _ => return Err(corrupt("the TIFF has palette indices, but no complete palette")),
        }
    }
    Ok(TiffLayout {
        size,
        colors,
        bits,
        samples: samples as usize,
        alpha: match (colors, first_extra) {
            (TiffColors::Rgb, None) => (samples == 4).then_some(3),
            (TiffColors::Rgb, Some(2 | 999)) | (TiffColors::Multiplied, _) => Some(3),
            (TiffColors::Gray { .. } | TiffColors::Indices, Some(2)) => Some(1),
            _ => None,
        },
        packing,
        differences,
        little,
        chunk,
        tiled,
        offsets,
        lengths: directory.values(lengths)?,
        palette,
    })
}

fn unsupported(what: String) -> DataError {
    DataError::new(Reason::Unsupported, format!("a TIFF with {what}"))
}
