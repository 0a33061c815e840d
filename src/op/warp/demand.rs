//! Computes the window of the input that a warp reads.

use crate::geometry::{Roi, Size};

use super::{Positions, Warp};

/// Returns the window of the input that a warp can read for the window `wanted` of the output. The
/// window may be a few pixels larger than needed and is never empty. `input` is the size of the
/// input, and `table` is the displacement table.
pub fn demand(warp: &Warp, table: &[i32], input: Size, wanted: Roi) -> Roi {
    let bounds = match warp.positions() {
        Positions::Displaced => displaced(table, wanted),
        _ => mapped(warp, wanted),
    };
    let Some([left, top, right, bottom]) = bounds else { return input.window() };
    // Bicubic interpolation reads two pixels beyond a position. Rounding moves positions that are
    // computed by repeated addition or with integers, but by less than half a pixel. So a margin of
    // three pixels is enough.
    const MARGIN: f64 = 3.0;
    let axis = |low: f64, high: f64, len: u32| {
        let most = f64::from(len);
        let first = (low - MARGIN).floor().clamp(0.0, most - 1.0) as u32;
        let end = (high + MARGIN).ceil().clamp(f64::from(first) + 1.0, most) as u32;
        (first, end - first)
    };
    let (x, width) = axis(left, right, input.width);
    let (y, height) = axis(top, bottom, input.height);
    Roi::new(x, y, width, height)
}

/// Bounds of the input positions of a window of the output: left, top, right, bottom. `None` if a
/// position can be infinite.
fn mapped(warp: &Warp, wanted: Roi) -> Option<[f64; 4]> {
    let (left, top) = (f64::from(wanted.x) + 0.5, f64::from(wanted.y) + 0.5);
    let (right, bottom) = (f64::from(wanted.right()) - 0.5, f64::from(wanted.bottom()) - 0.5);
    let corners = [(left, top), (right, top), (left, bottom), (right, bottom)];
    let of = |number: usize| match warp.positions() {
        Positions::Whole => f64::from(warp.integer(number)),
        Positions::Fixed => f64::from(warp.integer(number)) / 65536.0,
        _ => warp.real(number),
    };
    // The maps `Whole` and `Fixed` take coordinates relative to the centre of the first output
    // pixel. The other maps take coordinates relative to its corner.
    let half =
        if matches!(warp.positions(), Positions::Whole | Positions::Fixed) { 0.5 } else { 0.0 };
    let divisor = |x: f64, y: f64| match warp.positions() {
        Positions::Perspective => of(6) * x + of(7) * y + 1.0,
        _ => 1.0,
    };
    // The corners bound the mapped window only if the divisor has the same sign in the whole
    // window: where the divisor is 0, the position is infinite.
    let signs = corners.map(|(x, y)| divisor(x, y));
    if !signs.iter().all(|it| *it > 1e-9) && !signs.iter().all(|it| *it < -1e-9) {
        return None;
    }
    let positions = corners.map(|(x, y)| {
        let at = |first| of(first) * (x - half) + of(first + 1) * (y - half) + of(first + 2);
        (at(0) / divisor(x, y), at(3) / divisor(x, y))
    });
    let bounds = around(positions);
    bounds.iter().all(|it| it.is_finite()).then_some(bounds)
}

fn displaced(table: &[i32], wanted: Roi) -> Option<[f64; 4]> {
    let mut bounds = [i32::MAX, i32::MAX, i32::MIN, i32::MIN];
    for pair in table.chunks_exact(2) {
        let [left, top, right, bottom] = bounds;
        bounds = [left.min(pair[0]), top.min(pair[1]), right.max(pair[0]), bottom.max(pair[1])];
    }
    let [left, top, right, bottom] = bounds.map(|it| f64::from(it) / 65536.0);
    Some([
        f64::from(wanted.x) + left,
        f64::from(wanted.y) + top,
        f64::from(wanted.right()) + right,
        f64::from(wanted.bottom()) + bottom,
    ])
}

fn around(points: [(f64, f64); 4]) -> [f64; 4] {
    let none = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
    points.into_iter().fold(none, |[left, top, right, bottom], (x, y)| {
        [left.min(x), top.min(y), right.max(x), bottom.max(y)]
    })
}
