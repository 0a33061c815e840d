//! The tags of the first directory of a TIFF. Each tag that is read must be there once, with an
//! unsigned integer type and as many values as its meaning needs, because Pillow and libtiff read
//! other directories in different ways.

use super::{corrupt, truncated};
use crate::error::{DataError, Reason};
use crate::footprint::counted;

/// Size of a directory entry in bytes.
const ENTRY_BYTES: usize = 12;
/// Maximum number of samples of a pixel, as in Pillow.
pub const MOST_SAMPLES: u32 = 6;

/// Integer values of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    at: usize,
    /// Number of bytes per value: 1, 2 or 4.
    bytes: usize,
    pub count: u32,
    little: bool,
}

impl Values {
    /// Returns a value, or `None` beyond the last value or the end of the file.
    pub fn get(&self, file: &[u8], index: usize) -> Option<u32> {
        if index >= self.count as usize {
            return None;
        }
        let at = self.at.checked_add(index.checked_mul(self.bytes)?)?;
        let bytes = file.get(at..at.checked_add(self.bytes)?)?.iter();
        let append = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
        Some(if self.little { bytes.rev().fold(0, append) } else { bytes.fold(0, append) })
    }
}

/// Reader of the first directory.
pub struct Directory<'a> {
    file: &'a [u8],
    little: bool,
    at: usize,
    count: usize,
}

impl<'a> Directory<'a> {
    pub fn new(file: &'a [u8], little: bool) -> Result<Self, DataError> {
        let mut directory = Directory { file, little, at: 0, count: 0 };
        let cut = || truncated("its directory");
        let at = directory.integer(4, 4).ok_or_else(cut)? as usize;
        directory.count = directory.integer(at, 2).ok_or_else(cut)? as usize;
        directory.at = at + 2;
        if directory.at + ENTRY_BYTES * directory.count > file.len() {
            return Err(cut());
        }
        Ok(directory)
    }

    fn integer(&self, at: usize, bytes: usize) -> Option<u32> {
        Values { at, bytes, count: 1, little: self.little }.get(self.file, 0)
    }

    /// Returns the values of a tag.
    pub fn values(&self, tag: u32) -> Result<Option<Values>, DataError> {
        let name = named(tag);
        let mut found = None;
        for index in 0..self.count {
            let at = self.at + ENTRY_BYTES * index;
            if self.integer(at, 2) != Some(tag) {
                continue;
            }
            // Pillow and libtiff choose different entries.
            if found.is_some() {
                return Err(corrupt(format!("the directory of the TIFF has {name} twice")));
            }
            let (Some(kind), Some(count)) = (self.integer(at + 2, 2), self.integer(at + 4, 4))
            else {
                break;
            };
            let bytes = match kind {
                3 => 2,
                4 => 4,
                _ => {
                    return Err(corrupt(format!(
                        "{name} has the type {kind}, which is not SHORT or LONG"
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
            if count == 0 {
                return Err(corrupt(format!("{name} has no values")));
            }
            found = Some(Values { at: place, bytes, count, little: self.little });
        }
        Ok(found)
    }

    /// Returns the value of a tag that has one value.
    pub fn value(&self, tag: u32) -> Result<Option<u32>, DataError> {
        match self.values(tag)? {
            Some(values) if values.count != 1 => {
                let problem = format!("{} has {} values instead of one", named(tag), values.count);
                Err(corrupt(problem))
            }
            values => Ok(values.and_then(|values| values.get(self.file, 0))),
        }
    }

    /// Returns the values of a tag with at most [`MOST_SAMPLES`] values, and their number.
    pub fn list(&self, tag: u32) -> Result<([u32; MOST_SAMPLES as usize], usize), DataError> {
        let mut list = [0; MOST_SAMPLES as usize];
        let Some(values) = self.values(tag)? else { return Ok((list, 0)) };
        if values.count > MOST_SAMPLES {
            let problem = format!("{} values of {}", values.count, named(tag));
            return Err(unsupported(problem));
        }
        for (index, value) in list.iter_mut().enumerate().take(values.count as usize) {
            let stored = values.get(self.file, index);
            *value = stored.ok_or_else(|| truncated(&format!("the values of {}", named(tag))))?;
        }
        Ok((list, values.count as usize))
    }

    /// Returns the value that a tag has for all samples. It is stored once, or once per sample.
    pub fn of_samples(&self, tag: u32, samples: u32, default: u32) -> Result<u32, DataError> {
        let (list, count) = self.list(tag)?;
        if count == 0 {
            return Ok(default);
        }
        if count != 1 && count != samples as usize {
            let samples = counted(samples, "sample");
            return Err(corrupt(format!("{} has {count} values for {samples}", named(tag))));
        }
        if list[..count].iter().any(|value| *value != list[0]) {
            return Err(unsupported(format!("samples that differ in {}", named(tag))));
        }
        Ok(list[0])
    }
}

/// Name of a tag in messages.
pub fn named(tag: u32) -> String {
    let name = match tag {
        256 => "ImageWidth",
        257 => "ImageLength",
        258 => "BitsPerSample",
        259 => "Compression",
        262 => "PhotometricInterpretation",
        266 => "FillOrder",
        273 => "StripOffsets",
        277 => "SamplesPerPixel",
        278 => "RowsPerStrip",
        279 => "StripByteCounts",
        284 => "PlanarConfiguration",
        317 => "Predictor",
        320 => "ColorMap",
        322 => "TileWidth",
        323 => "TileLength",
        324 => "TileOffsets",
        325 => "TileByteCounts",
        338 => "ExtraSamples",
        _ => "SampleFormat",
    };
    format!("tag {tag} ({name})")
}

pub fn unsupported(what: String) -> DataError {
    DataError::new(Reason::Unsupported, format!("a TIFF with {what}"))
}
