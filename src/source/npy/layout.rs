//! Layouts of the images of a stack.

use crate::geometry::Size;
use crate::header::PnmHead;
use crate::numpy::{Array, Item, head, words};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// One gray channel.
    Gray,
    /// Three channels, interleaved.
    Last,
    /// Three channels, one plane each.
    First,
    /// As stored, in a `.npy` file.
    Array(Samples),
}

/// Type of the samples of an image, and its axis of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples {
    pub kind: u8,
    pub bytes: u8,
    pub big_endian: bool,
    /// Number of channels. 0 if the images have no axis of channels.
    pub channels: u8,
    pub is_planar: bool,
}

impl Samples {
    pub fn item(self) -> Item {
        let Self { kind, bytes, big_endian, .. } = self;
        Item { kind, bytes: bytes.into(), big_endian }
    }

    /// Header of a `.npy` file with one image of this size.
    pub fn head(self, size: Size) -> Vec<u8> {
        let (height, width) = (size.height.into(), size.width.into());
        let channels = self.channels.into();
        match (self.channels, self.is_planar) {
            (0, _) => head(self.item(), &[height, width]),
            (_, true) => head(self.item(), &[channels, height, width]),
            (_, false) => head(self.item(), &[height, width, channels]),
        }
    }
}

/// Header of an image.
pub enum Head {
    Pnm(PnmHead),
    Npy(Vec<u8>),
}

impl Head {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Head::Pnm(head) => head.bytes(),
            Head::Npy(head) => head,
        }
    }
}

/// Returns the number, size and channel layout of the images. The error message suggests a
/// supported form.
pub fn images(array: &Array) -> Result<(u64, Size, Channels), String> {
    let Item { kind, bytes, .. } = array.item;
    let shape = words(&array.shape);
    if !matches!((kind, bytes), (b'u', 1 | 2) | (b'f', 4)) {
        let item = array.item.words();
        return Err(format!(
            "the elements have the type {item}, but must be |u1, <u2 or <f4; write the pixels as \
             np.uint8, 0 to 255, as np.uint16 or as np.float32"
        ));
    }
    let (kind, bytes, big_endian) = (kind, bytes as u8, array.item.big_endian);
    let stored = |channels, is_planar| {
        Channels::Array(Samples { kind, bytes, big_endian, channels, is_planar })
    };
    // Bytes with one or three channels become PNMs.
    let of = |pnm: Channels, channels, is_planar| match bytes {
        1 => pnm,
        _ => stored(channels, is_planar),
    };
    let (count, height, width, channels) = match array.shape[..] {
        [count, height, width] if width > 4 => (count, height, width, of(Channels::Gray, 0, false)),
        [_, _, _] => {
            return Err(format!(
                "the shape {shape} may be one image or a stack of gray images; write x[None] for \
                 one image, x[..., None] for a stack"
            ));
        }
        [count, height, width, 3] => (count, height, width, of(Channels::Last, 3, false)),
        [count, height, width, 1] => (count, height, width, of(Channels::Gray, 1, false)),
        [count, height, width, 4] => (count, height, width, stored(4, false)),
        [count, 3, height, width] => (count, height, width, of(Channels::First, 3, true)),
        [count, 1, height, width] => (count, height, width, of(Channels::Gray, 1, true)),
        [count, 4, height, width] => (count, height, width, stored(4, true)),
        [_, _] => {
            return Err(format!(
                "the shape {shape} is one gray image, but a stack is needed; write x[None]"
            ));
        }
        _ => {
            return Err(format!(
                "the shape {shape} is not a stack of images; supported are (samples, height, \
                 width, 3), (samples, 3, height, width) and (samples, height, width), with 4 \
                 instead of 3 for images with alpha"
            ));
        }
    };
    // A PNM has sides of at most `i32::MAX` pixels.
    let side =
        |pixels: u64| u32::try_from(pixels).ok().filter(|&it| it > 0 && it <= i32::MAX as u32);
    match (side(width), side(height)) {
        (Some(width), Some(height)) => Ok((count, Size::new(width, height), channels)),
        _ => Err(format!(
            "the images have {width}x{height} pixels, but sides must be from 1 to {}",
            i32::MAX
        )),
    }
}
