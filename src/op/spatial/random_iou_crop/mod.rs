//! `random_iou_crop`: crops a window that overlaps one of the boxes enough.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::settings::{check_count, check_number, check_pair, check_range};
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

use formula::IouCrop;

pub mod formula;

/// Crops a random window whose intersection over union with one of the boxes is large enough:
/// torchvision's `RandomIoUCrop` of SSD.
///
/// The boxes come from the source's annotations (COCO). An image without boxes is not cropped.
/// Objects whose box has its centre outside of the window are dropped, and boxes are clipped to the
/// window, as in torchvision. If 100 drawn overlaps lead to no window, the image is not cropped.
/// torchvision has no such limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomIouCrop {
    /// Smallest and largest side of the window as a fraction of the image's side, above 0 and at
    /// most 1. Default `[0.3, 1]`.
    pub scale: [f64; 2],
    /// Smallest and largest aspect ratio of the window (width divided by height), above 0. Default
    /// `[0.5, 2]`.
    pub ratio: [f64; 2],
    /// Candidates for the smallest allowed intersection over union, each 0 to 1. One candidate is
    /// drawn uniformly. If 1 is drawn, the image is not cropped. Default `[0, 0.1, 0.3, 0.5, 0.7,
    /// 0.9, 1]`.
    pub overlaps: Vec<f64>,
    /// Number of windows that are tried for each drawn overlap, 1 to 1000. Default 40.
    pub trials: u32,
}

impl Default for RandomIouCrop {
    fn default() -> Self {
        let IouCrop { scale, aspect, overlaps, trials } = IouCrop::default();
        Self { scale, ratio: aspect, overlaps: overlaps.to_vec(), trials }
    }
}

impl Operator for RandomIouCrop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::up_to(1, [Kind::Crop])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let size = draw.size();
        let Self { scale, ratio, overlaps, trials } = self;
        let crop = IouCrop { scale: *scale, aspect: *ratio, overlaps, trials: *trials };
        if let Some(window) = draw.by_boxes(|boxes, rng| crop.draw(size, boxes, rng)) {
            draw.crop_to_centres(window);
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_range("scale", self.scale)?;
        check_pair("scale", self.scale, 0.0, 1.0)?;
        check_range("ratio", self.ratio)?;
        if self.overlaps.is_empty() {
            return Err(FieldError::new("overlaps", "is empty; write at least one number"));
        }
        for (place, &overlap) in self.overlaps.iter().enumerate() {
            check_number(&format!("overlaps[{place}]"), overlap, 0.0, 1.0)?;
        }
        check_count("trials", self.trials, 1, 1000)
    }

    fn fixed_output(&self, _: Option<Size>) -> Option<Size> {
        None
    }

    fn largest_output(&self, input: Size) -> Size {
        input
    }

    fn is_random(&self) -> bool {
        true
    }

    fn reads_boxes(&self) -> bool {
        true
    }
}

impl BuiltIn for RandomIouCrop {
    const NAME: &'static str = "random_iou_crop";

    fn examples() -> Vec<Self> {
        vec![
            Self::default(),
            Self { scale: [0.5, 0.6], overlaps: vec![0.0], trials: 5, ..Self::default() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BoundingBox;
    use crate::op::Actions;
    use crate::op::{Crop, Flip, RandomApply, Trace};
    use crate::random::SampleKey;

    /// Draws an IoU crop after a fixed crop and a flip. `boxes` have coordinates of the original
    /// image.
    fn traced(boxes: &[BoundingBox], index: u64) -> (Actions, Trace) {
        let crop = RandomIouCrop { overlaps: vec![0.1], ..RandomIouCrop::default() };
        let flip = Flip { horizontal: 1.0, vertical: 0.0 };
        let first = Crop { x: 20, y: 10, width: 70, height: 60 };
        let nested = RandomApply::new(1.0).then(flip).then(crop);
        let mut actions = Actions::default();
        actions.boxes.extend(boxes);
        let size = Size::new(100, 80);
        let mut trace = Trace::new(size);
        let key = SampleKey { index, ..SampleKey::default() };
        actions.draw([&first as &dyn Operator, &nested], key, size, &mut trace);
        (actions, trace)
    }

    #[test]
    fn without_boxes_the_image_stays() {
        let (actions, trace) = traced(&[], 0);
        assert_eq!((actions.list.len(), trace.mapping.size), (2, Size::new(70, 60)));
        let outside = BoundingBox::new(0.0, 0.0, 15.0, 9.0);
        assert_eq!(traced(&[outside], 0).0.list.len(), 2, "an invisible box does not count");
    }

    #[test]
    fn windows_overlap_boxes_that_were_cropped_and_mirrored() {
        let boxes =
            [BoundingBox::new(10.0, 20.0, 30.0, 20.0), BoundingBox::new(80.0, 60.0, 8.0, 8.0)];
        let (mut both, mut one) = (0, 0);
        for index in 0..200 {
            let (actions, trace) = traced(&boxes, index);
            assert_eq!(actions.list.len(), 3);
            let view = trace.mapping;
            let kept = boxes.iter().filter(|it| view.keeps(it)).count();
            // The fixed crop removes the left part of the first box before the window is drawn.
            let seen = BoundingBox { left: 20.0, ..boxes[0] };
            let centre = view.bounding_box(&seen);
            let (x, y) = (centre.left + centre.right, centre.top + centre.bottom);
            let (width, height) = (f64::from(view.size.width), f64::from(view.size.height));
            let inside = 0.0 < x && x < 2.0 * width && 0.0 < y && y < 2.0 * height;
            assert_eq!(view.keeps(&boxes[0]), inside, "{index}");
            both += usize::from(kept == 2);
            one += usize::from(kept == 1);
            assert!(kept > 0, "the window has the centre of a box");
        }
        assert!(both > 5 && one > 5, "{both} {one}");
    }

    #[test]
    fn settings_are_checked() {
        let field = |op: RandomIouCrop| op.check().unwrap_err().field;
        let base = RandomIouCrop::default();
        assert_eq!(base.check(), Ok(()));
        assert_eq!(field(RandomIouCrop { scale: [0.0, 1.0], ..base.clone() }), "scale");
        assert_eq!(field(RandomIouCrop { scale: [0.5, 1.1], ..base.clone() }), "scale");
        assert_eq!(field(RandomIouCrop { ratio: [2.0, 1.0], ..base.clone() }), "ratio");
        assert_eq!(field(RandomIouCrop { overlaps: vec![], ..base.clone() }), "overlaps");
        assert_eq!(
            field(RandomIouCrop { overlaps: vec![0.0, 2.0], ..base.clone() }),
            "overlaps[1]"
        );
        assert_eq!(field(RandomIouCrop { trials: 0, ..base }), "trials");
    }
}
