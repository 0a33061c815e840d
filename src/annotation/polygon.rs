//! Fills polygons by the rule of COCO's tools.
//!
//! The rule is that of pycocotools' `rleFrPoly` (`maskApi.c`). It traces the boundary in fifths of
//! a pixel. Where the boundary crosses the middle of a column, a run of pixels of this column
//! begins or ends. The crossings of an edge are computed directly, with the numbers of the trace,
//! so the cost of an edge is the number of columns of the image that it crosses.

use crate::geometry::Size;

/// The boundary of a polygon is traced with this many points per pixel of its length.
const SCALE: i64 = 5;
/// Point of the trace at the middle of a column, counted from the first point of the column.
const MIDDLE: i64 = 2;

/// Bit of a pixel in a polygon.
const INSIDE: u8 = 1;
/// Bit of a pixel at which a run of the current polygon begins or ends.
const CROSSING: u8 = 2;

/// Draws the boundary of a polygon, and fills it. The mask has a byte for each pixel of the image,
/// column by column: 1 in a polygon, and otherwise 0.
pub struct Filler<'a> {
    size: Size,
    mask: &'a mut [u8],
    /// First and last point of the polygon.
    ends: Option<[[f64; 2]; 2]>,
    /// First and last pixel at which runs begin or end.
    span: Option<[usize; 2]>,
}

impl<'a> Filler<'a> {
    /// Filler for a mask of this size.
    pub fn new(size: Size, mask: &'a mut [u8]) -> Self {
        Self { size, mask, ends: None, span: None }
    }

    /// Adds a point, which must be [near](is_near).
    pub fn push(&mut self, point: [f64; 2]) {
        match &mut self.ends {
            None => self.ends = Some([point; 2]),
            Some([_, last]) => {
                let from = std::mem::replace(last, point);
                self.draw(from, point);
            }
        }
    }

    /// Closes the polygon and adds it to the mask. Polygons with fewer than three points have no
    /// pixels: their edges cancel each other.
    pub fn fill(mut self) {
        if let Some([first, last]) = self.ends {
            self.draw(last, first);
        }
        let Some([first, last]) = self.span else { return };
        let mut is_inside = false;
        for pixels in self.mask[first..=last].chunks_mut(64) {
            if pixels.iter().fold(0, |bits, pixel| bits | pixel) & CROSSING == 0 {
                if is_inside {
                    pixels.fill(INSIDE);
                }
                continue;
            }
            for pixel in pixels {
                is_inside ^= *pixel & CROSSING != 0;
                *pixel = *pixel & INSIDE | u8::from(is_inside);
            }
        }
        if is_inside {
            self.mask[last + 1..].fill(INSIDE);
        }
    }

    fn draw(&mut self, from: [f64; 2], to: [f64; 2]) {
        let Self { size, mask, span, .. } = self;
        cross([from, to], *size, |at| {
            let at = at as usize;
            // A run that begins after the last pixel is empty.
            if let Some(pixel) = mask.get_mut(at) {
                *pixel ^= CROSSING;
                let [first, last] = span.get_or_insert([at; 2]);
                (*first, *last) = ((*first).min(at), (*last).max(at));
            }
        });
    }
}

/// Adds a polygon to a mask, see [`Filler`]. Polygons that extend far beyond the image are clipped
/// first.
pub fn fill(polygon: &[[f64; 2]], size: Size, mask: &mut [u8]) {
    let cut;
    let polygon = match polygon.iter().all(|point| is_near(point, size)) {
        true => polygon,
        false => {
            cut = clip(polygon, far(size));
            &cut
        }
    };
    let mut filler = Filler::new(size, mask);
    polygon.iter().for_each(|&point| filler.push(point));
    filler.fill();
}

/// Largest absolute coordinate of a point at which a polygon need not be clipped: eight times the
/// longer side, plus 64 pixels for small images.
pub fn far(size: Size) -> f64 {
    f64::from(size.width.max(size.height)) * 8.0 + 64.0
}

/// Whether a point of a polygon is in or near an image of this size, as [`Filler`] requires.
pub fn is_near(point: &[f64; 2], size: Size) -> bool {
    point.iter().all(|position| position.abs() <= far(size))
}

/// Calls `each` with the indices of the pixels at which this edge begins or ends a run, in any
/// order. Indices count column by column. The index after the last pixel is possible too. A pixel
/// is in the polygon if the number of calls with its index or a smaller one is odd.
fn cross(edge: [[f64; 2]; 2], size: Size, mut each: impl FnMut(u64)) {
    let [[xs, ys], [xe, ye]] = edge.map(|point| point.map(|it| (SCALE as f64 * it + 0.5) as i64));
    let (dx, dy) = ((xe - xs).abs(), (ye - ys).abs());
    let is_flat = dx >= dy;
    let flip = if is_flat { xs > xe } else { ys > ye };
    let ((xs, ys), (xe, ye)) = if flip { ((xe, ye), (xs, ys)) } else { ((xs, ys), (xe, ye)) };
    let slope = if is_flat { (ye - ys) as f64 / dx as f64 } else { (xe - xs) as f64 / dy as f64 };
    // Points of the trace are counted along the longer axis. This is the position of a point on the
    // other one, with the operations of pycocotools.
    let across = |step: i64| {
        let from = if is_flat { ys } else { xs };
        (from as f64 + slope * step as f64 + 0.5) as i64
    };
    // The boundary crosses a column between the point at its middle and the next one.
    let column = |x: i64| (x + SCALE - 1 - MIDDLE).div_euclid(SCALE).clamp(0, size.width.into());
    let rows = u64::from(size.height);
    for x in column(xs.min(xe))..column(xs.max(xe)) {
        let middle = SCALE * x + MIDDLE;
        let y = if is_flat {
            let step = middle - xs;
            across(step).min(across(step + 1))
        } else {
            let has_crossed = |step: i64| (across(step) > middle) == (slope > 0.0);
            let mut step = ((middle as f64 + 0.5 - xs as f64) / slope) as i64;
            while step < dy && !has_crossed(step) {
                step += 1;
            }
            while step > 1 && has_crossed(step - 1) {
                step -= 1;
            }
            ys + step - 1
        };
        let row = (y + SCALE - 1 - MIDDLE).div_euclid(SCALE).clamp(0, size.height.into());
        each(x as u64 * rows + row as u64);
    }
}

/// Clips a polygon to a distance of `far` from the origin on both axes (Sutherland and Hodgman,
/// 1974).
fn clip(polygon: &[[f64; 2]], far: f64) -> Vec<[f64; 2]> {
    let mut points = polygon.to_vec();
    for (axis, side) in [(0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0)] {
        let inside = |point: &[f64; 2]| point[axis] * side <= far;
        let edges = points.iter().zip(points.iter().cycle().skip(1));
        let mut kept = Vec::new();
        for (from, to) in edges {
            if inside(from) {
                kept.push(*from);
            }
            if inside(from) != inside(to) {
                let part = (far * side - from[axis]) / (to[axis] - from[axis]);
                let mut edge = [0, 1].map(|it| from[it] + part * (to[it] - from[it]));
                edge[axis] = far * side;
                kept.push(edge);
            }
        }
        points = kept;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::{once, zip};

    /// Mask column by column, drawn by the text of `rleFrPoly`: the whole boundary is traced.
    fn reference(polygon: &[[f64; 2]], size: Size) -> Vec<u8> {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let mut crossings = vec![false; size.pixels() as usize + 1];
        let mut last: Option<(i64, i64)> = None;
        walk(polygon, |u, v| {
            if let Some((from_u, from_v)) = last.replace((u, v))
                && u != from_u
            {
                let x = (if u < from_u { u } else { u - 1 }) as f64;
                let x = (x + 0.5) / 5.0 - 0.5;
                if x.floor() == x && x >= 0.0 && x <= width - 1.0 {
                    let y = (v.min(from_v) as f64 + 0.5) / 5.0 - 0.5;
                    let at = x as u64 * u64::from(size.height) + y.clamp(0.0, height).ceil() as u64;
                    crossings[at as usize] ^= true;
                }
            }
        });
        let mut is_inside = false;
        let pixels = crossings.iter().map(|is_crossed| {
            is_inside ^= is_crossed;
            is_inside.into()
        });
        pixels.take(size.pixels() as usize).collect()
    }

    /// Visits the points of the boundary in order. Coordinates are in fifths of a pixel.
    fn walk(polygon: &[[f64; 2]], mut visit: impl FnMut(i64, i64)) {
        let fine = |&[x, y]: &[f64; 2]| [x, y].map(|it| (5.0 * it + 0.5) as i64);
        let ends = polygon.iter().cycle().skip(1);
        for ([mut xs, mut ys], [mut xe, mut ye]) in zip(polygon.iter().map(fine), ends.map(fine)) {
            let (dx, dy) = ((xe - xs).abs(), (ye - ys).abs());
            let flip = (dx >= dy && xs > xe) || (dx < dy && ys > ye);
            if flip {
                ((xs, ys), (xe, ye)) = ((xe, ye), (xs, ys));
            }
            let len = dx.max(dy);
            let slope = (if dx >= dy { ye - ys } else { xe - xs }) as f64 / len as f64;
            for step in 0..=len {
                let t = if flip { len - step } else { step };
                let across = |from: i64| (from as f64 + slope * t as f64 + 0.5) as i64;
                match dx >= dy {
                    true => visit(t + xs, across(ys)),
                    false => visit(across(xs), t + ys),
                }
            }
        }
    }

    fn filled(polygon: &[[f64; 2]], size: Size) -> Vec<u8> {
        let mut mask = vec![0; size.pixels() as usize];
        fill(polygon, size, &mut mask);
        mask
    }

    /// Pseudo-random number below `below`.
    fn random(seed: &mut u64, below: u64) -> u64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    }

    /// Fractions of pixels, coordinates far outside of the image, repeated and collinear points.
    #[test]
    fn crossings_are_those_of_a_traced_boundary() {
        let (mut seed, mut inside) = (3, 0);
        for round in 0..4000 {
            let size = Size::new(1 + random(&mut seed, 70) as u32, random(&mut seed, 70) as u32);
            let reach = [1, 2, 16][round % 3];
            let parts = [1, 2, 5, 10, 1 << 20][round % 5];
            let mut position = |len: u32| {
                let whole = i64::from(reach * (len + 9)) * parts;
                let at = random(&mut seed, whole as u64) as i64 - whole / 2;
                let near = at as f64 / parts as f64 + f64::from(len) / 2.0;
                near.clamp(-far(size), far(size))
            };
            let mut polygon: Vec<[f64; 2]> =
                (0..round % 14).map(|_| [position(size.width), position(size.height)]).collect();
            match round % 7 {
                // Vertical and horizontal edges.
                0 => {
                    (1..polygon.len()).for_each(|at| polygon[at][at % 2] = polygon[at - 1][at % 2])
                }
                1 => polygon.extend_from_within(..),
                2 => polygon.extend(polygon.last().copied()),
                _ => {}
            }
            let mask = filled(&polygon, size);
            assert_eq!(mask, reference(&polygon, size), "{polygon:?} in {size}");
            inside += mask.iter().filter(|&&it| it == 1).count();
        }
        assert!(inside > 100_000, "{inside}");
    }

    #[test]
    fn long_zigzags_are_those_of_a_traced_boundary() {
        let size = Size::new(301, 257);
        for (along, across) in [(0, 1), (1, 0)] {
            let point = |at: u32| {
                let mut point = [0.0; 2];
                point[across] = if at.is_multiple_of(2) { -3.3 } else { 311.7 };
                point[along] = f64::from(at) * 0.37;
                point
            };
            let polygon: Vec<_> = (0..700).map(point).chain(once([9.0, 300.0])).collect();
            let mask = filled(&polygon, size);
            assert_eq!(mask, reference(&polygon, size));
            assert!(mask.contains(&0) && mask.contains(&1));
        }
    }

    /// A polygon does not change pixels of earlier ones.
    #[test]
    fn polygons_of_an_object_are_united() {
        let size = Size::new(9, 80);
        let [left, right] =
            [0.0, 4.0].map(|x| [[x, 0.0], [x + 5.0, 0.0], [x + 5.0, 80.0], [x, 80.0]]);
        let mut mask = filled(&left, size);
        fill(&right, size, &mut mask);
        assert_eq!(mask, [1; 720]);
        fill(&right[..2], size, &mut mask);
        assert_eq!(mask, [1; 720], "two points are no polygon");
    }

    #[test]
    fn a_square_covers_its_pixels() {
        let square = [[1.0, 2.0], [3.0, 2.0], [3.0, 4.0], [1.0, 4.0]];
        let mask = filled(&square, Size::new(5, 6));
        let inside = (0..30).filter(|&at| mask[at] == 1).map(|at| (at / 6, at % 6));
        assert!(inside.eq([(1, 2), (1, 3), (2, 2), (2, 3)]));
    }

    #[test]
    fn huge_coordinates_are_clipped_correctly() {
        let size = Size::new(6, 4);
        let count =
            |polygon: &[[f64; 2]]| filled(polygon, size).iter().filter(|&&it| it == 1).count();
        for far in [1e5, 1e12, 1e300] {
            let huge = [[-far, -far], [far, -far], [far, far], [-far, far]];
            assert_eq!(count(&huge), 24, "{far}");
            let half = [[-far, -far], [3.0, -far], [3.0, far], [-far, far]];
            assert_eq!(count(&half), 12, "{far}");
        }
        let broken = [[f64::NAN, f64::INFINITY], [f64::NEG_INFINITY, 0.0], [1.0, f64::NAN]];
        filled(&broken, size);
        assert_eq!(count(&[]), 0);
    }
}
