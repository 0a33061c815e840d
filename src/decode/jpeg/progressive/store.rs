//! Coefficients of a progressive image, which are kept from scan to scan.

use super::super::bands::{Block, Mask};
use super::super::blocks::{BLOCK, Blocks};
use super::super::frame::Shape;
use super::super::rows::DecodedPart;
use crate::error::{DataError, reserve};

/// Returns the memory for the coefficients of an image, in bytes.
pub fn memory_bytes(shape: &Shape) -> u64 {
    let [across, down] = shape.units().map(|units| units as u64);
    let of_block = size_of::<Block>() + size_of::<Mask>();
    (across * down).saturating_mul((shape.blocks().1 * of_block) as u64)
}

/// Coefficients of the MCUs of a part of an image, and masks of all blocks.
pub struct Store {
    pub grids: [Grid; 3],
    pub masks: Vec<Mask>,
    pub blocks: Vec<Block>,
    /// Number of MCUs in a row, and number of rows of MCUs.
    pub units: [usize; 2],
    component_count: usize,
}

/// Arrangement of the blocks of a component.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grid {
    /// Number of blocks per MCU, horizontally and vertically.
    pub sampling: [usize; 2],
    /// Number of blocks, horizontally and vertically, without those that only fill up MCUs.
    pub real: [usize; 2],
    /// Range of columns of blocks whose coefficients are kept.
    pub columns: [usize; 2],
    /// Range of rows of blocks whose coefficients are kept.
    pub rows: [usize; 2],
    /// Number of blocks in a row.
    across: usize,
    /// Position of the component's first mask.
    mask: usize,
    /// Position of the component's first coefficients.
    block: usize,
}

impl Grid {
    /// Returns the position of the mask of a block.
    #[inline(always)]
    pub fn mask(&self, x: usize, y: usize) -> usize {
        self.mask + y * self.across + x
    }

    /// Returns the position of a block's coefficients, which must be kept.
    #[inline(always)]
    pub fn block(&self, x: usize, y: usize) -> usize {
        let [from, to] = self.columns;
        self.block + (y - self.rows[0]) * (to - from) + (x - from)
    }

    /// Whether the store holds coefficients of a row of blocks.
    pub fn has_row(&self, y: usize) -> bool {
        (self.rows[0]..self.rows[1]).contains(&y)
    }

    /// Whether the store holds the coefficients of a block.
    pub fn has(&self, x: usize, y: usize) -> bool {
        self.has_row(y) && (self.columns[0]..self.columns[1]).contains(&x)
    }
}

impl Store {
    /// Creates a store in which all coefficients are zero.
    pub fn new(shape: &Shape, part: &DecodedPart) -> Result<Self, DataError> {
        let component_count = shape.component_count();
        let units = shape.units();
        let mut grids = [Grid::default(); 3];
        let (mut mask, mut block) = (0, 0);
        for (component, grid) in grids.iter_mut().enumerate().take(component_count) {
            let [h, v] = shape.blocks_of(component);
            let [wide, high] = [shape.sampling[0] / h, shape.sampling[1] / v];
            *grid = Grid {
                sampling: [h, v],
                real: [
                    (shape.size.width as usize).div_ceil(8 * wide),
                    (shape.size.height as usize).div_ceil(8 * high),
                ],
                columns: part.columns.map(|unit| unit * h),
                rows: part.rows.map(|unit| unit * v),
                across: units[0] * h,
                mask,
                block,
            };
            mask += units[0] * h * units[1] * v;
            let [columns, rows] = [part.columns, part.rows].map(|[from, to]| to - from);
            block += columns * h * rows * v;
        }
        let (masks, blocks) = (reserve::zeroed(mask)?, reserve::zeroed(block)?);
        Ok(Self { grids, masks, blocks, units, component_count })
    }

    /// Copies the blocks of MCUs that are transformed together into `into`.
    pub fn gather(&self, row: usize, column: usize, units: usize, into: &mut Blocks) {
        let blocks = into.coefficients.as_chunks_mut::<BLOCK>().0;
        let mut at = 0;
        for unit in column..column + units {
            for grid in &self.grids[..self.component_count] {
                let [h, v] = grid.sampling;
                for y in row * v..(row + 1) * v {
                    for x in unit * h..(unit + 1) * h {
                        blocks[at] = self.blocks[grid.block(x, y)];
                        let mask = self.masks[grid.mask(x, y)];
                        into.lens[at] = (64 - mask.trailing_zeros()).max(1) as u8;
                        at += 1;
                    }
                }
            }
        }
        into.lens[at..].fill(0);
        blocks[at..].fill([0; BLOCK]);
    }
}
