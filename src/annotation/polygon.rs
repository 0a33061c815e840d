//! Fills polygons by the rule of COCO's tools.

use crate::geometry::Size;

/// The boundary of a polygon is traced with this many points per pixel of its length.
const SCALE: f64 = 5.0;

/// Calls `set` with every pixel that lies in the polygon, in an image of size `size`. The result
/// and the order of operations are those of pycocotools' `rleFrPoly` (`maskApi.c`). A pixel may be
/// reported more than once.
///
/// The boundary is traced in fifths of a pixel. Where it crosses the middle of a column, a run of
/// pixels of this column begins or ends. Polygons that extend far beyond the image are clipped
/// first, so malicious coordinates do not take long.
pub fn fill(polygon: &[[f64; 2]], size: Size, mut set: impl FnMut(u32, u32)) {
    if size.pixels() == 0 {
        return;
    }
    let cut;
    let polygon = match polygon.iter().all(|point| is_near(point, size)) {
        true => polygon,
        false => {
            cut = clip(polygon, far(size));
            &cut
        }
    };
    let rows = u64::from(size.height);
    let mut crossings = Vec::new();
    cross(polygon, size, |at| crossings.push(at));
    crossings.sort_unstable();
    for run in crossings.chunks(2) {
        let end = run.get(1).copied().unwrap_or(size.pixels());
        for at in run[0]..end {
            set((at / rows) as u32, (at % rows) as u32);
        }
    }
}

/// Largest distance of a point from the origin on each axis at which a polygon need not be clipped.
fn far(size: Size) -> f64 {
    f64::from(size.width.max(size.height)) * 8.0 + 64.0
}

/// Whether a point of a polygon is in or near an image of this size, as [`cross`] requires.
pub fn is_near(point: &[f64; 2], size: Size) -> bool {
    point.iter().all(|position| position.abs() <= far(size))
}

/// Calls `each` with the pixels at which runs of a polygon begin or end, in any order. Pixels are
/// counted column by column. After the last pixel of the image comes its number of pixels. A pixel
/// is in the polygon if the number of calls with this or an earlier pixel is odd. All points must
/// be [near](is_near).
pub fn cross(polygon: &[[f64; 2]], size: Size, mut each: impl FnMut(u64)) {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let rows = u64::from(size.height);
    let mut last: Option<(i64, i64)> = None;
    walk(polygon, |u, v| {
        if let Some((from_u, from_v)) = last.replace((u, v))
            && u != from_u
        {
            let x = (if u < from_u { u } else { u - 1 }) as f64;
            let x = (x + 0.5) / SCALE - 0.5;
            if x.floor() == x && x >= 0.0 && x <= width - 1.0 {
                let y = (v.min(from_v) as f64 + 0.5) / SCALE - 0.5;
                each(x as u64 * rows + y.clamp(0.0, height).ceil() as u64);
            }
        }
    });
}

/// Visits the points of the boundary in order. Coordinates are in fifths of a pixel.
fn walk(polygon: &[[f64; 2]], mut visit: impl FnMut(i64, i64)) {
    let fine = |&[x, y]: &[f64; 2]| [x, y].map(|it| (SCALE * it + 0.5) as i64);
    let ends = polygon.iter().cycle().skip(1);
    for ([mut xs, mut ys], [mut xe, mut ye]) in polygon.iter().map(fine).zip(ends.map(fine)) {
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

    fn filled(polygon: &[[f64; 2]], size: Size) -> Vec<(u32, u32)> {
        let mut pixels = Vec::new();
        fill(polygon, size, |x, y| pixels.push((x, y)));
        pixels.sort_unstable();
        pixels
    }

    #[test]
    fn a_square_covers_its_pixels() {
        let square = [[1.0, 2.0], [3.0, 2.0], [3.0, 4.0], [1.0, 4.0]];
        assert_eq!(filled(&square, Size::new(5, 6)), [(1, 2), (1, 3), (2, 2), (2, 3)]);
    }

    #[test]
    fn huge_coordinates_are_clipped_quickly_and_correctly() {
        let size = Size::new(6, 4);
        for far in [1e5, 1e12, 1e300] {
            let huge = [[-far, -far], [far, -far], [far, far], [-far, far]];
            assert_eq!(filled(&huge, size).len(), 24, "{far}");
            let half = [[-far, -far], [3.0, -far], [3.0, far], [-far, far]];
            assert_eq!(filled(&half, size).len(), 12, "{far}");
        }
        let broken = [[f64::NAN, f64::INFINITY], [f64::NEG_INFINITY, 0.0], [1.0, f64::NAN]];
        filled(&broken, size);
        assert!(filled(&[], size).is_empty());
    }
}
