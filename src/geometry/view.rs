//! Bounding boxes, and the coordinate transform of a chain.

use super::{Orientation, Plane, Roi, Size};

/// Box by its edges in pixels: the pixel `(x, y)` covers `x .. x + 1` and `y .. y + 1`.
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
    /// Creates a box from its upper left corner `(x, y)` and its size, as in COCO.
    pub fn new(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self { left: x, top: y, right: x + width, bottom: y + height }
    }

    /// Width; 0 if the edges are reversed.
    pub fn width(&self) -> f64 {
        (self.right - self.left).max(0.0)
    }

    /// Height; 0 if the edges are reversed.
    pub fn height(&self) -> f64 {
        (self.bottom - self.top).max(0.0)
    }

    /// Area.
    pub fn area(&self) -> f64 {
        self.width() * self.height()
    }

    /// Intersection of both boxes; its area is 0 if they are disjoint.
    pub fn intersection(&self, other: &Self) -> Self {
        let (left, top) = (self.left.max(other.left), self.top.max(other.top));
        let right = self.right.min(other.right).max(left);
        let bottom = self.bottom.min(other.bottom).max(top);
        Self { left, top, right, bottom }
    }

    /// Coordinates relative to an image of this size: 0 to 1 inside.
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

    /// Left edge, upper edge, width and height: COCO's form, torchvision's `XYWH`.
    pub fn xywh(&self) -> [f32; 4] {
        [self.left, self.top, self.width(), self.height()].map(|it| it as f32)
    }

    /// Centre, width and height: torchvision's `CXCYWH`; if [`normalised`](Self::normalised), YOLO's and DETR's form.
    pub fn cxcywh(&self) -> [f32; 4] {
        let (x, y) = (f64::midpoint(self.left, self.right), f64::midpoint(self.top, self.bottom));
        [x, y, self.width(), self.height()].map(|it| it as f32)
    }

    /// Smallest box around two points.
    fn around((x0, y0): (f64, f64), (x1, y1): (f64, f64)) -> Self {
        Self { left: x0.min(x1), top: y0.min(y1), right: x0.max(x1), bottom: y0.max(y1) }
    }
}

/// One axis of a [`View`]: `position * scale + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Output pixels per input pixel; negative if the axis is mirrored.
    pub scale: f64,
    /// Output position of the image's edge 0.
    pub offset: f64,
}

impl Axis {
    /// Identity transform.
    pub const IDENTITY: Self = Self { scale: 1.0, offset: 0.0 };

    /// Output position of an image position.
    pub fn at(self, position: f64) -> f64 {
        position * self.scale + self.offset
    }

    /// Image position of an output position.
    pub fn back(self, position: f64) -> f64 {
        (position - self.offset) / self.scale
    }

    fn then(&mut self, scale: f64, offset: f64) {
        *self = Self { scale: self.scale * scale, offset: self.offset * scale + offset };
    }
}

/// Transform from the upright image to the result of a chain.
///
/// * Every operator that moves pixels updates it, in order; operators that do not call it move nothing.
/// * Coordinates are edges, not centres: the centre of the first pixel is 0.5. A decoder's reduction (`prescale`) does not change
///   coordinates.
/// * A crop, even one that reaches outside, limits the visible part, which no later operator enlarges.
/// * Crops, flips and resizes are exact: one scale and offset per axis. A warp ends such a part of the chain, and another one
///   begins. Boxes are clipped before each warp, and become the smallest upright boxes after it, as in torchvision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Parts of the chain that a warp ends, from the first on.
    warped: [Option<Warped>; View::MOST_WARPS],
    /// Transform of columns, after the last warp.
    pub x: Axis,
    /// Transform of rows, after the last warp.
    pub y: Axis,
    /// Size of the result.
    pub size: Size,
    /// Visible part of the image, in pixels of the result; the rest is fill. After a warp, the smallest box around that part.
    pub visible: BoundingBox,
}

/// Part of a chain that a warp ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Warped {
    x: Axis,
    y: Axis,
    visible: BoundingBox,
    /// Transform of the warp, and its inverse.
    forward: Plane,
    back: Plane,
}

impl Default for View {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl View {
    /// Most warps of a chain. Of those after them, the view has only the size.
    pub const MOST_WARPS: usize = 4;

    /// View of an empty image.
    pub const NOTHING: Self = Self {
        warped: [None; Self::MOST_WARPS],
        x: Axis::IDENTITY,
        y: Axis::IDENTITY,
        size: Size::new(0, 0),
        visible: BoundingBox { left: 0.0, top: 0.0, right: 0.0, bottom: 0.0 },
    };

    /// Identity view of an image of this size.
    pub fn new(size: Size) -> Self {
        let visible = BoundingBox::new(0.0, 0.0, size.width.into(), size.height.into());
        Self { size, visible, ..Self::NOTHING }
    }

    /// Warps the image: `back` transforms positions of the result, which has `size`, to those of the input. If that has no
    /// inverse, nothing is visible afterwards.
    pub fn warp(&mut self, back: Plane, size: Size) {
        let whole = Self::new(size);
        let Self { x, y, visible, .. } = *self;
        self.size = size;
        let place = self.warped.iter_mut().find(|it| it.is_none());
        if let (Some(place), Some(forward)) = (place, back.inverse()) {
            *place = Some(Warped { x, y, visible, forward, back });
            (self.x, self.y) = (Axis::IDENTITY, Axis::IDENTITY);
            let seen = forward.bounding_box(&visible).unwrap_or_default();
            self.visible = seen.intersection(&whole.visible);
        } else {
            self.visible = BoundingBox::default();
        }
    }

    /// Whether there is no warp, so that [`x`](Self::x) and [`y`](Self::y) are the whole transform.
    pub fn is_axis_aligned(&self) -> bool {
        self.warped[0].is_none()
    }

    /// Position in the upright image of a position of the result. `None` if it is not visible.
    pub fn back(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let seen = |of: &BoundingBox, x: f64, y: f64| {
            of.left <= x && x < of.right && of.top <= y && y < of.bottom
        };
        if !seen(&self.visible, x, y) {
            return None;
        }
        let (mut x, mut y) = (self.x.back(x), self.y.back(y));
        for part in self.warped.iter().rev().flatten() {
            (x, y) = part.back.point(x, y).filter(|&(x, y)| seen(&part.visible, x, y))?;
            (x, y) = (part.x.back(x), part.y.back(y));
        }
        Some((x, y))
    }

    /// Crops a window of `size` at `(x, y)`, which may start and end outside of the image.
    pub fn crop(&mut self, (x, y): (i64, i64), size: Size) {
        let (x, y) = (x as f64, y as f64);
        self.x.then(1.0, -x);
        self.y.then(1.0, -y);
        let BoundingBox { left, top, right, bottom } = self.visible;
        let moved =
            BoundingBox { left: left - x, top: top - y, right: right - x, bottom: bottom - y };
        self.visible = moved.intersection(&Self::new(size).visible);
        self.size = size;
    }

    /// Resizes the window `of` to `size`.
    pub fn resize(&mut self, of: Roi, size: Size) {
        self.crop((of.x.into(), of.y.into()), of.size());
        let x = f64::from(size.width) / f64::from(of.width);
        let y = f64::from(size.height) / f64::from(of.height);
        self.x.then(x, 0.0);
        self.y.then(y, 0.0);
        self.visible.left *= x;
        self.visible.right *= x;
        self.visible.top *= y;
        self.visible.bottom *= y;
        self.size = size;
    }

    /// Flips left to right, top to bottom, or both.
    pub fn flip(&mut self, horizontal: bool, vertical: bool) {
        let BoundingBox { left, top, right, bottom } = self.visible;
        if horizontal {
            let width = f64::from(self.size.width);
            self.x.then(-1.0, width);
            (self.visible.left, self.visible.right) = (width - right, width - left);
        }
        if vertical {
            let height = f64::from(self.size.height);
            self.y.then(-1.0, height);
            (self.visible.top, self.visible.bottom) = (height - bottom, height - top);
        }
    }

    /// Transforms a point of the upright image. A point that a perspective moves to infinity or behind it becomes NaN.
    pub fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let (mut x, mut y) = (x, y);
        for part in self.warped.iter().flatten() {
            let moved = part.forward.point(part.x.at(x), part.y.at(y));
            (x, y) = moved.unwrap_or((f64::NAN, f64::NAN));
        }
        (self.x.at(x), self.y.at(y))
    }

    /// Transforms a box of the upright image, including the part that is invisible in the result. Parts that are invisible
    /// before a warp are removed.
    pub fn bounding_box(&self, of: &BoundingBox) -> BoundingBox {
        let mut of = *of;
        for part in self.warped.iter().flatten() {
            let seen = boxed(part.x, part.y, &of).intersection(&part.visible);
            of = match seen.area() > 0.0 {
                true => part.forward.bounding_box(&seen).unwrap_or_default(),
                false => BoundingBox::default(),
            };
        }
        boxed(self.x, self.y, &of)
    }
}

fn boxed(x: Axis, y: Axis, of: &BoundingBox) -> BoundingBox {
    BoundingBox::around((x.at(of.left), y.at(of.top)), (x.at(of.right), y.at(of.bottom)))
}

impl Orientation {
    /// Transforms a point of the stored image, of `stored` size, to the upright image.
    pub fn upright_point(self, stored: Size, x: f64, y: f64) -> (f64, f64) {
        let upright = self.upright_size(stored);
        let (x, y) = if self.transpose { (y, x) } else { (x, y) };
        let x = if self.mirror_x { f64::from(upright.width) - x } else { x };
        let y = if self.mirror_y { f64::from(upright.height) - y } else { y };
        (x, y)
    }

    /// Transforms a box of the stored image to the upright image.
    pub fn upright_box(self, stored: Size, of: &BoundingBox) -> BoundingBox {
        BoundingBox::around(
            self.upright_point(stored, of.left, of.top),
            self.upright_point(stored, of.right, of.bottom),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_transform_points_in_order() {
        let mut view = View::new(Size::new(100, 50));
        view.crop((10, 20), Size::new(40, 20));
        view.flip(true, false);
        view.resize(Roi::new(0, 0, 40, 20), Size::new(80, 60));
        // 15 is at 5 in the window, 35 mirrored, 70 after doubling; 22 is at 2, and 6 after tripling.
        assert_eq!(view.point(15.0, 22.0), (70.0, 6.0));
        assert_eq!((view.x.back(70.0), view.y.back(6.0)), (15.0, 22.0));
        assert_eq!(view.visible, BoundingBox::new(0.0, 0.0, 80.0, 60.0));
    }

    #[test]
    fn cropped_parts_stay_invisible() {
        let mut view = View::new(Size::new(100, 50));
        view.crop((0, 0), Size::new(40, 40));
        view.crop((-10, -10), Size::new(80, 60));
        assert_eq!(view.visible, BoundingBox::new(10.0, 10.0, 40.0, 40.0));
        view.flip(true, true);
        assert_eq!(view.visible, BoundingBox::new(30.0, 10.0, 40.0, 40.0));
        view.crop((500, 0), Size::new(10, 10));
        assert_eq!(view.visible.area(), 0.0);
    }

    #[test]
    fn boxes_are_clipped_before_a_warp_and_upright_after_it() {
        let mut view = View::new(Size::new(100, 50));
        view.crop((10, 0), Size::new(50, 50));
        // Rotated by 45 degrees around the centre, and enlarged by the square root of 2.
        view.warp(Plane::affine([0.5, 0.5, 0.0, -0.5, 0.5, 25.0]), Size::new(50, 50));
        view.resize(Roi::new(0, 0, 50, 50), Size::new(100, 100));
        assert_eq!(view.point(35.0, 25.0), (50.0, 50.0));
        assert_eq!(view.back(50.0, 50.0), Some((35.0, 25.0)));
        let of = BoundingBox::new(30.0, 20.0, 10.0, 10.0);
        assert_eq!(view.bounding_box(&of), BoundingBox::new(30.0, 30.0, 40.0, 40.0));
        let cut = BoundingBox::new(0.0, 20.0, 20.0, 10.0);
        let seen = BoundingBox::new(10.0, 20.0, 10.0, 10.0);
        assert_eq!(view.bounding_box(&cut), view.bounding_box(&seen));
        assert_eq!(view.bounding_box(&BoundingBox::new(0.0, 0.0, 9.0, 50.0)).area(), 0.0);
        assert!(!view.is_axis_aligned());
    }

    #[test]
    fn corners_that_a_warp_leaves_empty_are_invisible() {
        let mut view = View::new(Size::new(50, 50));
        view.warp(Plane::affine([1.0, 1.0, -25.0, -1.0, 1.0, 25.0]), Size::new(50, 50));
        assert_eq!(view.visible, BoundingBox::new(0.0, 0.0, 50.0, 50.0));
        assert_eq!(view.back(1.0, 1.0), None);
        assert_eq!(view.back(25.0, 25.0), Some((25.0, 25.0)));
        view.warp(Plane::affine([0.0; 6]), Size::new(9, 9));
        assert_eq!((view.visible.area(), view.size), (0.0, Size::new(9, 9)));
    }

    #[test]
    fn forms_of_a_box() {
        let of = BoundingBox::new(10.0, 20.0, 30.0, 40.0);
        assert_eq!(of.xyxy(), [10.0, 20.0, 40.0, 60.0]);
        assert_eq!(of.xywh(), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(of.cxcywh(), [25.0, 40.0, 30.0, 40.0]);
        assert_eq!(of.normalised(Size::new(100, 80)).xyxy(), [0.1, 0.25, 0.4, 0.75]);
    }

    #[test]
    fn a_point_turns_with_its_pixel() {
        let stored = Size::new(7, 5);
        for value in 1..=8 {
            let orientation = Orientation::from_exif(value);
            let (x, y) = orientation.upright_position(stored, 2, 4);
            let centre = orientation.upright_point(stored, 2.5, 4.5);
            assert_eq!(centre, (f64::from(x) + 0.5, f64::from(y) + 0.5), "orientation {value}");
            let pixel = orientation.upright_box(stored, &BoundingBox::new(2.0, 4.0, 1.0, 1.0));
            assert_eq!(pixel, BoundingBox::new(x.into(), y.into(), 1.0, 1.0));
        }
    }
}
