//! A file whose coded data stays in device memory: what the host keeps of it.

use std::ops::Range;

use bytes::Bytes;

use super::image::{DeviceImage, DeviceRefusal};
use crate::decode::row_index::RowIndex;
use crate::geometry::Roi;
use crate::header::Header;

/// What the host keeps of a file whose coded data is in device memory. It suffices to plan a sample
/// and to describe it to the kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFile {
    /// Position of the coded data in device memory, as the owner of that memory counts.
    pub place: u64,
    /// Size of the file, in bytes.
    pub file_bytes: usize,
    /// Size of the coded data, in bytes.
    pub coded_bytes: usize,
    /// Segments before the coded data, without application data and comments that do not change
    /// the samples.
    segments: Bytes,
    /// Where rows or restart intervals begin.
    starts: Starts,
}

/// Positions in the coded data at which decoding can begin.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Starts {
    /// A row index, and for each row of MCUs and the end a bit that tells whether the byte before
    /// its start is ff.
    Rows(RowIndex, Bytes),
    /// Starts of the restart intervals but the first, 4 bytes each, in bytes from the start of the
    /// coded data.
    Intervals(Bytes),
}

/// Size of the numbers before the segments.
const HEAD_BYTES: usize = 8 + 4 * 4;

impl DeviceFile {
    /// Writes what the host keeps of the file `bytes`, whose coded data is the range `coded`.
    /// `index` is the row index of the file; images with restart markers, at the positions
    /// `restarts` of the file, need none.
    pub fn write(
        place: u64,
        bytes: &[u8],
        (coded, restarts): (Range<usize>, &[usize]),
        index: Option<&RowIndex>,
    ) -> Option<Vec<u8>> {
        let segments = essential(bytes.get(..coded.start)?);
        let (index_bytes, starts) = match index {
            Some(index) => {
                let mut starts = index.bytes().to_vec();
                starts.extend(ends_in_ff(index, bytes.get(coded.clone())?));
                (index.bytes().len(), starts)
            }
            None => {
                let relative = restarts.iter().map(|at| (at - coded.start) as u32);
                (0, relative.flat_map(u32::to_le_bytes).collect())
            }
        };
        let mut kept = Vec::with_capacity(HEAD_BYTES + segments.len() + starts.len());
        kept.extend(place.to_le_bytes());
        for number in [bytes.len(), coded.len(), segments.len(), index_bytes] {
            kept.extend(u32::try_from(number).ok()?.to_le_bytes());
        }
        kept.extend(segments);
        kept.extend(starts);
        Some(kept)
    }

    /// Reads what [`write`](Self::write) has written. `None` for other bytes.
    pub fn read(kept: &Bytes) -> Option<Self> {
        let (place, rest) = kept.split_first_chunk()?;
        let (numbers, _) = rest.split_first_chunk::<16>()?;
        let number = |at: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|byte| numbers[4 * at + byte]);
            u32::from_le_bytes([a, b, c, d]) as usize
        };
        let [file_bytes, coded_bytes, segments, index] = [0, 1, 2, 3].map(number);
        let after = HEAD_BYTES.checked_add(segments).filter(|&after| after <= kept.len())?;
        let starts = kept.slice(after..);
        let starts = match index {
            0 => Starts::Intervals(starts),
            index if index <= starts.len() => {
                Starts::Rows(RowIndex::read(starts.slice(..index))?, starts.slice(index..))
            }
            _ => return None,
        };
        let segments = kept.slice(HEAD_BYTES..after);
        let place = u64::from_le_bytes(*place);
        Some(Self { place, file_bytes, coded_bytes, segments, starts })
    }

    /// Segments before the coded data. Their header is that of the file, apart from the
    /// orientation.
    pub fn segments(&self) -> &[u8] {
        &self.segments
    }

    /// Describes the part of the file that `window` needs, a window of the reduced image. The
    /// [data](DeviceImage::data) of the image is a range of the coded data.
    pub fn image(&self, header: &Header, wanted: (Roi, u32)) -> Result<DeviceImage, DeviceRefusal> {
        let mut image = DeviceImage::of(&self.segments, header, 0..self.coded_bytes, wanted)?;
        match &self.starts {
            Starts::Rows(index, ends) => image.set_rows(index, |row, _| {
                ends.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1)
            })?,
            Starts::Intervals(starts) => {
                let starts = starts.as_chunks().0.iter();
                image.set_intervals(starts.map(|start| u32::from_le_bytes(*start)))?;
            }
        }
        Ok(image)
    }
}

/// Copies the segments before the coded data of a file, without application data and comments.
/// Keeps the application data of JFIF and Adobe, which name the color space.
fn essential(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut rest) = bytes.strip_prefix(&[0xff, 0xd8]) else { return bytes.to_vec() };
    kept.extend([0xff, 0xd8]);
    while let [0xff, marker, high, low, ..] = *rest {
        let len = match marker {
            // A fill byte.
            0xff => 1,
            _ => 2 + usize::from(u16::from_be_bytes([high, low])),
        };
        let Some((segment, after)) = rest.split_at_checked(len) else { break };
        if !matches!(marker, 0xe1..=0xed | 0xef | 0xfe | 0xff) {
            kept.extend(segment);
        }
        rest = after;
    }
    kept.extend(rest);
    // The header of a file without an end would be an error.
    kept.extend([0xff, 0xd9]);
    kept
}

/// Returns a bit for each row of MCUs and for the end of the data: whether the last byte before it
/// is ff. Then the byte after it shows whether the ff belongs to the data.
fn ends_in_ff(index: &RowIndex, coded: &[u8]) -> Vec<u8> {
    let mut bits = vec![0; (index.rows() + 1).div_ceil(8)];
    for (row, start) in (1..).zip(index.positions()) {
        let last = start.div_ceil(8).checked_sub(1);
        if last.and_then(|last| coded.get(last as usize)) == Some(&0xff) {
            bits[row / 8] |= 1 << (row % 8);
        }
    }
    bits
}
