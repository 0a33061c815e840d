//! Formula of `letterbox`: resizes the image to fit into a size and pads the rest. The image is
//! placed as by Ultralytics' `LetterBox` (`ultralytics/data/augment.py`, 8.4). Ultralytics resizes
//! with OpenCV without antialiasing, feedwater with Pillow's filters.

use crate::geometry::Size;

use crate::op::shared::padding::Padding;

/// Settings that decide the size and the place of an image in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letterbox {
    /// Size of the output. With a `stride`, the output can be smaller.
    pub output: Size,
    /// Whether images that are smaller than the output are enlarged. Default true.
    pub scale_up: bool,
    /// Whether the image is centred. If false, it is at the upper left corner. Default true.
    pub center: bool,
    /// Reduces the padding of each axis to its remainder after division by this many pixels
    /// (Ultralytics' `auto`).
    pub stride: Option<u32>,
}

impl Letterbox {
    /// Returns the size to which the image is resized, and the padding that is added afterwards.
    pub fn place(&self, input: Size) -> (Size, Padding) {
        let sides = |size: Size| [f64::from(size.width), f64::from(size.height)];
        let ([width, height], [to_width, to_height]) = (sides(input), sides(self.output));
        let fit = (to_height / height).min(to_width / width);
        let scale = if self.scale_up { fit } else { fit.min(1.0) };
        let resized = [width, height].map(|side| (side * scale).round_ties_even().max(1.0));
        let axis = |to: f64, resized: f64| {
            let rest = (to - resized).max(0.0);
            let rest = self.stride.map_or(rest, |stride| rest % f64::from(stride));
            match self.center {
                true => {
                    let half = rest / 2.0;
                    ((half - 0.1).round_ties_even() as i32, (half + 0.1).round_ties_even() as i32)
                }
                false => (0, (rest + 0.1).round_ties_even() as i32),
            }
        };
        let (left, right) = axis(to_width, resized[0]);
        let (top, bottom) = axis(to_height, resized[1]);
        let size = Size::new(resized[0] as u32, resized[1] as u32);
        (size, Padding { left, top, right, bottom })
    }
}
