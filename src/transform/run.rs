//! Pointwise actions on rows. All actions are applied to a row while it is in the cache.
//!
//! The input is a decoder or an image, and its rows arrive in any order. Pointwise actions change
//! positions only by crops and flips. So the position of an input pixel in the result is its
//! position in the input, optionally mirrored, plus an offset.

use std::ops::Range;

use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::op::kind::statistics::Made;
use crate::op::kind::table::{self, Bytes, Floats};
use crate::op::kind::{Change, Executor, Move, PixelKind, Pointwise, RowPosition};
use crate::op::wide::Instructions;
use crate::op::wide::bytes::Tables;
use crate::op::{Actions, ParamBytes};
use crate::tensor::CHANNELS;

/// Consecutive pointwise actions of a sample. The next sample reuses the memory.
#[derive(Default)]
pub struct Run {
    columns: Axis,
    rows: Axis,
    bytes: Vec<Stage>,
    /// Stages after the table of floats, or all stages if the input has floats.
    floats: Vec<Stage>,
    tables: Vec<Tables>,
    /// Table of floats, if the actions contain one, composed with the table of bytes before it.
    values: Option<Floats>,
    line: Vec<u8>,
    float_line: Vec<f32>,
}

/// One step that changes a row.
enum Stage {
    /// Look-up table, as index into `tables`.
    Table(usize),
    /// Function of pixels. `columns` has the position of the line's first column in the action's
    /// image and the direction of the columns, 1 or -1. `rows` has the position in the action's
    /// image of row 0 of the run's input and the direction of the rows.
    Pixel { kind: &'static PixelKind, params: ParamBytes, columns: (i32, i32), rows: (i32, i32) },
    /// Fills everything outside of these columns of the line and these rows of the run's input.
    Fill { columns: Range<usize>, rows: Range<i64>, fill: [f32; CHANNELS] },
}

/// Mapping of positions along one axis.
#[derive(Clone, Copy, Debug, Default)]
struct Axis {
    /// Position to which the actions so far move position 0 of the run's input.
    offset: i64,
    /// Whether positions are mirrored.
    mirrored: bool,
    /// First position of the run's input that the result needs. It may lie outside the input.
    first: i64,
    /// Number of positions of the run's input that the result needs.
    len: usize,
}

/// One row of the result.
pub struct Row<'a> {
    /// Position of the row in the result.
    pub y: u32,
    /// Whether the pixels are in reverse order.
    pub mirrored: bool,
    /// The pixels.
    pub pixels: Pixels<'a>,
}

/// Pixels of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pixels<'a> {
    /// Bytes of red, green and blue.
    Bytes(&'a [u8]),
    /// Floats of red, green and blue.
    Floats(&'a [f32]),
}

impl Run {
    /// Begins a run of the pointwise actions `which` on the rows of an input with the window
    /// `source`. `is_floats` states whether the input has floats. With `to_floats`, a table of
    /// floats among the actions converts the rows to floats. Without it, rows stay bytes if no
    /// action follows the table, and the caller applies the table ([`values`](Self::values)).
    /// `made` is the table of the first action if that action needs statistics of the image.
    pub fn begin(
        &mut self,
        actions: &Actions,
        which: Range<usize>,
        source: Roi,
        is_floats: bool,
        to_floats: bool,
        made: Option<&Made>,
    ) -> Result<(), DataError> {
        let last = which.clone().next_back();
        let output = last.map_or(source, |last| actions.list[last].output);
        let (mut columns, mut rows) = (Axis::default(), Axis::default());
        for action in &actions.list[which.clone()] {
            if let Executor::Pointwise(Pointwise { moves, .. }) = action.params.executor() {
                columns.pass(moves, true);
                rows.pass(moves, false);
            }
        }
        columns.begin(output.x, output.width);
        rows.begin(output.y, output.height);
        self.bytes.clear();
        self.floats.clear();
        self.tables.clear();
        self.values = None;
        self.compile(actions, which, is_floats, (columns, rows), made);
        (self.columns, self.rows) = (columns, rows);
        let values = CHANNELS * columns.len;
        let as_floats =
            is_floats || self.values.is_some() && (to_floats || !self.floats.is_empty());
        let (x, y) = (i64::from(source.x), i64::from(source.y));
        let covers = x <= columns.first
            && columns.first + columns.len as i64 <= x + i64::from(source.width)
            && y <= rows.first
            && rows.first + rows.len as i64 <= y + i64::from(source.height);
        // Rows that no stage changes are passed on without a copy.
        let passed_on = is_floats || self.bytes.is_empty() && covers;
        reserve::renew(&mut self.line, if passed_on { 0 } else { values })?;
        reserve::renew(&mut self.float_line, if as_floats { values } else { 0 })
    }

    /// Translates the actions into stages. `columns` and `rows` are the positions of the run's
    /// input that the result needs.
    fn compile(
        &mut self,
        actions: &Actions,
        which: Range<usize>,
        mut is_floats: bool,
        (columns, rows): (Axis, Axis),
        made: Option<&Made>,
    ) {
        let mut across = Axis { offset: 0, mirrored: false, ..columns };
        let mut down = Axis { offset: 0, mirrored: false, ..rows };
        for place in which {
            let Pointwise { moves, change } = match actions.list[place].params.executor() {
                Executor::Pointwise(pointwise) => pointwise,
                Executor::Statistics(_) => {
                    match made {
                        Some(Made::Bytes(table)) => self.push_table(table),
                        Some(Made::Floats(table)) => {
                            self.push_values(table);
                            is_floats = true;
                        }
                        None => unreachable!("if an action needs statistics, `made` is its table"),
                    }
                    continue;
                }
                _ => unreachable!("not pointwise"),
            };
            match change {
                Change::None => {}
                Change::Fill { input: (width, height), fill } => {
                    let (x, y) = (across.source(0..width), down.source(0..height));
                    let needed = columns.first..columns.first + columns.len as i64;
                    let stage = Stage::Fill { columns: within(&x, &needed), rows: y.clone(), fill };
                    let all_rows = rows.first..rows.first + rows.len as i64;
                    let fills = |has: &Range<i64>, needs: &Range<i64>| {
                        has.start > needs.start || has.end < needs.end
                    };
                    if fills(&x, &needed) || fills(&y, &all_rows) {
                        if is_floats { &mut self.floats } else { &mut self.bytes }.push(stage);
                    }
                }
                Change::Table => self.push_table(table::bytes(actions.table_of(place))),
                Change::FloatTable => {
                    self.push_values(table::floats(actions.table_of(place)));
                    is_floats = true;
                }
                Change::Pixel(kind, params) => {
                    let columns = (across.here(columns.first), across.step());
                    let rows = (down.here(0), down.step());
                    let stage = Stage::Pixel { kind, params: *params, columns, rows };
                    if is_floats { &mut self.floats } else { &mut self.bytes }.push(stage);
                }
            }
            across.pass(moves, true);
            down.pass(moves, false);
        }
    }

    /// Whether [`row`](Self::row) returns floats.
    pub fn gives_floats(&self) -> bool {
        !self.float_line.is_empty()
    }

    /// Adds a table. If the last stage is a table, both tables are combined into one.
    fn push_table(&mut self, table: &Bytes) {
        if let Some(Stage::Table(before)) = self.bytes.last() {
            let before = &mut self.tables[*before];
            *before = Tables::new(table::composed(before.bytes(), table));
        } else {
            self.bytes.push(Stage::Table(self.tables.len()));
            self.tables.push(Tables::new(*table));
        }
    }

    /// Sets the table of floats. If the last stage is a table, both tables are combined into one.
    fn push_values(&mut self, table: &Floats) {
        self.values = Some(match self.bytes.pop_if(|it| matches!(it, Stage::Table(_))) {
            Some(Stage::Table(before)) => table::composed(self.tables[before].bytes(), table),
            _ => *table,
        });
    }

    /// Returns the table of floats that the caller must still apply to rows of bytes.
    pub fn values(&self) -> Option<&Floats> {
        self.values.as_ref().filter(|_| !self.gives_floats())
    }

    /// Returns the range of rows of the run's input that the result needs. It may extend beyond the
    /// input.
    pub fn needed_rows(&self) -> Range<i64> {
        self.rows.first..self.rows.first + self.rows.len as i64
    }

    /// Computes the result of row `y` of the run's input. `pixels` is that row from the column
    /// `first` on, or `None` if the row lies outside the input. In this case all its pixels are
    /// filled. Returns `None` if the result does not need the row.
    pub fn row<'a>(
        &'a mut self,
        y: i64,
        first: u32,
        pixels: Option<Pixels<'a>>,
    ) -> Option<Row<'a>> {
        if !self.needed_rows().contains(&y) {
            return None;
        }
        let Self { columns, rows, bytes, floats, tables, values, line, float_line } = self;
        let at = (columns.first, first.into());
        let pixels = match pixels {
            Some(Pixels::Floats(row)) => {
                fit(float_line, row, at);
                filled_floats(floats, y, float_line)
            }
            None if values.is_none() && !float_line.is_empty() => {
                float_line.fill(0.0);
                filled_floats(floats, y, float_line)
            }
            pixels => {
                let whole = match pixels {
                    Some(Pixels::Bytes(row)) if bytes.is_empty() => covered(row, at, columns.len),
                    _ => None,
                };
                let row = match (whole, pixels) {
                    (Some(row), _) => row,
                    (None, Some(Pixels::Bytes(row))) => {
                        fit(line, row, at);
                        filled_bytes(bytes, tables, y, line)
                    }
                    (None, _) => {
                        line.fill(0);
                        filled_bytes(bytes, tables, y, line)
                    }
                };
                match values {
                    Some(values) if !float_line.is_empty() => {
                        let to = float_line.as_chunks_mut::<CHANNELS>().0;
                        for (to, from) in to.iter_mut().zip(row.as_chunks::<CHANNELS>().0) {
                            *to = [0, 1, 2].map(|c| values[c][usize::from(from[c])]);
                        }
                        filled_floats(floats, y, float_line)
                    }
                    _ => Pixels::Bytes(row),
                }
            }
        };
        Some(Row { y: rows.result(y), mirrored: columns.mirrored, pixels })
    }

    /// Returns the position in the result of row `y` of the run's input. Returns `None` if the
    /// result does not need row `y`, if columns are mirrored, if the input has floats, or if the
    /// actions contain a table of floats. If it returns a position, [`bytes`](Self::bytes) can
    /// compute the row.
    pub fn straight(&self, y: i64) -> Option<u32> {
        let straight = !self.columns.mirrored && self.values.is_none() && !self.gives_floats();
        (straight && self.needed_rows().contains(&y)).then(|| self.rows.result(y))
    }

    /// Like [`row`](Self::row), but writes into the memory of the result.
    pub fn bytes(&self, y: i64, first: u32, pixels: Option<Pixels<'_>>, out: &mut [u8]) {
        let at = (self.columns.first, first.into());
        match pixels {
            Some(Pixels::Bytes(row)) => match covered(row, at, self.columns.len) {
                Some(row) => return self.changed(y, row, out),
                None => fit(out, row, at),
            },
            _ => out.fill(0),
        }
        self.change(y, out);
    }

    /// Whether the pixels of an input with this window keep their columns.
    pub fn keeps_columns(&self, source: Roi) -> bool {
        self.columns.keeps(source.x, source.width)
    }

    /// Whether every pixel of an input with this window keeps its position, and no stage depends on
    /// the position. [`image`](Self::image) can then compute the result.
    pub fn keeps_places(&self, source: Roi) -> bool {
        let anywhere = |stage: &Stage| match stage {
            Stage::Table(_) => true,
            Stage::Pixel { kind, .. } => !kind.takes_position,
            Stage::Fill { .. } => false,
        };
        let bytes = self.values.is_none() && !self.gives_floats();
        let keeps = self.keeps_columns(source) && self.rows.keeps(source.y, source.height);
        bytes && keeps && self.bytes.iter().all(anywhere)
    }

    /// Computes the result of all rows of an input whose pixels [keep their
    /// positions](Self::keeps_places).
    pub fn image(&self, from: &[u8], to: &mut [u8]) {
        /// Number of bytes that each stage processes per call. They fit into the CPU's cache, and
        /// are so many that the cost of the calls is small.
        const PART: usize = CHANNELS << 12;
        for (from, to) in from.chunks(PART).zip(to.chunks_mut(PART)) {
            self.changed(0, from, to);
        }
    }

    /// Applies the stages in place to row `y` of the run's input. The row must already have the
    /// columns of the result.
    pub fn change(&self, y: i64, row: &mut [u8]) {
        filled_bytes(&self.bytes, &self.tables, y, row);
    }

    /// Like [`change`](Self::change), but writes the changed row to `out`.
    fn changed(&self, y: i64, row: &[u8], out: &mut [u8]) {
        let mut stages = &*self.bytes;
        if let [Stage::Table(table), rest @ ..] = stages {
            self.tables[*table].look_up_to(row, out, Instructions::here());
            stages = rest;
        } else {
            out.copy_from_slice(row);
        }
        filled_bytes(stages, &self.tables, y, out);
    }

    /// Memory that the buffers hold, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.line.capacity() + self.float_line.capacity() * size_of::<f32>()
    }
}

/// Applies the stages to a row of bytes.
fn filled_bytes<'a>(stages: &[Stage], tables: &[Tables], y: i64, line: &'a mut [u8]) -> &'a [u8] {
    for stage in stages {
        match stage {
            Stage::Table(table) => {
                tables[*table].look_up(line, Instructions::here());
            }
            Stage::Pixel { kind, params, columns, rows } => {
                let Some(change) = kind.bytes else { unreachable!("the kind takes bytes") };
                let at = position(*columns, *rows, y);
                change(params, at, line.as_chunks_mut().0, Instructions::here());
            }
            Stage::Fill { columns, rows, fill } => {
                fill_outside(line, columns, rows.contains(&y), fill.map(|value| value as u8));
            }
        }
    }
    line
}

/// Applies the stages to a row of floats.
fn filled_floats<'a>(stages: &[Stage], y: i64, line: &'a mut [f32]) -> Pixels<'a> {
    for stage in stages {
        match stage {
            Stage::Table(_) => unreachable!("tables take bytes"),
            Stage::Pixel { kind, params, columns, rows } => {
                let Some(change) = kind.floats else { unreachable!("the kind takes floats") };
                let at = position(*columns, *rows, y);
                change(params, at, line.as_chunks_mut().0, Instructions::here());
            }
            Stage::Fill { columns, rows, fill } => {
                fill_outside(line, columns, rows.contains(&y), *fill);
            }
        }
    }
    Pixels::Floats(line)
}

/// Returns the position of row `y` of the run's input in an action's image. `columns` has the
/// position of the line's first column and the direction of the columns. `rows` has the position of
/// row 0 of the input and the direction of the rows.
fn position(columns: (i32, i32), rows: (i32, i32), y: i64) -> RowPosition {
    let ((x, step), (first, down)) = (columns, rows);
    RowPosition { x, step, y: first.wrapping_add(down.wrapping_mul(y as i32)) }
}

/// Fills the pixels outside `inside`. Fills all pixels if `is_row` is false, because the row then
/// lies outside the image.
fn fill_outside<T: Copy>(line: &mut [T], inside: &Range<usize>, is_row: bool, fill: [T; CHANNELS]) {
    let pixels = line.as_chunks_mut::<CHANNELS>().0;
    if !is_row {
        return pixels.fill(fill);
    }
    pixels[..inside.start].fill(fill);
    pixels[inside.end..].fill(fill);
}

/// Returns the `len` pixels of a row that a line needs, or `None` if the row does not contain all
/// of them. The pair holds the line's first column, which may be negative, and the row's first
/// column.
fn covered(row: &[u8], (line_first, row_first): (i64, i64), len: usize) -> Option<&[u8]> {
    let start = usize::try_from(line_first - row_first).ok()?;
    row.get(CHANNELS * start..)?.get(..CHANNELS * len)
}

/// Copies the pixels of a row that a line needs. The line's other pixels become 0.
fn fit<T: Copy + Default>(line: &mut [T], row: &[T], (line_first, row_first): (i64, i64)) {
    let (len, width) = ((line.len() / CHANNELS) as i64, (row.len() / CHANNELS) as i64);
    let inside = within(&(row_first..row_first + width), &(line_first..line_first + len));
    line[..CHANNELS * inside.start].fill(T::default());
    line[CHANNELS * inside.end..].fill(T::default());
    if !inside.is_empty() {
        let from = (line_first + inside.start as i64 - row_first) as usize;
        let to = &mut line[CHANNELS * inside.start..CHANNELS * inside.end];
        to.copy_from_slice(&row[CHANNELS * from..][..to.len()]);
    }
}

/// Returns the intersection of both ranges, relative to the start of `needed`.
fn within(has: &Range<i64>, needed: &Range<i64>) -> Range<usize> {
    let place = |at: i64| (at.clamp(needed.start, needed.end) - needed.start) as usize;
    place(has.start)..place(has.end).max(place(has.start))
}

impl Axis {
    /// Applies an action: positions become those of the action's output.
    fn pass(&mut self, moves: Move, is_columns: bool) {
        match moves {
            Move::None => {}
            Move::Window { position: (x, y), .. } => {
                self.offset -= if is_columns { x } else { y };
            }
            Move::Mirror { horizontal, vertical, input: (width, height) } => {
                let (mirrors, len) =
                    if is_columns { (horizontal, width) } else { (vertical, height) };
                if mirrors {
                    self.offset = len - 1 - self.offset;
                    self.mirrored = !self.mirrored;
                }
            }
        }
    }

    /// Sets the input positions that are needed for `len` positions of the result, starting at
    /// `first`.
    fn begin(&mut self, first: u32, len: u32) {
        let first = i64::from(first);
        let needed = self.source(first..first + i64::from(len));
        (self.first, self.len) = (needed.start, len as usize);
    }

    /// Whether the `len` input positions from `first` on are the positions of the result, in the
    /// same order.
    fn keeps(&self, first: u32, len: u32) -> bool {
        !self.mirrored && self.first == i64::from(first) && self.len == len as usize
    }

    /// Returns the input positions that the actions so far map to the positions `here`.
    fn source(&self, here: Range<i64>) -> Range<i64> {
        match self.mirrored {
            false => here.start - self.offset..here.end - self.offset,
            true => self.offset - here.end + 1..self.offset - here.start + 1,
        }
    }

    /// Returns the position to which the actions so far map the input position `source`.
    fn here(&self, source: i64) -> i32 {
        (if self.mirrored { self.offset - source } else { self.offset + source }) as i32
    }

    /// Direction of the axis: 1, or -1 if mirrored.
    fn step(&self) -> i32 {
        if self.mirrored { -1 } else { 1 }
    }

    /// Returns the position in the result of an input position that the result needs.
    fn result(&self, source: i64) -> u32 {
        (if self.mirrored { self.offset - source } else { self.offset + source }) as u32
    }
}
