//! Variants of COCO's format that tools write and that pycocotools reads.

use serde_json::json;

use crate::coco::{invalid, open, with};
use crate::common::words::has_words;
use feedwater::source::custom::{Annotations, Notes};
use feedwater::source::settings::CocoSettings;
use feedwater::source::{Coco, ExclusionReason, Source};

#[test]
fn values_are_read_as_tools_write_them() {
    let plain = |text: &str| open(text, &CocoSettings::default()).unwrap();
    let file = json!({
        "images": [
            {"id": 1, "file_name": "1.jpg", "width": 8, "height": 6},
            {"id": 2, "file_name": "2.jpg", "width": 8, "height": 6},
        ],
        "categories": [{"id": 3, "name": "cat"}, {"id": 5, "name": "dog"}],
        "annotations": [
            {"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 1, 2, 2], "iscrowd": 0},
            {"id": 8, "image_id": 2, "category_id": 5, "bbox": [1, 1, 2, 2], "iscrowd": 1},
        ],
    });
    let expected = plain(&file.to_string());
    let text = file.to_string();
    for (from, to) in [
        ("\"image_id\":1", "\"image_id\":1.0"),
        ("\"category_id\":3", "\"category_id\":3.0"),
        ("\"id\":1", "\"id\":\"1\""),
        ("\"id\":7", "\"id\":7.0"),
        ("\"width\":8", "\"width\":8.0"),
        ("\"iscrowd\":0", "\"iscrowd\":null"),
        ("\"iscrowd\":0", "\"iscrowd\":0.0"),
        ("\"iscrowd\":1", "\"iscrowd\":1.0"),
        ("\"iscrowd\":1", "\"iscrowd\":true"),
        ("{\"annotations", "\u{feff}{\"annotations"),
        ("\"file_name\":\"1.jpg\"", "\"coco_url\":\"http://images.cocodataset.org/val2017/1.jpg\""),
    ] {
        assert!(text.contains(from), "{from} {text}");
        let coco = plain(&text.replace(from, to));
        for index in 0..2 {
            assert_eq!(coco.objects(index), expected.objects(index), "{to}");
            assert_eq!(coco.canvas(index), expected.canvas(index), "{to}");
            assert_eq!(coco.image_id(index), expected.image_id(index), "{to}");
            let name = |coco: &Coco| coco.path(index).file_name().unwrap().to_owned();
            assert_eq!(name(&coco), name(&expected), "{to}");
        }
        assert!(coco.warnings().is_empty() && coco.excluded().is_empty(), "{to}");
    }
    for unknown in ["-1", "null", "0", "0.0", "-1.0"] {
        let coco = plain(&text.replace("\"width\":8", &format!("\"width\":{unknown}")));
        assert_eq!(
            (coco.canvas(0).size, coco.objects(0)),
            (None, expected.objects(0)),
            "{unknown}"
        );
    }
    for wrong in ["-2", "8.5", "\"8\"", "4294967296", "[8]"] {
        let text = text.replace("\"width\":8", &format!("\"width\":{wrong}"));
        invalid(open(&text, &CocoSettings::default()), &["width", "1"]);
    }
    let unnamed = text.replace("\"file_name\":\"2.jpg\",", "");
    invalid(open(&unnamed, &CocoSettings::default()), &["2", "file_name"]);
}

#[test]
fn orphans_are_counted_and_repeated_ids_are_a_warning() {
    let annotation = |id: i64, image: i64| json!({"id": id, "image_id": image, "category_id": 3, "bbox": [0, 0, 1, 1]});
    let coco = with(&json!([annotation(7, 99), annotation(8, 1), annotation(9, 98)])).unwrap();
    assert_eq!(coco.objects(0).iter().map(|it| it.id).collect::<Vec<_>>(), [8]);
    let [orphans] = &coco.excluded()[..] else { panic!("{:?}", coco.excluded()) };
    assert_eq!((orphans.why, orphans.count), (ExclusionReason::OrphanAnnotation, 2));
    assert!(has_words(&orphans.example, &["7", "99"]), "{orphans:?}");
    // Two objects have the same ID. Both are used, each with its own box.
    let mut second = annotation(8, 1);
    second["bbox"] = json!([2, 2, 1, 1]);
    let coco = with(&json!([annotation(8, 1), second, annotation(9, 1)])).unwrap();
    let boxes: Vec<_> = coco.objects(0).iter().map(|it| (it.id, it.bbox.left)).collect();
    assert_eq!(boxes, [(8, 0.0), (8, 2.0), (9, 0.0)]);
    let [warning] = &coco.warnings()[..] else { panic!("{:?}", coco.warnings()) };
    assert!(has_words(warning, &["a.json", "1", "8"]), "{warning}");
}

#[test]
fn ids_may_be_texts() {
    let file = json!({
        "annotations": [
            {"id": "u", "image_id": "b.jpg", "category_id": "dog", "bbox": [0, 0, 1, 1]},
            {"id": "v", "image_id": "a.jpg", "category_id": "cat", "bbox": [0, 0, 2, 1]},
            {"id": "w", "image_id": "c.jpg", "category_id": "cat", "bbox": [0, 0, 3, 1]},
        ],
        "categories": [{"id": "dog"}, {"id": "cat", "name": "Cat"}, {"id": "ant"}],
        "images": [{"id": "a.jpg", "file_name": "a.jpg"}, {"id": "b.jpg", "file_name": "b.jpg"}],
    });
    let coco = open(&file.to_string(), &CocoSettings::default()).unwrap();
    assert_eq!(coco.classes(), ["ant", "Cat", "dog"]);
    let objects = |index| {
        coco.objects(index).iter().map(|it| (it.bbox.right, it.category)).collect::<Vec<_>>()
    };
    assert_eq!((objects(0), objects(1)), (vec![(2.0, 1)], vec![(1.0, 2)]));
    assert_eq!((coco.image_id(0), coco.image_id(1)), (0, 1));
    assert_eq!(coco.categories().iter().map(|it| it.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(
        has_words(&coco.excluded()[0].example, &["\"w\"", "\"c.jpg\""]),
        "{:?}",
        coco.excluded()
    );
    // IDs that are partly texts and partly numbers are an error, because "4" and 4 might mean the
    // same image.
    let mixed = file.to_string().replace("\"id\":\"a.jpg\"", "\"id\":4");
    invalid(open(&mixed, &CocoSettings::default()), &["4", "\"b.jpg\""]);
}
