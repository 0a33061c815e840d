//! Positions in displaced images, in both directions. Points and boxes follow their image by them.

use super::{BoundingBox, Size};

/// Displacements of all pixels of an image, from which the operator `elastic` reads its result.
/// Coordinates are edges of pixels: the centre of the first pixel is at 0.5.
#[derive(Clone, Copy, Debug)]
pub struct Displaced<'a> {
    /// Displacements (x, y) in units of 1/65536 pixel, row by row.
    pairs: &'a [[i32; 2]],
    size: Size,
}

/// Largest distance in pixels, on each axis, between a point and the position that its result
/// shows.
const TOLERANCE: f64 = 0.005;
/// Largest distance in pixels between a point and the position that is shown in its place, at which
/// the point counts as shown.
const SHOWN: f64 = 0.5;
/// Number of steps of an iteration. A field that halves the distance in each step needs 13
/// steps for 40 pixels.
const STEPS: u32 = 40;

impl<'a> Displaced<'a> {
    /// Displacements of an image of this size, which has at least one pixel.
    pub fn new(table: &'a [i32], size: Size) -> Self {
        Self { pairs: table.as_chunks().0, size }
    }

    /// Position of the input that the output shows at `(x, y)`. Between the centres of pixels,
    /// displacements are interpolated linearly. Beyond them, they are those of the outer pixels.
    pub fn source(&self, x: f64, y: f64) -> (f64, f64) {
        let (dx, dy) = self.displacement(x, y);
        (x + dx, y + dy)
    }

    /// Position at which the output shows the position `(x, y)` of the input: the inverse of
    /// [`source`](Self::source). The error of its source is at most 0.005 pixel on each axis,
    /// unless no position shows the point.
    ///
    /// The first method is a fixed-point iteration, which converges if neighbouring pixels are
    /// displaced by nearly the same distance. For other fields, Newton's method begins at the pixel
    /// with the nearest source, and then in each cell of four pixel centres whose sources surround
    /// the point. If a field folds the image, several positions show the same point, and one of
    /// them is returned. If no position shows the point, because the field tears the image, the one
    /// with the nearest source that was found is returned.
    pub fn target(&self, x: f64, y: f64) -> (f64, f64) {
        if !x.is_finite() || !y.is_finite() {
            return (x, y);
        }
        let wanted = (x, y);
        let mut at = wanted;
        for _ in 0..STEPS {
            let error = self.error(at, wanted);
            if is_small(error) {
                return at;
            }
            at = (at.0 + error.0, at.1 + error.1);
        }
        let nearest = self.refined(self.nearest_pixel(wanted), wanted);
        if is_small(self.error(nearest, wanted)) {
            return nearest;
        }
        let mut cells = self.cells(wanted).map(|cell| self.refined(cell, wanted));
        let found = cells.find(|&at| is_small(self.error(at, wanted)));
        found.unwrap_or(nearest)
    }

    /// Whether the output shows a position at most half a pixel from the point `wanted` of the
    /// input, at its [`target`](Self::target) `at`.
    pub fn shows(&self, at: (f64, f64), wanted: (f64, f64)) -> bool {
        squared(self.error(at, wanted)) <= SHOWN * SHOWN
    }

    /// Largest displacements of all pixels on each axis, in pixels.
    pub fn reach(&self) -> [f64; 2] {
        let largest = self.pairs.iter().fold([0; 2], |most, pair| {
            [0, 1].map(|axis| pair[axis].unsigned_abs().max(most[axis]))
        });
        largest.map(|it| f64::from(it) / 65536.0)
    }

    /// Smallest box around the positions at which the output shows a place of the box `of` of the
    /// input. `None` if there is no such position.
    ///
    /// These positions are the [targets](Self::target) of the corners, and all positions with a
    /// [source](Self::source) in the box on the lines through the centres of pixels: each row and
    /// each column of centres. So the box contains the centre of every pixel that shows a place of
    /// `of`, also if the field folds the image. Positions between the lines do not count. The lines
    /// do not end at the edges of the image, so the box may extend beyond them. `reach` is
    /// [`reach`](Self::reach).
    pub fn bounding_box(&self, of: &BoundingBox, reach: [f64; 2]) -> Option<BoundingBox> {
        let mut bounds = Bounds::NONE;
        for y in [of.top, of.bottom] {
            for x in [of.left, of.right] {
                let at = self.target(x, y);
                if is_small(self.error(at, (x, y))) {
                    bounds.add(at);
                }
            }
        }
        let columns = Lines::new([of.left, of.right], reach[0], self.size.width);
        let rows = Lines::new([of.top, of.bottom], reach[1], self.size.height);
        for row in rows.numbers() {
            let y = rows.at(row);
            let is_row = (0..i64::from(self.size.height)).contains(&row);
            let mut column = columns.first;
            while column <= columns.last {
                let x = columns.at(column);
                // Lines within the bounds do not change them.
                if bounds.contains((x, y)) && bounds.contains((x, rows.at(row + 1))) {
                    let next = columns.last_before(bounds.0.right);
                    if next > column {
                        column = next;
                        continue;
                    }
                }
                if is_row {
                    self.add_line([(x, y), (columns.at(column + 1), y)], of, &mut bounds);
                }
                if (0..i64::from(self.size.width)).contains(&column) {
                    self.add_line([(x, y), (x, rows.at(row + 1))], of, &mut bounds);
                }
                column += 1;
            }
        }
        bounds.found()
    }

    /// Adds the part of a line between neighbouring centres whose source lies in a box. On such a
    /// line, the source is a linear function.
    fn add_line(&self, ends: [(f64, f64); 2], of: &BoundingBox, bounds: &mut Bounds) {
        let [from, to] = ends;
        let [(ax, ay), (bx, by)] = ends.map(|(x, y)| self.source(x, y));
        let (mut first, mut last) = (0.0_f64, 1.0_f64);
        for (a, b, low, high) in [(ax, bx, of.left, of.right), (ay, by, of.top, of.bottom)] {
            if a == b {
                if a < low || a > high {
                    return;
                }
                continue;
            }
            let (enters, leaves) = ((low - a) / (b - a), (high - a) / (b - a));
            first = first.max(enters.min(leaves));
            last = last.min(enters.max(leaves));
        }
        if first <= last {
            for part in [first, last] {
                bounds.add((from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part));
            }
        }
    }

    /// Middles of the cells of four pixel centres whose sources lie on both sides of a point on
    /// each axis, also of the cells at the edges of the image.
    fn cells(&self, wanted: (f64, f64)) -> impl Iterator<Item = (f64, f64)> {
        let Size { width, height } = self.size;
        let places = (0..=height).flat_map(move |y| (0..=width).map(move |x| (x, y)));
        places.map(|(x, y)| (f64::from(x), f64::from(y))).filter(move |&(x, y)| {
            let corners = [(-0.5, -0.5), (0.5, -0.5), (-0.5, 0.5), (0.5, 0.5)];
            let errors = corners.map(|(dx, dy)| self.error((x + dx, y + dy), wanted));
            let surrounds = |of: fn(&(f64, f64)) -> f64| {
                errors.iter().map(of).any(|it| it <= TOLERANCE)
                    && errors.iter().map(of).any(|it| it >= -TOLERANCE)
            };
            surrounds(|error| error.0) && surrounds(|error| error.1)
        })
    }

    /// Difference between a point of the input and the position that the output shows at `at`.
    fn error(&self, at: (f64, f64), wanted: (f64, f64)) -> (f64, f64) {
        let (x, y) = self.source(at.0, at.1);
        (wanted.0 - x, wanted.1 - y)
    }

    /// Centre of the pixel whose source is nearest to a point.
    fn nearest_pixel(&self, wanted: (f64, f64)) -> (f64, f64) {
        let mut nearest = (f64::INFINITY, wanted);
        let places = (0..self.size.height).flat_map(|y| (0..self.size.width).map(move |x| (x, y)));
        for ((x, y), &[dx, dy]) in places.zip(self.pairs) {
            let centre = (f64::from(x) + 0.5, f64::from(y) + 0.5);
            let distance =
                squared((wanted.0 - centre.0 - pixels(dx), wanted.1 - centre.1 - pixels(dy)));
            if distance < nearest.0 {
                nearest = (distance, centre);
            }
        }
        nearest.1
    }

    /// Newton's method. Returns the position with the smallest error of all steps.
    fn refined(&self, start: (f64, f64), wanted: (f64, f64)) -> (f64, f64) {
        let mut at = start;
        let mut best = (f64::INFINITY, start);
        for _ in 0..STEPS {
            let error = self.error(at, wanted);
            let distance = squared(error);
            if distance < best.0 {
                best = (distance, at);
            }
            if is_small(error) {
                break;
            }
            let [[a, b], [c, d]] = self.slopes(at);
            let determinant = a * d - b * c;
            let step = (
                (d * error.0 - b * error.1) / determinant,
                (a * error.1 - c * error.0) / determinant,
            );
            if !(step.0.is_finite() && step.1.is_finite()) {
                break;
            }
            // Slopes hold in one cell only, so a step is at most one pixel on each axis.
            at = (at.0 + step.0.clamp(-1.0, 1.0), at.1 + step.1.clamp(-1.0, 1.0));
        }
        best.1
    }

    /// Derivatives of [`source`](Self::source): of its x by x and y, and of its y by x and y.
    fn slopes(&self, at: (f64, f64)) -> [[f64; 2]; 2] {
        // Both ends are in the same cell of four pixel centres, so the differences are exact.
        let whole = |at: f64| (at - 0.5).floor() + 0.5;
        let (left, top) = (whole(at.0), whole(at.1));
        let across = [self.source(left, at.1), self.source(left + 1.0, at.1)];
        let down = [self.source(at.0, top), self.source(at.0, top + 1.0)];
        [
            [across[1].0 - across[0].0, down[1].0 - down[0].0],
            [across[1].1 - across[0].1, down[1].1 - down[0].1],
        ]
    }

    /// Displacement at a position, in pixels.
    fn displacement(&self, x: f64, y: f64) -> (f64, f64) {
        let inside = |at: f64, len: u32| (at - 0.5).clamp(0.0, f64::from(len - 1));
        let (x, y) = (inside(x, self.size.width), inside(y, self.size.height));
        let (left, top) = (x as u32, y as u32);
        let (across, down) = (x - f64::from(left), y - f64::from(top));
        let right = (left + 1).min(self.size.width - 1);
        let bottom = (top + 1).min(self.size.height - 1);
        let at = |x: u32, y: u32| self.pairs[y as usize * self.size.width as usize + x as usize];
        let corners = [at(left, top), at(right, top), at(left, bottom), at(right, bottom)];
        let between = |axis: usize| {
            let [a, b, c, d] = corners.map(|pair| pixels(pair[axis]));
            let (above, below) = (a + (b - a) * across, c + (d - c) * across);
            above + (below - above) * down
        };
        (between(0), between(1))
    }
}

/// Smallest box around points.
struct Bounds(BoundingBox);

impl Bounds {
    const NONE: Self = Self(BoundingBox {
        left: f64::INFINITY,
        top: f64::INFINITY,
        right: f64::NEG_INFINITY,
        bottom: f64::NEG_INFINITY,
    });

    fn add(&mut self, (x, y): (f64, f64)) {
        let BoundingBox { left, top, right, bottom } = &mut self.0;
        (*left, *right) = (left.min(x), right.max(x));
        (*top, *bottom) = (top.min(y), bottom.max(y));
    }

    fn contains(&self, (x, y): (f64, f64)) -> bool {
        let BoundingBox { left, top, right, bottom } = self.0;
        left <= x && x <= right && top <= y && y <= bottom
    }

    fn found(self) -> Option<BoundingBox> {
        (self.0.left <= self.0.right).then_some(self.0)
    }
}

/// Lines through the centres of the columns or rows of an image that may show a part of a box. One
/// more line before the first centre and one after the last centre stand for the outside of the
/// image.
struct Lines {
    /// Number of the first and of the last line. Line 0 is that of the first centre.
    first: i64,
    last: i64,
    /// Number of lines in the image.
    len: i64,
    /// Positions of the lines outside of the image.
    outer: [f64; 2],
}

impl Lines {
    fn new(edges: [f64; 2], reach: f64, len: u32) -> Self {
        let len = i64::from(len);
        let (low, high) = (edges[0] - reach - 1.0, edges[1] + reach + 1.0);
        Self {
            first: ((low - 0.5).floor() as i64).clamp(-1, len - 1),
            last: ((high - 0.5).ceil() as i64).clamp(-1, len - 1),
            len,
            outer: [low.min(-0.5), high.max(len as f64 + 0.5)],
        }
    }

    /// Numbers of the lines at which a cell begins.
    fn numbers(&self) -> impl Iterator<Item = i64> {
        self.first..=self.last
    }

    fn at(&self, number: i64) -> f64 {
        match number {
            -1 => self.outer[0],
            _ if number == self.len => self.outer[1],
            _ => number as f64 + 0.5,
        }
    }

    /// Last line in the image at or before a position.
    fn last_before(&self, at: f64) -> i64 {
        ((at - 0.5).floor() as i64).min(self.len - 1)
    }
}

fn pixels(displacement: i32) -> f64 {
    f64::from(displacement) / 65536.0
}

fn squared((x, y): (f64, f64)) -> f64 {
    x * x + y * y
}

fn is_small((x, y): (f64, f64)) -> bool {
    x.abs() <= TOLERANCE && y.abs() <= TOLERANCE
}
