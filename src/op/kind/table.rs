//! Tables: each byte of a channel becomes a byte or a float, whatever its position and the other channels.
//!
//! Tables are computed on the host and are data for every executor. Neighbouring ones are composed into one.

use crate::image::{HostImage, Image};
use crate::op::{Cuda, Tiling};
use crate::tensor::CHANNELS;

/// Entries (of 32 bits) of a table of bytes.
pub const BYTE_ENTRIES: usize = CHANNELS * 256 / 4;
/// Entries of a table of floats.
pub const FLOAT_ENTRIES: usize = CHANNELS * 256;

/// Byte for each byte of each channel.
pub type Bytes = [[u8; 256]; CHANNELS];
/// Float for each byte of each channel.
pub type Floats = [[f32; 256]; CHANNELS];

/// CUDA implementation of tables of bytes.
pub const CUDA: Cuda =
    Cuda::new("Table", include_str!("../../../kernels/table.cu")).tiled(Tiling::Follows);
/// CUDA implementation of tables of floats.
pub const FLOAT_CUDA: Cuda =
    Cuda::new("FloatTable", include_str!("../../../kernels/floattable.cu")).tiled(Tiling::Follows);

/// Table of a function of channel and byte.
pub fn of<T>(value: impl Fn(usize, u8) -> T) -> [[T; 256]; CHANNELS] {
    std::array::from_fn(|channel| std::array::from_fn(|byte| value(channel, byte as u8)))
}

/// Table with the entries of a table of bytes.
pub fn bytes(entries: &[i32]) -> &Bytes {
    bytemuck::from_bytes(bytemuck::cast_slice(entries))
}

/// Table with the entries of a table of floats.
pub fn floats(entries: &[i32]) -> &Floats {
    bytemuck::from_bytes(bytemuck::cast_slice(entries))
}

/// The table that applies `first`, then `second`.
pub fn composed<T: Copy>(first: &Bytes, second: &[[T; 256]; CHANNELS]) -> [[T; 256]; CHANNELS] {
    of(|channel, byte| second[channel][usize::from(first[channel][usize::from(byte)])])
}

/// Reference implementation.
pub fn reference(entries: &[i32], src: &HostImage, out: &mut HostImage) {
    let HostImage::U8(src) = src else { unreachable!("tables map bytes") };
    match out {
        HostImage::U8(out) => look_up(bytes(entries), src, out),
        HostImage::F32(out) => look_up(floats(entries), src, out),
    }
}

/// Looks up every pixel of `out`.
pub fn look_up<T: Copy + Default>(
    table: &[[T; 256]; CHANNELS],
    src: &Image<u8>,
    out: &mut Image<T>,
) {
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            let pixel = src.pixel(x, y);
            out.set_pixel(x, y, [0, 1, 2].map(|c| table[c][usize::from(pixel[c])]));
        }
    }
}
