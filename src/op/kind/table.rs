//! Tables: each byte of a channel becomes a byte, independent of its position and of the other
//! channels.
//!
//! The CPU computes the entries of a table. The executors on the CPU and on the GPU only look them
//! up. Consecutive tables are merged into one.

use serde_json::{Value, json};

use crate::image::{HostImage, Image};
use crate::tensor::CHANNELS;

use super::mix::Mixer;
use super::{
    ActionKind, Change, Cuda, Execution, Executor, Facts, Move, ParamBytes, Pointwise, Tiling,
};

/// Table of bytes: the new byte for each byte value of each channel.
pub type Bytes = [[u8; 256]; CHANNELS];
/// Table of floats: the float for each byte value of each channel.
pub type Floats = [[f32; 256]; CHANNELS];

const CUDA: Cuda =
    Cuda::new("Table", include_str!("../../../kernels/table.cu")).tiled(Tiling::Follows);

/// The kind.
pub static FACTS: Facts = Facts {
    cuda: Some(CUDA),
    params_bytes: size_of::<u64>(),
    nests: true,
    entries: size_of::<Bytes>() / size_of::<i32>(),
    ..Facts::new::<Params>(Execution::Pointwise)
};

/// Parameters of one sample. The type is empty, because the table of the action holds everything.
#[derive(Clone, Copy, Debug)]
pub struct Params;

impl ActionKind for Params {
    fn executor(&self) -> Executor<'_> {
        Executor::Pointwise(Pointwise { moves: Move::None, change: Change::Table })
    }

    fn reference(&self, table: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("a byte table needs an input and an output of bytes");
        };
        look_up(bytes(table), src, out);
    }

    fn bytes(&self, table_address: u64) -> ParamBytes {
        ParamBytes::new(&table_address)
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        ("table", None)
    }

    fn named_table(&self, table: &[i32]) -> Value {
        json!({ "table": bytes(table).map(|row| row.to_vec()) })
    }
}

/// Computes a table from a function of channel and byte.
pub fn of<T>(value: impl Fn(usize, u8) -> T) -> [[T; 256]; CHANNELS] {
    std::array::from_fn(|channel| std::array::from_fn(|byte| value(channel, byte as u8)))
}

/// Reads table entries as a table of bytes.
pub fn bytes(entries: &[i32]) -> &Bytes {
    bytemuck::from_bytes(bytemuck::cast_slice(entries))
}

/// Reads table entries as a table of floats.
pub fn floats(entries: &[i32]) -> &Floats {
    bytemuck::from_bytes(bytemuck::cast_slice(entries))
}

/// Merges two tables into one that applies `first`, then `second`.
pub fn composed<T: Copy>(first: &Bytes, second: &[[T; 256]; CHANNELS]) -> [[T; 256]; CHANNELS] {
    of(|channel, byte| second[channel][usize::from(first[channel][usize::from(byte)])])
}

/// Computes every pixel of `out` by looking up the pixel of `src` in the table.
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
