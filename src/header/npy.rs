//! `.npy` files of NumPy with one image.

use super::{Format, Header, corrupt};
use crate::error::{DataError, Reason};
use crate::geometry::{Orientation, Size};
use crate::numpy::{Array, Item, MAGIC, words};

/// Position and coding of the pixels of an image in a `.npy` file. All pixels are present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NpyLayout {
    pub size: Size,
    /// Number of channels: 1, 3 or 4.
    pub channels: usize,
    /// Whether each channel is a plane of its own.
    pub is_planar: bool,
    /// Type of the samples, which are numbers.
    pub item: Item,
    /// Number of bytes before the first sample.
    pub start: usize,
}

impl NpyLayout {
    /// Number of the sample of a channel of a pixel.
    pub fn place(&self, x: usize, y: usize, channel: usize) -> usize {
        let Size { width, height } = self.size;
        match self.is_planar {
            true => (channel * height as usize + y) * width as usize + x,
            false => (y * width as usize + x) * self.channels + channel,
        }
    }

    /// Whether the samples are bytes from 0 to 255.
    pub fn has_bytes(&self) -> bool {
        matches!((self.item.kind, self.item.bytes), (b'u' | b'b', 1))
    }
}

/// Whether the bytes begin like a `.npy` file.
pub(super) fn is_npy(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, DataError> {
    let NpyLayout { size, .. } = layout(bytes)?;
    Ok(Header { format: Format::Npy, size, orientation: Orientation::UPRIGHT, jpeg: None })
}

/// Parses the header. Shapes that may be read in two ways have the channels last.
pub(crate) fn layout(bytes: &[u8]) -> Result<NpyLayout, DataError> {
    let (Array { item, shape, start }, _) = Array::parse(bytes).map_err(|error| {
        corrupt(format!("the .npy file at byte {}: {}", error.offset, error.problem))
    })?;
    let wrong = |problem: String| DataError::new(Reason::Unsupported, problem);
    if !item.is_number() {
        return Err(wrong(format!(
            "the elements of the array have the type {}, but an image has booleans, integers of up \
             to 64 bits, or floats of up to 64 bits; convert it with astype",
            item.words()
        )));
    }
    let (height, width, channels, is_planar) = match shape[..] {
        [height, width] => (height, width, 1, false),
        [height, width, channels @ (1 | 3 | 4)] => (height, width, channels, false),
        [channels @ (1 | 3 | 4), height, width] => (height, width, channels, true),
        _ => {
            return Err(wrong(format!(
                "the array has the shape {}, but an image has (height, width), (height, width, \
                 channels) or (channels, height, width), with 1, 3 or 4 channels",
                words(&shape)
            )));
        }
    };
    let side = |side: u64| u32::try_from(side).ok().filter(|it| (1..=i32::MAX as u32).contains(it));
    let (Some(width), Some(height)) = (side(width), side(height)) else {
        return Err(corrupt(format!(
            "the array has the shape {}; sides must be from 1 to {}",
            words(&shape),
            i32::MAX
        )));
    };
    let (size, channels, start) = (Size::new(width, height), channels as usize, start as usize);
    Ok(NpyLayout { size, channels, is_planar, item, start })
}
