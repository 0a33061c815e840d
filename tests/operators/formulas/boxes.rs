//! Boxes, points and masks after chains with warps, compared with torchvision v2.
//! `tests/golden/operators/boxes.py` writes the expected results.

use serde_json::Value;

use feedwater::internals::geometry::{BoundingBox, Mapping, Roi, Size};
use feedwater::internals::op::spatial::affine::formula::Affine;
use feedwater::internals::op::spatial::perspective::formula as perspective;
use feedwater::internals::op::spatial::rotate::formula as rotate;
use feedwater::internals::op::warp::{Interpolation, Warp};

use crate::golden::{integers, numbers, rows, size};

/// Returns the tolerance in pixels. torchvision computes in f32, so results differ slightly. If a
/// rotation enlarges the canvas, Pillow centres the canvas on the rotated image, and torchvision
/// aligns it with the image's edge. Results then differ by up to a pixel.
fn tolerance(steps: &[Value]) -> f64 {
    let enlarges =
        steps.iter().any(|it| it[0] == "expand" && numbers::<1>(&it[1])[0] % 90.0 != 0.0);
    if enlarges { 1.6 } else { 2e-3 }
}

fn view(source: Size, steps: &[Value]) -> Mapping {
    let mut view = Mapping::new(source);
    for step in steps {
        let input = view.size;
        let warped = |view: &mut Mapping, (output, warp): (Size, Warp)| {
            view.warp(warp.back().unwrap(), output);
        };
        let nearest = Interpolation::Nearest;
        let number = |at: usize| step[at].as_u64().unwrap() as u32;
        match step[0].as_str().unwrap() {
            "crop" => {
                view.crop((number(1).into(), number(2).into()), Size::new(number(3), number(4)))
            }
            "flip" => view.flip(true, false),
            "resize" => view.resize(input.window(), Size::new(number(1), number(2))),
            name @ ("rotate" | "expand") => {
                let [angle] = numbers(&step[1]);
                let expand = name == "expand";
                warped(&mut view, rotate::rotate(input, angle, expand, None, nearest, [0; 3]));
            }
            "affine" => {
                let [angle, x, y, scale, shear_x, shear_y] = numbers(&step[1]);
                let (translate, shear) = ([x, y], [shear_x, shear_y]);
                let affine = Affine { angle, translate, scale, shear, center: None };
                warped(&mut view, (input, affine.warp(input, nearest, [0; 3])));
            }
            _ => {
                let end = [0, 1, 2, 3].map(|at| integers(&step[1][at]).map(|it| it as i32));
                let map = perspective::coefficients(&perspective::corners(input), &end);
                warped(&mut view, (input, Warp::perspective(input, map, nearest, [0; 3])));
            }
        }
    }
    view
}

#[test]
fn boxes_points_and_masks_are_torchvisions() {
    let (mut kept, mut gone) = (0, 0);
    for row in rows(include_str!("../../golden/operators/boxes.json"), "chains") {
        let steps = row["steps"].as_array().unwrap();
        let source = size(&row["source"]);
        let view = view(source, steps);
        let to = size(&row["size"]);
        let tolerance = tolerance(steps);
        let most = if tolerance < 1.0 { 0 } else { 1 };
        assert!(view.size.width.abs_diff(to.width) <= most, "{row}");
        assert!(view.size.height.abs_diff(to.height) <= most, "{row}");
        let near = |a: f64, b: f64| (a - b).abs() < tolerance;
        let list = |key: &str| row[key].as_array().unwrap().clone();
        for (of, expected) in list("boxes").iter().zip(&list("to_boxes")) {
            let [left, top, right, bottom] = numbers(of);
            let ours = view.bounding_box(&BoundingBox { left, top, right, bottom });
            let ours = ours.intersection(&Mapping::new(view.size).visible);
            let [left, top, right, bottom] = numbers(expected);
            let theirs = BoundingBox { left, top, right, bottom };
            // If a box is outside of a crop, torchvision keeps a box without area. A later rotation
            // would give this box an area, so such boxes are not compared.
            let crop = steps.iter().find(|it| it[0] == "crop");
            let crop = crop.map_or(Mapping::new(source).visible, |it| {
                let [x, y, width, height] = [1, 2, 3, 4].map(|at| it[at].as_f64().unwrap());
                BoundingBox::new(x, y, width, height)
            });
            let [left, top, right, bottom] = numbers(of);
            let outside =
                BoundingBox { left, top, right, bottom }.intersection(&crop).area() == 0.0;
            if theirs.area() < 1.0 || outside {
                assert!(ours.area() < 1.0 + 100.0 * tolerance, "{ours:?} {theirs:?} {row}");
                gone += 1;
                continue;
            }
            let edges = |it: BoundingBox| [it.left, it.top, it.right, it.bottom];
            let same = edges(ours).into_iter().zip(edges(theirs)).all(|(a, b)| near(a, b));
            assert!(same, "{ours:?} {theirs:?} {row}");
            kept += 1;
        }
        // To mirror points, torchvision measures from the centre of the first pixel. To rotate
        // them, it measures from the edge of this pixel. So mirrored points may differ by 1.5
        // pixels more.
        let flips = if steps.iter().any(|it| it[0] == "flip") { 1.5 } else { 0.0 };
        for (of, expected) in list("points").iter().zip(&list("to_points")) {
            let ([x, y], [to_x, to_y]) = (numbers(of), numbers(expected));
            let (x, y) = view.point(x, y);
            let same = (x - to_x).abs() < tolerance + flips && (y - to_y).abs() < tolerance + flips;
            assert!(same, "{x} {y} {expected} {row}");
        }
        if tolerance < 1.0 {
            masks_agree(&view, source, row["to_mask"].as_str().unwrap());
        }
    }
    assert!(kept > 60 && gone > 0, "{kept} {gone}");
}

/// Compares the mask of an ellipse with torchvision's. A few pixels at its edge may differ, because
/// positions are rounded differently.
fn masks_agree(view: &Mapping, source: Size, expected: &str) {
    let [width, height] = [source.width, source.height].map(f64::from);
    let ellipse = |x: f64, y: f64| {
        let (x, y) = (x.floor() - width / 3.0, 2.0 * y.floor() - height / 2.0);
        x * x + y * y < (height / 1.5) * (height / 1.5)
    };
    let bits = expected.chars().flat_map(|digit| {
        let digit = digit.to_digit(16).unwrap();
        [8, 4, 2, 1].map(|bit| digit & bit != 0)
    });
    // The number was stored with a leading 1 bit, which preserves leading zeros. This bit is not a
    // pixel.
    let bits: Vec<bool> = bits.skip_while(|bit| !bit).skip(1).collect();
    let Roi { width, height, .. } = view.size.window();
    assert_eq!(bits.len() as u32, width * height);
    let at = |number: u32| (f64::from(number % width) + 0.5, f64::from(number / width) + 0.5);
    let ours = (0..width * height)
        .map(at)
        .map(|(x, y)| view.back(x, y).is_some_and(|(x, y)| ellipse(x, y)));
    let wrong = ours.zip(&bits).filter(|(ours, theirs)| ours != *theirs).count();
    assert!(bits.iter().any(|bit| *bit) && wrong * 60 <= bits.len(), "{wrong} of {}", bits.len());
}
