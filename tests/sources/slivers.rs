//! Annotated objects of which almost nothing is visible after a crop.

use std::sync::Arc;

use crate::annotation::{object, view};
use feedwater::annotation::{Frame, Objects};
use feedwater::internals::geometry::{BoundingBox, Orientation, Size};
use feedwater::op::Crop;

/// Models take boxes as f32, and reject boxes without width or height. A box whose width or height
/// is 0 in f32 must be dropped.
#[test]
fn a_box_without_extent_as_f32_is_dropped() {
    let size = Size::new(640, 480);
    let crop = view(size, &[Arc::new(Crop { x: 0, y: 0, width: 512, height: 480 })]);
    let place = |left: f64| {
        let objects = vec![object(BoundingBox::new(left, 100.0, 100.0, 50.0), None)];
        Objects::place(objects, Frame::Stored, (size, Orientation::UPRIGHT), crop)
    };
    assert!(place(511.99999).is_empty(), "its edges are equal as f32, so it must be dropped");
    let [seen] = &place(511.9999)[..] else { panic!("a box with extent must be kept") };
    let [left, _, right, _] = seen.bbox.xyxy();
    assert!(left < right);
    // No box that is left is empty, neither in pixels nor as fractions of the image.
    for step in 0..4000 {
        let left = 512.0 - f64::from(step) * 1e-7;
        for it in place(left).iter() {
            for [left, top, right, bottom] in [it.bbox.xyxy(), it.bbox.normalised(crop.size).xyxy()]
            {
                assert!(left < right && top < bottom, "{it:?}");
            }
        }
    }
}
