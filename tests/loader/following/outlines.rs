//! Masks of objects: run lengths and dense masks, made from outlines.

use super::{batches, builder, chain, problem};
use crate::common::{jpeg, png_of_samples};
use crate::with_fields::{Values, WithFields};
use feedwater::annotation::{Frame, Object, RunLengths, Segmentation};
use feedwater::internals::geometry::{BoundingBox, Mapping, Orientation};
use feedwater::loader::LoaderBuilder;
use feedwater::plan::{CellKind, ColumnKind, ColumnSettings, DefaultValue, OnError, TooLong};
use feedwater::source::Memory;
use feedwater::{ElementType, Objects, Size};
use serde_json::{Value, json};

const CHAINS: [&[&str]; 4] = [
    &["op = \"center_crop\"\nwidth = 47\nheight = 33"],
    &[
        "op = \"flip\"\nhorizontal = 0.5\nvertical = 0.5",
        "op = \"resize\"\nwidth = 31\nheight = 40",
    ],
    &[
        "op = \"random_affine\"\ndegrees = 40\ntranslate = [0.2, 0.1]\nscale = [0.6, 1.4]",
        "op = \"random_resized_crop\"\nwidth = 29\nheight = 30",
    ],
    &[
        "op = \"elastic\"\nalpha = 40\nsigma = 3",
        "op = \"pad\"\npadding = [3, 5, 1, 2]\nmode = \"symmetric\"",
        "op = \"center_crop\"\nwidth = 30\nheight = 50",
    ],
];

/// Pseudo-random number below `below`.
fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// An outline of a random form, and as JSON.
fn outline(seed: &mut u64, size: Size) -> (Option<Segmentation>, Value) {
    let pixels = size.pixels();
    match random(seed, 4) {
        0 => {
            let polygons: Vec<Vec<[f64; 2]>> = (0..1 + random(seed, 3))
                .map(|_| {
                    let near = |len: u32, at: u64| at as f64 / 4.0 - f64::from(len) / 4.0;
                    (0..3 + random(seed, 9))
                        .map(|_| {
                            let x = near(size.width, random(seed, 6 * u64::from(size.width)));
                            [x, near(size.height, random(seed, 6 * u64::from(size.height)))]
                        })
                        .collect()
                })
                .collect();
            let flat: Vec<&[f64]> = polygons.iter().map(|it| it.as_flattened()).collect();
            let text = json!(flat);
            (Some(Segmentation::Polygons(polygons)), text)
        }
        1 => {
            let mut left = pixels;
            let mut lengths = Vec::new();
            while lengths.len() < 9 {
                let length = random(seed, left / 3 + 1);
                left -= length;
                lengths.push(length);
            }
            lengths.push(left);
            let runs = RunLengths::new(size, lengths.clone()).unwrap();
            // The order of the members does not matter.
            let text = json!({"counts": lengths, "other": [1], "size": [size.height, size.width]});
            (Some(Segmentation::Runs(runs)), text)
        }
        2 => {
            let mask: Vec<u8> = (0..pixels).map(|_| u8::from(random(seed, 5) == 0)).collect();
            let runs = RunLengths::from_mask(size, &mask);
            let counts = String::from_utf8(runs.to_compressed()).unwrap();
            let text = json!({"size": [size.height, size.width], "counts": counts});
            (Some(Segmentation::Runs(runs)), text)
        }
        _ => (None, Value::Null),
    }
}

/// Mask of an outline in its own image, which tests of annotations compare with pycocotools.
fn dense(outline: Option<Segmentation>, size: Size) -> Vec<u8> {
    let bbox = BoundingBox::new(0.0, 0.0, size.width.into(), size.height.into());
    let object =
        Object { id: 0, category: 0, bbox, area: 1.0, crowd: false, segmentation: outline };
    let way = (size, Orientation::UPRIGHT);
    let objects = Objects::place(vec![object], Frame::Stored, way, Mapping::new(size));
    objects.mask(0).unwrap_or_else(|| vec![0; size.pixels() as usize])
}

/// Loader for images of this size with outlines. The field `mask` has the mask of one object.
fn loader(
    sizes: &[Size],
    outlines: Vec<String>,
    masks: Vec<Vec<u8>>,
    operators: &[&str],
    columns: Vec<ColumnSettings>,
) -> LoaderBuilder {
    let images = (1..).zip(sizes).map(|(seed, it)| (jpeg(seed, it.width, it.height), 0));
    let source = WithFields {
        images: Memory::new(images.collect::<Vec<_>>()).unwrap(),
        fields: vec![("outlines", Values::Texts(outlines)), ("mask", Values::Files(masks))],
    };
    builder(source, chain(operators), columns)
}

fn columns() -> Vec<ColumnSettings> {
    let of = |column: ColumnSettings, name: &str| ColumnSettings {
        name: name.into(),
        field: Some("outlines:all".into()),
        ..column
    };
    vec![
        of(ColumnSettings::runs("runs"), "runs"),
        of(ColumnSettings::instances("instances"), "instances"),
        ColumnSettings { fill: Some(0.0), ..ColumnSettings::mask("mask") },
        ColumnSettings {
            field: Some("outlines:nested[*].segmentation".into()),
            ..ColumnSettings::runs("nested")
        },
    ]
}

/// Masks of objects move like masks of pixels, and run lengths are those of the moved masks.
#[test]
fn masks_of_objects_move_like_masks_of_pixels() {
    let mut seed = 5;
    let mut seen = [0; 3];
    for operators in CHAINS {
        let sizes: Vec<Size> = (0..12)
            .map(|_| {
                Size::new(30 + random(&mut seed, 40) as u32, 25 + random(&mut seed, 40) as u32)
            })
            .collect();
        let (mut texts, mut masks, mut chosen) = (Vec::new(), Vec::new(), Vec::new());
        for (number, &size) in sizes.iter().enumerate() {
            let objects: Vec<_> = (0..number % 5).map(|_| outline(&mut seed, size)).collect();
            let choice = random(&mut seed, 1 + objects.len() as u64) as usize;
            let mask = objects.get(choice).and_then(|it| it.0.clone());
            let mask = dense(mask, size);
            masks.push(png_of_samples(&mask, (size.width, size.height), 8, None));
            chosen.push(choice);
            let all: Vec<Value> = objects.into_iter().map(|it| it.1).collect();
            let nested: Vec<Value> = all.iter().map(|it| json!({"segmentation": it})).collect();
            texts.push(json!({"all": all, "nested": nested}).to_string());
        }
        for batch in batches(loader(&sizes, texts, masks, operators, columns())).unwrap() {
            let shape = batch.array_shape();
            let result = Size::new(shape[2] as u32, shape[1] as u32);
            let pixels = result.pixels() as usize;
            let [runs, instances, mask, nested] =
                ["runs", "instances", "mask", "nested"].map(|name| batch.column(name).unwrap());
            assert_eq!((runs.kind(), runs.element_type()), (CellKind::Lists, ElementType::I64));
            assert_eq!(instances.shape()[1..], [shape[1], shape[2]]);
            for (place, index) in batch.indices().enumerate() {
                let dense = instances.sample::<u8>(place).unwrap();
                let objects: Vec<&[u8]> = dense.chunks(pixels).collect();
                assert_eq!(objects.len(), index as usize % 5);
                let lists: Vec<&[i64]> = runs.lists(place).unwrap().collect();
                assert!(
                    lists.iter().eq(nested.lists::<i64>(place).unwrap().collect::<Vec<_>>().iter())
                );
                assert_eq!(lists.len(), objects.len());
                assert_eq!(runs.sample::<i64>(place).unwrap(), lists.concat());
                for (list, object) in lists.iter().zip(&objects) {
                    let expected = RunLengths::from_mask(result, object);
                    let expected: Vec<i64> = expected.lengths().map(|it| it as i64).collect();
                    assert_eq!(list, &expected);
                    seen[0] += 1;
                    seen[1] += usize::from(list.len() > 1);
                }
                if let Some(object) = objects.get(chosen[index as usize]) {
                    assert_eq!(*object, mask.sample::<u8>(place).unwrap(), "sample {index}");
                    seen[2] += 1;
                }
            }
        }
    }
    assert!(seen[0] > 80 && seen[1] > 40 && seen[2] > 20, "{seen:?}");
}

#[test]
fn wrong_outlines_fail_their_sample() {
    let size = Size::new(8, 6);
    let whole: &[&str] = &["op = \"resize\"\nwidth = 8\nheight = 6"];
    let fails = |text: &str, column: ColumnSettings| {
        let column = ColumnSettings { field: Some("outlines".into()), ..column };
        problem(loader(&[size], vec![text.into()], vec![vec![]], whole, vec![column]))
    };
    let square = "[[1,1,5,1,5,5]]";
    for (text, words) in [
        ("7", "a list with the outline of each object"),
        ("[7]", "the outline of object 0: invalid type: integer `7`, expected a list of polygons"),
        (
            "[null,[1,2,3]]",
            "the outline of object 1: invalid type: integer `1`, expected a polygon",
        ),
        ("[[[1,2,null,3]]]", "object 0: a coordinate of a polygon is not a number"),
        ("[[[1,2,3]]]", "a polygon has 3 numbers"),
        ("[[[1,2,1e9,2,3,3]]]", "far outside of its 8x6 image"),
        ("[{\"counts\":[1,2]}]", "it has no member \"size\""),
        ("[{\"size\":[6,8]}]", "it has no member \"counts\""),
        (
            "[{\"size\":[8,6],\"counts\":[1,2]}]",
            "for an image of 6x8 pixels, but its image has 8x6",
        ),
        ("[{\"size\":[6,8],\"counts\":[1,48]}]", "cover more than the 48 pixels"),
        (
            "[null,{\"size\":[6,8],\"counts\":[1,46]}]",
            "the outline of object 1: the run lengths cover 47 pixels",
        ),
        ("[{\"counts\":\"35\",\"size\":[6,8]}]", "cover 8 pixels, and the image of 8x6 has 48"),
        ("[{\"size\":[6,8],\"counts\":[]}]", "cover 0 pixels"),
        (
            "[{\"size\":[6,8],\"counts\":[48],\"counts\":[0,48]}]",
            "it has the member \"counts\" twice",
        ),
        ("[[[1,2,129,2,3,3]]]", "must be between -128 and 128"),
        ("[[[1,2,3,-129,3,3]]]", "must be between -128 and 128"),
        ("[{\"size\":[6,8],\"counts\":\"\\u0001\"}]", "which is not a valid digit"),
        ("[{\"size\":[6,8],\"counts\":[-1]}]", "counts must be a list of whole numbers from 0"),
        ("[{\"size\":[6,8],\"counts\":[1.5]}]", "counts must be a list of whole numbers from 0"),
        ("[{\"size\":[6,8,3],\"counts\":[1,47]}]", "size must be two whole numbers"),
        ("[{\"size\":[6,8.0],\"counts\":[1,47]}]", "size must be two whole numbers"),
        ("[", "is not JSON"),
        ("", "is missing; set a default"),
        ("null", "is missing; set a default"),
    ] {
        for column in [ColumnSettings::runs("runs"), ColumnSettings::instances("runs")] {
            let problem = fails(text, column);
            assert!(problem.starts_with("the field \"outlines\" (column \"runs\")"), "{problem}");
            assert!(problem.contains(words), "{words}: {problem}");
        }
    }
    let two = format!("[{square},{square}]");
    let runs = || ColumnSettings::runs("runs");
    let problem = fails(&two, ColumnSettings { max_objects: Some(1), ..runs() });
    assert!(problem.contains("has more than 1 object; raise max_objects"), "{problem}");
    let problem = fails(&two, ColumnSettings { max_len: Some(3), ..runs() });
    assert!(problem.contains("has more than 3 run lengths; raise max_len"), "{problem}");
    assert!(problem.contains("or set too_long = \"truncate\" or \"skip\""), "{problem}");
    let column = ColumnSettings { max_len: Some(1), ..ColumnSettings::instances("runs") };
    let problem = fails(&two, column);
    assert!(problem.contains("has more than 1 object; raise max_len"), "{problem}");
}

/// With `truncate`, the first objects are those of a column with enough memory. With `skip`,
/// another sample replaces the sample.
#[test]
fn too_many_objects_are_left_out_or_their_sample_is_skipped() {
    let size = Size::new(8, 6);
    let square = |x: u32| json!([[x, 1, x + 2, 1, x + 2, 3, x, 3]]);
    let texts = [json!([square(0)]), json!([square(0), square(2), square(4)]), json!([])];
    let read = |columns: Vec<ColumnSettings>| {
        let texts = texts.iter().map(Value::to_string).collect();
        let whole = &["op = \"center_crop\"\nwidth = 8\nheight = 6"];
        let columns = columns.into_iter();
        let columns =
            columns.map(|it| ColumnSettings { field: Some("outlines".into()), ..it }).collect();
        batches(loader(&[size; 3], texts, vec![vec![]; 3], whole, columns)).unwrap()
    };
    let cut = |name: &str, column: ColumnSettings| ColumnSettings {
        too_long: TooLong::Truncate,
        ..ColumnSettings { name: name.into(), ..column }
    };
    // Each object has five run lengths.
    let found = read(vec![
        ColumnSettings::runs("runs"),
        ColumnSettings::instances("masks"),
        cut("few", ColumnSettings { max_objects: Some(2), ..ColumnSettings::runs("few") }),
        cut("short", ColumnSettings { max_len: Some(7), ..ColumnSettings::runs("short") }),
        cut("first", ColumnSettings { max_len: Some(2), ..ColumnSettings::instances("first") }),
    ]);
    let batch = &found[0];
    let lists = |name: &str, place: usize| -> Vec<Vec<i64>> {
        let lists = batch.column(name).unwrap().lists::<i64>(place).unwrap();
        lists.map(<[i64]>::to_vec).collect()
    };
    for place in 0..3 {
        let all = lists("runs", place);
        assert_eq!(lists("few", place), all[..all.len().min(2)]);
        let mut total = 0;
        let fits = |it: &&Vec<i64>| {
            total += it.len();
            total <= 7
        };
        let fitting: Vec<_> = all.iter().take_while(fits).cloned().collect();
        assert_eq!(lists("short", place), fitting);
        let [masks, first] =
            ["masks", "first"].map(|name| batch.column(name).unwrap().sample::<u8>(place).unwrap());
        assert_eq!(first, &masks[..masks.len().min(2 * 48)]);
        let truncated = batch.samples()[place].truncated;
        assert_eq!(truncated, if place == 1 { 0b1_1100 } else { 0 });
    }
    assert_eq!((lists("few", 1).len(), lists("short", 1).len()), (2, 1));
    for column in [ColumnSettings::runs("skipped"), ColumnSettings::instances("skipped")] {
        let (max_len, max_objects) = match column.kind {
            ColumnKind::Runs => (None, Some(2)),
            _ => (Some(2), None),
        };
        let column = ColumnSettings { max_len, max_objects, too_long: TooLong::Skip, ..column };
        let found = read(vec![column]);
        let records = found[0].samples();
        assert_eq!(records[1].replaces, Some(1));
        assert_eq!((records[0].replaces, records[2].replaces), (None, None));
    }
}

/// Rows of a mask have the form of polygons, which would give another mask. A list of polygons that
/// only resembles a mask is read as polygons.
#[test]
fn masks_as_lists_of_rows_are_no_polygons() {
    let read = |size: Size, mask: &Value, column: ColumnSettings| {
        let operator = format!("op = \"resize\"\nwidth = {}\nheight = {}", size.width, size.height);
        let column = ColumnSettings { field: Some("outlines".into()), ..column };
        let text = json!([null, mask]).to_string();
        loader(&[size], vec![text], vec![vec![]], &[&operator], vec![column])
            .configure(|it| it.limits.max_outline_points = 100)
    };
    for (width, height) in [(8, 6), (7, 6), (40, 31), (33, 1), (1, 5), (2, 9)] {
        let size = Size::new(width, height);
        let rows = |value: &dyn Fn(u32) -> Value| -> Vec<Vec<Value>> {
            let row = |y: u32| (0..width).map(|x| value((x * 5 + y * 3) % 7 / 4)).collect();
            (0..height).map(row).collect()
        };
        for mask in [
            rows(&|it| json!(it)),
            rows(&|it| json!(f64::from(it))),
            rows(&|it| json!(it * 255)),
            rows(&|it| json!(it == 1)),
            rows(&|_| json!(0)),
        ] {
            for column in [ColumnSettings::runs("runs"), ColumnSettings::instances("runs")] {
                let problem = problem(read(size, &json!(mask), column));
                for words in [
                    "the outline of object 1: ",
                    &format!("{height} rows"),
                    "pycocotools.mask.encode(numpy.asfortranarray(mask, dtype=\"uint8\"))",
                ] {
                    assert!(problem.contains(words), "{words}: {problem}");
                }
            }
        }
    }
    let size = Size::new(6, 3);
    let row = [0, 0, 1, 1, 0, 1];
    for polygons in [
        json!([row, row]),
        json!([row, row, row, row]),
        json!([row, row, [0, 0, 1, 1, 0, 2]]),
        json!([row, row, &row[..4]]),
    ] {
        batches(read(size, &polygons, ColumnSettings::runs("runs"))).unwrap();
    }
    for (polygons, words) in [
        (json!([row, row, [0, 0, 1, 1, 1]]), "a polygon has 5 numbers"),
        (json!([row, row, [0, true, 1, 1, 1, 2]]), "a coordinate of a polygon is not a number"),
        (json!([row, [0, 255, 1, 1, 1, 0]]), "a polygon has the point [0.0, 255.0], far outside"),
    ] {
        let problem = problem(read(size, &polygons, ColumnSettings::runs("runs")));
        assert!(problem.contains(words), "{words}: {problem}");
    }
}

/// An object has at most `limits.max_outline_points` points in all of its polygons.
#[test]
fn objects_with_too_many_points_fail() {
    let size = Size::new(8, 6);
    let whole: &[&str] = &["op = \"resize\"\nwidth = 8\nheight = 6"];
    let square = "[1,1,5,1,5,5,1,5]";
    let texts =
        [format!("[[{square}],[{square},{square},[1,1]]]"), format!("[[{square},{square}]]")];
    let made = |most: u64| {
        let column =
            ColumnSettings { field: Some("outlines".into()), ..ColumnSettings::runs("runs") };
        let images = vec![vec![]; 2];
        let builder = loader(&[size; 2], texts.to_vec(), images, whole, vec![column]);
        builder.configure(move |it| it.limits.max_outline_points = most)
    };
    assert!(batches(made(9)).is_ok());
    let problem = problem(made(8));
    let words = "object 1, counted from 0, whose polygons have 9 points";
    assert!(problem.contains(words), "{problem}");
    assert!(problem.contains("limits.max_outline_points is 8"), "{problem}");
}

/// The time of a polygon depends on the columns that its edges cross, and not on their length.
/// A trace of these edges would visit 20 billion points.
#[test]
fn long_edges_cost_what_they_cross() {
    let size = Size::new(4, 3000);
    let whole: &[&str] = &["op = \"resize\"\nwidth = 4\nheight = 300"];
    let points: Vec<f64> = (0..65_536)
        .flat_map(|at| [f64::from(at % 4), if at % 2 == 0 { -24e3 } else { 24e3 }])
        .collect();
    let text = json!([[points]]).to_string();
    let column =
        ColumnSettings { field: Some("outlines".into()), ..ColumnSettings::instances("runs") };
    let builder = loader(&[size], vec![text], vec![vec![]], whole, vec![column]);
    let batch =
        batches(builder.configure(|it| it.limits.max_field_bytes = 4 << 20)).unwrap().remove(0);
    assert_eq!(batch.column("runs").unwrap().offsets().unwrap(), [0, 1]);
}

/// A sample without outlines has the default, and a failed sample has no objects.
#[test]
fn a_missing_value_has_no_objects_with_a_default() {
    let sizes = [Size::new(8, 6); 3];
    let whole: &[&str] = &["op = \"resize\"\nwidth = 8\nheight = 6"];
    let square = "[[[1,1,5,1,5,5]],null]";
    let texts = ["", square, "[3]"].map(String::from).to_vec();
    let of = |column| ColumnSettings {
        field: Some("outlines".into()),
        default: Some(DefaultValue::List(vec![])),
        ..column
    };
    let columns = vec![of(ColumnSettings::runs("runs")), of(ColumnSettings::instances("masks"))];
    let builder = loader(&sizes, texts, vec![vec![]; 3], whole, columns);
    let batch = batches(builder.on_error(OnError::Substitute)).unwrap().remove(0);
    for name in ["runs", "masks"] {
        assert_eq!(batch.column(name).unwrap().offsets().unwrap(), [0, 0, 2, 2]);
    }
    let runs: Vec<&[i64]> = batch.column("runs").unwrap().lists(1).unwrap().collect();
    assert_eq!(runs[1], [48], "an object without an outline has no pixels");
    assert!(runs[0].len() > 2 && runs[0].iter().sum::<i64>() == 48);
    assert!(batch.column("runs").unwrap().texts(1).is_none());
    assert!(batch.column("masks").unwrap().lists::<u8>(1).is_none());
}
