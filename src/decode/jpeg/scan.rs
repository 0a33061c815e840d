//! Way through the coded data of an image: which units are decoded, parsed or skipped, and restart markers.

use super::bits::Input;
use super::blocks::{Blocks, Coding, MOST_BLOCKS, MOST_BYTES};
use super::kernels::Kernels;
use super::rows::{Painter, Part};
use crate::decode::row_index::{RowIndexWriter, RowStart, RowStarts};

/// Marker at the end of an image.
const EOI: u8 = 0xd9;

/// Way through the coded data.
pub struct Scan<'a> {
    pub input: Input<'a>,
    pub coding: Coding<'a>,
    pub kernels: Kernels,
    /// Units in a row, and rows of units.
    pub units: [usize; 2],
    /// Units between restart markers, or 0.
    pub interval: usize,
    /// Units before the next restart marker.
    pub left: usize,
    pub restarts: usize,
    pub blocks: &'a mut Blocks,
}

impl Scan<'_> {
    /// Decodes a part of the image, and notes in `made` where rows begin. `None` at damage.
    pub fn run(
        &mut self,
        part: &Part,
        painter: &mut Painter<'_>,
        mut made: Option<&mut RowIndexWriter>,
    ) -> Option<()> {
        let across = self.units[0];
        for row in 0..part.read_rows {
            if let (1.., Some(made)) = (row, &mut made) {
                made.push(self.start());
            }
            if (part.rows[0]..part.rows[1]).contains(&row) {
                self.parse(part.columns[0])?;
                self.decode_columns(part, painter)?;
                self.parse(across - part.columns[1])?;
                self.is_sane().then_some(())?;
                painter.paint(row);
            } else {
                self.parse(across)?;
                self.is_sane().then_some(())?;
            }
        }
        (!part.is_at_bottom || self.input.marker()? == EOI).then_some(())
    }

    /// Parses the rows after those of the part, to complete an index. `None` at damage.
    pub fn complete(&mut self, part: &Part, made: &mut RowIndexWriter) -> Option<()> {
        let [across, down] = self.units;
        for _ in part.read_rows..down {
            made.push(self.start());
            self.parse(across)?;
            self.is_sane().then_some(())?;
        }
        (self.input.marker()? == EOI).then(|| made.end())
    }

    /// Decodes a part of the image, going where the index says that its rows begin. `None` where that does not fit.
    pub fn run_with_index(
        &mut self,
        part: &Part,
        painter: &mut Painter<'_>,
        mut starts: RowStarts<'_>,
    ) -> Option<()> {
        let is_whole_row = part.columns[1] == self.units[0];
        // The first row has no entry.
        starts.by_ref().take(part.rows[0].saturating_sub(1)).count();
        for row in part.rows[0]..part.rows[1] {
            if row > 0 {
                let start = starts.next()?;
                let here = self.start();
                if row > part.rows[0] && is_whole_row {
                    (here == start).then_some(())?;
                } else {
                    (here.position <= start.position).then_some(())?;
                    self.go_to(row, start);
                }
            }
            self.parse(part.columns[0])?;
            self.decode_columns(part, painter)?;
            self.is_sane().then_some(())?;
            painter.paint(row);
        }
        Some(())
    }

    /// Decodes the columns of the part.
    fn decode_columns(&mut self, part: &Part, painter: &mut Painter<'_>) -> Option<()> {
        for column in (part.columns[0]..part.columns[1]).step_by(part.together) {
            self.decode(part.together.min(part.columns[1] - column))?;
            painter.transform(column - part.columns[0], self.blocks).then_some(())?;
        }
        Some(())
    }

    /// Where the next row begins.
    fn start(&self) -> RowStart {
        RowStart { position: self.input.position(), predictions: *self.coding.predictions }
    }

    /// Goes to the start of a row, which is not the first.
    fn go_to(&mut self, row: usize, start: RowStart) {
        self.input.begin((start.position / 8) as usize, start.position % 8);
        *self.coding.predictions = start.predictions;
        let done = row * self.units[0];
        if let Some(rest) = done.checked_rem(self.interval) {
            // A marker between rows is still to be read.
            self.left = if rest == 0 { 0 } else { self.interval - rest };
            self.restarts = (done - 1) / self.interval;
        }
    }

    /// Whether libjpeg would not judge what was read so far: data that end too early, and DC coefficients beyond all bounds.
    fn is_sane(&self) -> bool {
        let is_inside = |prediction: &i32| prediction.unsigned_abs() < 1 << 30;
        self.coding.predictions.iter().all(is_inside) && self.input.is_inside()
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
