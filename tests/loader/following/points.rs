//! Points and boxes.

use super::{annotated, batches, builder, chain, numbers};
use crate::common::{jpeg, with_orientation};
use crate::with_fields::WithFields;
use feedwater::internals::geometry::BoundingBox;
use feedwater::loader::Batch;
use feedwater::plan::{BoxFormat, ColumnSettings};

const RANDOM: [&str; 4] = [
    "op = \"random_affine\"\ndegrees = 20\ntranslate = [0.2, 0.1]\nscale = [0.8, 1.2]",
    "op = \"random_resized_crop\"\nwidth = 40\nheight = 30",
    "op = \"flip\"\nhorizontal = 0.5\nvertical = 0.5",
    "op = \"random_perspective\"\nprobability = 0.5",
];

fn source(lists: &[Vec<f32>]) -> WithFields {
    let samples = lists.iter().enumerate();
    annotated(samples.map(|(number, list)| {
        let size = (50 + number as u32 % 9, 40 + number as u32 % 5);
        (jpeg(number as u64, size.0, size.1), Vec::new(), list.clone())
    }))
}

fn all(batches: &[Batch], mut each: impl FnMut(usize, &feedwater::loader::SampleRecord, &[f32])) {
    for batch in batches {
        let column = batch.column("moved").unwrap();
        for (place, sample) in batch.samples().iter().enumerate() {
            each(sample.index as usize, sample, column.sample(place).unwrap());
        }
    }
}

#[test]
fn points_and_boxes_are_where_the_record_of_the_sample_says() {
    let lists: Vec<Vec<f32>> = (0..20)
        .map(|number| {
            (0..12 * (number % 4)).map(|at| ((number * 31 + at * 17) % 45) as f32).collect()
        })
        .collect();
    let points = numbers(ColumnSettings { shape: vec![3], ..ColumnSettings::points("moved") });
    let found = batches(builder(source(&lists), chain(&RANDOM), vec![points])).unwrap();
    let mut hidden = 0;
    all(&found, |index, sample, moved| {
        assert_eq!(moved.len(), lists[index].len());
        let view = &sample.trace.mapping;
        for (moved, of) in moved.chunks(3).zip(lists[index].chunks(3)) {
            if of[2] == 0.0 {
                assert_eq!(moved, of);
                continue;
            }
            let (x, y) = view.point(of[0].into(), of[1].into());
            assert_eq!((moved[0], moved[1]), (x as f32, y as f32));
            let shown = view.back(x, y).is_some();
            assert_eq!(moved[2], if shown { of[2] } else { 0.0 });
            hidden += usize::from(!shown);
        }
    });
    assert!(hidden > 0);
    for format in [BoxFormat::Xyxy, BoxFormat::Xywh, BoxFormat::Cxcywh] {
        let boxes = numbers(ColumnSettings::boxes("moved", format));
        let mut lists = lists.clone();
        if format == BoxFormat::Xyxy {
            for of in lists.iter_mut().flat_map(|list| list.chunks_mut(4)) {
                (of[2], of[3]) = (of[0] + of[2], of[1] + of[3]);
            }
        }
        let found = batches(builder(source(&lists), chain(&RANDOM), vec![boxes])).unwrap();
        all(&found, |index, sample, moved| {
            for (moved, of) in moved.chunks(4).zip(lists[index].chunks(4)) {
                let [a, b, c, d] = [0, 1, 2, 3].map(|at| f64::from(of[at]));
                let (left, top, right, bottom) = match format {
                    BoxFormat::Xyxy => (a, b, c, d),
                    BoxFormat::Xywh => (a, b, a + c, b + d),
                    _ => (a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0),
                };
                let of = BoundingBox { left, top, right, bottom };
                let seen = sample.trace.mapping.visible_box(&of);
                let expected = match seen.area() > 0.0 {
                    true => [seen.left, seen.top, seen.right, seen.bottom].map(|it| it as f32),
                    false => [0.0; 4],
                };
                assert_eq!(moved, expected);
            }
        });
    }
}

/// The numbers were computed by hand.
#[test]
fn a_crop_a_flip_and_a_resize_move_points_and_boxes() {
    let operators = [
        "op = \"crop\"\nx = 10\ny = 5\nwidth = 20\nheight = 10",
        "op = \"flip\"\nhorizontal = 1.0",
        "op = \"resize\"\nwidth = 40\nheight = 10",
    ];
    let lists = [vec![12.0, 6.0, 2.0, 5.0, 6.0, 1.0, 29.5, 14.5, 0.0, 20.0, 15.0, 1.0]];
    let points = numbers(ColumnSettings { shape: vec![3], ..ColumnSettings::points("moved") });
    let found = batches(builder(source(&lists), chain(&operators), vec![points.clone()])).unwrap();
    let expected = [36.0, 1.0, 2.0, 50.0, 1.0, 0.0, 29.5, 14.5, 0.0, 20.0, 10.0, 0.0];
    all(&found, |_, _, moved| assert_eq!(moved, expected));

    // The points of a pair change places, with their visibility.
    let pairs = ColumnSettings { shape: vec![2, 3], flip_pairs: vec![[0, 1]], ..points };
    let found = batches(builder(source(&lists), chain(&operators), vec![pairs])).unwrap();
    let expected = [50.0, 1.0, 0.0, 36.0, 1.0, 2.0, 20.0, 10.0, 0.0, 29.5, 14.5, 0.0];
    all(&found, |_, _, moved| assert_eq!(moved, expected));

    let lists = [vec![12.0, 6.0, 4.0, 3.0, 0.0, 0.0, 9.0, 9.0, 5.0, 0.0, 100.0, 100.0]];
    let boxes = numbers(ColumnSettings::boxes("moved", BoxFormat::Xywh));
    let found = batches(builder(source(&lists), chain(&operators), vec![boxes])).unwrap();
    let expected = [28.0, 1.0, 36.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 40.0, 10.0];
    all(&found, |_, _, moved| assert_eq!(moved, expected));
}

/// With an offset of 0.5, points are indices of pixels before and after they move.
#[test]
fn an_offset_moves_the_indices_of_pixels() {
    let flip =
        chain(&["op = \"flip\"\nhorizontal = 1.0", "op = \"resize\"\nwidth = 50\nheight = 40"]);
    let lists = [vec![40.0, 3.0, 2.0, 0.0, 39.0, 2.0, 49.0, 0.0, 1.0, 7.0, 8.0, 0.0]];
    let points = numbers(ColumnSettings { shape: vec![3], ..ColumnSettings::points("moved") });
    for (offset, expected) in [
        (None, [10.0, 3.0, 2.0, 50.0, 39.0, 0.0, 1.0, 0.0, 1.0, 7.0, 8.0, 0.0]),
        (Some(0.0), [10.0, 3.0, 2.0, 50.0, 39.0, 0.0, 1.0, 0.0, 1.0, 7.0, 8.0, 0.0]),
        // A point with the visibility 0 keeps its numbers.
        (Some(0.5), [9.0, 3.0, 2.0, 49.0, 39.0, 2.0, 0.0, 0.0, 1.0, 7.0, 8.0, 0.0]),
    ] {
        let points = ColumnSettings { offset, ..points.clone() };
        let found = batches(builder(source(&lists), flip.clone(), vec![points])).unwrap();
        all(&found, |_, _, moved| assert_eq!(moved, expected, "{offset:?}"));
    }
    // At twice the size, index i is the centre of the pixels 2i and 2i + 1.
    let twice = chain(&["op = \"resize\"\nwidth = 100\nheight = 80"]);
    let points = ColumnSettings { offset: Some(0.5), ..points };
    let found = batches(builder(source(&lists), twice, vec![points])).unwrap();
    all(&found, |_, _, moved| assert_eq!(moved[..6], [80.5, 6.5, 2.0, 0.5, 78.5, 2.0]));
}

#[test]
fn points_of_the_stored_pixels_are_turned() {
    let file = with_orientation(&jpeg(1, 6, 4), 6);
    let source = annotated([(file, Vec::new(), vec![0.5, 3.5])]);
    let points = numbers(ColumnSettings { turn: true, ..ColumnSettings::points("moved") });
    let whole = chain(&["op = \"resize\"\nwidth = 4\nheight = 6"]);
    let found = batches(builder(source, whole, vec![points])).unwrap();
    // The orientation 6 turns the image clockwise, so its lower left corner becomes the upper left.
    all(&found, |_, _, moved| assert_eq!(moved, [0.5, 0.5]));

    let file = with_orientation(&jpeg(1, 6, 4), 6);
    let source = annotated([(file, Vec::new(), vec![0.0, 3.0])]);
    let points =
        ColumnSettings { turn: true, offset: Some(0.5), ..ColumnSettings::points("moved") };
    let whole = chain(&["op = \"resize\"\nwidth = 4\nheight = 6"]);
    let found = batches(builder(source, whole, vec![numbers(points)])).unwrap();
    all(&found, |_, _, moved| assert_eq!(moved, [0.0, 0.0]));
}

#[test]
fn a_box_in_another_format_fails_its_sample() {
    let whole = || chain(&["op = \"resize\"\nwidth = 40\nheight = 30"]);
    for (format, of) in [
        (BoxFormat::Xyxy, [20.0, 5.0, 10.0, 15.0]),
        (BoxFormat::Xyxy, [5.0, 20.0, 10.0, 15.0]),
        (BoxFormat::Xywh, [20.0, 5.0, -1.0, 15.0]),
        (BoxFormat::Cxcywh, [20.0, 5.0, 1.0, -15.0]),
        (BoxFormat::Xyxy, [0.0, 0.0, f32::NAN, 1.0]),
    ] {
        let lists = [[1.0, 1.0, 5.0, 5.0].into_iter().chain(of).collect()];
        let boxes = numbers(ColumnSettings::boxes("moved", format));
        let problem = super::problem(builder(source(&lists), whole(), vec![boxes]));
        assert!(problem.contains("box 1 is [") && problem.contains("set format"), "{problem}");
    }
}

#[test]
fn a_point_beyond_a_crop_is_invisible_after_a_rotation() {
    let operators = [
        "op = \"crop\"\nx = 25\ny = 0\nwidth = 25\nheight = 40",
        "op = \"rotate\"\nangle = 45\nexpand = true",
        "op = \"center_crop\"\nwidth = 60\nheight = 60",
    ];
    let lists = [vec![5.0, 10.0, 2.0, 37.0, 20.0, 2.0]];
    let points = numbers(ColumnSettings { shape: vec![3], ..ColumnSettings::points("moved") });
    let found = batches(builder(source(&lists), chain(&operators), vec![points])).unwrap();
    all(&found, |_, _, moved| assert_eq!([moved[2], moved[5]], [0.0, 2.0]));
}

#[test]
fn a_chain_of_many_warps_is_an_error_for_points_and_boxes() {
    let rotate = "op = \"rotate\"\nangle = 10";
    let last = "op = \"center_crop\"\nwidth = 30\nheight = 30";
    let lists = [vec![1.0, 1.0, 5.0, 5.0]];
    for column in [ColumnSettings::points("moved"), ColumnSettings::boxes("moved", BoxFormat::Xyxy)]
    {
        let build = |operators: &[&str]| {
            builder(source(&lists), chain(operators), vec![numbers(column.clone())])
        };
        assert!(batches(build(&[rotate, rotate, rotate, last])).is_ok());
        let problem = super::problem(build(&[rotate, rotate, rotate, rotate, last]));
        assert!(problem.contains("more than 3 warps"), "{problem}");
    }
}
