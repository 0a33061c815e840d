//! Coordinate transforms of a chain of operators.

use super::{Axis, BoundingBox, Orientation, Plane, Roi, Size};

/// Transform from the upright image to the result of a chain.
///
/// * Every operator that moves pixels updates the mapping, in the order of the chain.
/// * Coordinates are edges, not centres: the centre of the first pixel is at 0.5. A decoder's
///   reduction (`prescale`) does not change coordinates.
/// * A crop limits the visible part, even if it extends outside the image. No later operator
///   enlarges the visible part.
/// * Crops, flips and resizes are exact: each axis has one scale and one offset. A warp cannot be
///   described in this way. So the chain is divided into parts: each warp ends a part, and the next
///   operator begins a new part.
/// * Boxes are clipped before each warp. After a warp, they become the smallest axis-aligned boxes
///   around the warped boxes, as in torchvision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mapping {
    /// Parts of the chain that end with a warp, in order.
    warped: [Warped; Mapping::MOST_WARPS],
    warps: u32,
    /// Transform of columns after the last warp.
    pub x: Axis,
    /// Transform of rows after the last warp.
    pub y: Axis,
    /// Size of the result in pixels.
    pub size: Size,
    /// Visible part of the image, in pixels of the result. The rest of the result is fill. After a
    /// warp, this is the smallest box around the visible part.
    pub visible: BoundingBox,
    /// Rule that decides which objects are dropped, if a rule is set.
    kept: Option<Kept>,
}

/// Rule that keeps an object if the centre of its box is inside a window at a certain position of
/// the chain.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kept {
    window: BoundingBox,
    /// Number of warps in the chain before the position at which the rule was set.
    warps: u32,
    x: Axis,
    y: Axis,
    visible: BoundingBox,
}

/// Part of a chain that ends with a warp.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Warped {
    /// Transform from the end of the part to its start. It has an inverse.
    back: Plane,
    /// Visible part before the warp, in coordinates of the start of the part.
    visible: BoundingBox,
}

impl Warped {
    const NOTHING: Self = Self { back: Plane::IDENTITY, visible: BoundingBox::NOTHING };
}

impl Default for Mapping {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl Mapping {
    /// Maximum number of warps of a chain. After a further warp, nothing is visible.
    pub const MOST_WARPS: usize = 3;

    /// Mapping of an empty image.
    pub const NOTHING: Self = Self {
        warped: [Warped::NOTHING; Self::MOST_WARPS],
        warps: 0,
        x: Axis::IDENTITY,
        y: Axis::IDENTITY,
        size: Size::new(0, 0),
        visible: BoundingBox::NOTHING,
        kept: None,
    };

    /// Identity mapping of an image of this size.
    pub fn new(size: Size) -> Self {
        let visible = BoundingBox::new(0.0, 0.0, size.width.into(), size.height.into());
        Self { size, visible, ..Self::NOTHING }
    }

    /// Warps the image. `back` transforms positions of the result, which has `size`, to positions
    /// of the input. If `back` has no inverse, nothing is visible afterwards.
    pub fn warp(&mut self, back: Plane, size: Size) {
        let whole = Self::new(size).visible;
        self.size = size;
        let place = self.warped.get_mut(self.warps as usize);
        if place.is_none() {
            self.warps = Self::MOST_WARPS as u32 + 1;
        }
        let (Some(place), Some(forward)) = (place, back.inverse()) else {
            self.visible = BoundingBox::NOTHING;
            return;
        };
        let (x, y) = (self.x.inverse(), self.y.inverse());
        *place = Warped { back: back.then(x, y), visible: boxed(x, y, &self.visible) };
        self.warps += 1;
        (self.x, self.y) = (Axis::IDENTITY, Axis::IDENTITY);
        let seen = forward.bounding_box(&self.visible).unwrap_or(BoundingBox::NOTHING);
        self.visible = seen.intersection(&whole);
    }

    /// Whether the chain has no warp. [`x`](Self::x) and [`y`](Self::y) are then the whole
    /// transform.
    pub fn is_axis_aligned(&self) -> bool {
        self.warps == 0
    }

    /// Maps a position in the result back to the upright image. Returns `None` if the result shows
    /// no part of the image at this position.
    pub fn back(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let seen = |of: &BoundingBox, x: f64, y: f64| {
            of.left <= x && x < of.right && of.top <= y && y < of.bottom
        };
        if !seen(&self.visible, x, y) {
            return None;
        }
        let (mut x, mut y) = (self.x.back(x), self.y.back(y));
        for part in self.parts().iter().rev() {
            (x, y) = part.back.point(x, y).filter(|&(x, y)| seen(&part.visible, x, y))?;
        }
        Some((x, y))
    }

    /// Whether the chain has more than [`MOST_WARPS`](Self::MOST_WARPS) warps, so that positions in
    /// the result are not known.
    pub fn is_lost(&self) -> bool {
        self.warps as usize > Self::MOST_WARPS
    }

    fn parts(&self) -> &[Warped] {
        &self.warped[..(self.warps as usize).min(Self::MOST_WARPS)]
    }

    /// Crops a window of `size` at `(x, y)`. The window may extend outside the image.
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

    /// Sets the rule that drops an object if the centre of its visible box is outside the window of
    /// `size` at `(x, y)` or on the window's edge. A rule that was set earlier is replaced.
    pub fn drop_objects(&mut self, (x, y): (i64, i64), size: Size) {
        let window = BoundingBox::new(x as f64, y as f64, size.width.into(), size.height.into());
        let Self { warps, x, y, visible, .. } = *self;
        self.kept = Some(Kept { window, warps, x, y, visible });
    }

    /// Whether the rule of [`drop_objects`](Self::drop_objects) keeps an object with this box in
    /// the upright image.
    pub fn keeps(&self, of: &BoundingBox) -> bool {
        self.kept.is_none_or(|Kept { window, warps, x, y, visible }| {
            let then = Self { warps, x, y, visible, ..*self };
            let of = then.visible_box(of);
            let (x, y) = (0.5 * (of.left + of.right), 0.5 * (of.top + of.bottom));
            of.area() > 0.0
                && (window.left < x && x < window.right)
                && (window.top < y && y < window.bottom)
        })
    }

    /// Returns the visible part of a box of the upright image, in pixels of the result.
    pub fn visible_box(&self, of: &BoundingBox) -> BoundingBox {
        self.bounding_box(of).intersection(&self.visible)
    }

    /// Crops the window `of` and resizes it to `size`.
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

    /// Transforms a point of the upright image. A point that a perspective moves to or beyond
    /// infinity becomes NaN.
    pub fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let (mut x, mut y) = (x, y);
        for part in self.parts() {
            let moved = part.back.inverse().and_then(|forward| forward.point(x, y));
            (x, y) = moved.unwrap_or((f64::NAN, f64::NAN));
        }
        (self.x.at(x), self.y.at(y))
    }

    /// Transforms a box of the upright image, including the part that is invisible in the result.
    /// Parts that are invisible before a warp are removed.
    pub fn bounding_box(&self, of: &BoundingBox) -> BoundingBox {
        let mut of = *of;
        for part in self.parts() {
            let seen = of.intersection(&part.visible);
            let seen =
                part.back.inverse().filter(|_| seen.area() > 0.0).map(|it| it.bounding_box(&seen));
            of = seen.flatten().unwrap_or(BoundingBox::NOTHING);
        }
        boxed(self.x, self.y, &of)
    }
}

fn boxed(x: Axis, y: Axis, of: &BoundingBox) -> BoundingBox {
    BoundingBox::around((x.at(of.left), y.at(of.top)), (x.at(of.right), y.at(of.bottom)))
}

impl Orientation {
    /// Transforms a point of the stored image, whose size is `stored`, to the upright image.
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
        let mut mapping = Mapping::new(Size::new(100, 50));
        mapping.crop((10, 20), Size::new(40, 20));
        mapping.flip(true, false);
        mapping.resize(Roi::new(0, 0, 40, 20), Size::new(80, 60));
        // Column 15 is at 5 in the window, at 35 after mirroring, and at 70 after doubling. Row 22
        // is at 2 in the window, and at 6 after tripling.
        assert_eq!(mapping.point(15.0, 22.0), (70.0, 6.0));
        assert_eq!((mapping.x.back(70.0), mapping.y.back(6.0)), (15.0, 22.0));
        assert_eq!(mapping.visible, BoundingBox::new(0.0, 0.0, 80.0, 60.0));
    }

    #[test]
    fn cropped_parts_stay_invisible() {
        let mut mapping = Mapping::new(Size::new(100, 50));
        mapping.crop((0, 0), Size::new(40, 40));
        mapping.crop((-10, -10), Size::new(80, 60));
        assert_eq!(mapping.visible, BoundingBox::new(10.0, 10.0, 40.0, 40.0));
        mapping.flip(true, true);
        assert_eq!(mapping.visible, BoundingBox::new(30.0, 10.0, 40.0, 40.0));
        mapping.crop((500, 0), Size::new(10, 10));
        assert_eq!(mapping.visible.area(), 0.0);
    }

    #[test]
    fn boxes_are_clipped_before_a_warp_and_upright_after_it() {
        let mut mapping = Mapping::new(Size::new(100, 50));
        mapping.crop((10, 0), Size::new(50, 50));
        // The warp rotates the image by 45 degrees around its centre, and enlarges it by the square
        // root of 2.
        mapping.warp(Plane::affine([0.5, 0.5, 0.0, -0.5, 0.5, 25.0]), Size::new(50, 50));
        mapping.resize(Roi::new(0, 0, 50, 50), Size::new(100, 100));
        assert_eq!(mapping.point(35.0, 25.0), (50.0, 50.0));
        assert_eq!(mapping.back(50.0, 50.0), Some((35.0, 25.0)));
        let of = BoundingBox::new(30.0, 20.0, 10.0, 10.0);
        assert_eq!(mapping.bounding_box(&of), BoundingBox::new(30.0, 30.0, 40.0, 40.0));
        let cut = BoundingBox::new(0.0, 20.0, 20.0, 10.0);
        let seen = BoundingBox::new(10.0, 20.0, 10.0, 10.0);
        assert_eq!(mapping.bounding_box(&cut), mapping.bounding_box(&seen));
        assert_eq!(mapping.bounding_box(&BoundingBox::new(0.0, 0.0, 9.0, 50.0)).area(), 0.0);
        assert!(!mapping.is_axis_aligned());
    }

    #[test]
    fn corners_that_a_warp_leaves_empty_are_invisible() {
        let mut mapping = Mapping::new(Size::new(50, 50));
        mapping.warp(Plane::affine([1.0, 1.0, -25.0, -1.0, 1.0, 25.0]), Size::new(50, 50));
        assert_eq!(mapping.visible, BoundingBox::new(0.0, 0.0, 50.0, 50.0));
        assert_eq!(mapping.back(1.0, 1.0), None);
        assert_eq!(mapping.back(25.0, 25.0), Some((25.0, 25.0)));
        mapping.warp(Plane::affine([0.0; 6]), Size::new(9, 9));
        assert_eq!((mapping.visible.area(), mapping.size), (0.0, Size::new(9, 9)));
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
