//! Sizes, windows (half-open ranges of pixels, `u32`), EXIF orientations, boxes, and coordinate
//! transforms of a chain.

mod axis;
mod bounding_box;
mod displaced;
mod mapping;
mod plane;
mod point_map;

use std::fmt;

#[doc(hidden)]
pub use axis::Axis;
pub use bounding_box::BoundingBox;
pub(crate) use displaced::Displaced;
pub use mapping::Mapping;
pub use plane::Plane;
pub(crate) use point_map::{DisplacedPart, OwnedPointMap, PointMap};

/// Width and height of an image in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Size {
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Size {
    /// Creates a size of `width` columns and `height` rows.
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Number of pixels.
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// Window that covers an image of this size.
    pub const fn window(self) -> Roi {
        Roi { x: 0, y: 0, width: self.width, height: self.height }
    }

    /// Size after a decoder's reduction: each side divided by `reduction` and rounded up, as in
    /// libjpeg.
    pub const fn reduced(self, reduction: u32) -> Self {
        Self::new(self.width.div_ceil(reduction), self.height.div_ceil(reduction))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// Window of an image: columns `x .. x + width` and rows `y .. y + height`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roi {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Roi {
    /// Creates a window of `width` x `height` pixels with its first pixel at `(x, y)`.
    pub const fn new(x: u32, y: u32, width: u32, height: u32) -> Self {
        Self { x, y, width, height }
    }

    /// Width and height.
    pub const fn size(self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// First column after the window.
    pub const fn right(self) -> u32 {
        self.x + self.width
    }

    /// First row after the window.
    pub const fn bottom(self) -> u32 {
        self.y + self.height
    }

    /// Row pitch of the window in device memory as interleaved RGB, in bytes. Rows are padded to
    /// groups of 16 pixels, so kernels load each group with three loads of 16 bytes.
    pub const fn pitch_bytes(self) -> u32 {
        48 * self.width.div_ceil(16)
    }

    /// Size in bytes of the window in device memory, with rows of
    /// [`pitch_bytes`](Self::pitch_bytes).
    pub const fn pitched_bytes(self) -> usize {
        self.pitch_bytes() as usize * self.height as usize
    }

    /// Whether the window has no pixels.
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// Whether this window contains every pixel of `inner`.
    pub const fn contains(self, inner: Roi) -> bool {
        inner.x >= self.x
            && inner.y >= self.y
            && inner.right() <= self.right()
            && inner.bottom() <= self.bottom()
    }

    /// Smallest window that contains both windows.
    pub fn around(self, other: Roi) -> Roi {
        let (x, y) = (self.x.min(other.x), self.y.min(other.y));
        let right = self.right().max(other.right());
        let bottom = self.bottom().max(other.bottom());
        Roi::new(x, y, right - x, bottom - y)
    }

    /// Window of the pixels that are in both windows. Empty (zero size) if they are disjoint.
    pub fn intersection(self, other: Roi) -> Roi {
        let x = self.x.max(other.x);
        let y = self.y.max(other.y);
        let right = self.right().min(other.right());
        let bottom = self.bottom().min(other.bottom());
        if x < right && y < bottom { Roi::new(x, y, right - x, bottom - y) } else { Roi::default() }
    }
}

impl fmt::Display for Roi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}+{}+{}", self.width, self.height, self.x, self.y)
    }
}

/// Transform from stored to upright pixels (EXIF tag 0x0112, values 1 to 8).
///
/// Every orientation is an optional transposition of the stored image, followed by optional
/// mirroring, as in Pillow's `ImageOps.exif_transpose`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Orientation {
    /// Whether rows and columns are swapped first.
    pub transpose: bool,
    /// Whether columns are then reversed.
    pub mirror_x: bool,
    /// Whether rows are then reversed.
    pub mirror_y: bool,
}

impl Orientation {
    /// Identity orientation, EXIF value 1.
    pub const UPRIGHT: Self = Self { transpose: false, mirror_x: false, mirror_y: false };

    /// Returns the orientation of an EXIF value. Values outside 1 to 8 mean upright, as in Pillow.
    pub const fn from_exif(value: u16) -> Self {
        let (transpose, mirror_x, mirror_y) = match value {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Self { transpose, mirror_x, mirror_y }
    }

    /// Whether the stored pixels are already upright.
    pub const fn is_upright(self) -> bool {
        !self.transpose && !self.mirror_x && !self.mirror_y
    }

    /// Size of the upright image, for an image whose stored size is `stored`.
    pub const fn upright_size(self, stored: Size) -> Size {
        if self.transpose { Size::new(stored.height, stored.width) } else { stored }
    }

    /// Stored position of the upright pixel `(x, y)`, in an image whose stored size is `stored`.
    pub const fn stored_position(self, stored: Size, x: u32, y: u32) -> (u32, u32) {
        let upright = self.upright_size(stored);
        let x = if self.mirror_x { upright.width - 1 - x } else { x };
        let y = if self.mirror_y { upright.height - 1 - y } else { y };
        if self.transpose { (y, x) } else { (x, y) }
    }

    /// Upright position of the stored pixel `(x, y)`, in an image whose stored size is `stored`.
    pub const fn upright_position(self, stored: Size, x: u32, y: u32) -> (u32, u32) {
        let upright = self.upright_size(stored);
        let (x, y) = if self.transpose { (y, x) } else { (x, y) };
        let x = if self.mirror_x { upright.width - 1 - x } else { x };
        let y = if self.mirror_y { upright.height - 1 - y } else { y };
        (x, y)
    }

    /// Returns the number of columns and rows that a decoder adds at the start of the upright
    /// image, so that `reduction` divides its sides. `stored` is the size of the image before the
    /// reduction.
    ///
    /// A decoder adds padding at the end of the stored image. On a mirrored axis, this is the start
    /// of the upright image.
    pub const fn padding(self, stored: Size, reduction: u32) -> Size {
        let Size { width, height } = self.upright_size(stored);
        Size {
            width: if self.mirror_x { width.next_multiple_of(reduction) - width } else { 0 },
            height: if self.mirror_y { height.next_multiple_of(reduction) - height } else { 0 },
        }
    }

    /// Returns the stored window that contains exactly the pixels of the upright window `roi`.
    pub const fn stored_window(self, stored: Size, roi: Roi) -> Roi {
        let upright = self.upright_size(stored);
        let x = if self.mirror_x { upright.width - roi.right() } else { roi.x };
        let y = if self.mirror_y { upright.height - roi.bottom() } else { roi.y };
        if self.transpose {
            Roi::new(y, x, roi.height, roi.width)
        } else {
            Roi::new(x, y, roi.width, roi.height)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_half_open() {
        let window = Roi::new(2, 3, 4, 5);
        assert_eq!((window.right(), window.bottom()), (6, 8));
        assert!(window.contains(Roi::new(5, 7, 1, 1)));
        assert!(!window.contains(Roi::new(6, 7, 1, 1)));
    }

    #[test]
    fn windows_that_only_touch_do_not_intersect() {
        assert!(Roi::new(0, 0, 4, 4).intersection(Roi::new(4, 0, 4, 4)).is_empty());
        assert_eq!(Roi::new(0, 0, 4, 4).intersection(Roi::new(2, 3, 9, 9)), Roi::new(2, 3, 2, 1));
    }

    #[test]
    fn a_mirrored_axis_begins_with_the_padding_of_a_reduction() {
        let stored = Size::new(13, 9);
        let padding = |value| {
            let Size { width, height } = Orientation::from_exif(value).padding(stored, 4);
            (width, height)
        };
        let expected = [(0, 0), (3, 0), (3, 3), (0, 3), (0, 0), (3, 0), (3, 3), (0, 3)];
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 8].map(padding), expected);
        let [wide, turned] = [2, 6].map(Orientation::from_exif);
        assert_eq!(wide.padding(Size::new(13, 9), 8), Size::new(3, 0));
        assert_eq!(turned.padding(Size::new(13, 9), 8), Size::new(7, 0));
        assert_eq!(wide.padding(Size::new(16, 9), 8), Size::new(0, 0));
    }

    #[test]
    fn a_stored_window_holds_exactly_the_upright_pixels() {
        let stored = Size::new(7, 5);
        for value in 1..=8 {
            let orientation = Orientation::from_exif(value);
            let upright = orientation.upright_size(stored);
            let roi = Roi::new(1, 2, upright.width - 3, upright.height - 2);
            let window = orientation.stored_window(stored, roi);
            assert_eq!(window.size().pixels(), roi.size().pixels(), "orientation {value}");
            for y in roi.y..roi.bottom() {
                for x in roi.x..roi.right() {
                    let (sx, sy) = orientation.stored_position(stored, x, y);
                    assert!(window.contains(Roi::new(sx, sy, 1, 1)), "orientation {value}");
                    assert_eq!(orientation.upright_position(stored, sx, sy), (x, y));
                }
            }
        }
    }
}
