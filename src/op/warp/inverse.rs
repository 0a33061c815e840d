//! Positions in displaced images, in both directions. Points and boxes follow their image by them.

use crate::geometry::Size;

/// Displacements of all pixels of an image, as [`Field::append`](super::field::Field::append)
/// writes them. Coordinates are edges of pixels: the centre of the first pixel is at 0.5.
#[derive(Clone, Copy, Debug)]
pub struct Displaced<'a> {
    /// Displacements (x, y) in units of 1/65536 pixel, row by row.
    pairs: &'a [[i32; 2]],
    size: Size,
}

/// Largest distance in pixels, on each axis, between a point and the position that its result
/// shows.
const TOLERANCE: f64 = 0.005;
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

fn pixels(displacement: i32) -> f64 {
    f64::from(displacement) / 65536.0
}

fn squared((x, y): (f64, f64)) -> f64 {
    x * x + y * y
}

fn is_small((x, y): (f64, f64)) -> bool {
    x.abs() <= TOLERANCE && y.abs() <= TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::warp::field::{Field, Smoothness};

    fn table(size: Size, alpha: f64, sigma: f64, key: u32) -> Vec<i32> {
        let smoothness = Smoothness { alpha: [alpha; 2], sigma: [sigma; 2] };
        let mut table = Vec::new();
        Field { smoothness, key: [key, 3] }.append(size, &mut table);
        table
    }

    /// Points whose source is `(x, y)` map back to positions with the same source, also if the
    /// field is so strong that the fixed-point iteration does not converge.
    #[test]
    fn a_target_has_its_point_as_source() {
        let mut searched = 0;
        for (width, height) in [(1, 1), (2, 1), (1, 3), (33, 5), (64, 48)] {
            for (alpha, sigma) in [(50.0, 5.0), (200.0, 5.0), (40.0, 2.0), (400.0, 9.0)] {
                for key in 0..4 {
                    let size = Size::new(width, height);
                    let table = table(size, alpha, sigma, key);
                    let field = Displaced::new(&table, size);
                    for number in 0..60_u32 {
                        let part = |by: u32| f64::from(number * by % 101) / 101.0;
                        let of = (part(37) * f64::from(width), part(53) * f64::from(height));
                        let (x, y) = field.source(of.0, of.1);
                        let at = field.target(x, y);
                        let error = field.error(at, (x, y));
                        assert!(is_small(error), "{size} {alpha} {sigma} {of:?}: {error:?}");
                        // The first steps of the fixed-point iteration alone do not suffice.
                        let mut first = (x, y);
                        for _ in 0..STEPS {
                            let error = field.error(first, (x, y));
                            first = (first.0 + error.0, first.1 + error.1);
                        }
                        searched += usize::from(!is_small(field.error(first, (x, y))));
                    }
                }
            }
        }
        assert!(searched > 20, "{searched}");
    }

    /// At the centres of pixels, the source is the one that the pixels are read from.
    #[test]
    fn sources_of_pixel_centres_are_the_displacements() {
        let size = Size::new(9, 7);
        let table = table(size, 90.0, 1.0, 5);
        let field = Displaced::new(&table, size);
        for (at, pair) in (0..).zip(table.as_chunks::<2>().0) {
            let (x, y) = (f64::from(at % 9) + 0.5, f64::from(at / 9) + 0.5);
            let expected = (x + pixels(pair[0]), y + pixels(pair[1]));
            assert_eq!(field.source(x, y), expected);
        }
        let nan = field.target(f64::NAN, 1.0);
        assert!(nan.0.is_nan() && nan.1 == 1.0);
        assert_eq!(field.target(f64::INFINITY, 1.0), (f64::INFINITY, 1.0));
    }

    /// Noise without a blur tears the image. The result is then a position whose source is at most
    /// one displacement away.
    #[test]
    fn a_torn_image_gives_the_nearest_position() {
        let size = Size::new(30, 20);
        let table = table(size, 8.0, 0.0, 1);
        let field = Displaced::new(&table, size);
        for number in 0..200 {
            let of = (f64::from(number % 30) + 0.3, f64::from(number / 30 * 3) + 0.9);
            let at = field.target(of.0, of.1);
            let (x, y) = field.error(at, of);
            let pixel = field.error(field.nearest_pixel(of), of);
            assert!(squared((x, y)) <= squared(pixel) + TOLERANCE, "{of:?}");
        }
    }
}
