//! Compares affine and perspective maps with Pillow and torchvision.
//! `tests/golden/operators/warps.py` writes the expected results.

use serde_json::Value;

use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::op::spatial::affine::formula::{self as affine, Affine};
use feedwater::internals::op::spatial::perspective::formula as perspective;
use feedwater::internals::op::spatial::rotate::formula as rotate;
use feedwater::internals::op::warp::{self, Interpolation, Warp};
use feedwater::internals::random::SampleKey;
use feedwater::op::{self, Operator};

use super::device;
use crate::golden::{digest, integers, numbers, picture, size};

fn rows(table: &str) -> Vec<Value> {
    crate::golden::rows(include_str!("../../golden/operators/warps.json"), table)
}

fn interpolation(row: &Value) -> Interpolation {
    serde_json::from_value(row["filter"].clone()).unwrap()
}

fn fill(row: &Value) -> [u8; 3] {
    integers(&row["fill"]).map(|it| it as u8)
}

/// Returns the image that the reference implementation computes. Checks that the kernel computes
/// the same image. Also checks that its rows, and those of two windows, can be computed from the
/// demanded part of the input alone.
fn run(warp: &Warp, src: &Image<u8>, output: Size) -> Image<u8> {
    let read = |x: i32, y: i32| src.pixel(x as u32, y as u32);
    let mut out = Image::new(output.window());
    for y in 0..output.height {
        for x in 0..output.width {
            out.set_pixel(x, y, warp::pixel(warp, &[], &read, x as i32, y as i32));
        }
    }
    let kernel = device::warped(warp, &[], src, src.window().size(), output);
    assert!(kernel == out.data(), "kernel of {warp:?}");
    let (width, height) = (output.width, output.height);
    let part = Roi::new(width / 3, height / 4, width.div_ceil(2), height.div_ceil(2));
    let point = Roi::new(width - 1, height / 2, 1, 1);
    for wanted in [output.window(), part, point] {
        let input = warp::demand(warp, &[], src.window().size(), wanted);
        assert!(src.window().contains(input) && !input.is_empty(), "{input}");
        let mut cut = Image::new(input);
        for y in input.y..input.bottom() {
            let row = &src.row(y)[3 * input.x as usize..][..3 * input.width as usize];
            cut.row_mut(y).copy_from_slice(row);
        }
        for y in wanted.y..wanted.bottom() {
            let mut row = vec![[77; 3]; wanted.width as usize];
            warp::row(warp, &[], &cut, wanted.x, y, &mut row);
            let expected = &out.row(y)[3 * wanted.x as usize..][..3 * wanted.width as usize];
            assert_eq!(row.as_flattened(), expected, "row {y} of {wanted} by {warp:?}");
        }
    }
    out
}

/// Checks that an operator gives the result that the golden data has for its formula.
#[track_caller]
fn check_operator(row: &Value, operator: &dyn Operator, seed: u64) {
    let source = HostImage::U8(picture(size(&row["source"]), seed));
    assert_eq!(operator.check(), Ok(()), "{row}");
    let key = SampleKey { seed: 0, epoch: 0, index: 0 };
    let actions = Actions::of([operator], key, source.window().size());
    let HostImage::U8(out) = actions.reference(&source) else { panic!("the result must be bytes") };
    assert_eq!(row["sha256"], digest(out.data()), "{operator:?} {row}");
}

#[track_caller]
fn check(row: &Value, warp: &Warp, seed: u64, output: Size) {
    let out = run(warp, &picture(size(&row["source"]), seed), output);
    assert_eq!(row["sha256"], digest(out.data()), "{row}");
}

#[test]
fn affine_maps_are_pillows() {
    for row in rows("affine_maps") {
        let output = size(&row["output"]);
        let matrix = numbers(&row["map"]);
        let warp =
            Warp::affine(size(&row["source"]), output, matrix, interpolation(&row), fill(&row));
        check(&row, &warp, 11, output);
    }
}

#[test]
fn perspective_maps_are_pillows() {
    for row in rows("perspective_maps") {
        let source = size(&row["source"]);
        let map = numbers(&row["map"]);
        let warp = Warp::perspective(source, map, interpolation(&row), fill(&row));
        check(&row, &warp, 12, source);
    }
}

#[test]
fn rotations_are_torchvisions() {
    for row in rows("rotations") {
        let [angle] = numbers(&row["angle"]);
        let center = row["center"].is_string().then(|| numbers(&row["center"]));
        let expand = row["expand"].as_bool().unwrap();
        let source = size(&row["source"]);
        let (output, warp) =
            rotate::rotate(source, angle, expand, center, interpolation(&row), fill(&row));
        assert_eq!(output, size(&row["size"]), "{row}");
        check(&row, &warp, 13, output);
        let (interpolation, fill) = (interpolation(&row), fill(&row));
        check_operator(&row, &op::Rotate { angle, interpolation, expand, center, fill }, 13);
    }
}

#[test]
fn affine_transforms_are_torchvisions() {
    for row in rows("affines") {
        let source = size(&row["source"]);
        let affine = Affine {
            angle: numbers::<1>(&row["angle"])[0],
            translate: numbers(&row["translate"]),
            scale: numbers::<1>(&row["scale"])[0],
            shear: numbers(&row["shear"]),
            center: row["center"].is_string().then(|| numbers(&row["center"])),
        };
        let (interpolation, fill) = (interpolation(&row), [9, 8, 7]);
        check(&row, &affine.warp(source, interpolation, fill), 14, source);
        let Affine { angle, translate, scale, shear, center } = affine;
        let operator = op::Affine { angle, translate, scale, shear, interpolation, center, fill };
        check_operator(&row, &operator, 14);
    }
}

#[test]
fn moves_of_policies_are_torchvisions() {
    for row in rows("policy_moves") {
        let source = size(&row["source"]);
        let [magnitude] = numbers(&row["magnitude"]);
        let fill = [5, 6, 7];
        let affine = match row["operation"].as_str().unwrap() {
            "ShearX" => affine::policy::shear_x(magnitude),
            "ShearY" => affine::policy::shear_y(magnitude),
            "TranslateX" => affine::policy::translate_x(magnitude),
            "TranslateY" => affine::policy::translate_y(magnitude),
            _ => {
                let (output, warp) =
                    rotate::rotate(source, magnitude, false, None, interpolation(&row), fill);
                check(&row, &warp, 15, output);
                continue;
            }
        };
        check(&row, &affine.warp(source, interpolation(&row), fill), 15, source);
    }
}

#[test]
fn perspectives_by_corners_are_torchvisions() {
    for row in rows("corners") {
        let source = size(&row["source"]);
        let corners =
            |key: &str| [0, 1, 2, 3].map(|at| integers(&row[key][at]).map(|it| it as i32));
        let theirs = numbers::<8>(&row["coefficients"]);
        let ours = perspective::coefficients(&corners("start"), &corners("end"));
        for (a, b) in ours.into_iter().zip(theirs) {
            assert!((a - b).abs() <= 1e-12 + b.abs() * f64::from(f32::EPSILON), "{ours:?} {row}");
        }
        let warp = Warp::perspective(source, theirs, Interpolation::Bilinear, [1, 2, 3]);
        check(&row, &warp, 16, source);
    }
}
