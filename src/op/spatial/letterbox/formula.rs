//! `letterbox`: resizes within a size and pads the rest, as Ultralytics' `LetterBox` places images
//! (`ultralytics/data/augment.py`, 8.4). That resizes with OpenCV without antialiasing; here the filter is Pillow's.

use crate::geometry::Size;

use crate::op::shared::padding::Padding;

/// How an image is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letterbox {
    /// Size of the result, unless `stride` makes it smaller.
    pub output: Size,
    /// Whether small images are enlarged. Default true.
    pub scale_up: bool,
    /// Whether the image is centred, not at the upper left. Default true.
    pub center: bool,
    /// Pads each side only to a multiple of this many pixels (Ultralytics' `auto`), not to the whole size.
    pub stride: Option<u32>,
}

impl Letterbox {
    /// Size to which an image is resized, and its padding after that.
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
