//! Positions of a JPEG's tables and scans, for decoders that need them.

use std::ops::Range;

use crate::error::{DataError, Reason, reserve};
use crate::geometry::Size;

/// Offsets of the tables and the coded data of a well-formed JPEG, scan by scan.
///
/// [`Header::layout`](crate::header::Header::layout) fills this value. A value that is filled again
/// reuses its memory, which never exceeds [`MOST_BYTES`](Self::MOST_BYTES).
#[derive(Debug, Default)]
pub struct JpegLayout {
    scans: Vec<JpegScan>,
    restarts: Vec<usize>,
    lists_restarts: bool,
    end: usize,
}

/// One scan. Offsets are in bytes from the start of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JpegScan {
    /// First and last coefficient in zigzag order: 0 and 63 in a sequential frame.
    pub band: [u8; 2],
    /// Successive approximation (`Ah` and `Al` of T.81): the lowest bit coded before this scan, or
    /// 0 in the first scan of a band; and the lowest bit that this scan codes.
    pub bits: [u8; 2],
    /// Number of MCUs per row, and of MCU rows. In a scan with one component, an MCU is a block.
    pub mcus: Size,
    /// Number of MCUs between two restart markers, or 0 without restart markers.
    pub restart_interval: u16,
    /// Coded data, including restart markers.
    pub data: Range<usize>,
    pub(in crate::header) components: [JpegScanComponent; 4],
    pub(in crate::header) component_count: u8,
    pub(in crate::header) restarts: Range<usize>,
}

/// Component of a scan, with its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JpegScanComponent {
    /// Index of the component in [`JpegHeader::components`](crate::header::JpegHeader::components).
    pub place: usize,
    /// Offset of the component's quantization table as defined before this scan: 64 one-byte steps
    /// in zigzag order. A component is dequantized with the table of its first scan.
    pub quantization: usize,
    /// Offset of the Huffman table for DC: 16 counts of codes by length, then the symbols. `None`
    /// if the scan needs no DC table.
    pub dc: Option<usize>,
    /// Offset of the Huffman table for AC, in the same format. `None` if the scan needs no AC
    /// table.
    pub ac: Option<usize>,
}

impl JpegScan {
    /// Components in the order of the frame.
    pub fn components(&self) -> &[JpegScanComponent] {
        &self.components[..usize::from(self.component_count)]
    }
}

impl JpegLayout {
    /// Maximum number of scans per file, as in libjpeg-turbo's fuzzers. Each scan of a progressive
    /// file costs a pass over the whole image, however short the scan is.
    pub const MOST_SCANS: usize = 500;
    /// Maximum number of restart markers listed per file.
    pub const MOST_RESTARTS: usize = 1 << 16;
    /// Maximum memory of a layout, in bytes.
    pub const MOST_BYTES: usize =
        Self::MOST_SCANS * size_of::<JpegScan>() + Self::MOST_RESTARTS * size_of::<usize>();

    /// Scans in file order.
    pub fn scans(&self) -> &[JpegScan] {
        &self.scans
    }

    /// Offsets of the first byte after each restart marker of a scan of this layout. Empty without
    /// restart markers, if they were not requested, or if they exceed
    /// [`MOST_RESTARTS`](Self::MOST_RESTARTS).
    pub fn restarts(&self, scan: &JpegScan) -> &[usize] {
        &self.restarts[scan.restarts.clone()]
    }

    /// Offset of the first byte after the end-of-image marker.
    pub const fn end(&self) -> usize {
        self.end
    }

    /// Memory held, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.scans.capacity() * size_of::<JpegScan>()
            + self.restarts.capacity() * size_of::<usize>()
    }

    /// Empties the layout for the next file.
    pub(in crate::header) fn begin(&mut self, lists_restarts: bool) {
        self.scans.clear();
        self.restarts.clear();
        self.lists_restarts = lists_restarts;
        self.end = 0;
    }

    /// Adds the offset after a restart marker of the current scan. `scan` counts the scan's
    /// markers. If the list is full, none of the scan's markers are listed.
    pub(in crate::header) fn add_restart(
        &mut self,
        scan: &mut ScanRestarts,
        at: usize,
    ) -> Result<(), DataError> {
        if !self.lists_restarts || scan.too_many {
            return Ok(());
        }
        if self.restarts.len() == Self::MOST_RESTARTS {
            self.restarts.truncate(self.restarts.len() - scan.listed);
            *scan = ScanRestarts { listed: 0, too_many: true };
            return Ok(());
        }
        push(&mut self.restarts, at, Self::MOST_RESTARTS)?;
        scan.listed += 1;
        Ok(())
    }

    /// Adds a scan whose restart markers are already recorded.
    pub(in crate::header) fn add_scan(
        &mut self,
        mut scan: JpegScan,
        restarts: ScanRestarts,
    ) -> Result<(), DataError> {
        if self.scans.len() == Self::MOST_SCANS {
            let problem = format!("more than {} scans", Self::MOST_SCANS);
            return Err(DataError::new(Reason::Unsupported, problem));
        }
        let end = self.restarts.len();
        scan.restarts = end - restarts.listed..end;
        push(&mut self.scans, scan, Self::MOST_SCANS)
    }

    pub(in crate::header) fn finish(&mut self, end: usize) {
        self.end = end;
    }
}

/// Count of the current scan's restart markers.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::header) struct ScanRestarts {
    listed: usize,
    too_many: bool,
}

/// Appends to a list of at most `most` items.
fn push<T>(list: &mut Vec<T>, item: T, most: usize) -> Result<(), DataError> {
    if list.len() == list.capacity() {
        reserve::reserve(list, (2 * list.len()).clamp(8, most))?;
    }
    list.push(item);
    Ok(())
}
