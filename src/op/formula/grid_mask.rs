//! `grid_mask`: overwrites the squares of a rotated grid.

use bytemuck::{Pod, Zeroable};

/// Parameters of one sample. Positions are fractions of a tile in 32 bits, so that whole tiles wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Step along the tile's first axis for a step to the right, and along its second for a step down.
    pub along: u32,
    /// Step along the second axis for a step to the right; the first goes back by it for a step down.
    pub across: u32,
    /// Position of the image's first pixel on both axes.
    pub start: [u32; 2],
    /// Pixels whose position is below it on both axes are masked.
    pub limit: u64,
    /// New colour.
    pub fill: [u8; 3],
    /// Always 0.
    pub padding: [u8; 5],
}

impl Params {
    /// Grid of tiles of `tile` pixels, masked for `ratio` (0 to 1) of their sides, rotated by `angle` radians, then moved
    /// by `shift` pixels along its own axes, as in DALI (Chen et al., "GridMask data augmentation", 2020).
    pub fn new(tile: f64, ratio: f64, angle: f64, shift: [f64; 2], fill: [u8; 3]) -> Self {
        let position = |tiles: f64| (tiles * UNIT).round_ties_even() as i64 as u32;
        Self {
            along: position(libm::cos(angle) / tile),
            across: position(libm::sin(angle) / tile),
            start: shift.map(|pixels| position(-pixels / tile)),
            limit: (ratio * UNIT).round_ties_even() as u64,
            fill,
            padding: [0; 5],
        }
    }
}

/// One tile.
const UNIT: f64 = 4_294_967_296.0;

/// DALI's `grid_mask` (`grid_mask_cpu.h`): the colour where both fractions of (x cos - y sin, x sin + y cos) / tile -
/// shift / tile are below `ratio`, the pixel elsewhere. In integers; DALI adds up steps in f32, so pixels at the edges of
/// squares may differ.
#[inline(always)]
pub fn pixel(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
    let (x, y) = (x as u32, y as u32);
    let [first, second] = params.start;
    let first = first
        .wrapping_add(x.wrapping_mul(params.along))
        .wrapping_sub(y.wrapping_mul(params.across));
    let second = second
        .wrapping_add(x.wrapping_mul(params.across))
        .wrapping_add(y.wrapping_mul(params.along));
    if u64::from(first.max(second)) < params.limit { params.fill } else { pixel }
}
