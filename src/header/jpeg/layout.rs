//! Where the parts of a JPEG are, for decoders that read them.

use std::ops::Range;

use crate::error::{DataError, Reason, reserve};
use crate::geometry::Size;

/// Offsets of the tables and the coded data of a well-formed JPEG, scan by scan.
///
/// [`Header::layout`](crate::header::Header::layout) fills it. Its memory is reused for the next file and never exceeds
/// [`MOST_BYTES`](Self::MOST_BYTES).
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
    /// First and last coefficient in zigzag order; 0 and 63 in a sequential frame.
    pub band: [u8; 2],
    /// Successive approximation, `Ah` and `Al` of T.81: the lowest bit that was coded before this scan (0 in the first scan of a
    /// band), and the lowest bit that this scan codes.
    pub bits: [u8; 2],
    /// MCUs in a row, and rows of MCUs. In a scan of one component an MCU is a block.
    pub mcus: Size,
    /// MCUs between two restart markers; 0 where there are none.
    pub restart_interval: u16,
    /// The coded data with its restart markers.
    pub data: Range<usize>,
    pub(in crate::header) components: [JpegScanComponent; 4],
    pub(in crate::header) component_count: u8,
    pub(in crate::header) restarts: Range<usize>,
}

/// A component of a scan, with the tables that are in force for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JpegScanComponent {
    /// Its place in [`JpegHeader::components`](crate::header::JpegHeader::components).
    pub place: usize,
    /// Offset of the quantization table that is in force here: 64 steps of one byte in zigzag order. That of a component's first
    /// scan is the one that counts.
    pub quantization: usize,
    /// Offset of its Huffman table for DC: 16 counts of codes by length, then the symbols. `None` where the scan needs none.
    pub dc: Option<usize>,
    /// The same for AC.
    pub ac: Option<usize>,
}

impl JpegScan {
    /// The components, in the order of the frame.
    pub fn components(&self) -> &[JpegScanComponent] {
        &self.components[..usize::from(self.component_count)]
    }
}

impl JpegLayout {
    /// Most scans of a file, the limit of libjpeg-turbo's own fuzzers. Each scan of a progressive file costs a pass over the
    /// whole image, whatever its length in bytes.
    pub const MOST_SCANS: usize = 500;
    /// Most restart markers that are listed for a file.
    pub const MOST_RESTARTS: usize = 1 << 16;
    /// Most bytes of memory that a layout holds.
    pub const MOST_BYTES: usize =
        Self::MOST_SCANS * size_of::<JpegScan>() + Self::MOST_RESTARTS * size_of::<usize>();

    /// The scans, in the order of the file.
    pub fn scans(&self) -> &[JpegScan] {
        &self.scans
    }

    /// Offsets of the first byte behind each restart marker of a scan of this layout. Empty where there are none, where they were
    /// not asked for, and where the list of the file has no room for all of this scan's.
    pub fn restarts(&self, scan: &JpegScan) -> &[usize] {
        &self.restarts[scan.restarts.clone()]
    }

    /// Offset of the first byte behind the end-of-image marker.
    pub const fn end(&self) -> usize {
        self.end
    }

    /// Bytes of memory held.
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

    /// Lists the offset behind a restart marker of the scan that is being read, whose earlier ones are counted in `scan`. Where
    /// there is no room for it, none of the scan's are listed.
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

    /// Adds a scan whose restart markers were noted.
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

/// Restart markers of the scan that is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::header) struct ScanRestarts {
    listed: usize,
    too_many: bool,
}

/// Appends to a list that grows to at most `most`.
fn push<T>(list: &mut Vec<T>, item: T, most: usize) -> Result<(), DataError> {
    if list.len() == list.capacity() {
        reserve::reserve(list, (2 * list.len()).clamp(8, most))?;
    }
    list.push(item);
    Ok(())
}
