//! Columns from the annotations of COCO files.

use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{F32, I64, batches, sample_error, shared, with_field};
use crate::common::{jpegs, refused};
use feedwater::ElementType;
use feedwater::error::{Error, Reason, Result};
use feedwater::plan::{ColumnSettings, DefaultValue};
use feedwater::source::custom::{Fields, Hints, Notes};
use feedwater::source::settings::CocoSettings;
use feedwater::source::{ClassTable, Classed, Coco, Concat, FieldKind, FieldValue, Flat, Source};

/// Folder with images, and files of annotations.
struct Set(tempfile::TempDir);

impl Set {
    fn new(images: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (number, (bytes, _)) in jpegs(images as u64).into_iter().enumerate() {
            fs::write(folder.path().join(format!("{number}.jpg")), bytes).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, json: &Value) {
        fs::write(self.path(name), json.to_string()).unwrap();
    }

    fn open(&self, json: &Value, settings: &CocoSettings) -> Result<Coco> {
        self.write("a.json", json);
        Coco::open(self.path("a.json"), settings)
    }

    fn usual(&self, json: &Value) -> Coco {
        self.open(json, &CocoSettings::default()).unwrap()
    }
}

/// Entries of `images` with these IDs, without sizes.
fn images(ids: &[i64]) -> Value {
    let image = |(number, id)| json!({"id": id, "file_name": format!("{number}.jpg")});
    ids.iter().enumerate().map(image).collect()
}

/// A value of any kind as JSON.
fn value(value: FieldValue<'_>) -> Value {
    match value {
        FieldValue::Integer(number) => json!(number as i64),
        FieldValue::Text(text) => json!(text),
        FieldValue::Json(text) => serde_json::from_slice(text).unwrap(),
        FieldValue::Entries(Flat::Integers(list), []) => json!(list),
        FieldValue::Entries(Flat::Doubles(list), _) | FieldValue::Doubles(list) => json!(list),
        other => panic!("{other:?}"),
    }
}

/// Fields of a sample as JSON. A missing value is null.
fn read(source: &dyn Source, index: u64, names: &[&str]) -> Value {
    let mut found = vec![Value::Null; names.len()];
    let fields = source.fields().unwrap();
    let mut put = |number: usize, it: FieldValue<'_>| {
        found[number] = value(it);
        Ok(())
    };
    fields.read_fields(index, names, &mut Vec::new(), 1 << 20, &mut put).unwrap();
    found.into()
}

/// Error of reading a field.
fn failure(source: &dyn Source, index: u64, name: &str, limit: u64) -> (Reason, String) {
    let fields = source.fields().unwrap();
    let read = fields.read_fields(index, &[name], &mut Vec::new(), limit, &mut |_, _| Ok(()));
    read.map_err(|error| (error.reason, error.problem)).unwrap_err()
}

fn names(source: &dyn Source) -> Vec<String> {
    source.schema().into_iter().map(|field| field.name).collect()
}

/// Annotations in an order that differs from that of the images, of categories whose IDs are not in
/// order.
fn instances() -> Value {
    json!({
        "images": [
            {"id": 30, "file_name": "0.jpg", "width": 640, "height": 480.0},
            {"id": 10, "file_name": "1.jpg", "width": null, "height": 480},
            {"id": 20, "file_name": "2.jpg", "width": 640, "height": 480},
        ],
        "annotations": [
            {"id": 5, "image_id": 20, "category_id": 18, "bbox": [1, 2.25, 3.125, 4], "area": 5.5,
             "iscrowd": 0, "segmentation": [[1, 2, 3.5, 4, 5, 6.0], [0, 0, 1, 0, 1, 1e-7]]},
            {"id": 4, "image_id": 30, "category_id": 3, "bbox": [0, 0, 10, 20.1], "iscrowd": 1,
             "segmentation": {"size": [480, 640], "counts": [5, 3, 307192]}},
            {"id": 3, "image_id": 20, "category_id": 7, "bbox": [9, 8, 7, 6], "area": 42},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 7, "name": "cat"}, {"id": 3, "name": "ant"}],
    })
}

#[test]
fn the_annotations_of_an_image_are_fields() {
    let set = Set::new(3);
    let coco = set.usual(&instances());
    let expected = [
        ("image_id", FieldKind::Number),
        ("file_name", FieldKind::Text),
        ("width", FieldKind::Number),
        ("height", FieldKind::Number),
        ("boxes", FieldKind::List),
        ("categories", FieldKind::List),
        ("category_ids", FieldKind::List),
        ("areas", FieldKind::List),
        ("iscrowd", FieldKind::List),
        ("segmentations", FieldKind::Json),
    ];
    let schema: Vec<(String, FieldKind)> =
        coco.schema().into_iter().map(|it| (it.name, it.kind)).collect();
    assert_eq!(schema, expected.map(|(name, kind)| (name.to_string(), kind)));
    let all: Vec<&str> = expected.iter().map(|it| it.0).collect();
    let runs = json!({"size": [480, 640], "counts": [5, 3, 307192]});
    assert_eq!(
        read(&coco, 0, &all),
        json!([30, "0.jpg", 640, 480, [0.0, 0.0, 10.0, 20.1], [0], [3], [201.0], [1], [runs]])
    );
    assert_eq!(read(&coco, 1, &all), json!([10, "1.jpg", null, 480, [], [], [], [], [], []]));
    let polygons = json!([[1, 2, 3.5, 4, 5, 6], [0, 0, 1, 0, 1, 1e-7]]);
    let boxes = [1.0, 2.25, 3.125, 4.0, 9.0, 8.0, 7.0, 6.0];
    assert_eq!(
        read(&coco, 2, &all),
        json!([
            20,
            "2.jpg",
            640,
            480,
            boxes,
            [2, 1],
            [18, 7],
            [5.5, 42.0],
            [0, 0],
            [polygons, null]
        ])
    );
    assert_eq!(read(&coco, 2, &["keypoints", "captions", "x"]), json!([null, null, null]));
    for (name, bytes) in [("boxes", 64), ("categories", 16), ("areas", 16)] {
        let (reason, problem) = failure(&coco, 2, name, bytes - 1);
        assert!(reason == Reason::Oversized && problem.contains("max_field_bytes"), "{problem}");
        assert!(problem.contains(&bytes.to_string()) && problem.contains(name), "{problem}");
    }
    assert_eq!(failure(&coco, 2, "segmentations", 20).0, Reason::Oversized);
}

#[test]
fn columns_have_one_entry_for_each_object() {
    let set = Set::new(3);
    // The sizes in the file are not those of the images.
    let mut json = instances();
    for image in json["images"].as_array_mut().unwrap() {
        image["width"] = json!(null);
        image["height"] = json!(0);
    }
    let source: Arc<dyn Source> = Arc::new(set.usual(&json));
    let list = |name: &str, field: &str, shape: &[usize]| {
        with_field(field, ColumnSettings::list(name, F32, shape))
    };
    let first = with_field("segmentations:[0][0]", ColumnSettings::list("first", F32, &[2]));
    let columns = vec![
        list("boxes", "boxes", &[4]),
        ColumnSettings::list("categories", I64, &[]),
        ColumnSettings { default: Some(DefaultValue::List(Vec::new())), ..first },
        ColumnSettings {
            default: Some(DefaultValue::Integer(-1)),
            ..ColumnSettings::array("width", I64, &[])
        },
    ];
    for workers in [1, 3] {
        let found =
            batches(shared(source.clone(), columns[..2].to_vec()).num_workers(workers)).unwrap();
        let boxes = found[0].column("boxes").unwrap();
        assert_eq!(boxes.offsets().unwrap(), [0, 1, 1, 3]);
        assert_eq!(boxes.sample::<f32>(2).unwrap(), [1.0, 2.25, 3.125, 4.0, 9.0, 8.0, 7.0, 6.0]);
        assert_eq!(found[0].column("categories").unwrap().sample::<i64>(2).unwrap(), [2, 1]);
    }
    let (index, reason, problem) = sample_error(shared(source, columns));
    assert_eq!((index, reason), (0, Reason::Field));
    assert!(problem.contains("segmentations"), "{problem}");
}

/// A file of captions has no boxes and no categories.
#[test]
fn captions_are_read_from_the_file_or_from_a_second_file() {
    let set = Set::new(3);
    let captions = json!({
        "annotations": [
            {"id": 1, "image_id": 30, "caption": "a \"cat\" é\n"},
            {"id": 2, "image_id": 10, "caption": "two dogs"},
            {"id": 3, "image_id": 30, "caption": ""},
            {"id": 4, "image_id": 99, "caption": "of another image"},
        ],
        "images": images(&[30, 20, 10]),
    });
    let expected = [json!(["a \"cat\" é\n", ""]), json!(null), json!(["two dogs"])];
    let coco = set.usual(&captions);
    assert_eq!(names(&coco), ["image_id", "file_name", "width", "height", "captions"]);
    assert!(
        coco.describe().ends_with("0 objects of 0 categories, 3 captions"),
        "{}",
        coco.describe()
    );
    assert_eq!(coco.excluded()[0].count, 1);
    let before = coco.memory_bytes();
    for (index, expected) in (0..).zip(&expected) {
        assert_eq!(read(&coco, index, &["captions"])[0], *expected);
    }
    assert!(coco.memory_bytes() >= before + 40, "the captions are counted");
    let first = with_field("captions:[0]", ColumnSettings::text("caption"));
    let default = Some(DefaultValue::Text("none".into()));
    let columns = vec![ColumnSettings { default, ..first }];
    let found = batches(shared(Arc::new(coco), columns.clone())).unwrap();
    let caption = found[0].column("caption").unwrap();
    assert_eq!(
        [0, 1, 2].map(|place| caption.text(place).unwrap()),
        ["a \"cat\" é\n", "none", "two dogs"]
    );

    let skipping = CocoSettings { skip_empty: true, ..Default::default() };
    let coco = set.open(&captions, &skipping).unwrap();
    assert_eq!((coco.len(), coco.image_id(0), coco.image_id(1)), (2, 30, 10));
    assert_eq!(read(&coco, 1, &["captions"])[0], expected[2]);

    set.write("captions.json", &captions);
    let second = CocoSettings { captions: Some("captions.json".into()), ..Default::default() };
    let coco = set.open(&instances(), &second).unwrap();
    assert!(names(&coco).ends_with(&["segmentations".into(), "captions".into()]));
    let read = |index| read(&coco, index, &["captions", "boxes"]);
    assert_eq!(read(0), json!([expected[0], [0.0, 0.0, 10.0, 20.1]]));
    assert_eq!(read(1), json!([expected[2], []]));
    assert_eq!(read(2)[0], json!(null));
}

#[test]
fn captions_of_images_with_texts_as_ids_are_in_the_same_file() {
    let set = Set::new(3);
    let image = |id: &str, number: u32| json!({"id": id, "file_name": format!("{number}.jpg")});
    // The annotations precede the images, so the IDs have another order.
    let json = json!({
        "annotations": [
            {"id": 1, "image_id": "c", "caption": "of c"},
            {"id": 2, "image_id": "a", "caption": "of a"},
        ],
        "images": [image("a", 0), image("b", 1), image("c", 2)],
    });
    let coco = set.usual(&json);
    let of = |coco: &Coco| -> Vec<Value> {
        (0..coco.len()).map(|index| read(coco, index, &["captions"])[0].clone()).collect()
    };
    assert_eq!(of(&coco), [json!(["of a"]), json!(null), json!(["of c"])]);
    // `serde_json` sorts keys, so the annotations are first.
    assert!(json.to_string().find("annotations") < json.to_string().find("images"));
    let skipping = CocoSettings { skip_empty: true, ..Default::default() };
    assert_eq!(of(&set.open(&json, &skipping).unwrap()), [json!(["of a"]), json!(["of c"])]);

    set.write("captions.json", &json);
    let second = CocoSettings { captions: Some("captions.json".into()), ..Default::default() };
    let coco = set.open(&instances(), &second).unwrap();
    refused(coco.prepare(&["captions"]), "source.captions", &["captions.json", "are texts"]);
}

fn person(id: i64, image: i64, keypoints: Value) -> Value {
    json!({"id": id, "image_id": image, "category_id": 1, "bbox": [0, 0, 1, 1], "keypoints": keypoints})
}

fn people(annotations: Value) -> Value {
    let categories = json!([{"id": 1, "name": "person", "keypoints": ["nose", "ear"]}]);
    json!({"images": images(&[1, 2, 3]), "annotations": annotations, "categories": categories})
}

#[test]
fn keypoints_are_read_on_first_use() {
    let set = Set::new(3);
    let json = people(json!([
        person(1, 3, json!([1, 2.5, 2, 0, 0, 0])),
        person(2, 1, json!([7, 8, 1, 100.125, 10, 2])),
        person(3, 3, json!([0, 0, 0, 3, 4, 1])),
    ]));
    let coco = set.usual(&json);
    assert!(names(&coco).contains(&"keypoints".to_string()));
    let before = coco.memory_bytes();
    let of = |index| read(&coco, index, &["keypoints"])[0].clone();
    assert_eq!(of(0), json!([7.0, 8.0, 1.0, 100.125, 10.0, 2.0]));
    assert_eq!(of(1), json!([]));
    let (reason, problem) = failure(&coco, 2, "keypoints", 12 * 8 - 1);
    assert!(reason == Reason::Oversized && problem.contains("96 bytes"), "{problem}");
    assert_eq!(of(2), json!([1.0, 2.5, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0, 1.0]));
    let after = coco.memory_bytes();
    assert!(after >= before + 3 * 8 + 18, "{before} {after}");
    let columns = vec![ColumnSettings::list("keypoints", F32, &[2, 3])];
    let source: Arc<dyn Source> = Arc::new(set.usual(&json));
    let loader = shared(source.clone(), columns).build().unwrap();
    assert_eq!(source.memory_bytes(), after, "the loader counts the keypoints in its plan");
    let found: Vec<_> = loader.into_batches().collect::<Result<_>>().unwrap();
    let keypoints = found[0].column("keypoints").unwrap();
    assert_eq!(keypoints.offsets().unwrap(), [0, 1, 1, 3]);

    // A source without columns reads the file once.
    let source: Arc<dyn Source> = Arc::new(set.usual(&json));
    batches(shared(source.clone(), Vec::new())).unwrap();
    assert_eq!(source.memory_bytes(), before);
}

/// A shape that divides the numbers of an image otherwise is an error, and joins no two objects.
#[test]
fn a_column_has_the_shape_of_an_object() {
    let set = Set::new(3);
    let three = |start: i64| json!([start, 1, 2, start + 1, 2, 2, start + 2, 3, 2]);
    let annotations = json!([person(1, 1, three(10)), person(2, 1, three(20))]);
    let source: Arc<dyn Source> = Arc::new(set.usual(&people(annotations)));
    let open = |column| shared(source.clone(), vec![column]);
    let named = |field: &str, column| with_field(field, column);
    let points = |shape: &[usize]| ColumnSettings {
        shape: shape.to_vec(),
        ..ColumnSettings::points("keypoints")
    };
    let list = |name: &str, shape: &[usize]| ColumnSettings::list(name, F32, shape);
    let expected = [10., 1., 2., 11., 2., 2., 12., 3., 2., 20., 1., 2., 21., 2., 2., 22., 3., 2.];
    let whole = ColumnSettings::array("keypoints", F32, &[2, 3, 3]);
    for column in [list("keypoints", &[3, 3]), list("keypoints", &[9])] {
        let found = batches(open(column)).unwrap();
        let keypoints = found[0].column("keypoints").unwrap();
        assert_eq!(keypoints.sample::<f32>(0).unwrap(), expected);
        assert_eq!(keypoints.offsets().unwrap(), [0, 2, 2, 2]);
    }
    let found = batches(open(points(&[3, 3]))).unwrap();
    assert_eq!(found[0].column("keypoints").unwrap().offsets().unwrap(), [0, 2, 2, 2]);
    // The other images have no object, so they have no array of this shape.
    assert_eq!(sample_error(open(whole)).0, 1);
    let shapes = |field: &str, shapes: &[&[usize]]| -> Vec<ColumnSettings> {
        shapes.iter().map(|shape| list(field, shape)).collect()
    };
    let wrong = [
        (vec![points(&[6, 3]), points(&[1, 3]), points(&[]), points(&[3])], "set shape = [3, 3]"),
        (shapes("keypoints", &[&[], &[3], &[18], &[2, 9], &[9, 1]]), "object of the image has 3 k"),
        (shapes("boxes", &[&[], &[2], &[8], &[2, 2]]), "set shape = [4]"),
        (shapes("areas", &[&[2], &[1, 1]]), "remove shape"),
        (shapes("categories", &[&[2]]), "remove shape"),
        (shapes("category_ids", &[&[2]]), "remove shape"),
        (shapes("iscrowd", &[&[2]]), "remove shape"),
        (vec![ColumnSettings::array("boxes", F32, &[8])], "choose the kind list with shape = [4]"),
        (vec![named("boxes", points(&[2, 2]))], "set shape = [4]"),
        (vec![ColumnSettings::text("boxes")], "a list of 2 entries of shape [4]"),
    ];
    for (columns, words) in wrong {
        for column in columns {
            let text = format!("{column:?}");
            let (index, reason, problem) = sample_error(open(column));
            assert_eq!((index, reason), (0, Reason::Field), "{text}: {problem}");
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }
    // An array holds the objects of images that have the same number of them.
    for shape in [&[4][..], &[1, 4]] {
        let one: Arc<dyn Source> = Arc::new(set.usual(&people(json!([
            person(1, 1, json!(null)),
            person(2, 2, json!(null)),
            person(3, 3, json!(null)),
        ]))));
        let found = batches(shared(one, vec![ColumnSettings::array("boxes", F32, shape)])).unwrap();
        let boxes = found[0].column("boxes").unwrap();
        assert_eq!(boxes.sample::<f32>(1).unwrap(), [0.0, 0.0, 1.0, 1.0]);
    }
}

#[test]
fn objects_without_the_keypoints_of_others_have_zeros() {
    let set = Set::new(3);
    let coco = set.usual(&people(json!([
        person(1, 1, json!([1, 2, 2])),
        person(2, 1, json!([1, 2, 2, 3, 4, 1])),
        person(3, 2, json!([1, 2, 2])),
        person(4, 2, json!(null)),
        person(5, 2, json!([])),
        person(6, 3, json!(null)),
    ])));
    let (reason, problem) = failure(&coco, 0, "keypoints", 1000);
    assert_eq!(reason, Reason::Corrupt);
    assert!(problem.contains("numbers of keypoints: one has 2, another has 1"), "{problem}");
    let zeros = json!([1.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(read(&coco, 1, &["keypoints"]), json!([zeros]));
    assert_eq!(read(&coco, 2, &["keypoints"]), json!([null]));

    for (keypoints, words) in
        [(json!([1, 2]), "2 numbers"), (json!([1, 2, "3"]), "string"), (json!(3), "list")]
    {
        let coco = set.usual(&people(json!([person(1, 1, keypoints)])));
        refused(coco.prepare(&["keypoints"]), "source.coco", &["a.json", words]);
        let (reason, problem) = failure(&coco, 0, "keypoints", 1000);
        assert!(reason == Reason::Unreadable && problem.contains(words), "{problem}");
        // Other fields do not need them.
        assert_eq!(read(&coco, 0, &["image_id"]), json!([1]));
    }
}

#[test]
fn wrong_captions_are_errors_before_the_loader_starts() {
    let set = Set::new(3);
    let of = |caption: Value| json!({"images": images(&[1]), "annotations": [{"id": 1, "image_id": 1, "caption": caption}]});
    let coco = set.usual(&of(json!(["a"])));
    refused(coco.prepare(&["captions"]), "source.coco", &["a.json", "string"]);
    let second = CocoSettings { captions: Some("captions.json".into()), ..Default::default() };
    for (json, words) in [
        (of(json!("a")), "no caption of an image"),
        (json!({"annotations": [{"id": 1, "caption": "a"}]}), "image_id of an annotation is null"),
        (json!({"annotations": 3}), "list"),
        (json!([]), "an object with annotations"),
        (json!({"images": [{"id": []}]}), "id of an image is a list"),
    ] {
        set.write("captions.json", &json);
        let coco = set.open(&instances(), &second).unwrap();
        refused(coco.prepare(&["captions"]), "source.captions", &["captions.json", words]);
        let text = vec![with_field("captions:[0]", ColumnSettings::text("caption"))];
        let build = shared(Arc::new(coco), text).build();
        assert!(matches!(build, Err(Error::Config(_))), "{words}");
    }
    fs::remove_file(set.path("captions.json")).unwrap();
    let coco = set.open(&instances(), &second).unwrap();
    assert!(matches!(coco.prepare(&["captions"]), Err(Error::Io { .. })));
    assert_eq!(failure(&coco, 0, "captions", 99).0, Reason::Unreadable);

    // Neither an object nor a caption.
    let json =
        json!({"images": images(&[1]), "annotations": [{"id": 1, "image_id": 1, "caption": null}]});
    let error = set.open(&json, &CocoSettings::default());
    refused(error, "source.coco", &["annotation 1 has no category_id"]);
    let json =
        json!({"images": images(&[1]), "annotations": [{"id": 1, "image_id": 2, "caption": ""}]});
    let error = set.open(&json, &CocoSettings::default());
    refused(error, "source.coco", &["none of the 1 annotations"]);
}

#[test]
fn a_file_that_changed_before_the_first_use_is_an_error() {
    let set = Set::new(3);
    let coco = set.usual(&people(json!([person(1, 1, json!([1, 2, 2]))])));
    set.write("a.json", &people(json!([person(1, 1, json!([1, 2, 2, 4, 5, 1]))])));
    let (reason, problem) = failure(&coco, 0, "keypoints", 1000);
    assert!(reason == Reason::Unreadable && problem.contains("was changed"), "{problem}");
}

/// Combinations renumber classes, also in the field.
#[test]
fn categories_have_the_class_numbers_of_combinations() {
    let set = Set::new(3);
    let first: Arc<dyn Source> = Arc::new(set.usual(&instances()));
    let mut other = instances();
    other["categories"] =
        json!([{"id": 18, "name": "dog"}, {"id": 7, "name": "bird"}, {"id": 3, "name": "cow"}]);
    let second: Arc<dyn Source> = Arc::new(set.usual(&other));
    let names = ["categories", "category_ids"];
    let both = Concat::new(vec![first.clone(), second]).unwrap();
    assert_eq!(both.classes(), ["ant", "cat", "dog", "cow", "bird"]);
    assert_eq!(read(&both, 2, &names), json!([[2, 1], [18, 7]]));
    assert_eq!(read(&both, 3, &names), json!([[3], [3]]));
    assert_eq!(read(&both, 5, &names), json!([[2, 4], [18, 7]]));
    let table = ClassTable::new(["dog", "ant"]).unwrap();
    let classed: Arc<dyn Source> = Arc::new(Classed::new(first, &table).unwrap());
    assert_eq!(read(&*classed, 0, &names), json!([[1], [3]]));
    assert_eq!(read(&*classed, 2, &names), json!([[0, -1], [18, 7]]));
    let nested = Concat::new(vec![classed.clone(), classed]).unwrap();
    assert_eq!(read(&nested, 5, &names), json!([[0, -1], [18, 7]]));
    let u8_boxes = vec![ColumnSettings::list("boxes", ElementType::U8, &[4])];
    let (_, reason, problem) = sample_error(shared(Arc::new(nested), u8_boxes));
    assert_eq!(reason, Reason::Field, "{problem}");
}

#[test]
fn a_pipeline_file_names_the_file_of_captions() {
    let set = Set::new(3);
    fs::create_dir(set.path("annotations")).unwrap();
    set.write("annotations/i.json", &instances());
    set.write("c.json", &json!({"annotations": [{"image_id": 20, "caption": "x"}]}));
    let text = "[source]\ncoco = \"annotations/i.json\"\nimages = \".\"\ncaptions = \"c.json\"\n";
    let pipeline = feedwater::Pipeline::from_toml(text, set.0.path()).unwrap();
    let written = pipeline.to_toml().unwrap();
    for pipeline in [pipeline, feedwater::Pipeline::from_toml(&written, "").unwrap()] {
        assert_eq!(read(&*pipeline.open().unwrap(), 2, &["captions"]), json!([["x"]]));
    }
    // Otherwise the path is relative to the annotation file.
    fs::rename(set.path("c.json"), set.path("annotations/c.json")).unwrap();
    let pipeline = feedwater::Pipeline::from_toml(text, set.0.path()).unwrap();
    assert_eq!(read(&*pipeline.open().unwrap(), 2, &["captions"]), json!([["x"]]));
}
