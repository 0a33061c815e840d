//! Origins of the pixels of a few rows, on the CPU.

use std::ops::Range;

use super::origin_map::{FILLED, OriginMap, Step};

/// Origins of the pixels of a few rows. The memory is reused for the next rows.
#[derive(Debug, Default)]
pub struct OriginRows {
    /// Column and row of each pixel's origin. The column is [`FILLED`] if the pixel is filled.
    places: Vec<(i32, i32)>,
}

impl OriginRows {
    /// Number of rows that are found together.
    pub const ROWS: u32 = 16;

    /// Memory in bytes for [`ROWS`](Self::ROWS) rows of `width` pixels.
    pub fn most_bytes(width: u32) -> u64 {
        let pixels = u64::from(Self::ROWS) * u64::from(width);
        pixels * size_of::<(i32, i32)>() as u64
    }

    /// Finds the origins of these rows of a result with `width` columns. `table` has the tables of
    /// all actions.
    pub fn find(&mut self, map: &OriginMap, table: &[i32], width: u32, rows: Range<u32>) {
        self.places.clear();
        for y in rows {
            self.places.extend((0..width as i32).map(|x| (x, y as i32)));
        }
        for step in &map.steps {
            match step {
                Step::Axes(step) => {
                    let (columns, rows) = (step.columns(&map.axes), step.rows(&map.axes));
                    self.follow(|x, y| {
                        let (x, y) = (columns[x as usize], rows[y as usize]);
                        let (x, y) = if step.transposed { (y, x) } else { (x, y) };
                        (x != FILLED && y != FILLED).then_some((x, y))
                    });
                }
                Step::Warp(warp, range) => {
                    let table = &table[range.clone()];
                    self.follow(|x, y| warp.origin(table, x, y));
                }
                Step::Formula(origin, params) => self.follow(|x, y| {
                    let (x, y) = origin(params, x as u32, y as u32)?;
                    Some((x as i32, y as i32))
                }),
            }
        }
    }

    /// Column and row of each pixel's origin, row by row. `None` for pixels that are filled.
    pub fn iter(&self) -> impl Iterator<Item = Option<(u32, u32)>> {
        self.places.iter().map(|&(x, y)| (x != FILLED).then_some((x as u32, y as u32)))
    }

    /// Replaces each place by its origin in an earlier image. `None` fills the pixel.
    fn follow(&mut self, origin: impl Fn(i32, i32) -> Option<(i32, i32)>) {
        for place in self.places.iter_mut().filter(|it| it.0 != FILLED) {
            *place = origin(place.0, place.1).unwrap_or((FILLED, 0));
        }
    }

    /// Frees the memory.
    pub fn release(&mut self) {
        *self = Self::default();
    }
}
