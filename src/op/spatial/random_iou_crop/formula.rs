//! Formula of `random_iou_crop`: torchvision's `RandomIoUCrop` of SSD
//! (`torchvision/transforms/v2/_geometry.py`).

use crate::geometry::{BoundingBox, Roi, Size};
use crate::random::SampleRng;

/// Settings of `RandomIoUCrop`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IouCrop<'a> {
    /// Smallest and largest side of the crop, as a fraction of the side of the image. Default 0.3
    /// to 1.
    pub scale: [f64; 2],
    /// Smallest and largest aspect ratio of the crop, width / height. Default 0.5 to 2.
    pub aspect: [f64; 2],
    /// Candidates for the smallest allowed intersection over union of the crop and at least one
    /// box. One candidate is drawn uniformly. If the drawn candidate is 1 or more, the image is not
    /// cropped. Default 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
    pub overlaps: &'a [f64],
    /// Number of random crops that are tried for each drawn overlap. Default 40.
    pub trials: u32,
}

impl Default for IouCrop<'_> {
    fn default() -> Self {
        Self {
            scale: [0.3, 1.0],
            aspect: [0.5, 2.0],
            overlaps: &[0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0],
            trials: 40,
        }
    }
}

impl IouCrop<'_> {
    /// Number of overlaps that are drawn before the image stays uncropped. torchvision has no such
    /// limit.
    const ROUNDS: u32 = 100;

    /// Draws a crop. `None` if the image is not cropped. The caller removes objects for whose box
    /// [`keeps`] is false.
    pub fn draw(&self, size: Size, boxes: &[BoundingBox], rng: &mut SampleRng) -> Option<Roi> {
        for _ in 0..Self::ROUNDS {
            let overlap = self.overlaps[rng.below(self.overlaps.len() as u64) as usize];
            if overlap >= 1.0 || boxes.is_empty() {
                return None;
            }
            for _ in 0..self.trials {
                let sides = [rng.uniform() as f32, rng.uniform() as f32];
                // As in torchvision, a crop with a forbidden aspect ratio takes no random numbers
                // for its position.
                let Some(sides) = self.sides(size, sides) else { continue };
                let place = [rng.uniform() as f32, rng.uniform() as f32];
                if let Some(crop) = placed(size, sides, place, boxes, overlap) {
                    return Some(crop);
                }
            }
        }
        None
    }

    /// Width and height of a crop for two random numbers from 0 to 1, computed in f32 as in
    /// torchvision. `None` if the aspect ratio is not allowed.
    pub fn sides(&self, size: Size, [x, y]: [f32; 2]) -> Option<[u32; 2]> {
        let [low, high] = self.scale;
        let side =
            |len: u32, at: f32| (len as f32 * (at * (high - low) as f32 + low as f32)) as u32;
        let (width, height) = (side(size.width, x), side(size.height, y));
        let aspect = f64::from(width) / f64::from(height);
        let [least, most] = self.aspect;
        (width > 0 && height > 0 && least <= aspect && aspect <= most).then_some([width, height])
    }
}

/// Crop of the given width and height at the position that the random numbers `x` and `y` (0 to 1)
/// choose. `None` unless the crop contains the centre of a box and overlaps one of these boxes by
/// at least `overlap`.
pub fn placed(
    size: Size,
    [width, height]: [u32; 2],
    [x, y]: [f32; 2],
    boxes: &[BoundingBox],
    overlap: f64,
) -> Option<Roi> {
    let left = ((size.width - width) as f32 * x) as u32;
    let top = ((size.height - height) as f32 * y) as u32;
    let crop = Roi::new(left, top, width, height);
    let covered = BoundingBox::new(left.into(), top.into(), width.into(), height.into());
    let mut best = None;
    for of in boxes.iter().filter(|of| keeps(crop, of)) {
        let common = of.intersection(&covered).area();
        let iou = common / (of.area() + covered.area() - common);
        best = Some(iou.max(best.unwrap_or(0.0)));
    }
    (best? >= overlap).then_some(crop)
}

/// Whether the centre of the box `of` is inside of a crop. A centre on the edge is outside.
pub fn keeps(crop: Roi, of: &BoundingBox) -> bool {
    let (x, y) = (0.5 * (of.left + of.right), 0.5 * (of.top + of.bottom));
    f64::from(crop.x) < x
        && x < crop.right().into()
        && f64::from(crop.y) < y
        && y < crop.bottom().into()
}
