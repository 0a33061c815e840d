//! What the first bytes of a picture say: format, size, orientation. Reads no pixels.

use crate::error::Fault;
use crate::geometry::{Orientation, Size};

/// A picture's format, recognised by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// ITU-T T.81.
    Jpeg,
    /// W3C PNG.
    Png,
    /// Google WebP.
    WebP,
}

/// What is known about a picture before it is decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Format, by content.
    pub format: Format,
    /// Size as stored, before the orientation is applied.
    pub size: Size,
    /// How the stored pixels must be turned.
    pub orientation: Orientation,
    /// What only a JPEG has.
    pub jpeg: Option<JpegHeader>,
}

/// The parts of a JPEG's header that decide who can decode it.
#[derive(Clone, Debug, PartialEq)]
pub struct JpegHeader {}

impl Header {
    /// Reads the header of a whole file. Never panics, whatever the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let _ = bytes;
        todo!()
    }
}
