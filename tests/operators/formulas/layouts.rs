//! Compares sizes, positions and displacements with torchvision, Pillow and Ultralytics.
//! `tests/golden/operators/layouts.py` writes the expected results.

use serde_json::Value;

use feedwater::internals::geometry::{BoundingBox, Roi, Size};
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::op::filter::box_blur::formula::BoxBlur;
use feedwater::internals::op::filter::box_blur::{self, BoxBlurred};
use feedwater::internals::op::shared::padding::{PadMode, Padding};
use feedwater::internals::op::spatial::affine::formula::Ranges;
use feedwater::internals::op::spatial::letterbox::formula::Letterbox;
use feedwater::internals::op::spatial::perspective::formula as perspective;
use feedwater::internals::op::spatial::random_iou_crop::formula::{self as iou_crop, IouCrop};
use feedwater::internals::op::spatial::rotate::formula as rotate;
use feedwater::internals::op::spatial::{
    random_shortest_size, random_zoom_out, scale_jitter, thumbnail,
};
use feedwater::internals::op::warp::field::Smoothness;
use feedwater::internals::op::warp::{self, Interpolation, Warp};
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::op::{self, Draw, Filter, Kind, Kinds, Operator};

use super::device;
use super::pictures::bytes;
use super::samples::assert_same_quantiles;
use crate::golden::{digest, integers, numbers, picture, size};

fn rows(table: &str) -> Vec<Value> {
    crate::golden::rows(include_str!("../../golden/operators/layouts.json"), table)
}

fn padding(value: &Value) -> Padding {
    let [left, top, right, bottom] = integers(value).map(|it| it as i32);
    Padding { left, top, right, bottom }
}

fn flag(row: &Value, key: &str) -> bool {
    row[key].as_bool().unwrap()
}

#[test]
fn padded_images_are_torchvisions() {
    for row in rows("pads") {
        let source = picture(size(&row["source"]), 21);
        let input = source.window().size();
        let padding = padding(&row["padding"]);
        let mode: PadMode = serde_json::from_value(row["mode"].clone()).unwrap();
        let output = padding.output(input).unwrap();
        assert_eq!(output, size(&row["size"]), "{row}");
        let (columns, rows) = (padding.columns(mode, input), padding.rows(mode, input));
        let mut out = Image::<u8>::new(output.window());
        for y in 0..output.height {
            for x in 0..output.width {
                let at = columns.at(x).zip(rows.at(y));
                let pixel = at.map_or([9, 8, 7], |(x, y)| source.pixel(x, y));
                out.set_pixel(x, y, pixel);
                let demanded = padding.demand(mode, input, Roi::new(x, y, 1, 1));
                assert!(input.window().contains(demanded), "{row}");
                let (x, y) = at.unwrap_or((demanded.x, demanded.y));
                assert!(demanded.contains(Roi::new(x, y, 1, 1)), "{row}");
            }
        }
        assert_eq!(row["sha256"], digest(out.data()), "{row}");
        let sides: Vec<i64> = integers::<4>(&row["padding"]).to_vec();
        let Ok(sides) = sides.iter().map(|&side| side.try_into()).collect::<Result<Vec<u32>, _>>()
        else {
            continue;
        };
        let constant = mode == PadMode::Constant;
        let fill = if constant { [9.0, 8.0, 7.0] } else { [0.0; 3] };
        let operator = op::Pad { padding: sides.try_into().unwrap(), fill, mode };
        let drawn = Actions::of([&operator as &dyn Operator], SampleKey::default(), input);
        let HostImage::U8(padded) = drawn.reference(&HostImage::U8(source)) else {
            panic!("the result must be bytes");
        };
        assert_eq!(row["sha256"], digest(padded.data()), "{row}");
    }
}

#[test]
fn padding_that_leaves_nothing_has_no_size() {
    let padding = Padding { left: -3, right: -2, ..Padding::default() };
    assert_eq!(padding.output(Size::new(5, 4)), None);
    assert_eq!(padding.output(Size::new(6, 4)), Some(Size::new(1, 4)));
}

#[test]
fn letterboxes_are_placed_as_by_ultralytics() {
    for row in rows("letterboxes") {
        let letterbox = Letterbox {
            output: size(&row["output"]),
            scale_up: flag(&row, "scale_up"),
            center: flag(&row, "center"),
            stride: flag(&row, "auto").then_some(32),
        };
        let (resized, around) = letterbox.place(size(&row["source"]));
        assert_eq!((resized, around), (size(&row["resized"]), padding(&row["padding"])), "{row}");
        if letterbox.stride.is_none() {
            assert_eq!(around.output(resized), Some(letterbox.output), "{row}");
        }
    }
}

#[test]
fn thumbnails_have_pillows_sizes() {
    for row in rows("thumbnails") {
        let ours = thumbnail::size(size(&row["source"]), size(&row["most"]));
        assert_eq!(ours, size(&row["size"]), "{row}");
    }
}

#[test]
fn random_sizes_are_torchvisions() {
    for row in rows("random_sizes") {
        let source = size(&row["source"]);
        let result: Vec<i64> = serde_json::from_value(row["result"].clone()).unwrap();
        let drawn = |size: Size| vec![i64::from(size.width), i64::from(size.height)];
        // feedwater's sides have at least 1 pixel. torchvision computes 0 and then fails.
        let result: Vec<i64> = match row["name"].as_str().unwrap() {
            "zoom_out" => result,
            _ => result.into_iter().map(|it| it.max(1)).collect(),
        };
        let ours = match row["name"].as_str().unwrap() {
            "zoom_out" => {
                let [factor, x, y] = numbers(&row["numbers"]).map(|it| it as f32);
                let Padding { left, top, right, bottom } =
                    random_zoom_out::zoom_out(source, factor, [x, y]);
                [left, top, right, bottom].map(i64::from).to_vec()
            }
            "scale_jitter" => {
                let [scale] = numbers(&row["numbers"]);
                drawn(scale_jitter::scale_jitter(source, Size::new(1024, 600), scale as f32))
            }
            _ => {
                let [shorter, longest] = numbers(&row["numbers"]).map(|it| it as u32);
                drawn(random_shortest_size::shortest_size(
                    source,
                    shorter,
                    (longest > 0).then_some(longest),
                ))
            }
        };
        assert_eq!(ours, result, "{row}");
    }
}

#[test]
fn crops_by_overlap_are_torchvisions() {
    for row in rows("iou_crops") {
        let source = size(&row["source"]);
        let boxes: Vec<BoundingBox> = row["boxes"]
            .as_array()
            .unwrap()
            .iter()
            .map(numbers)
            .map(|[left, top, right, bottom]| BoundingBox { left, top, right, bottom })
            .collect();
        let [x, y, left, top] = numbers(&row["numbers"]).map(|it| it as f32);
        let [overlap] = numbers(&row["overlap"]);
        let sides = IouCrop::default().sides(source, [x, y]);
        let crop = sides.and_then(|it| iou_crop::placed(source, it, [left, top], &boxes, overlap));
        let expected = (!row["result"].is_null()).then(|| {
            let [x, y, width, height] = integers(&row["result"]).map(|it| it as u32);
            Roi::new(x, y, width, height)
        });
        assert_eq!(crop, expected, "{row}");
        if let Some(crop) = crop {
            let kept: Vec<bool> = boxes.iter().map(|of| iou_crop::keeps(crop, of)).collect();
            assert_eq!(row["kept"], serde_json::json!(kept), "{row}");
        }
    }
}

#[test]
fn pictures_of_operators_are_those_of_the_libraries() {
    for row in rows("pictures") {
        let source = HostImage::U8(picture(size(&row["source"]), 23));
        let filter = Filter::Bilinear;
        let operator: Box<dyn Operator> = match row["name"].as_str().unwrap() {
            "thumbnail" => Box::new(op::Thumbnail::within(20, 13)),
            "letterbox" => Box::new(op::Letterbox::to(36, 40)),
            "pad" => Box::new(op::Pad::constant([3, 0, 5, 7], [9.0, 8.0, 7.0])),
            "perspective" => Box::new(op::Perspective {
                start: None,
                end: [[3, 1], [19, 2], [20, 17], [1, 18]],
                interpolation: Interpolation::Bilinear,
                fill: [5, 6, 7],
            }),
            _ => {
                Box::new(op::RandomShortestSize { min_size: vec![13], max_size: Some(20), filter })
            }
        };
        let input = source.window().size();
        let key = SampleKey { seed: 0, epoch: 0, index: 0 };
        let HostImage::U8(out) = Actions::of([&*operator], key, input).reference(&source) else {
            panic!("the result must be bytes");
        };
        assert_eq!(out.window().size(), size(&row["size"]), "{row}");
        assert_eq!(row["sha256"], digest(out.data()), "{row}");
        assert_eq!(operator.fixed_output(Some(input)), Some(out.window().size()), "{row}");
    }
}

/// An operator that applies the Gaussian blur of policies with a given radius.
#[derive(Debug)]
struct Blurred(f64);

impl Operator for Blurred {
    fn name(&self) -> &'static str {
        "blurred"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::image::<BoxBlurred>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        box_blur::draw(draw, self.0);
    }
}

#[test]
fn box_blurs_are_pillows() {
    for row in rows("blurs") {
        let source = picture(size(&row["source"]), 24);
        let blur = BoxBlur::gaussian(numbers::<1>(&row["radius"])[0] as f32);
        let Roi { width, height, .. } = source.window();
        let (width, height) = (width as usize, height as usize);
        let mut pixels: Vec<[u8; 3]> = source.data().as_chunks().0.to_vec();
        let blurred = |pixels: &[[u8; 3]], width: usize| {
            let mut lines = pixels.to_vec();
            for _ in 0..BoxBlur::PASSES {
                let before = lines.clone();
                let rows = before.chunks(width).zip(lines.chunks_mut(width));
                rows.for_each(|(line, out)| blur.pass(line, out));
            }
            lines
        };
        let transposed = |pixels: &[[u8; 3]], width: usize, height: usize| -> Vec<[u8; 3]> {
            (0..width * height).map(|at| pixels[at % height * width + at / height]).collect()
        };
        pixels = blurred(&pixels, width);
        pixels = blurred(&transposed(&pixels, width, height), height);
        pixels = transposed(&pixels, height, width);
        assert_eq!(row["sha256"], digest(pixels.as_flattened()), "{row}");
        let [radius] = numbers(&row["radius"]);
        if radius <= box_blur::MAX_DEVIATION {
            let (operator, source) = (Blurred(radius), HostImage::U8(source));
            let size = source.window().size();
            let actions = Actions::of([&operator as &dyn Operator], SampleKey::default(), size);
            let found = actions.reference(&source);
            assert_eq!(row["sha256"], digest(bytes(&found)), "{row}");
        }
    }
}

/// Returns a generator of the same numbers as `noise` in tests/golden/operators/layouts.py.
fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut at = seed;
    move || {
        let mut value = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        at += 1;
        value ^= value >> 29;
        value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (value >> 40) as f32 / (1u32 << 24) as f32
    }
}

#[test]
fn elastic_images_are_torchvisions_up_to_one() {
    for row in rows("elastics") {
        let source = picture(size(&row["source"]), 22);
        let window = source.window();
        let (alpha, sigma, mut table) =
            (numbers(&row["alpha"]), numbers(&row["sigma"]), Vec::new());
        let uniform = |values: &mut [f32]| values.fill_with(noise(1));
        Smoothness { alpha, sigma }.append(window.size(), uniform, &mut table);
        let expected = numbers::<40>(&row["displacements"]);
        for (ours, theirs) in table.iter().zip(expected) {
            assert!((f64::from(*ours) / 65536.0 - theirs).abs() < 1e-4, "{ours} {theirs}");
        }
        let interpolation: Interpolation = serde_json::from_value(row["filter"].clone()).unwrap();
        let columns = window.width as i32;
        let warp = Warp::displaced(window.size(), (0, 0), columns, interpolation, [200, 0, 50]);
        let read = |x: i32, y: i32| source.pixel(x as u32, y as u32);
        let mut out = Image::<u8>::new(window);
        for y in 0..window.height {
            for x in 0..window.width {
                out.set_pixel(x, y, warp::pixel(&warp, &table, &read, x as i32, y as i32));
            }
        }
        let kernel = device::warped(&warp, &table, &source, window.size(), window.size());
        assert!(kernel == out.data(), "kernel");
        let expected = row["bytes"].as_str().unwrap();
        let bytes = expected
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        // With `nearest`, a position close to the middle between two pixels may be rounded to the
        // other pixel.
        let wrong =
            out.data().iter().zip(bytes).filter(|(ours, theirs)| ours.abs_diff(*theirs) > 1);
        let most = if interpolation == Interpolation::Nearest { 3 } else { 0 };
        assert!(wrong.count() <= most, "{:?}", window);
        parts_of_elastic_images_are_equal(&source, &table, interpolation, &out);
    }
}

/// Computes a window of an elastic image from the window's part of the table and from the demanded
/// part of the input only. The pixels must equal those of the whole image.
fn parts_of_elastic_images_are_equal(
    source: &Image<u8>,
    table: &[i32],
    interpolation: Interpolation,
    expected: &Image<u8>,
) {
    let input = source.window().size();
    let wanted = Roi::new(2, 3, input.width / 2, input.height / 2);
    let line = 2 * input.width as usize;
    let part: Vec<i32> = (wanted.y..wanted.bottom())
        .flat_map(|y| {
            &table[y as usize * line..][2 * wanted.x as usize..2 * wanted.right() as usize]
        })
        .copied()
        .collect();
    let origin = (wanted.x as i32, wanted.y as i32);
    let warp = Warp::displaced(input, origin, wanted.width as i32, interpolation, [200, 0, 50]);
    let demanded = warp::demand(&warp, &part, input, wanted);
    let mut cut = Image::<u8>::new(demanded);
    for y in demanded.y..demanded.bottom() {
        for x in demanded.x..demanded.right() {
            cut.set_pixel(x, y, source.pixel(x, y));
        }
    }
    for y in wanted.y..wanted.bottom() {
        let mut row = vec![[77; 3]; wanted.width as usize];
        warp::row(&warp, &part, &cut, wanted.x, y, &mut row);
        let expected = &expected.row(y)[3 * wanted.x as usize..][..3 * wanted.width as usize];
        assert_eq!(row.as_flattened(), expected);
    }
}

#[test]
fn elastic_images_may_be_smaller_than_the_blur() {
    for (width, height) in [(1, 1), (1, 7), (40, 2)] {
        let (size, mut table) = (Size::new(width, height), vec![7; 3]);
        let smoothness = Smoothness { alpha: [50.0; 2], sigma: [5.0; 2] };
        smoothness.append(size, |numbers| numbers.fill_with(noise(9)), &mut table);
        assert_eq!(table[..3], [7; 3]);
        table.drain(..3);
        assert_eq!(table.len() as u32, 2 * width * height);
    }
}

#[test]
fn numbers_are_distributed_as_in_torchvision() {
    let size = Size::new(64, 48);
    let boxes = [BoundingBox::new(5.0, 6.0, 25.0, 34.0), BoundingBox::new(40.0, 10.0, 20.0, 20.0)];
    let affine = Ranges {
        degrees: [-10.0, 20.0],
        translate: Some([0.1, 0.3]),
        scale: Some([0.5, 2.0]),
        shear_x: Some([-5.0, 5.0]),
        shear_y: Some([-20.0, 10.0]),
    };
    for row in rows("distributions") {
        let name = row["name"].as_str().unwrap();
        let words: Vec<&str> = name.split(' ').collect();
        let draw = |index: u64| -> f64 {
            let rng = &mut SampleRng::new(SampleKey { seed: 8, epoch: 0, index }, 0);
            let affine = || {
                affine.draw(size, &mut SampleRng::new(SampleKey { seed: 9, epoch: 0, index }, 0))
            };
            match (words[0], *words.last().unwrap()) {
                ("rotation", _) => rotate::draw([-30.0, 60.0], rng),
                ("affine", "angle") => affine().angle,
                ("affine", "x") => affine().translate[0],
                ("affine", "y") => affine().translate[1],
                ("affine", "scale") => affine().scale,
                ("affine", "shear_x") => affine().shear[0],
                ("affine", "shear_y") => affine().shear[1],
                ("perspective", axis) => {
                    let corner: usize = words[1].parse().unwrap();
                    perspective::draw(size, 0.6, rng)[corner][usize::from(axis == "y")].into()
                }
                ("zoom", part) => {
                    let (factor, place) = random_zoom_out::draw_zoom_out([1.0, 4.0], rng);
                    let padding = random_zoom_out::zoom_out(size, factor, place);
                    f64::from(match part {
                        "width" => padding.left + padding.right,
                        "left" => padding.left,
                        _ => padding.top,
                    })
                }
                ("jitter", _) => {
                    let scale = scale_jitter::draw_scale_jitter([0.1, 2.0], rng);
                    scale_jitter::scale_jitter(size, Size::new(64, 64), scale).width.into()
                }
                ("shortest", _) => {
                    let shorter = random_shortest_size::draw_shortest_size(&[10, 20, 40], rng);
                    random_shortest_size::shortest_size(size, shorter, None).height.into()
                }
                (_, part) => {
                    let crop = IouCrop::default().draw(size, &boxes, rng);
                    match part {
                        "left" => crop.map_or(-1.0, |it| it.x.into()),
                        "width" => crop.map_or(64.0, |it| it.width.into()),
                        _ => crop.map_or(48.0, |it| it.height.into()),
                    }
                }
            }
        };
        let count = row["count"].as_u64().unwrap();
        assert_same_quantiles(name, (0..count).map(draw).collect(), &row["quantiles"]);
    }
}
