//! Origins of pixels under a warp with nearest interpolation. Masks follow warped images with them.

use super::{Interpolation, Positions, Warp, displacement};
use crate::geometry::Size;

impl Warp {
    /// Returns the same map with nearest interpolation. Its positions are those of Pillow's
    /// `Image.transform` with this interpolation. `output` is the size of the output.
    pub fn nearest(&self, output: Size) -> Self {
        let nearest = Self { interpolation: Interpolation::Nearest as u32, ..*self };
        if self.positions() != Positions::Affine {
            return nearest;
        }
        let input = Size::new(self.width as u32, self.height as u32);
        let matrix = [0, 1, 2, 3, 4, 5].map(|number| self.real(number));
        Self::affine(input, output, matrix, Interpolation::Nearest, self.fill)
    }

    /// Origins of the columns and the rows of an output of this size, if they are independent of
    /// each other. `None` for an origin outside of the input. The map has nearest interpolation.
    pub fn axes(
        &self,
        output: Size,
    ) -> Option<(impl Iterator<Item = Option<i32>>, impl Iterator<Item = Option<i32>>)> {
        let is_sum = self.positions() == Positions::Summed;
        if !is_sum || self.real(1) != 0.0 || self.real(3) != 0.0 {
            return None;
        }
        let axis = |first: usize, step: usize, len: u32, input: i32| {
            let halves = (self.real(first + 1) * 0.5, self.real(first) * 0.5);
            let (mut at, step) = (self.real(first + 2) + halves.0 + halves.1, self.real(step));
            (0..len).map(move |_| {
                let sum = at;
                at += step;
                whole(sum, input)
            })
        };
        let columns = axis(0, 0, output.width, self.width);
        Some((columns, axis(3, 4, output.height, self.height)))
    }

    /// Column and row of the input that output pixel `(x, y)` shows. `None` if it is outside. The
    /// map has nearest interpolation, and `table` is its table of displacements.
    pub fn origin(&self, table: &[i32], x: i32, y: i32) -> Option<(i32, i32)> {
        let inside = |x: i32, y: i32| self.is_inside(x, y).then_some((x, y));
        match self.positions() {
            Positions::Whole | Positions::Fixed => {
                let (x, y) = self.integer_position(x, y);
                inside(x, y)
            }
            Positions::Displaced => {
                let (dx, dy) = displacement(self, table, x, y);
                inside(x + rounded(dx), y + rounded(dy))
            }
            Positions::Summed | Positions::Affine | Positions::Perspective => {
                let (x, y) = self.real_position(x, y);
                Some((whole(x, self.width)?, whole(y, self.height)?))
            }
        }
    }

    /// Whether the map has a table of displacements.
    pub fn is_displaced(&self) -> bool {
        self.positions() == Positions::Displaced
    }
}

/// Rounds a displacement in units of 1/65536 pixel to whole pixels, from -32768 to 32767.
pub fn rounded(by: i32) -> i32 {
    by.saturating_add(1 << 15) >> 16
}

/// Pixel of an axis of `len` pixels that contains a position. `None` for positions outside, and for
/// NaN.
fn whole(at: f64, len: i32) -> Option<i32> {
    (at >= 0.0 && at < f64::from(len)).then_some(at as i32)
}
