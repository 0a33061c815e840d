//! Points and boxes that follow a displaced image.

use super::{annotated, batches, builder, chain, numbers, problem};
use crate::common::png_of_samples;
use feedwater::internals::geometry::BoundingBox;
use feedwater::loader::Batch;
use feedwater::plan::{BoxFormat, ColumnSettings};

const WIDTH: u32 = 120;
const HEIGHT: u32 = 90;
const WHOLE: &str = "op = \"center_crop\"\nwidth = 120\nheight = 90";
const ELASTIC: &str = "op = \"elastic\"\nalpha = 110\nsigma = 7";

/// Gray image with these levels, as PNM.
fn image(level: impl Fn(f64, f64) -> f64) -> Vec<u8> {
    let pixels = (0..WIDTH * HEIGHT).flat_map(|at| {
        let (x, y) = (f64::from(at % WIDTH) + 0.5, f64::from(at / WIDTH) + 0.5);
        [level(x, y) as u8; 3]
    });
    format!("P6 {WIDTH} {HEIGHT} 255\n").into_bytes().into_iter().chain(pixels).collect()
}

/// Calls `each` with the number of each sample, the red channel of its image, its moved numbers,
/// and the numbers without the displacements.
fn all(
    batches: &[Batch],
    mut each: impl FnMut(usize, &[u8], &[f32], &feedwater::loader::SampleRecord),
) {
    for batch in batches {
        let images: Vec<u8> =
            batch.images().as_slice::<u8>().unwrap().iter().step_by(3).copied().collect();
        let column = batch.column("moved").unwrap();
        for (place, sample) in batch.samples().iter().enumerate() {
            let pixels = images.len() / batch.len();
            let image = &images[place * pixels..][..pixels];
            each(sample.index as usize, image, column.sample(place).unwrap(), sample);
        }
    }
}

/// Points in the middle of an image.
fn points() -> Vec<(f64, f64)> {
    (0..40)
        .map(|at| (38.0 + f64::from(at * 17 % 45), 34.0 + f64::from(at * 11 % 23) + 0.25))
        .collect()
}

/// A bright spot is painted at each point. In the result, its centre is at the moved point.
#[test]
fn a_point_follows_the_spot_that_is_painted_there() {
    let operators = ["op = \"flip\"\nhorizontal = 0.5", ELASTIC, WHOLE];
    let points = points();
    let samples = points.iter().map(|&(px, py)| {
        let spot = move |x: f64, y: f64| {
            let distance = (x - px) * (x - px) + (y - py) * (y - py);
            250.0 * (-distance / 3.0).exp()
        };
        (image(spot), Vec::new(), vec![px as f32, py as f32, 2.0])
    });
    let column = numbers(ColumnSettings { shape: vec![3], ..ColumnSettings::points("moved") });
    let found = batches(builder(annotated(samples), chain(&operators), vec![column])).unwrap();
    let mut displaced = 0;
    all(&found, |index, image, moved, sample| {
        let weight = |at: usize| f64::from(image[at].saturating_sub(2));
        let sum: f64 = (0..image.len()).map(weight).sum();
        let centre = |of: &dyn Fn(usize) -> usize| {
            (0..image.len()).map(|at| weight(at) * (of(at) as f64 + 0.5)).sum::<f64>() / sum
        };
        let (x, y) = (centre(&|at| at % WIDTH as usize), centre(&|at| at / WIDTH as usize));
        let [mx, my] = [f64::from(moved[0]), f64::from(moved[1])];
        // A spot that is stretched on one side has its centre beside its brightest pixel.
        let distance = (x - mx).hypot(y - my);
        assert!(distance < 0.5, "sample {index}: {moved:?} and ({x}, {y})");
        assert_eq!(moved[2], 2.0);
        // Without the displacements, the point would be elsewhere.
        let (ox, oy) = sample.trace.mapping.point(points[index].0, points[index].1);
        displaced += usize::from((x - ox).hypot(y - oy) > 1.2);
    });
    assert!(displaced > 15, "{displaced}");
}

/// The image has the column of each pixel as its level, so the level at a moved point is the column
/// of the point before. Warps before, between and after displacements.
#[test]
fn the_level_at_a_moved_point_is_its_former_column() {
    let operators = [
        "op = \"rotate\"\nangle = 12\ninterpolation = \"bilinear\"",
        ELASTIC,
        "op = \"flip\"\nhorizontal = 0.5",
        ELASTIC,
        "op = \"resize\"\nwidth = 180\nheight = 100",
    ];
    let points = points();
    let samples = points
        .iter()
        .map(|&(px, py)| (image(|x, _| 2.0 * x), Vec::new(), vec![px as f32, py as f32, 1.0]));
    let column = numbers(ColumnSettings { shape: vec![3], ..ColumnSettings::points("moved") });
    let found = batches(builder(annotated(samples), chain(&operators), vec![column])).unwrap();
    let mut displaced = 0;
    all(&found, |index, image, moved, sample| {
        let level = |x: f64, y: f64| {
            let (x, y) = (x - 0.5, y - 0.5);
            let at = |x: f64, y: f64| f64::from(image[y as usize * 180 + x as usize]);
            let (across, down) = (x.fract(), y.fract());
            let row = |y: f64| at(x, y) + (at(x + 1.0, y) - at(x, y)) * across;
            (row(y) + (row(y + 1.0) - row(y)) * down) / 2.0
        };
        let (px, py) = points[index];
        let found = level(moved[0].into(), moved[1].into());
        // Levels are rounded by each of four operators.
        assert!((found - px).abs() < 0.75, "sample {index}: {found} and {px}");
        let (ox, oy) = sample.trace.mapping.point(px, py);
        displaced += usize::from((level(ox, oy) - px).abs() > 1.0);
    });
    assert!(displaced > 15, "{displaced}");
}

/// The box of a mask's object is the smallest box around the object in the displaced mask.
#[test]
fn a_box_is_around_its_displaced_object() {
    let boxes: Vec<BoundingBox> = (0..30)
        .map(|at| BoundingBox::new(f64::from(at * 13 % 60), f64::from(at * 7 % 40), 31.0, 26.0))
        .collect();
    let samples = boxes.iter().map(|of| {
        let inside = |at: u32| {
            let (x, y) = (f64::from(at % WIDTH) + 0.5, f64::from(at / WIDTH) + 0.5);
            of.left < x && x < of.right && of.top < y && y < of.bottom
        };
        let levels: Vec<u8> = (0..WIDTH * HEIGHT).map(|at| inside(at).into()).collect();
        let mask = png_of_samples(&levels, (WIDTH, HEIGHT), 8, None);
        (image(|x, _| x), mask, of.xyxy().to_vec())
    });
    let operators = [
        ELASTIC,
        "op = \"crop\"\nx = 12\ny = 4\nwidth = 90\nheight = 70",
        "op = \"flip\"\nhorizontal = 0.5",
    ];
    let columns = || {
        let boxes = numbers(ColumnSettings::boxes("moved", BoxFormat::Xyxy));
        vec![boxes, ColumnSettings { fill: Some(0.0), ..ColumnSettings::mask("mask") }]
    };
    let found = batches(builder(annotated(samples), chain(&operators), columns())).unwrap();
    let (mut displaced, mut clipped) = (0, 0);
    for batch in &found {
        let (masks, column) = (batch.column("mask").unwrap(), batch.column("moved").unwrap());
        for (place, sample) in batch.samples().iter().enumerate() {
            let mask = masks.sample::<u8>(place).unwrap();
            let shown = (0..mask.len()).filter(|&at| mask[at] == 1);
            let (xs, ys): (Vec<_>, Vec<_>) = shown.map(|at| (at % 90, at / 90)).unzip();
            let edges = [xs.iter().min(), ys.iter().min(), xs.iter().max(), ys.iter().max()];
            let moved: &[f32] = column.sample(place).unwrap();
            let [Some(left), Some(top), Some(right), Some(bottom)] = edges else {
                panic!("sample {} shows nothing, and its box is {moved:?}", sample.index)
            };
            let expected = [*left, *top, right + 1, bottom + 1].map(|edge| edge as f32);
            for (a, b) in moved.iter().zip(expected) {
                assert!((a - b).abs() <= 1.3, "{}: {moved:?} {expected:?}", sample.index);
            }
            let still = sample.trace.mapping.visible_box(&boxes[sample.index as usize]).xyxy();
            displaced += usize::from(still.iter().zip(moved).any(|(a, b)| (a - b).abs() > 1.5));
            clipped += usize::from(moved[0] == 0.0 || moved[1] == 0.0);
        }
    }
    assert!(displaced > 20 && clipped > 2, "{displaced} {clipped}");
}

/// Displacements that fold the image show an object at several places. All pixels that show it are
/// in its box.
#[test]
fn a_box_contains_all_places_of_its_object_in_a_folded_image() {
    let boxes: Vec<BoundingBox> = (0..40)
        .map(|at| BoundingBox::new(f64::from(at * 13 % 90), f64::from(at * 7 % 60), 21.0, 19.0))
        .collect();
    let samples = boxes.iter().map(|of| {
        let inside = |at: u32| {
            let (x, y) = (f64::from(at % WIDTH) + 0.5, f64::from(at / WIDTH) + 0.5);
            // Masks round displacements to whole pixels.
            of.left + 1.0 < x && x < of.right - 1.0 && of.top + 1.0 < y && y < of.bottom - 1.0
        };
        let levels: Vec<u8> = (0..WIDTH * HEIGHT).map(|at| inside(at).into()).collect();
        let mask = png_of_samples(&levels, (WIDTH, HEIGHT), 8, None);
        (image(|x, _| x), mask, of.xyxy().to_vec())
    });
    let operators = ["op = \"elastic\"\nalpha = 200\nsigma = 3.5", WHOLE];
    let boxes = numbers(ColumnSettings::boxes("moved", BoxFormat::Xyxy));
    let columns = vec![boxes, ColumnSettings { fill: Some(0.0), ..ColumnSettings::mask("mask") }];
    let found = batches(builder(annotated(samples), chain(&operators), columns)).unwrap();
    let mut shown = 0;
    for batch in &found {
        let (masks, column) = (batch.column("mask").unwrap(), batch.column("moved").unwrap());
        for (place, sample) in batch.samples().iter().enumerate() {
            let mask = masks.sample::<u8>(place).unwrap();
            let moved: &[f32] = column.sample(place).unwrap();
            for at in (0..mask.len()).filter(|&at| mask[at] == 1) {
                let (x, y) = ((at % 120) as f32 + 0.5, (at / 120) as f32 + 0.5);
                let is_inside = moved[0] <= x && x <= moved[2] && moved[1] <= y && y <= moved[3];
                assert!(is_inside, "{}: {moved:?} {x} {y}", sample.index);
                shown += 1;
            }
        }
    }
    assert!(shown > 5000, "{shown}");
}

/// Strong displacements tear the image. The red and green levels of the image are twice the column
/// and the row of each pixel, so the levels at the position of a point tell which place is shown.
#[test]
fn a_point_that_the_torn_image_does_not_show_is_invisible() {
    let operators = ["op = \"elastic\"\nalpha = 300\nsigma = 4", WHOLE];
    let places = || (0..WIDTH * HEIGHT / 20).map(|at| [at % 24, at / 24].map(|it| 5 * it + 2));
    let list = |visibility: bool| -> Vec<f32> {
        let point = |[x, y]: [u32; 2]| {
            [Some(x as f32), Some(y as f32), visibility.then_some(2.0)].into_iter().flatten()
        };
        places().flat_map(point).collect()
    };
    let pixels: Vec<u8> = (0..WIDTH * HEIGHT)
        .flat_map(|at| [2 * (at % WIDTH) as u8 + 1, 2 * (at / WIDTH) as u8 + 1, 255])
        .collect();
    let image = [format!("P6 {WIDTH} {HEIGHT} 255\n").into_bytes(), pixels].concat();
    let found = |visibility: bool| {
        let shape = vec![2 + usize::from(visibility)];
        let column =
            ColumnSettings { shape, max_len: Some(1000), ..ColumnSettings::points("moved") };
        let samples = [(image.clone(), Vec::new(), list(visibility))];
        batches(builder(annotated(samples), chain(&operators), vec![numbers(column)])).unwrap()
    };
    let (made, plain) = (found(true).remove(0), found(false).remove(0));
    let pixels = made.images().as_slice::<u8>().unwrap();
    let moved: &[f32] = made.column("moved").unwrap().sample(0).unwrap();
    let without: &[f32] = plain.column("moved").unwrap().sample(0).unwrap();
    let [mut shown, mut torn] = [0, 0];
    for ((point, place), without) in moved.chunks(3).zip(places()).zip(without.chunks(2)) {
        assert_eq!(point[..2], *without);
        let [x, y] = [point[0] - 0.5, point[1] - 0.5];
        if !((0.0..119.0).contains(&x) && (0.0..89.0).contains(&y)) {
            continue;
        }
        // Levels of the four pixels around the position. Pixels that show no part are black.
        let level = |channel: usize, x: f32, y: f32| {
            f32::from(pixels[(y as usize * WIDTH as usize + x as usize) * 3 + channel])
        };
        let corners = [(x, y), (x + 1.0, y), (x, y + 1.0), (x + 1.0, y + 1.0)];
        if corners.iter().any(|&(x, y)| level(2, x, y) < 255.0) {
            continue;
        }
        let between = |channel: usize| {
            let [a, b, c, d] = corners.map(|(x, y)| level(channel, x, y));
            let (above, below) = (a + (b - a) * x.fract(), c + (d - c) * x.fract());
            (above + (below - above) * y.fract()) / 2.0
        };
        let distance = (between(0) - place[0] as f32).hypot(between(1) - place[1] as f32);
        // Levels are rounded, by at most 1/4 pixel on each axis.
        match point[2] {
            0.0 => assert!(distance > 0.5 - 0.36, "{point:?} {place:?} {distance}"),
            _ => assert!(distance < 0.5 + 0.36, "{point:?} {place:?} {distance}"),
        }
        shown += usize::from(point[2] == 2.0);
        torn += usize::from(point[2] == 0.0);
    }
    assert!(shown > 100 && torn > 3, "{shown} {torn}");
}

/// Points that displacements move out of the image are not shown, and the limit of warps counts
/// for each part of the chain between displacements.
#[test]
fn visibility_and_the_limit_of_warps() {
    let strong = "op = \"elastic\"\nalpha = 900\nsigma = 12";
    let samples: Vec<_> = (0..30)
        .map(|at| (image(|x, _| x), Vec::new(), vec![0.5, 3.0 * at as f32 + 0.5, 1.0]))
        .collect();
    let column = numbers(ColumnSettings { shape: vec![3], ..ColumnSettings::points("moved") });
    let found = batches(builder(annotated(samples), chain(&[strong, WHOLE]), vec![column.clone()]))
        .unwrap();
    let [mut shown, mut hidden] = [0, 0];
    all(&found, |_, _, moved, _| {
        let inside = (0.0..120.0).contains(&moved[0]) && (0.0..90.0).contains(&moved[1]);
        assert_eq!(moved[2], f32::from(u8::from(inside)), "{moved:?}");
        shown += usize::from(inside);
        hidden += usize::from(!inside);
    });
    assert!(shown > 5 && hidden > 5, "{shown} {hidden}");
    let rotate = "op = \"rotate\"\nangle = 3";
    let build = |operators: &[&str]| {
        let samples = [(image(|x, _| x), Vec::new(), vec![40.0, 40.0, 1.0])];
        builder(annotated(samples), chain(operators), vec![column.clone()])
    };
    assert!(batches(build(&[rotate, rotate, rotate, ELASTIC, rotate, rotate, WHOLE])).is_ok());
    let problem = problem(build(&[rotate, ELASTIC, rotate, rotate, rotate, rotate, WHOLE]));
    assert!(problem.contains("more than 3 warps"), "{problem}");
}
