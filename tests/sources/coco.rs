//! Tests what the documentation of `Coco` promises, on a file in COCO's format
//! (tests/golden/coco.py) and on invalid files built here.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::words::has_words;
use crate::common::{Wrapping, config_error, refused};

use feedwater::annotation::{Frame, Objects, RunLengths, Segmentation};
use feedwater::error::{ConfigError, Error, Reason};
use feedwater::internals::config::Pipeline;
use feedwater::internals::geometry::{BoundingBox, Mapping, Orientation, Size};
use feedwater::source::custom::{Annotations, Hints, HostPage, Notes};
use feedwater::source::settings::CocoSettings;
use feedwater::source::{Coco, ExclusionReason, Source};
use feedwater::storage::{Storage, StorageSettings};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

fn folder(json: &str) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.json");
    fs::write(&path, json).unwrap();
    (root, path)
}

pub fn open(json: &str, settings: &CocoSettings) -> Result<Coco, Error> {
    let (_root, path) = folder(json);
    Coco::open(path, settings)
}

/// Opens a set with one image of 8x6 pixels and these annotations.
pub fn with(annotations: &Value) -> Result<Coco, Error> {
    let images = json!([{"id": 1, "file_name": "1.jpg", "width": 8, "height": 6}]);
    let categories = json!([{"id": 3, "name": "cat"}]);
    let all = json!({"images": images, "annotations": annotations, "categories": categories});
    open(&all.to_string(), &CocoSettings::default())
}

/// Opens a set with one annotation. The annotation has the required fields and the fields `fields`.
fn one(fields: Value) -> Result<Coco, Error> {
    let mut annotation = json!({"id": 77, "image_id": 1, "category_id": 3, "bbox": [0, 0, 1, 1]});
    annotation.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    with(&json!([annotation]))
}

/// Checks that the result is an error that names the file `a.json` and contains `values`.
#[track_caller]
pub fn invalid(result: Result<Coco, Error>, values: &[&str]) {
    refused(result, "source.coco", &[&["a.json"][..], values].concat());
}

#[test]
fn samples_are_images_and_objects_annotations_in_file_order() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/coco/instances.json");
    let all: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let coco = Coco::open(&path, &CocoSettings::default()).unwrap();
    let images = all["images"].as_array().unwrap();
    assert_eq!(coco.len(), images.len() as u64);
    let mut seen = 0;
    for (index, image) in (0..).zip(images) {
        assert_eq!(coco.image_id(index), image["id"].as_i64().unwrap());
        assert!(coco.location(index).ends_with(image["file_name"].as_str().unwrap()));
        assert_eq!(coco.label(index), -1);
        let of = all["annotations"].as_array().unwrap().iter();
        let expected: Vec<_> = of.filter(|it| it["image_id"] == image["id"]).collect();
        let objects = coco.objects(index);
        assert_eq!(objects.len(), expected.len());
        for (object, expected) in objects.iter().zip(expected) {
            assert_eq!(object.id, expected["id"].as_i64().unwrap());
            let number = |at: usize| expected["bbox"][at].as_f64().unwrap();
            let bbox = BoundingBox::new(number(0), number(1), number(2), number(3));
            assert_eq!((object.bbox, object.area), (bbox, expected["area"].as_f64().unwrap()));
            assert_eq!(object.crowd, expected["iscrowd"] == 1);
            let category = &coco.categories()[object.category as usize];
            assert_eq!(category.id, expected["category_id"].as_i64().unwrap());
            if let Some(Segmentation::Polygons(polygons)) = &object.segmentation {
                let flat: Vec<Vec<f64>> =
                    polygons.iter().map(|polygon| polygon.as_flattened().to_vec()).collect();
                assert_eq!(json!(flat), expected["segmentation"], "every bit must be equal");
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 60);
    let wrapper = Wrapping(Arc::new(Coco::open(&path, &CocoSettings::default()).unwrap()));
    assert_eq!((&wrapper as &dyn Source).objects(1), coco.objects(1));
    assert_eq!((&wrapper as &dyn Source).canvas(1), coco.canvas(1));
    let described = coco.describe();
    // The description must contain the numbers of images, objects and categories.
    assert!(has_words(&described, &["5", "60", "3"]), "{described}");
    assert!(described.contains("/tests/golden/coco"), "{described}");
}

#[test]
fn categories_are_numbered_in_the_order_of_their_ids() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/coco/instances.json");
    let coco = Coco::open(path, &CocoSettings::default()).unwrap();
    assert_eq!(coco.classes(), ["car", "cat", "toothbrush"]);
    let ids: Vec<_> = coco.categories().iter().map(|category| category.id).collect();
    assert_eq!(ids, [3, 17, 90]);
    let nameless = json!({"images": [{"id": 1, "file_name": "a"}], "categories": [{"id": 9}]});
    let nameless = open(&nameless.to_string(), &CocoSettings::default()).unwrap();
    assert_eq!(nameless.classes(), ["9"]);
}

/// An annotation file may come from other people. By default, its file names may name only files
/// below the folder of the images.
#[test]
fn file_names_stay_below_the_folder_unless_the_settings_allow_more() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("set");
    fs::create_dir_all(set.join("x")).unwrap();
    for name in ["set/a.jpg", "b.jpg"] {
        fs::write(root.path().join(name), name).unwrap();
    }
    let open = |name: &str, settings: StorageSettings| {
        let images = json!([{"id": 1, "file_name": "a.jpg"}, {"id": 77, "file_name": name}]);
        let all = json!({"images": images, "categories": [{"id": 3, "name": "cat"}]});
        fs::write(set.join("a.json"), all.to_string()).unwrap();
        let storage = Storage::new(&settings).unwrap();
        Coco::open_with(set.join("a.json"), &CocoSettings::default(), &storage)
    };
    let refused = |name: &str, values: &[&str]| {
        let error = config_error(open(name, StorageSettings::default()));
        assert!(error.key.starts_with("source.coco: "), "{error}");
        assert!(error.key.ends_with("a.json, image 77"), "{error}");
        for value in [name].iter().chain(values) {
            assert!(error.problem.contains(value), "{value}: {error}");
        }
    };
    let outside = root.path().join("b.jpg").to_str().unwrap().to_owned();
    for name in ["../b.jpg", "x/../../b.jpg", &outside] {
        refused(name, &["allow_folders", root.path().to_str().unwrap()]);
        let allow_folders = vec![root.path().to_path_buf()];
        let coco = open(name, StorageSettings { allow_folders, ..Default::default() }).unwrap();
        let mut page = HostPage::default();
        coco.read(1, &mut page, 100).unwrap();
        assert_eq!(page.bytes(), b"b.jpg");
    }
    for (url, host) in [
        ("http://169.254.169.254/latest/meta-data.jpg", "169.254.169.254"),
        ("s3://bucket/a.jpg", "s3://bucket"),
    ] {
        refused(url, &[&format!("allow_urls = [{host:?}]")]);
    }
    let inside = set.join("a.jpg").to_str().unwrap().to_owned();
    for name in ["x/../a.jpg", "./a.jpg", &inside] {
        assert!(open(name, StorageSettings::default()).is_ok(), "{name}");
    }
}

#[test]
fn images_are_beside_the_file_or_in_the_configured_folder() {
    let json =
        json!({"images": [{"id": 1, "file_name": "x/1.jpg"}, {"id": 2, "file_name": "2.jpg"}]});
    let (root, path) = folder(&json.to_string());
    let images = root.path().join("images");
    fs::create_dir_all(images.join("x")).unwrap();
    fs::write(images.join("x/1.jpg"), "one").unwrap();
    let settings = CocoSettings { images: "images".into(), ..Default::default() };
    let coco = Coco::open(&path, &settings).unwrap();
    let mut page = HostPage::default();
    coco.read(0, &mut page, 100).unwrap();
    assert_eq!((page.bytes(), coco.largest_bytes()), (&b"one"[..], Some(3)));
    let fault = coco.read(1, &mut page, 100).unwrap_err();
    assert_eq!(fault.reason, Reason::Unreadable);
    let beside = Coco::open(&path, &CocoSettings::default()).unwrap();
    assert_eq!(beside.path(0), root.path().join("x/1.jpg"));
}

#[test]
fn images_without_annotations_are_included_or_skipped() {
    let images: Vec<_> =
        (0..5).map(|id| json!({"id": id, "file_name": format!("{id}.jpg")})).collect();
    let annotation = |id: i64, image: i64| json!({"id": id, "image_id": image, "category_id": 3, "bbox": [id, 0, 1, 1]});
    // In this file, the annotations precede the images, and their order is not the order of the
    // images.
    let text = format!(
        "{{\"annotations\": {}, \"categories\": [{{\"id\": 3}}], \"images\": {}}}",
        json!([annotation(1, 3), annotation(2, 1), annotation(3, 3)]),
        json!(images)
    );
    let ids = |coco: &Coco| -> Vec<(i64, String, Vec<i64>)> {
        (0..coco.len())
            .map(|index| {
                let name = coco.path(index).file_name().unwrap().to_str().unwrap().to_string();
                let objects = coco.objects(index).iter().map(|object| object.id).collect();
                (coco.image_id(index), name, objects)
            })
            .collect()
    };
    let row = |id: i64, objects: &[i64]| (id, format!("{id}.jpg"), objects.to_vec());
    let all = open(&text, &CocoSettings::default()).unwrap();
    assert_eq!(ids(&all), [row(0, &[]), row(1, &[2]), row(2, &[]), row(3, &[1, 3]), row(4, &[])]);
    let settings = CocoSettings { skip_empty: true, ..Default::default() };
    let some = open(&text, &settings).unwrap();
    assert_eq!(ids(&some), [row(1, &[2]), row(3, &[1, 3])]);
    let [excluded] = &some.excluded()[..] else { panic!("{:?}", some.excluded()) };
    assert_eq!((excluded.why, excluded.count), (ExclusionReason::NoAnnotation, 3));
    assert_eq!((&*excluded.example, all.excluded().len()), ("0.jpg", 0));
    let none = json!({"images": [{"id": 1, "file_name": "a"}]}).to_string();
    invalid(open(&none, &settings), &["annotation"]);
    invalid(open("{}", &CocoSettings::default()), &["images"]);
}

#[test]
fn optional_fields_have_defaults() {
    let coco = one(json!({"bbox": [1, 2, 3, 2.5]})).unwrap();
    let object = &coco.objects(0)[0];
    assert_eq!((object.area, object.crowd, &object.segmentation), (7.5, false, &None));
    for (given, crowd) in [(json!(1), true), (json!(true), true), (json!(0), false)] {
        let coco = one(json!({"iscrowd": given, "segmentation": null})).unwrap();
        assert_eq!(coco.objects(0)[0].crowd, crowd);
    }
    assert_eq!(coco.canvas(0).size, Some(Size::new(8, 6)));
    let unsized_ = json!({"images": [{"id": 1, "file_name": "a"}]}).to_string();
    assert_eq!(open(&unsized_, &CocoSettings::default()).unwrap().canvas(0).size, None);
}

#[test]
fn empty_outlines_are_skipped() {
    for polygons in [json!([]), json!([[1, 2, 3, 4]]), json!([[]])] {
        let coco = one(json!({"segmentation": polygons})).unwrap();
        assert_eq!(coco.objects(0)[0].segmentation, None);
    }
    let coco = one(json!({"segmentation": [[1, 2, 3, 4], [0, 0, 4, 0, 4, 4]]})).unwrap();
    let expected = Segmentation::Polygons(vec![vec![[0.0, 0.0], [4.0, 0.0], [4.0, 4.0]]]);
    assert_eq!(coco.objects(0)[0].segmentation, Some(expected));
}

#[test]
fn invalid_annotations_are_errors_that_name_the_id() {
    let id = "77";
    for (fields, values) in [
        (json!({"bbox": [1, 2, 3]}), &[id, "bbox", "3", "4"][..]),
        (json!({"bbox": [1, 2, -3, 4]}), &[id, "bbox", "-3.0"]),
        (json!({"bbox": null}), &[id, "bbox"]),
        (json!({"category_id": null}), &[id, "category_id"]),
        (json!({"image_id": null}), &[id, "image_id"]),
        (json!({"id": null}), &["0", "id"]),
        (json!({"image_id": 2}), &[id, "image", "2"]),
        (json!({"category_id": 4}), &[id, "category", "4"]),
        (json!({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}), &[id, "polygon", "7"]),
        (json!({"segmentation": {"size": [8, 6], "counts": [48]}}), &[id, "6x8", "1", "8x6"]),
        (json!({"segmentation": {"size": [6, 8], "counts": [40, 9]}}), &[id, "48", "8x6"]),
        (json!({"segmentation": {"size": [6, 8], "counts": [1, u64::MAX]}}), &[id, "48", "8x6"]),
        (
            json!({"segmentation": {"size": [6, 8], "counts": "oooooooooooooooo"}}),
            &[id, "counts", "12"],
        ),
        (json!({"segmentation": {"size": [6, 8], "counts": "4o"}}), &[id, "counts"]),
        // The message must contain the position of the invalid byte and its value.
        (json!({"segmentation": {"size": [6, 8], "counts": "4 "}}), &[id, "counts", "1", "32"]),
        (
            json!({"segmentation": {"size": [6, 8], "counts": "O"}}),
            &[id, "counts", "0", "-1", "8x6"],
        ),
        (json!({"segmentation": {"size": [6, 8]}}), &["counts"]),
        (json!({"segmentation": {"counts": [48]}}), &["size"]),
        (json!({"segmentation": {"size": [6, 8], "counts": [-1]}}), &["-1"]),
        (json!({"segmentation": 3}), &["3", "size", "counts"]),
        (json!({"iscrowd": "x"}), &[id, "\"x\"", "0", "1"]),
        (json!({"bbox": [1, null, 3, 4]}), &[id, "bbox", "null"]),
        (json!({"id": 1.5}), &["0", "1.5"]),
        (json!({"category_id": [3]}), &[id, "category_id", "list"]),
    ] {
        let error = config_error(one(fields.clone()));
        assert_eq!(error.key, "source.coco");
        assert!(has_words(&error.problem, &["a.json"]), "{fields}: {error}");
        assert!(has_words(&error.problem, values), "{fields}: {error}");
    }
    let annotation = json!({"id": 77, "image_id": 1, "category_id": 3, "bbox": [0, 0, 1, 1]});
    let twice =
        json!([annotation, {"id": 78, "image_id": "x", "category_id": 3, "bbox": [0, 0, 1, 1]}]);
    invalid(with(&twice), &["78", "\"x\"", "1"]);
    let image = json!({"id": 5, "file_name": "a"});
    let all = json!({"images": [image, image]}).to_string();
    invalid(open(&all, &CocoSettings::default()), &["images", "5"]);
    let all = json!({"images": [image], "categories": [{"id": 1}, {"id": 1}]}).to_string();
    invalid(open(&all, &CocoSettings::default()), &["categories", "1"]);
}

#[test]
fn invalid_json_is_an_error_with_the_location() {
    let deep = format!("{{\"annotations\": {}", "[".repeat(1 << 20));
    let nested = format!("{{\"info\": {}", "[".repeat(1 << 20));
    let box_of = |number: &str| {
        format!("{{\"annotations\": [\n{{\"id\": 1, \"bbox\": [0, 0, {number}, 1]}}]}}")
    };
    // The message must contain the line, the column, and what was found there.
    for (text, values) in [
        ("", &["1", "0"][..]),
        ("[]", &["images", "annotations", "categories"]),
        ("{\"images\": [", &["1", "12"]),
        ("{\"images\": []} x", &["1", "16"]),
        ("{\"images\": [{\"id\": \"x\"}]}", &["1", "\"x\"", "file_name"]),
        ("{\"images\": [{\"id\": 1}]}", &["1", "file_name"]),
        ("{\"images\": 3}", &["1", "3"]),
        (&deep, &["1"]),
        (&nested, &["1"]),
        (&box_of("NaN"), &["2"]),
        (&box_of("1e999"), &["2"]),
        (&box_of("null"), &["2", "1", "image_id"]),
    ] {
        invalid(open(text, &CocoSettings::default()), values);
    }
    let missing = Coco::open("nowhere/a.json", &CocoSettings::default());
    assert!(matches!(missing, Err(Error::Io { .. })));
}

/// Damages a file at random. The result is an error, or objects that can be mapped and rasterized
/// in bounded time and memory.
#[test]
fn damaged_files_are_errors_or_are_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/coco/instances.json");
    let whole = fs::read(path).unwrap();
    let (_root, path) = folder("");
    let mut state = 7u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut read = 0;
    for round in 0..300 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(random(whole.len())),
            1 => {
                let at = random(bytes.len());
                bytes[at] = b"0123456789-.e[]{},:\"x "[random(22)];
            }
            // Replaces digits by other digits, so that most texts are still valid JSON.
            _ => {
                for byte in bytes.iter_mut().filter(|byte| byte.is_ascii_digit()) {
                    if random(8000) == 0 {
                        *byte = b'0' + random(10) as u8;
                    }
                }
            }
        }
        fs::write(&path, &bytes).unwrap();
        let Ok(coco) = Coco::open(&path, &CocoSettings::default()) else { continue };
        read += 1;
        let size = Size::new(64, 48);
        for index in 0..coco.len() {
            let way = (size, Orientation::UPRIGHT);
            let objects =
                Objects::place(coco.objects(index), Frame::Stored, way, Mapping::new(size));
            (0..objects.len()).for_each(|number| drop(objects.mask(number)));
        }
    }
    assert!((20..280).contains(&read), "{read} of 300 were read");
}

/// A typical annotation has 80 coordinates with two decimals and a box, which are about 450 bytes
/// of JSON. In memory it must take about two bytes per number.
#[test]
fn an_annotation_needs_about_two_bytes_per_number() {
    const COUNT: usize = 2000;
    let annotations: Vec<_> = (0..COUNT)
        .map(|id| {
            let near = |at: usize| ((at * 37 + id) % 500) as f64 / 100.0;
            let outline: Vec<f64> =
                (0..80).map(|at| ((300.0 + near(at)) * 100.0).round() / 100.0).collect();
            json!({
                "id": 900_000 + id, "image_id": 1, "category_id": 3, "area": 1.0 / 3.0,
                "bbox": [300.5, 301.25, 4.99, 4.5], "iscrowd": 0, "segmentation": [outline],
            })
        })
        .collect();
    let coco = with(&json!(annotations)).unwrap();
    let each = coco.memory_bytes() as usize / COUNT;
    assert!(each < 80 * 2 + 50, "{each} bytes");
    assert!(each > 80, "{each} bytes are too few");
}

proptest! {
    /// Only characters of compressed counts are used, so most texts are parsed nearly to the end.
    #[test]
    fn no_text_of_counts_causes_more_than_an_error(text in "[0-o]{0,40}", width in 0u32..200, height in 0u32..200) {
        let size = Size::new(width, height);
        if let Ok(runs) = RunLengths::from_compressed(size, text.as_bytes()) {
            prop_assert!(runs.lengths().sum::<u64>() <= size.pixels());
        }
    }
}

#[test]
fn the_image_folder_is_relative_to_the_pipeline_file_or_else_to_the_annotations() {
    let (root, path) = folder(&json!({"images": [{"id": 1, "file_name": "a.jpg"}]}).to_string());
    let put = |folder: &str| {
        fs::create_dir_all(root.path().join(folder)).unwrap();
        fs::write(root.path().join(folder).join("a.jpg"), folder).unwrap();
    };
    put("marks");
    fs::rename(&path, root.path().join("marks/a.json")).unwrap();
    let text = "[source]\ncoco = \"marks/a.json\"\nimages = \"train\"\n";
    let open = || {
        let pipeline = Pipeline::from_toml(text, root.path()).unwrap();
        // If the serialized settings are read from another folder, the result must be the same.
        let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), "").unwrap();
        let location = |pipeline: Pipeline| pipeline.source.open().map(|it| it.location(0));
        let (one, two) = (location(pipeline), location(again));
        assert_eq!(one.is_ok(), two.is_ok());
        assert_eq!(one.as_ref().ok(), two.as_ref().ok());
        one
    };
    let Err(Error::Config(ConfigError { key, problem, .. })) = open() else {
        panic!("opened a folder that does not exist")
    };
    assert_eq!(key, "source.images");
    for tried in ["train".into(), root.path().to_path_buf(), root.path().join("marks")] {
        assert!(problem.contains(tried.to_str().unwrap()), "{problem}");
    }
    put("marks/train");
    let at = |folder: &str| root.path().join(folder).join("a.jpg").to_str().unwrap().to_string();
    assert_eq!(open().unwrap(), at("marks/train"));
    put("train");
    assert_eq!(open().unwrap(), at("train"), "the pipeline file's folder must take precedence");
    fs::remove_file(at("train")).unwrap();
    let Err(Error::Config(ConfigError { key, problem, .. })) = open() else {
        panic!("opened a set without images")
    };
    assert!(key == "source.images" && problem.contains(&at("train")), "{problem}");
}

#[test]
fn a_folder_in_which_images_were_looked_for_is_named_once() {
    let (root, path) = folder(&json!({"images": [{"id": 1, "file_name": "a.jpg"}]}).to_string());
    let name = path.file_name().unwrap().to_str().unwrap();
    let text = format!("[source]\ncoco = \"{name}\"\nimages = \"train\"\n");
    let pipeline = Pipeline::from_toml(&text, root.path()).unwrap();
    let ConfigError { problem, .. } = config_error(pipeline.source.open());
    assert_eq!(problem.matches(root.path().to_str().unwrap()).count(), 1, "{problem}");
}

#[test]
fn texts_and_lists_are_bounded() {
    let long = "x".repeat(5 << 20);
    let (name, file_name) = (&long[..5000], &long[..9000]);
    let image = |name: &str| json!({"images": [{"id": 7, "file_name": name}]}).to_string();
    let numbers = "0,".repeat((1 << 22) + 1);
    let outline = |text: &str| {
        format!(
            "{{\"annotations\": [{{\"id\": 1, \"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 1, 1], \
             \"segmentation\": {text}}}]}}"
        )
    };
    for (text, values) in [
        (image(&long), &["4194304 bytes"][..]),
        (format!("{{\"images\": [{{\"id\": {}", "1".repeat(5 << 20)), &["4194304 bytes"]),
        (image(file_name), &["7", "file_name", "9000"]),
        (json!({"categories": [{"id": 3, "name": name}]}).to_string(), &["3", "name", "5000"]),
        (outline(&format!("[[{numbers}0]]")), &["4194304 numbers"]),
        (outline(&format!("[{}[]]", "[],".repeat(1 << 22))), &["4194304 numbers"]),
        (outline(&format!("{{\"size\": [1, 1], \"counts\": [{numbers}0]}}")), &["4194304 numbers"]),
    ] {
        let error = config_error(open(&text, &CocoSettings::default()));
        assert_eq!(error.key, "source.coco");
        assert!(has_words(&error.problem, values), "{values:?}: {error}");
        assert!(error.problem.len() < 5000, "{error}");
    }
}

#[test]
fn a_pipeline_file_can_name_it() {
    let (root, _) = folder(&json!({"images": [{"id": 1, "file_name": "a"}]}).to_string());
    let text = "[source]\ncoco = \"a.json\"\nimages = \"x\"\nskip_empty = false\ncoordinates = \"upright\"";
    fs::create_dir(root.path().join("x")).unwrap();
    fs::write(root.path().join("x/a"), "image").unwrap();
    let pipeline = Pipeline::from_toml(text, root.path()).unwrap();
    let source = pipeline.source.open().unwrap();
    assert_eq!(source.location(0), root.path().join("x/a").to_str().unwrap());
    assert_eq!(source.canvas(0).frame, Frame::Upright);
    let written = pipeline.to_toml().unwrap();
    assert_eq!(Pipeline::from_toml(&written, "").unwrap().source, pipeline.source);
    let wrong = Pipeline::from_toml("[source]\ncoco = \"a.json\"\nimage = \"x\"", "");
    refused(wrong, "source.image", &["images"]);
    let several = Pipeline::from_toml("[source]\ncoco = [\"a\", \"b\"]", "").unwrap();
    refused(several.source.open(), "source.coco", &["2"]);
}
