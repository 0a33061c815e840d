//! Rows of a window: the MCUs that the window needs, planes of samples, and groups of pixel rows.

use super::blocks::{BLOCK, Blocks};
use super::frame::Shape;
use super::kernels::{Four, Kernels, Line, Planes, Quantization, Sums};
use crate::decode::rows::group_end;
use crate::decode::{MOST_ROWS, RowLayout, RowSink, Rows};
use crate::geometry::Roi;
use crate::tensor::CHANNELS;

/// Number of samples of padding before and after each row.
const EDGE: usize = 32;

/// Part of an image that is decoded for a window.
#[derive(Clone, Debug)]
pub struct DecodedPart {
    pub window: Roi,
    /// Range of columns of MCUs.
    pub columns: [usize; 2],
    /// Range of rows of MCUs.
    pub rows: [usize; 2],
    /// Number of rows of MCUs that are read from the start of the image, as many as libjpeg reads
    /// for this window.
    pub read_rows: usize,
    /// Whether the window reaches the last row of pixels.
    pub is_at_bottom: bool,
    /// Number of MCUs that are decoded together.
    pub together: usize,
    sampling: [usize; 2],
    /// Number of samples along a side of a transformed block, of luma and of chroma.
    sides: [usize; 2],
    /// Number of luma samples per chroma sample, horizontally and vertically.
    ratio: [usize; 2],
    is_gray: bool,
    /// Number of chroma samples (for gray images, luma samples) up to the end of the image. Columns
    /// are counted from the part's first column, rows from the image's first row.
    real: [usize; 2],
    /// Number of chroma samples in a row of the part, rounded up.
    across: usize,
    /// Planes of luma and of both chroma components.
    planes: [Plane; 3],
}

impl DecodedPart {
    /// Returns the part for a window of the reduced image. The number of luma samples per row is a
    /// multiple of `step`.
    pub fn new(shape: &Shape, window: Roi, reduction: usize, step: usize) -> Self {
        let [h, v] = shape.sampling;
        let sides = shape.sides(reduction);
        let ratio = [h, v].map(|blocks| blocks * sides[0] / sides[1]);
        let [units_across, units_down] = shape.units();
        let [left, top, right, bottom] =
            [window.x, window.y, window.right(), window.bottom()].map(|it| it as usize);
        // Chroma that is upsampled by 2 also needs the neighbouring sample, if there is one.
        let [beside, below] = ratio.map(|samples| usize::from(samples == 2));
        let (wide, high) = (sides[0] * h, sides[0] * v);
        let columns =
            [left.saturating_sub(beside) / wide, (right + beside).div_ceil(wide).min(units_across)];
        let rows =
            [top.saturating_sub(below) / high, (bottom + below).div_ceil(high).min(units_down)];
        // If chroma is upsampled vertically, libjpeg also reads the MCUs of the two rows of pixels
        // below the window.
        let read_rows = (bottom + 2 * below).div_ceil(high);
        let read_rows = read_rows.next_multiple_of(shape.rows_together).min(units_down);
        let together = if [h, v] == [1, 1] { 4 } else { 2 };
        let units = (columns[1] - columns[0]).next_multiple_of(together);
        let size = shape.size.reduced(reduction as u32);
        let [width, height] = [size.width as usize, size.height as usize];
        let chroma = wide / ratio[0];
        let mut part = Self {
            window,
            read_rows,
            is_at_bottom: bottom == height,
            together,
            sampling: shape.sampling,
            sides,
            ratio,
            is_gray: shape.is_gray,
            real: [width.div_ceil(ratio[0]) - chroma * columns[0], height.div_ceil(ratio[1])],
            columns,
            rows,
            across: (chroma * units).next_multiple_of(step / ratio[0]),
            planes: [Plane::default(); 3],
        };
        part.planes = [0, 1, 2].map(|component| part.plane_of(component));
        part
    }

    /// Returns the size of all planes in bytes.
    pub fn plane_bytes(&self) -> usize {
        let [luma, chroma] = [self.plane(0), self.plane(1)];
        luma.bytes() + if self.is_gray { 0 } else { 2 * chroma.bytes() }
    }

    /// Returns the size of a row of pixels in bytes.
    pub fn row_bytes(&self, layout: RowLayout) -> usize {
        let channels = if layout == RowLayout::Gray { 1 } else { CHANNELS };
        channels * self.ratio[0] * self.across
    }

    fn plane(&self, component: usize) -> Plane {
        self.planes[component]
    }

    fn plane_of(&self, component: usize) -> Plane {
        let across = if component == 0 { self.ratio[0] * self.across } else { self.across };
        let rows =
            self.sides[0] * self.sampling[1] / if component == 0 { 1 } else { self.ratio[1] };
        // If chroma is upsampled vertically, the last row of samples of the MCUs above is kept for
        // the interpolation.
        let kept = self.ratio[1] - 1;
        let mut plane = Plane { start: 0, pitch: across + 2 * EDGE, rows, kept };
        if component > 0 {
            plane.start = self.plane_of(0).bytes() + (component - 1) * plane.bytes();
        }
        plane
    }
}

/// Position of a component's samples in memory: one row of MCUs, after the samples that were kept
/// from the previous row of MCUs.
#[derive(Clone, Copy, Debug, Default)]
struct Plane {
    start: usize,
    pitch: usize,
    /// Number of rows of samples in a row of MCUs.
    rows: usize,
    kept: usize,
}

impl Plane {
    fn bytes(&self) -> usize {
        self.pitch * (self.rows + self.kept)
    }

    /// Returns the index of a sample. Negative rows are the kept rows.
    fn at(&self, row: isize, column: isize) -> usize {
        let row = (self.kept as isize + row) as usize;
        self.start + self.pitch * row + (EDGE as isize + column) as usize
    }
}

/// Converts coefficients to the rows of a window.
pub struct Painter<'a> {
    pub part: DecodedPart,
    pub kernels: Kernels,
    pub layout: RowLayout,
    pub quantization: &'a [Quantization; 3],
    pub planes: &'a mut [u8],
    pub sums: &'a mut Sums,
    pub group: &'a mut [u8],
    pub sink: &'a mut RowSink<'a>,
    /// Next row of pixels to produce.
    pub next: u32,
}

impl Painter<'_> {
    /// Transforms MCUs that were decoded together and begin at `column` of the part. Returns false
    /// for coefficients that no intact image has.
    pub fn transform(&mut self, column: usize, blocks: &Blocks) -> bool {
        let Blocks { coefficients, lens } = blocks;
        let blocks = coefficients.as_chunks::<BLOCK>().0;
        let [h, v] = self.part.sampling;
        let mut is_sane = true;
        // For each pair, `pairs` has the component, the column of blocks and the row of blocks.
        let mut put = |four: [usize; 4], quantization: usize, pairs: [[usize; 3]; 2]| {
            let [a, b, c, d] = four;
            let four = Four {
                blocks: [&blocks[a], &blocks[b], &blocks[c], &blocks[d]],
                len: lens[a].max(lens[b]).max(lens[c]).max(lens[d]),
                quantization: &self.quantization[quantization],
            };
            let start = |[component, x, y]: [usize; 3]| {
                let side = self.part.sides[usize::from(component > 0)];
                self.part.plane(component).at((side * y) as isize, (side * x) as isize)
            };
            let [first, second] = pairs;
            let (starts, pitch) = ([start(first), start(second)], self.part.plane(first[0]).pitch);
            let side = self.part.sides[usize::from(first[0] > 0)];
            let planes = &mut Planes { bytes: self.planes, starts, pitch };
            is_sane &= self.kernels.transform(side, &four, planes);
        };
        match (self.part.is_gray, h, v) {
            (true, ..) => put([0, 1, 2, 3], 0, [[0, column, 0], [0, column + 2, 0]]),
            (_, 1, 1) => {
                for component in 0..3 {
                    let four = [0, 3, 6, 9].map(|at| at + component);
                    put(four, component, [[component, column, 0], [component, column + 2, 0]]);
                }
            }
            (_, 1, _) => {
                put([0, 4, 1, 5], 0, [[0, column, 0], [0, column, 1]]);
                put([2, 6, 3, 7], 1, [[1, column, 0], [2, column, 0]]);
            }
            (_, 2, 1) => {
                put([0, 1, 4, 5], 0, [[0, 2 * column, 0], [0, 2 * column + 2, 0]]);
                put([2, 6, 3, 7], 1, [[1, column, 0], [2, column, 0]]);
            }
            (_, 4, _) => {
                for (first, x) in [(0, 4 * column), (6, 4 * column + 4)] {
                    put([0, 1, 2, 3].map(|at| first + at), 0, [[0, x, 0], [0, x + 2, 0]]);
                }
                put([4, 10, 5, 11], 1, [[1, column, 0], [2, column, 0]]);
            }
            _ => {
                for (first, x) in [(0, 2 * column), (6, 2 * column + 2)] {
                    put([0, 1, 2, 3].map(|at| first + at), 0, [[0, x, 0], [0, x, 1]]);
                }
                put([4, 10, 5, 11], 1, [[1, column, 0], [2, column, 0]]);
            }
        }
        is_sane
    }

    /// Passes to the sink the rows of pixels that are complete after this row of MCUs.
    pub fn paint(&mut self, row: usize) {
        self.repeat_edges();
        let high = self.part.sides[0] * self.part.sampling[1];
        let is_last = row + 1 == self.part.rows[1];
        // Chroma between two rows of MCUs is interpolated from both rows. So the last row of pixels
        // of this row of MCUs is produced together with the next row of MCUs.
        let end = (row + 1) * high - if is_last { 0 } else { self.part.ratio[1] - 1 };
        let end = (end as u32).min(self.part.window.bottom());
        while self.next < end {
            let from = self.next / MOST_ROWS * MOST_ROWS;
            let from = from.max(self.part.window.y);
            self.pixels(row, from);
            self.next += 1;
            let window = self.part.window;
            if self.next == group_end(from, window.bottom()) {
                let pitch = self.part.row_bytes(self.layout);
                let count = self.next - from;
                let channels = if self.layout == RowLayout::Gray { 1 } else { CHANNELS };
                let first = self.part.sides[0] * self.part.sampling[0] * self.part.columns[0];
                let left = channels * (window.x as usize - first);
                let bytes = pitch * (count as usize - 1) + channels * window.width as usize;
                let data = &self.group[left..][..bytes];
                (self.sink)(Rows { first: from, count, pitch, data, chroma: &[] });
            }
        }
        self.keep();
    }

    /// Computes the next row of pixels. The current group begins with row `from`.
    fn pixels(&mut self, row: usize, from: u32) {
        let Self { part, planes, next, .. } = self;
        let [h, v] = part.ratio;
        let high = part.sides[0] * part.sampling[1];
        let y = *next as isize - (high * row) as isize;
        let of = |plane: &Plane, row: isize, column: isize, len: usize| {
            &planes[plane.at(row, column)..][..len]
        };
        let [plane, blue, red] = &part.planes;
        let both = |row: isize| [blue, red].map(|plane| of(plane, row, 0, part.across));
        // Rows of half-width chroma begin one sample before the first sample of the part.
        let half = |row: isize| [blue, red].map(|plane| of(plane, row, -1, part.across + EDGE));
        let pitch = part.row_bytes(self.layout);
        let pixels = &mut self.group[pitch * (*next - from) as usize..][..pitch];
        let luma = of(plane, y, 0, h * part.across);
        let line = match (part.is_gray, h, v) {
            (true, ..) if self.layout == RowLayout::Gray => return pixels.copy_from_slice(luma),
            (true, ..) => Line::Gray(luma),
            (_, 1, 1) => Line::Whole(luma, both(y)),
            (_, 2, 1) => Line::Half(luma, half(y)),
            (_, 4, _) => Line::Quarter(luma, both(y)),
            _ => {
                // For each row of pixels, two rows of chroma are used: the nearest and the second
                // nearest. Beyond the image, the nearest row is used twice.
                let first = (high / v * row) as isize;
                let near = y >> 1;
                let (far, rounding) = if y & 1 == 0 { (near - 1, 1) } else { (near + 1, 2) };
                let last = part.real[1] as isize - 1;
                let far = (far + first).clamp(0, last) - first;
                match h {
                    1 => Line::Blend(luma, both(near), both(far), rounding),
                    _ => Line::Between(luma, half(near), half(far)),
                }
            }
        };
        self.kernels.pixels(line, self.sums, pixels);
    }

    /// Repeats the first and the last chroma sample of each row beyond the edges of the image.
    fn repeat_edges(&mut self) {
        if self.part.is_gray || self.part.ratio[0] != 2 {
            return;
        }
        let real = self.part.real[0].min(self.part.across) as isize;
        for plane in [1, 2].map(|component| self.part.plane(component)) {
            for row in 0..plane.rows as isize {
                self.planes[plane.at(row, -1)] = self.planes[plane.at(row, 0)];
                self.planes[plane.at(row, real)] = self.planes[plane.at(row, real - 1)];
            }
        }
    }

    /// Keeps the last rows of samples. Pixels between this row of MCUs and the next need them.
    fn keep(&mut self) {
        let planes: &[usize] = if self.part.ratio[1] == 1 { &[] } else { &[0, 1, 2] };
        for plane in planes.iter().map(|component| self.part.plane(*component)) {
            let kept = plane.kept as isize;
            let last = plane.at(plane.rows as isize - kept, 0) - EDGE;
            let first = plane.at(-kept, 0) - EDGE;
            self.planes.copy_within(last..last + plane.kept * plane.pitch, first);
        }
    }
}
