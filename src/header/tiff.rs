//! TIFF: the first directory. An image is supported if it is stored in one plane, and if its strips
//! or tiles are uncompressed or losslessly compressed.

use directory::{Directory, MOST_SAMPLES, Values, named, unsupported};

use super::exif::Metadata;
use super::{Format, Header, corrupt, truncated};
use crate::error::DataError;
use crate::footprint::counted;
use crate::geometry::Size;

mod directory;

const MAX_SIDE: u32 = i32::MAX as u32;
/// Maximum number of pixels of a tile, as a multiple of the image's number of pixels.
const MOST_TILE_RATIO: u64 = 4;
/// A tile with at most this many pixels is accepted, however small the image is.
const LEAST_TILE_LIMIT: u64 = 1 << 20;
/// Number of bits of a float.
pub(crate) const FLOAT_BITS: u32 = 32;

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
    pub predictor: TiffPredictor,
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

/// How the samples of a row are stored in compressed strips and tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TiffPredictor {
    None,
    /// As differences from the sample of the previous pixel, all of them integers.
    Differences,
    /// Floats, first the highest bytes of the row, last the lowest bytes. Bytes are stored as
    /// differences from those of the previous pixel (Adobe Photoshop TIFF Technical Note 3).
    Floats,
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

    /// Checks that the file has all offsets and lengths. Pillow ignores the tags after an
    /// incomplete tag.
    pub fn check(&self, file: &[u8]) -> Result<(), DataError> {
        for values in [Some(self.offsets), self.lengths].into_iter().flatten() {
            let last = values.get(file, values.count as usize - 1);
            last.ok_or_else(|| truncated("the list of strips or tiles"))?;
        }
        Ok(())
    }

    /// Returns the stored bytes of a strip or tile.
    pub fn chunk<'a>(&self, file: &'a [u8], index: usize) -> Result<&'a [u8], DataError> {
        let number = |values: &Values| match values.get(file, index) {
            Some(number) => Ok(number as usize),
            None => Err(truncated("the list of strips or tiles")),
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

/// Parses the first directory.
pub(crate) fn layout(bytes: &[u8]) -> Result<TiffLayout, DataError> {
    let little = match bytes.get(..4) {
        Some(b"II*\0") => true,
        Some(b"MM\0*") => false,
        _ => return Err(unsupported("a version other than 42".into())),
    };
    let directory = Directory::new(bytes, little)?;
    let side =
        |tag, name| directory.value(tag)?.ok_or_else(|| corrupt(format!("a TIFF without {name}")));
    let size = Size::new(side(256, "a width")?, side(257, "a height")?);
    if size.width.min(size.height) == 0 || size.width.max(size.height) > MAX_SIDE {
        return Err(corrupt(format!(
            "the header gives the size {size}; width and height must be from 1 to {MAX_SIDE}"
        )));
    }
    let samples = directory.value(277)?.unwrap_or(1);
    let extras = directory.values(338)?.map_or(0, |it| it.count);
    let photometric = directory.value(262)?.unwrap_or(0);
    let needed = match photometric {
        0 | 1 | 3 => 1,
        2 => 3,
        5 => 4,
        6 => return Err(unsupported("YCbCr samples".into())),
        8 => return Err(unsupported("CIE L*a*b* samples".into())),
        other => return Err(unsupported(format!("photometric interpretation {other}"))),
    };
    // An RGB image may have a fourth sample that no tag declares.
    let is_complete =
        samples == extras.saturating_add(needed) || (photometric, samples, extras) == (2, 4, 0);
    if !is_complete || samples > MOST_SAMPLES {
        return Err(unsupported(format!("{}, {extras} of them extra", counted(samples, "sample"))));
    }
    let (list, count) = directory.list(338)?;
    let extra = &list[..count];
    let colors = match photometric {
        0 | 1 => TiffColors::Gray { inverted: photometric == 0 },
        2 if extra.first() == Some(&1) => TiffColors::Multiplied,
        2 => TiffColors::Rgb,
        3 => TiffColors::Indices,
        _ => TiffColors::Inks,
    };
    // Without the tags, samples are unsigned integers of one bit.
    let bits = directory.of_samples(258, samples, 1)?;
    let sample_format = directory.of_samples(339, samples, 1)?;
    let is_float = sample_format == 3 && bits == FLOAT_BITS;
    // Combinations that Pillow reads, and floats with several samples.
    let has_bits = match colors {
        // Pillow does not read inverted 16-bit samples in big-endian order. It reads them in
        // little-endian order, but does not invert them.
        TiffColors::Gray { inverted } if bits == 16 => samples == 1 && (little || !inverted),
        TiffColors::Gray { inverted } if is_float => samples == 1 && !inverted,
        TiffColors::Gray { .. } => {
            samples == 1 && matches!(bits, 1 | 2 | 4 | 8)
                || (bits, samples, photometric, extra) == (8, 2, 1, &[2])
        }
        TiffColors::Indices => match extra {
            [] => matches!(bits, 1 | 2 | 4 | 8),
            [kind] => bits == 8 && matches!(kind, 0 | 2),
            _ => false,
        },
        TiffColors::Rgb | TiffColors::Multiplied => match extra {
            [] => bits == 8 || bits == 16 || is_float,
            [0..=2] => bits == 8 || bits == 16 || is_float,
            [999] => bits == 8,
            [0..=2, rest @ ..] => bits == 8 && rest.iter().all(|kind| *kind == 0),
            _ => false,
        },
        TiffColors::Inks => bits == 8 && extra.iter().all(|kind| *kind == 0),
    };
    if !has_bits || sample_format != 1 && !is_float {
        return Err(unsupported(format!(
            "the combination of {} of {} per pixel, sample format {sample_format}, photometric \
             interpretation {photometric} and extra samples {extra:?}, which feedwater does not \
             support",
            counted(samples, "sample"),
            counted(bits, "bit"),
        )));
    }
    let packing = match directory.value(259)?.unwrap_or(1) {
        1 => TiffPacking::None,
        5 => TiffPacking::Lzw,
        8 | 32946 => TiffPacking::Deflate,
        32773 => TiffPacking::PackBits,
        2..=4 => return Err(unsupported("fax compression".into())),
        6 | 7 => return Err(unsupported("JPEG compression".into())),
        other => return Err(unsupported(format!("compression {other}"))),
    };
    let predictor = match directory.value(317)?.unwrap_or(1) {
        _ if matches!(packing, TiffPacking::None | TiffPacking::PackBits) => TiffPredictor::None,
        1 => TiffPredictor::None,
        2 if matches!(bits, 8 | 16 | FLOAT_BITS) => TiffPredictor::Differences,
        3 if is_float => TiffPredictor::Floats,
        other => {
            return Err(unsupported(format!(
                "predictor {other} for samples of {bits} bits, which feedwater does not support"
            )));
        }
    };
    match directory.value(284)?.unwrap_or(1) {
        1 => {}
        // Pillow reads uncompressed samples of other kinds as bytes of gray.
        2 if samples == 1
            && (packing != TiffPacking::None || bits == 8 && matches!(photometric, 1 | 3)) => {}
        2 => return Err(unsupported("samples in separate planes".into())),
        other => return Err(corrupt(format!("{} is {other} instead of 1 or 2", named(284)))),
    }
    if directory.value(266)?.unwrap_or(1) != 1 {
        return Err(unsupported("bits in reverse order".into()));
    }
    let tiled = directory.values(273)?.is_none();
    for tag in [322, 323, 324, 325] {
        if !tiled && directory.values(tag)?.is_some() {
            return Err(corrupt(format!("the TIFF has strips and {}", named(tag))));
        }
    }
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
    // Pillow rounds the bytes of a row of a tile down.
    if tiled && u64::from(chunk.width) * u64::from(samples * bits) % 8 != 0 {
        let name = named(322);
        return Err(corrupt(format!("{name} is {}, which is not a multiple of 16", chunk.width)));
    }
    let across = u64::from(size.width.div_ceil(chunk.width));
    let chunks = across * u64::from(size.height.div_ceil(chunk.height));
    let one_per_chunk = |tag| match directory.values(tag)? {
        Some(values) if u64::from(values.count) != chunks => {
            let count = values.count;
            let name = named(tag);
            Err(corrupt(format!("{name} has {count} values, but the image has {chunks} parts")))
        }
        values => Ok(values),
    };
    let offsets = one_per_chunk(offsets)?.ok_or_else(|| corrupt("a TIFF without offsets"))?;
    let lengths = one_per_chunk(lengths)?;
    if packing != TiffPacking::None && lengths.is_none() {
        let name = named(if tiled { 325 } else { 279 });
        return Err(corrupt(format!("a compressed TIFF without {name}")));
    }
    let palette = directory.values(320)?;
    if colors == TiffColors::Indices {
        let needed = 3 << bits;
        match palette {
            Some(palette) if palette.count == needed => {
                let last = palette.get(bytes, needed as usize - 1);
                last.ok_or_else(|| truncated("its colors"))?;
            }
            palette => {
                let count = palette.map_or(0, |palette| palette.count);
                return Err(corrupt(format!(
                    "{} has {count} values, but indices of {bits} bits need {needed}",
                    named(320)
                )));
            }
        }
    }
    Ok(TiffLayout {
        size,
        colors,
        bits,
        samples: samples as usize,
        alpha: match (colors, extra) {
            (TiffColors::Rgb, []) => (samples == 4).then_some(3),
            (TiffColors::Rgb, [2 | 999, ..]) | (TiffColors::Multiplied, _) => Some(3),
            (TiffColors::Gray { .. } | TiffColors::Indices, [2]) => Some(1),
            _ => None,
        },
        packing,
        predictor,
        little,
        chunk,
        tiled,
        offsets,
        lengths,
        palette,
    })
}
