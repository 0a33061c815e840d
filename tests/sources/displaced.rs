//! Annotated objects in images that `elastic` displaces.

use std::fs;

use crate::annotation::{batches, builder, runs, turned};
use crate::common;
use feedwater::Size;
use feedwater::internals::geometry::BoundingBox;
use feedwater::op::{self, CenterCrop, Chain, Flip, Resize};
use feedwater::plan::{BoxFormat, ColumnSettings};
use feedwater::source::Coco;
use feedwater::source::settings::CocoSettings;
use serde_json::json;

/// Objects follow the displacements of `elastic`, with the boxes of a column. The masks of objects
/// that fill their boxes lie in the moved boxes.
#[test]
fn objects_follow_displacements() {
    let root = tempfile::tempdir().unwrap();
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    for id in 0..8_u32 {
        let (width, height) = (70 + id, 60);
        let name = format!("{id}.jpg");
        let orientation = [1, 6][id as usize % 2];
        let jpeg = turned(&common::jpeg(id.into(), width, height), orientation);
        fs::write(root.path().join(&name), jpeg).unwrap();
        images.push(json!({"id": id, "file_name": name, "width": width, "height": height}));
        for number in 0..3 {
            let [x, y, across, down] = [5 + 16 * number, 4 + 9 * number, 21 - id, 17];
            let (right, bottom) = (x + across, y + down);
            let polygon = json!([[x, y, right, y, right, bottom, x, bottom]]);
            let mut mask = vec![0; (width * height) as usize];
            for at in 0..width * height {
                let (column, row) = (at % width, at / width);
                let is_inside = (x..right).contains(&column) && (y..bottom).contains(&row);
                mask[at as usize] = is_inside.into();
            }
            let counts = runs(&mask, Size::new(width, height));
            let lengths = json!({"size": [height, width], "counts": counts});
            annotations.push(json!({
                "id": 10 * id + number, "image_id": id, "category_id": 5, "iscrowd": 0,
                "bbox": [x, y, across, down],
                "segmentation": if number == 1 { lengths } else { polygon },
            }));
        }
    }
    let categories = json!([{"id": 5, "name": "x"}]);
    let all = json!({"images": images, "annotations": annotations, "categories": categories});
    let json = root.path().join("a.json");
    fs::write(&json, all.to_string()).unwrap();
    let coco = Coco::open(json, &CocoSettings::default()).unwrap();
    let smooth = |alpha: f64, sigma: f64| op::Elastic {
        alpha: [alpha; 2],
        sigma: [sigma; 2],
        ..Default::default()
    };
    let chain = Chain::new()
        .then(Flip { horizontal: 0.5, vertical: 0.0 })
        .then(smooth(120.0, 4.0))
        .then(CenterCrop::to(66, 58))
        .then(smooth(60.0, 5.0))
        .then(Resize::to(80, 50));
    let column = ColumnSettings { turn: true, ..ColumnSettings::boxes("boxes", BoxFormat::Xywh) };
    let builder = builder(coco, chain).configure(|it| it.columns = vec![column]);
    let (mut moved, mut inside) = (0, 0);
    for batch in batches(builder) {
        let boxes = batch.column("boxes").unwrap();
        for place in 0..batch.len() {
            let objects = batch.objects(place);
            let mapping = batch.samples()[place].trace.mapping;
            let upright = batch.upright_boxes(place);
            let boxes: Vec<[f32; 4]> = boxes.sample::<f32>(place).unwrap().as_chunks().0.to_vec();
            let hidden = boxes.iter().filter(|it| **it == [0.0; 4]).count();
            assert_eq!(objects.len() + hidden, boxes.len());
            for (number, object) in objects.iter().enumerate() {
                assert_eq!(object.bbox.xyxy(), boxes[object.index]);
                assert!(object.visible > 0.0 && object.visible <= 1.0);
                let still = mapping.visible_box(&upright[object.index]).xyxy();
                let pairs = still.iter().zip(boxes[object.index]);
                moved += usize::from(pairs.map(|(a, b)| (a - b).abs()).any(|it| it > 1.0));
                let mask = objects.mask(number).unwrap();
                let shown: Vec<_> = (0..4000).filter(|&at| mask[at] != 0).collect();
                assert!(shown.len() > 40, "{}", shown.len());
                for at in shown {
                    let (x, y) = ((at % 80) as f64 + 0.5, (at / 80) as f64 + 0.5);
                    let BoundingBox { left, top, right, bottom } = object.bbox;
                    // Between the centres of a displaced image, an object may be outside of its
                    // box. The resize doubles a part of this distance.
                    let near = |low: f64, at: f64, high: f64| low - 0.7 < at && at < high + 0.7;
                    assert!(near(left, x, right) && near(top, y, bottom), "{at} {:?}", object.bbox);
                    inside += 1;
                }
                if let Some(polygons) = objects.polygons(number) {
                    let [x, y] = polygons[0][0];
                    assert!(polygons[0].len() == 4 && x.is_finite() && y.is_finite());
                }
            }
        }
    }
    assert!(moved > 12 && inside > 3000, "{moved} {inside}");
}
