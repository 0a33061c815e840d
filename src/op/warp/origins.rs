//! Origins of pixels under a warp with nearest interpolation. Masks follow warped images with them.

use super::{Interpolation, Positions, Warp, displacement};
use crate::geometry::Size;
use crate::op::Origins;

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

    /// Replaces places of the output by those of the input. The map has nearest interpolation, and
    /// `table` is its table of displacements.
    pub fn follow(&self, table: &[i32], output: Size, origins: &mut Origins) {
        let inside = |x: i32, y: i32| {
            let is_inside = (0..self.width).contains(&x) && (0..self.height).contains(&y);
            is_inside.then_some((x, y))
        };
        // A position that is NaN is outside.
        let whole = |at: f64, len: i32| (at >= 0.0 && at < f64::from(len)).then_some(at as i32);
        match self.positions() {
            Positions::Whole | Positions::Fixed => origins.follow(|x, y| {
                let (x, y) = self.integer_position(x, y);
                inside(x, y)
            }),
            Positions::Displaced => origins.follow(|x, y| {
                let (dx, dy) = displacement(self, table, x, y);
                let rounded = |by: i32| by.saturating_add(1 << 15) >> 16;
                inside(x + rounded(dx), y + rounded(dy))
            }),
            Positions::Summed if self.real(1) == 0.0 && self.real(3) == 0.0 => {
                // Columns and rows are independent of each other, so each is summed up once.
                let sums = |first: usize, step: usize, len: u32| {
                    let halves = (self.real(first + 1) * 0.5, self.real(first) * 0.5);
                    let mut at = self.real(first + 2) + halves.0 + halves.1;
                    (0..len).map(move |_| {
                        let sum = at;
                        at += self.real(step);
                        sum
                    })
                };
                const OUTSIDE: u32 = u32::MAX;
                let columns = sums(0, 0, output.width).map(|at| whole(at, self.width));
                let rows = sums(3, 4, output.height).map(|at| whole(at, self.height));
                let mark = |at: Option<i32>| at.map_or(OUTSIDE, |at| at as u32);
                origins.follow_axes(columns.map(mark), rows.map(mark));
                origins.follow(inside);
            }
            Positions::Summed | Positions::Affine | Positions::Perspective => {
                origins.follow(|x, y| {
                    let (x, y) = self.real_position(x, y);
                    Some((whole(x, self.width)?, whole(y, self.height)?))
                });
            }
        }
    }
}
