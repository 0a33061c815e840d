//! Tables of floats: each byte of a channel becomes a float, independent of its position and of the
//! other channels.

use serde_json::{Value, json};

use crate::image::{HostImage, PixelType};

use super::mix::Mixer;
use super::table::{Floats, floats, look_up};
use super::{
    ActionKind, Change, Cuda, Execution, Executor, Facts, Move, ParamBytes, Pointwise, Tiling,
};

const CUDA: Cuda =
    Cuda::new("FloatTable", include_str!("../../../kernels/floattable.cu")).tiled(Tiling::Follows);

/// The kind.
pub static FACTS: Facts = Facts {
    pixels: |input| (input == PixelType::U8).then_some(PixelType::F32),
    cuda: Some(CUDA),
    params_bytes: size_of::<u64>(),
    nests: true,
    entries: size_of::<Floats>() / size_of::<i32>(),
    ..Facts::new::<Params>(Execution::Pointwise)
};

/// Parameters of one sample. The type is empty, because the table of the action holds everything.
#[derive(Clone, Copy, Debug)]
pub struct Params;

impl ActionKind for Params {
    fn executor(&self) -> Executor<'_> {
        Executor::Pointwise(Pointwise { moves: Move::None, change: Change::FloatTable })
    }

    fn reference(&self, table: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        let (HostImage::U8(src), HostImage::F32(out)) = (src, out) else {
            unreachable!("a float table needs an input of bytes and an output of floats");
        };
        look_up(floats(table), src, out);
    }

    fn bytes(&self, table_address: u64) -> ParamBytes {
        ParamBytes::new(&table_address)
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        ("float_table", None)
    }

    fn named_table(&self, table: &[i32]) -> Value {
        json!({ "table": floats(table).map(|row| row.to_vec()) })
    }
}
