//! `grid_mask`: overwrites the squares of a rotated grid.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::PositionFormula;
use crate::op::settings::{check_pair, drawn, equal_values, one_or_each};
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Overwrites the squares of a rotated grid with a colour: DALI's `grid_mask`. Pixels less than
/// 0.001 pixel from the edge of a square may differ, because DALI rounds in f32 (measured on images
/// of up to 1000x1000).
///
/// Each number except `fill` may be given as a range `[low, high]` from which it is drawn
/// uniformly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GridMask {
    /// Distance between equal edges of neighbouring squares, in pixels, 1 to 65,535. Default 100.
    #[serde(deserialize_with = "one_or_each")]
    pub tile: [f64; 2],
    /// Side of a square divided by `tile`, 0 to 1. Default 0.5.
    #[serde(deserialize_with = "one_or_each")]
    pub ratio: [f64; 2],
    /// Rotation in degrees, -360 to 360. DALI's setting is in radians. Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub angle: [f64; 2],
    /// Shift along the grid's first axis in pixels, -65,535 to 65,535. Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub shift_x: [f64; 2],
    /// Shift along the grid's second axis in pixels, -65,535 to 65,535. Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub shift_y: [f64; 2],
    /// Red, green and blue of the squares, 0 to 255. In TOML, one number sets all three. Default
    /// black.
    #[serde(deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

impl Default for GridMask {
    fn default() -> Self {
        let zero = [0.0; 2];
        Self {
            tile: [100.0; 2],
            ratio: [0.5; 2],
            angle: zero,
            shift_x: zero,
            shift_y: zero,
            fill: [0; 3],
        }
    }
}

impl Operator for GridMask {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::position::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let [tile, ratio, angle, x, y] =
            [self.tile, self.ratio, self.angle, self.shift_x, self.shift_y]
                .map(|range| drawn(range, draw.rng()));
        draw.position::<Self>(&Params::new(tile, ratio, angle.to_radians(), [x, y], self.fill));
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("tile", self.tile, 1.0, 65_535.0)?;
        check_pair("ratio", self.ratio, 0.0, 1.0)?;
        check_pair("angle", self.angle, -360.0, 360.0)?;
        check_pair("shift_x", self.shift_x, -65_535.0, 65_535.0)?;
        check_pair("shift_y", self.shift_y, -65_535.0, 65_535.0)
    }

    fn fills_channels(&self) -> bool {
        true
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for GridMask {
    const NAME: &'static str = "grid_mask";

    fn examples() -> Vec<Self> {
        let tile = [10.0; 2];
        vec![
            Self { tile, ..Self::default() },
            Self { tile: [5.0, 20.0], ratio: [0.2, 0.6], angle: [-45.0, 45.0], ..Self::default() },
            Self {
                tile,
                shift_x: [3.0; 2],
                shift_y: [-2.5; 2],
                fill: [9, 8, 7],
                ..Self::default()
            },
        ]
    }
}

impl PositionFormula for GridMask {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("GridMask", include_str!("../../../kernels/grid_mask.cu")));

    /// Computes DALI's `grid_mask` (`grid_mask_cpu.h`). The position of a pixel in the grid is
    /// `(x cos - y sin, x sin + y cos) / tile - shift / tile`. If the fractions of both coordinates
    /// are below `ratio`, the pixel gets the fill colour. feedwater computes positions with
    /// integers. DALI adds up steps in f32, so pixels less than 0.001 pixel from an edge may
    /// differ.
    #[inline(always)]
    fn bytes(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
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
}

/// Parameters of one sample. The position of a pixel in the grid has two coordinates, which are
/// fractions of a tile in 32 bits. They wrap around at the end of a tile, so whole tiles do not
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Step of the position: one pixel to the right adds this number to the first coordinate, and
    /// one pixel down adds it to the second.
    pub along: u32,
    /// Step of the position: one pixel to the right adds this number to the second coordinate, and
    /// one pixel down subtracts it from the first.
    pub across: u32,
    /// Position of the image's first pixel in the grid.
    pub start: [u32; 2],
    /// Pixels whose two coordinates are both below this number are masked.
    pub limit: u64,
    /// Colour of masked pixels.
    pub fill: [u8; 3],
    /// Always 0.
    #[serde(skip)]
    pub padding: [u8; 5],
}

impl Params {
    /// Parameters for tiles with sides of `tile` pixels, of which the fraction `ratio` (0 to 1) is
    /// masked. The grid is rotated by `angle` radians, then moved by `shift` pixels along its own
    /// axes, as in DALI (Chen et al., "GridMask data augmentation", 2020).
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

/// Side of a tile, in the unit of the fixed-point positions: 2^32 units are one tile.
const UNIT: f64 = 4_294_967_296.0;
