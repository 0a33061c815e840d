//! An image that the kernels decode: which bytes they need, which part they decode, and into which
//! planes.

use std::ops::Range;

use super::super::frame::{Component, Frame, Shape, ZIGZAG};
use super::super::huffman::Code;
use super::super::kernels::MOST_STEP;
use super::super::rows::DecodedPart;
use crate::decode::jpeg_choice::JpegRefusal;
use crate::decode::row_index::{Fingerprint, RowIndex, RowIndexWriter, RowStart};
use crate::error::DataError;
use crate::geometry::{Roi, Size};
use crate::header::{Format, Header, JpegLayout};

/// Maximum size of the coded data in bytes. Positions in bits must fit into 32 bits.
const MOST_BYTES: usize = 1 << 28;
/// Maximum number of luma blocks of an image. With fewer blocks, no sum of differences of DC
/// coefficients reaches the limit of 2^30, at which the CPU decoder leaves an image to libjpeg.
const MOST_BLOCKS: usize = 1 << 19;
/// Range of the number of bits of a subsequence. With fewer bits, most threads would decode their
/// subsequence twice. With more bits, a single image would take longer.
const SUBSEQUENCE_BITS: [usize; 2] = [1024, 32 << 10];
/// Maximum number of subsequences: the threads of one block of `jpeg_join` times the threads of a
/// block of `jpeg_sync`.
const MOST_SUBSEQUENCES: usize = 256 * 64;
/// Number of subsequences into which an image is divided, if their number of bits is in range: one
/// block of `jpeg_sync`.
const SUBSEQUENCES: usize = 64;
/// Alignment of all arrays and of all rows of samples, in bytes.
pub(super) const ALIGN_BYTES: usize = 16;
/// Maximum number of Huffman tables of an image.
pub(super) const MOST_TABLES: usize = 6;

/// Why the kernels do not decode an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRefusal {
    /// Not a JPEG.
    Format,
    /// The CPU decoder refuses it too.
    Jpeg(JpegRefusal),
    /// Progressive.
    Progressive,
    /// More pixels or more coded data than the kernels support.
    Size,
    /// More restart markers than [`JpegLayout::MOST_RESTARTS`].
    Restarts,
    /// The row index has other rows than the image, or leads outside of the coded data.
    Index,
}

impl DeviceRefusal {
    /// Not one scan.
    pub const SCANS: Self = Self::Jpeg(JpegRefusal::Scans);

    /// Reason in reports.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Format => "not a JPEG",
            Self::Jpeg(refusal) => refusal.reason(),
            Self::Progressive => "progressive",
            Self::Size => "too many blocks or too much coded data",
            Self::Restarts => "too many restart markers",
            Self::Index => "its row index does not match the image",
        }
    }
}

/// An image, the part of it to decode, and the data that the kernels need for that.
#[derive(Debug)]
pub struct DeviceImage {
    pub(super) shape: Shape,
    /// Ranges of columns and rows of MCUs.
    pub(super) columns: [usize; 2],
    pub(super) rows: [usize; 2],
    pub(super) reduction: usize,
    /// Size of the reduced image.
    pub(super) size: Size,
    pub(super) restart_interval: usize,
    /// Bytes of the file that the kernels need.
    data: Range<usize>,
    /// Table of each component in `codes`: DC, then AC.
    pub(super) places: [[usize; 2]; 3],
    pub(super) codes: Vec<[u8; Code::BYTES]>,
    /// Quantization steps of each component, in zigzag order.
    pub(super) steps: [[u16; 64]; 3],
    /// Start of each row of the part, and of the row after it, relative to `data`. Empty without a
    /// row index.
    pub(super) starts: Vec<RowStart>,
    /// Start of each restart interval in bytes, relative to `data`.
    pub(super) intervals: Vec<u32>,
    pub(super) subsequence_bits: usize,
    makes_index: bool,
}

impl DeviceImage {
    /// Checks that the kernels support an image with this header at this reduction (1, 2, 4 or 8).
    pub fn check(header: &Header, reduction: u32) -> Result<(), DeviceRefusal> {
        Self::shape(header, reduction).map(|_| ())
    }

    pub(super) fn shape(header: &Header, reduction: u32) -> Result<Shape, DeviceRefusal> {
        if header.format != Format::Jpeg {
            return Err(DeviceRefusal::Format);
        }
        let shape = Shape::of(header).map_err(DeviceRefusal::Jpeg)?;
        if shape.is_progressive {
            return Err(DeviceRefusal::Progressive);
        }
        if shape.enlarges_otherwise(reduction as usize) {
            return Err(DeviceRefusal::Jpeg(JpegRefusal::Reduction));
        }
        let [across, down] = shape.units();
        if across * down * shape.sampling[0] * shape.sampling[1] >= MOST_BLOCKS {
            return Err(DeviceRefusal::Size);
        }
        Ok(shape)
    }

    /// Describes the part of the file `bytes` that `wanted` needs: a window of the reduced image,
    /// and the reduction. `layout` is the layout of the file. With a row index, rows outside the
    /// window are not decoded; an image with restart markers is decoded without its index.
    pub fn new(
        bytes: &[u8],
        header: &Header,
        layout: &JpegLayout,
        wanted: (Roi, u32),
        index: Option<&RowIndex>,
    ) -> Result<Self, DeviceRefusal> {
        Self::shape(header, wanted.1)?;
        let [scan] = layout.scans() else { return Err(DeviceRefusal::SCANS) };
        let coded = scan.data.clone();
        let mut image = Self::of(bytes, header, coded.clone(), wanted)?;
        match index.filter(|_| image.restart_interval == 0) {
            Some(index) => {
                image.set_rows(index, |_, last| bytes.get(coded.start + last) == Some(&0xff))?
            }
            None => {
                let restarts = layout.restarts(scan).iter();
                image.set_intervals(restarts.map(|at| (at - coded.start) as u32))?;
            }
        }
        Ok(image)
    }

    /// Describes a part of the image without the starts of rows or restart intervals. `bytes` has
    /// the segments before the coded data, which is the range `coded`.
    pub(super) fn of(
        bytes: &[u8],
        header: &Header,
        coded: Range<usize>,
        (window, reduction): (Roi, u32),
    ) -> Result<Self, DeviceRefusal> {
        let shape = Self::shape(header, reduction)?;
        let unusual = DeviceRefusal::Jpeg(JpegRefusal::Header);
        let frame = Frame::parse(bytes, shape).ok_or(unusual)?;
        if coded.is_empty() || coded.len() >= MOST_BYTES {
            return Err(DeviceRefusal::Size);
        }
        let part = DecodedPart::new(&shape, window, reduction as usize, MOST_STEP);
        let mut image = Self {
            shape,
            columns: part.columns,
            rows: part.rows,
            reduction: reduction as usize,
            size: header.size.reduced(reduction),
            restart_interval: frame.restart_interval,
            data: coded,
            places: [[0; 2]; 3],
            codes: Vec::with_capacity(MOST_TABLES),
            steps: frame
                .components
                .each_ref()
                .map(|it| ZIGZAG.map(|at| it.quantization[usize::from(at)])),
            starts: Vec::new(),
            intervals: Vec::new(),
            subsequence_bits: 0,
            makes_index: false,
        };
        image.set_tables(&frame.components[..shape.component_count()]);
        let bits = 8 * image.data.len();
        let [least, most] = SUBSEQUENCE_BITS;
        let wanted = bits.div_ceil(SUBSEQUENCES).clamp(least, most);
        image.subsequence_bits = wanted.max(bits.div_ceil(MOST_SUBSEQUENCES)).next_multiple_of(32);
        Ok(image)
    }

    /// Bytes of the file that the kernels need.
    pub fn data(&self) -> Range<usize> {
        self.data.clone()
    }

    /// Whether rows are decoded from their starts in a row index.
    pub fn has_index(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Lets the kernels make a row index, unless they decode with one.
    pub fn make_index(&mut self) {
        self.makes_index = !self.has_index();
    }

    /// Whether the kernels make a row index.
    pub fn makes_index(&self) -> bool {
        self.makes_index
    }

    /// Returns the row index that the kernels have made. `made` are the bytes of the range
    /// [`DeviceMemory::made`](super::DeviceMemory::made), and `file` is the fingerprint of the
    /// file.
    ///
    /// # Errors
    /// Out of memory.
    pub fn row_index(&self, made: &[u8], file: Fingerprint) -> Result<Vec<u8>, DataError> {
        let [_, down] = self.shape.units();
        let components = self.shape.component_count();
        let mut writer = RowIndexWriter::default();
        writer.begin(file, down, components)?;
        for row in &made.as_chunks::<16>().0[..down - 1] {
            let [bit, predictions @ ..] = bytemuck::cast::<[u8; 16], [u32; 4]>(*row);
            let predictions = predictions.map(|it| it as i32);
            writer.push(RowStart { position: bit.into(), predictions });
        }
        writer.end();
        Ok(writer.into_bytes())
    }

    /// Collects the different tables. A DC table and an AC table are always different tables,
    /// because the kernels interpret their symbols differently.
    fn set_tables(&mut self, components: &[Component]) {
        let mut kinds = Vec::with_capacity(MOST_TABLES);
        for (at, component) in components.iter().enumerate() {
            for (kind, code) in [&component.dc, &component.ac].into_iter().enumerate() {
                let bytes = code.bytes();
                let found = (kinds.iter().zip(&self.codes)).position(|it| it == (&kind, &bytes));
                self.places[at][kind] = found.unwrap_or(self.codes.len());
                if found.is_none() {
                    kinds.push(kind);
                    self.codes.push(bytes);
                }
            }
        }
    }

    /// `restarts` are the starts of the restart intervals but the first, relative to the coded
    /// data.
    pub(super) fn set_intervals(
        &mut self,
        restarts: impl ExactSizeIterator<Item = u32>,
    ) -> Result<(), DeviceRefusal> {
        let [across, down] = self.shape.units();
        let count = match self.restart_interval {
            0 => 1,
            interval => (across * down).div_ceil(interval),
        };
        if restarts.len() + 1 != count {
            return Err(DeviceRefusal::Restarts);
        }
        self.intervals.push(0);
        self.intervals.extend(restarts);
        Ok(())
    }

    /// Narrows the data to the rows of the part. The data begins at a multiple of
    /// [`ALIGN_BYTES`] from the start of the coded data, so that the kernels can read it where the
    /// whole coded data is. `is_ff` tells whether the last byte before the start of a row, given as
    /// the number of the row and of the byte of the coded data, is ff.
    pub(super) fn set_rows(
        &mut self,
        index: &RowIndex,
        is_ff: impl Fn(usize, usize) -> bool,
    ) -> Result<(), DeviceRefusal> {
        let [_, down] = self.shape.units();
        let [first, end] = self.rows;
        let wrong = DeviceRefusal::Index;
        let mut rows = index.starts(down, self.shape.component_count()).ok_or(wrong)?;
        let mut start = match first.checked_sub(1) {
            None => RowStart::default(),
            Some(skipped) => rows.nth(skipped).ok_or(wrong)?,
        };
        let coded = self.data.clone();
        let from = (start.position / 8) as usize / ALIGN_BYTES * ALIGN_BYTES;
        for row in first..end {
            let next = match row + 1 < down {
                true => rows.next().ok_or(wrong)?,
                false => RowStart { position: 8 * coded.len() as u64, ..RowStart::default() },
            };
            if next.position <= start.position || next.position > 8 * coded.len() as u64 {
                return Err(wrong);
            }
            self.starts.push(start);
            start = next;
        }
        self.starts.push(start);
        let mut last = start.position.div_ceil(8) as usize;
        // The byte after ff shows whether ff belongs to the data.
        if is_ff(end, last - 1) {
            last = (last + 1).min(coded.len());
        }
        for start in &mut self.starts {
            start.position -= 8 * from as u64;
        }
        self.data = coded.start + from..coded.start + last;
        Ok(())
    }
}
