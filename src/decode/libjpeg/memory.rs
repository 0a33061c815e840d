//! Prediction of the memory that libjpeg allocates.

use crate::decode::LIBRARY_BYTES;
use crate::geometry::Size;
use crate::header::{Component, JpegHeader};

/// Number of sample rows of a component that libjpeg holds per vertical sampling factor: one row of
/// blocks (8 sample rows), and one context row above and one below it for fancy upsampling.
const HELD_ROWS: u64 = 10;

/// Size of a coefficient in bytes.
const COEFFICIENT_BYTES: u64 = 2;

/// Returns the maximum memory that libjpeg allocates for an image, in bytes.
pub fn library_bytes(size: Size, jpeg: &JpegHeader) -> u64 {
    let components = jpeg.components();
    let most = |side: fn(&Component) -> u8| {
        components.iter().map(|it| u64::from(side(it))).max().unwrap_or(1).max(1)
    };
    let (h_most, v_most) = (most(|it| it.h), most(|it| it.v));
    // Number of MCUs per row, and of MCU rows.
    let across = u64::from(size.width).div_ceil(8 * h_most);
    let down = u64::from(size.height).div_ceil(8 * v_most);
    let several = jpeg.is_progressive() || !jpeg.is_interleaved();
    let of = |component: &Component| {
        let (h, v) = (u64::from(component.h), u64::from(component.v));
        let columns = 8 * h * across;
        let rows = HELD_ROWS * v * columns;
        // libjpeg also allocates memory for upsampled rows.
        let stretched = v_most * 8 * h_most * across;
        let blocks = if several { (h * across).saturating_mul(v * down) } else { 0 };
        rows + stretched + 64 * COEFFICIENT_BYTES * blocks
    };
    components.iter().map(of).fold(LIBRARY_BYTES, u64::saturating_add)
}
