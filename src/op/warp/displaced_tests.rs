//! Positions in displaced images ([`Displaced`]), with fields of the operator `elastic`.

use super::field::{Field, Smoothness};
use crate::geometry::{BoundingBox, Displaced, Size};

use std::iter::once;

/// Difference between a point of the input and the position that the output shows at `at`.
fn distance(field: &Displaced<'_>, at: (f64, f64), wanted: (f64, f64)) -> (f64, f64) {
    let (x, y) = field.source(at.0, at.1);
    (wanted.0 - x, wanted.1 - y)
}

fn is_small((x, y): (f64, f64)) -> bool {
    x.abs() <= 0.005 && y.abs() <= 0.005
}

fn pixels(displacement: i32) -> f64 {
    f64::from(displacement) / 65536.0
}

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
                    let error = distance(&field, at, (x, y));
                    assert!(is_small(error), "{size} {alpha} {sigma} {of:?}: {error:?}");
                    // The first steps of the fixed-point iteration alone do not suffice.
                    let mut first = (x, y);
                    for _ in 0..40 {
                        let error = distance(&field, first, (x, y));
                        first = (first.0 + error.0, first.1 + error.1);
                    }
                    searched += usize::from(!is_small(distance(&field, first, (x, y))));
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
        let (x, y) = distance(&field, at, of);
        let squared = |(x, y): (f64, f64)| x * x + y * y;
        let centres = (0..30 * 20).map(|at| (f64::from(at % 30) + 0.5, f64::from(at / 30) + 0.5));
        let nearest =
            centres.map(|at| squared(distance(&field, at, of))).fold(f64::INFINITY, f64::min);
        assert!(squared((x, y)) <= nearest + 0.005, "{of:?}");
    }
}

/// Box around the targets of the corners, and around the parts of all lines between neighbouring
/// centres whose sources lie in the box. The first and the last line are far outside of the image.
fn reference(field: &Displaced<'_>, size: Size, of: &BoundingBox) -> Option<BoundingBox> {
    let far = |edges: [f64; 2], reach: f64, len: u32| {
        let len = f64::from(len);
        [(edges[0] - reach - 1.0).min(-0.5), (edges[1] + reach + 1.0).max(len + 0.5)]
    };
    let positions = |far: [f64; 2], len: u32| -> Vec<f64> {
        let centres = (0..len).map(|at| f64::from(at) + 0.5);
        once(far[0]).chain(centres).chain(once(far[1])).collect()
    };
    let reach = field.reach();
    let xs = positions(far([of.left, of.right], reach[0], size.width), size.width);
    let ys = positions(far([of.top, of.bottom], reach[1], size.height), size.height);
    let mut found = Vec::new();
    for corner in [of.left, of.right].iter().flat_map(|&x| [(x, of.top), (x, of.bottom)]) {
        let at = field.target(corner.0, corner.1);
        if is_small(distance(field, at, corner)) {
            found.push(at);
        }
    }
    let mut add = |from: (f64, f64), to: (f64, f64)| {
        let (a, b) = (field.source(from.0, from.1), field.source(to.0, to.1));
        let mut parts = [0.0, 1.0_f64];
        for (a, b, low, high) in [(a.0, b.0, of.left, of.right), (a.1, b.1, of.top, of.bottom)] {
            let cut = match a == b {
                true if low <= a && a <= high => [0.0, 1.0],
                true => [2.0, -1.0],
                false if a < b => [(low - a) / (b - a), (high - a) / (b - a)],
                false => [(high - a) / (b - a), (low - a) / (b - a)],
            };
            parts = [parts[0].max(cut[0]), parts[1].min(cut[1])];
        }
        if parts[0] <= parts[1] {
            let at = |t: f64| (from.0 + (to.0 - from.0) * t, from.1 + (to.1 - from.1) * t);
            found.extend(parts.map(at));
        }
    };
    for (row, &y) in ys.iter().enumerate() {
        for (column, &x) in xs.iter().enumerate() {
            if (1..=size.height as usize).contains(&row) && column + 1 < xs.len() {
                add((x, y), (xs[column + 1], y));
            }
            if (1..=size.width as usize).contains(&column) && row + 1 < ys.len() {
                add((x, y), (x, ys[row + 1]));
            }
        }
    }
    found.into_iter().fold(None, |around: Option<BoundingBox>, (x, y)| {
        let around = around.unwrap_or(BoundingBox { left: x, top: y, right: x, bottom: y });
        Some(BoundingBox {
            left: around.left.min(x),
            top: around.top.min(y),
            right: around.right.max(x),
            bottom: around.bottom.max(y),
        })
    })
}

/// Boxes in, at and outside of the image, also smaller than a pixel, in smooth, folded and torn
/// fields. Each pixel whose origin is in the box lies in the moved box.
#[test]
fn a_box_is_around_all_positions_of_its_places() {
    let (mut folded, mut missed) = (0, 0);
    for (width, height) in [(1, 1), (1, 9), (33, 5), (41, 30)] {
        let size = Size::new(width, height);
        for (alpha, sigma) in [(0.0, 0.0), (30.0, 4.0), (200.0, 3.0), (90.0, 1.0), (12.0, 0.0)] {
            for key in 0..4 {
                let table = table(size, alpha, sigma, key);
                let field = Displaced::new(&table, size);
                for number in 0..12_u32 {
                    let part = |by: u32| f64::from((number + 13 * key) * by % 101) / 101.0;
                    let [x, y] = [(part(37), width), (part(53), height)]
                        .map(|(part, len)| part * f64::from(len) * 1.4 - 2.0);
                    let [across, down] = [(part(71), width), (part(29), height)]
                        .map(|(part, len)| part * part * f64::from(len));
                    let of = BoundingBox::new(x, y, across, down);
                    let found = field.bounding_box(&of, field.reach());
                    assert_eq!(
                        found,
                        reference(&field, size, &of),
                        "{size} {alpha} {sigma} {of:?}"
                    );
                    let Some(found) = found else {
                        missed += 1;
                        continue;
                    };
                    let contains = |of: &BoundingBox, (x, y): (f64, f64)| {
                        of.left <= x && x <= of.right && of.top <= y && y <= of.bottom
                    };
                    let corners = [of.left, of.right].map(|x| [of.top, of.bottom].map(|y| (x, y)));
                    let mut moved = BoundingBox { left: 1e9, top: 1e9, right: -1e9, bottom: -1e9 };
                    for (x, y) in corners.as_flattened().iter().map(|it| field.target(it.0, it.1)) {
                        moved.left = moved.left.min(x - 1.5);
                        moved.right = moved.right.max(x + 1.5);
                        moved.top = moved.top.min(y - 1.5);
                        moved.bottom = moved.bottom.max(y + 1.5);
                    }
                    for at in 0..width * height {
                        let centre = (f64::from(at % width) + 0.5, f64::from(at / width) + 0.5);
                        if contains(&of, field.source(centre.0, centre.1)) {
                            assert!(contains(&found, centre), "{size} {alpha} {sigma} {of:?}");
                            folded += usize::from(!contains(&moved, centre));
                        }
                    }
                    if alpha == 0.0 {
                        let edges = |it: &BoundingBox| [it.left, it.top, it.right, it.bottom];
                        let pairs = std::iter::zip(edges(&found), edges(&of));
                        let is_same = pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-12);
                        assert!(is_same, "{found:?} {of:?}");
                    }
                }
            }
        }
    }
    assert!(folded > 200, "{folded} pixels are outside of the moved corners");
    assert!(missed < 20, "{missed} boxes");
}
