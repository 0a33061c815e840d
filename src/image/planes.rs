//! Layout of a part of a YCbCr image in three planes of samples, as JPEG stores it.

use crate::geometry::Roi;

/// Layout of planes of samples in one buffer: luma, then blue chroma and red chroma. Samples are
/// bytes.
///
/// The rows of all planes begin at multiples of 16 bytes. The padding of a row, between its last
/// sample and the next row, belongs to the planes: it is readable and has any values.
///
/// The planes hold every sample that a window of the image needs, with the neighbours that
/// upsampling needs, unless a neighbour is outside of the image. The part is larger than this
/// window. It consists of whole MCUs, so it may reach beyond the right and the lower edge of the
/// image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Part of the stored image, which is reduced if the decoder reduces it, in luma samples. Its
    /// position is a multiple of `ratio`.
    pub part: Roi,
    /// Bytes per row of luma and of chroma, multiples of 16.
    pub pitches: [usize; 2],
    /// Offsets of blue and red chroma from luma in bytes, multiples of 16. 0 for gray images.
    pub chroma: [usize; 2],
    /// Number of luma samples per chroma sample, horizontally (1, 2 or 4) and vertically (1 or 2).
    pub ratio: [usize; 2],
    /// Whether there is only luma.
    pub is_gray: bool,
    /// Number of chroma samples of the whole stored image, horizontally and vertically. Upsampling
    /// repeats the last ones.
    pub chroma_size: [usize; 2],
    /// Size of all planes in bytes.
    pub bytes: usize,
}

impl Planes {
    /// Addresses of luma, blue chroma and red chroma if the planes begin at `address`.
    pub fn addresses(&self, address: u64) -> [u64; 3] {
        [0, self.chroma[0], self.chroma[1]].map(|offset| address + offset as u64)
    }

    /// Number of chroma samples of the image that the part has, horizontally and vertically.
    pub fn chroma_in_part(&self) -> [usize; 2] {
        let [h, v] = self.ratio;
        let Roi { x, y, width, height } = self.part;
        let [wide, high] = [width as usize / h, height as usize / v];
        let [left, top] = [x as usize / h, y as usize / v];
        [wide.min(self.chroma_size[0] - left), high.min(self.chroma_size[1] - top)]
    }
}
