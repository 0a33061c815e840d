//! feedwater's own JPEG decoder. It decodes Huffman-coded JPEGs with 8 bits per sample, gray or
//! YCbCr, sequential in one scan or progressive. The pixels equal libjpeg-turbo's.
//!
//! In corrupt images, coefficients can be so large that sums overflow 16 bits. libjpeg-turbo's C
//! code and its vector code then return different pixels. This decoder returns the pixels of the
//! vector code.
//!
//! libjpeg-turbo decodes the JPEGs that this decoder does not support, and all unusual or corrupt
//! ones. If this decoder has already passed rows to the sink, libjpeg-turbo starts again at the
//! first row, and the rows that the sink received are skipped. All errors of corrupt JPEGs are
//! therefore libjpeg-turbo's.
//!
//! The path of an image: `frame` reads the segments. `scan` iterates over the MCUs (minimum coded
//! units). `bits` removes byte stuffing. `huffman`, `ac_table` and `blocks` decode coefficients.
//! `kernels` transforms them and computes pixels. `rows` passes the rows of the window to the sink.
//! For a progressive image, `progressive` first decodes all scans, with `bands`.

mod ac_table;
mod bands;
mod bits;
mod blocks;
pub mod device;
mod frame;
mod huffman;
mod kernels;
mod progressive;
#[cfg(test)]
mod reference;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

use ac_table::AcTable;
use bits::{Clean, HELD, Input, PADDING};
use blocks::{BlockCoding, Blocks, Coding, Reader};
use frame::{Component, Frame, Shape};
use huffman::{Code, DcTable};
use kernels::{Kernels, MOST_STEP, NO_SUMS, Quantization, Sums};
use rows::{DecodedPart, Painter};
use scan::Scan;

use super::jpeg_choice::{JpegBy, JpegRefusal};
use super::libjpeg::LibjpegTurbo;
use super::row_index::{RowIndexOutcome, RowIndexTask, RowIndexWriter};
use super::rows::{grown, most_rows};
use super::{
    Buffers, DecodeMemory, EncodedImage, HostDecoder, RowLayout, RowSink, Rows, unsupported,
};
use crate::error::{DataError, Reason, Tolerated, reserve};
use crate::header::Header;

/// Name of this decoder.
pub(super) const NAME: &str = "feedwater";

/// Number of tables of each kind (DC, AC) that the decoder keeps. An image uses at most three of
/// each kind.
const TABLES: usize = 4;

/// Returns the reason why this decoder refuses a JPEG, as far as the header shows it.
pub fn refusal(header: &Header) -> Option<JpegRefusal> {
    Shape::of(header).err()
}

/// Whether an intact JPEG with this header can have a [row index](super::RowIndex).
pub fn is_indexable(header: &Header) -> bool {
    Shape::of(header).is_ok_and(|shape| !shape.is_progressive)
}

/// feedwater's own decoder, with libjpeg-turbo for images that it refuses.
#[derive(Debug)]
pub(super) struct Feedwater {
    kernels: Kernels,
    /// Whether libjpeg-turbo decodes all images, because it is faster on this CPU.
    yields: bool,
    /// Empty before the first image, then one state.
    state: Vec<DecoderState>,
    refusal: Option<JpegRefusal>,
    row_index: RowIndexing,
    libjpeg: LibjpegTurbo,
}

/// Row index task for the next image, and the outcome of the task for the last image.
#[derive(Debug, Default)]
struct RowIndexing {
    task: RowIndexTask,
    outcome: Outcome,
    writer: RowIndexWriter,
}

#[derive(Clone, Copy, Debug, Default)]
enum Outcome {
    #[default]
    None,
    Used,
    Rejected,
    Made,
}

impl Default for Feedwater {
    fn default() -> Self {
        let kernels = Kernels::here();
        let yields = !kernels.are_fast();
        Self {
            kernels,
            yields,
            state: Vec::new(),
            refusal: None,
            row_index: RowIndexing::default(),
            libjpeg: LibjpegTurbo,
        }
    }
}

/// Memory that is kept between images.
#[derive(Debug)]
struct DecoderState {
    clean: Clean,
    dc_tables: [DcTable; TABLES],
    ac_tables: [AcTable; TABLES],
    /// Position of the most recently replaced table of each kind (DC, AC).
    next: [usize; 2],
    blocks: Blocks,
    sums: Sums,
    quantization: [Quantization; 3],
    progressive: progressive::Tables,
}

impl HostDecoder for Feedwater {
    fn name(&self) -> &'static str {
        NAME
    }

    fn accepts(&self, header: &Header) -> bool {
        !self.yields && Shape::of(header).is_ok()
    }

    fn memory(&self, header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
        let libjpeg = self.libjpeg.memory(header, head, file_bytes);
        let Ok(shape) = Shape::of(header) else { return libjpeg };
        let part = DecodedPart::new(&shape, header.size.window(), 1, MOST_STEP);
        let row = part.row_bytes(RowLayout::Rgb) as u64;
        let row_index = RowIndexWriter::most_bytes(shape.units()[1]) as u64;
        // libjpeg-turbo starts only after our decoder has freed its coefficients. So only the
        // larger of the two decoders' memory counts.
        let coefficients = if shape.is_progressive { progressive::memory_bytes(&shape) } else { 0 };
        DecodeMemory {
            scratch: part.plane_bytes() as u64,
            rows: libjpeg.rows.max(row * most_rows(header.size.height)),
            library: libjpeg.library.max(coefficients) + STATE_BYTES + row_index,
        }
    }

    fn layouts(&self, header: &Header) -> &'static [RowLayout] {
        self.libjpeg.layouts(header)
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        let mut next = image.window.y;
        // If libjpeg-turbo decodes the image again, the rows that the sink has already received are
        // skipped.
        let mut passed = |rows: Rows<'_>| {
            if rows.first >= next {
                next = rows.first + rows.count;
                sink(rows);
            }
        };
        self.refusal = self.decode_own(image, buffers, &mut passed)?;
        let Some(refusal) = self.refusal else {
            return Ok(image.header.jpeg.as_ref().and_then(|jpeg| jpeg.tolerated));
        };
        if !image.may_fall_back {
            let name = JpegBy::Refused(refusal).name();
            let problem = format!(
                "decode.jpeg = \"feedwater\" refuses this JPEG; \"auto\" would decode it with {name}"
            );
            return Err(unsupported(problem));
        }
        self.libjpeg.decode(image, buffers, &mut passed)
    }

    fn jpeg_by(&self) -> Option<JpegBy> {
        Some(self.refusal.map_or(JpegBy::Feedwater, JpegBy::Refused))
    }

    fn capacity_bytes(&self) -> usize {
        self.state.capacity() * size_of::<DecoderState>() + self.row_index.writer.capacity_bytes()
    }
}

impl Feedwater {
    /// Returns the names of the instruction sets that this CPU has.
    pub fn instructions() -> Vec<&'static str> {
        Kernels::all().into_iter().map(|(name, _)| name).collect()
    }

    /// Restricts the decoder to an instruction set. Returns `None` if this CPU does not have it.
    pub fn set_instructions(&mut self, name: &str) -> Option<()> {
        let found = Kernels::all().into_iter().find(|(it, _)| *it == name);
        (self.kernels, self.yields) = (found?.1, false);
        Some(())
    }

    /// Sets the row index task of the next image.
    pub fn set_row_index(&mut self, task: RowIndexTask) {
        (self.row_index.task, self.row_index.outcome) = (task, Outcome::None);
    }

    /// Returns the row index outcome of the last image.
    pub fn row_index(&self) -> RowIndexOutcome<'_> {
        match self.row_index.outcome {
            Outcome::None => RowIndexOutcome::None,
            Outcome::Used => RowIndexOutcome::Used,
            Outcome::Rejected => RowIndexOutcome::Rejected,
            Outcome::Made => {
                let (file, index) = self.row_index.writer.made();
                RowIndexOutcome::Made(file, index)
            }
        }
    }
}

/// Size of coded data, in bytes, below which tables with several symbols per entry do not pay off,
/// unless several images use the same tables.
const SMALL: usize = 8 << 10;

/// Size of the state in bytes.
const STATE_BYTES: u64 = size_of::<DecoderState>() as u64;

impl Feedwater {
    /// Decodes the window. Returns a refusal if libjpeg-turbo must decode the image.
    fn decode_own(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<JpegRefusal>, DataError> {
        let EncodedImage { bytes, header, window, reduction, layout, .. } = *image;
        let task = std::mem::take(&mut self.row_index.task);
        let shape = match Shape::of(header) {
            Ok(shape) => shape,
            Err(refusal) => return Ok(Some(refusal)),
        };
        let reduction = reduction as usize;
        if shape.enlarges_otherwise(reduction) {
            return Ok(Some(JpegRefusal::Reduction));
        }
        if shape.is_progressive {
            return self.decode_progressive(image, shape, buffers, sink);
        }
        let Some(frame) = Frame::parse(bytes, shape) else { return Ok(Some(JpegRefusal::Header)) };
        let kernels = self.kernels;
        self.state()?;
        let state = &mut self.state[0];
        let RowIndexing { outcome, writer, .. } = &mut self.row_index;
        let [across, down] = shape.units();
        let components = if shape.is_gray { 1 } else { 3 };
        let starts = match &task {
            RowIndexTask::Use(index) => index.starts(down, components),
            RowIndexTask::Make(file) => {
                writer.begin(*file, down, components)?;
                None
            }
            RowIndexTask::None => None,
        };
        let part = DecodedPart::new(&shape, window, reduction, kernels.step());
        let planes = grown(&mut buffers.scratch, part.plane_bytes())?;
        let group = part.row_bytes(layout) * most_rows(window.height) as usize;
        let group = grown(&mut buffers.rows, group)?;
        state.set_quantization(&shape, frame.components.each_ref().map(|it| &it.quantization));
        let places = state.tables(&frame);
        let DecoderState { clean, dc_tables, ac_tables, blocks, sums, quantization, .. } = state;
        let mut painter = Painter {
            next: window.y,
            kernels,
            part: part.clone(),
            layout,
            quantization,
            planes,
            sums,
            group,
            sink,
        };
        let (components, unit) = shape.blocks();
        let blocks_coding = components.map(|component| {
            let component = usize::from(component);
            let [dc, ac] = places[component];
            BlockCoding { component, dc: &dc_tables[dc], ac: &ac_tables[ac] }
        });
        let input = Input::new(frame.scan, clean);
        let mut scan = Scan {
            reader: Reader { input, predictions: [0; 3], blocks },
            coding: Coding { blocks: blocks_coding, unit },
            kernels,
            units: [across, down],
            interval: frame.restart_interval,
            left: frame.restart_interval,
            restarts: 0,
        };
        if let RowIndexTask::Use(_) = task {
            let done = starts.and_then(|starts| scan.run_with_index(&part, &mut painter, starts));
            *outcome = if done.is_some() { Outcome::Used } else { Outcome::Rejected };
            let problem = "the row index does not match the JPEG";
            return done.map(|()| None).ok_or_else(|| DataError::new(Reason::Corrupt, problem));
        }
        let mut made = matches!(task, RowIndexTask::Make(_)).then_some(writer);
        let is_intact = scan.run(&part, &mut painter, made.as_deref_mut()).is_some();
        if is_intact && made.is_some_and(|writer| scan.complete(&part, writer).is_some()) {
            *outcome = Outcome::Made;
        }
        Ok((!is_intact).then_some(JpegRefusal::Data))
    }

    /// Returns the memory that is kept between images, and creates it for the first image.
    fn state(&mut self) -> Result<&mut DecoderState, DataError> {
        if self.state.is_empty() {
            reserve::reserve(&mut self.state, 1)?;
            self.state.push(DecoderState::new());
        }
        Ok(&mut self.state[0])
    }
}

impl DecoderState {
    fn new() -> Self {
        let code = Code::EMPTY;
        Self {
            clean: [0; HELD + PADDING],
            dc_tables: std::array::from_fn(|_| DcTable::new(&code)),
            ac_tables: std::array::from_fn(|_| AcTable::new(&code)),
            next: [0; 2],
            blocks: Blocks::EMPTY,
            sums: NO_SUMS,
            quantization: [[[0; 32]; 8]; 3],
            progressive: progressive::Tables::new(),
        }
    }

    /// Arranges the quantization steps of the components side by side, in the order in which blocks
    /// are transformed together.
    fn set_quantization(&mut self, shape: &Shape, tables: [&[u16; 64]; 3]) {
        let of = |number: usize, block: usize| match shape.sampling {
            [1, 1] => number,
            _ if number > 0 => [1, 1, 2, 2][block],
            _ => number,
        };
        for (number, rows) in self.quantization.iter_mut().enumerate() {
            for (row, steps) in rows.iter_mut().enumerate() {
                for (block, steps) in steps.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    *steps = tables[of(number, block)].as_chunks().0[row];
                }
            }
        }
    }

    /// Returns the positions of the DC and AC table of each component. Builds tables that are not
    /// kept yet.
    fn tables(&mut self, frame: &Frame<'_>) -> [[usize; 2]; 3] {
        let mut places = [[TABLES; 3]; 2];
        for (at, Component { dc, ac, .. }) in frame.components.iter().enumerate() {
            let found = self.dc_tables.iter().position(|table| table.code() == dc);
            places[0][at] = found.unwrap_or_else(|| {
                let place = free(&mut self.next[0], &places[0]);
                self.dc_tables[place].renew(dc);
                place
            });
            let found = self.ac_tables.iter().position(|table| table.codes.code() == ac);
            let is_small = frame.scan.len() < SMALL;
            let place = found.unwrap_or_else(|| free(&mut self.next[1], &places[1]));
            let (table, is_used) = (&mut self.ac_tables[place], places[1][..at].contains(&place));
            if found.is_none() {
                table.renew(ac, is_small);
            } else if table.is_simple() && !is_used {
                table.renew(ac, false);
            }
            places[1][at] = place;
        }
        std::array::from_fn(|component| [places[0][component], places[1][component]])
    }
}

/// Returns the next position whose table the image does not use.
fn free(next: &mut usize, used: &[usize; 3]) -> usize {
    loop {
        *next = (*next + 1) % TABLES;
        if !used.contains(next) {
            return *next;
        }
    }
}
