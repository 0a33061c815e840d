//! Annotated objects under the transforms of a chain. Compares `annotation` with pycocotools and
//! torchvision (tests/golden/coco.py), with pixels that operators move, and with loaders' batches.

use crate::common::{self, words::has_words};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedwater::annotation::{Canvas, Frame, Object, Objects, RunLengths, Segmentation};
use feedwater::error::{Error, Reason};
use feedwater::internals::geometry::{BoundingBox, Mapping, Orientation, Size};
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{Batch, DeviceChoice, Loader, LoaderBuilder, Outcome};
use feedwater::op::custom::Trace;
use feedwater::op::{self, CenterCrop, Chain, Crop, Flip, Kind, Operator, Resize};
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::custom::Annotations;
use feedwater::source::settings::CocoSettings;
use feedwater::source::{Coco, Source};
use serde_json::{Value, json};
use tempfile::TempDir;

const KEY: SampleKey = SampleKey { seed: 1, epoch: 0, index: 0 };

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/coco").join(name)
}

fn read(name: &str) -> Value {
    serde_json::from_slice(&fs::read(golden(name)).unwrap()).unwrap()
}

fn numbers<const N: usize>(value: &Value) -> [f64; N] {
    let numbers: Vec<f64> =
        value.as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
    numbers.try_into().unwrap()
}

pub fn object(bbox: BoundingBox, segmentation: Option<Segmentation>) -> Object {
    Object { id: 1, category: 0, bbox, area: 1.0, crowd: false, segmentation }
}

/// Returns the run lengths of a mask in column-major order, starting with the background.
pub fn runs(mask: &[u8], size: Size) -> Vec<u64> {
    let (mut lengths, mut last) = (vec![0], 0);
    for x in 0..size.width {
        for y in 0..size.height {
            let pixel = mask[(y * size.width + x) as usize];
            if pixel != last {
                lengths.push(0);
                last = pixel;
            }
            *lengths.last_mut().unwrap() += 1;
        }
    }
    lengths
}

#[test]
fn masks_of_an_unmoved_image_equal_pycocotools() {
    let coco = Coco::open(golden("instances.json"), &CocoSettings::default()).unwrap();
    let expected = read("masks.json");
    let mut seen = 0;
    for index in 0..coco.len() {
        let size = coco.canvas(index).size.unwrap();
        let way = (size, Orientation::UPRIGHT);
        let objects = Objects::place(coco.objects(index), Frame::Stored, way, Mapping::new(size));
        for (number, object) in objects.iter().enumerate() {
            let mask = objects.mask(number).unwrap();
            let made: Value = runs(&mask, size).into();
            assert!(made == expected[object.id.to_string()], "annotation {}", object.id);
            seen += 1;
        }
    }
    assert_eq!(seen, expected.as_object().unwrap().len());
}

/// Returns the view (the map from image to tensor) after operators on an image of this size.
pub fn view(size: Size, operators: &[Arc<dyn Operator>]) -> Mapping {
    let mut trace = Trace::new(size);
    let operators = operators.iter().map(|operator| &**operator);
    let output = Actions::default().draw(operators, KEY, size, &mut trace);
    assert_eq!(trace.mapping.size, output);
    trace.mapping
}

#[test]
fn boxes_equal_torchvision() {
    let (mut kept, mut gone) = (0, 0);
    for case in read("boxes.json").as_array().unwrap() {
        let steps = case["steps"].as_array().unwrap().iter().map(|step| -> Arc<dyn Operator> {
            let number = |at: usize| step[at].as_u64().unwrap() as u32;
            match step[0].as_str().unwrap() {
                "crop" => {
                    let (x, y) = (number(1), number(2));
                    Arc::new(Crop { x, y, width: number(3), height: number(4) })
                }
                "center_crop" => Arc::new(CenterCrop::to(number(1), number(2))),
                "flip" => {
                    Arc::new(Flip { horizontal: number(1).into(), vertical: number(2).into() })
                }
                "resize" => Arc::new(Resize::to(number(1), number(2))),
                other => panic!("{other}"),
            }
        });
        let [width, height] = numbers(&case["size"]).map(|it| it as u32);
        let size = Size::new(width, height);
        let view = view(size, &steps.collect::<Vec<_>>());
        let given = case["boxes"].as_array().unwrap().iter().map(|it| {
            let [x, y, width, height] = numbers(it);
            object(BoundingBox::new(x, y, width, height), None)
        });
        let way = (size, Orientation::UPRIGHT);
        let objects = Objects::place(given.collect(), Frame::Stored, way, view);
        let [width, height] = numbers(&case["canvas"]).map(|it| it as u32);
        assert_eq!(objects.size(), Size::new(width, height));
        for (index, expected) in case["expected"].as_array().unwrap().iter().enumerate() {
            let expected: [f64; 4] = numbers(expected);
            let found = objects.iter().find(|object| object.index == index);
            let Some(found) = found else {
                assert!(expected[2] * expected[3] < 1e-4, "{case} lost box {index}");
                gone += 1;
                continue;
            };
            let made = found.bbox.xywh();
            // torchvision computes aspect ratios in f32, so results differ slightly.
            let near = made.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 2e-3);
            assert!(near, "{case}: box {index} is {made:?}, torchvision has {expected:?}");
            kept += 1;
        }
    }
    assert!(kept > 700 && gone > 100, "{kept} {gone}");
}

/// Red encodes the column of a pixel and green the row. So the test fails for an operator that
/// moves pixels without reporting it. Operators that change values are tested with their formulas.
#[test]
fn every_operator_reports_where_it_moves_pixels() {
    let size = Size::new(61, 47);
    let pixel = |at: u64| [4 * (at % 61) as u8, 5 * (at / 61) as u8, 0];
    let pixels = (0..size.pixels()).flat_map(pixel).collect();
    let src = HostImage::U8(Image::from_data(size.window(), pixels));
    let mut warped = 0;
    for operator in feedwater::internals::op::examples() {
        let moves = |kind: &Kind| {
            [Kind::Crop, Kind::Flip, Kind::Resample, Kind::Warp].iter().any(|it| it.is(*kind))
        };
        let kinds = operator.kinds();
        // A view cannot describe operators that move single pixels or repeat pixels at a border.
        let not_boxes = ["gaussian_blur", "elastic"].contains(&operator.name());
        if !kinds.list().iter().all(moves) || not_boxes {
            if kinds.is_exact() && operator.name() != "pad" {
                assert_eq!(view(size, &[operator]), Mapping::new(size), "no pixel may move");
            }
            continue;
        }
        for index in 0..4 {
            let key = SampleKey { index, ..KEY };
            let (mut trace, mut actions) = (Trace::new(size), Actions::default());
            let output = actions.draw([&*operator], key, size, &mut trace);
            let view = trace.mapping;
            actions.demand(output.window());
            let HostImage::U8(out) = actions.reference(&src) else { panic!("expected bytes") };
            // The tolerance is one pixel of the image, plus the filter's blur at an edge.
            let near = |scale: f64| 1.0 + 0.6 * (1.0 / scale.abs()).max(1.0);
            for y in 0..output.height {
                for x in 0..output.width {
                    let (cx, cy) = (f64::from(x) + 0.5, f64::from(y) + 0.5);
                    let [red, green, _] = out.pixel(x, y);
                    let place = format!("{operator:?}, {x}, {y}");
                    let Some((px, py)) = view.back(cx, cy) else {
                        // Colours outside of the image. A rotation may blend them with pixels.
                        let fills = [[0, 0], [1, 128], [7, 7], [1, 100], [114, 114], [0, 1]];
                        let filled = fills.contains(&[red, green]);
                        assert!(filled || !view.is_axis_aligned(), "{place} is not fill");
                        continue;
                    };
                    warped += u32::from(!view.is_axis_aligned());
                    let at_edge = |at: f64, len: u32| at < 0.01 || at > f64::from(len) - 0.01;
                    if at_edge(px, size.width) || at_edge(py, size.height) {
                        continue;
                    }
                    let (px, py) = (px - 0.5, py - 0.5);
                    assert!((f64::from(red) / 4.0 - px).abs() < near(view.x.scale), "{place}");
                    assert!((f64::from(green) / 5.0 - py).abs() < near(view.y.scale), "{place}");
                }
            }
        }
    }
    assert!(warped > 10_000, "{warped}");
}

#[test]
fn run_lengths_are_sampled_at_pixel_centres() {
    let stored = Size::new(4, 3);
    // The columns of the mask are 1 1 0, 0 1 1, 0 0 0 and 1 0 1.
    let runs = RunLengths::new(stored, [0, 2, 2, 2, 3, 1, 1, 1]).unwrap();
    let made = |view: Mapping, orientation: Orientation| {
        let outline = Some(Segmentation::Runs(runs.clone()));
        let objects = vec![object(BoundingBox::new(0.0, 0.0, 4.0, 3.0), outline)];
        let upright = orientation.upright_size(stored);
        let objects = Objects::place(objects, Frame::Stored, (upright, orientation), view);
        objects.mask(0).unwrap()
    };
    let whole = Mapping::new(stored);
    assert_eq!(made(whole, Orientation::UPRIGHT), [1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1]);
    let mut flipped = whole;
    flipped.flip(true, true);
    assert_eq!(made(flipped, Orientation::UPRIGHT), [1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1]);
    let mut twice = whole;
    twice.crop((1, 1), Size::new(2, 1));
    twice.resize(Size::new(2, 1).window(), Size::new(4, 2));
    assert_eq!(made(twice, Orientation::UPRIGHT), [1, 1, 0, 0, 1, 1, 0, 0]);
    let mut padded = whole;
    padded.crop((3, 2), Size::new(2, 2));
    assert_eq!(made(padded, Orientation::UPRIGHT), [1, 0, 0, 0]);
    // EXIF orientation 6: the stored image's first column is the upright one's first row, reversed.
    let upright = Mapping::new(Size::new(3, 4));
    let turned = made(upright, Orientation::from_exif(6));
    assert_eq!(turned, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1]);
}

/// pycocotools wrote the compressed texts of the golden file.
#[test]
fn compressed_run_lengths_are_those_of_pycocotools() {
    let file: Value = serde_json::from_slice(&fs::read(golden("instances.json")).unwrap()).unwrap();
    let segmentations =
        file["annotations"].as_array().unwrap().iter().map(|it| &it["segmentation"]);
    let mut texts = 0;
    for segmentation in segmentations {
        let Some(text) = segmentation["counts"].as_str() else { continue };
        let [height, width] = [0, 1].map(|at| segmentation["size"][at].as_u64().unwrap() as u32);
        let size = Size::new(width, height);
        let runs = RunLengths::from_compressed(size, text.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(runs.to_compressed()).unwrap(), text);
        // Expands the runs into a mask, column by column.
        let mut mask = vec![0; size.pixels() as usize];
        let mut at = 0;
        for (run, length) in runs.lengths().enumerate() {
            for pixel in at..at + length as usize {
                mask[pixel % height as usize * width as usize + pixel / height as usize] =
                    run as u8 % 2;
            }
            at += length as usize;
        }
        assert_eq!(RunLengths::from_mask(size, &mask), runs);
        texts += 1;
    }
    assert!(texts > 5, "{texts}");
}

#[test]
fn run_lengths_of_uniform_and_empty_masks() {
    let of = |width, height, value: u8| {
        let size = Size::new(width, height);
        RunLengths::from_mask(size, &vec![value; size.pixels() as usize])
    };
    for (runs, lengths, text) in [
        (of(4, 3, 0), &[12][..], &b"<"[..]),
        (of(4, 3, 1), &[0, 12], b"0<"),
        (of(0, 3, 0), &[], b""),
    ] {
        assert!(runs.lengths().eq(lengths.iter().copied()), "{runs:?}");
        assert_eq!(runs.to_compressed(), text);
        assert_eq!(RunLengths::from_compressed(runs.size(), text).unwrap(), runs);
    }
}

#[test]
fn parts_outside_a_crop_are_in_no_mask() {
    let square = vec![vec![[0.0, 0.0], [8.0, 0.0], [8.0, 8.0], [0.0, 8.0]]];
    let bbox = BoundingBox::new(0.0, 0.0, 8.0, 8.0);
    let mut view = Mapping::new(Size::new(8, 8));
    view.crop((0, 0), Size::new(2, 8));
    view.crop((-1, -1), Size::new(6, 3));
    let objects = vec![object(bbox, Some(Segmentation::Polygons(square)))];
    let way = (Size::new(8, 8), Orientation::UPRIGHT);
    let objects = Objects::place(objects, Frame::Stored, way, view);
    let mask = objects.mask(0).unwrap();
    assert_eq!(mask, [0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0]);
    assert_eq!(objects.polygons(0).unwrap()[0][2], [9.0, 9.0], "polygons must not be clipped");
    assert_eq!(objects[0].bbox, BoundingBox::new(1.0, 1.0, 2.0, 2.0));
    assert_eq!(objects[0].visible, 4.0 / 64.0);
}

#[test]
fn a_mirrored_border_moves_boxes_like_a_border_of_one_colour() {
    let pad = |mode| -> Mapping {
        let pad: Arc<dyn Operator> = Arc::new(op::Pad::with(mode, [5, 90, 0, 7]));
        view(Size::new(61, 47), &[Arc::new(Crop { x: 3, y: 4, width: 30, height: 20 }), pad])
    };
    let expected = pad(op::PadMode::Constant);
    for mode in [op::PadMode::Edge, op::PadMode::Reflect, op::PadMode::Symmetric] {
        assert_eq!(pad(mode), expected);
    }
}

/// Adds an EXIF orientation to a JPEG.
pub fn turned(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let tiff = [b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[orientation][..]];
    let exif = [&tiff.concat()[..], &[0; 6]].concat();
    let len = (exif.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], &[0xff, 0xe1], &len, &exif, &jpeg[2..]].concat()
}

/// Creates a COCO set of images with these stored sizes and orientations. Each image has the box
/// `[4, 6, 20, 10]` and a box in its corner.
fn set(sizes: &[(Size, u8)], settings: &CocoSettings) -> (TempDir, Coco) {
    let root = tempfile::tempdir().unwrap();
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    for (id, &(size, orientation)) in sizes.iter().enumerate() {
        let name = format!("{id}.jpg");
        let jpeg = common::jpeg(id as u64, size.width, size.height);
        fs::write(root.path().join(&name), turned(&jpeg, orientation)).unwrap();
        images
            .push(json!({"id": id, "file_name": name, "width": size.width, "height": size.height}));
        for (number, bbox) in [[4, 6, 20, 10], [0, 0, 3, 3]].into_iter().enumerate() {
            annotations.push(json!({
                "id": 10 * id + number, "image_id": id, "category_id": 5, "bbox": bbox,
            }));
        }
    }
    let categories = json!([{"id": 5, "name": "x"}]);
    let all = json!({"images": images, "annotations": annotations, "categories": categories});
    let json = root.path().join("a.json");
    fs::write(&json, all.to_string()).unwrap();
    let coco = Coco::open(json, settings).unwrap();
    (root, coco)
}

pub fn builder(source: Coco, chain: Chain) -> LoaderBuilder {
    Loader::builder(source, chain)
        .device(DeviceChoice::Cpu)
        .output(DType::U8, Layout::Nhwc)
        .num_workers(2)
        .batch_size(4)
        .last_batch(LastBatch::Partial)
        .epochs(Some(1))
}

pub fn batches(builder: LoaderBuilder) -> Vec<Batch> {
    let mut loader = builder.prefetch(8).build().unwrap();
    loader.into_iter().map(|batch| batch.unwrap()).collect()
}

#[test]
fn boxes_come_with_the_batch_and_do_not_depend_on_downscaling_in_the_decoder() {
    let sizes = [(200, 160), (320, 240), (77, 80), (640, 480)];
    let sizes = sizes.map(|(width, height)| (Size::new(width, height), 1)).repeat(6);
    let chain = || {
        Chain::new()
            .then(op::RandomResizedCrop { scale: [0.8, 1.0], ..op::RandomResizedCrop::to(24, 16) })
            .then(Flip { horizontal: 0.5, vertical: 0.5 })
    };
    let made = |prescale: bool| {
        let (_root, coco) = set(&sizes, &CocoSettings::default());
        let batches = batches(builder(coco, chain()).configure(|it| it.decode.prescale = prescale));
        let of = |batch: &Batch, place: usize| (batch.samples()[place], batch.objects(place));
        let all = batches.iter().flat_map(|batch| (0..batch.len()).map(move |it| of(batch, it)));
        all.collect::<Vec<_>>()
    };
    let plain = made(false);
    let seen: usize = plain.iter().map(|(_, objects)| objects.len()).sum();
    assert!(seen > 16, "{seen} objects");
    for ((sample, objects), (_, reduced)) in plain.iter().zip(made(true)) {
        assert_eq!(*objects, reduced);
        let roi = sample.trace.roi;
        let (x, y) = (24.0 / f64::from(roi.width), 16.0 / f64::from(roi.height));
        for found in objects.iter().filter(|it| it.index == 0) {
            let edge = |at: u32, first: u32, scale: f64, flipped: bool, side: f64| {
                let at = (f64::from(at) - f64::from(first)) * scale;
                (if flipped { side - at } else { at }).clamp(0.0, side)
            };
            let horizontal = sample.trace.flipped_horizontally;
            let vertical = sample.trace.flipped_vertically;
            let mut across = [4, 24].map(|at| edge(at, roi.x, x, horizontal, 24.0));
            let mut down = [6, 16].map(|at| edge(at, roi.y, y, vertical, 16.0));
            across.sort_by(f64::total_cmp);
            down.sort_by(f64::total_cmp);
            let expected = [across[0], down[0], across[1], down[1]];
            let made = found.bbox.xyxy();
            let near = made.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-4);
            assert!(near, "{made:?} {expected:?}");
            assert_eq!((found.category, found.crowd, found.area), (0, false, 200.0));
        }
    }
}

/// `random_iou_crop` reads the boxes in the upright image, and its window contains the centre of
/// one of them. Objects whose centres are outside of the window are dropped.
#[test]
fn operators_read_the_boxes_of_the_sample() {
    let sizes: Vec<_> =
        (0..24).map(|at| (Size::new(90 - at, 64 + at), [1, 6, 3][at as usize % 3])).collect();
    let (_root, coco) = set(&sizes, &CocoSettings::default());
    let crop = op::RandomIouCrop { scale: [0.3, 0.9], overlaps: vec![0.0], ..Default::default() };
    let chain = Chain::new().then(crop).then(Resize::to(24, 16));
    let (mut cropped, mut dropped) = (0, 0);
    for batch in batches(builder(coco, chain)) {
        for place in 0..batch.len() {
            let sample = batch.samples()[place];
            let stored = sample.orientation.upright_size(sample.size);
            let upright = [[4.0, 6.0, 20.0, 10.0], [0.0, 0.0, 3.0, 3.0]].map(|[x, y, w, h]| {
                sample.orientation.upright_box(stored, &BoundingBox::new(x, y, w, h))
            });
            let roi = sample.trace.roi;
            let inside = |of: &BoundingBox| {
                let (x, y) = ((of.left + of.right) / 2.0, (of.top + of.bottom) / 2.0);
                (f64::from(roi.x) < x && x < f64::from(roi.right()))
                    && (f64::from(roi.y) < y && y < f64::from(roi.bottom()))
            };
            let expected: Vec<usize> = (0..2).filter(|&at| inside(&upright[at])).collect();
            let objects = batch.objects(place);
            let found: Vec<usize> = objects.iter().map(|it| it.index).collect();
            assert_eq!(found, expected, "{sample:?}");
            assert!(!found.is_empty(), "{sample:?}");
            cropped += usize::from(roi.size() != sample.size);
            dropped += 2 - found.len();
        }
    }
    assert!(cropped == 24 && dropped > 5, "{cropped} {dropped}");
}

#[test]
fn positions_refer_to_the_stored_or_to_the_upright_image() {
    let size = Size::new(64, 48);
    let first = |coordinates: Frame, orientation: bool, exif: u8, stored: Size| {
        let settings = CocoSettings { coordinates, ..Default::default() };
        let upright = match coordinates {
            Frame::Upright if exif >= 5 => Size::new(stored.height, stored.width),
            _ => stored,
        };
        let (root, _) = set(&[(upright, exif)], &settings);
        let jpeg = common::jpeg(0, stored.width, stored.height);
        fs::write(root.path().join("0.jpg"), turned(&jpeg, exif)).unwrap();
        let coco = Coco::open(root.path().join("a.json"), &settings).unwrap();
        let upright = if exif >= 5 && orientation { (48, 64) } else { (64, 48) };
        let chain = Chain::new().then(CenterCrop::to(upright.0, upright.1));
        batches(builder(coco, chain).configure(|it| it.decode.orientation = orientation))[0]
            .objects(0)[0]
            .bbox
            .xywh()
    };
    assert_eq!(first(Frame::Stored, true, 1, size), [4.0, 6.0, 20.0, 10.0]);
    // The image is rotated clockwise: a distance of 6 from the top becomes 6 from the right.
    assert_eq!(first(Frame::Stored, true, 6, size), [48.0 - 16.0, 4.0, 10.0, 20.0]);
    assert_eq!(first(Frame::Stored, true, 3, size), [64.0 - 24.0, 48.0 - 16.0, 20.0, 10.0]);
    assert_eq!(first(Frame::Stored, false, 6, size), [4.0, 6.0, 20.0, 10.0]);
    assert_eq!(first(Frame::Upright, true, 6, size), [4.0, 6.0, 20.0, 10.0]);
}

#[test]
fn an_image_that_does_not_match_its_annotation_is_unusable() {
    let stored = Size::new(64, 48);
    let side = Orientation::from_exif(6);
    let problem = |frame: Frame, size: Option<Size>, turned: bool| {
        let fault = Canvas { frame, size }.check(stored, side, turned).err()?;
        assert_eq!(fault.reason, Reason::Corrupt);
        Some(fault.problem)
    };
    let names = |it: Option<String>, values: &[&str]| {
        assert!(has_words(it.as_ref().unwrap(), values), "{it:?}");
    };
    let upright = Some(Size::new(48, 64));
    assert_eq!(problem(Frame::Stored, Some(stored), true), None);
    assert_eq!(problem(Frame::Upright, upright, true), None);
    assert_eq!(problem(Frame::Stored, None, false), None);
    let coordinates = "source.coordinates";
    names(problem(Frame::Stored, upright, true), &["48x64", "64x48", coordinates, "\"upright\""]);
    let found = problem(Frame::Upright, Some(stored), true);
    names(found, &["64x48", "48x64", coordinates, "\"stored\""]);
    names(problem(Frame::Stored, Some(Size::new(32, 24)), true), &["32x24", "64x48"]);
    names(problem(Frame::Upright, upright, false), &["decode.orientation", "true"]);

    let (root, _) = set(&[(stored, 1), (stored, 1)], &CocoSettings::default());
    fs::write(root.path().join("1.jpg"), common::jpeg(1, 48, 48)).unwrap();
    let open = || Coco::open(root.path().join("a.json"), &CocoSettings::default()).unwrap();
    let chain = || Chain::new().then(Resize::to(32, 24));
    let mut loader = builder(open(), chain()).build().unwrap();
    let Some(Err(Error::Sample(error))) = loader.into_iter().next() else { panic!("no error") };
    assert_eq!((error.index, error.reason), (1, Reason::Corrupt));

    let batch = &batches(builder(open(), chain()).on_error(OnError::Substitute))[0];
    assert_eq!(batch.samples()[1].outcome, Outcome::Substituted);
    assert_eq!((batch.objects(0).len(), batch.objects(1).len()), (2, 0));
}

#[test]
fn a_source_without_objects_has_none() {
    let mut loader = Loader::builder(common::memory(4), common::evaluation())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .build()
        .unwrap();
    let batch = loader.into_iter().next().unwrap().unwrap();
    assert!((0..4).all(|place| batch.objects(place).is_empty()));
}
