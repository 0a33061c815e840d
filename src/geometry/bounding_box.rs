//! Bounding boxes.

use super::Size;

/// Box, given by its edges in pixels. The pixel `(x, y)` covers `x .. x + 1` and `y .. y + 1`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BoundingBox {
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Lower edge.
    pub bottom: f64,
}

impl BoundingBox {
    /// A box without area.
    pub const NOTHING: Self = Self { left: 0.0, top: 0.0, right: 0.0, bottom: 0.0 };

    /// Creates a box from its upper left corner `(x, y)` and its size, as in COCO.
    pub fn new(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self { left: x, top: y, right: x + width, bottom: y + height }
    }

    /// Width, or 0 if the edges are reversed.
    pub fn width(&self) -> f64 {
        (self.right - self.left).max(0.0)
    }

    /// Height, or 0 if the edges are reversed.
    pub fn height(&self) -> f64 {
        (self.bottom - self.top).max(0.0)
    }

    /// Area in square pixels.
    pub fn area(&self) -> f64 {
        self.width() * self.height()
    }

    /// Intersection of both boxes. Its area is 0 if they are disjoint.
    pub fn intersection(&self, other: &Self) -> Self {
        let (left, top) = (self.left.max(other.left), self.top.max(other.top));
        let right = self.right.min(other.right).max(left);
        let bottom = self.bottom.min(other.bottom).max(top);
        Self { left, top, right, bottom }
    }

    /// Coordinates relative to an image of this size. They are 0 to 1 inside the image.
    pub fn normalised(&self, size: Size) -> Self {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        Self {
            left: self.left / width,
            top: self.top / height,
            right: self.right / width,
            bottom: self.bottom / height,
        }
    }

    /// Left, upper, right and lower edge: torchvision's `XYXY`, DALI's `ltrb`.
    pub fn xyxy(&self) -> [f32; 4] {
        [self.left, self.top, self.right, self.bottom].map(|it| it as f32)
    }

    /// Left edge, upper edge, width and height: COCO's format, torchvision's `XYWH`.
    pub fn xywh(&self) -> [f32; 4] {
        [self.left, self.top, self.width(), self.height()].map(|it| it as f32)
    }

    /// Centre, width and height: torchvision's `CXCYWH`. If [`normalised`](Self::normalised), the
    /// format of YOLO and DETR.
    pub fn cxcywh(&self) -> [f32; 4] {
        let (x, y) = (f64::midpoint(self.left, self.right), f64::midpoint(self.top, self.bottom));
        [x, y, self.width(), self.height()].map(|it| it as f32)
    }

    /// Smallest box that contains two points.
    pub(super) fn around((x0, y0): (f64, f64), (x1, y1): (f64, f64)) -> Self {
        Self { left: x0.min(x1), top: y0.min(y1), right: x0.max(x1), bottom: y0.max(y1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_box() {
        let of = BoundingBox::new(10.0, 20.0, 30.0, 40.0);
        assert_eq!(of.xyxy(), [10.0, 20.0, 40.0, 60.0]);
        assert_eq!(of.xywh(), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(of.cxcywh(), [25.0, 40.0, 30.0, 40.0]);
        assert_eq!(of.normalised(Size::new(100, 80)).xyxy(), [0.1, 0.25, 0.4, 0.75]);
    }
}
