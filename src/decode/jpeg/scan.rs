//! Way through the coded data of an image: which units are decoded, parsed or skipped, and restart markers.

use super::blocks::{Coding, Lane, MOST_BLOCKS, MOST_BYTES, MOST_LANES};
use super::kernels::Kernels;
use super::rows::{Painter, Part};
use crate::decode::row_index::{RowIndexWriter, RowStart, RowStarts};

/// Marker at the end of an image.
const EOI: u8 = 0xd9;

/// Way through the coded data.
pub struct Scan<'a> {
    /// Readers of a row and, with an index, of the next one.
    pub lanes: [Lane<'a>; MOST_LANES],
    pub coding: Coding<'a>,
    pub kernels: Kernels,
    /// Units in a row, and rows of units.
    pub units: [usize; 2],
    /// Units between restart markers, or 0.
    pub interval: usize,
    /// Units before the next restart marker.
    pub left: usize,
    pub restarts: usize,
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
                made.push(self.lanes[0].start());
            }
            if (part.rows[0]..part.rows[1]).contains(&row) {
                self.parse(0, part.columns[0])?;
                self.decode_columns(part, painter)?;
                self.parse(0, across - part.columns[1])?;
                self.lanes[0].is_sane().then_some(())?;
                painter.paint(row, 1);
            } else {
                self.parse(0, across)?;
                self.lanes[0].is_sane().then_some(())?;
            }
        }
        (!part.is_at_bottom || self.lanes[0].input.marker()? == EOI).then_some(())
    }

    /// Parses the rows after those of the part, to complete an index. `None` at damage.
    pub fn complete(&mut self, part: &Part, made: &mut RowIndexWriter) -> Option<()> {
        let [across, down] = self.units;
        for _ in part.read_rows..down {
            made.push(self.lanes[0].start());
            self.parse(0, across)?;
            self.lanes[0].is_sane().then_some(())?;
        }
        (self.lanes[0].input.marker()? == EOI).then(|| made.end())
    }

    /// Decodes a part of the image, two rows at once, going where the index says that they begin. `None` where that does not
    /// fit.
    pub fn run_with_index(
        &mut self,
        part: &Part,
        painter: &mut Painter<'_>,
        mut starts: RowStarts<'_>,
    ) -> Option<()> {
        let [first, end] = part.rows;
        let [across, down] = self.units;
        // The first row has no entry.
        let mut start = match first.checked_sub(1) {
            None => RowStart::default(),
            Some(skipped) => starts.nth(skipped)?,
        };
        let mut row = first;
        while row < end {
            // Rows with restart markers are decoded one by one.
            let count = if self.interval == 0 { MOST_LANES.min(end - row) } else { 1 };
            let mut next = [None; MOST_LANES];
            for (lane, next) in next[..count].iter_mut().enumerate() {
                self.go_to(lane, row + lane, start);
                self.parse(lane, part.columns[0])?;
                if row + lane + 1 < down {
                    start = starts.next()?;
                    *next = Some(start);
                }
            }
            match count {
                1 => self.decode_columns(part, painter)?,
                _ => self.decode_pair(part, painter)?,
            }
            for (lane, next) in self.lanes[..count].iter().zip(next) {
                let here = lane.start();
                let fits = next.is_none_or(|next| match part.columns[1] == across {
                    true => here == next,
                    false => here.position <= next.position,
                });
                (fits && lane.is_sane()).then_some(())?;
            }
            painter.paint(row, count);
            row += count;
        }
        Some(())
    }

    /// Goes to the start of a row.
    fn go_to(&mut self, lane: usize, row: usize, start: RowStart) {
        let lane = &mut self.lanes[lane];
        lane.input.begin((start.position / 8) as usize, start.position % 8);
        lane.predictions = start.predictions;
        let done = row * self.units[0];
        if let Some(rest) = done.checked_rem(self.interval).filter(|_| done > 0) {
            // A marker between rows is still to be read.
            self.left = if rest == 0 { 0 } else { self.interval - rest };
            self.restarts = (done - 1) / self.interval;
        }
    }

    /// Decodes the columns of the part in one row.
    fn decode_columns(&mut self, part: &Part, painter: &mut Painter<'_>) -> Option<()> {
        let [from, to] = part.columns;
        for column in (from..to).step_by(part.together) {
            self.decode(part.together.min(to - column))?;
            painter.transform(column - from, 0, self.lanes[0].blocks).then_some(())?;
        }
        Some(())
    }

    /// Decodes the columns of the part in two rows, which have no restart markers.
    fn decode_pair(&mut self, part: &Part, painter: &mut Painter<'_>) -> Option<()> {
        let [from, to] = part.columns;
        let Self { lanes, coding, kernels, .. } = self;
        let unit = coding.unit;
        let begin = |lane: &mut Lane<'_>, column: usize| {
            lane.clear();
            lane.end = part.together.min(to - column) * unit;
            lane.input.ensure(MOST_BYTES);
        };
        let mut columns = [from; MOST_LANES];
        lanes.iter_mut().for_each(|lane| begin(lane, from));
        while columns != [to; MOST_LANES] {
            match columns.map(|column| column < to) {
                [true, true] => kernels.decode_pair(coding, lanes)?,
                [is_first, _] => kernels.decode(coding, &mut lanes[usize::from(!is_first)])?,
            }
            for (at, (lane, column)) in lanes.iter_mut().zip(&mut columns).enumerate() {
                if *column < to && lane.at == lane.end {
                    painter.transform(*column - from, at, lane.blocks).then_some(())?;
                    *column = to.min(*column + part.together);
                    if *column < to {
                        begin(lane, *column);
                    }
                }
            }
        }
        Some(())
    }

    /// Passes units by.
    fn parse(&mut self, lane: usize, units: usize) -> Option<()> {
        let most = MOST_BLOCKS / self.coding.unit;
        let mut done = 0;
        while done < units {
            let now = self.restarted(lane, most.min(units - done))?;
            self.kernels.parse(&mut self.coding, now, &mut self.lanes[lane])?;
            done += now;
        }
        Some(())
    }

    /// Decodes units that are decoded together.
    fn decode(&mut self, units: usize) -> Option<()> {
        self.lanes[0].clear();
        let mut done = 0;
        while done < units {
            let now = self.restarted(0, units - done)?;
            let lane = &mut self.lanes[0];
            lane.end += now * self.coding.unit;
            self.kernels.decode(&mut self.coding, lane)?;
            done += now;
        }
        Some(())
    }

    /// Reads a restart marker if one must be here. Returns how many units, of those that are wanted, come before the next.
    fn restarted(&mut self, lane: usize, units: usize) -> Option<usize> {
        let mut now = units;
        let lane = &mut self.lanes[lane];
        if self.interval > 0 {
            if self.left == 0 {
                lane.input.restart(self.restarts)?;
                self.restarts += 1;
                self.left = self.interval;
                lane.predictions = [0; 3];
            }
            now = units.min(self.left);
            self.left -= now;
        }
        lane.input.ensure(MOST_BYTES);
        Some(now)
    }
}
