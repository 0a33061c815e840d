//! Origins of pixels: which pixel of an image each pixel of a chain's result shows, with nearest
//! interpolation. Masks follow the images of their samples in this way.
//!
//! With nearest interpolation, every geometric action copies whole pixels. So a chain of them is a
//! chain of integer positions, and following the positions back gives the same pixels as executing
//! one action after another.

use std::ops::Range;

use crate::geometry::{Orientation, Size};

/// Origins of the pixels of a few rows. The memory is reused for the next rows.
#[derive(Debug, Default)]
pub struct Origins {
    /// Column and row of each pixel's origin. The column is [`FILLED`] if the pixel is filled.
    places: Vec<(i32, i32)>,
    /// Inputs of all columns, then of all rows, of an action.
    axes: Vec<u32>,
}

/// Column of a pixel that shows no pixel of the image.
const FILLED: i32 = -1;

impl Origins {
    /// Number of rows that are found together, because the origins of all columns and rows of an
    /// action are computed for each group of rows.
    pub const ROWS: u32 = 16;

    /// Memory in bytes for [`ROWS`](Self::ROWS) rows of `width` pixels, and for actions whose
    /// outputs have at most `lines` columns and rows together.
    pub fn most_bytes(width: u32, lines: u64) -> u64 {
        let pixels = u64::from(Self::ROWS) * u64::from(width);
        let places = pixels * size_of::<(i32, i32)>() as u64;
        places.saturating_add(lines.saturating_mul(size_of::<u32>() as u64))
    }

    /// Begins rows of a result that has `width` columns.
    pub fn begin(&mut self, width: u32, rows: Range<u32>) {
        self.places.clear();
        for y in rows {
            self.places.extend((0..width as i32).map(|x| (x, y as i32)));
        }
    }

    /// Column and row of each pixel's origin, row by row. `None` for pixels that are filled.
    pub fn iter(&self) -> impl Iterator<Item = Option<(u32, u32)>> {
        self.places.iter().map(|&(x, y)| (x != FILLED).then_some((x as u32, y as u32)))
    }

    /// Replaces each place by its origin in an earlier image. `None` fills the pixel.
    pub fn follow(&mut self, origin: impl Fn(i32, i32) -> Option<(i32, i32)>) {
        for place in self.places.iter_mut().filter(|it| it.0 != FILLED) {
            *place = origin(place.0, place.1).unwrap_or((FILLED, 0));
        }
    }

    /// Replaces each place by its origin, if columns and rows are independent of each other:
    /// `columns` returns the origin of each column, and `rows` that of each row.
    pub fn follow_axes(
        &mut self,
        columns: impl Iterator<Item = u32>,
        rows: impl Iterator<Item = u32>,
    ) {
        let mut axes = std::mem::take(&mut self.axes);
        axes.clear();
        axes.extend(columns);
        let count = axes.len();
        axes.extend(rows);
        self.follow(|x, y| Some((axes[x as usize] as i32, axes[count + y as usize] as i32)));
        self.axes = axes;
    }

    /// Replaces each place of the upright image by that in the image as stored, which has size
    /// `stored`.
    pub fn turn_back(&mut self, orientation: Orientation, stored: Size) {
        let upright = orientation.upright_size(stored);
        let (last_x, last_y) = (upright.width as i32 - 1, upright.height as i32 - 1);
        self.follow(|x, y| {
            let x = if orientation.mirror_x { last_x - x } else { x };
            let y = if orientation.mirror_y { last_y - y } else { y };
            Some(if orientation.transpose { (y, x) } else { (x, y) })
        });
    }

    /// Frees the memory.
    pub fn release(&mut self) {
        *self = Self::default();
    }
}
