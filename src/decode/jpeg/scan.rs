//! Coded data of a sequential image: which MCUs are decoded, parsed or skipped, and restart
//! markers.

use super::blocks::{Coding, MOST_BLOCKS, MOST_BYTES, Reader};
use super::kernels::Kernels;
use super::rows::{DecodedPart, Painter};
use crate::decode::row_index::{RowIndexWriter, RowStart, RowStarts};

/// Marker at the end of an image.
const EOI: u8 = 0xd9;

/// Reader of the coded data of a sequential image.
pub struct Scan<'a> {
    pub reader: Reader<'a>,
    pub coding: Coding<'a>,
    pub kernels: Kernels,
    /// Number of MCUs in a row, and number of rows of MCUs.
    pub units: [usize; 2],
    /// Number of MCUs between restart markers, or 0 without restart markers.
    pub interval: usize,
    /// Number of MCUs before the next restart marker.
    pub left: usize,
    pub restarts: usize,
}

impl Scan<'_> {
    /// Decodes a part of the image and records in `made` where each row begins. Returns `None` for
    /// corrupt data.
    pub fn run(
        &mut self,
        part: &DecodedPart,
        painter: &mut Painter<'_>,
        mut made: Option<&mut RowIndexWriter>,
    ) -> Option<()> {
        let across = self.units[0];
        for row in 0..part.read_rows {
            if let (1.., Some(made)) = (row, &mut made) {
                made.push(self.reader.start());
            }
            if (part.rows[0]..part.rows[1]).contains(&row) {
                self.parse(part.columns[0])?;
                self.decode_columns(part, painter)?;
                self.parse(across - part.columns[1])?;
                self.reader.is_sane().then_some(())?;
                painter.paint(row);
            } else {
                self.parse(across)?;
                self.reader.is_sane().then_some(())?;
            }
        }
        (!part.is_at_bottom || self.reader.input.marker()? == EOI).then_some(())
    }

    /// Parses the rows below the part, which completes a row index. Returns `None` for corrupt
    /// data.
    pub fn complete(&mut self, part: &DecodedPart, made: &mut RowIndexWriter) -> Option<()> {
        let [across, down] = self.units;
        for _ in part.read_rows..down {
            made.push(self.reader.start());
            self.parse(across)?;
            self.reader.is_sane().then_some(())?;
        }
        (self.reader.input.marker()? == EOI).then(|| made.end())
    }

    /// Decodes a part of the image and starts each row at the position in the row index. Returns
    /// `None` if the index does not match the data.
    pub fn run_with_index(
        &mut self,
        part: &DecodedPart,
        painter: &mut Painter<'_>,
        mut starts: RowStarts<'_>,
    ) -> Option<()> {
        let [first, end] = part.rows;
        let [across, down] = self.units;
        // The row index has no entry for the first row, because its start is known.
        let mut start = match first.checked_sub(1) {
            None => RowStart::default(),
            Some(skipped) => starts.nth(skipped)?,
        };
        for row in first..end {
            let next = if row + 1 < down { Some(starts.next()?) } else { None };
            // Byte stuffing is not removed from the data after this row, because that data is not
            // needed.
            let row_end = next.map_or(u64::MAX, |next| next.position);
            self.reader.input.limit((row_end / 8) as usize);
            self.go_to(row, start);
            self.parse(part.columns[0])?;
            self.decode_columns(part, painter)?;
            let is_last = row + 1 == end;
            if is_last {
                // Parsing the rest of the row detects a row index that belongs to another image.
                self.parse(across - part.columns[1])?;
            }
            self.reader.is_sane().then_some(())?;
            let here = self.reader.start();
            let fits = match next {
                Some(next) if is_last || part.columns[1] == across => here == next,
                Some(next) => here.position <= next.position,
                None => self.reader.input.marker()? == EOI,
            };
            fits.then_some(())?;
            start = next.unwrap_or_default();
            painter.paint(row);
        }
        Some(())
    }

    /// Moves the reader to the start of a row.
    fn go_to(&mut self, row: usize, start: RowStart) {
        self.reader.input.begin((start.position / 8) as usize, start.position % 8);
        self.reader.predictions = start.predictions;
        let done = row * self.units[0];
        if let Some(rest) = done.checked_rem(self.interval).filter(|_| done > 0) {
            // If `rest` is 0, the restart marker between the rows has not been read yet.
            self.left = if rest == 0 { 0 } else { self.interval - rest };
            self.restarts = (done - 1) / self.interval;
        }
    }

    /// Decodes the columns of the part in one row of MCUs.
    fn decode_columns(&mut self, part: &DecodedPart, painter: &mut Painter<'_>) -> Option<()> {
        let [from, to] = part.columns;
        for column in (from..to).step_by(part.together) {
            self.reader.blocks.clear(part.together * self.coding.unit);
            self.decode(part.together.min(to - column))?;
            painter.transform(column - from, self.reader.blocks).then_some(())?;
        }
        Some(())
    }

    /// Parses MCUs without storing coefficients.
    fn parse(&mut self, units: usize) -> Option<()> {
        let most = MOST_BLOCKS / self.coding.unit;
        let mut done = 0;
        while done < units {
            let now = self.restarted(most.min(units - done))?;
            self.kernels.parse(&self.coding, now, &mut self.reader)?;
            done += now;
        }
        Some(())
    }

    /// Decodes MCUs into the blocks that are transformed together.
    fn decode(&mut self, units: usize) -> Option<()> {
        let unit = self.coding.unit;
        let mut done = 0;
        while done < units {
            let now = self.restarted(units - done)?;
            let blocks = done * unit..(done + now) * unit;
            self.kernels.decode(&self.coding, blocks, &mut self.reader)?;
            done += now;
        }
        Some(())
    }

    /// Reads a restart marker if one is due. Returns how many of the next `units` MCUs precede the
    /// following marker.
    fn restarted(&mut self, units: usize) -> Option<usize> {
        let mut now = units;
        if self.interval > 0 {
            if self.left == 0 {
                self.reader.input.restart(self.restarts)?;
                self.restarts += 1;
                self.left = self.interval;
                self.reader.predictions = [0; 3];
            }
            now = units.min(self.left);
            self.left -= now;
        }
        self.reader.input.ensure(MOST_BYTES);
        Some(now)
    }
}
