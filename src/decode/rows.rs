//! Groups of rows, which decoders pass to their sinks.

use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::tensor::CHANNELS;

/// Maximum number of rows in a group: one MCU row of a JPEG with 4:2:0 chroma, or two MCU rows with
/// 4:4:4.
pub const MOST_ROWS: u32 = 16;

/// Meaning of a row's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RowLayout {
    /// Red, green and blue of each pixel. Supported by every decoder.
    Rgb,
    /// Red, green, blue and alpha of each pixel, not premultiplied.
    Rgba,
    /// One byte per pixel of a gray image.
    Gray,
    /// Luma, one byte per pixel. Both chroma planes are in [`Rows::chroma`].
    YCbCr,
}

impl RowLayout {
    /// Number of bytes of a pixel in [`Rows::data`].
    pub const fn channels(self) -> usize {
        match self {
            RowLayout::Rgb => CHANNELS,
            RowLayout::Rgba => CHANNELS + 1,
            RowLayout::Gray | RowLayout::YCbCr => 1,
        }
    }
}

/// Group of consecutive rows of the window. A group ends before a row whose number is a multiple of
/// [`MOST_ROWS`], and at the end of the window.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Number of the first row in the stored image, after the reduction.
    pub first: u32,
    /// Number of rows, at least 1.
    pub count: u32,
    /// Bytes from the start of one row to the start of the next.
    pub pitch: usize,
    /// Bytes of the rows. There is no padding after the last row.
    pub data: &'a [u8],
    /// For [`RowLayout::YCbCr`]: Cb and Cr planes of these pixels, subsampled as in the file. Their
    /// rows are numbered within their own plane. Otherwise empty.
    pub chroma: &'a [Rows<'a>],
}

/// Callback that receives the decoded rows from top to bottom.
pub type RowSink<'a> = dyn FnMut(Rows<'_>) + 'a;

impl<'a> Rows<'a> {
    /// Iterates over the rows with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let len = self.data.len() - self.pitch * (self.count as usize - 1);
        (self.first..).zip(self.data.chunks(self.pitch).map(move |row| &row[..len]))
    }
}

/// Returns the first row after the group that begins with row `first`, if the window ends at row
/// `end`.
pub(super) fn group_end(first: u32, end: u32) -> u32 {
    (first / MOST_ROWS * MOST_ROWS).saturating_add(MOST_ROWS).min(end)
}

/// Returns the maximum number of rows in a group of an image with `height` rows.
pub(super) fn most_rows(height: u32) -> u64 {
    height.min(MOST_ROWS).into()
}

/// Passes the rows of a window to the sink without copying them. `pixels` begins with the window's
/// first pixel. Rows begin `stride` bytes apart.
pub(super) fn hand_on(
    pixels: &[u8],
    (stride, layout): (usize, RowLayout),
    window: Roi,
    sink: &mut RowSink<'_>,
) {
    let row_bytes = layout.channels() * window.width as usize;
    let mut first = window.y;
    while first < window.bottom() {
        let end = group_end(first, window.bottom());
        let count = end - first;
        let start = stride * (first - window.y) as usize;
        let data = &pixels[start..][..stride * (count as usize - 1) + row_bytes];
        sink(Rows { first, count, pitch: stride, data, chroma: &[] });
        first = end;
    }
}

/// Collects the rows of a window and passes them to the sink in groups.
pub(super) struct RowGroups<'a> {
    buffer: &'a mut [u8],
    window: Roi,
    row_bytes: usize,
    /// First row of the current group.
    first: u32,
    /// Next row to write.
    next: u32,
    sink: &'a mut RowSink<'a>,
}

impl<'a> RowGroups<'a> {
    /// Creates an empty group. `buffer` grows to one group.
    pub fn new(
        buffer: &'a mut Vec<u8>,
        (window, layout): (Roi, RowLayout),
        sink: &'a mut RowSink<'a>,
    ) -> Result<Self, DataError> {
        let rows = most_rows(window.height) as usize;
        let row_bytes = layout.channels() * window.width as usize;
        let buffer = grown(buffer, rows * row_bytes)?;
        Ok(Self { buffer, window, row_bytes, first: window.y, next: window.y, sink })
    }

    /// Returns the number of the next row to write.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns the memory for the next row. Its values are unspecified.
    pub fn row(&mut self) -> &mut [u8] {
        &mut self.buffer[self.row_bytes * (self.next - self.first) as usize..][..self.row_bytes]
    }

    /// Advances to the next row. Passes a complete group to the sink.
    pub fn push(&mut self) {
        self.next += 1;
        if self.next < group_end(self.first, self.window.bottom()) {
            return;
        }
        let (first, count, pitch) = (self.first, self.next - self.first, self.row_bytes);
        let data = &self.buffer[..pitch * count as usize];
        (self.sink)(Rows { first, count, pitch, data, chroma: &[] });
        self.first = self.next;
    }
}

/// Returns the first `N` channels of a pixel with red, green, blue and alpha.
#[inline(always)]
pub(super) fn first<const N: usize>(pixel: [u8; CHANNELS + 1]) -> [u8; N] {
    std::array::from_fn(|channel| pixel[channel])
}

/// Returns a pixel with this alpha.
#[inline(always)]
pub(super) const fn with_alpha([red, green, blue]: [u8; CHANNELS], alpha: u8) -> [u8; 4] {
    [red, green, blue, alpha]
}

/// Returns the first `len` bytes of a scratch buffer, which grows to exactly `len` bytes if it is
/// shorter.
pub(super) fn grown(buffer: &mut Vec<u8>, len: usize) -> Result<&mut [u8], DataError> {
    if buffer.len() < len {
        reserve::renew(buffer, len)?;
    }
    Ok(&mut buffer[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns first row and number of rows of each group, and all bytes.
    fn collected(decode: impl FnOnce(&mut RowSink<'_>)) -> (Vec<(u32, u32)>, Vec<u8>) {
        let (mut groups, mut bytes) = (Vec::new(), Vec::new());
        decode(&mut |rows| {
            groups.push((rows.first, rows.count));
            rows.iter().for_each(|(_, row)| bytes.extend_from_slice(row));
        });
        (groups, bytes)
    }

    #[test]
    fn groups_end_at_multiples_of_the_most_rows_and_at_the_end_of_the_window() {
        let pixels: Vec<u8> = (0..3 * 10 * 40).map(|at| at as u8).collect();
        let window = Roi::new(2, 5, 4, 31);
        let row = |y: u32| &pixels[30 * y as usize + 6..][..12];
        let expected: Vec<u8> = (5..36).flat_map(row).copied().collect();
        let groups = [(5, 11), (16, 16), (32, 4)];
        let handed_on =
            collected(|sink| hand_on(&pixels[30 * 5 + 6..], (30, RowLayout::Rgb), window, sink));
        assert_eq!(handed_on, (groups.to_vec(), expected.clone()));
        let mut buffer = Vec::new();
        let made = collected(|sink| {
            let mut groups = RowGroups::new(&mut buffer, (window, RowLayout::Rgb), sink).unwrap();
            for y in window.y..window.bottom() {
                assert_eq!(groups.next(), y);
                groups.row().copy_from_slice(row(y));
                groups.push();
            }
        });
        assert_eq!(made, (groups.to_vec(), expected));
        assert_eq!(buffer.len(), 16 * 12);
    }
}
