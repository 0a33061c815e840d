//! Our own decoder of JPEG: Huffman coding of 8 bits, sequential in one scan or progressive, gray or YCbCr. Pixels equal
//! libjpeg-turbo's.
//!
//! Where coefficients are so large that sums do not fit into 16 bits, which happens in no intact image, they equal those of
//! libjpeg-turbo's vector code; its C code has others.
//!
//! At anything else, and at anything unusual or damaged, libjpeg-turbo decodes the image from the start, and rows that
//! were passed on already are left out. So damage is judged and worded in one way.
//!
//! The path of an image: `frame` reads the segments, `bits` removes stuffing, `huffman` and `blocks` decode
//! coefficients, `kernels` transforms them and makes pixels, `rows` passes on the rows of the window. `progressive` decodes
//! all scans of a progressive image first, with `bands`.

mod bands;
mod bits;
mod blocks;
mod frame;
mod huffman;
mod kernels;
mod progressive;
#[cfg(test)]
mod reference;
mod rows;
#[cfg(test)]
mod tests;

use bits::{Clean, HELD, Input, PADDING};
use blocks::{Blocks, Coding, MOST_BLOCKS, MOST_BYTES};
use frame::{Component, Frame, Shape};
use huffman::{AcTable, Code, DcTable};
use kernels::{Kernels, NO_SUMS, Quantization, Sums};
use rows::{Painter, Part};

use super::jpeg_choice::{JpegBy, JpegRefusal};
use super::libjpeg::LibjpegTurbo;
use super::rows::{grown, most_rows};
use super::{
    Buffers, DecodeMemory, EncodedImage, HostDecoder, RowLayout, RowSink, Rows, unsupported,
};
use crate::error::{DataError, Tolerated, reserve};
use crate::header::Header;

/// Name of the decoder.
pub(super) const NAME: &str = "feedwater";

/// Tables of each kind that are kept. An image has at most three.
const TABLES: usize = 4;

/// Why our own decoder does not decode a JPEG, as far as the header tells.
pub fn refusal(header: &Header) -> Option<JpegRefusal> {
    Shape::of(header).err()
}

/// Our own decoder, with libjpeg-turbo for what it does not decode.
#[derive(Debug)]
pub(super) struct Feedwater {
    kernels: Kernels,
    /// Whether libjpeg-turbo decodes all images, because it is faster on this CPU.
    yields: bool,
    /// Made for the first image.
    state: Vec<State>,
    refusal: Option<JpegRefusal>,
    libjpeg: LibjpegTurbo,
}

impl Default for Feedwater {
    fn default() -> Self {
        let kernels = Kernels::here();
        let yields = !kernels.are_fast();
        Self { kernels, yields, state: Vec::new(), refusal: None, libjpeg: LibjpegTurbo }
    }
}

/// What is kept between images.
#[derive(Debug)]
struct State {
    clean: Clean,
    dc_tables: [DcTable; TABLES],
    ac_tables: [AcTable; TABLES],
    /// Next table of each kind that is replaced.
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
        let part = Part::new(&shape, header.size.window());
        let row = part.row_bytes(RowLayout::Rgb) as u64;
        // Both free the coefficients of a progressive image with it, and libjpeg-turbo begins after that.
        let coefficients = if shape.is_progressive { progressive::memory_bytes(&shape) } else { 0 };
        DecodeMemory {
            scratch: part.plane_bytes() as u64,
            rows: libjpeg.rows.max(row * most_rows(header.size.height)),
            library: libjpeg.library.max(coefficients) + STATE_BYTES,
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
        let refusal = self.decode_own(image, buffers, &mut |rows: Rows<'_>| {
            next = rows.first + rows.count;
            sink(rows);
        })?;
        self.refusal = refusal;
        let Some(refusal) = refusal else {
            return Ok(image.header.jpeg.as_ref().and_then(|jpeg| jpeg.tolerated));
        };
        if !image.may_fall_back {
            let name = JpegBy::Refused(refusal).name();
            let problem = format!("decode.jpeg = \"feedwater\" leaves this JPEG to {name}");
            return Err(unsupported(problem));
        }
        self.libjpeg.decode(image, buffers, &mut |rows: Rows<'_>| {
            if rows.first >= next {
                sink(rows);
            }
        })
    }

    fn jpeg_by(&self) -> Option<JpegBy> {
        Some(self.refusal.map_or(JpegBy::Feedwater, JpegBy::Refused))
    }

    fn capacity_bytes(&self) -> usize {
        self.state.capacity() * size_of::<State>()
    }
}

impl Feedwater {
    /// Instructions that this CPU has, by name.
    pub fn instructions() -> Vec<&'static str> {
        Kernels::all().into_iter().map(|(name, _)| name).collect()
    }

    /// Uses no more than these instructions. `None` if this CPU does not have them.
    pub fn set_instructions(&mut self, name: &str) -> Option<()> {
        let found = Kernels::all().into_iter().find(|(it, _)| *it == name);
        (self.kernels, self.yields) = (found?.1, false);
        Some(())
    }
}

/// Bytes of coded data for which tables of several symbols per entry do not pay, unless other images have the same tables.
const SMALL: usize = 8 << 10;

/// Memory of the state.
const STATE_BYTES: u64 = size_of::<State>() as u64;

impl Feedwater {
    /// Decodes the window unless there is something that libjpeg-turbo should judge.
    fn decode_own(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<JpegRefusal>, DataError> {
        let EncodedImage { bytes, header, window, reduction, layout, .. } = *image;
        if reduction != 1 {
            return Ok(Some(JpegRefusal::Reduction));
        }
        let shape = match Shape::of(header) {
            Ok(shape) => shape,
            Err(refusal) => return Ok(Some(refusal)),
        };
        if shape.is_progressive {
            return self.decode_progressive(image, shape, buffers, sink);
        }
        let Some(frame) = Frame::parse(bytes, shape) else { return Ok(Some(JpegRefusal::Header)) };
        let kernels = self.kernels;
        let state = self.state()?;
        let part = Part::new(&shape, window);
        let planes = grown(&mut buffers.scratch, part.plane_bytes())?;
        let group = part.row_bytes(layout) * most_rows(window.height) as usize;
        let group = grown(&mut buffers.rows, group)?;
        state.set_quantization(&shape, frame.components.each_ref().map(|it| &it.quantization));
        let [dc, ac] = state.tables(&frame);
        let State { clean, dc_tables, ac_tables, blocks, sums, quantization, .. } = state;
        let mut predictions = [0; 3];
        let painter = Painter {
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
        let mut scan = Scan {
            input: Input::new(frame.scan, clean),
            coding: Coding {
                blocks: shape.blocks(),
                dc,
                ac,
                dc_tables,
                ac_tables,
                predictions: &mut predictions,
            },
            kernels,
            interval: frame.restart_interval,
            left: frame.restart_interval,
            restarts: 0,
            blocks,
        };
        let is_whole = window.bottom() == shape.size.height;
        let is_intact = scan.run(&part, shape.units()[0], is_whole, painter).is_some();
        Ok((!is_intact).then_some(JpegRefusal::Data))
    }

    /// What is kept between images.
    fn state(&mut self) -> Result<&mut State, DataError> {
        if self.state.is_empty() {
            reserve::reserve(&mut self.state, 1)?;
            self.state.push(State::new());
        }
        Ok(&mut self.state[0])
    }
}

impl State {
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

    /// Puts the steps of the components side by side as blocks are transformed together.
    fn set_quantization(&mut self, shape: &Shape, tables: [&[u16; 64]; 3]) {
        let of = |number: usize, block: usize| match shape.sampling[0] {
            2 if number > 0 => [1, 1, 2, 2][block],
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

    /// Places of the tables of the components. Those that are not kept yet are made.
    fn tables(&mut self, frame: &Frame<'_>) -> [[usize; 3]; 2] {
        let mut places = [[TABLES; 3]; 2];
        for (at, Component { dc, ac, .. }) in frame.components.iter().enumerate() {
            let found = self.dc_tables.iter().position(|table| table.code() == dc);
            places[0][at] = found.unwrap_or_else(|| {
                let place = free(&mut self.next[0], &places[0]);
                self.dc_tables[place] = DcTable::new(dc);
                place
            });
            let found = self.ac_tables.iter().position(|table| table.code() == ac);
            let is_new = found.is_none();
            let place = found.unwrap_or_else(|| free(&mut self.next[1], &places[1]));
            places[1][at] = place;
            let (table, is_used) = (&mut self.ac_tables[place], places[1][..at].contains(&place));
            if is_new && frame.scan.len() < SMALL {
                table.renew_simple(ac);
            } else if is_new || table.is_simple() && !is_used {
                table.renew(ac);
            }
        }
        places
    }
}

/// Next place that the image does not use.
fn free(next: &mut usize, used: &[usize; 3]) -> usize {
    loop {
        *next = (*next + 1) % TABLES;
        if !used.contains(next) {
            return *next;
        }
    }
}

/// Way through the coded data.
struct Scan<'a> {
    input: Input<'a>,
    coding: Coding<'a>,
    kernels: Kernels,
    /// Units between restart markers, or 0.
    interval: usize,
    /// Units before the next restart marker.
    left: usize,
    restarts: usize,
    blocks: &'a mut Blocks,
}

impl Scan<'_> {
    /// Decodes a part of the image. `None` at damage.
    fn run(
        &mut self,
        part: &Part,
        across: usize,
        is_whole: bool,
        mut painter: Painter<'_>,
    ) -> Option<()> {
        for row in 0..part.read_rows {
            let is_wanted = (part.rows[0]..part.rows[1]).contains(&row);
            let [from, to] = if is_wanted { part.columns } else { [across; 2] };
            self.parse(from)?;
            for column in (from..to).step_by(part.together) {
                self.decode(part.together.min(to - column))?;
                painter.transform(column - from, self.blocks).then_some(())?;
            }
            self.parse(across - to)?;
            // libjpeg judges data that end too early, and DC coefficients beyond all bounds.
            let is_sane = self.coding.predictions.iter().all(|it| it.unsigned_abs() < 1 << 30);
            (is_sane && self.input.is_inside()).then_some(())?;
            if is_wanted {
                painter.paint(row);
            }
        }
        const EOI: u8 = 0xd9;
        (!is_whole || self.input.marker()? == EOI).then_some(())
    }

    /// Passes units by.
    fn parse(&mut self, units: usize) -> Option<()> {
        let most = MOST_BLOCKS / self.coding.blocks.len();
        let mut done = 0;
        while done < units {
            let now = self.restarted(most.min(units - done))?;
            self.kernels.parse(&mut self.coding, now, &mut self.input)?;
            done += now;
        }
        Some(())
    }

    /// Decodes units that are decoded together.
    fn decode(&mut self, units: usize) -> Option<()> {
        self.blocks.clear();
        let mut done = 0;
        while done < units {
            let now = self.restarted(units - done)?;
            let first = done * self.coding.blocks.len();
            self.kernels.decode(&mut self.coding, now, &mut self.input, self.blocks, first)?;
            done += now;
        }
        Some(())
    }

    /// Reads a restart marker if one must be here. Returns how many units, of those that are wanted, come before the next.
    fn restarted(&mut self, units: usize) -> Option<usize> {
        let mut now = units;
        if self.interval > 0 {
            if self.left == 0 {
                self.input.restart(self.restarts)?;
                self.restarts += 1;
                self.left = self.interval;
                *self.coding.predictions = [0; 3];
            }
            now = units.min(self.left);
            self.left -= now;
        }
        self.input.ensure(MOST_BYTES);
        Some(now)
    }
}
